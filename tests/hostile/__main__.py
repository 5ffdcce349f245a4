"""`make test-hostile`: kills, failing writes, and their outcomes.

    python tests/hostile [--kills N] [--writes N] [--only SECTION[:CASE]] [--seed N]

Every case ends right, refused in one line, or otherwise. The last is a defect, printed with the
options that repeat it. This needs no network and no special rights.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
os.environ |= {"TOKENIZERS_PARALLELISM": "true", "PYTHONFAULTHANDLER": ""}
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support"), str(HERE.parents[1])]

import runs  # noqa: E402, after the paths above

# What fits into a quarter of an hour on two cores.
_COUNTS = {"kills": 40, "writes": 40}
_SECTIONS = {"kills": runs.kill, "writes": runs.failing_write}


def main() -> int:
    """Run all sections; return 0 if every case ended right or was refused."""
    parser = argparse.ArgumentParser(description=__doc__, usage=argparse.SUPPRESS)
    for name, count in (*_COUNTS.items(), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=count, metavar="N")
    parser.add_argument("--only", metavar="SECTION[:CASE]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hostile-") as temporary:
        return report(options, Path(temporary).resolve())


def report(options: argparse.Namespace, folder: Path) -> int:
    """Run the selected sections, each case in its own folder, and print their outcomes."""
    reference = runs.Reference(folder)
    only, _, case_number = (options.only or "").partition(":")
    if only and only not in _SECTIONS:
        raise SystemExit(f"--only: there is no {only!r}; give one of {', '.join(_SECTIONS)}.")
    defects = 0
    print(f"{'':34}{'tried':>8}{'right':>8}{'refused':>9}{'else':>6}{'seconds':>9}")
    for name in [only] if only else _SECTIONS:
        numbers = [int(case_number)] if case_number else range(getattr(options, name))
        started, counts = time.monotonic(), Counter()
        for number in numbers:
            rng, place = random.Random(f"{options.seed} {name} {number}"), folder / f"case-{number}"
            outcome = _SECTIONS[name](rng, place, reference)
            shutil.rmtree(place, ignore_errors=True)
            kind = outcome if outcome in (runs.RIGHT, runs.REFUSED) else "else"
            counts[kind] += 1
            if kind == "else":
                repeat = f"--seed {options.seed} --only '{name}:{number}'"
                defects += 1
                print(f"  {repeat}: {outcome}", flush=True)
        seconds = time.monotonic() - started
        cells = f"{counts[runs.RIGHT]:8}{counts[runs.REFUSED]:9}{counts['else']:6}"
        print(f"{name:34}{len(numbers):8}{cells}{seconds:9.0f}", flush=True)
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main())
