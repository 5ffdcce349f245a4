"""R-Drop: train a model to predict the same under two dropout masks of a pair.

Liang et al., 2021: R-Drop: Regularized Dropout for Neural Networks, arXiv 2106.14448. Not of the
paper; a means for small data, where a model sees each pair many times.

Shapes: B batch, T target length, N = B T tokens, n of them in a chunk, d = d_model, V vocabulary.
"""

import functools

import torch
from torch import Tensor

from ..loss import ChunkedCrossEntropy, softmax_in_place

# Tokens whose logits exist at one time, in both passes. More are slower on a CPU: their logits are
# read some ten times.
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
    """Mean cross-entropy of two passes p and q, and alpha / 4 (KL(p || q) + KL(q || p)).

    This is half of the authors' loss, so that it is the cross-entropy where the passes agree; Adam
    does not see the factor.

    Args:
        hidden: decoder outputs of a batch that holds every pair twice, (2 B, T, d): row i + B is
            row i under another dropout mask.
        weight: the pre-softmax table, (V, d). None: `hidden` are the logits already, (2 B, T, V).
        labels: gold ids, (2 B, T), with `ignore_index` where there is none.
        alpha: how much the passes are drawn together; the authors take 5 for small data.
        label_smoothing: eps_ls (Section 5.4) of the cross-entropy.
        num_items: labels of the whole update, each pair counted once. None: those of this batch.
        ignore_index: the label that is left out.

    Returns:
        Scalar, nats per label.
    """
    kept = labels.chunk(2)[0] != ignore_index
    if num_items is None:
        num_items = kept.sum().clamp(min=1)
    if weight is not None:
        # The passes in turn, so that a chunk holds both of each of its tokens.
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
    """What `ChunkedCrossEntropy` asks of `normalize`, of passes p and q in turn, (2 n, V).

    Beside log(sum_j exp z_j) each pass has h KL, h = alpha / 2, of it from the other. With
    D = log p - log q the logits of p have the gradient p + h (p (D - KL(p || q)) + p - q).
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
