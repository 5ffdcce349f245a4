"""Training runs that are killed, denied writes, or damaged between two starts.

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


def train(precision: str = "fp32", output: str = "run") -> Callable[[], int]:
    """Return the training command of all cases."""
    words = ("train", "tiny.yaml", *_WORDS, "--precision", precision, "--output-dir", output)
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


def finished(
    folder: Path, reference: dict[str, str], ended: Ended, *, excuse: str | None = None
) -> str:
    """Return the outcome of the last start, compared with an undisturbed run.

    With an excuse, the name of a checkpoint, other files are right if a warning names it.
    """
    if ended.is_refusal:
        return REFUSED
    if ended.code != 0:
        return ended.told()
    found = digests(folder / "run")
    differing = [name for name in reference if found[name] != reference[name]]
    if differing and excuse and excuse in ended.err:
        return RIGHT
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


def _truncated(rng: random.Random, path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(max(len(content), 1))])


def _flipped(rng: random.Random, path: Path) -> None:
    content = bytearray(path.read_bytes() or b"\0")
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def _as_folder(rng: random.Random, path: Path) -> None:
    path.unlink()
    path.mkdir()


def _holding(content: bytes) -> Callable[[random.Random, Path], None]:
    return lambda rng, path: path.write_bytes(content)


_DAMAGE = {
    "truncated": _truncated,
    "a bit flipped": _flipped,
    "empty": _holding(b""),
    "a folder": _as_folder,
    "gone": lambda rng, path: path.unlink(),
    "[]": _holding(b"[]"),
    "null": _holding(b"null"),
    "{}": _holding(b"{}"),
    "deep": _holding(b"[" * 100_000),
    "noise": lambda rng, path: path.write_bytes(rng.randbytes(1000)),
}


def damaged(rng: random.Random, folder: Path, reference: Reference) -> str:
    """Damage a file of a run, its checkpoints or its cache; then train or translate."""
    whole, expected, _, _ = reference.of("fp32")
    shutil.copytree(whole, folder, symlinks=True)
    interrupted = rng.random() < 0.5
    if interrupted:  # before the last checkpoint was written
        for name in ("checkpoints/checkpoint-40", "metrics.json", "model.safetensors"):
            path = folder / "run" / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    files = [path for path in files if path.parent != folder]  # not recipe and pairs
    path, damage = rng.choice(files), rng.choice(sorted(_DAMAGE))
    _DAMAGE[damage](rng, path)
    name = path.relative_to(folder)
    if interrupted or rng.random() < 0.5:
        # Without a damaged checkpoint, the average is another model, and a warning says so.
        excuse = next((part for part in name.parts if part.startswith("checkpoint-")), None)
        outcome = finished(folder, expected, Started(train(), folder).ended(), excuse=excuse)
        return outcome if outcome in (RIGHT, REFUSED) else f"train, {name} {damage}: {outcome}"
    return _used(folder, whole, f"{name} {damage}", may_differ=damage == "a bit flipped")


def _used(folder: Path, whole: Path, what: str, *, may_differ: bool) -> str:
    """Return whether a damaged run translates like the undamaged one, or refuses."""
    translate = command("translate", "run", "test.txt", "--num-beams", "2")
    for place in (folder, whole):
        (place / "test.txt").write_text("ein Hund\nein altes Haus\n\nund\n", encoding="utf-8")
    expected, ended = (Started(translate, place).ended() for place in (whole, folder))
    if ended.is_refusal:
        return REFUSED
    if ended.code == 0 and (may_differ or ended.out == expected.out):
        return RIGHT
    return f"translate, {what}: {ended.told()}"
