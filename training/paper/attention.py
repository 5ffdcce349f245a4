"""Section 3.2.1: additive, dot-product and scaled dot-product attention.

    python training/paper/attention.py --size cpu

This is the package's worked example of changing one formula. Each formula is a function with the
signature of the package's own `eager_attention_forward`. `AttentionInterface` registers it under a
name, and a model with `attn_implementation="that name"` trains and translates with it.
"""

import math
import statistics
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from experiment import Rows, Settings, Table
from small_model import TranslationExperiment
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.modeling_vanilla_transformer import (
    MultiHeadAttention,
    eager_attention_forward,
)
from vanilla_transformer.visualization.figure import new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# ------------------------------------------------------------------------------ the three formulas


def dot_product(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    **kwargs: object,
) -> tuple[Tensor, Tensor]:
    """Compute attention with the scores q . k: Eq. 1 without its scale."""
    return eager_attention_forward(module, query, key, value, attention_mask, 1.0, **kwargs)


def additive(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: object,
) -> tuple[Tensor, Tensor]:
    """Compute attention with the scores v . tanh(q + k) of Bahdanau et al. (2015).

    The scores are a feed-forward network with one hidden layer. Its first matrix is the projections
    that produced query and key; its second is `module.v`, (h, d_k).
    """
    hidden = torch.tanh(query[:, :, :, None] + key[:, :, None])  # (B, h, T, L, d_k)
    scores = torch.einsum("bhtlk,hk->bhtl", hidden, module.v)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))  # as eager attention does
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(-1).to(value.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


KINDS = {
    "scaled dot-product": eager_attention_forward,
    "dot-product": dot_product,
    "additive": additive,
}
SCORES = ("perplexity", "bleu")
ALIKE = 0.072  # nats: two standard deviations of the difference of two seeds of Table 3's base
for name, function in KINDS.items():
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, eager_mask)  # a mask to add to the scores


def attend_by(kind: str, model: VanillaTransformerForConditionalGeneration) -> None:
    """Make a new model compute its attention with one of `KINDS`."""
    model.set_attn_implementation(kind)
    if kind == "additive":
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                v = torch.randn(module.num_heads, module.d_k) / math.sqrt(module.d_k)
                module.v = nn.Parameter(v)


# ---------------------------------------------------------------------------------- the experiment


class AttentionKinds(TranslationExperiment):
    """Cost, scores, gradients and a translation model of each attention formula at several d_k."""

    name = "attention"
    title = "Section 3.2.1: additive, dot-product and scaled dot-product attention"
    sizes = {
        "tiny": {
            "length": 8,
            "d_k": (4, 64),
            "repeats": 1,
            "recipe": "demo",
            "values": {"vocab_size": 400, "max_steps": 4, "max_minutes": None},
            "model": {"d_model": 16, "layers": 1, "ffn_dim": 32},
            "trained_d_k": (4, 64),
        },
        "cpu": {
            "length": 128,
            "d_k": (4, 16, 64, 256, 1024),
            "repeats": 20,
            "recipe": "multi30k_en_de",
            "values": {
                "vocab_size": 4000,
                "bpe_dropout": 0.0,
                "batch_tokens": 2048,
                "warmup_steps": 500,
                "learning_rate_factor": 0.5,
                "max_steps": 1500,
                "max_minutes": None,
                "precision": "fp32",
            },
            "model": {"d_model": 128, "layers": 2, "ffn_dim": 512},
            "trained_d_k": (8, 128),
        },
        "gpu": {
            "length": 512,
            "d_k": (4, 16, 64, 256, 1024),
            "repeats": 50,
            "recipe": "multi30k_en_de",
            "values": {
                "vocab_size": 4000,
                "bpe_dropout": 0.0,
                "batch_tokens": 4096,
                "warmup_steps": 1000,
                "learning_rate_factor": 0.7,
                "max_steps": 10000,
                "max_minutes": None,
            },
            "model": {"d_model": 256, "layers": 3, "ffn_dim": 1024},
            "trained_d_k": (8, 64, 512),
        },
    }

    def about(self, settings: Settings) -> str:
        """Return the paper's claims, and how each of them is measured."""
        updates = settings["values"]["max_steps"]
        return (
            "The paper says that dot-product attention is much faster and more space-efficient "
            "than additive attention, and that the two perform alike for small d_k. It suspects "
            "that for large d_k dot products grow until the softmax has extremely small gradients, "
            "which the scale counteracts.\n"
            "\n"
            "- **Time** and **memory** are those of one head's formula, forward and backward, "
            "without projections. Memory counts the tensors that are kept for the backward pass, "
            "in 10^6 bytes.\n"
            "- **Scores** and **gradients** are measured on queries and keys whose components have "
            "mean 0 and variance 1, as in the paper's footnote.\n"
            "- The **models** differ only in the formula. Each attention has two heads of width "
            f"d_k, independently of d_model. They are trained for {updates:,} updates, one seed "
            "each, and evaluated on validation pairs. Two models count as alike if their "
            f"log-perplexities differ by less than {ALIKE}, two standard deviations of the "
            "difference between two seeds of [Table 3's base model](table_3.cpu.md); no row here "
            "has a second seed. Look at perplexity first; BLEU is noisier.\n"
            "- One formula counts as **faster** than another only if their times differ by more "
            "than those of the two dot-product formulas, which do the same work but for a scale, "
            "differ at any d_k."
        )

    def rows(self, settings: Settings) -> Iterable[str]:
        """Return the rows: each formula alone at each d_k, then trained models at some d_k."""
        for d_k in settings["d_k"]:
            yield from (f"{kind} d_k={d_k}" for kind in KINDS)
        for d_k in settings["trained_d_k"]:
            yield from (f"trained {kind} d_k={d_k}" for kind in KINDS)

    def measure(self, row: str, settings: Settings) -> dict[str, object]:
        """Measure one formula at one d_k, on its own or in a trained model."""
        kind, d_k = row.removeprefix("trained ").split(" d_k=")
        if not row.startswith("trained "):
            return {
                **cost(kind, settings["length"], int(d_k), settings["repeats"]),
                **scores_and_gradients(kind, settings["length"], int(d_k)),
            }
        model = settings["model"]
        config = {
            "d_model": model["d_model"],
            **dict.fromkeys(("encoder_layers", "decoder_layers"), model["layers"]),
            **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2),
            **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), model["ffn_dim"]),
            **dict.fromkeys(("d_k", "d_v"), int(d_k)),
        }
        return self.translation(settings).train(row, config, lambda model: attend_by(kind, model))

    def tables(self, rows: Rows, settings: Settings) -> dict[str, Table]:
        """Return the verdicts on the paper's claims, the costs of the formulas, and the models."""
        length = settings["length"]
        columns = ("Attention", "d_k", "Time, ms", "Memory, MB", "Variance of scores")
        columns += ("Largest weight, mean", "Gradient of the scores")
        formulas, models = [], []
        for row, facts in rows.items():
            kind, d_k = row.removeprefix("trained ").split(" d_k=")
            if row.startswith("trained "):
                models.append([kind, d_k, *(facts.get(key, "none") for key in SCORES)])
            else:
                keys = ("milliseconds", "megabytes", "variance", "largest_weight", "gradient")
                formulas.append([kind, d_k, *(facts[key] for key in keys)])
        return {
            "What the paper says, and what was measured here": (
                ("The paper", "Here", "Verdict"),
                [*map(list, claims(rows, settings))],
            ),
            f"The formulas, {length} queries and keys, 8 sentences, forward and backward. The "
            f"gradient is the sum of the softmax's absolute Jacobian: {2 - 2 / length:.3f} if all "
            "weights are equal": (columns, formulas),
            f"Models after {settings['values']['max_steps']:,} updates, on validation pairs": (
                ("Attention", "d_k", "Perplexity", "BLEU"),
                models,
            ),
        }

    def draw(self, rows: Rows, settings: Settings) -> "Figure":
        """Draw the measurements of the formulas, and the models' perplexity, over d_k."""
        panels = {
            "variance": "variance of the scores",
            "gradient": "gradient of the softmax",
            "milliseconds": "time, ms",
            "megabytes": "memory, MB",
            "perplexity": "perplexity of the models",
        }
        from matplotlib.lines import Line2D

        figure = new_figure(8.5, 5.6)
        *used, unused = figure.subplots(2, 3).flat
        unused.set_axis_off()
        for axis, (key, label) in zip(used, panels.items(), strict=True):
            trained = key == "perplexity"
            for place, (kind, style) in enumerate(zip(KINDS, ("-", "--", "-"), strict=True)):
                points = [
                    (int(row.rpartition("=")[2]), facts[key])
                    for row, facts in rows.items()
                    if row.removeprefix("trained ").rpartition(" ")[0] == kind and key in facts
                ]
                if points:
                    x, y = zip(*points, strict=True)
                    line = {"marker": "o", "markersize": 4, "linestyle": "" if trained else style}
                    axis.plot(x, y, f"C{place}", zorder=3 if style == "--" else 2, **line)
            axis.set_title(label, fontsize=11)
            axis.set_xlabel(r"$d_k$")
            axis.set_xscale("log", base=2)
            linear = trained or key == "gradient"
            axis.set_yscale("linear" if linear else "log")
            if linear:
                axis.set_ylim(0)
            ticks = settings["trained_d_k"] if trained else settings["d_k"]
            axis.set_xlim(min(ticks) / 2, max(ticks) * 2)
            axis.set_xticks(ticks, map(str, ticks))
            axis.minorticks_off()
            tidy(axis)
        handles = {kind: Line2D([], [], color=f"C{place}") for place, kind in enumerate(KINDS)}
        figure.legend(
            handles.values(),
            handles,
            loc="outside lower center",
            ncols=3,
            fontsize=10,
            frameon=False,
        )
        return figure


def claims(rows: Rows, settings: Settings) -> Iterable[tuple[str, str, str]]:
    """Yield the claims of Section 3.2.1 whose rows have been measured: claim, figures, verdict."""
    of_additive, of_dot_products = (
        [
            [rows.get(f"{name} d_k={d_k}") for name in (kind, "scaled dot-product")]
            for d_k in settings["d_k"]
        ]
        for kind in ("additive", "dot-product")
    )
    for key, claim, what in (
        ("milliseconds", "much faster", "time"),
        ("megabytes", "more space-efficient", "memory"),
    ):
        ratios, same = (
            [one[key] / max(other[key], 1e-9) for one, other in pairs if one and other]
            for pairs in (of_additive, of_dot_products)
        )
        if ratios and same:
            noise = max(max(ratio, 1 / max(ratio, 1e-9)) for ratio in same)
            found = f"additive takes {min(ratios):.1f} to {max(ratios):.1f} times the {what}"
            yield f"dot-product attention is {claim}", found, _verdict(agrees=min(ratios) > noise)
    small, large = settings["trained_d_k"][0], settings["trained_d_k"][-1]
    for d_k, kinds, claim, expected in (
        (small, ("dot-product", "additive"), "for small d_k the two perform similarly", 0),
        (large, ("dot-product", "additive"), "for larger d_k additive outperforms dot-product", 1),
        (large, ("dot-product", "scaled dot-product"), "the scale counteracts small gradients", 1),
    ):
        found = [rows.get(f"trained {kind} d_k={d_k}") for kind in kinds]
        if all(found):
            perplexities = [facts.get("perplexity", math.inf) for facts in found]
            texts = [f"{kind} {p:.2f}" for kind, p in zip(kinds, perplexities, strict=True)]
            apart = math.log(perplexities[0]) - math.log(perplexities[1])
            worse = 0 if abs(apart) < ALIKE else math.copysign(1, apart)  # 1: the first is worse
            text = f"perplexity at d_k {d_k}: {', '.join(texts)}"
            yield claim, text, _verdict(agrees=worse == expected)


def _verdict(*, agrees: bool) -> str:
    return "as in the paper" if agrees else "differs from the paper"


def cost(kind: str, length: int, d_k: int, repeats: int) -> dict[str, object]:
    """Measure time and memory of one head's formula, forward and backward, for 8 sentences.

    Memory counts the tensors that are kept for the backward pass, in 10^6 bytes.
    """
    module = nn.Module()
    module.v = nn.Parameter(torch.randn(1, d_k))
    shape = (8, 1, length, d_k)
    inputs = [torch.randn(shape, requires_grad=True) for _ in range(3)]
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    times = []
    for _ in range(repeats + 1):  # the first one warms up
        kept.clear()
        started = time.perf_counter()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            heads, _ = KINDS[kind](module, *inputs, None, scaling=d_k**-0.5)
        heads.sum().backward()
        times.append(time.perf_counter() - started)
    return {
        "milliseconds": round(1000 * statistics.median(times[1:]), 2),
        "megabytes": round(sum(kept.values()) / 1e6, 2),
    }


def scores_and_gradients(kind: str, length: int, d_k: int) -> dict[str, object]:
    """Measure the scores of random queries and keys, and the weights and gradients of the softmax.

    The gradient is the sum of |d weight_j / d score_i| over all i and j: 2 - 2 / length if all
    weights are equal, 0 if one key has all the weight.
    """
    options = {"generator": torch.Generator().manual_seed(0), "dtype": torch.float64}
    module = nn.Module().eval()
    module.v = torch.randn(1, d_k, **options) / math.sqrt(d_k)
    query, key = (torch.randn(32, 1, length, d_k, **options) for _ in range(2))
    weights = KINDS[kind](module, query, key, key, None, scaling=d_k**-0.5)[1]
    scores = weights.log()  # up to a constant in each row; in float64 no weight here is 0
    # |dw_j/ds_i| is w_i (1 - w_i) for i = j, else w_i w_j; summed over j it is 2 w_i (1 - w_i).
    gradient = (2 * weights * (1 - weights)).sum(-1)
    return {
        "variance": round(scores.var(-1).mean().item(), 3),
        "largest_weight": round(weights.amax(-1).mean().item(), 3),
        "gradient": round(gradient.mean().item(), 4),
    }


if __name__ == "__main__":
    AttentionKinds().main()
