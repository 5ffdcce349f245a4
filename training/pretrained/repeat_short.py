"""Repeat the short pairs of a file, which a newcomer's greetings are like.

python training/pretrained/repeat_short.py PAIRS.jsonl.gz OUT.jsonl.gz
"""

import gzip
import sys
from json import loads
from pathlib import Path

LONGEST, TIMES = 20, 4  # characters of a source that is short; how often it is in the result


def repeat_short(pairs: Path, output: Path, *, source: str = "en") -> None:
    """Write all pairs, then the short ones again."""
    with gzip.open(pairs, "rt", encoding="utf-8") as file:
        lines = file.readlines()
    short = [line for line in lines if len(loads(line)["translation"][source]) <= LONGEST]
    with gzip.open(output, "wt", encoding="utf-8") as file:
        file.writelines(lines + (TIMES - 1) * short)


if __name__ == "__main__":
    repeat_short(Path(sys.argv[1]), Path(sys.argv[2]))
