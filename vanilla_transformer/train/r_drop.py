"""R-Drop: train a model to predict the same for a pair under two dropout masks.

Liang et al., 2021: R-Drop: Regularized Dropout for Neural Networks, arXiv 2106.14448. It is not in
the paper, and helps with small data, where a model sees each pair many times.

Shapes: B batch, T target length, N = B T tokens, n of them in a chunk, d = d_model, V vocabulary.
"""

import functools

import torch
from torch import Tensor

from ..loss import ChunkedCrossEntropy, softmax_in_place

# Tokens whose logits, of both passes, are in memory at a time. More are slower on a CPU, because
# the logits are read about ten times.
_CPU_CHUNK, _DEVICE_CHUNK = 256, 2048


def r_drop_loss(
    hidden: Tensor,
    weight: Tensor | None,
    labels: Tensor,
    *,
    alpha: float,
    label_smoothing: float = 0.0,
    num_items: Tensor | int | None = None,
    ignore_index: int = -100,
) -> Tensor:
    """Return the mean cross-entropy of passes p and q plus alpha / 4 (KL(p || q) + KL(q || p)).

    This is half the authors' loss, so that it equals the cross-entropy if the passes agree; the
    factor does not change Adam's updates.

    Args:
        hidden: decoder outputs of a batch that holds every pair twice, (2 B, T, d): row i + B is
            row i under another dropout mask.
        weight: the pre-softmax table, (V, d). None: `hidden` holds logits, (2 B, T, V).
        labels: gold ids, (2 B, T), or `ignore_index` if there is none.
        alpha: weight of the divergence; the authors use 5 for small data.
        label_smoothing: eps_ls (Section 5.4) of the cross-entropy.
        num_items: number of labels in the update, each pair counted once. None: in this batch.
        ignore_index: label that the loss leaves out.

    Returns:
        Scalar, nats per label.
    """
    kept = labels.chunk(2)[0] != ignore_index
    if num_items is None:
        num_items = kept.sum().clamp(min=1)
    if weight is not None:
        # Interleave the passes, so that a chunk holds both rows of a token.
        rows = hidden.flatten(0, 1).unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1)  # (2 N, d)
        chunk_size = 2 * (_CPU_CHUNK if rows.device.type == "cpu" else _DEVICE_CHUNK)
        return ChunkedCrossEntropy.apply(
            rows,
            weight,
            labels.chunk(2)[0].flatten().repeat_interleave(2),
            2 * num_items,
            label_smoothing,
            ignore_index,
            chunk_size,
            functools.partial(_divergent_softmax, alpha=alpha),
        )
    log_probs = hidden.float().log_softmax(-1)
    gold = log_probs.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    cross_entropy = -((1 - label_smoothing) * gold + label_smoothing * log_probs.mean(-1))
    p, q = log_probs.chunk(2)
    divergence = ((p.exp() - q.exp()) * (p - q)).sum(-1)  # both directions at once, (B, T)
    loss = sum(cross_entropy.chunk(2)) / 2 + alpha / 4 * divergence
    return (loss * kept).sum() / num_items


def _divergent_softmax(logits: Tensor, *, alpha: float) -> tuple[Tensor, Tensor]:
    """Implement `normalize` of `ChunkedCrossEntropy` for alternating rows of p and q, (2 n, V).

    To log(sum_j exp z_j) each row adds h times its KL from the other pass, h = alpha / 2. With
    D = log p - log q the gradient for the logits of p is p + h (p (D - KL(p || q)) + p - q).
    """
    difference = logits[0::2] - logits[1::2]  # (n, V)
    probs, log_sum = softmax_in_place(logits)
    p, q, h = probs[0::2], probs[1::2], alpha / 2
    difference -= log_sum[0::2] - log_sum[1::2]
    signs = difference.new_tensor([1, -1])[None, :, None]
    # Sums of products over V, without a tensor of the products: (n, 2, 1).
    divergences = signs * torch.bmm(probs.unflatten(0, (-1, 2)), difference[..., None])
    from_q, from_p = divergences.unbind(1)  # KL(p || q) and KL(q || p), (n, 1)
    difference *= h
    grad_p = torch.add(difference, 1 + h - h * from_q).mul_(p).sub_(q, alpha=h)
    grad_q = difference.neg_().add_(1 + h - h * from_p).mul_(q).sub_(p, alpha=h)
    p.copy_(grad_p)
    q.copy_(grad_q)
    return probs, log_sum + h * divergences.flatten(0, 1)
