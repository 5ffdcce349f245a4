"""Finish a run: average its checkpoints, score the averaged model, and write the results."""

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..batch_translation import DOUBTFUL_BELOW
from ..configuration_vanilla_transformer import VanillaTransformerConfig
from ..data.dataset import reading_report
from ..data.doubts import KINDS
from ..data.examination import odd_texts
from ..errors import RequestError
from ..evaluation.scores import choose_samples, first_references, useless_outputs, without_texts
from ..fast.shortlist import SHORTLISTS, Shortlist, write_shortlist
from ..recipes.plan import Plan, settings_as_yaml
from ..search_settings import SearchSettings
from ..storage.atomic import write_aside, write_text
from ..storage.metrics import Chosen, RunWarning, Sample, TestTexts, write_metrics
from ..storage.reading import counted, printable
from ..storage.run_files import (
    ATTENTION,
    CHOSEN,
    CURVES,
    HISTORY,
    HYPOTHESES,
    METRICS,
    MODEL_FILES,
    RECIPE,
    SAMPLES,
    config_identity,
    digests,
)
from ..storage.saved_model import GENERATION_CONFIG, RECORDED, SHORTLIST
from ..target_tokenizer import target_tokenizer
from ..translation.doubt_threshold import set_doubt_threshold
from ..visualization import attention_weights, plot_attention, save_figure
from .arguments import VanillaTransformerTrainingArguments
from .averaging import average_checkpoints, choose_on_validation_pairs
from .checkpoints import Progress, averaging_set, step_of, trainer_state
from .curves import plot_training_curves
from .optimization import schedule_warnings
from .run_inputs import RunPairs
from .scoring import score_folder

logger = logging.getLogger(__name__)


def finish(
    plan: Plan, run: Path, args: VanillaTransformerTrainingArguments, pairs: RunPairs, final: Path
) -> None:
    """Average the checkpoints, score the averaged model, and write the results.

    Args:
        plan: The plan of the run.
        run: The run directory.
        args: The training arguments.
        pairs: The pairs of the run, with the facts about them.
        final: The last checkpoint.
    """
    averaged, chosen, shortlist = _average(plan, run, args, pairs, final)
    scoring: dict[str, Any] = {
        "target_language": plan.data.languages[1],
        "measures": plan.evaluation.measures,
    }
    model, tokenizer, results = score_folder(run, pairs.scored, **scoring)
    usual = set_doubt_threshold(model, tokenizer, pairs.validation.sources)
    config = GenerationConfig.from_pretrained(run)
    setattr(config, DOUBTFUL_BELOW, getattr(model.generation_config, DOUBTFUL_BELOW))
    write_aside(run / GENERATION_CONFIG, config.to_json_file)
    if shortlist is not None:
        SHORTLISTS[model] = shortlist
        # Again: with a shortlist, the log-probabilities of translations are higher.
        set_doubt_threshold(model, tokenizer, pairs.validation.sources)
        write_shortlist(shortlist, run, getattr(model.generation_config, DOUBTFUL_BELOW))
    state, progress = trainer_state(final), Progress.load(final)
    write_text(run / RECIPE, settings_as_yaml(plan.settings))
    write_history(state.log_history, run / HISTORY)
    write_hypotheses(run, results)
    with _picture(CURVES):
        save_figure(plot_training_curves(state.log_history), run / CURVES)
    samples = choose_samples(results, plan.evaluation.num_samples)
    write_samples(run, samples)
    if results:
        with _picture(ATTENTION):
            last = list(results.values())[-1]
            target = last["hypotheses"][0] or first_references(last["references"])[0]
            attention = attention_weights(model, tokenizer, last["sources"][0], target)
            save_figure(plot_attention(attention), run / ATTENTION)
    unchosen = [] if chosen else averaged
    found = _warnings(pairs, args, model.config.d_model, state.global_step, unchosen)
    metrics: Any = {
        "scores": without_texts(results),
        **training_facts(model, tokenizer, args.seed, progress),
        "updates": state.global_step,
        "epochs": round(state.epoch or 0.0, 3),
        "averaged_checkpoints": [path.name for path in averaged],
        **({} if chosen is None else {CHOSEN: chosen}),
        **({"model": _shape(model, plan)} if plan.model.init_from else {}),
        **({"validation_sureness": usual} if usual else {}),
        "warnings": [
            *useless_outputs(results),
            *(RunWarning(kind=kind, text=text) for kind, text in found),
        ],
        "data": pairs.facts,
        "recipe": plan.settings,
        "samples": samples,
        MODEL_FILES: digests(run, RECORDED),
    }
    write_metrics(run / METRICS, metrics)


def _warnings(
    pairs: RunPairs,
    args: VanillaTransformerTrainingArguments,
    d_model: int,
    updates: int,
    averaged: Sequence[Path],
) -> Iterator[tuple[str, str]]:
    """Yield the kind and text of the warnings about a run's schedule and its pairs."""
    for text in schedule_warnings(args, d_model, updates):
        yield "schedule", text
    if len(averaged) > 1 and (first := step_of(averaged[0])) < args.warmup_steps:
        what = f"The averaged checkpoints begin at update {first}, before the end of warm-up"
        remedy = "the last one alone may translate better (--checkpoints-to-average 1)."
        yield "schedule", f"{what} at {args.warmup_steps:g}; {remedy}"
    texts = [*odd_texts(pairs.given)]
    if (doubts := reading_report(pairs.given).get("doubts", {})).get("is_warning"):
        counts = "; ".join(f"{count} {KINDS[kind]}" for kind, count in doubts["counts"].items())
        inspected = counted(doubts["pairs"], "inspected training pair")
        texts.append(f"Of {inspected}: {counts}. --clean leaves such pairs out.")
    for text in texts:
        yield "pairs", text
    for name, count in pairs.facts.get("shared_with_training", {}).items():
        what = f"The training pairs contain {count} of {len(pairs.scored[name])} {name} pairs"
        yield "test", f"{what}, which makes the scores too high."


def _average(
    plan: Plan, run: Path, args: VanillaTransformerTrainingArguments, pairs: RunPairs, final: Path
) -> tuple[list[Path], Chosen | None, Shortlist | None]:
    """Write the average of the last checkpoints to the run directory, with search settings.

    Returns:
        The averaged checkpoints, and the values and the shortlist chosen on validation pairs, if
        any.
    """
    every = int(trainer_state(final).save_steps)  # args.save_steps may be a fraction
    averaged = averaging_set(final.parent, every=every, count=args.checkpoints_to_keep or 1)
    chosen, shortlist, search = None, None, plan.evaluation.search()
    if plan.evaluation.choose_on_validation and len(pairs.validation):
        choices = (plan.evaluation, plan.data.languages[1], pairs.encoded)
        chosen, shortlist = choose_on_validation_pairs(averaged, pairs.validation, *choices)
        averaged = averaged[-chosen["averaged"] :]
        if "length_penalty" in chosen:
            search = dataclasses.replace(search, length_penalty=chosen["length_penalty"])
    average_checkpoints(averaged, run)
    (run / SHORTLIST).unlink(missing_ok=True)  # left by an earlier completion of this run
    _save_search(search, final, run)
    return averaged, chosen, shortlist


def _save_search(search: SearchSettings, final: Path, run: Path) -> None:
    """Write the settings of the search to the generation config, so that `generate` uses them."""
    config = GenerationConfig.from_pretrained(final)  # the run's own may be damaged
    config.num_beams = search.num_beams
    config.length_penalty = search.length_penalty
    # None, the default in transformers, selects the paper's rule for when to stop.
    config.early_stopping = search.early_stopping or None
    if search.num_beams == 1:  # transformers refuses beam options without beams
        config.early_stopping = config.length_penalty = None
    write_aside(run / GENERATION_CONFIG, config.to_json_file)


def training_facts(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, seed: int, progress: Progress
) -> dict[str, Any]:
    """Return sizes, duration, speed, machine and software versions of a run.

    The machine is the one that trained, which need not be the one that finishes the run.
    """
    training_seconds = progress.seconds - progress.evaluation_seconds
    same = ("matmul_precision", "hardware", "threads", "versions", "git_commit")
    facts = {
        "parameters": model.num_parameters(),
        "target_tokens": progress.target_tokens,
        "target_tokens_per_second": round(progress.target_tokens / max(training_seconds, 1e-9), 1),
        "training_minutes": round(progress.seconds / 60, 3),
        "of_which_evaluation_minutes": round(progress.evaluation_seconds / 60, 3),
        "precision": progress.identity["precision"],
        "seed": seed,
        "vocabulary": len(tokenizer),
        "devices": progress.world_size,
        **{name: getattr(progress, name) for name in same},
    }
    if (target := target_tokenizer(tokenizer)) is not tokenizer:
        facts["target_vocabulary"] = len(target.get_vocab())
    return facts


def _shape(model: PreTrainedModel, plan: Plan) -> dict[str, Any]:
    """Return config values that differ from the paper's and are not in the recipe."""
    paper, recorded = VanillaTransformerConfig(), plan.model.fields()
    fields = config_identity(VanillaTransformerConfig.__annotations__)
    names = [name for name in fields if name not in recorded and not name.endswith("_id")]
    values = {name: getattr(model.config, name) for name in names}
    return {name: value for name, value in values.items() if value != getattr(paper, name)}


def write_history(log_history: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write a trainer's log as a table, a row for each update."""
    rows: dict[int, dict[str, float]] = {}
    for entry in log_history:
        rows.setdefault(int(entry["step"]), {}).update(entry)
    names = ["step", *sorted({name for row in rows.values() for name in row} - {"step"})]
    lines = [
        [f"{row[name]:.10g}" if name in row else "" for name in names] for row in rows.values()
    ]
    write_text(path, "".join("\t".join(line) + "\n" for line in [names, *lines]))


def write_hypotheses(run: Path, results: Mapping[str, TestTexts]) -> None:
    """Write the translations of each test set to a file."""
    for name, result in results.items():
        lines = (" ".join(text.splitlines()) for text in result["hypotheses"])
        write_text(run / HYPOTHESES.format(name), "".join(f"{line}\n" for line in lines))


def write_samples(run: Path, samples: Mapping[str, Sequence[Sample]]) -> None:
    """Write the samples of metrics.json, if any, as a Markdown page."""
    lines = ["# Sample translations", ""]
    for name, chosen in samples.items():
        lines += [f"## {name}", ""]
        for sample in chosen:
            lines += [sample_text(sample), ""]
    if samples:
        write_text(run / SAMPLES, "\n".join(lines))


def sample_text(sample: Sample) -> str:
    """Render a sample in three lines, indented by four so that Markdown shows it verbatim."""
    return "\n".join(f"    {name:<12}{printable(str(text))}" for name, text in sample.items())


@contextmanager
def _picture(name: str) -> Iterator[None]:
    """Log errors while drawing a picture, and let the run continue."""
    try:
        yield
    except Exception as error:  # an error in a picture must not end the run
        unforeseen = not isinstance(error, (RequestError, OSError))
        message = "%s could not be drawn (%s); the run continues without it."
        logger.warning(message, name, error, exc_info=unforeseen)
