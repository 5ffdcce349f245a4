"""Run a plan: pairs, tokenizer, training, averaging, evaluation, run directory.

Each stage writes its result to disk atomically, and is not repeated when the run is resumed.

    RUN/recipe.yaml                  the settings of the run
    RUN/tokenizer.json, tokenizer_config.json
    RUN/checkpoints/checkpoint-N/    see checkpoints.py
    RUN/checkpoints/identity.json    settings and digests, which must be the same on resumption
    RUN/checkpoints/training.lock, training.holder    exist while a process trains
    RUN/config.json, generation_config.json, model.safetensors    average of the last checkpoints
    RUN/curves.png, history.tsv, samples.md, attention.png
    RUN/hypotheses.NAME.txt          all translations of a test set, one line each
    RUN/metrics.json                 written last; its presence marks the run as complete
"""

import logging
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedTokenizerBase, set_seed
from transformers.trainer_utils import IntervalStrategy

from ..errors import RequestError
from ..recipes.budget import fit_into_minutes
from ..recipes.data import check_files
from ..recipes.plan import Plan
from ..storage.metrics import Metrics, all_metrics
from ..storage.run_files import CHECKPOINTS, METRICS
from ..storage.saved_model import model_folder
from . import run_directory, run_inputs
from .arguments import share_of_update
from .checkpoints import Progress, last_whole_checkpoint, step_of, stopped_early, trainer_state
from .finishing import finish
from .speed import updates_within
from .synthetic_pairs import make_pairs, with_made
from .trainer import VanillaTransformerTrainer, VanillaTransformerTrainingArguments

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)


def run_plan(plan: Plan, output_dir: str | os.PathLike[str]) -> Metrics:
    """Train and evaluate a model as planned, and write the files of its run directory.

    Args:
        plan: A plan from `recipes.planning.plan_run`.
        output_dir: Run directory. It is new, empty, or holds a run of the same plan to resume.

    Returns:
        The content of metrics.json.

    Raises:
        ValueError: If the directory holds something else or another process trains in it, or if
            the data or the arguments are invalid.
        TrainingInterrupted: If SIGTERM or Ctrl-C ended training, after saving a checkpoint.
    """
    run = Path(output_dir)
    args = training_arguments(plan.arguments, run / CHECKPOINTS)
    begun, measure = run_directory.trained(run), partial(updates_within, args)
    if not begun:
        check_files(plan.data)  # before the speed is measured
    plan = fit_into_minutes(plan, run, measure, begun=begun, processes=args.world_size)
    args = training_arguments(plan.arguments, run / CHECKPOINTS)
    with ExitStack() as held:
        # The other ranks, also on other machines, wait here and then read from the cache.
        with args.main_process_first(local=False):
            if (metrics := run_directory.completed(plan, run)) is not None:
                return metrics
            if args.should_save:
                held.enter_context(run_directory.training_lock(run))
            elif args.process_index != args.local_process_index:
                run_directory.check_shared(run)
            last = last_whole_checkpoint(run / CHECKPOINTS)
            identity = run_directory.identify(plan, run, from_start=last is None)
            if last is not None and (done := step_of(last)) > args.max_steps:
                raise RequestError(f"got max_steps={args.max_steps}, but {done} updates are done.")
            pairs = run_inputs.read_run_pairs(plan.data)
        added = make_pairs(plan, run, pairs, args, run_plan)
        with args.main_process_first(local=False):
            pairs = with_made(plan.data, pairs, added)
            if args.should_save:  # only now, so that unreadable pairs leave no directory behind
                run_directory.claim(plan, run, identity, pairs.digests())
            initial = None
            if last is None and plan.model.init_from is not None:
                revision = identity[run_directory.INITIAL_MODEL]["revision"]
                initial = model_folder(plan.model.init_from, revision)
            pairs.facts.update(run_directory.data_facts(identity))
            tokenizer = run_inputs.run_tokenizer(
                plan.tokenizer, run, pairs, plan.data.languages, last=last, initial=initial
            )
            encoded = run_inputs.tokenized_run_pairs(
                plan.data, pairs, tokenizer, batch_tokens=args.batch_tokens or 1
            )
        if last is None or not _is_final(last, args):
            trainer = _trainer(plan, args, tokenizer, pairs, encoded, last, initial)
            logger.info("Precision: %s.", args.precision)
            trainer.train(resume_from_checkpoint=last)
            last, done = last_whole_checkpoint(run / CHECKPOINTS), trainer.state.global_step
            if args.should_save and (last is None or step_of(last) != done):
                raise RequestError(f"checkpoint-{done} was damaged or removed; repeat the command.")
        if args.should_save and last is not None:
            finish(plan, run, args, replace(pairs, encoded=encoded[0]), last)
        args.distributed_state.wait_for_everyone()
        return all_metrics(run / METRICS)


def training_arguments(
    values: Mapping[str, Any], output_dir: Path
) -> VanillaTransformerTrainingArguments:
    """Return the training arguments of a plan, including those that depend on the machine."""
    cuda = torch.cuda.is_available()
    of_machine = {
        "dataloader_num_workers": 2 if cuda else 0,
        "dataloader_pin_memory": cuda,
        "ddp_timeout": 4 * 3600,  # the other ranks wait while the first prepares the data
        "report_to": "none",
    }
    try:
        args = VanillaTransformerTrainingArguments(
            output_dir=str(output_dir),
            **{**of_machine, **values},
            run_name=output_dir.absolute().parent.name,
            # Must be explicit, or processes on CPUs do not find each other.
            use_cpu=not (cuda or torch.backends.mps.is_available()),
        )
    except (TypeError, ValueError) as error:
        raise RequestError(f"trainer: {error}") from error
    # A recipe gives the batches of all processes; the number of processes is known only now.
    batches = args.gradient_accumulation_steps
    args.gradient_accumulation_steps = share_of_update(batches, args.world_size)
    return args


def _trainer(
    plan: Plan,
    args: VanillaTransformerTrainingArguments,
    tokenizer: PreTrainedTokenizerBase,
    pairs: run_inputs.RunPairs,
    encoded: tuple["Dataset", "Dataset | None"],
    last: Path | None,
    initial: Path | None,
) -> VanillaTransformerTrainer:
    """Return a trainer with a new model, the initial model or the last checkpoint."""
    train, validation = encoded
    evaluation, language = plan.evaluation, plan.data.languages[1]
    if validation is None:
        args.eval_strategy = IntervalStrategy.NO
    if args.eval_strategy == IntervalStrategy.NO and args.early_stopping_patience:
        args.early_stopping_patience = None
        logger.warning("There are no evaluations, so early_stopping_patience has no effect.")
    _warn_of_missing_sets(plan, pairs)
    set_seed(args.seed)
    model = run_inputs.run_model(plan.model, plan.data, tokenizer, last or initial)
    if initial is not None:
        logger.info("Training starts from weights and tokenizer of %s.", plan.model.init_from)
        run_inputs.warn_of_start(initial, plan.data, args, model.config.d_model)
    args.ddp_find_unused_parameters = False  # every parameter is in every update
    run_inputs.try_scored_pairs(model, tokenizer, pairs, plan)
    known = zip(pairs.validation.sources, pairs.validation.references, strict=True)
    return VanillaTransformerTrainer(
        model,
        args,
        train_dataset=train,
        eval_dataset=validation,
        processing_class=tokenizer,
        validation_pairs=[*islice(known, evaluation.evaluate_pairs)],
        target_language=language,
        measures=evaluation.measures,
    )


def _warn_of_missing_sets(plan: Plan, pairs: run_inputs.RunPairs) -> None:
    """Warn if validation or test pairs are missing or may have been trained on."""
    if not len(pairs.validation) and plan.evaluation.choose_on_validation:
        logger.warning("There are no validation pairs, so choose_on_validation has no effect.")
    if not pairs.scored:
        logger.warning("There are no validation or test pairs, so there will be no scores.")
    if plan.model.init_from is not None and pairs.facts["held_out_pairs"]:
        message = "%s may have trained on held-out pairs; give --validation-file and --test-file."
        logger.warning(message, plan.model.init_from)


def _is_final(checkpoint: Path, args: VanillaTransformerTrainingArguments) -> bool:
    """Return whether a checkpoint ends the run: by updates, minutes or early stopping."""
    minutes = Progress.load(checkpoint).seconds / 60
    out_of_time = args.max_minutes is not None and minutes >= args.max_minutes
    log_history = trainer_state(checkpoint).log_history
    early = stopped_early(log_history, args.early_stopping_patience, args.early_stopping_on)
    return step_of(checkpoint) == args.max_steps or out_of_time or early
