"""Run a recipe: data, tokenizer, training, averaging, evaluation, run directory.

Each stage writes its result to disk atomically, and the next start does not repeat it.

    RUN/recipe.yaml                  all fields; decides whether the run may be resumed
    RUN/tokenizer.json, tokenizer_config.json
    RUN/checkpoints/checkpoint-N/    see checkpoints.py
    RUN/checkpoints/data.json        which pairs the checkpoints and the tokenizer are trained on
    RUN/checkpoints/training.lock, training.holder    exist while a process trains
    RUN/config.json, generation_config.json, model.safetensors    the mean of the last checkpoints
    RUN/curves.png, history.tsv, samples.md, attention.png
    RUN/hypotheses.NAME.txt          all translations of a test set, one line each
    RUN/metrics.json                 written last; its presence marks the run as complete
"""

import dataclasses
import functools
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import GenerationConfig, PreTrainedTokenizerBase, TrainerState, set_seed
from transformers.integrations import get_available_reporting_integrations
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import IntervalStrategy

from ..batch_translation import encode
from ..data.augmentation import JOINED, OPPOSITE, augmented_pairs
from ..data.batches import TokenBatchSampler
from ..data.dataset import (
    MADE,
    load_pairs,
    mark_corpus,
    pair_corpora,
    pair_lengths,
    reading_report,
    sentences,
    tokenize_pairs,
)
from ..data.examination import doubts, few_sources
from ..data.language_names import language_of
from ..data.selection import compared, describe_report, pair_report
from ..data.tokenizer import make_tokenizer, vocabulary_fields
from ..errors import RequestError
from ..evaluation import measure_metric
from ..evaluation.scores import first_references
from ..machine.environment import resolve_precision
from ..modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ..recipes.data import (
    TextPairs,
    check_files,
    evaluation_sets,
    held_out,
    inherit,
    training_pairs,
    validation_pairs,
)
from ..recipes.options import listed
from ..recipes.recipe import Recipe
from ..search_settings import SearchSettings
from ..storage.atomic import files_written_aside, keep_text, write_aside, write_json
from ..storage.identity import digests
from ..storage.metrics import Chosen, Metrics, Share, TestTexts, read_metrics
from ..storage.reading import read_json
from ..storage.run_files import ATTENTION, CHECKPOINTS, CHOSEN, CURVES, METRICS, MODEL_FILES, RECIPE
from ..storage.saved_model import (
    GENERATION_CONFIG,
    MODEL,
    TOKENIZER_SETTINGS,
    copy_tokenizer,
    load_saved_model,
    load_saved_tokenizer,
)
from ..target_tokenizer import hold_target_tokenizer, target_ids, target_tokenizer
from ..visualization import attention_weights, plot_attention, save_figure
from . import report, run_directory
from .arguments import share_of_update
from .averaging import average_checkpoints
from .back_translation import back_translated
from .checkpoints import Progress, averaging_set, last_whole_checkpoint, stopped_early
from .curves import plot_training_curves
from .initial_model import initial_folder, load_initial_model, warn_of_other_languages
from .optimization import peak_rate
from .run_scores import score_set, shared_with_training, texts_as_dataset
from .select_checkpoints import choose_on_validation_pairs, recipe_search
from .trainer import VanillaTransformerTrainer, VanillaTransformerTrainingArguments

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

_POOR_MEAN = "The averaged checkpoints"  # a warning begins so


@dataclasses.dataclass(frozen=True)
class _Data:
    """Training, validation and test pairs as texts, and what is known of them."""

    train: "Dataset"
    given: "Dataset"  # those of `train` that were not made of the others
    validation: TextPairs
    test_sets: dict[str, TextPairs]
    identity: dict[str, Any]
    counts: dict[str, Any]

    @property
    def scored(self) -> dict[str, TextPairs]:
        """The sets that the final model is scored on, by name."""
        sets = {"validation": self.validation, **self.test_sets}
        return {name: pairs for name, pairs in sets.items() if len(pairs)}


def run_recipe(recipe: Recipe, output_dir: str | os.PathLike[str]) -> Metrics:
    """Train and evaluate a model from a recipe.

    Args:
        recipe: A recipe from `load_recipe`.
        output_dir: Run directory. It is new, empty, or holds a run of the same recipe to resume.

    Returns:
        The content of metrics.json.

    Raises:
        ValueError: If the directory holds something else or another process trains in it, or if
            the data or the recipe are invalid.
        TrainingInterrupted: If SIGTERM or Ctrl-C ended the training, after a whole checkpoint.
    """
    run = Path(output_dir)
    recipe = inherit(recipe, run)
    run_directory.check_outside_of_pairs(recipe, run)
    if recipe.report_to not in (None, *get_available_reporting_integrations()):
        raise RequestError(
            f"report_to: {recipe.report_to} is not installed; pip install {recipe.report_to}, or "
            "leave it out."
        )
    args = training_arguments(recipe, run / CHECKPOINTS)
    with ExitStack() as held, _noted_warnings() as warnings:
        # The other ranks, also on other machines, wait here and then read from the cache.
        with args.main_process_first(local=False):
            if (metrics := _of_complete_run(recipe, run, args)) is not None:
                return metrics
            if args.should_save:
                held.enter_context(run_directory.training_lock(run))
            elif args.process_index != args.local_process_index:
                run_directory.check_shared(run)
            identity = run_directory.identify(recipe, run)
            if args.should_save:
                # After the pairs: other ones may have chosen another recipe.
                run_directory.check_ours(recipe, run)
            last = last_whole_checkpoint(run / CHECKPOINTS)
            _check_updates(recipe, last)
            data = _data(run_directory.pinned(recipe, identity), identity)
        if recipe.monolingual_target is not None:
            noted, pairs = len(warnings), [*data.validation.pairs()]
            added = back_translated(recipe, run, data.train, pairs, args=args, train_run=run_recipe)
            del warnings[noted:]  # those of the training of the other model
        with args.main_process_first(local=False):
            if recipe.monolingual_target is not None:
                data = _with_translations(recipe, data, added)
            if args.should_save:  # only now, so that unreadable pairs leave no directory behind
                run_directory.claim(recipe, run, data.identity)
            tokenizer = _tokenizer(recipe, run, data, last)
            encoded = _encoded(recipe, tokenizer, data)
        if last is None or not _is_final(last, recipe):
            trainer = _trainer(recipe, args, tokenizer, data, encoded, last)
            logger.info("Computing in %s (precision: %s).", args.precision, recipe.precision)
            trainer.train(resume_from_checkpoint=last)
            last, done = last_whole_checkpoint(run / CHECKPOINTS), trainer.state.global_step
            if args.should_save and (last is None or _step(last) != done):
                raise RequestError(
                    f"checkpoint-{done} of {run} was removed or damaged after the training; run "
                    "the same command again."
                )
        if args.should_save and last is not None:
            _finish(recipe, run, data, last, warnings)
        args.distributed_state.wait_for_everyone()
        return read_json(run / METRICS, Metrics)


def _of_complete_run(
    recipe: Recipe, run: Path, args: VanillaTransformerTrainingArguments
) -> Metrics | None:
    """Return the metrics of a run that is complete; None if it is not."""
    metrics = run_directory.completed(recipe, run)
    if metrics is None:
        return None
    run_directory.identify(recipe, run)  # refuses other pairs
    logger.info("%s is complete.", run)
    if args.should_save:
        # A continuation may have been stopped before its first update.
        keep_text(run / RECIPE, recipe.to_yaml())
        if metrics.get("samples"):
            report.write_samples(run, metrics["samples"])
    return metrics


def training_arguments(recipe: Recipe, output_dir: Path) -> VanillaTransformerTrainingArguments:
    """Return the training arguments of a recipe: its values and those that all recipes share."""
    cuda = torch.cuda.is_available()
    args = VanillaTransformerTrainingArguments(
        output_dir=str(output_dir),
        **recipe.argument_values(),
        # Not in `argument_values`, because it also depends on the machine.
        bf16=resolve_precision(recipe.precision) == "bf16",
        dataloader_num_workers=2 if cuda else 0,
        dataloader_pin_memory=cuda,
        ddp_timeout=4 * 3600,  # the other ranks wait while the first prepares the data
        report_to=recipe.report_to or "none",
        run_name=output_dir.absolute().parent.name,
        # Must be explicit, or processes on CPUs do not find each other.
        use_cpu=not (cuda or torch.backends.mps.is_available()),
    )
    # A recipe counts the batches of all processes; their number is known only now.
    args.gradient_accumulation_steps = share_of_update(
        recipe.gradient_accumulation, args.world_size
    )
    return args


def _data(recipe: Recipe, identity: Mapping[str, Any]) -> _Data:
    """Return the pairs of a run; without validation and test pairs, some are held out.

    Args:
        recipe: The run's recipe, from `pinned`.
        identity: Result of `identify`.
    """
    check_files(recipe)
    train = training_pairs(recipe)
    validation, test_sets = validation_pairs(recipe), evaluation_sets(recipe)
    given = {"validation": validation, **test_sets}
    counts: dict[str, Any] = pair_report(train)
    kinds = "duplicates, copies and odd ratios"
    hint = f"{kinds} are left out" if recipe.clean else f"--clean leaves out {kinds}"
    logger.info("Training pairs: %s; %s.", describe_report(counts), hint)
    evaluated = {name: (it.sources, it.targets) for name, it in given.items()}
    for doubt in doubts(train, evaluated, recipe.languages):
        logger.warning(doubt)
    counts = {f"train_{name}": count for name, count in counts.items()}
    counts["train_pairs"] = counts.pop("train_read")
    if shared := shared_with_training(recipe, train, given):
        counts["shared_with_training"] = shared
    number = 0
    if not len(validation) and not test_sets:
        train, validation, test = held_out(recipe, train)
        test_sets = {"test": test} if len(test) else {}
        number = len(test)
        if recipe.init_from is not None and number:
            logger.warning(
                "The pairs held out for validation and test may be training pairs of %s, which "
                "makes the scores too high; if they are, give --validation-file and --test-file.",
                recipe.init_from,
            )
    opposite = recipe.languages[0] if recipe.both_directions else None
    made = augmented_pairs(train, join=recipe.join_pairs, opposite=opposite)
    identity = {**identity, "held_out_pairs": number}
    return _Data(made, train, validation, test_sets, identity, counts)


def _with_translations(recipe: Recipe, data: _Data, added: Path) -> _Data:
    """Return the pairs of a run, and those of a file that `back_translated` made of them."""
    from datasets import concatenate_datasets

    source, target = recipe.languages
    new = load_pairs(
        added, source_language=source, target_language=target, show_progress=sys.stderr.isatty()
    )
    for doubt in few_sources(new["source"], "translated pairs"):
        logger.warning(doubt)
    scored = {compared(target) for texts in data.scored.values() for _, target in texts.pairs()}
    kept = [number for number, text in enumerate(new["target"]) if compared(text) not in scored]
    if others := len(new) - len(kept):
        logger.info("%d sentences of the text are to be scored, and are left out.", others)
    new = new.select(kept)
    data.counts["train_back_translated"] = len(new)
    data.counts["train_pairs"] += len(new)
    if recipe.train_weights is not None:
        new = mark_corpus(new, len(listed(recipe.train_file)))
    train = concatenate_datasets([data.train, new])
    return dataclasses.replace(data, train=train, given=train)


def _encoded(
    recipe: Recipe, tokenizer: PreTrainedTokenizerBase, data: _Data
) -> tuple["Dataset", "Dataset | None"]:
    """Return the training pairs, and the validation pairs if any, as ids; count the pairs.

    Raises:
        ValueError: The opposite direction is asked for, and each side has a tokenizer of its own.
    """
    if recipe.both_directions and target_tokenizer(tokenizer) is not tokenizer:
        raise RequestError(
            "both_directions: each side has a tokenizer of its own, which cannot read the other; "
            "leave it out, or train one tokenizer for both."
        )
    tokenize = functools.partial(
        tokenize_pairs,
        tokenizer=tokenizer,
        max_source_length=recipe.max_source_length,
        max_target_length=recipe.max_target_length,
        show_progress=sys.stderr.isatty(),
    )
    given = tokenize(data.given)
    train = given if data.train is data.given else tokenize(data.train)
    validation = None
    if len(data.validation):
        # Of any length: leaving out long sentences would improve the perplexity unfairly.
        sources, targets = data.validation.sources, data.validation.targets
        pairs = texts_as_dataset(recipe, zip(sources, targets, strict=True))
        validation = tokenize_pairs(pairs, tokenizer, show_progress=False)
    data.counts["train_pairs_kept"] = len(given)
    data.counts["train_too_long"] = reading_report(given)["too_long"]
    if made := len(train) - len(given):
        data.counts["train_made"] = made
    data.counts["validation_pairs"] = len(data.validation)
    logger.info("%d training pairs (%d left out).", len(train), len(data.train) - len(train))
    if shares := _shares(recipe, train):
        data.counts["shares"] = shares
    return train, validation


def _shares(recipe: Recipe, train: "Dataset") -> dict[str, Share]:
    """Return the shares in the training that a recipe asks for, as they are reached; log them."""
    weights, corpora = listed(recipe.train_weights), pair_corpora(train)
    units = ("target tokens", "pairs")
    asked: list[tuple[str, np.ndarray, str, float]] = []  # name, pairs, unit, share
    if corpora is not None:
        for number, weight in enumerate(weights):
            chosen = corpora == number
            asked.append((f"corpus {number + 1}", chosen, units[0], weight / sum(weights)))
    if MADE in train.column_names:
        made = train.with_format("numpy")[MADE][:]
        if recipe.join_pairs:
            asked.append(("joined pairs", made & JOINED > 0, units[0], 1 / 2))
        if recipe.both_directions:
            asked.append(("opposite direction", made & OPPOSITE > 0, units[1], 1 / 3))
    if not asked:
        return {}
    sampler = TokenBatchSampler(
        *pair_lengths(train),
        max_tokens=recipe.batch_tokens,
        corpora=corpora,
        weights=weights or None,
    )
    shares = {}
    for name, chosen, unit, share in asked:
        reached = dict(zip(units, map(float, sampler.share(chosen)), strict=True))
        told = " and ".join(f"{value:.1%} of the {unit}" for unit, value in reached.items())
        logger.info("The share of %s is %s.", name, told)
        if abs(reached[unit] - share) > share / 10:
            logger.warning(
                "The share of %s is %.1f%% of the %s instead of %.1f%%. Pairs longer than "
                "max_source_length=%s or max_target_length=%s are left out.",
                *(name, 100 * reached[unit], unit, 100 * share),
                *(recipe.max_source_length, recipe.max_target_length),
            )
        shares[name] = Share(target_tokens=reached[units[0]], pairs=reached[units[1]])
    return shares


def _check_texts(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    name: str,
    pairs: TextPairs,
) -> None:
    """Refuse, before the training, pairs that are too long to translate or score after it.

    Symbols that the vocabulary lacks are counted: no model can read or write them.
    """
    try:
        sides = encode(model, tokenizer, pairs.sources), target_ids(model, tokenizer, pairs.targets)
    except RequestError as error:
        raise RequestError(f"Pairs of the {name} set: {error}") from error
    for side, rows in zip(("source", "target"), sides, strict=True):
        if unknown := sum(row.count(tokenizer.unk_token_id) for row in rows):
            total = sum(map(len, rows))
            logger.warning(
                "Of the %d %s tokens of the %s set %d are %s: what they stand for is not in the "
                "vocabulary.",
                *(total, side, name, unknown, tokenizer.unk_token),
            )


def _tokenizer(
    recipe: Recipe, run: Path, data: _Data, last: Path | None
) -> PreTrainedTokenizerBase:
    """Return the run's tokenizer; the first start trains it, or copies that of `init_from`.

    Args:
        recipe: The run's recipe.
        run: The run directory.
        data: The run's pairs.
        last: The last whole checkpoint, which holds the tokenizer that it was trained with.
    """
    if last is not None:
        return load_saved_tokenizer(last)
    if not (run / TOKENIZER_SETTINGS).is_file():
        with files_written_aside(run, last=TOKENIZER_SETTINGS) as aside:
            if recipe.init_from is not None:
                folder = initial_folder(recipe.init_from, data.identity[run_directory.INIT_FROM])
                copy_tokenizer(folder, aside)
            else:
                _new_tokenizer(recipe, data.train).save_pretrained(aside)
    return load_saved_tokenizer(run)


def _new_tokenizer(recipe: Recipe, pairs: "Dataset") -> PreTrainedTokenizerBase:
    """Return the tokenizer that a recipe describes: shared, or one for each side."""
    normalize = recipe.normalize_text
    if normalize is None:
        normalize = all(language_of(side) for side in recipe.languages)
    make = functools.partial(
        make_tokenizer,
        vocab_size=recipe.vocab_size,
        split_digits=recipe.split_digits,
        normalize_text=normalize,
        keep_typography=recipe.keep_typography,
        show_progress=sys.stderr.isatty(),
    )
    kinds = recipe.tokenizer.split(",")
    if len(kinds) == 1:
        return make(kinds[0], sentences(pairs))
    source, target = (
        make(kind, sentences(pairs, side))
        for kind, side in zip(kinds, ("source", "target"), strict=True)
    )
    hold_target_tokenizer(source, target)
    return source


def _trainer(
    recipe: Recipe,
    args: VanillaTransformerTrainingArguments,
    tokenizer: PreTrainedTokenizerBase,
    data: _Data,
    encoded: tuple["Dataset", "Dataset | None"],
    last: Path | None,
) -> VanillaTransformerTrainer:
    """Return a trainer with a new model, or with one to train further."""
    train, validation = encoded
    if validation is None:
        args.eval_strategy = IntervalStrategy.NO
        if recipe.choose_on_validation:
            logger.warning("There are no validation pairs, so choose_on_validation has no effect.")
    if args.eval_strategy == IntervalStrategy.NO and recipe.early_stopping_patience:
        args.early_stopping_patience = None
        logger.warning("Nothing is evaluated on the way, so early_stopping_patience has no effect.")
    if not data.scored:
        logger.warning(
            "There are no validation or test pairs, so there will be no scores; give "
            "--validation-file or --test-file."
        )
    elif args.should_save:
        for name in recipe.measures:  # fail now, not after the training
            measure_metric(name, recipe.languages[1])
    set_seed(recipe.seed)
    model = _model(recipe, tokenizer, last, data.identity)
    args.ddp_find_unused_parameters = False  # every parameter is in every update
    for name, pairs in data.scored.items():
        _check_texts(model, tokenizer, name, pairs)
    count = recipe.evaluate_pairs
    sources, references = data.validation.sources[:count], data.validation.references[:count]
    return VanillaTransformerTrainer(
        model,
        args,
        train_dataset=train,
        eval_dataset=validation,
        processing_class=tokenizer,
        validation_pairs=[*zip(sources, references, strict=True)],
        target_language=recipe.languages[1],
        measures=recipe.measures,
    )


def _model(
    recipe: Recipe,
    tokenizer: PreTrainedTokenizerBase,
    last: Path | None,
    identity: Mapping[str, Any],
) -> VanillaTransformerForConditionalGeneration:
    """Return a new model; with `init_from` that model, or on resumption the checkpoint's."""
    if recipe.init_from is None:
        config = recipe.config(**vocabulary_fields(tokenizer))
        return VanillaTransformerForConditionalGeneration(config)
    if last is not None:
        return load_initial_model(last, recipe)
    folder = initial_folder(recipe.init_from, identity[run_directory.INIT_FROM])
    model = load_initial_model(folder, recipe)
    warn_of_other_languages(folder, recipe)
    logger.info("Training starts from the weights and the tokenizer of %s.", recipe.init_from)
    if recipe.learning_rate is None:
        rate = peak_rate(
            d_model=model.config.d_model,
            warmup_steps=recipe.warmup_steps,
            factor=recipe.learning_rate_factor,
        )
        logger.warning(
            "The learning rate rises to %.1e, as in a training from scratch, which may undo much "
            "of what the model has learned; give a --learning-rate no higher than the last one of "
            "its own training, in its history.tsv.",
            rate,
        )
    return model


def _check_updates(recipe: Recipe, last: Path | None) -> None:
    """Refuse fewer updates than the run has done, before anything is written."""
    if last is not None and _step(last) > recipe.max_steps:
        raise RequestError(
            f"got max_steps={recipe.max_steps}, but this run has done {_step(last)} updates; give "
            f"{_step(last)} or more."
        )


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("checkpoint-"))


def _is_final(checkpoint: Path, recipe: Recipe) -> bool:
    """Return whether the recipe's updates, minutes or patience are used up."""
    minutes = Progress.load(checkpoint).seconds / 60
    out_of_time = recipe.max_minutes is not None and minutes >= recipe.max_minutes
    early = stopped_early(
        _state(checkpoint).log_history, recipe.early_stopping_patience, recipe.early_stopping_on
    )
    return _step(checkpoint) == recipe.max_steps or out_of_time or early


def _state(checkpoint: Path) -> TrainerState:
    return TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))


def _finish(recipe: Recipe, run: Path, data: _Data, final: Path, warnings: list[str]) -> None:
    """Average the checkpoints, score the mean, and write the results."""
    averaged, chosen = _average(recipe, run, final, data.validation)
    model, tokenizer = load_saved_model(run, device="auto"), load_saved_tokenizer(run)
    results = {
        name: score_set(model, tokenizer, recipe, pairs) for name, pairs in data.scored.items()
    }
    state = _state(final)
    log_history = state.log_history
    if chosen is None and len(averaged) > 1:
        _warn_of_poor_mean(recipe, _step(averaged[0]), log_history, results)
    history = report.write_history(log_history, run)
    with _picture(CURVES):
        save_figure(plot_training_curves(log_history), run / CURVES)
    samples = report.choose_samples(results, recipe.num_samples)
    if results:
        report.write_samples(run, samples)
        with _picture(ATTENTION):
            last = list(results.values())[-1]
            target = last["hypotheses"][0] or first_references(last["references"])[0]
            attention = attention_weights(model, tokenizer, last["sources"][0], target)
            save_figure(plot_attention(attention), run / ATTENTION)
    hypotheses = report.write_hypotheses(run, results)
    earlier = read_metrics(run / METRICS)
    if earlier is not None and earlier.get("updates") == state.global_step:  # another search
        of_training = (it for it in earlier.get("warnings", []) if not it.startswith(_POOR_MEAN))
        warnings = [*of_training, *warnings]
    warnings = [*dict.fromkeys(warnings)]
    shape = report.config_beyond_recipe(model.config, recipe)
    metrics = {
        "scores": {name: report.without_texts(result) for name, result in results.items()},
        **report.training_facts(model, tokenizer, recipe.seed, Progress.load(final)),
        "updates": state.global_step,
        "epochs": round(state.epoch or 0.0, 3),
        "averaged_checkpoints": [path.name for path in averaged],
        **({} if chosen is None else {CHOSEN: chosen}),
        **({"model": shape} if recipe.init_from else {}),
        "data": {**data.counts, **data.identity},
        "recipe": dataclasses.asdict(recipe),
        "samples": samples,
        "hypotheses": hypotheses,
        MODEL_FILES: digests(run, MODEL),
        "report_files": digests(run, (history, CURVES, ATTENTION, *hypotheses.values())),
        **({"warnings": warnings} if warnings else {}),
    }
    write_json(run / METRICS, metrics)


def _average(
    recipe: Recipe, run: Path, final: Path, validation: TextPairs
) -> tuple[list[Path], Chosen | None]:
    """Write the mean of the last checkpoints to the run directory, with its search.

    Returns:
        The averaged checkpoints, and what was chosen on validation pairs, if anything.
    """
    averaged = averaging_set(
        final.parent, every=recipe.save_every_steps, count=recipe.checkpoints_to_average
    )
    chosen, search = None, recipe_search(recipe)
    if recipe.choose_on_validation and len(validation):
        tokenizer = load_saved_tokenizer(final)
        chosen = choose_on_validation_pairs(recipe, averaged, tokenizer, validation)
        averaged = averaged[-chosen["averaged"] :]
        if "length_penalty" in chosen:
            search = dataclasses.replace(search, length_penalty=chosen["length_penalty"])
    average_checkpoints(averaged, run)
    _save_search(search, run)
    return averaged, chosen


def _warn_of_poor_mean(
    recipe: Recipe,
    first: int,
    log_history: Sequence[Mapping[str, Any]],
    results: Mapping[str, TestTexts],
) -> None:
    """Warn if the mean of the checkpoints from update `first` on may be worse than the last one."""
    perplexities = [entry["eval_perplexity"] for entry in log_history if "eval_perplexity" in entry]
    mean = results["validation"]["perplexity"] if perplexities and "validation" in results else 0.0
    if first < recipe.warmup_steps:
        trouble = f"begin at update {first}, before the end of warm-up at {recipe.warmup_steps}"
    elif perplexities and mean > 1.05 * perplexities[-1]:
        trouble = (
            f"have a mean with perplexity {mean:.2f} on the validation pairs, and the last "
            f"evaluation in training found {perplexities[-1]:.2f}"
        )
    else:
        return
    logger.warning(
        "%s %s; the last one alone may translate better: repeat the command with "
        "--checkpoints-to-average 1.",
        _POOR_MEAN,
        trouble,
    )


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


@contextmanager
def _noted_warnings() -> Iterator[list[str]]:
    """Collect the warnings of the block, which `compare` repeats."""
    warnings: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]  # a class would say no more
    package = logging.getLogger(__package__.partition(".")[0])
    package.addHandler(handler)
    try:
        yield warnings
    finally:
        package.removeHandler(handler)


@contextmanager
def _picture(name: str) -> Iterator[None]:
    """Log a picture that cannot be drawn, and let the run continue."""
    try:
        yield
    except Exception as error:  # no fault of a picture may end a training
        unforeseen = not isinstance(error, RequestError)
        message = "%s could not be drawn (%s); the run continues without it."
        logger.warning(message, name, error, exc_info=unforeseen)
