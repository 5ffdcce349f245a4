"""Interruptions: none is lost, and none breaks a step of long work."""

import contextlib
import os
import signal

import pytest

from vanilla_transformer.machine.signals import Interruption


@pytest.fixture
def interruption():
    found = Interruption()
    with found.handled():
        yield found


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def work(interruption, signals, done):
    """Do three steps; interrupt each as often as `signals` says."""
    for step, count in enumerate(signals):
        with interruption.step():
            for _ in range(count):
                interrupt()
                done.append((step, "interrupted"))
            done.append(step)


def test_a_signal_ends_the_work_after_its_step(interruption):
    done = []
    with pytest.raises(KeyboardInterrupt) as stopped:
        work(interruption, [0, 1, 0], done)
    assert done == [0, (1, "interrupted"), 1]
    assert stopped.value.args == (signal.SIGINT,)


def test_a_second_signal_ends_the_step_at_once(interruption):
    done = []
    with pytest.raises(KeyboardInterrupt):
        work(interruption, [2, 0, 0], done)
    assert done == [(0, "interrupted")]


def test_outside_of_a_step_a_signal_ends_the_work_at_once(interruption):
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_what_no_exception_can_leave_loses_no_signal(interruption):
    class Swallows:
        def __del__(self):
            interrupt()

    swallows = Swallows()
    del swallows  # the exception is lost, without a word
    with pytest.raises(KeyboardInterrupt), interruption.step():
        pass


@pytest.mark.parametrize(("signals", "error"), [(0, ImportError), (1, KeyboardInterrupt)])
def test_an_import_that_a_signal_breaks_off_is_no_missing_package(signals, error):
    def broken_import():
        with contextlib.suppress(KeyboardInterrupt):
            for _ in range(signals):
                interrupt()
        raise ImportError("numpy._core.multiarray failed to import")

    with pytest.raises(error), Interruption().handled():
        broken_import()


def test_the_next_command_begins_anew():
    found = Interruption()
    with pytest.raises(KeyboardInterrupt), found.handled():
        os.kill(os.getpid(), signal.SIGTERM)
    with found.handled(), found.step():
        pass
