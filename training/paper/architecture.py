"""Figures 1 and 2 of the paper, drawn with the names of this package's modules.

    python training/paper/architecture.py

writes both into results/; the notebook draws them too.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from vanilla_transformer.visualization import save_figure
from vanilla_transformer.visualization.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ATTENTION, FEED_FORWARD, NORM, EMBEDDING, PLAIN = "#fde0bd", "#cfe8f3", "#f4f3c1", "#fadada", "0.93"
HIGH = 0.62  # height of a box


def _box(axis: "Axes", x: float, y: float, text: str, colour: str, width: float = 3.6) -> None:
    from matplotlib.patches import FancyBboxPatch

    corner = (x - width / 2 + 0.08, y - HIGH / 2 + 0.08)
    style = {"boxstyle": "round,pad=0.08", "facecolor": colour, "edgecolor": "0.3"}
    axis.add_patch(FancyBboxPatch(corner, width - 0.16, HIGH - 0.16, zorder=2, **style))
    axis.text(x, y, text, ha="center", va="center", fontsize=10, zorder=3)


def _line(axis: "Axes", *points: tuple[float, float]) -> None:
    """Draw a line through points, with an arrow at its end."""
    axis.plot(*zip(*points[:-1], strict=True), color="0.3", linewidth=1, zorder=1)
    arrow = {"arrowstyle": "-|>", "color": "0.3", "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", points[-1], points[-2], arrowprops=arrow, zorder=1)


def _stack(axis: "Axes", x: float, side: int, names: list[tuple[str, str]], title: str) -> float:
    """Draw a layer of one stack from the bottom, with residual connections; return y of its top."""
    y = 2.6
    for module, norm in names:
        colour = FEED_FORWARD if module == "feed_forward" else ATTENTION
        _line(axis, (x, y - 1.1), (x, y - HIGH / 2))  # from the box below
        _box(axis, x, y, module, colour)
        _line(axis, (x, y + HIGH / 2), (x, y + 1 - HIGH / 2))
        _box(axis, x, y + 1, f"{norm}(x + ...)", NORM)
        turn = x + side * 2.1
        _line(axis, (x, y - 0.45), (turn, y - 0.45), (turn, y + 1), (x + side * 1.8, y + 1))
        y += 2.1
    frame = {"facecolor": "none", "edgecolor": "0.6", "linestyle": "--"}
    from matplotlib.patches import Rectangle

    axis.add_patch(Rectangle((x - 2.4, 1.98), 4.8, y - 2.5, **frame))
    axis.text(x - 2.4, y - 0.45, title, va="bottom", fontsize=10)
    return y - 0.52


def draw_figure_1() -> "Figure":
    """Draw Figure 1: both stacks, from the tokens at the bottom to the probabilities at the top."""
    figure = new_figure(8.5, 8.6)
    axis = figure.subplots()
    encoder = [("self_attn", "self_attn_norm"), ("feed_forward", "feed_forward_norm")]
    decoder = [("self_attn (causal)", "self_attn_norm"), ("cross_attn", "cross_attn_norm")]
    tops = [
        _stack(axis, 2.6, -1, encoder, "EncoderLayer, N times"),
        _stack(axis, 8.6, 1, [*decoder, encoder[1]], "DecoderLayer, N times"),
    ]
    for x, tokens in ((2.6, "input_ids"), (8.6, "decoder_input_ids: labels, shifted right")):
        axis.text(x, -0.75, tokens, ha="center", va="center", fontsize=10)
        _line(axis, (x, -0.55), (x, 0.2 - HIGH / 2))
        _box(axis, x, 0.2, "embed_tokens (shared), times √d", EMBEDDING, 4.6)
        _line(axis, (x, 0.2 + HIGH / 2), (x, 1.2 - HIGH / 2))
        _box(axis, x, 1.2, "+ embed_positions", EMBEDDING, 4.6)
    memory = tops[0] + 0.55
    axis.plot([2.6, 2.6], [tops[0] - 0.48, memory], color="0.3", linewidth=1, zorder=1)
    axis.text(3.9, memory + 0.1, "memory", ha="center", va="bottom", fontsize=10)
    _line(axis, (2.6, memory), (5.6, memory), (5.6, 4.7), (6.8, 4.7))
    top = tops[1]
    _line(axis, (8.6, top - 0.48), (8.6, top + 0.75 - HIGH / 2))
    _box(axis, 8.6, top + 0.75, "lm_head (shared weights)", PLAIN, 4.6)
    _line(axis, (8.6, top + 0.75 + HIGH / 2), (8.6, top + 1.75 - HIGH / 2))
    _box(axis, 8.6, top + 1.75, "softmax: next-token probabilities", PLAIN, 4.6)
    axis.set(xlim=(-0.1, 11.3), ylim=(-1.1, top + 2.2))
    axis.set_axis_off()
    return figure


def draw_figure_2() -> "Figure":
    """Draw Figure 2: the attention of one head, and several heads side by side."""
    figure = new_figure(8.5, 5)
    axis = figure.subplots()
    axis.text(2.6, 8, "eager_attention_forward, Eq. 1", ha="center", fontsize=11)
    steps = ["Q K^T", "times scaling = 1 / √d_k", "+ attention_mask (optional)", "softmax: weights"]
    axis.text(1.8, 0, "Q", ha="center", va="center", fontsize=11)
    axis.text(2.8, 0, "K", ha="center", va="center", fontsize=11)
    axis.text(5.1, 0, "V", ha="center", va="center", fontsize=11)
    for x in (1.8, 2.8):
        _line(axis, (x, 0.25), (x, 1.2 - HIGH / 2))
    for number, step in enumerate([*steps, "weights V"]):
        y = 1.2 + 1.25 * number
        colour = ATTENTION if number in (0, 4) else NORM
        _box(axis, 2.3, y, step.replace("K^T", "Kᵀ"), colour, 4)
        _line(axis, (2.3, y + HIGH / 2), (2.3, y + 1.25 - HIGH / 2))
    _line(axis, (5.1, 0.25), (5.1, 6.2), (4.3, 6.2))
    axis.text(8.6, 8, "MultiHeadAttention", ha="center", fontsize=11)
    for x, name, projection in ((6.9, "Q", "q_proj"), (8.7, "K", "k_proj"), (10.5, "V", "v_proj")):
        axis.text(x, 0, name, ha="center", va="center", fontsize=11)
        _line(axis, (x, 0.25), (x, 1.2 - HIGH / 2))
        _box(axis, x, 1.2, projection, PLAIN, 1.6)
        _line(axis, (x, 1.2 + HIGH / 2), (x, 3 - HIGH / 2))
    for shift in (0.3, 0.15, 0):  # h heads behind each other
        _box(axis, 8.7 + shift, 3 + shift, "", ATTENTION, 5)
    axis.text(8.7, 3, "Eq. 1, in h heads at once", ha="center", va="center", fontsize=10, zorder=4)
    _line(axis, (8.7, 3.3 + HIGH / 2), (8.7, 4.7 - HIGH / 2))
    _box(axis, 8.7, 4.7, "concatenate the heads", NORM, 4)
    _line(axis, (8.7, 4.7 + HIGH / 2), (8.7, 6.2 - HIGH / 2))
    _box(axis, 8.7, 6.2, "out_proj", PLAIN, 4)
    _line(axis, (8.7, 6.2 + HIGH / 2), (8.7, 7.45 - HIGH / 2))
    axis.set(xlim=(-0.1, 11.8), ylim=(-0.4, 8.4))
    axis.set_axis_off()
    return figure


if __name__ == "__main__":
    folder = Path(__file__).resolve().parent / "results"
    save_figure(draw_figure_1(), folder / "figure_1.png")
    save_figure(draw_figure_2(), folder / "figure_2.png")
