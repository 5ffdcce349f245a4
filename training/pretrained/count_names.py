"""Count how many names and numbers of names.tsv are kept in translations of its sentences.

    cut -f 1 names.tsv | tail -n +2 > names.en
    vanilla-transformer translate everyday-en-de names.en --output names.de
    python training/pretrained/count_names.py names.de --target de

No name or number of names.tsv is in the training pairs. A number counts as right in digits as the
language writes them, a German name if it is unchanged or a genitive. Lines that lack either are
printed; Chinese names are not counted, because only a reader can judge them.
"""

import argparse
import re
from pathlib import Path

NAMES = Path(__file__).parent / "names.tsv"


def rows() -> list[list[str]]:
    """Return English sentence, name and number of each row of names.tsv."""
    lines = NAMES.read_text(encoding="utf-8").splitlines()[1:]
    return [line.split("\t")[:3] for line in lines]


def number_is_right(number: str, translation: str, target: str) -> bool:
    """Say whether a translation has a number, or time of day, in digits."""
    hour, _, minute = number.partition(":")
    if minute:
        forms = (
            rf"{hour}[:.]{minute}"
            if target == "de"
            else rf"{hour}[:点]{minute}|{hour}点{int(minute)}分"
        )
    else:
        forms = number.replace(",", "[. ]?" if target == "de" else ",?")
    return re.search(rf"(?<!\d)({forms})(?!\d)", translation) is not None


def name_is_kept(name: str, translation: str) -> bool:
    """Say whether a translation has a name unchanged, or in the genitive."""
    return re.search(rf"\b{name}(s|')?(?!\w)", translation) is not None


def main() -> None:
    """Read the command line, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("translations", type=Path, help="a translation on each line")
    parser.add_argument("--target", default="de", choices=("de", "zh"))
    options = parser.parse_args()
    translations = options.translations.read_text(encoding="utf-8").splitlines()
    numbers = names = 0
    for (source, name, number), translation in zip(rows(), translations, strict=True):
        has_number = number_is_right(number, translation, options.target)
        has_name = options.target == "zh" or name_is_kept(name, translation)
        numbers, names = numbers + has_number, names + has_name
        if not (has_number and has_name):
            print(source, translation, sep="\t")
    print(f"Of {len(translations)}: {numbers} numbers are right.")
    if options.target == "de":
        print(f"{names} names are kept.")


if __name__ == "__main__":
    main()
