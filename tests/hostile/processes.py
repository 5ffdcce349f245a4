"""Commands in separate processes, with kills, limits and failing writes.

All large modules are imported here, once; each command then runs in a fork of this process and
starts in milliseconds. Nothing is computed before a fork, since threads do not survive it.
"""

import fcntl
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import datasets
import matplotlib.backends.backend_agg
import matplotlib.figure  # noqa: F401
import sacrebleu  # noqa: F401
import torch

import vanilla_transformer.evaluation
import vanilla_transformer.train.run  # noqa: F401
from vanilla_transformer.cli import main

torch.set_num_threads(1)

_PIPE = 2**20  # bytes, Linux's default maximum for users
PATIENCE = 120  # seconds after which a command counts as hanging
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink"}


@dataclass(frozen=True)
class Ended:
    """The end of a command: exit code (-n after signal n, None if it hung) and its stderr."""

    code: int | None
    err: str

    @property
    def last_line(self) -> str:
        """The last line of stderr."""
        lines = self.err.strip().splitlines()
        return lines[-1] if lines else ""

    @property
    def is_refusal(self) -> bool:
        """Whether it refused its request in one line."""
        one_line = self.last_line.startswith("vanilla-transformer")
        return self.code == 2 and one_line and "Traceback" not in self.err

    def told(self) -> str:
        """Return the exit code and the last line, for a report."""
        hidden = " (with a traceback)" if "Traceback" in self.err else ""
        return f"exit {self.code}{hidden}: {self.last_line[:300]}"


Condition = Callable[[Path], None]  # set in the process, for operations in its folder


class Started:
    """A fork that works in a folder, with a pipe large enough for its stderr."""

    def __init__(self, work: Callable[[], int], folder: Path, *conditions: Condition) -> None:
        """Start work that returns the exit code, in a working directory."""
        said, end = os.pipe()  # not a file, which the limit would cut, too
        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _PIPE)
        words = (work, end, folder, conditions)
        self.process = multiprocessing.get_context("fork").Process(target=_become, args=words)
        # No interrupt before the work starts: only the work handles it.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.process.start()
        signal.signal(signal.SIGINT, before)
        self.said = open(said, encoding="utf-8", errors="replace")  # noqa: SIM115
        os.close(end)

    def send(self, signum: int) -> None:
        """Send a signal if the process still runs."""
        if self.process.is_alive():
            os.kill(int(self.process.pid or 0), signum)

    def ended(self, patience: float = PATIENCE) -> Ended:
        """Wait for the end; kill a process that hangs."""
        self.process.join(patience)
        code = self.process.exitcode
        self.process.kill()
        with self.said:
            return Ended(code, self.said.read())


def _become(
    work: Callable[[], int], end: int, folder: Path, conditions: Sequence[Condition]
) -> None:
    """Work in a folder, with the end of a pipe as stderr, and exit with the work's code."""
    os.setpgid(0, 0)
    os.dup2(end, 2)
    os.close(end)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    os.chdir(folder)
    datasets.config.HF_DATASETS_CACHE = folder / "cache"
    for condition in conditions:
        condition(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(work())


def command(*words: object) -> Callable[[], int]:
    """Return a function that runs `vanilla-transformer WORDS`."""
    return lambda: main([str(word) for word in words])


def kill_at(number: int, signum: int) -> Condition:
    """Send this process a signal before its n-th operation that changes a file."""
    return _at_operations(lambda count, _: count == number and os.kill(os.getpid(), signum))


def fail_at(number: int, code: int) -> Condition:
    """Fail the n-th and all later operations, like a full or broken disk."""

    def fail(count: int, path: str) -> None:
        if count >= number:
            raise OSError(code, os.strerror(code), path)

    return _at_operations(fail)


def count_into(target: Path) -> Condition:
    """Count the operations, as the size of a file."""

    def count(number: int, path: str) -> None:
        with target.open("ab") as file:
            file.write(b".")

    return _at_operations(count)


def limit_files(size: int) -> Condition:
    """Fail writes beyond a size in bytes."""

    def limit(folder: Path) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


def _at_operations(fault: Callable[[int, str], object]) -> Condition:
    """Call a fault, with a count and the path, before each operation that changes a file."""
    count = 0
    busy = False  # with the fault's own operations

    def set_in(folder: Path) -> None:
        def hook(event: str, arguments: tuple) -> None:
            nonlocal busy, count
            is_write = event == "open" and (arguments[2] or 0) & _WRITES
            if busy or not (is_write or event in _CHANGES) or isinstance(arguments[0], int):
                return
            name = os.path.abspath(os.fsdecode(arguments[0]))
            if name.startswith(f"{folder}{os.sep}"):
                busy, count = True, count + 1
                try:
                    fault(count, name)
                finally:
                    busy = False

        sys.addaudithook(hook)

    return set_in
