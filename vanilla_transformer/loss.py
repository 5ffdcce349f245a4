# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Label-smoothed cross-entropy over a tied projection (Section 5.4), computed in chunks of tokens.

The logits of a batch are its largest tensor by far: 2,048 tokens by 37,000 pieces are 290 MiB, and
autograd keeps several such. Here each chunk's logits live only until its share of the loss and of
both gradients has been added up, as Liger's kernels do it (Hsu et al., 2024, arXiv 2410.10989).

Shapes: N tokens, d = d_model, V vocabulary.
"""

import torch
from torch import nn
from torch.autograd.function import once_differentiable


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Sum over tokens of the smoothed cross-entropy of softmax(hidden @ weight.T)."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        labels: torch.Tensor,
        label_smoothing: float,
        ignore_index: int,
        chunk_size: int,
    ) -> torch.Tensor:
        device_type, matmul_dtype = hidden.device.type, hidden.dtype
        if torch.is_autocast_enabled(device_type):
            matmul_dtype = torch.get_autocast_dtype(device_type)
        # Sums run in float32 at least, whatever the matrix products run in.
        sum_dtype = torch.promote_types(hidden.dtype, torch.float32)
        with torch.autocast(device_type, enabled=False):
            table = weight.to(matmul_dtype)  # (V, d)
            loss = hidden.new_zeros((), dtype=sum_dtype)
            wants_hidden, wants_weight = ctx.needs_input_grad[:2]
            grad_hidden = torch.empty_like(hidden) if wants_hidden else None
            grad_weight = torch.zeros_like(weight, dtype=sum_dtype) if wants_weight else None
            smooth = label_smoothing / weight.size(0)  # eps / V, on the gold class too
            for start in range(0, hidden.size(0), chunk_size):
                rows = slice(start, start + chunk_size)
                states, gold = hidden[rows].to(matmul_dtype), labels[rows, None]
                counts = (gold != ignore_index).to(sum_dtype)  # (n, 1)
                gold = gold.clamp(min=0)
                # log_softmax rather than logsumexp, which is many times slower on a CPU.
                log_probs = (states @ table.t()).to(sum_dtype).log_softmax(-1)  # (n, V)
                token_loss = (label_smoothing - 1) * log_probs.gather(1, gold)
                if label_smoothing:
                    token_loss = token_loss - smooth * log_probs.sum(-1, keepdim=True)
                loss = loss + (token_loss * counts).sum()
                if not (wants_hidden or wants_weight):
                    continue
                # d loss / d logits = softmax - smoothed target
                grad_logits = log_probs.exp_().sub_(smooth)
                grad_logits.scatter_add_(1, gold, torch.full_like(counts, label_smoothing - 1))
                grad_logits = grad_logits.mul_(counts).to(matmul_dtype)
                if wants_hidden:
                    grad_hidden[rows] = grad_logits @ table
                if wants_weight:
                    grad_weight += grad_logits.t() @ states
        if wants_weight:
            grad_weight = grad_weight.to(weight.dtype)
        ctx.save_for_backward(grad_hidden, grad_weight)
        return loss

    @staticmethod
    @once_differentiable
    def backward(
        ctx: torch.autograd.function.FunctionCtx, grad_output: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        grad_hidden, grad_weight = ctx.saved_tensors
        if grad_hidden is not None:
            grad_hidden = grad_hidden * grad_output.to(grad_hidden.dtype)
        if grad_weight is not None:
            grad_weight = grad_weight * grad_output.to(grad_weight.dtype)
        return grad_hidden, grad_weight, None, None, None, None


def smoothed_cross_entropy(
    hidden: torch.Tensor,
    weight: torch.Tensor | None,
    labels: torch.Tensor,
    *,
    label_smoothing: float = 0.0,
    num_items: torch.Tensor | int | None = None,
    ignore_index: int = -100,
    chunk_size: int = 256,
) -> torch.Tensor:
    """Smoothed cross-entropy of softmax(hidden @ weight.T), never holding more than a chunk of it.

    Equal to `F.cross_entropy(hidden @ weight.T, labels, label_smoothing=eps)`: the target
    distribution is 1 - eps on the gold class plus eps / V on every class (Szegedy et al., 2016).
    The authors' code spreads eps over the other V - 1 classes alone; their eps is eps * V / (V - 1)
    here.

    Args:
        hidden: Decoder outputs, (..., d).
        weight: The pre-softmax table, (V, d). None: `hidden` are the logits already, (..., V), and
            the loss is a function of them.
        labels: Gold ids, (...), with `ignore_index` where there is none.
        label_smoothing: eps_ls; 0 is plain cross-entropy.
        num_items: Labels of the whole optimizer update, over which the sum is divided when several
            batches make one update. None: the labels of this batch.
        ignore_index: The label that is left out.
        chunk_size: Tokens whose logits exist at one time.

    Returns:
        Scalar, nats per label, in float32 at least. Zero when there is no label.
    """
    hidden, labels = hidden.reshape(-1, hidden.size(-1)), labels.reshape(-1).to(hidden.device)
    if num_items is None:
        num_items = (labels != ignore_index).sum().clamp(min=1)
    if weight is None:
        options = {"label_smoothing": label_smoothing, "ignore_index": ignore_index}
        sum_dtype = torch.promote_types(hidden.dtype, torch.float32)
        chunks = zip(hidden.split(chunk_size), labels.split(chunk_size), strict=True)
        losses = [
            nn.functional.cross_entropy(logits.to(sum_dtype), gold, reduction="sum", **options)
            for logits, gold in chunks
        ]
        return torch.stack(losses).sum() / num_items
    if hidden.device.type == "cpu" and not torch.compiler.is_compiling():
        # Project only where there is a label. Elsewhere the row count would have to be fetched from
        # the device in every step, which costs more than the padding of batches of one length.
        kept = (labels != ignore_index).nonzero().squeeze(1)
        if kept.numel() < labels.numel():
            hidden, labels = hidden[kept], labels[kept]
    total = _ChunkedCrossEntropy.apply(
        hidden, weight, labels, label_smoothing, ignore_index, chunk_size
    )
    return total / num_items
