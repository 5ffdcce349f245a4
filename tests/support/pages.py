"""The pages for users as one text, so that tests do not depend on which page says what."""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "training/own_pairs.md",
    "training/small_model.md",
    "training/other_tasks.md",
    "training/README.md",
    "training/benchmarks/README.md",
    "model_cards/README.md",
    "vanilla_transformer/README.md",
    "tests/README.md",
)
README = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in PAGES)
MARK = r"<!-- block: (\w+)(?: \(run by ([^)]+)\))? -->\n"

BLOCK = re.compile(rf"(?:{MARK})?```(bash|python)\n(.*?)```", re.DOTALL)
BLOCKS = {name: text for name, _, _, text in BLOCK.findall(README) if name}

SMALL = ["--max-steps", "2", "--d-model", "16", "--ffn-dim", "16", "--encoder-layers", "1"]

SMALL += ["--decoder-layers", "1", "--attention-heads", "2", "--evaluate-pairs", "2"]


def in_clone(*patterns):
    """Return the files of a fresh clone that match, without what a user's work left among them."""
    command = ["git", "ls-files", "-z", *(f":(glob){pattern}" for pattern in patterns)]
    found = {path for pattern in patterns for path in ROOT.glob(pattern)}
    if (ROOT / ".git").exists():  # else an unpacked source distribution
        with contextlib.suppress(OSError, subprocess.CalledProcessError):  # git does not answer
            names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            found &= {ROOT / name for name in names.stdout.split("\0")}
    return sorted(found)


def run_shell(command, folder):
    command = re.sub(r"(?<![\w/])\.venv/bin/", f"{Path(sys.executable).parent}/", command)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
    return output_of(["bash", "-euc", command], folder, environment)


def output_of(command, folder, environment):
    """Return what a command prints, which must succeed."""
    options = {"cwd": folder, "env": environment, "timeout": 300}
    result = subprocess.run(command, **options, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout
