"""Collect the facts of a training for metrics.json, and write a run's files for readers."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..configuration_vanilla_transformer import VanillaTransformerConfig
from ..evaluation.scores import first_references
from ..storage.atomic import keep_text, write_text
from ..storage.identity import config_identity
from ..storage.metrics import NUM_SAMPLES, Sample, TestTexts, TrainingFacts
from ..storage.reading import printable
from ..storage.run_files import HISTORY, HYPOTHESES, SAMPLES
from ..target_tokenizer import target_tokenizer
from .checkpoints import Progress

_SAMPLE = ("source", "reference", "translation")


def training_facts(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, seed: int, progress: Progress
) -> TrainingFacts:
    """Return sizes, time, speed, machine and software of a training.

    The machine is the one that trained, which need not be the one that finishes the run.
    """
    training_seconds = progress.seconds - progress.evaluation_seconds
    facts: TrainingFacts = {
        "parameters": model.num_parameters(),
        "target_tokens": progress.target_tokens,
        "target_tokens_per_second": round(progress.target_tokens / max(training_seconds, 1e-9), 1),
        "training_minutes": round(progress.seconds / 60, 3),
        "of_which_evaluation_minutes": round(progress.evaluation_seconds / 60, 3),
        "precision": progress.identity["precision"],
        "matmul_precision": progress.matmul_precision,
        "seed": seed,
        "vocabulary": len(tokenizer),
        "devices": progress.world_size,
        "hardware": progress.hardware,
        "threads": progress.threads,
        "versions": progress.versions,
        "git_commit": progress.git_commit,
    }
    if (target := target_tokenizer(tokenizer)) is not tokenizer:
        facts["target_vocabulary"] = len(target.get_vocab())
    return facts


def config_beyond_recipe(config: PreTrainedConfig, *, recorded: Iterable[str]) -> dict[str, Any]:
    """Return the config values that are neither in the recipe nor the paper's.

    Args:
        config: The model's config.
        recorded: Fields that the recipe sets.
    """
    paper, own = VanillaTransformerConfig(), VanillaTransformerConfig.__annotations__
    names = [name for name in config_identity(own) if not name.endswith("_id")]
    values = {name: getattr(config, name) for name in names if name not in recorded}
    return {name: value for name, value in values.items() if value != getattr(paper, name)}


def without_texts(result: TestTexts) -> TestTexts:
    """Return the scores of a test set without its sentences."""
    scores = result.copy()
    scores.pop("hypotheses", None)
    scores.pop("sources", None)
    scores.pop("references", None)
    return scores


def write_history(log_history: Sequence[Mapping[str, Any]], run: Path) -> str:
    """Write a trainer's log as a table, a row for each update; return the name of the file."""
    rows: dict[int, dict[str, float]] = {}
    for entry in log_history:
        rows.setdefault(int(entry["step"]), {}).update(entry)
    found = {name for row in rows.values() for name in row} - {"step"}
    names = ["step", *sorted(found)]
    lines = [
        [f"{row[name]:.10g}" if name in row else "" for name in names] for row in rows.values()
    ]
    write_text(run / HISTORY, "".join("\t".join(line) + "\n" for line in [names, *lines]))
    return HISTORY


def write_hypotheses(run: Path, results: Mapping[str, TestTexts]) -> dict[str, str]:
    """Write all translations, one file per test set; return the file names by test set."""
    files = {name: HYPOTHESES.format(name) for name in results}
    for name, file in files.items():
        lines = (" ".join(text.splitlines()) for text in results[name]["hypotheses"])
        write_text(run / file, "".join(f"{line}\n" for line in lines))
    return files


def choose_samples(results: Mapping[str, TestTexts], count: int) -> dict[str, list[Sample]]:
    """Choose the first translations of each test set, or of the validation set if there is none.

    Args:
        results: `sources`, `references` and `hypotheses` of each test set.
        count: Samples per test set; raised to those that a model card shows.

    Returns:
        Samples of each test set: `source`, `reference` and `translation`, each on one line.
    """
    count = max(count, NUM_SAMPLES)
    names = [name for name in results if name != "validation"] or list(results)
    chosen = {}
    for name in names:
        result = results[name]
        references = first_references(result["references"])
        texts = (result["sources"], references, result["hypotheses"])
        sides = ([" ".join(text.split()) for text in side[:count]] for side in texts)
        chosen[name] = [
            Sample(source=source, reference=reference, translation=translation)
            for source, reference, translation in zip(*sides, strict=True)
        ]
    return chosen


def write_samples(run: Path, samples: Mapping[str, Sequence[Sample]]) -> None:
    """Write the samples of metrics.json as a Markdown page."""
    lines = ["# Sample translations", ""]
    for name, chosen in samples.items():
        lines += [f"## {name}", ""]
        for sample in chosen:
            lines += [sample_text(sample), ""]
    keep_text(run / SAMPLES, "\n".join(lines))


def table_lines(rows: Sequence[Sequence[str]], *, narrowest: int = 0) -> list[str]:
    """Align the columns of a table: the first to the left, the others to the right."""
    first, *others = zip(*rows, strict=True)
    left = [cell.ljust(max(map(len, first))) for cell in first]
    right = [
        [cell.rjust(max(narrowest, *map(len, column))) for cell in column] for column in others
    ]
    return [" ".join(row) for row in zip(left, *right, strict=True)]


def sample_text(sample: Mapping[str, object]) -> str:
    """Render a sample in three lines, indented by four so that Markdown shows it verbatim."""
    return "\n".join(f"    {name:<12}{printable(str(sample[name]))}" for name in _SAMPLE)
