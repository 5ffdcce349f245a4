"""Finish a run: average its checkpoints, score the mean, and write the results."""

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase, TrainerState

from ..errors import RequestError
from ..evaluation.scores import first_references
from ..recipes.data import TextPairs
from ..recipes.plan import EvaluationPlan, Plan
from ..search_settings import SearchSettings
from ..storage.atomic import write_aside, write_json
from ..storage.identity import digests
from ..storage.metrics import Chosen, TestTexts
from ..storage.run_files import ATTENTION, CHOSEN, CURVES, METRICS, MODEL_FILES
from ..storage.saved_model import GENERATION_CONFIG, MODEL, load_saved_model, load_saved_tokenizer
from ..visualization import attention_weights, plot_attention, save_figure
from . import report
from .arguments import VanillaTransformerTrainingArguments
from .averaging import average_checkpoints
from .checkpoints import Progress, averaging_set, step_of, trainer_state
from .curves import plot_training_curves
from .run_pairs import RunPairs
from .run_scores import score_set
from .select_checkpoints import choose_on_validation_pairs

logger = logging.getLogger(__name__)


def finish(
    plan: Plan, run: Path, args: VanillaTransformerTrainingArguments, pairs: RunPairs, final: Path
) -> None:
    """Average the checkpoints, score the mean, and write the results.

    Args:
        plan: The plan of the run.
        run: The run directory.
        args: The training arguments.
        pairs: The pairs of the run, with the facts about them.
        final: The last checkpoint.
    """
    language = plan.data.languages[1]
    averaged, chosen = _average(
        plan.evaluation, run, args, final, pairs.validation, language=language
    )
    model, tokenizer = load_saved_model(run, device="auto"), load_saved_tokenizer(run)
    results = {
        name: score_set(
            model, tokenizer, texts, target_language=language, measures=plan.evaluation.measures
        )
        for name, texts in pairs.scored.items()
    }
    state = trainer_state(final)
    if chosen is None and len(averaged) > 1 and step_of(averaged[0]) < args.warmup_steps:
        logger.warning(
            "The averaged checkpoints begin at update %d, before the end of warm-up at %d; the "
            "last one alone may translate better: repeat the command with "
            "--checkpoints-to-average 1.",
            step_of(averaged[0]),
            args.warmup_steps,
        )
    samples = report.choose_samples(results, plan.evaluation.num_samples)
    hypotheses = _write_reports(run, model, tokenizer, state, results, samples)
    shape = report.config_beyond_recipe(model.config, recorded=plan.model.fields())
    metrics = {
        "scores": {name: report.without_texts(result) for name, result in results.items()},
        **report.training_facts(model, tokenizer, args.seed, Progress.load(final)),
        "updates": state.global_step,
        "epochs": round(state.epoch or 0.0, 3),
        "averaged_checkpoints": [path.name for path in averaged],
        **({} if chosen is None else {CHOSEN: chosen}),
        **({"model": shape} if plan.model.init_from else {}),
        "data": pairs.facts,
        "recipe": plan.settings,
        "samples": samples,
        "hypotheses": hypotheses,
        MODEL_FILES: digests(run, MODEL),
    }
    write_json(run / METRICS, metrics)


def _average(
    plan: EvaluationPlan,
    run: Path,
    args: VanillaTransformerTrainingArguments,
    final: Path,
    validation: TextPairs,
    *,
    language: str,
) -> tuple[list[Path], Chosen | None]:
    """Write the mean of the last checkpoints to the run directory, with its search.

    Returns:
        The averaged checkpoints, and what was chosen on validation pairs, if anything.
    """
    every = int(trainer_state(final).save_steps)  # the argument may be a share of the run
    averaged = averaging_set(final.parent, every=every, count=args.checkpoints_to_keep or 1)
    chosen, search = None, plan.search()
    if plan.choose_on_validation and len(validation):
        chosen = choose_on_validation_pairs(
            averaged,
            load_saved_tokenizer(final),
            validation,
            search=search,
            measure=plan.measures[0],
            target_language=language,
        )
        averaged = averaged[-chosen["averaged"] :]
        if "length_penalty" in chosen:
            search = dataclasses.replace(search, length_penalty=chosen["length_penalty"])
    average_checkpoints(averaged, run)
    _save_search(search, run)
    return averaged, chosen


def _save_search(search: SearchSettings, run: Path) -> None:
    """Write the settings of the search to the generation config, so that `generate` uses them."""
    config = GenerationConfig.from_pretrained(run)
    config.num_beams = search.num_beams
    config.length_penalty = search.length_penalty
    # None, the default in transformers, selects the paper's rule.
    config.early_stopping = search.early_stopping or None
    if search.num_beams == 1:  # transformers refuses beam options without beams
        config.early_stopping = config.length_penalty = None
    write_aside(run / GENERATION_CONFIG, config.to_json_file)


def _write_reports(
    run: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    state: TrainerState,
    results: Mapping[str, TestTexts],
    samples: Mapping[str, Sequence[report.Sample]],
) -> dict[str, str]:
    """Write log, pictures, samples and translations; return the files of translations."""
    report.write_history(state.log_history, run)
    with _picture(CURVES):
        save_figure(plot_training_curves(state.log_history), run / CURVES)
    if results:
        report.write_samples(run, samples)
        with _picture(ATTENTION):
            last = list(results.values())[-1]
            target = last["hypotheses"][0] or first_references(last["references"])[0]
            attention = attention_weights(model, tokenizer, last["sources"][0], target)
            save_figure(plot_attention(attention), run / ATTENTION)
    return report.write_hypotheses(run, results)


@contextmanager
def _picture(name: str) -> Iterator[None]:
    """Log a picture that cannot be drawn, and let the run continue."""
    try:
        yield
    except Exception as error:  # no fault of a picture may end a training
        unforeseen = not isinstance(error, RequestError)
        message = "%s could not be drawn (%s); the run continues without it."
        logger.warning(message, name, error, exc_info=unforeseen)
