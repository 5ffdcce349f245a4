"""Run contenders in turns, each in its own process.

Two libraries in one process do not compare fairly, because each has its own threads: on two cores,
once both PyTorch and CTranslate2 have computed in a process, each of them decodes a base model 1.3
to 2 times slower. With processes that take turns, only one computes at a time, and anything else
that the machine does affects all of them.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """What a contender returned in a turn, with its time and memory."""

    output: Any
    seconds: float
    peak_mib: float  # of the process
    own_mib: float  # the part of the peak that came after importing the packages


Contender = Callable[[Any], Answer]


@contextmanager
def processes(
    builders: dict[str, tuple[Callable[..., Callable], tuple]],
) -> Iterator[dict[str, Contender]]:
    """Start each contender in a process that lives as long as the block, and yield them by name.

    Args:
        builders: By name, a module's function and its arguments; what the function returns is
            called with the task of each turn. All must pickle.
    """
    context = multiprocessing.get_context("spawn")  # a fork would share torch's state
    workers, connections = [], {}
    try:
        for name, (build, arguments) in builders.items():
            connections[name], theirs = context.Pipe()
            workers.append(
                context.Process(target=_serve, args=(theirs, build, arguments), daemon=True)
            )
            workers[-1].start()
            theirs.close()  # so that reading fails when the worker has ended
        yield {name: _contender(name, connection) for name, connection in connections.items()}
    finally:
        for connection in connections.values():
            connection.close()  # tells the worker to end
        for worker in workers:
            worker.join(timeout=10)
            worker.kill()  # if it is still busy
            worker.join()


def take_turns(
    contenders: dict[str, Contender], task: object, rounds: int
) -> dict[str, list[Answer]]:
    """Run the task with every contender in each round, in rotating order; return all answers."""
    answers: dict[str, list[Answer]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            answers[name].append(contenders[name](task))
    return answers


def peak_mib() -> float:
    """Return this process's peak memory in MiB; `getrusage` may report its parent's."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _contender(name: str, connection: Connection) -> Contender:
    def ask(task: object) -> Answer:
        connection.send(task)
        try:
            return Answer(*connection.recv())
        except EOFError:
            raise RuntimeError(f"The process of {name} ended; its error is above.") from None

    return ask


def _serve(connection: Connection, build: Callable[..., Callable], arguments: Sequence) -> None:
    """Build the contender in this process, and let it do one task after another."""
    imported = peak_mib()
    run = build(*arguments)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        start = time.perf_counter()
        output = run(task)
        seconds = time.perf_counter() - start
        peak = peak_mib()
        connection.send((output, seconds, peak, peak - imported))
