"""Compare models on the same sentences: scores, significance and the sentences that differ."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import RequestError
from ..evaluation import SystemScore, most_different, paired_bootstrap, verdict
from ..evaluation.scores import first_references
from ..recipes.testing import ModelTest, plan_test, warn_of_another_test
from ..search_settings import SearchSettings, search_settings
from ..storage.hub_model import model_folder
from ..storage.identity import differences
from ..storage.metrics import MEASURES, TestTexts
from ..storage.reading import printable
from ..storage.run_files import RECIPE
from ..storage.saved_model import load_saved_model, load_saved_tokenizer
from .report import table_lines
from .run_scores import score_set


@dataclass
class ComparedRun:
    """A model to compare, and its results by test set."""

    name: str
    folder: Path
    test: ModelTest
    search: SearchSettings = field(init=False)
    parameters: int = 0
    results: dict[str, TestTexts] = field(default_factory=dict)


def compare_runs(
    directories: Sequence[str | os.PathLike[str]],
    *,
    tokens_at_once: int = 4096,
    **test_options: object,
) -> list[ComparedRun]:
    """Score the models of run directories on the same test pairs.

    Args:
        directories: Two or more run directories, or names of models. One that is no run is
            tested like the first run, whose recipe it takes.
        tokens_at_once: Tokens in a batch.
        **test_options: `TEST_OPTIONS`, which override the recipes. None: the recipe's value, and
            the beams that each model's generation config sets.

    Returns:
        The runs with their results, as `score_model` returns them; see `comparison_page`.

    Raises:
        ValueError: If there are fewer than two runs, one holds no model, or their languages or
            test pairs differ.
    """
    if len(directories) < 2:
        raise RequestError(f"Got {len(directories)} run; give two or more to compare.")
    runs = _runs_with_tests([*map(str, directories)], test_options)
    for run in runs:
        model = load_saved_model(run.folder, device="auto")
        tokenizer = load_saved_tokenizer(run.folder)
        asked = {"num_beams": run.test.num_beams}
        run.parameters = model.num_parameters()
        run.search = search_settings(model.generation_config, **asked)
        options = {**runs[0].test.scoring, "tokens_at_once": tokens_at_once, **asked}
        for name, pairs in runs[0].test.sets.items():
            if len(pairs):
                run.results[name] = score_set(model, tokenizer, pairs, **options)
    return runs


def _runs_with_tests(names: list[str], test_options: Mapping[str, object]) -> list[ComparedRun]:
    """Return the runs with their recipes and test pairs, which must be the same for all."""
    folders = [model_folder(name) for name in names]
    tests = [
        plan_test(folder, test_options) if (folder / RECIPE).is_file() else None
        for folder in folders
    ]
    of_first = next(filter(None, tests), None) or plan_test(folders[0], test_options)
    runs = [
        ComparedRun(name, folder, test or of_first)
        for name, folder, test in zip(names, folders, tests, strict=True)
    ]
    first = runs[0]
    for run, test in zip(runs, tests, strict=True):
        if (run.test.languages, run.test.sets) != (first.test.languages, first.test.sets):
            raise RequestError(
                f"Languages or test pairs of {first.name} and {run.name} differ; compare models "
                "of the same languages, and give --test-file with the pairs to test all of them "
                "on, and --several-references if only one of them has that."
            )
        if test is None and (run is not first or any(tests)):
            warn_of_another_test(run.folder, run.test.languages)
    return runs


def comparison_page(runs: Sequence[ComparedRun], *, shown: int = 20) -> str:
    """Render a comparison as Markdown that a terminal can show too: tables are aligned text.

    Args:
        runs: Result of `compare_runs`.
        shown: Number of sentences that differ.
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
    for name in first.results:
        lines += ["", *_set_lines(runs, name, shown)]
    return "\n".join(lines) + "\n"


def _set_lines(runs: Sequence[ComparedRun], name: str, shown: int) -> list[str]:
    """Return the lines about one test set."""
    results, scoring = [run.results[name] for run in runs], runs[0].test.scoring
    references = results[0]["references"]
    systems = [result["hypotheses"] for result in results]
    rows, signatures = paired_bootstrap(systems, references, **scoring)
    columns = [""]
    for measure in runs[0].test.measures:
        columns += [MEASURES[measure].label, "p"]
    table = [[*columns, "perplexity", "parameters", "beams"]]
    for run, row, result in zip(runs, rows, results, strict=True):
        measured = [f"{result['perplexity']:.2f}", f"{run.parameters:,}", str(run.search.num_beams)]
        table.append([run.name, *_cells(row), *measured])
    return [
        f"## {name}, {len(systems[0]):,} sentences",
        "",
        *(f"    {line}" for line in table_lines(table)),
        "",
        *(
            f"- {run.name} against {runs[0].name}: {verdict(rows[0], row, len(systems[0]))}"
            for run, row in zip(runs[1:], rows[1:], strict=True)
        ),
        "- p: how often chance alone would give so large a difference from the first run.",
        "- Perplexity is per token: compare it only between runs with the same vocabulary.",
        *(f"- {MEASURES[measure].label}: {how}" for measure, how in signatures.items()),
        "",
        "The sentences that differ most, with their chrF:",
        *_difference_lines(runs, name, shown),
    ]


def _cells(row: dict[str, SystemScore]) -> list[str]:
    cells = []
    for score, p_value in row.values():
        cells += [f"{score:.2f}", "-" if p_value is None else f"{p_value:.3f}"]
    return cells


def _difference_lines(runs: Sequence[ComparedRun], name: str, shown: int) -> list[str]:
    """Return the sentences that differ most, indented so that Markdown shows them verbatim."""
    results = [run.results[name] for run in runs]
    references, systems = results[0]["references"], [result["hypotheses"] for result in results]
    labels = ["source", "reference", *(run.name for run in runs)]
    width, lines = max(map(len, labels)), []
    for index, chrf in most_different(systems, references, count=shown):
        source, reference = results[0]["sources"][index], first_references(references)[index]
        texts = [source, reference, *(system[index] for system in systems)]
        scores = ["", "", *(f"{score:.1f}" for score in chrf)]
        lines += [""] + [
            f"    {label:<{width}}  {score:>5}  {printable(' '.join(text.split()))}"
            for label, score, text in zip(labels, scores, texts, strict=True)
        ]
    return lines
