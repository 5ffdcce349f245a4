"""Compute the attention weights of a model, and draw them as heat maps.

Every `plot_` function returns a `matplotlib.figure.Figure` and shows, saves and registers nothing.
"""

import itertools
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .. import beam_search
from ..errors import RequestError
from ..target_tokenizer import source_tokenizer, target_tokenizer
from ..texts.targets import target_ids
from ..translation.many_texts import input_device, translate_nbest
from ..written_forms import written_forms
from .figure import GREY, new_figure, set_title
from .fonts import text_properties
from .subwords import label, label_width, shortened, visible, words_and_mix

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLES = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Attention from target to source",
}
_READABLE = 0.1  # inches that a word needs; if a cell has less, some words are left out
_COLUMN = 0.1  # inches that a letter of a title needs, at most
_ARROW = " \N{RIGHTWARDS ARROW} "
_MOST_TOKENS = 512  # per side: enough for any picture, in under 1 GB of memory
_MOST_INCHES = 20  # width and height of all cells of a map, at most

# ------------------------------------------------------------------------------ attention weights


@dataclass(frozen=True)
class Attention:
    """The words of one sentence pair, and the attention weights of N layers of h heads.

    At position t, the decoder reads `decoder_words[t]` and writes `target_words[t]`. Self-attention
    is labelled with the words that are read, cross-attention with the words that are written.

    Attributes:
        source_words: S words of the source, the end symbol included.
        target_words: T words of the target, the end symbol included.
        decoder_words: T' words, the target's pieces shifted right by the start symbol.
        encoder: (N, h, S, S); the last axis, the words attended to, sums to one.
        decoder: (N, h, T', T').
        cross: (N, h, T, S).
        source: The source sentence, for titles.
        target: The target sentence, for titles.
    """

    source_words: list[str]
    target_words: list[str]
    decoder_words: list[str]
    encoder: np.ndarray
    decoder: np.ndarray
    cross: np.ndarray
    source: str = ""
    target: str = ""

    def words(self, kind: str) -> tuple[list[str], list[str]]:
        """Return the words on both axes: the attending words, and the words attended to."""
        return {
            "encoder": (self.source_words, self.source_words),
            "decoder": (self.decoder_words, self.decoder_words),
            "cross": (self.target_words, self.source_words),
        }[kind]

    def select(
        self, kind: str, *, layer: int = -1, heads: int | Sequence[int] | str | None = None
    ) -> tuple[np.ndarray, list[str]]:
        """Return weights of a layer's heads, (heads, attending, attended to), and heads' names."""
        weights = {name: getattr(self, name) for name in _TITLES}[kind][layer]
        if isinstance(heads, str) and heads == "mean":
            return weights.mean(axis=0, keepdims=True), ["mean of heads"]
        numbers = np.arange(len(weights))
        numbers = numbers if heads is None else np.atleast_1d(numbers[np.asarray(heads)])
        return weights[numbers], [f"head {number + 1}" for number in numbers]


def _check_length(side: str, ids: torch.Tensor) -> None:
    if ids.size(1) > _MOST_TOKENS:
        raise RequestError(f"the {side} has {ids.size(1)} tokens; draw at most {_MOST_TOKENS}.")


def attention_weights(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source: str,
    target: str | None = None,
    *,
    merge_words: bool = True,
    **generation_kwargs: Any,
) -> Attention:
    """Run a model on a sentence pair and return the attention weights of all layers and heads.

    The decoder reads the whole target at once, as in training. `sdpa` returns no weights, so
    `eager`, the same formula, replaces it during the call.

    Args:
        model: An encoder-decoder model with a language modelling head.
        tokenizer: Its tokenizer.
        source: The source sentence.
        target: The target sentence; None translates the source first.
        merge_words: Whether to join the pieces of each word if there are several words: average
            their rows and add their columns, so that rows still sum to one.
        **generation_kwargs: Options of `translate_nbest`, whose best translation is drawn.

    Raises:
        ValueError: If a text has more than 512 tokens, or the model returns no attention weights.
    """
    if beam_search.adds_prompt(model):
        raise RequestError("cannot draw attention: the model's adapter adds a learned prompt.")
    if target is None:
        target = next(translate_nbest(model, tokenizer, [source], **generation_kwargs))[0].text
    device = input_device(model)
    source = written_forms(tokenizer).source_of(source)
    inputs = tokenizer(source, return_tensors="pt", return_token_type_ids=False).to(device)
    _check_length("source", inputs["input_ids"])
    labels = torch.tensor(target_ids(model, tokenizer, [target]), device=device)
    _check_length("target", labels)
    shifted = model.prepare_decoder_input_ids_from_labels(labels)  # type: ignore[operator]  # PreTrainedModel lacks it
    returned = beam_search.returned_attention_weights(model)
    with beam_search.evaluation_mode(model), torch.no_grad(), returned:
        out = model(**inputs, decoder_input_ids=shifted, output_attentions=True, use_cache=False)
    attentions = (out.encoder_attentions, out.decoder_attentions, out.cross_attentions)
    # Not the config's numbers: users may have removed or added layers.
    encoder, decoder = (
        next(len(part) for part in side.children() if isinstance(part, torch.nn.ModuleList))
        for side in (model.get_encoder(), model.get_decoder())
    )
    if tuple(map(len, attentions)) != (encoder, decoder, decoder):
        raise beam_search.no_attention_weights(model)
    reads, writes = source_tokenizer(tokenizer), target_tokenizer(tokenizer)
    (source_words, source_mix), (target_words, target_mix), (decoder_words, decoder_mix) = (
        words_and_mix(side, ids[0].tolist(), merge=merge_words)
        for side, ids in ((reads, inputs["input_ids"]), (writes, labels), (writes, shifted))
    )
    return Attention(
        *(source_words, target_words, decoder_words),
        encoder=_over_words(out.encoder_attentions, source_mix, source_mix),
        decoder=_over_words(out.decoder_attentions, decoder_mix, decoder_mix),
        cross=_over_words(out.cross_attentions, target_mix, source_mix),
        source=source,
        target=target,
    )


def _over_words(
    attentions: tuple[torch.Tensor, ...], query_mix: np.ndarray, key_mix: np.ndarray
) -> np.ndarray:
    """Merge attention weights of pieces, N x (1, h, Q, K), into those of words, (N, h, Q', K')."""
    weights = np.stack([layer[0].cpu().double().numpy() for layer in attentions])
    return query_mix / query_mix.sum(axis=1, keepdims=True) @ weights @ key_mix.T


# ------------------------------------------------------------------------------ attention pictures


def plot_attention(
    attention: Attention,
    *,
    kind: str = "cross",
    layer: int = -1,
    heads: int | Sequence[int] | str | None = None,
) -> "Figure":
    """Draw attention weights as heat maps, one for each head; rows attend to columns.

    For a long sentence, the cells are small and only some of the words are written next to them.

    Args:
        attention: From `attention_weights`.
        kind: "encoder", "decoder" or "cross"; in "cross" the source lies along the x axis.
        layer: Counted from 0, as in the state dict; -1 is the last. The picture counts from 1.
        heads: One head, several, None for all, or "mean" for their mean; counted from 0 too.
    """
    weights, names = attention.select(kind, layer=layer, heads=heads)
    rows, columns = ([label(word) for word in words] for words in attention.words(kind))
    width = min(len(weights), 4)  # panels in a row
    height = -(-len(weights) // width)
    across, down = width * len(columns), height * len(rows)
    cell = min(max(14 / across, 0.12), 0.32, _MOST_INCHES / max(across, down))  # inches
    step = math.ceil(_READABLE / cell)  # write every second word, or every third, ...
    font_size = min(9.0, 0.75 * 72 * cell * step)
    left, below = (0.55 / 72 * font_size * max(map(label_width, ws)) for ws in (rows, columns))
    inches_across = 1.9 + left + width * (len(columns) * cell + 0.25)
    inches_down = 0.8 + below + height * (len(rows) * cell + 0.35)
    figure = new_figure(inches_across, inches_down, layout="compressed")
    axes = figure.subplots(height, width, squeeze=False)
    attending, attended = ("target", "source") if kind == "cross" else ("attending", "attended to")
    strongest = max(float(weights.max()), 1e-9)
    text = {"fontsize": font_size, **text_properties([*rows, *columns])}
    for number, (axis, panel) in enumerate(itertools.zip_longest(axes.flat, weights)):
        if panel is None:
            axis.set_axis_off()
            continue
        image = axis.imshow(panel, cmap="Blues", vmin=0.0, vmax=strongest)
        turned = 90 if below > cell * step else 0
        axis.set_xticks(range(0, len(columns), step), columns[::step], rotation=turned, **text)
        axis.set_yticks(range(0, len(rows), step), rows[::step], **text)
        # Only outer panels have words: those on the left, and the lowest of each column.
        is_left, is_lowest = number % width == 0, number + width >= len(weights)
        axis.tick_params(length=0, labelleft=is_left, labelbottom=is_lowest)
        axis.set_xlabel(attended if is_lowest else "")
        axis.set_ylabel(attending if is_left else "")
        axis.spines[:].set_color(GREY)
        if len(weights) > 1:
            axis.set_title(names[number], fontsize=10)
    bar = figure.colorbar(image, ax=axes, shrink=min(1.0, 2.5 / (height * len(rows) * cell)))
    bar.set_label("attention weight")
    bar.outline.set_edgecolor(GREY)
    set_title(figure, attention_title(attention, kind, layer, names, figure))
    return figure


def attention_title(
    attention: Attention, kind: str, layer: int, names: list[str], figure: "Figure"
) -> str:
    """Return the title: kind, layer and head, then the sentence cut to the picture's width."""
    count = len(getattr(attention, kind))
    alone = f", {names[0]}" if len(names) == 1 else ""
    title = f"{_TITLES[kind]}, layer {layer % count + 1}{alone}"
    of_one_side = {"encoder": [attention.source], "decoder": [attention.target]}
    texts = of_one_side.get(kind, [attention.source, attention.target])
    columns = max(int(figure.get_figwidth() / _COLUMN), label_width(title))
    sentence = shortened(_ARROW.join(visible(text) for text in texts if text.strip()), columns)
    if any(unicodedata.bidirectional(sign) in ("R", "AL") for sign in sentence):
        # Put the source on the left, even if source or target is written from right to left.
        parts = [f"\u2068{part}\u2069" for part in sentence.split(_ARROW)]
        sentence = f"\u200e{_ARROW.join(parts)}"
    return f"{title}\n{sentence}" if sentence else title
