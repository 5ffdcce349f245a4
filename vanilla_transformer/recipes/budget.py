"""Fit a run into its time limit: choose regularization, batches, model, warm-up and pairs.

Eq. 3 does not depend on the number of updates, but a warm-up made for many would end a short run
before its learning rate has peaked. A model that reads its pairs only a few times does not overfit,
so regularization would only slow it down.
"""

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..storage.run_files import recipe_values
from .data import training_pairs
from .plan import Plan
from .planning import plan_run
from .recipe import make_recipe

if TYPE_CHECKING:
    from ..configuration_vanilla_transformer import VanillaTransformerConfig

logger = logging.getLogger(__name__)

_BATCHES = ("batch_tokens", "gradient_accumulation")
_SIZES = ("d_model", "ffn_dim", "preset", "attention_heads")
_RATES = ("warmup_steps", "learning_rate", "learning_rate_factor")
_LONGER = 3  # BPE-dropout of 0.1 makes batches 1.3 times as large, with their padding
_ADDED = ("join_pairs", "both_directions")
_REGULARIZATION = ("norm_first", "dropout", "bpe_dropout")
_DECIDED = (*_REGULARIZATION, *_BATCHES, "d_model", "ffn_dim", *_RATES, *_ADDED)
_FEW_PASSES = 15 * 12  # tokens a pair: 15 passes, if a sentence has 12 tokens (LOG.md)
_ENOUGH = 4_000  # updates; if fewer fit, smaller batches teach more (LOG.md)
_LEARNS = 2_400  # updates; if fewer fit, half the width and no added pairs teach more (LOG.md)
_BATCH, _NARROWEST = 1_024, 128  # the smallest batch_tokens and d_model
_WARMUP = 3  # least ratio of all updates to those of warm-up (LOG.md)
_SAVES = 20  # checkpoints of a run, at least, from which the averaged ones are chosen


def fit_into_minutes(
    plan: Plan,
    run: Path,
    updates_within: "Callable[[VanillaTransformerConfig, int, int], int]",
    *,
    begun: bool,
    processes: int = 1,
) -> Plan:
    """Return the plan of a run with a schedule for the updates that fit into `max_minutes`.

    A recipe's schedule that suits so many updates stays as it is, and so do values that the user
    typed. A run that has begun keeps the values in its recipe.yaml.

    Args:
        plan: The plan as the recipe gives it.
        run: The run directory.
        updates_within: Function that returns how many updates fit, given a model's config, the
            tokens of a batch, and the batches of each process in an update.
        begun: Whether the run has begun.
        processes: Number of processes that train together.
    """
    settings, minutes = plan.settings, plan.settings["max_minutes"]
    has_other_schedule = "lr_scheduler_type" in (settings["trainer"] or {})
    before = make_recipe(recipe_values(run) if begun else {})
    if before.max_minutes is not None:
        changes = {name: getattr(before, name) for name in _DECIDED if name not in plan.fixed}
        every = (before.trainer or {}).get("save_steps")
    elif begun or minutes is None or plan.model.init_from or has_other_schedule:
        return plan
    else:
        changes, updates = _schedule(plan, updates_within, processes)
        every = max(1, updates // _SAVES)
        every = every if every < plan.arguments["save_steps"] else None
        text = ", ".join(f"{name}={value}" for name, value in changes.items()) or "none"
        if updates < settings["max_steps"]:
            logger.info("About %d updates fit into %g min; changed: %s.", updates, minutes, text)
    if every is not None:
        changes["trainer"] = {**(settings["trainer"] or {}), "save_steps": every}
    return plan_run(make_recipe({**settings, **changes}), run)


def _schedule(
    plan: Plan,
    updates_within: "Callable[[VanillaTransformerConfig, int, int], int]",
    processes: int,
) -> tuple[dict[str, Any], int]:
    """Lower regularization for few passes, make updates cheaper until enough fit, adapt warm-up.

    Returns:
        The settings to change, and the number of updates.
    """
    settings, changes, model = plan.settings, dict[str, Any](), plan.model
    batch, batches = settings["batch_tokens"], settings["gradient_accumulation"]

    def change(**values: Any) -> None:
        changes.update((k, v) for k, v in values.items() if k not in plan.fixed)

    def measured() -> int:
        noise = {**settings, **changes}["bpe_dropout"] or 0.0
        size = round(batch * (1 + _LONGER * noise))
        return updates_within(config, size, -(-batches // processes))

    config = model.config(vocab_size=plan.tokenizer.vocab_size)
    data = dataclasses.replace(plan.data, clean=False)  # cleaning takes long; the run does it
    fits, pairs = measured(), 0 if data.streaming else len(training_pairs(data))
    if fits < settings["max_steps"] and fits * batch * batches < _FEW_PASSES * pairs:
        change(norm_first=True, dropout=min(0.05, config.dropout), bpe_dropout=0.0)
        fits = measured()
    if fits < _ENOUGH and batch * batches > _BATCH and not plan.fixed & {*_BATCHES}:
        batch, batches = max(_BATCH, batch * batches * fits // (_ENOUGH * processes)), processes
        change(batch_tokens=batch, gradient_accumulation=batches)
        fits = measured()
    while fits < _LEARNS and config.d_model >= 2 * _NARROWEST and not plan.fixed & {*_SIZES}:
        change(d_model=config.d_model // 2, ffn_dim=config.encoder_ffn_dim // 2)
        model = dataclasses.replace(model, d_model=changes["d_model"], ffn_dim=changes["ffn_dim"])
        config = model.config(vocab_size=plan.tokenizer.vocab_size)
        fits = measured()
    updates, warmup = min(settings["max_steps"], fits), settings["warmup_steps"]
    if updates < _WARMUP * warmup and not plan.fixed & {*_RATES}:
        warmup, rate = max(1, updates // _WARMUP), make_recipe(settings).peak_rate(config.d_model)
        # A fixed learning rate needs no factor.
        change(warmup_steps=warmup, learning_rate=rate, learning_rate_factor=1.0)
    if updates < _LEARNS or "d_model" in changes:
        change(**dict.fromkeys(_ADDED, False))
    # None and 0.0 switch off alike.
    return {k: v for k, v in changes.items() if (settings[k] or None) != (v or None)}, updates
