"""R-Drop: what two dropout masks make of the same pair should be alike.

Liang et al., 2021: R-Drop: Regularized Dropout for Neural Networks, arXiv 2106.14448. Not of the
paper; a means for small data, where a model sees each pair many times.
"""

import torch
from torch import Tensor


def pairs_twice(inputs: dict[str, Tensor], decoder_input_ids: Tensor) -> dict[str, object]:
    """Return a batch that holds every pair twice: dropout draws a mask of its own for each.

    Args:
        inputs: `input_ids`, `attention_mask` and `labels`, (B, ...).
        decoder_input_ids: the targets shifted right, (B, T). The model cannot make them itself,
            since the loss takes the labels away.

    Returns:
        The same and `decoder_input_ids`, (2 B, ...): row i + B is row i again.
    """
    inputs = {**inputs, "decoder_input_ids": decoder_input_ids}
    return {**{name: torch.cat([x, x]) for name, x in inputs.items()}, "use_cache": False}


def r_drop_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    weight: float,
    label_smoothing: float = 0.0,
    num_items: Tensor | int | None = None,
    ignore_index: int = -100,
) -> Tensor:
    """Mean cross-entropy of the two passes p and q, and weight / 4 (KL(p || q) + KL(q || p)).

    This is half of the authors' loss, so that it is the cross-entropy where the passes agree; Adam
    does not see the factor.

    Args:
        logits: of `pairs_twice`, (2 B, T, V).
        labels: gold ids, (2 B, T), with `ignore_index` where there is none.
        weight: the authors' alpha; they take 5 for small data.
        label_smoothing: eps_ls (Section 5.4) of the cross-entropy.
        num_items: labels of the whole update, each pair counted once. None: those of this batch.
        ignore_index: the label that is left out.

    Returns:
        Scalar, nats per label.
    """
    log_probs = logits.float().log_softmax(-1)
    gold = log_probs.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    cross_entropy = -((1 - label_smoothing) * gold + label_smoothing * log_probs.mean(-1))
    p, q = log_probs.chunk(2)
    divergence = ((p.exp() - q.exp()) * (p - q)).sum(-1)  # both directions at once, (B, T)
    loss = sum(cross_entropy.chunk(2)) / 2 + weight / 4 * divergence
    kept = labels[: len(loss)] != ignore_index
    return (loss * kept).sum() / (kept.sum().clamp(min=1) if num_items is None else num_items)
