"""Section 5.3 of "Attention Is All You Need": the learning rate, Eq. 3, for the paper's Adam.

Adam is Kingma and Ba (2015), arXiv:1412.6980, without weight decay; the defaults in `arguments.py`
are the paper's. Deviation: tensor2tensor used LazyAdam, which skips embeddings without a gradient.
With one embedding table for source, target and pre-softmax every row has a gradient, so plain Adam
does the same.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR

from ..errors import RequestError
from .arguments import VanillaTransformerTrainingArguments

# Highest peak rate in our recipes, times d_model: 2.0e-3 at width 256, 4.9e-4 at 1024 (big).
_TRIED = 0.512
_WITHOUT_WARMUP = ("constant", "reduce_lr_on_plateau", "greedy")  # schedules of transformers


def noam_lr(step: int, *, d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """Eq. 3: d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), times a factor.

    This rate rises linearly to its peak, factor * (d_model * warmup_steps)^-0.5, at warmup_steps
    (6.988e-4 for the base model), then falls with the inverse square root of the step.

    Args:
        step: Number of the update, from 1.
        d_model: Width of the model.
        warmup_steps: Updates until the peak; 4000 in the paper.
        factor: Multiple of Eq. 3; 1.0 in the paper. Small models tolerate more.
    """
    warmup_steps = max(warmup_steps, 1)  # without warm-up, the first update has the peak rate
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def noam_schedule(
    optimizer: torch.optim.Optimizer, *, d_model: int, warmup_steps: int, factor: float = 1.0
) -> LambdaLR:
    """Return Eq. 3 as a scheduler: update k, counted from 1, uses `noam_lr(k)`.

    Call `scheduler.step()` after each `optimizer.step()`, as every trainer does. A saved scheduler
    holds only its counter; the constants come from this call, so they may change on resumption.

    Args:
        optimizer: An optimizer with learning rate 1.0, which the schedule multiplies.
        d_model: Width of the model.
        warmup_steps: Updates until the peak; 4000 in the paper.
        factor: Multiple of Eq. 3; 1.0 in the paper.

    Raises:
        ValueError: If the optimizer's learning rate is not 1.0.
    """
    for group in optimizer.param_groups:
        base = float(group.get("initial_lr", group["lr"]))
        if base != 1.0:
            given = f"an optimizer with lr={base:g}, which would multiply Eq. 3"
            raise RequestError(f"got {given}; create it with lr=1.0, or choose another schedule.")
    constants: dict[str, Any] = {"d_model": d_model, "warmup_steps": warmup_steps, "factor": factor}
    # LambdaLR counts updates from 0, Eq. 3 from 1.
    return LambdaLR(optimizer, lambda updates: noam_lr(updates + 1, **constants))


def schedule_warnings(
    args: VanillaTransformerTrainingArguments, d_model: int, updates: int
) -> Iterator[str]:
    """Yield warnings about the schedule: a rate beyond those tried, or warm-up until the end.

    Args:
        args: The training arguments.
        d_model: Width of the model.
        updates: Updates of the run.
    """
    if args.lr_scheduler_type in _WITHOUT_WARMUP:
        return
    warmup, tried = args.get_warmup_steps(max(args.max_steps, updates)), _TRIED / d_model
    rate = args.learning_rate or 0.0
    if args.learning_rate is None and args.lr_scheduler_type is None:
        rate = peak_rate(d_model=d_model, warmup_steps=warmup, factor=args.learning_rate_factor)
    if rate > 1.05 * tried:
        what = f"The learning rate peaks at {rate:.1e}, above the {tried:.1e} tried at this width"
        yield f"{what}: give --learning-rate {tried:.1e}, or watch the loss."
    if updates <= warmup:
        shorter = f"--warmup-steps {max(1, updates // 6)} --learning-rate {min(rate, tried):.1e}"
        what = f"The run ends at update {updates}, and warm-up at {warmup}"
        yield f"{what}: give more updates, or {shorter}, or the model will have learned little."


def peak_rate(*, d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """Return the largest rate of Eq. 3, reached at step = warmup_steps."""
    peak = max(warmup_steps, 1)
    return noam_lr(peak, d_model=d_model, warmup_steps=warmup_steps, factor=factor)
