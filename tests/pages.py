"""The pages for users as one text, so that tests do not depend on which page says what."""

import contextlib
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "training/own_pairs.md",
    "training/README.md",
    "training/benchmarks/README.md",
    "model_cards/README.md",
    "vanilla_transformer/README.md",
    "tests/README.md",
)
README = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in PAGES)


def in_clone(*patterns):
    """Return the files of a fresh clone that match, without what a user's work left among them."""
    command = ["git", "ls-files", "-z", *(f":(glob){pattern}" for pattern in patterns)]
    found = {path for pattern in patterns for path in ROOT.glob(pattern)}
    if (ROOT / ".git").exists():  # else an unpacked source distribution
        with contextlib.suppress(OSError, subprocess.CalledProcessError):  # git does not answer
            names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            found &= {ROOT / name for name in names.stdout.split("\0")}
    return sorted(found)
