"""Score models on their test sets, and compare several models on the same sentences."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import RequestError
from ..evaluation import most_different, paired_bootstrap, score_model, verdict
from ..evaluation.robustness import robustness
from ..evaluation.scores import first_references
from ..recipes.data import TextPairs
from ..recipes.testing import ModelTest, plan_test, warn_of_another_test
from ..search_settings import SearchSettings, search_settings
from ..storage.metrics import MEASURES, RunWarning, TestTexts, all_metrics
from ..storage.reading import counted, printable
from ..storage.run_files import METRICS, RECIPE, differences
from ..storage.saved_model import load_saved_model, load_saved_tokenizer, model_folder


def score_run(
    directory: str | os.PathLike[str],
    *,
    tokens_at_once: int = 4096,
    with_robustness: bool = False,
    **test_options: object,
) -> dict[str, TestTexts]:
    """Score the model of a run directory on its test pairs, or else on its validation pairs.

    Args:
        directory: Run directory, or any folder or name of a model if `pair` and `test_file` are
            given.
        tokens_at_once: Tokens in a batch.
        with_robustness: Whether to score also sources as people type them, such as without
            capitals; see `evaluation.robustness`.
        **test_options: Values of `TEST_OPTIONS`, which override the recipe's. None keeps the
            recipe's, or for `num_beams` the one in the model's generation config.

    Returns:
        The scores of each test set, and its texts: `sources`, `hypotheses` and `references`.

    Raises:
        ValueError: If there is no model, no test or validation pairs, or an unknown option.
    """
    run = model_folder(str(directory))
    test = plan_test(run, test_options)
    options = {**test.scoring, "num_beams": test.num_beams, "tokens_at_once": tokens_at_once}
    typed_in = test.languages if with_robustness else None
    return score_folder(run, test.sets, typed_in, **options)[2]


def score_folder(
    folder: Path,
    sets: Mapping[str, TextPairs],
    typed_in: tuple[str, str] | None = None,
    **options: Any,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, dict[str, TestTexts]]:
    """Load the model of a folder and score it on each set of pairs that is not empty.

    Args:
        folder: Folder of the model.
        sets: The pairs by name of the set.
        typed_in: Languages of both sides, to score the sources as people type them too.
        **options: Other arguments of `score_model`.

    Returns:
        The model, its tokenizer, and the scores with the texts.
    """
    model, tokenizer = load_saved_model(folder, device="auto"), load_saved_tokenizer(folder)
    options["progress"] = True
    results = {
        name: score_model(model, tokenizer, pairs.sources, pairs.references, **options)
        for name, pairs in sets.items()
        if len(pairs)
    }
    for name, pairs in sets.items():
        if typed_in is None or name not in results:
            continue
        texts, measures = (pairs.sources, pairs.references), options["measures"]
        results[name]["robustness"] = robustness(
            model, tokenizer, *texts, languages=typed_in, measures=measures
        )
    return model, tokenizer, results


class ComparedRun(NamedTuple):
    """A model in a comparison, and its results by test set."""

    name: str
    test: ModelTest
    search: SearchSettings
    parameters: int
    results: dict[str, TestTexts]
    warnings: list[RunWarning]  # about the run


def compare_runs(
    directories: Sequence[str | os.PathLike[str]],
    *,
    tokens_at_once: int = 4096,
    with_robustness: bool = False,
    **test_options: object,
) -> list[ComparedRun]:
    """Score the models of run directories on the same test pairs.

    Args:
        directories: Two or more run directories, or names of models. A model without a recipe
            is tested with the first run's recipe.
        tokens_at_once: Tokens in a batch.
        with_robustness: As for `score_run`.
        **test_options: Values of `TEST_OPTIONS`, which override the recipes'. None keeps the
            recipe's, or for `num_beams` the one in each model's generation config.

    Returns:
        The runs with their results, as `score_model` returns them; see `comparison_page`.

    Raises:
        ValueError: If there are fewer than two runs, one has no model, or their languages or
            test pairs differ.
    """
    if len(directories) < 2:
        raise RequestError(f"Got {len(directories)} run; give two or more to compare.")
    folders = [model_folder(str(name)) for name in directories]
    tests = [
        plan_test(folder, test_options) if (folder / RECIPE).is_file() else None
        for folder in folders
    ]
    first = next(filter(None, tests), None) or plan_test(folders[0], test_options)
    for name, folder, test in zip(directories, folders, tests, strict=True):
        if test is None and (folder is not folders[0] or any(tests)):
            warn_of_another_test(folder, first.languages)
        elif test and (test.languages, test.sets) != (first.languages, first.sets):
            raise RequestError(
                f"Languages or test pairs of {directories[0]} and {name} differ; give --test-file, "
                "and --several-references if only one of them has that."
            )
    runs = []
    for name, folder, test in zip(directories, folders, tests, strict=True):
        asked = {"num_beams": (test or first).num_beams}
        options = {**first.scoring, "tokens_at_once": tokens_at_once, **asked}
        typed_in = first.languages if with_robustness else None
        model, _, results = score_folder(folder, first.sets, typed_in, **options)
        search, size = search_settings(model.generation_config, **asked), model.num_parameters()
        warnings = all_metrics(folder / METRICS).get("warnings", [])
        runs.append(ComparedRun(str(name), test or first, search, size, results, warnings))
    return runs


def comparison_page(runs: Sequence[ComparedRun], *, shown: int = 20) -> str:
    """Render a comparison as Markdown that a terminal can show too: tables are aligned text.

    Args:
        runs: Result of `compare_runs`.
        shown: Number of sentences to show, those whose translations differ most.
    """
    first, *others = runs
    lines = ["# Comparison", ""]
    for run in others:
        for what, changed in (
            ("Recipe", differences(first.test.settings, run.test.settings)),
            ("Search", differences(vars(first.search), vars(run.search))),
        ):
            if changed:
                lines.append(f"- {what}, {first.name} -> {run.name}: {'; '.join(changed)}.")
    for run in runs:
        lines += [f"- {run.name}: {warning['text']}" for warning in run.warnings]
    for name in first.results:
        lines += ["", *_set_lines(runs, name, shown)]
    return "\n".join(lines) + "\n"


def _set_lines(runs: Sequence[ComparedRun], name: str, shown: int) -> list[str]:
    """Return the lines of `comparison_page` about a test set: scores, significance, examples."""
    results, measures = [run.results[name] for run in runs], runs[0].test.measures
    references, systems = results[0]["references"], [result["hypotheses"] for result in results]
    rows, signatures = paired_bootstrap(systems, references, **runs[0].test.scoring)
    labels = [MEASURES[measure].label for measure in measures]
    table = [["", *labels, "perplexity", "parameters", "beams"]]
    for run, row, result in zip(runs, rows, results, strict=True):
        metrics = [*(row[measure].score for measure in measures), result["perplexity"]]
        sizes = [f"{run.parameters:,}", str(run.search.num_beams)]
        table.append([run.name, *(f"{value:.2f}" for value in metrics), *sizes])
    lines = [f"## {name}, {counted(len(systems[0]), 'sentence')}", ""]
    lines += [*(f"    {line}" for line in table_lines(table)), ""]
    for run, row in zip(runs[1:], rows[1:], strict=True):
        outcome = verdict(rows[0], row, len(systems[0]))
        lines.append(f"- {run.name} against {runs[0].name}: {outcome}")
    lines += [
        "- p: how often chance alone would give so large a difference from the first run.",
        "- Perplexity is per token: compare it only between runs with the same vocabulary.",
        *(f"- {MEASURES[measure].label}: {how}" for measure, how in signatures.items()),
        *_robustness_lines(runs, name),
        "",
        "The sentences that differ most, with their chrF:",
    ]
    names = ["source", "reference", *(run.name for run in runs)]
    width = max(map(len, names))
    for index, chrf in most_different(systems, references, count=shown):
        source, reference = results[0]["sources"][index], first_references(references)[index]
        texts = [source, reference, *(system[index] for system in systems)]
        scores = ["", "", *(f"{score:.1f}" for score in chrf)]
        lines.append("")
        for label, score, text in zip(names, scores, texts, strict=True):
            shown_text = printable(" ".join(text.split()))
            lines.append(f"    {label:<{width}}  {score:>5}  {shown_text}")
    return lines


def _robustness_lines(runs: Sequence[ComparedRun], name: str) -> list[str]:
    """Return a table of the scores on informal sources (capitals, typos), if they were measured."""
    measure = runs[0].test.measures[0]
    table = [["", *(run.name for run in runs)]]
    for form in runs[0].results[name].get("robustness", {}):
        scores = [run.results[name]["robustness"][form][measure] for run in runs]
        table.append([form, *(f"{score:.2f}" for score in scores)])
    if len(table) == 1:
        return []
    title = f"{MEASURES[measure].label} on sources as people type them, without regard to case:"
    return ["", title, "", *(f"    {line}" for line in table_lines(table))]


def table_lines(rows: Sequence[Sequence[str]], *, narrowest: int = 0) -> list[str]:
    """Align the columns of a table: the first to the left, the others to the right."""
    first, *others = zip(*rows, strict=True)
    left = [cell.ljust(max(map(len, first))) for cell in first]
    right = [
        [cell.rjust(max(narrowest, *map(len, column))) for cell in column] for column in others
    ]
    return [" ".join(row) for row in zip(left, *right, strict=True)]
