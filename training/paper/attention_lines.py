"""Draw attention as lines between words, as in Figures 3 to 5."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vanilla_transformer.visualization import Attention
from vanilla_transformer.visualization.attention import attention_title
from vanilla_transformer.visualization.figure import GREY, new_figure, set_title
from vanilla_transformer.visualization.fonts import text_properties
from vanilla_transformer.visualization.subwords import label, label_width


def plot_attention_lines(
    attention: Attention,
    *,
    kind: str = "encoder",
    layer: int = -1,
    heads: int | Sequence[int] | str | None = None,
    words: Sequence[int] | None = None,
) -> Figure:
    """Draw attention as lines between two columns of words, as in Figures 3-5.

    The words on the left attend to those on the right. The opacity of a line is its weight, its
    colour the head. Arguments as for `visualization.plot_attention`; Figures 3-5 show layer
    5 of 6 of the encoder, which is `layer=4`.
    `words` are the positions of the words whose lines are drawn (Figure 3 has one); None means all.
    """
    weights, names = attention.select(kind, layer=layer, heads=heads)
    queries, keys = ([label(word) for word in words] for words in attention.words(kind))
    chosen = range(len(queries)) if words is None else words
    chosen = sorted({range(len(queries))[word] for word in chosen})  # -1 is the last
    height = 0.21 * max(len(queries), len(keys))
    left, right = (0.085 * max(map(label_width, words)) for words in (queries, keys))
    figure = new_figure(2.8 + left + right, 1.0 + height + 0.2 * -(-len(names) // 4))
    axis = figure.subplots()
    palette = colormaps["tab10" if len(names) <= 10 else "hsv"]
    colours = palette(np.linspace(0, 0.95, len(names)) if len(names) > 10 else range(len(names)))
    _draw_lines(axis, weights, chosen, colours)
    axis.set_ylim(max(len(queries), len(keys)) - 0.4, -0.6)
    axis.set_axis_off()
    text: dict[str, Any] = {"fontsize": 10, "va": "center", **text_properties([*queries, *keys])}
    for row, word in enumerate(queries):
        colour = "black" if row in chosen else GREY
        axis.text(-0.03, row, word, ha="right", color=colour, **text)
    for row, word in enumerate(keys):
        axis.text(1.03, row, word, ha="left", **text)
    if len(names) > 1:
        handles = [Line2D([], [], color=colour, linewidth=3) for colour in colours]
        columns = min(4, len(names))
        figure.legend(
            handles, names, loc="outside lower center", ncols=columns, fontsize=8, frameon=False
        )
    set_title(figure, attention_title(attention, kind, layer, names, figure))
    return figure


def _draw_lines(
    axis: Axes, weights: np.ndarray, chosen: Sequence[int], colours: np.ndarray
) -> None:
    heads, _, keys = weights.shape
    # Shift the heads a little, so that lines between the same two words do not overlap.
    apart = 0.5 * ((np.arange(heads) + 0.5) / heads - 0.5)
    triples = [*itertools.product(range(heads), chosen, range(keys))]
    triples.sort(key=lambda triple: weights[triple])  # the strongest on top
    lines = [[(0, q + apart[h]), (1, k + apart[h])] for h, q, k in triples]
    # Rounding may leave a weight slightly above one, which is not a valid opacity.
    rgba = [(*colours[h][:3], min(float(weights[h, q, k]), 1.0)) for h, q, k in triples]
    axis.add_collection(LineCollection(lines, colors=rgba, linewidths=1.8), autolim=False)
    axis.set_xlim(0, 1)
