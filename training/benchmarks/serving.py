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
import shlex
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from engines import WARM_UP, table
from interleave import processes, take_turns
from report import write_results

from vanilla_transformer.cli import main as command_line
from vanilla_transformer.recipes.testing import plan_test

PAGE = Path(__file__).parents[1] / "serving.md"
RESULTS = Path(__file__).parent / "results" / "serving.json"
# Names of the code blocks in training/serving.md, without their prefix `serve_`.
CONTENDERS = (
    *("one_at_a_time", "batches", "threads", "asyncio", "compile", "bfloat16", "int8"),
    *("ctranslate2", "onnx"),
)


def block(name: str, run: Path | None = None) -> str:
    """Return a code block of training/serving.md, with its model replaced if `run` is given."""
    page = PAGE.read_text(encoding="utf-8")
    text = re.search(rf"<!-- block: serve_{name}\b[^\n]*-->\n```\w+\n(.*?)```", page, re.DOTALL)[1]
    if run is None:
        return text
    text = text.replace('pretrained("everyday-en-de")', repr(str(run)))
    return text.replace(" everyday-en-de ", f" {shlex.quote(str(run))} ")


def prepared(
    name: str, folder: Path, run: Path | None = None
) -> Callable[[Sequence[str]], list[str]]:
    """Return a function that runs a code block of serving.md on sentences; change to `folder`."""
    os.chdir(folder)
    known: dict[str, object] = {}
    exec(block("load", run), known)
    *before, last = ast.parse(block(name)).body
    for statement in before:
        exec(compile(ast.Module([statement], []), name, "exec"), known)
    code = compile(ast.Module([last], []), name, "exec")

    def translate_sentences(sentences: Sequence[str]) -> list[str]:
        known["sentences"] = sentences
        exec(code, known)
        return known["translations"]

    return translate_sentences


def write_exports(folder: Path, names: Sequence[str], run: Path | None = None) -> None:
    """Write the exports that the blocks with these names read."""
    os.chdir(folder)
    for line in block("export", run).splitlines():
        words = shlex.split(line)
        if words[2] in names and command_line(words[1:]) != 0:
            raise SystemExit(2)  # the reason is printed above


def main() -> None:
    """Measure speed, memory and BLEU of every code block, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("--sentences", type=int, help="how many to use (default: all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    test = plan_test(options.run, {})
    test_set, pairs = next(iter(test.sets.items()))
    sentences, references = pairs.sources[: options.sentences], pairs.targets[: options.sentences]
    output, run = options.output.resolve(), options.run.resolve()
    with tempfile.TemporaryDirectory() as folder:
        write_exports(Path(folder), options.only, run)
        builders = {name: (prepared, (name, Path(folder), run)) for name in options.only}
        with processes(builders) as running:
            take_turns(running, sentences[:WARM_UP], rounds=1)
            answers = take_turns(running, sentences, options.rounds)
    answers = {name.replace("_", " "): rounds for name, rounds in answers.items()}
    figures = table(answers, references, test.languages[1], baseline="one at a time")
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
