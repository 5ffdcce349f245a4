"""Select the short pairs of a file, or of these the greetings and wishes.

python training/pretrained/short_pairs.py PAIRS.jsonl.gz OUT.jsonl --longest 20 [--greetings]
"""

import argparse
import re
from json import dumps

from vanilla_transformer.data.pair_files import read_pairs

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
    parser.add_argument("output", help="JSON Lines to write")
    parser.add_argument("--target", default="de", help="language of the translations")
    parser.add_argument("--longest", type=int, default=20, help="characters of a source")
    parser.add_argument("--greetings", action="store_true", help="greetings and wishes alone")
    options = parser.parse_args()
    with open(options.output, "w", encoding="utf-8") as file:
        for source, target in read_pairs(
            options.pairs, source_language="en", target_language=options.target
        ):
            if len(source) > options.longest or (options.greetings and not GREETING.match(source)):
                continue
            pair = {"en": source, options.target: target}
            file.write(dumps({"translation": pair}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
