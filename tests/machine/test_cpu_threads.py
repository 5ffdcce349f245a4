"""Threads follow the cores that are free, and cores those that a process may use."""

import math
import os

import pytest
import torch

from vanilla_transformer.errors import RequestError
from vanilla_transformer.machine import cpu_threads
from vanilla_transformer.machine.cpu_threads import FreeThreads, usable_cores, use_threads


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


# Quotas are in microseconds of CPU time in each period.
@pytest.mark.parametrize(
    ("line", "files", "cores"),
    [
        ("0::/", {"cpu.max": "max 100000"}, 8),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("0::/", {"cpu.max": "150000 100000"}, 1),
        ("0::/a/b", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, 2),
        ("0::/host/only", {"cpu.max": "390000 100000"}, 3),  # the path of the host, in a container
        ("0::/a", {"a/cpu.max": "1600000 100000"}, 8),
        ("0::/", {"cpu.max": "garbage"}, 8),
    ],
)
def test_quotas_of_cgroups_limit_the_usable_cores(tmp_path, eight_cores, line, files, cores):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"4:memory:/x\n{line}\n")
    for name, content in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert usable_cores(tmp_path) == cores
    assert usable_cores(tmp_path / "not_linux") == 8


@pytest.fixture
def machine(monkeypatch, eight_cores):
    """Return a machine of eight cores whose clock and neighbours a test decides."""

    class Machine:
        now, total, own, threads = 100.0, 0.0, 0.0, 8

        def pass_time(self, seconds, others):
            """Let time pass in which all threads are busy, as far as the cores are shared."""
            self.now += seconds
            ours = min(self.threads, 8 * self.threads / max(8, self.threads + others))
            self.own += seconds * ours
            self.total += seconds * (ours + min(others, 8 - ours))

    machine = Machine()
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(cpu_threads, "_LATEST", {})
    monkeypatch.setattr(cpu_threads.time, "monotonic", lambda: machine.now)
    monkeypatch.setattr(cpu_threads, "usable_cores", lambda: 8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: machine.threads)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: setattr(machine, "threads", count))
    machine.free_threads = FreeThreads(lambda: (machine.total, machine.own))
    return machine


def numbers_in(machine, seconds, others):
    """Return the numbers of threads in some seconds, looked at ten times a second."""
    numbers = []
    for _ in range(10 * seconds):
        machine.pass_time(0.1, others)
        machine.free_threads.adapt()
        numbers.append(machine.threads)
    return numbers


@pytest.mark.parametrize("others", [0, 0.2, 1, 3, 7, 8, 30])
def test_threads_leave_the_cores_of_others_and_take_them_back(machine, others, caplog):
    caplog.set_level("INFO")
    expected = max(1, math.floor(8 - min(others, 8) + 0.3))
    assert set(numbers_in(machine, 10, 0)) == {8}
    assert numbers_in(machine, 20, others)[-1] == expected
    assert set(numbers_in(machine, 20, others)) == {expected}
    assert numbers_in(machine, 30, 0)[-1] == 8
    assert machine.free_threads.used == sorted({8, *machine.free_threads.used})
    assert bool(caplog.messages) == (expected < 8)


def test_the_next_block_begins_with_the_number_that_the_last_one_found(machine, caplog):
    numbers_in(machine, 20, 3)
    machine.threads = 8  # restored at the end
    machine.free_threads = FreeThreads(lambda: (machine.total, machine.own))
    caplog.set_level("INFO")
    assert set(numbers_in(machine, 20, 3)) == {5} == {*machine.free_threads.used}
    assert not caplog.messages
    assert numbers_in(machine, 30, 0)[-1] == 8


def test_overlapping_blocks_share_the_number_and_the_last_restores_it(machine, monkeypatch):
    monkeypatch.setattr(cpu_threads, "busy_seconds", lambda: (machine.total, machine.own))
    first, second = cpu_threads.free_threads(), cpu_threads.free_threads()
    machine.free_threads = first.__enter__()
    assert numbers_in(machine, 20, 7)[-1] == 1
    assert second.__enter__() is machine.free_threads
    first.__exit__(None, None, None)
    assert numbers_in(machine, 30, 0)[-1] == 8
    assert numbers_in(machine, 20, 3)[-1] == 5
    second.__exit__(None, None, None)
    assert machine.threads == 8
    with cpu_threads.free_threads() as later:
        assert later is not machine.free_threads


def test_a_container_that_hides_the_use_of_its_cores_keeps_all_threads(machine):
    def hidden():
        raise PermissionError(13, "Permission denied", "/proc/stat")

    machine.free_threads = FreeThreads(hidden)
    assert set(numbers_in(machine, 5, 7)) == {8}


def test_others_that_come_and_go_change_the_number_seldom(machine):
    changes = 0
    for second in range(600):
        before = machine.threads
        numbers_in(machine, 1, 4 if second % 12 < 4 else 0)
        changes += machine.threads != before
    assert changes < 20


@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_a_number_that_the_user_gave_is_kept(machine, monkeypatch, variable):
    monkeypatch.setenv(variable, "8")
    machine.free_threads = FreeThreads(lambda: (machine.total, machine.own))
    assert set(numbers_in(machine, 20, 7)) == {8}


@pytest.mark.parametrize(("processes", "threads"), [(2, 4), (3, 2), (20, 1)])
def test_processes_of_one_machine_divide_its_cores(machine, monkeypatch, processes, threads):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    monkeypatch.setenv("OMP_NUM_THREADS", "8")  # as launchers do
    machine.free_threads = FreeThreads(lambda: (machine.total, machine.own))
    assert set(numbers_in(machine, 20, 7)) == {threads}


def test_a_given_number_of_threads_is_at_most_that_of_the_cores(machine, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    use_threads(3)
    assert (machine.threads, os.environ["OMP_NUM_THREADS"]) == (3, "3")
    with pytest.raises(RequestError, match=r"threads=9; .*8"):
        use_threads(9)


def test_more_threads_than_cores_are_warned_of(machine, monkeypatch, caplog):
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    machine.threads = 64
    FreeThreads()
    assert "Got 64 threads for 8 usable core(s)" in caplog.text


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="needs Linux")
def test_busy_time_counts_this_process_among_all():
    total, own = cpu_threads.busy_seconds()
    while cpu_threads.time.process_time() < own + 0.2:
        pass
    later, ours = cpu_threads.busy_seconds()
    assert 0.2 <= ours - own <= later - total + 0.05
