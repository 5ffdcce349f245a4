"""Table 3: variations of the Transformer, and further changes that are not in the paper.

    python training/paper/table_3.py --size cpu

The rows are the presets of `PRESETS`, with all widths divided by one number and all depths by
another. The changes that are not in the paper follow; each is a config field or a function that
changes a new model.
"""

import functools
import math
import statistics
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch
from attention import attend_by
from experiment import Rows, Settings, Table
from small_model import TranslationExperiment
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from vanilla_transformer import (
    PRESETS,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.modeling_vanilla_transformer import (
    Layer,
    PositionalEncoding,
    eager_attention_forward,
)
from vanilla_transformer.recipes.recipe import load_recipe
from vanilla_transformer.visualization.figure import new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Model = VanillaTransformerForConditionalGeneration

# Perplexity and BLEU on newstest2013, as Table 3 has them.
PAPER = {
    "base": (4.92, 25.8),
    "A_h1": (5.29, 24.9),
    "A_h4": (5.00, 25.5),
    "A_h16": (4.91, 25.8),
    "A_h32": (5.01, 25.4),
    "B_dk16": (5.16, 25.1),
    "B_dk32": (5.01, 25.4),
    "C_N2": (6.11, 23.7),
    "C_N4": (5.19, 25.3),
    "C_N8": (4.88, 25.5),
    "C_d256": (5.75, 24.5),
    "C_d1024": (4.66, 26.0),
    "C_ff1024": (5.12, 25.4),
    "C_ff4096": (4.75, 26.2),
    "D_dropout0.0": (5.77, 24.6),
    "D_dropout0.2": (4.95, 25.5),
    "D_smoothing0.0": (4.67, 25.3),
    "D_smoothing0.2": (5.47, 25.7),
    "E_learned": (4.92, 25.7),
    "big": (4.33, 26.4),
}
WIDTHS = ("d_model", "encoder_ffn_dim", "decoder_ffn_dim", "d_k", "d_v")
DEPTHS = ("encoder_layers", "decoder_layers")
SYMBOLS = {
    "encoder_layers": "N",
    "d_model": "d",
    "encoder_ffn_dim": "d_ff",
    "encoder_attention_heads": "h",
    "d_k": "d_k",
    "dropout": "P_drop",
    "label_smoothing": "eps_ls",
    "position_encoding": "positions",
}


def scaled(preset: str, width: int, depth: int) -> dict[str, object]:
    """Return a preset's config, with widths divided by `width` and numbers of layers by `depth`."""
    base = VanillaTransformerConfig()
    sizes = ("encoder_layers", "decoder_layers", "d_model", "encoder_ffn_dim", "decoder_ffn_dim")
    config = {**{name: getattr(base, name) for name in sizes}, **PRESETS[preset]}
    divisors = {**dict.fromkeys(WIDTHS, width), **dict.fromkeys(DEPTHS, depth)}
    return {
        key: value // divisors[key] if key in divisors else value for key, value in config.items()
    }


# ---------------------------------------------------------------- changes that are not in the paper


def layers(model: Model) -> Iterator[Layer]:
    """Yield all layers of both stacks."""
    yield from (*model.model.encoder.layers, *model.model.decoder.layers)


def mix_in(kind: type, modules: Iterable[nn.Module]) -> None:
    """Override methods of modules with those of a class."""
    for module in modules:
        own = type(module)
        module.__class__ = type(f"{kind.__name__}{own.__name__}", (kind, own), {})


class WithoutResidual:
    """A layer with LayerNorm(Sublayer(x)) instead of LayerNorm(x + Sublayer(x))."""

    def residual(self, x: Tensor, sublayer: nn.Module, norm: nn.Module) -> Tensor:
        """Return LayerNorm(Sublayer(x)), without adding x."""
        return norm(self.dropout(sublayer(x)))


def no_residual(model: Model) -> None:
    """Remove the residual connections."""
    mix_in(WithoutResidual, layers(model))


def replace_norms(model: Model, norm: type[nn.Module]) -> None:
    """Replace each LayerNorm by another module."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.LayerNorm):
                setattr(module, name, norm(*child.normalized_shape))


class NoNorm(nn.Identity):
    """A norm that leaves states unchanged."""


class BatchNorm(nn.BatchNorm1d):
    """A norm of each feature over all positions of the batch, padding included."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each feature: (B, T, d) -> (B, T, d)."""
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class WithoutFeedForward:
    """A layer that skips a missing sub-layer."""

    def residual(self, x: Tensor, sublayer: nn.Module | None, norm: nn.Module | None) -> Tensor:
        """Return LayerNorm(x + Sublayer(x)), or x if there is no sub-layer."""
        return x if sublayer is None else super().residual(x, sublayer, norm)


def no_feed_forward(model: Model) -> None:
    """Remove the feed-forward networks, and the norms after them."""
    for layer in layers(model):
        layer.feed_forward = layer.feed_forward_norm = None
    mix_in(WithoutFeedForward, layers(model))


class WithoutPositions(PositionalEncoding):
    """A positional encoding that adds nothing to the embeddings."""

    def forward(self, x: Tensor, attention_mask: Tensor | None, past_length: object) -> Tensor:
        """Return zeros, (B, T, d)."""
        return torch.zeros_like(x)


def no_positions(model: Model) -> None:
    """Remove the positional encodings of both stacks."""
    for stack in (model.model.encoder, model.model.decoder):
        stack.embed_positions = WithoutPositions(model.config)


def looking_ahead(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    **kwargs: object,
) -> tuple[Tensor, Tensor]:
    """Compute Eq. 1 with a decoder that sees the whole target, and the padding after it.

    Batches have no padding mask of the target, because the causal mask hides padding on its right.
    """
    if module.is_causal and attention_mask is not None:
        attention_mask = attention_mask[:, :, -1:]  # the last position sees all others
    return eager_attention_forward(module, query, key, value, attention_mask, scaling, **kwargs)


AttentionInterface.register("looking ahead", looking_ahead)
AttentionMaskInterface.register("looking ahead", eager_mask)


def no_causal_mask(model: Model) -> None:
    """Let every target position see all others, including the word that it has to predict."""
    model.set_attn_implementation("looking ahead")


# Changes: config fields that differ from base, or a function that changes a new model.
NOT_IN_PAPER = {
    "norm first": {"norm_first": True},
    "no residual": no_residual,
    "no norm": functools.partial(replace_norms, norm=NoNorm),
    "BatchNorm": functools.partial(replace_norms, norm=BatchNorm),
    "no feed-forward network": no_feed_forward,
    "no positions": no_positions,
    "no causal mask": no_causal_mask,
    "untied": {"tie_word_embeddings": False, "share_encoder_decoder_embeddings": False},
    "no scale": functools.partial(attend_by, "dot-product"),
}

CUT = 0.6  # nats, where the bars of the picture end
LEAKS = {"no causal mask"}  # see the words to predict, so that their perplexity means little

# ---------------------------------------------------------------------------------- the experiment

SMALL = {
    "vocab_size": 4000,
    "bpe_dropout": 0.0,
    "batch_tokens": 1024,
    "warmup_steps": 800,
    "learning_rate_factor": 1.0,
    "max_steps": 4000,
    "max_minutes": None,
    "checkpoints_to_average": 1,
    "trainer": {"save_steps": 500, "eval_steps": 2000},
    "precision": "auto",
}


class Table3(TranslationExperiment):
    """Table 3, whose rows are models that differ from a small base model in one thing."""

    name = "table_3"
    title = "Table 3: variations of the Transformer"
    sizes = {
        "tiny": {
            "recipe": "demo",
            "values": {**{"vocab_size": 400, "max_steps": 2, "max_minutes": None}},
            "width": 16,
            "depth": 2,
            "seeds_of_base": 2,
        },
        "cpu": {
            "recipe": "multi30k_en_de",
            "values": SMALL,
            "width": 4,
            "depth": 2,
            "seeds_of_base": 5,
        },
        "gpu": {
            "recipe": "multi30k_en_de",
            "values": {**SMALL, "batch_tokens": 2048, "max_steps": 10000},
            "width": 2,
            "depth": 1,
            "seeds_of_base": 5,
        },
    }

    def about(self, settings: Settings) -> str:
        """Return how the models were trained, and how to read the tables."""
        recipe = load_recipe(settings["recipe"], settings["values"])
        data = "Multi30k" if recipe.dataset else "the files"
        return (
            "Each row changes one thing in the base model, as in Table 3. The paper's figures are "
            "for newstest2013 after 100,000 updates (300,000 for big), so only the direction of a "
            "change can be compared.\n"
            "\n"
            f"- The models are the paper's with all widths divided by {settings['width']} and all "
            f"depths by {settings['depth']}. They are trained on {data}, "
            f"{recipe.source_language}-{recipe.target_language}, for "
            f"{recipe.max_steps:,} updates, and evaluated on the validation pairs with beam 4, "
            "length penalty 0.6 and no averaging. Base has "
            f"{settings['seeds_of_base']} seeds, every other row has one.\n"
            "- A row counts as **worse** or **better** if its log-perplexity differs from the mean "
            "of base's seeds by more than two of their standard deviations. With five seeds, "
            "chance alone puts one row in seven beyond that. BLEU follows perplexity loosely and "
            "is noisier: the table gives the standard deviation of both for base.\n"
            "- The paper's rows are held to the same limit, because the paper gives no spread of "
            "its own. A row is **as in the paper** if both differ from base by more than the limit "
            "in the same direction, and **differs** from it if in opposite directions; otherwise "
            "there is no verdict on it.\n"
            "- Without the causal mask a model reads the word that it has to predict, so that its "
            "perplexity means nothing; its BLEU shows what it has learned.\n"
            "- **Format** is that of the matrix products, which `--precision auto` chose on the "
            "machine of each row: rows in bf16 and rows in float32 are compared with each other.\n"
            "- The row big has dropout 0.3 and, unlike in the paper, no more updates than base; "
            "compare it with C_d1024, which is as wide and has base's dropout."
        )

    def findings(self, rows: Rows, settings: Settings) -> Iterator[str]:
        """List the paper's rows by verdict, and the other changes as worse, better or neither."""
        base = base_of(rows)
        seeds = [facts for row, facts in rows.items() if row.startswith("base ")]
        if seeds:
            formats = sorted(set(map(product_format, seeds)))
            yield f"The format of base's seeds is {' or '.join(formats)}."
        apart = {
            row: distance(facts, base)
            for row, facts in rows.items()
            if not row.startswith("base ") and row not in LEAKS
        }
        verdicts: dict[str, list[str]] = {}
        for row, found in apart.items():
            if row in PAPER and found is not None:
                verdicts.setdefault(compared(row, found, base)[1], []).append(row)
        for verdict, names in verdicts.items():
            yield f"**{verdict.capitalize()}**: {', '.join(names)}."
        for direction in (1, -1, 0):
            names = [row for row in NOT_IN_PAPER if apart.get(row) == direction]
            if names:
                yield f"Changes not in the paper, **{sign(direction)}**: {', '.join(names)}."

    def rows(self, settings: Settings) -> Iterable[str]:
        """Return a row per seed of base, the paper's other rows, then changes not in the paper."""
        yield from (f"base {seed}" for seed in range(settings["seeds_of_base"]))
        yield from (name for name in PAPER if name != "base")
        yield from NOT_IN_PAPER

    def measure(self, row: str, settings: Settings) -> dict[str, object]:
        """Train and evaluate the model of one row."""
        translation = self.translation(settings)
        preset, _, seed = row.partition(" ") if row.startswith("base") else (row, "", "0")
        change = NOT_IN_PAPER.get(row, {})
        config = scaled(
            preset if preset in PRESETS else "base", settings["width"], settings["depth"]
        )
        if isinstance(change, dict):
            return translation.train(row, {**config, **change}, seed=int(seed))
        return translation.train(row, config, change)

    def tables(self, rows: Rows, settings: Settings) -> dict[str, Table]:
        """Return the paper's rows with its figures next to ours, then changes not in the paper."""
        base = base_of(rows)
        ours, others = [], []
        for row, facts in {"base": base, **rows}.items():
            if row.startswith("base ") or not facts:
                continue
            name = f"base, mean of {facts['seeds']} seeds" if row == "base" else row
            cells = [name, changed(row, settings), f"{facts['parameters'] / 1e6:.2f}"]
            cells += [*figures(facts), "" if row == "base" else product_format(facts)]
            apart = distance(facts, base)
            difference = f"{log_ratio(facts, base):+.3f}"
            if row == "base":
                known = math.isfinite(base["spread"])
                difference = f"limit {2 * base['spread']:.3f}" if known else ""
            if row in PAPER:
                cells += [difference, "" if row == "base" else sign(apart)]
                cells += [f"{PAPER[row][0]:.2f}", f"{PAPER[row][1]:.1f}"]
                verdict = ["", ""] if row == "base" else compared(row, apart, base)
                ours.append([*cells, *verdict])
            else:
                leaks = row in LEAKS
                cells += ["" if leaks else difference, "" if leaks else sign(apart)]
                others.append([*cells[:1], *cells[2:]])
        columns = ("Row", "Here", "Parameters, M", "Perplexity", "BLEU", "Format")
        columns += ("Log-perplexity above base", "Against base")
        paper = ("Paper: perplexity", "BLEU", "Against base", "Verdict")
        tables = {"The paper's rows": ((*columns, *paper), ours)}
        return {**tables, "Changes not in the paper": ((*columns[:1], *columns[2:]), others)}

    def draw(self, rows: Rows, settings: Settings) -> "Figure":
        """Draw the difference from base in log-perplexity, ours next to the paper's."""
        base = base_of(rows)
        names = [row for row in rows if not row.startswith("base ") and row not in LEAKS]
        figure = new_figure(8, 0.26 * len(names) + 1.4)
        axis = figure.subplots()
        if base and math.isfinite(base["spread"]):
            spread = 2 * base["spread"]
            axis.axvspan(-spread, spread, color="0.9", label="two standard deviations of base")
            apart = [log_ratio(rows[name], base) for name in names]
            # A gap separates the paper's rows from the other changes.
            places = [-place - (name in NOT_IN_PAPER) for place, name in enumerate(names)]
            shown = [max(-CUT, min(CUT, value)) for value in apart]
            axis.barh([place + 0.2 for place in places], shown, 0.4, color="C0", label="here")
            for place, value in zip(places, apart, strict=True):
                if value > CUT:
                    text = f"{value:+.2f} " if math.isfinite(value) else "diverged "
                    style = {"ha": "right", "va": "center", "fontsize": 8, "color": "white"}
                    axis.text(CUT, place + 0.2, text, **style)
            paper = [(place - 0.2, name) for place, name in zip(places, names, strict=True)]
            paper = [(place, name) for place, name in paper if name in PAPER]
            values = [math.log(PAPER[name][0] / PAPER["base"][0]) for _, name in paper]
            if paper:
                axis.barh([p for p, _ in paper], values, 0.4, color="C1", label="the paper")
            short = [name for name in names if name in PAPER and name != "big"]
            labels = [changed(name, settings) if name in short else name for name in names]
            axis.set_yticks(places, labels, fontsize=9)
            axis.margins(y=0.01)
            axis.set_xlim(-CUT / 2, CUT)
            axis.legend(fontsize=8, loc="upper right")
        axis.set(xlabel=f"log-perplexity above base (lower is better); bars end at {CUT}")
        tidy(axis)
        return figure


def changed(row: str, settings: Settings) -> str:
    """Describe what a row changes, in the paper's symbols; for base, describe all sizes."""
    if row not in PAPER:
        return ""
    base, config = (scaled(name, settings["width"], settings["depth"]) for name in ("base", row))
    base = {} if row == "base" else base
    return ", ".join(
        f"{SYMBOLS[key]} {value}"
        for key, value in config.items()
        if key in SYMBOLS and base.get(key) != value
    )


def base_of(rows: Rows) -> dict[str, float]:
    """Return base's means over its seeds; `spread` is log-perplexity's standard deviation."""
    seeds = [
        facts for row, facts in rows.items() if row.startswith("base ") and "failed" not in facts
    ]
    if not seeds:
        return {}
    logs = [math.log(facts["perplexity"]) for facts in seeds]
    return {
        "seeds": len(seeds),
        "parameters": seeds[0]["parameters"],
        "perplexity": math.exp(statistics.mean(logs)),
        "bleu": statistics.mean(facts["bleu"] for facts in seeds),
        "bleu_spread": statistics.stdev(facts["bleu"] for facts in seeds) if len(seeds) > 1 else 0,
        "spread": statistics.stdev(logs) if len(logs) > 1 else math.inf,  # unknown for one seed
    }


def figures(facts: dict[str, float]) -> list[str]:
    """Format perplexity and BLEU; for base, include the spread of its seeds."""
    known = math.isfinite(facts.get("spread", math.inf))
    spread = f" ± {100 * facts['spread']:.1f} %" if known else ""
    if "failed" in facts:
        return ["none: the training diverged", ""]
    bleu = f"{facts['bleu']:.1f}" + (f" ± {facts['bleu_spread']:.1f}" if known else "")
    return [f"{facts['perplexity']:.2f}{spread}", bleu]


def product_format(facts: dict[str, object]) -> str:
    """Return the number format of matrix products; for older results, infer it from the machine."""
    if "precision" in facts:
        return {"fp32": "float32"}.get(facts["precision"], facts["precision"])
    hardware = facts["provenance"]["hardware"]
    # How `--precision auto` chose a format when these results were measured.
    capable = {"avx512_bf16", "amx_bf16"}.intersection(hardware.get("instructions", []))
    return "bf16" if capable or "gpu" in hardware else "float32"


def log_ratio(facts: dict[str, float], base: dict[str, float]) -> float:
    """Return the log-perplexity of a row minus base's, or infinity if the row failed."""
    if "failed" in facts:
        return math.inf
    return math.log(facts["perplexity"] / base["perplexity"])


def distance(facts: dict[str, float], base: dict[str, float]) -> int | None:
    """Return 1 if a row is worse than base, -1 if better, 0 if indistinguishable, None if unknown.

    It is unknown until two seeds of base have been measured.
    """
    if not base or not math.isfinite(base["spread"]):
        return None
    apart = log_ratio(facts, base)
    return 0 if abs(apart) <= 2 * base["spread"] else int(math.copysign(1, apart))


def sign(apart: int | None) -> str:
    """Return the result of `distance` in words, such as "better"; an empty text if unknown."""
    return {1: "worse", -1: "better", 0: "not distinguishable", None: ""}[apart]


def compared(row: str, apart: int | None, base: dict[str, float]) -> list[str]:
    """Return whether the paper's row is better than its base, in words, and whether ours agrees."""
    paper = {"perplexity": PAPER["base"][0], "spread": base.get("spread", math.inf)}
    theirs = distance({"perplexity": PAPER[row][0]}, paper)
    if not apart or not theirs:
        where = "either" if apart == theirs else "the paper" if apart else "ours"
        return [sign(theirs), "" if apart is None else f"not distinguishable in {where}"]
    return [sign(theirs), "as in the paper" if apart == theirs else "differs from the paper"]


if __name__ == "__main__":
    Table3().main()
