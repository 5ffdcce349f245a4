"""Training runs that are killed or denied writes between two starts.

One rule holds for all: whatever happened, the next start ends with the files of an undisturbed
run, bit by bit, or refuses in one line.
"""

import errno
import functools
import hashlib
import json
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from processes import Ended, Started, command, count_into, fail_at, kill_at, limit_files

PAIRS = Path(__file__).parents[1] / "fixtures" / "tiny_pairs"
RIGHT, REFUSED = "right", "refused"
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_WORDS = ("--max-steps", "40", "--trainer", "save_steps=10", "eval_steps=20")
# Files of a finished run to compare; metrics.json also has times, so only its scores count.
_FILES = ("model.safetensors", "tokenizer.json", "generation_config.json", "samples.md")


def train(precision: str = "fp32") -> Callable[[], int]:
    """Return the training command of all cases."""
    words = ("train", "tiny.yaml", *_WORDS, "--precision", precision, "--output-dir", "run")
    return command(*words)


def new_folder(folder: Path) -> Path:
    """Create a folder with only recipe and pairs."""
    folder.mkdir(parents=True)
    for name in ("tiny.yaml", "train.jsonl", "validation.jsonl", "test.jsonl"):
        shutil.copyfile(PAIRS / name, folder / name)
    return folder


def digests(run: Path) -> dict[str, str]:
    """Return the digests of a run's files, and its scores."""
    found = {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in _FILES}
    metrics = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    return {**found, "scores": json.dumps(metrics["scores"], sort_keys=True)}


class Reference:
    """Undisturbed runs, made once each."""

    def __init__(self, folder: Path) -> None:
        """Take a folder for the runs."""
        self.folder = folder

    @functools.cache  # noqa: B019, there is one instance
    def of(self, precision: str) -> tuple[Path, dict[str, str], int, float]:
        """Return folder, digests, number of file operations and seconds of a run."""
        folder = new_folder(self.folder / precision)
        counted = Path(f"{folder}.count")
        started = time.monotonic()
        ended = Started(train(precision), folder, count_into(counted)).ended()
        seconds = time.monotonic() - started
        if ended.code:
            raise SystemExit(f"The run without faults failed: {ended.told()}")
        return folder, digests(folder / "run"), counted.stat().st_size, seconds


def finished(folder: Path, reference: dict[str, str], ended: Ended) -> str:
    """Return the outcome of the last start, compared with an undisturbed run."""
    if ended.is_refusal:
        return REFUSED
    if ended.code != 0:
        return ended.told()
    found = digests(folder / "run")
    differing = [name for name in reference if found[name] != reference[name]]
    return f"ends with another {', '.join(differing)}" if differing else RIGHT


def kill(rng: random.Random, folder: Path, reference: Reference) -> str:
    """Kill a run one to three times, at random operations or times; then start it again."""
    precision = rng.choice(("fp32", "auto"))
    _, expected, operations, seconds = reference.of(precision)
    new_folder(folder)
    work = train(precision)
    for _ in range(rng.randint(1, 3)):
        signum = rng.choice(SIGNALS)
        number = rng.randint(1, operations)
        faults = [kill_at(number, signum)] if rng.random() < 0.5 else []
        started = Started(work, folder, *faults)
        if not faults:
            time.sleep(rng.uniform(0, seconds))
            started.send(signum)
        ended = started.ended()
        if ended.code not in (0, -signum, 128 + signum) or "Traceback" in ended.err:
            return f"{signal.Signals(signum).name} ends with {ended.told()}"
    ended = Started(work, folder).ended()
    outcome = finished(folder, expected, ended)
    return f"was refused after kills: {ended.last_line}" if outcome == REFUSED else outcome


def failing_write(rng: random.Random, folder: Path, reference: Reference) -> str:
    """Make the disk full, broken or read-only from some operation on, or limit file sizes."""
    _, expected, operations, _ = reference.of("fp32")
    new_folder(folder)
    if rng.random() < 0.5:
        limit = limit_files(int(10 ** rng.uniform(1, 5.5)))
    else:
        code = rng.choice((errno.ENOSPC, errno.EIO, errno.EROFS))
        limit = fail_at(rng.randint(1, operations), code)
    first = Started(train(), folder, limit).ended()
    if first.code != 0 and not first.is_refusal:
        return f"a failing write ends with {first.told()}"
    outcome = finished(folder, expected, Started(train(), folder).ended())
    return "was refused after failing writes" if outcome == REFUSED else outcome
