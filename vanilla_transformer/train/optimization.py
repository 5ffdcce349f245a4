"""Section 5.3 of "Attention Is All You Need": the learning rate, Eq. 3, for the paper's Adam.

Adam is Kingma and Ba (2015), arXiv:1412.6980, without weight decay; the defaults in `arguments.py`
are the paper's. Deviation: tensor2tensor used LazyAdam, which leaves rows without a gradient alone.
With one table for source, target and pre-softmax every row has a gradient, so plain Adam does the
same.
"""

from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR

from ..errors import RequestError


def noam_lr(step: int, *, d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """Eq. 3: d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), times a factor.

    It rises linearly to its peak, factor * (d_model * warmup_steps)^-0.5, at step = warmup_steps
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
            what = f"got an optimizer with lr={base:g}, which would multiply Eq. 3"
            raise RequestError(f"{what}; create it with lr=1.0, or choose another schedule.")
    constants: dict[str, Any] = {"d_model": d_model, "warmup_steps": warmup_steps, "factor": factor}
    # LambdaLR counts updates from 0, Eq. 3 from 1.
    return LambdaLR(optimizer, lambda updates: noam_lr(updates + 1, **constants))


def peak_rate(*, d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """Return the largest rate of Eq. 3, reached at step = warmup_steps."""
    peak = max(warmup_steps, 1)
    return noam_lr(peak, d_model=d_model, warmup_steps=warmup_steps, factor=factor)
