"""Commands in separate processes, with kills, limits and failing writes.

All large modules are imported here, once; each command then runs in a fork of this process and
starts in milliseconds. Nothing is computed before a fork, since threads do not survive it.
"""

import contextlib
import errno
import fcntl
import os
import resource
import signal
import sys
import time
import traceback
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

ROOT = Path(__file__).parents[2]
_PIPE = 2**20  # bytes, Linux's default maximum for users
PATIENCE = 120  # seconds after which a command counts as hanging
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink"}


@dataclass(frozen=True)
class Ended:
    """The end of a command: exit code (-n after signal n, None if it hung) and its output."""

    code: int | None
    out: str
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
    """A fork that works in a folder, with pipes large enough for its output."""

    def __init__(self, work: Callable[[], int], folder: Path, *conditions: Condition) -> None:
        """Start work that returns the exit code, in a working directory."""
        pipes = [os.pipe() for _ in range(2)]  # not files, which the limit would cut, too
        for _, end in pipes:
            fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _PIPE)
        sys.stdout.flush()
        sys.stderr.flush()
        # No interrupt before the work starts: only the work handles it.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.process = os.fork()
        if self.process:
            signal.signal(signal.SIGINT, before)
        else:
            ends = [end for _, end in pipes]
            self._become(work, ends, folder, conditions)
        self.said = [open(end, encoding="utf-8", errors="replace") for end, _ in pipes]  # noqa: SIM115
        for _, end in pipes:
            os.close(end)

    def _become(
        self,
        work: Callable[[], int],
        ends: Sequence[int],
        folder: Path,
        conditions: Sequence[Condition],
    ) -> None:
        code = 1
        try:
            os.setpgid(0, 0)
            for number, end in enumerate(ends, start=1):
                os.dup2(end, number)
                os.close(end)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
            os.chdir(folder)
            datasets.config.HF_DATASETS_CACHE = folder / "cache"
            for condition in conditions:
                condition(folder)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            code = work()
        except SystemExit as request:
            code = request.code if isinstance(request.code, int) else 1
        except BaseException:  # whatever it is, the parent reads it
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def send(self, signum: int) -> None:
        """Send a signal if the process still runs."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signum)

    def ended(self, patience: float = PATIENCE) -> Ended:
        """Wait for the end; kill a process that hangs."""
        deadline = time.monotonic() + patience
        code: int | None = None
        while True:
            found, status = os.waitpid(self.process, os.WNOHANG)
            if found:
                code = os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() > deadline:
                self.send(signal.SIGKILL)
                os.waitpid(self.process, 0)
                break
            time.sleep(0.005)
        texts = []
        for stream in self.said:
            with stream:
                texts.append(stream.read())
        return Ended(code, *texts)


def command(*words: object) -> Callable[[], int]:
    """Return a function that runs `vanilla-transformer WORDS`."""
    return lambda: main([str(word) for word in words])


def kill_at(number: int, signum: int) -> Condition:
    """Send this process a signal before its n-th operation that changes a file."""

    def kill(count: int, path: str) -> None:
        if count == number:
            os.kill(os.getpid(), signum)

    return _at_operations(kill)


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


def _at_operations(fault: Callable[[int, str], None]) -> Condition:
    """Call a fault, with a count and the path, before each operation that changes a file."""
    return lambda folder: sys.addaudithook(_calling(fault, str(folder)))


def _calling(fault: Callable[[int, str], None], folder: str) -> Callable[[str, tuple], None]:
    """Return an audit hook that calls a fault, and ignores the fault's own operations."""
    count = 0
    busy = False

    def hook(event: str, arguments: tuple) -> None:
        nonlocal busy, count
        if busy or not (event == "open" or event in _CHANGES):
            return
        path = arguments[0]
        if event == "open" and not (arguments[2] or 0) & _WRITES:
            return
        if not isinstance(path, str | bytes | os.PathLike):  # an open file
            return
        name = os.path.abspath(os.fsdecode(path))
        if not name.startswith(folder + os.sep):
            return
        busy, count = True, count + 1
        try:
            fault(count, name)
        finally:
            busy = False

    return hook


FULL, BROKEN, READ_ONLY = errno.ENOSPC, errno.EIO, errno.EROFS
