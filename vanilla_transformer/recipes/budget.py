"""Fit a run into its time limit: choose batches, model, warm-up and pairs accordingly.

Eq. 3 does not depend on the number of updates, but a warm-up made for many would end a short run
before its learning rate has peaked.
"""

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..storage.run_files import recipe_values
from .plan import Plan
from .planning import plan_run
from .recipe import make_recipe

if TYPE_CHECKING:
    from ..configuration_vanilla_transformer import VanillaTransformerConfig

logger = logging.getLogger(__name__)

_BATCHES = ("batch_tokens", "gradient_accumulation")
_SIZES = ("d_model", "ffn_dim", "preset", "attention_heads")
_RATES = ("warmup_steps", "learning_rate", "learning_rate_factor")
_ADDED = ("join_pairs", "both_directions")
_DECIDED = (*_BATCHES, "d_model", "ffn_dim", *_RATES, *_ADDED)
# If fewer updates fit, smaller batches and a model of half the width learn more (LOG.md).
_LEARNS = 2_000
_BATCH, _NARROWEST = 1_024, 128  # the smallest batch_tokens and d_model
_WARMUP = 3  # least ratio of all updates to those of warm-up (LOG.md)
_PAYS = 2_500  # updates after which added pairs pay off at the recipe's width (LOG.md)
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
    typed. A run that has begun keeps the schedule in its recipe.yaml.

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
        changes = {name: getattr(before, name) for name in _DECIDED}
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
    """Make updates cheaper until enough fit into the time; then adapt the schedule.

    Returns:
        The settings to change, and the number of updates.
    """
    settings, changes, model = plan.settings, dict[str, Any](), plan.model
    config = model.config(vocab_size=plan.tokenizer.vocab_size)
    batch, batches = settings["batch_tokens"], settings["gradient_accumulation"]
    fits = updates_within(config, batch, -(-batches // processes))
    if fits < _LEARNS and batch * batches > _BATCH and not plan.fixed & {*_BATCHES}:
        batch, batches = max(_BATCH, batch * batches * fits // (_LEARNS * processes)), processes
        changes = {"batch_tokens": batch, "gradient_accumulation": batches}
        fits = updates_within(config, batch, 1)
    while fits < _LEARNS and config.d_model >= 2 * _NARROWEST and not plan.fixed & {*_SIZES}:
        sizes = {"d_model": config.d_model // 2, "ffn_dim": config.encoder_ffn_dim // 2}
        changes |= sizes
        model = dataclasses.replace(model, d_model=sizes["d_model"], ffn_dim=sizes["ffn_dim"])
        config = model.config(vocab_size=plan.tokenizer.vocab_size)
        fits = updates_within(config, batch, -(-batches // processes))
    updates, warmup = min(settings["max_steps"], fits), settings["warmup_steps"]
    if updates < _WARMUP * warmup and not plan.fixed & {*_RATES}:
        rate = make_recipe(settings).peak_rate(config.d_model)
        # A fixed learning rate needs no factor.
        changes |= zip(_RATES, (max(1, updates // _WARMUP), rate, 1.0), strict=True)
    if updates < _PAYS or "d_model" in changes:
        changes |= {name: False for name in _ADDED if settings[name]}
    return {name: it for name, it in changes.items() if name not in plan.fixed}, updates
