"""Compare models on the same sentences: scores, significance, speed, size and differences."""

import os
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..batch_translation import generation_option
from ..errors import RequestError
from ..evaluation import (
    SystemScore,
    measure_metric,
    most_different,
    paired_bootstrap,
    perplexity,
    verdict,
)
from ..evaluation.models import tokenized_pairs
from ..recipes.data import TextPairs
from ..recipes.recipe import Recipe
from ..search_settings import search_settings
from ..storage.environment import hardware
from ..storage.hub_model import model_folder
from ..storage.identity import differences
from ..storage.metrics import MEASURES, read_metrics
from ..storage.reading import printable
from ..storage.run_files import METRICS, RECIPE
from ..storage.saved_model import load_saved_model, load_saved_tokenizer, weight_files
from ..translation.many_texts import translate
from .report import table_lines
from .run_scores import overridden, recipe_and_test_sets, warn_of_another_test

_TURN = 128  # sentences that a model translates before the next model takes over


class RunScores(TypedDict):
    """Scores of a run on a test set."""

    scores: dict[str, SystemScore]  # by measure
    perplexity: float
    sentences_per_second: float


class Difference(TypedDict):
    """A sentence that runs translate differently, with the chrF of each translation."""

    source: str
    reference: str
    translations: list[str]
    chrf: list[float]


class ComparedSet(TypedDict):
    """Result of `compare_runs` for one test set."""

    num_sentences: int
    scores: list[RunScores]  # of each run
    same_tokens: bool  # whether perplexities can be compared
    signatures: dict[str, str]  # by measure
    verdicts: list[str]
    differences: list[Difference]  # the sentences that differ most


class ComparedRun(TypedDict):
    """One of the runs in a result of `compare_runs`."""

    name: str
    parameters: int
    megabytes: float  # of weights
    search: dict[str, object]  # beams, and the other settings of a search with several
    training: dict[str, float]  # its updates, epochs and minutes, as far as they are known
    warnings: list[str]  # of its training
    differences: list[str]  # between the first run's recipe and this one's, if it has one


class Comparison(TypedDict):
    """Result of `compare_runs`."""

    runs: list[ComparedRun]
    hardware: dict[str, Any]
    test_sets: dict[str, ComparedSet]


@dataclass
class _Run:
    """A model to compare, with its translations of the current test set and their time."""

    name: str
    folder: Path
    recipe: Recipe
    sets: dict[str, TextPairs]
    model: PreTrainedModel = field(init=False)
    tokenizer: PreTrainedTokenizerBase = field(init=False)
    num_beams: int = field(init=False)
    translations: list[str] = field(init=False)
    seconds: float = field(init=False)

    def translate(self, sources: list[str], batch_tokens: int) -> list[str]:
        options: dict[str, Any] = {"batch_tokens": batch_tokens, "num_beams": self.num_beams}
        return list(translate(self.model, self.tokenizer, sources, **options))


def compare_runs(
    directories: Sequence[str | os.PathLike[str]],
    *,
    batch_tokens: int = 4096,
    progress: bool = False,
    **test_options: object,
) -> Comparison:
    """Compare the models of run directories with the first one, on the same test pairs.

    All models are in memory at once and take turns at translating some sentences, so that other
    load on the machine slows all of them equally.

    Args:
        directories: Two or more run directories, or names of models. One that is no run is
            tested like the first run, whose recipe it takes; a model and a run that trained it
            further (`init_from`), on the test pairs of that run.
        batch_tokens: Tokens in a batch.
        progress: Whether to show progress bars.
        **test_options: `TEST_OPTIONS`, which override the recipes. None: the recipe's value, and
            the beams that each model's generation config sets.

    Raises:
        ValueError: If there are fewer than two runs, one holds no model, or their languages or
            test pairs differ.
    """
    if len(directories) < 2:
        raise RequestError(f"Got {len(directories)} run; give two or more to compare.")
    overrides = overridden(test_options)
    names = [*map(str, directories)]
    folders = [model_folder(name) for name in names]
    tests = [
        recipe_and_test_sets(folder, overrides) if (folder / RECIPE).is_file() else None
        for folder in folders
    ]
    of_first = next(filter(None, tests), None) or recipe_and_test_sets(folders[0], overrides)
    runs = [
        _Run(name, folder, *(test or of_first))
        for name, folder, test in zip(names, folders, tests, strict=True)
    ]
    first = runs[0]
    if "test_file" not in overrides and _is_initial(first.name, runs[-1].recipe):
        first.sets = runs[-1].sets
    for run in runs[1:]:
        if (run.recipe.languages, run.sets) != (first.recipe.languages, first.sets):
            raise RequestError(
                f"Languages or test pairs of {first.name} and {run.name} differ; compare models "
                "of the same languages, and give --test-file with the pairs to test all of them "
                "on, and --several-references if only one of them has that."
            )
    for run, test in zip(runs, tests, strict=True):
        if test is None and (run is not first or any(tests)):
            warn_of_another_test(run.folder, run.recipe)
    for run in runs:
        run.model = load_saved_model(run.folder, device="auto")
        run.tokenizer = load_saved_tokenizer(run.folder)
        asked = {"num_beams": overrides.get("num_beams")}
        run.num_beams = generation_option(run.model, asked, "num_beams")
    return {
        "runs": [_described(run, first) for run in runs],
        "hardware": hardware(),
        "test_sets": {
            name: _compared(runs, test_set, f"{name}: ", batch_tokens, progress)
            for name, test_set in first.sets.items()
            if len(test_set)
        },
    }


def _is_initial(model: str, recipe: Recipe) -> bool:
    """Return whether a recipe trains the model of this directory further."""
    initial = recipe.init_from
    return initial is not None and Path(initial).resolve() == Path(model).resolve()


def _described(run: _Run, first: _Run) -> ComparedRun:
    """Return size, search and training of a run, and how its recipe differs from the first's."""
    metrics: Mapping[str, Any] = read_metrics(run.folder / METRICS) or {}
    facts = {"updates": "updates", "epochs": "epochs", "minutes": "training_minutes"}
    settings = search_settings(run.model.generation_config)
    # Greedy search has no others than its beam.
    others = ("length_penalty", "early_stopping") if run.num_beams > 1 else ()
    return {
        "name": run.name,
        "parameters": run.model.num_parameters(),
        "megabytes": sum(each.stat().st_size for each in weight_files(run.folder)) / 1e6,
        "search": {
            "num_beams": run.num_beams,
            **{name: getattr(settings, name) for name in others},
        },
        "training": {name: round(metrics[key], 1) for name, key in facts.items() if metrics},
        "warnings": metrics.get("warnings", []),
        "differences": first.recipe.differences(run.recipe),
    }


def _compared(
    runs: list[_Run], test_set: TextPairs, label: str, batch_tokens: int, progress: bool
) -> ComparedSet:
    """Return the result of `compare_runs` for one test set."""
    sources, targets, recipe = test_set.sources, test_set.targets, runs[0].recipe
    # Fail before the long work if a package is missing or a reference is too long.
    for name in recipe.measures:
        measure_metric(name, recipe.languages[1])
    datasets = [tokenized_pairs(run.model, run.tokenizer, sources, targets) for run in runs]
    labels = [[pair["labels"] for pair in dataset] for dataset in datasets]
    _translate_by_turns(runs, sources, label, batch_tokens, progress)
    systems = [run.translations for run in runs]
    rows, signatures = paired_bootstrap(
        systems, test_set.references, target_language=recipe.languages[1], measures=recipe.measures
    )
    scores: list[RunScores] = []
    for run, row, dataset in zip(runs, rows, datasets, strict=True):
        measured = perplexity(run.model, dataset, batch_tokens=batch_tokens, progress=progress)
        speed = len(sources) / max(run.seconds, 1e-9)
        scores.append(
            {"scores": row, "perplexity": measured["perplexity"], "sentences_per_second": speed}
        )
    return {
        "num_sentences": len(sources),
        "scores": scores,
        "same_tokens": all(each == labels[0] for each in labels),
        "signatures": signatures,
        "verdicts": [
            verdict((runs[0].name, run.name), (rows[0], row), len(sources))
            for run, row in zip(runs[1:], rows[1:], strict=True)
        ],
        "differences": [
            {
                "source": sources[index],
                "reference": targets[index],
                "translations": [translations[index] for translations in systems],
                "chrf": chrf,
            }
            for index, chrf in most_different(systems, test_set.references)
        ],
    }


def _translate_by_turns(
    runs: list[_Run], sources: list[str], label: str, batch_tokens: int, progress: bool
) -> None:
    """Let each run translate all sources; the first run of a round is the last of the next."""
    for run in runs:
        run.translations, run.seconds = [], 0.0
        run.translate(sources[:2], batch_tokens)  # the first call of a model takes longer
    total = len(sources) * len(runs)
    with tqdm(total=total, desc=label, unit="sentence", disable=not progress) as bar:
        for turn, start in enumerate(range(0, len(sources), _TURN)):
            part = sources[start : start + _TURN]
            for place in range(len(runs)):
                run = runs[(turn + place) % len(runs)]
                begun = time.perf_counter()
                run.translations += run.translate(part, batch_tokens)
                run.seconds += time.perf_counter() - begun
                bar.update(len(part))


def run_notes(comparison: Comparison) -> list[str]:
    """Return sentences on how options and search of the runs differ from the first run's.

    Args:
        comparison: Result of `compare_runs`.
    """
    first, *others = comparison["runs"]
    notes = []
    for run in others:
        shared = first["search"].keys() & run["search"].keys()
        searches = [
            {name: value for name, value in each["search"].items() if name in shared}
            for each in (first, run)
        ]
        trained = differences(first["training"], run["training"]) if run["training"] else []
        for what, changed in (
            ("Recipe", run["differences"]),
            ("Training", trained),
            ("Search, which by itself changes scores", differences(*searches)),
        ):
            if changed:
                notes.append(f"{what}, {first['name']} -> {run['name']}: {'; '.join(changed)}.")
    warned: dict[str, list[str]] = {}
    for run in comparison["runs"]:
        for line in run["warnings"]:
            warned.setdefault(line, []).append(run["name"])
    return [*notes, *(f"Warning of {', '.join(names)}: {line}" for line, names in warned.items())]


def comparison_page(comparison: Comparison, *, shown: int | None = None) -> str:
    """Render a comparison as Markdown that a terminal can show too: tables are aligned text.

    Args:
        comparison: Result of `compare_runs`.
        shown: Number of sentences that differ; None for all.
    """
    lines = ["# Comparison", "", *map(_item, run_notes(comparison)), ""]
    for name, test_set in comparison["test_sets"].items():
        rows = [*map(_cells, comparison["runs"], test_set["scores"])]
        columns = [""]
        for measure in test_set["signatures"]:
            columns += [MEASURES[measure].label, "p"]
        columns += ["perplexity", "sentences/s", "parameters", "MB", "beams"]
        lines += [f"## {name}, {test_set['num_sentences']:,} sentences", ""]
        lines += map(_item, test_set["verdicts"])
        lines += ["", *(f"    {line}" for line in table_lines([columns, *rows])), ""]
        lines += [
            "- p: how often chance alone would give so large a difference from the first run.",
            *(f"- {MEASURES[each].label}: {how}" for each, how in test_set["signatures"].items()),
        ]
        if not test_set["same_tokens"]:
            lines.append(
                _item(
                    "The runs split the references into different tokens, so their perplexities, "
                    "which are per token, cannot be compared."
                )
            )
        if test_set["differences"]:
            lines += ["", "The sentences that differ most, with their chrF:"]
        lines.append("")
        for difference in test_set["differences"][:shown]:
            lines += [*_difference_lines(comparison["runs"], difference), ""]
    machine = comparison["hardware"]
    place = machine.get("gpu", f"{machine['threads']} thread(s) of {machine['cpu']}")
    return "\n".join([*lines, f"The runs took turns at translating, on {place}.", ""])


def _item(sentence: str) -> str:
    """Return an item of a list in Markdown, in lines of at most 100 characters."""
    return textwrap.fill(
        f"- {sentence}", 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _cells(run: ComparedRun, row: RunScores) -> list[str]:
    """Return the cells of a run's row, in the order of the columns."""
    cells = [run["name"]]
    for score, p_value in row["scores"].values():
        cells += [f"{score:.2f}", "-" if p_value is None else f"{p_value:.3f}"]
    return [
        *cells,
        *(f"{row['perplexity']:.2f}", f"{row['sentences_per_second']:.1f}"),
        *(f"{run['parameters']:,}", f"{run['megabytes']:.1f}", str(run["search"]["num_beams"])),
    ]


def _difference_lines(runs: Sequence[ComparedRun], difference: Difference) -> list[str]:
    """Return the lines of a sentence, indented by four so that Markdown shows them verbatim."""
    labels = ["source", "reference", *(run["name"] for run in runs)]
    texts = [difference["source"], difference["reference"], *difference["translations"]]
    scores = ["", "", *(f"{score:.1f}" for score in difference["chrf"])]
    width = max(map(len, labels))
    return [
        f"    {label:<{width}}  {score:>5}  {printable(' '.join(text.split()))}"
        for label, score, text in zip(labels, scores, texts, strict=True)
    ]
