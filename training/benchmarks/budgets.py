"""Compare runs that `--max-minutes` planned with runs that it only cut off.

    python training/benchmarks/budgets.py --recipe fewest_pairs --pair de-en --minutes 5 10 20 \
        --train-file few.jsonl --validation-file validation.jsonl.gz --work budgets

For each number of minutes and each seed, one run lets `--max-minutes` choose the values, and one
keeps the recipe's own, because they are given as options. They take turns, and the order
changes from seed to seed. Run nothing else meanwhile. The same command goes on after a stop: a run
with metrics.json is done, and an unfinished one begins again.
"""

import argparse
import itertools
import shutil
import subprocess
import sys
from pathlib import Path

from vanilla_transformer.recipes.recipe import load_recipe
from vanilla_transformer.storage.metrics import read_metrics

TRAIN = (sys.executable, "-m", "vanilla_transformer.cli", "train")
# Options that --max-minutes may change, unless they are given.
SIZES = ("batch_tokens", "gradient_accumulation", "d_model", "ffn_dim")
NUMBERS = (*SIZES, "dropout", "bpe_dropout", "warmup_steps", "learning_rate_factor")
FLAGS = ("norm_first", "join_pairs", "both_directions")


def as_typed(recipe: str) -> list[str]:
    """Return a recipe's settings as command-line options, so that `--max-minutes` keeps them."""
    settings = load_recipe(recipe)
    words = [("--" + name, f"{getattr(settings, name)}".lower()) for name in NUMBERS]
    flags = [("--" if getattr(settings, name) else "--no-") + name for name in FLAGS]
    return [word.replace("_", "-") for word in (*itertools.chain(*words), *flags)]


def main() -> None:
    """Train all runs, and print their updates and BLEU as a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", required=True, help="name of a recipe")
    parser.add_argument("--minutes", type=float, nargs="+", default=[5, 10, 20])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for the runs")
    options, files = parser.parse_known_args()
    print("| Minutes | Seed | Schedule | Updates | BLEU, validation |\n|---|---|---|---|---|")
    for minutes, (turn, seed) in itertools.product(options.minutes, enumerate(options.seeds)):
        schedules = {"planned": [], "cut off": as_typed(options.recipe)}
        for name in [*schedules][:: -1 if turn % 2 else 1]:
            run = options.work / f"{minutes:g}-{seed}-{name.replace(' ', '-')}"
            if not (run / "metrics.json").exists():
                shutil.rmtree(run, ignore_errors=True)
                command = [*TRAIN, options.recipe, *files, *schedules[name], "--seed", str(seed)]
                command += ["--max-minutes", f"{minutes:g}", "--output-dir", str(run)]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            metrics = read_metrics(run / "metrics.json")
            bleu = metrics["scores"]["validation"]["bleu"]
            print(
                f"| {minutes:g} | {seed} | {name} | {metrics['updates']} | {bleu:.1f} |", flush=True
            )


if __name__ == "__main__":
    main()
