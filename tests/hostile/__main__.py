"""`make test-hostile`: kills, failing writes, damaged files, hostile requests, and their outcomes.

    python tests/hostile [--kills N] [--rows N] [--only SECTION[:CASE]] [--seed N]

Every case ends right, refused in one line, or otherwise. The last is a defect, printed with the
options that repeat it. This needs no network and no special rights.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
os.environ |= {"TOKENIZERS_PARALLELISM": "true", "PYTHONFAULTHANDLER": ""}
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support"), str(HERE.parents[1])]

import requests_of_all_kinds as requests  # noqa: E402, after the paths above
import runs  # noqa: E402, after the paths above
from processes import Started  # noqa: E402, after the paths above

# What fits into a quarter of an hour on two cores.
_COUNTS = {"kills": 20, "launches": 2, "failing-writes": 20, "damaged": 100, "writers": 5}
_COUNTS |= {"pickles": 40, "texts": 3000, "rows": 500, "ids": 1000, "seed": 0}
Section = Callable[[str, list[int]], Iterator[str]]  # from seed and case numbers to outcomes


def sections(options: argparse.Namespace, folder: Path) -> dict[str, tuple[Section, int]]:
    """Return each section and its number of cases."""
    reference = runs.Reference(folder)
    one_by_one = {
        "kills": (runs.kill, options.kills),
        "kills through accelerate launch": (runs.kill_launched, options.launches),
        "failing writes": (runs.failing_write, options.failing_writes),
        "damaged files": (runs.damaged, options.damaged),
        "two writers": (runs.two_writers, options.writers),
        "malicious pickles": (requests.pickled, options.pickles),
    }
    together = {
        "texts": (requests.text, options.texts),
        "malformed rows": (requests.malformed_row, options.rows),
        "values of options": (requests.option, len(requests.OPTIONS)),
        "ids and masks": (requests.ids, options.ids),
    }
    found = {
        name: (_one_by_one(case, folder, reference), n) for name, (case, n) in one_by_one.items()
    }
    return found | {
        name: (_in_one_process(case, folder, reference), n) for name, (case, n) in together.items()
    }


def _one_by_one(case: Callable[..., str], folder: Path, reference: runs.Reference) -> Section:
    """Return a section whose cases start processes, each in its own folder."""

    def outcomes(seed: str, numbers: list[int]) -> Iterator[str]:
        for number in numbers:
            place = folder / f"case-{number}"
            yield case(random.Random(f"{seed} {number}"), place, reference)
            shutil.rmtree(place, ignore_errors=True)

    return outcomes


def _in_one_process(case: Callable[..., str], folder: Path, reference: runs.Reference) -> Section:
    """Return a section whose cases are calls, all in one fork, next to an undisturbed run."""

    def outcomes(seed: str, numbers: list[int]) -> Iterator[str]:
        place, *_ = reference.of("fp32", 1)

        def work() -> int:
            for number in numbers:
                try:
                    outcome = case(random.Random(f"{seed} {number}"), place, number)
                except Exception as error:  # any exception is a defect
                    reason = " ".join(str(error).split())[:300]
                    outcome = f"{type(error).__name__}: {reason}"
                print(json.dumps(outcome), flush=True)
            return 0

        ended = Started(work, folder).ended(patience=600)
        found = [json.loads(line) for line in ended.out.splitlines()]
        yield from found
        yield from [f"the process ended: {ended.told()}"] * (len(numbers) - len(found))

    return outcomes


def main() -> int:
    """Run all sections; return 0 if every case ended right or was refused."""
    parser = argparse.ArgumentParser(description=__doc__, usage=argparse.SUPPRESS)
    for name, count in _COUNTS.items():
        parser.add_argument(f"--{name}", type=int, default=count, metavar="N")
    parser.add_argument("--only", metavar="SECTION[:CASE]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hostile-") as temporary:
        return report(sections(options, Path(temporary).resolve()), options)


def report(all_sections: dict[str, tuple[Section, int]], options: argparse.Namespace) -> int:
    """Run the selected sections, and print their outcomes."""
    only, _, case_number = (options.only or "").partition(":")
    if only and only not in all_sections:
        raise SystemExit(f"--only: there is no {only!r}; give one of {', '.join(all_sections)}.")
    defects = 0
    print(f"{'':34}{'tried':>8}{'right':>8}{'refused':>9}{'else':>6}{'seconds':>9}")
    for name, (section, count) in all_sections.items():
        if only not in ("", name):
            continue
        numbers = [int(case_number)] if case_number else list(range(count))
        started, counts = time.monotonic(), Counter()
        outcomes = section(f"{options.seed} {name}", numbers)
        for number, outcome in zip(numbers, outcomes, strict=True):
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
