"""The equations over tensors with other systems' names, and inputs, to test their importers."""

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn


def perturb(model, *, factor=1.0):
    """Move biases and norms away from zeros and ones, which would hide mistakes.

    A factor of the other weights takes attention far from uniform.
    """
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if name.endswith("bias") or "norm" in name:
                tensor.add_(torch.randn_like(tensor) * 0.3)
            elif "embed_positions" not in name:
                tensor.mul_(factor)
    return model.eval()


def make_batch(source_size, target_size=None, *, pad=1, start=2):
    """Return sources with padding, their mask, and inputs of the decoder."""
    torch.manual_seed(1)
    source = torch.randint(4, source_size, (3, 9))
    mask = (torch.arange(9) < torch.tensor([[9], [5], [2]])).long()
    target = torch.randint(4, target_size or source_size, (3, 7))
    target[:, 0] = start
    return source.masked_fill(mask == 0, pad), mask, target


def assert_logits(model, batch, expected):
    """Compare a model's logits with those that a function gives for the same batch."""
    with torch.no_grad():
        torch.testing.assert_close(model(*batch).logits, expected(*batch), atol=1e-5, rtol=0)


def sinusoids(length, width):
    """Return the paper's table, computed in single precision like those of other systems."""
    rates = torch.exp(torch.arange(0, width, 2) * -(math.log(10000.0) / width))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[:, :width]


def layer_norm(tensors, name, x, *, eps=1e-5):
    weights = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
    return nn.functional.layer_norm(x, x.shape[-1:], *weights, eps=eps)


@dataclass(frozen=True)
class Layout:
    """Names of a system's tensors.

    Attributes:
        layers: Of each stack, with a place for the layer's number.
        attentions: Of each stack, within a layer.
        projections: Query, key, value and output, within an attention.
        feed_forward: Both products, within a layer.
        norms: Of each stack, within a layer, in the order of the sublayers.
        last_norm: After a pre-norm stack, with a place for the stack's name.
    """

    layers: dict[str, str]
    attentions: dict[str, tuple[str, ...]]
    projections: tuple[str, ...]
    feed_forward: tuple[str, str]
    norms: dict[str, tuple[str, ...]]
    last_norm: str = "{}.layer_norm"

    def tensors(self, counts, width, inner, *, bias=True, last_norm=True):
        """Return random tensors of two stacks with the given numbers of layers."""
        torch.manual_seed(0)
        state = {}

        def linear(name, rows, columns, bias=True):
            state[f"{name}.weight"] = nn.init.xavier_uniform_(torch.empty(rows, columns))
            if bias:
                state[f"{name}.bias"] = torch.randn(rows) * 0.3

        for stack, count in counts.items():
            norms = [self.last_norm.format(stack)] if last_norm else []
            for layer in map(self.layers[stack].format, range(count)):
                for parts in itertools.product(self.attentions[stack], self.projections):
                    linear(".".join((layer, *parts)), width, width, bias)
                linear(f"{layer}.{self.feed_forward[0]}", inner, width)
                linear(f"{layer}.{self.feed_forward[1]}", width, inner)
                norms += [f"{layer}.{name}" for name in self.norms[stack]]
            for name in norms:
                state[f"{name}.weight"] = 1 + torch.randn(width) * 0.3
                state[f"{name}.bias"] = torch.randn(width) * 0.3
        return state

    def states(
        self,
        tensors,
        source,
        mask,
        target,
        *,
        counts,
        heads,
        norm_first,
        norm=layer_norm,
        activation: Callable = torch.relu,
    ):
        """Return the decoder's last states; source and target are embedded."""

        def linear(name, x):
            return nn.functional.linear(x, tensors[f"{name}.weight"], tensors.get(f"{name}.bias"))

        def attend(name, x, memory, allowed, heads):
            query, key, value = (
                linear(f"{name}.{part}", states).unflatten(-1, (heads, -1)).transpose(1, 2)
                for part, states in zip(self.projections, (x, memory, memory), strict=False)
            )
            scores = query @ key.transpose(2, 3) / math.sqrt(query.size(-1))
            found = scores.masked_fill(~allowed[:, None], -math.inf).softmax(-1) @ value
            return linear(f"{name}.{self.projections[3]}", found.transpose(1, 2).flatten(2))

        def feed_forward(layer, x):
            inner, outer = (f"{layer}.{name}" for name in self.feed_forward)
            return linear(outer, activation(linear(inner, x)))

        def run(stack, x, *attended):
            for layer in map(self.layers[stack].format, range(counts[stack])):
                sublayers = itertools.zip_longest(
                    self.norms[stack], self.attentions[stack], attended
                )
                for norm_name, attention, what in sublayers:
                    norm_here = functools.partial(norm, tensors, f"{layer}.{norm_name}")
                    y = norm_here(x) if norm_first else x
                    if attention is None:
                        y = feed_forward(layer, y)
                    else:
                        memory, allowed = what
                        memory = y if memory is None else memory
                        y = attend(f"{layer}.{attention}", y, memory, allowed, heads[stack])
                    x = x + y if norm_first else norm_here(x + y)
            return norm(tensors, self.last_norm.format(stack), x) if norm_first else x

        real = mask.bool()[:, None]
        causal = torch.ones(1, target.size(1), target.size(1), dtype=torch.bool).tril()
        memory = run("encoder", source, (None, real))
        return run("decoder", target, (None, causal), (memory, real))
