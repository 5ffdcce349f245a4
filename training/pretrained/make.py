"""Make a model that comes with the package, from pairs to rounded weights, in one command.

    python training/pretrained/make.py everyday-en-de --pairs tatoeba --work runs/everyday-en-de

`--pairs` is a folder with train.jsonl.gz, validation.jsonl.gz and test.jsonl.gz, or without .gz.
`--work` gets the results of each stage; the folder with the model's name in it is what the
repository has. The same command goes on after a stop: a stage with a result is done, and a training
continues.

1. Short pairs, and greetings, from the training pairs.
2. A first model, trained on these, the pairs, and pairs made of them with other names and numbers.
   `--start MODEL` takes an earlier model instead; characters that it spells in bytes get pieces of
   their own.
3. Translations of the training sources, and of the sentences of `--more TEXT`, by that model. A
   model given by `--teacher MODEL` translates instead, but no sources with digits. And pairs with
   other names and numbers again, with places from translated sentences too.
4. The model: the first one, trained further on the pairs and all of these, by weight.
5. Weights of 16 bits, their scores, and the card.

Needs `pip install faker`; Chinese sentences must be in simplified characters.
"""

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from vanilla_transformer.data.pair_files import read_pairs
from vanilla_transformer.storage.atomic import write_text

HERE = Path(__file__).parent
PROGRAM = "-m", "vanilla_transformer.cli"
SOURCE = (
    "Tatoeba, as selected by manythings.org/anki; other names and numbers; a model's translations"
)
SIMPLIFIED = "; Chinese in simplified characters by OpenCC (t2s), the references of the scores too"
LICENSE = "--data-license", "CC BY 2.0 FR"


@dataclass(frozen=True)
class Model:
    """What the training of a bundled model needs: languages, recipe, pairs and updates.

    Attributes:
        pair: Source and target language, one of them English.
        recipe: Recipe of its training.
        short: Most characters of the English side of a short pair.
        greeting: Most characters of the English side of a greeting.
        made: Number of pairs with other names and numbers.
        weights: Weights of the translations, the pairs, the short ones, the greetings, and the
            pairs with other names and numbers.
        updates: Number of updates of the first model.
        further: Number of updates of the model that continues from it.
    """

    pair: str
    recipe: str
    short: int
    greeting: int
    made: int
    weights: tuple[int, ...] = (46, 24, 8, 4, 18)
    updates: int = 24_000
    further: int = 5_000


MODELS = {
    "everyday-en-de": Model("en-de", "everyday_en_de", short=20, greeting=24, made=80_000),
    "everyday-de-en": Model("de-en", "everyday_en_de", short=20, greeting=24, made=80_000),
    "everyday-en-zh": Model(
        "en-zh",
        "everyday_en_zh",
        short=16,
        greeting=30,
        made=160_000,
        weights=(34, 18, 6, 4, 38),
        further=10_000,
    ),
}


def stage(result: Path, *command: str | Path) -> None:
    """Run a Python program, unless its result already exists."""
    if not result.exists():
        print("python", *command, flush=True)
        subprocess.run([sys.executable, *map(str, command)], check=True)


def file_of(folder: Path, split: str) -> Path:
    """Return the file of a split in a folder of pairs."""
    packed = folder / f"{split}.jsonl.gz"
    return packed if packed.is_file() else folder / f"{split}.jsonl"


def write_sources(model: Model, pairs: Path, more: Path | None, digits: bool, output: Path) -> None:
    """Write a teacher's input: training sources, and lines of `more` not in validation or test.

    Args:
        model: The model that learns from the translations.
        pairs: Folder of pairs.
        more: Text with other sentences, or None.
        digits: Whether to keep sentences with digits.
        output: The file.
    """
    source, target = model.pair.split("-")
    texts = {
        split: [
            text
            for text, _ in read_pairs(
                file_of(pairs, split), source_language=source, target_language=target
            )
        ]
        for split in ("train", "validation", "test")
    }
    if more is not None:
        scored = {re.sub(r"\W", "", text.lower()) for text in texts["validation"] + texts["test"]}
        sentences = more.read_text(encoding="utf-8").splitlines()
        texts["train"] += [
            text for text in sentences if re.sub(r"\W", "", text.lower()) not in scored
        ]
    kept = (text for text in dict.fromkeys(texts["train"]) if digits or not re.search(r"\d", text))
    write_text(output, "".join(f"{text}\n" for text in kept))


def make(
    name: str, pairs: Path, work: Path, teacher: str | None, start: str | None, more: Path | None
) -> None:
    """Make a model, going on where an earlier call was stopped; see the top of this file."""
    model = MODELS[name]
    source, target = model.pair.split("-")
    other = target if source == "en" else source
    train, validation, test = (file_of(pairs, each) for each in ("train", "validation", "test"))
    scored = "--pair", model.pair, "--validation-file", validation, "--test-file", test
    origin = "--data-source", SOURCE + SIMPLIFIED * (other == "zh")
    made, short, greetings = (work / f"{part}.jsonl" for part in ("made", "short", "greetings"))
    work.mkdir(parents=True, exist_ok=True)

    change = HERE / "names_and_numbers.py", train
    described = "--pair", f"en-{other}", "--count", str(model.made)
    select = HERE / "short_pairs.py", train
    stage(short, *select, short, "--target", other, "--longest", str(model.short))
    longest = "--longest", str(model.greeting), "--greetings"
    stage(greetings, *select, greetings, "--target", other, *longest)

    recipe = *PROGRAM, "train", model.recipe, *scored, *origin, *LICENSE
    human = train, short, greetings
    translated_share, pair_share, *others = model.weights
    if start is None:
        first, changed = work / "first", work / "changed.jsonl"
        stage(changed, *change, changed, *described)
        given = "--train-file", *human, changed
        options = "--train-weights", *map(str, [translated_share + pair_share, *others])
        options += "--max-steps", str(model.updates), "--output-dir", first
        stage(first / "metrics.json", *recipe, *given, *options)
        start = str(first)

    sources, translated = work / f"sources.{source}", work / f"translated.{target}"
    if not sources.exists():
        write_sources(model, pairs, more, teacher is None, sources)
    translate = *PROGRAM, "translate", teacher or start
    stage(translated, *translate, sources, "--output", translated)
    texts = (sources, translated) if source == "en" else (translated, sources)
    stage(made, *change, made, *described, "--places", *texts)

    grown, run = work / "start", work / "run"
    stage(grown, HERE / "add_characters.py", start, made, grown, "--language", other)
    given = "--train-file", f"{sources},{translated}", *human, made
    options = "--train-weights", *map(str, model.weights), "--output-dir", run
    options += "--init-from", grown, "--max-steps", str(model.further)
    options += "--learning-rate", "1e-3", "--warmup-steps", "400", "--batch-tokens", "2048"
    stage(run / "metrics.json", *recipe, *given, *options)

    folder, card, scores = work / "model", work / name, work / "model/metrics.json"
    stage(folder, HERE / "round_weights.py", run, folder)
    evaluation = "--pair", model.pair, "--test-file", test, "--robustness", "--output", scores
    stage(scores, *PROGRAM, "evaluate", folder, *evaluation)
    published = "--run", run, "--repo", f"vanilla-transformer/{name}", "--license", "cc-by-2.0"
    stage(card, *PROGRAM, "publish", folder, *published, *LICENSE, "--output", card)


def main() -> None:
    """Read the command line, and make the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("--pairs", type=Path, required=True, help="folder of pairs")
    parser.add_argument("--work", type=Path, required=True, help="folder for the results")
    parser.add_argument("--teacher", help="model that translates; default: the first one")
    parser.add_argument("--start", help="earlier model to go on from; default: one is trained")
    parser.add_argument("--more", type=Path, help="text with other sentences for the teacher")
    make(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
