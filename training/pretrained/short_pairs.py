"""Select the short pairs of a file, or of these the greetings and wishes.

python training/pretrained/short_pairs.py PAIRS.jsonl.gz OUT.jsonl --longest 20 [--greetings]
"""

import argparse
import re
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


def main() -> None:
    """Read the command line, and write the pairs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", help="file of pairs with English sources")
    parser.add_argument("output", type=Path, help="JSON Lines to write")
    parser.add_argument("--target", default="de", help="language of the translations")
    parser.add_argument("--longest", type=int, default=20, help="characters of a source")
    parser.add_argument("--greetings", action="store_true", help="greetings and wishes alone")
    options = parser.parse_args()
    lines = []
    for source, target in read_pairs(
        options.pairs, source_language="en", target_language=options.target
    ):
        is_meant = not options.greetings or GREETING.match(source)
        if is_meant and len(source) <= options.longest:
            pair = {"en": source, options.target: target}
            lines.append(dumps({"translation": pair}, ensure_ascii=False) + "\n")
    write_text(options.output, "".join(lines))


if __name__ == "__main__":
    main()
