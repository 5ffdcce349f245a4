"""Add pieces to a model's vocabulary for the characters that it spells in bytes.

    python training/pretrained/add_characters.py MODEL pairs.jsonl OUT --language zh

A byte-level vocabulary has no piece for a character that was rare in its training pairs: two or
three pieces of one byte or two stand for it. A training that goes on with other pairs, in which
such characters are frequent, should not have to spell them. A new piece begins as the mean of the
pieces that it replaces, and all others stay what they were.
"""

import argparse
import json
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.data.pair_files import read_pairs
from vanilla_transformer.storage.atomic import folder_written_aside
from vanilla_transformer.storage.saved_model import SETTINGS
from vanilla_transformer.storage.shipped import local_model

FEWEST = 30  # occurrences from which a character gets a piece
TOKENIZER = "tokenizer.json"


def add_characters(model: str | Path, characters: Iterable[str], output: Path) -> None:
    """Copy a model, with a piece for each of these characters.

    Args:
        model: Folder with a model and its byte-level BPE.
        characters: Characters to add; one that is already a piece is left alone.
        output: The new folder.
    """
    folder = local_model(str(model))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    settings = json.loads((folder / TOKENIZER).read_text(encoding="utf-8"))
    vocabulary, merges = settings["model"]["vocab"], settings["model"]["merges"]
    spelt = {}  # new piece: the old pieces that it replaces
    for character in characters:
        pieces = tokenizer.tokenize(character)
        for end in range(2, len(pieces) + 1):
            left, right = "".join(pieces[: end - 1]), pieces[end - 1]
            if left + right not in vocabulary:
                vocabulary[left + right] = len(vocabulary)
                merges.append([left, right])
                spelt[left + right] = tokenizer.convert_tokens_to_ids(pieces[:end])

    grown = AutoModelForSeq2SeqLM.from_pretrained(folder)
    grown.resize_token_embeddings(len(vocabulary), mean_resizing=False)
    embeddings = grown.get_input_embeddings().weight
    with torch.no_grad():
        for piece, old in spelt.items():
            embeddings[vocabulary[piece]] = embeddings[old].mean(dim=0)
    with folder_written_aside(output) as aside:
        grown.save_pretrained(aside)
        for name in SETTINGS:
            if (folder / name).is_file() and not (aside / name).exists():
                shutil.copyfile(folder / name, aside / name)
        (aside / TOKENIZER).write_text(json.dumps(settings, ensure_ascii=False), encoding="utf-8")
    print(f"{len(spelt)} pieces added to {len(vocabulary) - len(spelt)}.")


def main() -> None:
    """Read the command line, and write the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", metavar="MODEL", help="folder, or a model of the package")
    parser.add_argument("pairs", help="pairs that have the characters")
    parser.add_argument("output", type=Path, metavar="OUT", help="new folder")
    parser.add_argument("--language", default="zh", help="language of the pairs beside English")
    options = parser.parse_args()
    pairs = read_pairs(options.pairs, source_language="en", target_language=options.language)
    counts = Counter(character for pair in pairs for text in pair for character in text)
    frequent = sorted(each for each, count in counts.items() if count >= FEWEST)
    add_characters(options.model, frequent, options.output)


if __name__ == "__main__":
    main()
