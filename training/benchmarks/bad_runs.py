"""Run trainings that go wrong on purpose, for the figures of training/diagnosis.md.

python training/benchmarks/bad_runs.py

There is one healthy run, a small model on times and dates of CLDR; each of the others differs from
it in one thing. The figures depend on the updates, not on the clock.
"""

import argparse
import csv
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import islice
from math import exp
from pathlib import Path
from typing import NamedTuple

from report import write_results

from vanilla_transformer.recipes.recipe import load_recipe
from vanilla_transformer.storage.saved_model import load_saved_model, load_saved_tokenizer
from vanilla_transformer.train import run_recipe
from vanilla_transformer.translation.many_texts import translate

sys.path.insert(0, str(Path(__file__).parents[1] / "demo"))

from phrases import generate_pairs

RESULTS = Path(__file__).parent / "results" / "bad_runs.json"
KINDS = {"date", "time", "datetime", "interval", "duration", "relative"}
SENTENCE = "in 64 days, 8:16 PM, or 3 hours and 20 minutes"
# Changes to the recipe `demo`.
OPTIONS = {
    "encoder_layers": 1,
    "decoder_layers": 1,
    "vocab_size": 500,
    "checkpoints_to_average": 1,
    "max_minutes": None,
    "evaluate_pairs": 1,
    "num_beams": 1,
}
Pairs = list[tuple[str, str]]


def shifted(pairs: Pairs) -> Pairs:
    """Return pairs with every target one line too late."""
    sources, targets = zip(*pairs, strict=True)
    return [*zip(sources[1:], targets[:-1], strict=True)]


def swapped(pairs: Pairs) -> Pairs:
    """Return pairs with source and target swapped."""
    return [(target, source) for source, target in pairs]


def half_copied(pairs: Pairs) -> Pairs:
    """Return pairs in which every other target is a copy of the source."""
    return [
        (source, source if place % 2 else target) for place, (source, target) in enumerate(pairs)
    ]


def tokenised(pairs: Pairs) -> Pairs:
    """Return pairs with spaces around punctuation, as other toolkits want their text."""
    return [tuple(" ".join(re.findall(r"\w+|[^\w\s]", side)) for side in pair) for pair in pairs]


def short(pairs: Pairs) -> Pairs:
    """Return the pairs with short sources."""
    return [pair for pair in pairs if len(pair[0]) < 25]


class Fault(NamedTuple):
    """Difference from the healthy run: in the training pairs, or in options."""

    change: Callable[[Pairs], Pairs] = list
    options: dict[str, object] = {}


FAULTS = {
    "healthy": Fault(),
    "targets a line too late": Fault(shifted),
    "source and target swapped": Fault(swapped),
    "spaces around punctuation": Fault(tokenised),
    "half of the targets are copies": Fault(half_copied),
    "100 pairs": Fault(lambda pairs: pairs[:100]),
    "short pairs alone": Fault(short),
    "warm-up beyond the end": Fault(options={"warmup_steps": 10_000}),
    "rate ten times too high": Fault(options={"learning_rate_factor": 7.5}),
    "270 pieces": Fault(options={"vocab_size": 270}),
}


def write_texts(pairs: Sequence[tuple[str, str]], folder: Path, name: str) -> str:
    """Write two text files and return their names for a recipe."""
    paths = [folder / f"{name}.{language}" for language in ("en", "de")]
    for path, side in zip(paths, zip(*pairs, strict=True), strict=True):
        path.write_text("\n".join(side) + "\n", encoding="utf-8")
    return ",".join(map(str, paths))


def outcome(fault: Fault, pairs: dict[str, Pairs], folder: Path, updates: int) -> list[object]:
    """Train with a fault, and return the cells of its row."""
    changed = {**pairs, "train": fault.change(pairs["train"])}
    files = {f"{name}_file": write_texts(part, folder, name) for name, part in changed.items()}
    length = {"max_steps": updates, "trainer": {"eval_steps": updates // 10}}
    recipe = load_recipe("demo", {**files, **OPTIONS, **length, **fault.options})
    metrics = run_recipe(recipe, folder / "run")
    with (folder / "run" / "history.tsv").open(encoding="utf-8") as file:
        history = [row for row in csv.DictReader(file, delimiter="\t") if row["eval_loss"]]
    perplexities = [float(row["eval_perplexity"]) for row in history]
    model, tokenizer = (load(folder / "run") for load in (load_saved_model, load_saved_tokenizer))
    (translation,) = translate(model, tokenizer, [SENTENCE])
    return [
        round(metrics["epochs"], 1),
        round(exp(float(history[-1]["eval_training_loss"])), 2),
        round(min(perplexities), 2),
        round(perplexities[-1], 2),
        round(metrics["scores"]["test"]["bleu"], 1),
        " ".join(translation.split())[:60],
    ]


def main() -> None:
    """Train all runs, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=8_000, help="training pairs")
    parser.add_argument("--test-pairs", type=int, default=200)
    parser.add_argument("--updates", type=int, default=1_000)
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    counts = {"train": options.pairs, "validation": options.test_pairs, "test": options.test_pairs}
    pairs = {}
    for name, count in counts.items():
        split = {"test": "test_values"}.get(name, name)
        generated = generate_pairs("en", "de", split=split, count=20 * count, seed=0)
        known = ((pair.source, pair.target) for pair in generated if KINDS.issuperset(pair.kinds))
        pairs[name] = [*islice(known, count)]
    rows = []
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            rows.append([name, *outcome(FAULTS[name], pairs, Path(folder), options.updates)])
        print(rows[-1], flush=True)
    columns = ["Run", "epochs", "training perplexity", "best validation perplexity"]
    columns += ["last validation perplexity", "BLEU", "translation"]
    write_results(
        options.output,
        "Runs that are bad on purpose",
        data="times and dates of CLDR",
        settings={"pairs": options.pairs, "updates": options.updates},
        tables=[{"columns": columns, "rows": rows}],
    )


if __name__ == "__main__":
    main()
