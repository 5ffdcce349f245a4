# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Label-smoothed cross-entropy over a tied projection (Section 5.4), computed in chunks of tokens.

The logits are by far the largest tensor of a batch: 2,048 tokens by 37,000 pieces take 290 MiB, and
autograd keeps several tensors of that size. Here the logits of a chunk exist only until its part of
the loss and of both gradients is added, as in Liger's kernels (Hsu et al., 2024, arXiv 2410.10989).

Shapes: N tokens, n of them in a chunk, d = d_model, V vocabulary.
"""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.modules import module as torch_module

from .errors import RequestError

# Logits in memory at one time: 64 MiB of float32 on a CPU. With smaller chunks, reading the table
# and adding to its gradient takes long compared to the matrix products.
_CPU_CHUNK, _DEVICE_CHUNK = 2**24, 2**27
IGNORED = -100  # label of positions without loss, such as padding
_LINEAR_FORWARD = nn.Linear.forward  # recorded at import, to notice patches


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Smoothed cross-entropy of softmax(hidden @ weight.T): the sum over tokens / num_items.

    With logits z, softmax p, gold class g, q = 1 - eps and s = eps / V, a token has the loss
    log(sum_j exp z_j) - q z_g - s sum_j z_j, and its logits have the gradient p_j - q [j = g] - s.
    The terms with s need no logits: sum_j z_j is the state times the sum of the table's rows, and
    -s adds the same row to all rows of either gradient. So the logits of a chunk are written once,
    overwritten by their softmax, and read by two matrix products.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        labels: torch.Tensor,
        num_items: torch.Tensor,
        label_smoothing: float,
        chunk_size: int,
        wanted: tuple[bool, bool],
    ) -> torch.Tensor:
        """Return the loss; keep its gradients w.r.t. `hidden`, (N, d), and `weight`, (V, d).

        Matmuls have the dtype of autocast, sums and gradients float32 at least: float16 cannot
        hold the scale of `GradScaler`, which comes later. A gradient that is not wanted is None.
        """
        device_type, matmul_dtype = hidden.device.type, hidden.dtype
        if torch.is_autocast_enabled(device_type):
            matmul_dtype = torch.get_autocast_dtype(device_type)
        table, sum_dtype = weight.to(matmul_dtype), torch.promote_types(hidden.dtype, torch.float32)
        is_label = labels[:, None] != IGNORED  # (N, 1)
        gold, counts = labels[:, None].where(is_label, 0), is_label.to(sum_dtype)
        confidence, smooth = 1 - label_smoothing, label_smoothing / table.size(0)  # q, s
        loss, grad_hidden, grad_table = counts.new_zeros(()), None, None
        with torch.autocast(device_type, enabled=False):
            table_sum = table.sum(0, dtype=sum_dtype)  # (d,)
            if wanted[0]:
                grad_hidden = hidden.new_empty(hidden.shape, dtype=sum_dtype)
            if wanted[1]:
                row = -smooth * (hidden * counts).sum(0, dtype=sum_dtype)
                grad_table = row.repeat(table.size(0), 1)
            shape = (min(chunk_size, hidden.size(0)), table.size(0))
            products = sums = table.new_empty(shape)
            if table.dtype != sum_dtype:
                sums = torch.empty_like(products, dtype=sum_dtype)
            # Loop over chunk numbers: a compiled graph then depends only on how many there are.
            for chunk in range(-(-hidden.size(0) // chunk_size)):
                rows = slice(chunk * chunk_size, (chunk + 1) * chunk_size)
                states, golds, count = hidden[rows].to(table.dtype), gold[rows], counts[rows]
                # Views of the buffers: fresh memory would have to be mapped again for each chunk.
                product = torch.mm(states, table.t(), out=products[: len(states)])  # (n, V)
                logits = product if table.dtype == sum_dtype else sums[: len(states)].copy_(product)
                gold_logits = logits.gather(1, golds)
                probs, log_sum = _softmax_in_place(logits)
                logit_sum = (states.to(sum_dtype) @ table_sum)[:, None]
                loss += ((log_sum - confidence * gold_logits - smooth * logit_sum) * count).sum()
                probs.scatter_add_(1, golds, torch.full_like(count, -confidence))
                grad_logits = probs if table.dtype == sum_dtype else product.copy_(probs)
                if grad_hidden is not None:
                    grad_hidden[rows] = (grad_logits @ table - smooth * table_sum) * count
                if grad_table is not None and table.dtype == sum_dtype:
                    grad_table.addmm_(grad_logits.t(), states * count)
                elif grad_table is not None:
                    grad_table += grad_logits.t() @ (states * count.to(states.dtype))
        gradients = [None if g is None else g.div_(num_items) for g in (grad_hidden, grad_table)]
        ctx.save_for_backward(hidden, weight, *gradients)
        return loss / num_items

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients that `forward` computed, times `grad_output`."""
        return *_scaled(ctx, grad_output, *ctx.saved_tensors), None, None, None, None, None


@once_differentiable  # else a second derivative would take our gradients for constants
def _scaled(ctx: Any, factor: torch.Tensor, *saved: Any) -> tuple[torch.Tensor | None, ...]:
    """Return the gradients of `hidden` and `weight` times a factor, in the dtypes of those two."""
    is_one = _may_read(factor) and factor == 1  # the factor is usually 1
    return tuple(
        None if gradient is None else (gradient if is_one else gradient * factor).to(of.dtype)
        for of, gradient in zip(saved[:2], saved[2:], strict=True)
    )


def _may_read(x: torch.Tensor) -> bool:
    """Return whether Python may read values of x; a GPU would have to synchronize."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def _softmax_in_place(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Overwrite logits, (n, V), with their softmax; return it and log(sum_j exp z_j), (n, 1)."""
    highest = logits.amax(-1, keepdim=True)
    probs = torch.softmax(logits, -1, out=logits)
    # The largest probability is exp(highest - log_sum). torch.logsumexp reads the logits more
    # often and is many times slower on a CPU.
    return probs, highest - probs.amax(-1, keepdim=True).log()


def is_only_weight(linear: nn.Module) -> bool:
    """Return whether a module is an unmodified `nn.Linear` without bias and hooks."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    hooks = torch_module._has_any_global_hook() or any(getattr(linear, kind) for kind in kinds)
    replaced = "forward" in linear.__dict__ or nn.Linear.forward is not _LINEAR_FORWARD
    is_plain = type(linear) is nn.Linear and type(linear.weight) is nn.Parameter  # not quantized
    return is_plain and linear.bias is None and not (hooks or replaced)


def smoothed_cross_entropy(
    hidden: torch.Tensor,
    weight: torch.Tensor | None,
    labels: torch.Tensor,
    *,
    label_smoothing: float = 0.0,
    num_items: torch.Tensor | int | None = None,
    chunk_size: int | None = None,
) -> torch.Tensor:
    """Return the smoothed cross-entropy of softmax(hidden @ weight.T), computed in chunks.

    Equal to `F.cross_entropy(hidden @ weight.T, labels, label_smoothing=eps)`: the target
    distribution is 1 - eps on the gold class plus eps / V on every class (Szegedy et al., 2016).
    The authors' code spreads eps over the other V - 1 classes only; their eps corresponds to
    eps * V / (V - 1) here.

    Args:
        hidden: Decoder outputs, (..., d).
        weight: The pre-softmax table, (V, d). None: `hidden` already holds the logits, (..., V).
        labels: Gold ids, (...), -100 where there is none.
        label_smoothing: eps_ls; 0 is plain cross-entropy.
        num_items: Number of labels in the whole update, by which the sum is divided, if several
            batches make one update. None: the number in this batch.
        chunk_size: Tokens whose logits exist at once. None: 64 MiB of them on CPUs, else 512 MiB.

    Returns:
        Scalar, nats per label, in float32 at least. Zero when there is no label.

    Raises:
        ValueError: The shape of the labels does not match the outputs.
    """
    if labels.shape != hidden.shape[:-1]:
        shapes = f"{tuple(labels.shape)}, but the decoder's output has {tuple(hidden.shape[:-1])}"
        raise RequestError(f"labels has the shape {shapes}; give one label for each token.")
    if labels.dtype == torch.int32:  # torch rejects all other types except int64
        labels = labels.long()
    hidden, labels = hidden.reshape(-1, hidden.size(-1)), labels.reshape(-1).to(hidden.device)
    if num_items is None:
        num_items = (labels != IGNORED).sum()
    num_items = torch.as_tensor(num_items).clamp(min=1)
    on_cpu = hidden.device.type == "cpu"
    if chunk_size is None:
        vocab_size = (hidden if weight is None else weight.t()).size(-1)
        chunk_size = max(1, (_CPU_CHUNK if on_cpu else _DEVICE_CHUNK) // vocab_size)
    if weight is None:
        sum_dtype = torch.promote_types(hidden.dtype, torch.float32)
        chunks = zip(hidden.split(chunk_size), labels.split(chunk_size), strict=True)
        losses = [
            nn.functional.cross_entropy(
                logits.to(sum_dtype), gold, reduction="sum", label_smoothing=label_smoothing
            )
            for logits, gold in chunks
        ]
        return torch.stack(losses).sum() / num_items
    if _may_read(hidden):
        # Project only tokens with a label. On other devices, reading the number of rows would
        # synchronize in every step, which costs more than padding in batches of similar length.
        kept = (labels != IGNORED).nonzero().squeeze(1)
        if kept.numel() < labels.numel():
            hidden, labels = hidden[kept], labels[kept]
    wanted = tuple(torch.is_grad_enabled() and x.requires_grad for x in (hidden, weight))
    return _ChunkedCrossEntropy.apply(
        hidden, weight, labels, num_items, label_smoothing, chunk_size, wanted
    )
