"""`vanilla-transformer evaluate`: print the scores of a trained model as a table."""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ..errors import RequestError
from ..storage.metrics import MEASURES, Scores, TestTexts
from .shared_options import add_overwrite, add_test_options, test_options

_TEXTS = ("source", "hypothesis", "reference", "test_set")


def add_evaluate(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command `evaluate` with its options."""
    command = add_command("evaluate", _evaluate)
    text = "run directory, or another model with --pair and --test-file"
    command.add_argument("directory", metavar="DIR", help=text)
    add_test_options(command)
    text = "also write the scores as JSON, or the texts if FILE ends in .jsonl"
    command.add_argument("--output", metavar="FILE", help=text)
    add_overwrite(command, reads=("directory", "test_file"), files=("output",))


def _evaluate(options: argparse.Namespace) -> int:
    """Score a trained model on test pairs.

    Example:
      vanilla-transformer evaluate everyday-en-de --pair en-de --test-file test.en,test.de
      vanilla-transformer evaluate runs/mine
      vanilla-transformer evaluate runs/mine --metric bleu,tokenized_bleu --output texts.jsonl

    tokenized_bleu is lower-cased BLEU on Moses tokens, as papers on Multi30k report it;
    compound_bleu is cased BLEU on Moses tokens with compounds split at hyphens, as in the authors'
    get_ende_bleu.sh. wer and cer are errors per token (between spaces) and per character.
    Each line of a .jsonl file has the keys source, hypothesis, reference and test_set; each of
    several references has a line of its own.
    """
    from ..evaluation.scores import choose_samples, without_texts
    from ..storage.atomic import write_text
    from ..storage.metrics import Metrics, all_metrics, write_metrics
    from ..storage.run_files import METRICS, MODEL_FILES, digests
    from ..storage.saved_model import RECORDED, model_folder
    from ..train.scoring import score_run

    kind = Path(options.output or "").suffix.lower()
    if kind not in ("", ".json", ".jsonl"):
        raise RequestError(f"got {options.output}; write scores to .json, texts to .jsonl.")
    folder = model_folder(options.directory)
    scores = score_run(folder, with_robustness=options.robustness, **test_options(options))
    print_scores(scores)
    if kind == ".jsonl":
        lines = (json.dumps(row, ensure_ascii=False) for row in _rows(scores))
        write_text(Path(options.output), "".join(f"{line}\n" for line in lines))
    elif options.output:
        path = Path(options.output)
        # In a model's own metrics.json, keep all other facts, such as how the model was trained.
        known = all_metrics(path) if path.resolve() == (folder / METRICS).resolve() else Metrics()
        measured = {**known.get("scores", {}), **without_texts(scores)}
        known |= {"scores": measured, MODEL_FILES: digests(folder, RECORDED)}
        write_metrics(path, Metrics(samples=choose_samples(scores)) | known)
    return 0


def _rows(scores: Mapping[str, TestTexts]) -> Iterator[dict[str, str]]:
    """Yield a row for each reference of each sentence, for other tools to compute metrics."""
    for name, found in scores.items():
        texts = (found["sources"], found["hypotheses"], found["references"])
        for source, hypothesis, references in zip(*texts, strict=True):
            for each in [references] if isinstance(references, str) else references:
                yield dict(zip(_TEXTS, (source, hypothesis, each, name), strict=True))


def print_scores(scores: Mapping[str, Scores]) -> None:
    """Print a table with a line for each test set, and then the signatures of the metrics."""
    from ..train.scoring import table_lines

    if not scores:
        print("There is no test set, so there are no scores.")
        return
    rows = {}
    for name, result in scores.items():
        copies = result.get("copy_baseline", {}).get("exact_match")
        rows[name] = {**result, "copied": copies, "sentences": result.get("num_sentences")}
        for form, typed in result.get("robustness", {}).items():
            rows[f"{name}, {form}"] = {**typed, "sentences": typed.get("num_sentences")}
    measured = [name for name in MEASURES if any(name in result for result in scores.values())]
    copied = ["copied"] if "exact_match" in measured else []
    columns = [*measured, *copied, "perplexity", "sentences"]
    cells = [[name, *(_cell(row.get(column)) for column in columns)] for name, row in rows.items()]
    print("\n".join(table_lines([["", *columns], *cells], narrowest=12)))
    for name in measured:
        signatures = [result.get(f"{name}_signature") for result in scores.values()]
        for signature in dict.fromkeys(signatures):
            print(f"{MEASURES[name].label}: {signature}")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return "-" if value is None else str(value)
