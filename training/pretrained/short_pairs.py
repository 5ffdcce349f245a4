"""Select the short pairs of a file, or only the greetings and wishes among them.

python training/pretrained/short_pairs.py PAIRS.jsonl.gz OUT.jsonl --longest 20 [--greetings]
"""

import argparse
import re
from collections.abc import Iterable
from json import dumps
from pathlib import Path

from vanilla_transformer.data.pair_files import read_pairs
from vanilla_transformer.storage.atomic import write_text

# Fixed phrases: their translations follow from no other sentence, and they are few.
GREETING = re.compile(
    r"(hello|hi|good (morning|afternoon|evening|night|luck|day)|goodbye|bye|thank you|thanks|"
    r"you're welcome|welcome|happy (birthday|new year)|merry christmas|congratulations|excuse me|"
    r"see you|how are you|cheers|(nice|pleased) to meet you|"
    r"i wish you (a|good|success))\b",
    re.IGNORECASE,
)


def write_pairs(path: Path, pairs: Iterable[tuple[str, str]], target: str) -> None:
    """Write English sentences and their translations as JSON Lines, all or nothing."""
    rows = ({"translation": {"en": source, target: text}} for source, text in pairs)
    write_text(path, "".join(f"{dumps(row, ensure_ascii=False)}\n" for row in rows))


def main() -> None:
    """Read the command line, and write the pairs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", help="file of pairs with English sources")
    parser.add_argument("output", type=Path, help="JSON Lines to write")
    parser.add_argument("--target", default="de", help="language of the translations")
    parser.add_argument("--longest", type=int, default=20, help="characters of a source")
    parser.add_argument("--greetings", action="store_true", help="only greetings and wishes")
    options = parser.parse_args()
    short = (
        pair
        for pair in read_pairs(options.pairs, source_language="en", target_language=options.target)
        if len(pair[0]) <= options.longest and (not options.greetings or GREETING.match(pair[0]))
    )
    write_pairs(options.output, short, options.target)


if __name__ == "__main__":
    main()
