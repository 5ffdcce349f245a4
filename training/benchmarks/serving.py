"""Measure how many sentences per second each block of training/serving.md translates.

python training/benchmarks/serving.py runs/demo-en-de

The sentences are those of the run's first test set. The code measured is that of the page: a
process runs a block up to its last statement, and times that statement. Processes take turns
(interleave.py), and each translates some sentences before the clock starts. Needs
`pip install ".[export]"` in the clone. Run nothing else meanwhile.
"""

import argparse
import ast
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from engines import WARM_UP, table
from interleave import processes, take_turns
from report import write_results

from vanilla_transformer.cli import main as command_line
from vanilla_transformer.train.run_scores import recipe_and_test_sets

PAGE = Path(__file__).parents[1] / "serving.md"
RESULTS = Path(__file__).parent / "results" / "serving.json"
# Blocks of the page, without the prefix of their names.
CONTENDERS = (
    *("one_at_a_time", "batches", "threads", "asyncio", "compile", "bfloat16", "int8"),
    *("ctranslate2", "onnx"),
)


def block(name: str) -> str:
    """Return the text of a block of the page."""
    page = PAGE.read_text(encoding="utf-8")
    return re.search(rf"<!-- block: serve_{name}\b[^\n]*-->\n```\w+\n(.*?)```", page, re.DOTALL)[1]


def prepared(name: str, folder: Path) -> Callable[[Sequence[str]], list[str]]:
    """Return a function that runs a block on sentences, in a folder with the block's files."""
    os.chdir(folder)
    known: dict[str, object] = {}
    exec(block("load"), known)
    *before, last = ast.parse(block(name)).body
    for statement in before:
        exec(compile(ast.Module([statement], []), name, "exec"), known)
    code = compile(ast.Module([last], []), name, "exec")

    def run(sentences: Sequence[str]) -> list[str]:
        known["sentences"] = sentences
        exec(code, known)
        return known["translations"]

    return run


def write_files(folder: Path, run: Path, names: Sequence[str]) -> None:
    """Write the files that the blocks name: the run, a text, and exports of the run."""
    os.chdir(folder)
    shutil.copytree(run, folder / "runs/mine", ignore=shutil.ignore_patterns("checkpoints"))
    (folder / "source.txt").touch()
    for line in block("export").splitlines():
        words = line.split()
        if words[2] in names and command_line(words[1:]) != 0:
            raise SystemExit(2)  # the reason is printed above


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("--sentences", type=int, help="most sentences (default: all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    recipe, test_sets = recipe_and_test_sets(options.run, {})
    test_set, pairs = next(iter(test_sets.items()))
    sentences, references = pairs.sources[: options.sentences], pairs.targets[: options.sentences]
    output, run = options.output.resolve(), options.run.resolve()
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), run, options.only)
        builders = {name: (prepared, (name, Path(folder))) for name in options.only}
        with processes(builders) as running:
            take_turns(running, sentences[:WARM_UP], rounds=1)
            answers = take_turns(running, sentences, options.rounds)
    answers = {name.replace("_", " "): rounds for name, rounds in answers.items()}
    figures = table(answers, references, recipe.target_language, baseline="one at a time")
    write_results(
        output,
        "Serving: every block of the page",
        data=f"{test_set}, {len(sentences)} sentences",
        settings={"rounds": options.rounds, "threads": torch.get_num_threads()},
        tables=[figures],
        seconds={name: [turn.seconds for turn in turns] for name, turns in answers.items()},
    )


if __name__ == "__main__":
    main()
