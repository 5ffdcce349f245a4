"""Adapt the number of CPU threads to the free cores, at the start and while computing.

OpenMP's threads spin while they wait for each other. With more threads than free cores each matmul
waits for the scheduler, and one other busy program on two cores makes training three times slower
than one thread would be.
"""

import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

import torch

from ..ranges import Range

logger = logging.getLogger(__name__)

GIVEN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # variables that fix the number of threads
_LOOK_EVERY = 0.5  # seconds between two looks at the machine's load
_WAIT = 20.0  # seconds that cores must stay free before they are used again
_LIGHT = 0.3  # cores; other programs that use less are ignored
# Number of threads used last, by the allowed maximum; the next `free_threads` starts with it.
_LATEST: dict[int, int] = {}
_OPEN: list["FreeThreads"] = []  # the one shared object, once for each open block
_LOCK = Lock()


def usable_cores(root: Path = Path("/")) -> int:
    """Return the number of cores for this process: its CPU affinity, or a smaller cgroup quota.

    Args:
        root: Folder that holds `proc` and `sys`.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, math.floor(min([cores or 1, *_quotas(root)])))


def _quotas(root: Path) -> Iterator[float]:
    """Yield the quotas, in cores, of this process's cgroup and of its parent cgroups."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return
    # Only cgroup v2 has this line. In a container, sys/fs/cgroup may be the container's group.
    path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    group = root / "sys/fs/cgroup" / path
    for folder in (group, *group.parents):
        with suppress(OSError, ValueError, ZeroDivisionError):  # "max" is no limit
            quota, period = (folder / "cpu.max").read_text().split()
            yield int(quota) / int(period)


def use_threads(number: int) -> None:
    """Set a fixed number of threads, whatever other programs do.

    Raises:
        ValueError: The number exceeds the number of cores.
    """
    Range(1, usable_cores()).check(threads=number)
    os.environ[GIVEN[0]] = str(number)
    torch.set_num_threads(number)


class FreeThreads:
    """Adapt torch's number of threads to the free cores.

    Attributes:
        before: Number of threads that torch had before this object changed it.
        used: The numbers of threads so far, in ascending order. Matrix products are rounded
            differently with each number.
    """

    def __init__(self, busy: Callable[[], tuple[float, float]] | None = None) -> None:
        """Start with as many threads as an earlier object ended with, or else with all cores.

        Args:
            busy: Function that returns the seconds of CPU time of all processes on the usable
                cores, and of this process. None asks the system.
        """
        self.cores = usable_cores()
        self._busy = busy or busy_seconds
        self.before = self.most = torch.get_num_threads()
        given = any(os.environ.get(name) for name in GIVEN)
        # Launchers set the same number of threads in each process, whatever the number of cores.
        processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        share = max(1, self.cores // processes)
        if self.most > share and (processes > 1 or not given):
            self.most = share
            torch.set_num_threads(self.most)
        if self.most > self.cores:
            message = "Got %d threads for %d usable core(s), where they will wait for each other."
            logger.warning(message, self.most, self.cores)
        # Processes of one run would count each other as other programs.
        alone = processes == 1 and sys.platform == "linux"
        self._adapts = alone and not given and self.most > 1
        if self._adapts:
            torch.set_num_threads(_LATEST.get(self.most, self.most))
        self.used = [torch.get_num_threads()]
        # Time of the last look; CPU seconds of all processes and of this one.
        self._look: tuple[float, float, float] | None = None
        self._no_core_was_free = -math.inf  # time of the last check without a free core

    def adapt(self) -> None:
        """Set the number of threads to the number of free cores; call this between batches."""
        now = time.monotonic()
        if not self._adapts or (self._look and now < self._look[0] + _LOOK_EVERY):
            return
        try:
            before, self._look = self._look, (now, *self._busy())
        except (OSError, ValueError):  # a container that hides the use of its cores
            self._adapts = False
            return
        if before is None:
            return
        seconds, total, own = (a - b for a, b in zip(self._look, before, strict=True))
        others = max(0.0, total - own) / seconds
        threads, allowed = torch.get_num_threads(), len(os.sched_getaffinity(0))
        if total > (allowed - _LIGHT / 2) * seconds:  # no core idles: all programs are slowed
            others /= min(1.0, own / (threads * seconds)) or 1.0
        free = max(1, min(self.most, math.floor(allowed - others + _LIGHT)))
        if free <= threads:
            self._no_core_was_free = now
        if free < threads or (free > threads and now - self._no_core_was_free >= _WAIT):
            torch.set_num_threads(free)
            _LATEST[self.most] = free
            self.used = sorted({*self.used, free})
            message = "Other programs use %.1f cores: computing with %d of %d threads from now on."
            logger.info(message, others, free, self.most)


@contextmanager
def free_threads() -> Iterator[FreeThreads]:
    """Use as many threads as cores are free; restore torch's number of threads at the end.

    Overlapping blocks share one number; the last block to end restores torch's.
    """
    with _LOCK:
        threads = _OPEN[0] if _OPEN else FreeThreads()
        _OPEN.append(threads)
    try:
        yield threads
    finally:
        with _LOCK:
            _OPEN.pop()
            if not _OPEN:
                torch.set_num_threads(threads.before)


def busy_seconds() -> tuple[float, float]:
    """Return the CPU seconds used on this process's cores by all processes and by this one."""
    cores = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = 0
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        name, *times = line.split()
        if name in cores:
            user, nice, system, _, _, irq, softirq, *_ = map(int, times)
            ticks += user + nice + system + irq + softirq
    return ticks / os.sysconf("SC_CLK_TCK"), time.process_time()
