"""`vanilla-transformer evaluate`: the scores of a trained model as a table."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from ..ranges import COUNT, NUM_BEAMS
from .translate import check_folders, whole_number

_EVALUATE_EXAMPLE = """example:
  vanilla-transformer evaluate runs/demo-en-de
  vanilla-transformer evaluate runs/multi30k_en_de --test-file test.jsonl.gz --output scores.json
"""


def add_evaluate(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command `evaluate`."""
    help = "score a trained model on test pairs"
    command = add_command("evaluate", help=help, epilog=_EVALUATE_EXAMPLE)
    command.add_argument("directory", metavar="DIR", help="run directory")
    command.add_argument("--test-file", help="test pairs (default: those of the run's recipe)")
    command.add_argument("--pair", metavar="S-T", help="languages (default: the recipe's)")
    beams = whole_number(NUM_BEAMS)
    command.add_argument("--num-beams", type=beams, help="beams (default: the recipe's)")
    tokens = whole_number(COUNT)
    command.add_argument("--batch-tokens", type=tokens, default=4096, help="tokens in a batch")
    command.add_argument("--output", metavar="FILE", help="write the scores as JSON too")
    command.set_defaults(run=_evaluate, command=command)


def _evaluate(options: argparse.Namespace) -> int:
    from ..storage.atomic import write_json
    from ..train.evaluating import evaluate_run
    from ..train.run_directory import check_output

    check_folders(options.output)
    if options.output:
        check_output(Path(options.output), sources=(options.test_file or "").split(","))
    scores = evaluate_run(
        options.directory,
        test_file=options.test_file,
        pair=options.pair,
        num_beams=options.num_beams,
        batch_tokens=options.batch_tokens,
    )
    print_scores(scores)
    if options.output:
        write_json(Path(options.output), scores)
    return 0


def print_scores(scores: dict[str, dict[str, object]]) -> None:
    """Print one line for each test set."""
    if not scores:
        print("There is no test set, hence no scores.")
        return
    rows = {}
    for name, result in scores.items():
        copied = result.get("copy_baseline", {}).get("exact_match")
        rows[name] = {**result, "copied": copied, "sentences": result.get("num_sentences")}
    _print_table(rows, ("bleu", "chrf", "exact_match", "copied", "perplexity", "sentences"))
    if any("by_kind" in result for result in scores.values()):
        print("\nexact match by kind of phrase")
        kinds = sorted({kind for result in scores.values() for kind in result.get("by_kind", ())})
        names = [name for name, result in scores.items() if "by_kind" in result]
        _print_table(
            {
                kind: {
                    name: scores[name]["by_kind"].get(kind, {}).get("exact_match") for name in names
                }
                for kind in kinds
            },
            names,
        )
        print()
    for signature in dict.fromkeys(result.get("bleu_signature") for result in scores.values()):
        print(f"BLEU: {signature}")


def _print_table(rows: dict[str, dict[str, object]], columns: Sequence[str]) -> None:
    width = max(len(name) for name in rows)
    print(" ".join([" " * width, *(f"{column:>12}" for column in columns)]))
    for name, row in rows.items():
        cells = [_cell(row.get(column)) for column in columns]
        numbers = (
            f"{cell:>{max(12, len(column))}}" for cell, column in zip(cells, columns, strict=True)
        )
        print(" ".join([f"{name:<{width}}", *numbers]))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return "-" if value is None else str(value)
