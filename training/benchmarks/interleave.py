"""Contenders in processes of their own that take turns.

Two libraries in one process are no fair race: each brings threads of its own, and on two cores, as
soon as both PyTorch and CTranslate2 have computed there, either decodes a base model 1.3 to 2 times
slower. In processes that wait for their turn, the one that has it is alone on the machine, and all
of them meet whatever else the machine does.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """What came of a turn."""

    output: Any
    seconds: float
    peak_mib: float  # of the process
    own_mib: float  # what of it came after the packages were imported


Contender = Callable[[Any], Answer]


@contextmanager
def processes(
    builders: dict[str, tuple[Callable[..., Callable], tuple]],
) -> Iterator[dict[str, Contender]]:
    """Contenders by name, each in a process that lives as long as the block.

    Args:
        builders: For each a function of a module and its arguments; what the function returns is
            called with the task of each turn. All must pickle.
    """
    context = multiprocessing.get_context("spawn")  # a fork would share what torch has started
    workers, connections = [], {}
    try:
        for name, (build, arguments) in builders.items():
            connections[name], theirs = context.Pipe()
            workers.append(
                context.Process(target=_serve, args=(theirs, build, arguments), daemon=True)
            )
            workers[-1].start()
            theirs.close()  # so that the end of the worker ends what is read from it
        yield {name: _contender(name, connection) for name, connection in connections.items()}
    finally:
        for connection in connections.values():
            connection.close()  # which tells the worker to end
        for worker in workers:
            worker.join(timeout=10)
            worker.kill()  # one that is at work still
            worker.join()


def take_turns(
    contenders: dict[str, Contender], task: object, rounds: int
) -> dict[str, list[Answer]]:
    """The answers of all rounds; who comes first changes from round to round."""
    answers: dict[str, list[Answer]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            answers[name].append(contenders[name](task))
    return answers


def peak_mib() -> float:
    """Of this process, in MiB; `getrusage` would count what its parent held when it was started."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _contender(name: str, connection: Connection) -> Contender:
    def ask(task: object) -> Answer:
        connection.send(task)
        try:
            return Answer(*connection.recv())
        except EOFError:
            raise RuntimeError(f"The process of {name} ended; its error stands above.") from None

    return ask


def _serve(connection: Connection, build: Callable[..., Callable], arguments: Sequence) -> None:
    """Answers one task after another, in a process of its own."""
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
