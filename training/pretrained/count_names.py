"""Count how many names and numbers of names.tsv, or names.de.tsv, translations keep.

    cut -f 1 names.tsv | tail -n +2 > names.en
    vanilla-transformer translate everyday-en-de names.en --output names.translated
    python training/pretrained/count_names.py names.translated --pair en-de

No name or number of these files is in the training pairs. A number counts as right in digits as
the target language writes them, a name between English and German if it is unchanged, a genitive,
or one of the forms that names.de.tsv has. Lines that lack either are printed; Chinese names are not
counted, because only a reader can judge them.
"""

import argparse
import re
from pathlib import Path


def file_of(source: str) -> Path:
    """Return the file with the sentences of a source language."""
    return Path(__file__).with_name("names.tsv" if source == "en" else f"names.{source}.tsv")


def rows(source: str) -> list[list[str]]:
    """Return from each row the sentence in the source language, and the name and number in it."""
    lines = file_of(source).read_text(encoding="utf-8").splitlines()[1:]
    return [line.split("\t")[:3] for line in lines]


def number_is_right(number: str, translation: str, target: str) -> bool:
    """Say whether a translation has a number, or time of day, in digits."""
    hour, _, minute = number.partition(":")
    if minute:
        forms = rf"{hour}[:.点]{minute}|{hour}点{int(minute)}分"
    else:
        forms = number.replace(",", "[. ]?" if target == "de" else ",?")
    return re.search(rf"(?<!\d)({forms})(?!\d)", translation) is not None


def name_is_kept(name: str, translation: str) -> bool:
    """Say whether a translation has a name, `A|B` in either form, unchanged or in the genitive."""
    return re.search(rf"\b({name})('?s|')?(?!\w)", translation) is not None


def main() -> None:
    """Read the command line, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("translations", type=Path, help="a translation on each line")
    parser.add_argument("--pair", default="en-de", choices=("en-de", "en-zh", "de-en"))
    options = parser.parse_args()
    language, target = options.pair.split("-")
    translations = options.translations.read_text(encoding="utf-8").splitlines()
    numbers = names = 0
    for (source, name, number), translation in zip(rows(language), translations, strict=True):
        has_number = number_is_right(number, translation, target)
        has_name = target == "zh" or name_is_kept(name, translation)
        numbers, names = numbers + has_number, names + has_name
        if not (has_number and has_name):
            print(source, translation, sep="\t")
    print(f"Of {len(translations)}: {numbers} numbers are right.")
    if target != "zh":
        print(f"{names} names are kept.")


if __name__ == "__main__":
    main()
