"""Plot the values that a trainer logged."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..storage.metrics import MEASURES
from ..visualization.figure import new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_training_curves(log_history: Sequence[Mapping[str, Any]]) -> "Figure":
    """Draw whichever of loss, perplexity, learning rate and measures were logged, over the updates.

    There is no title: a run directory may have any name, and a card names its model itself.

    Args:
        log_history: A Trainer's `state.log_history`. Without `eval_perplexity` the exponential of
            `eval_loss` is drawn. `eval_training_loss` shares a panel with the validation loss: both
            are plain, cross-entropy without label smoothing and dropout.
    """
    validation = _series(log_history, "eval_loss")
    perplexity = {step: math.exp(min(loss, 700.0)) for step, loss in validation.items()}
    perplexity |= _series(log_history, "eval_perplexity")
    panels = {
        "plain loss (nats per token)": (_series(log_history, "eval_training_loss"), validation),
        # Not comparable to the plain loss. The log does not say whether a run has either.
        "training loss, with any smoothing and dropout": (_series(log_history, "loss"), {}),
        "validation perplexity": ({}, perplexity),
        "learning rate": (_series(log_history, "learning_rate"), {}),
        **{
            f"validation {measure.label}": ({}, _series(log_history, f"eval_{name}"))
            for name, measure in MEASURES.items()
        },
    }
    panels = {name: curves for name, curves in panels.items() if any(curves)}
    width = 1 if len(panels) < 2 else 2
    height = max(1, -(-len(panels) // 2))
    figure = new_figure(4.6 * width, 3.0 * height)
    axes = [*figure.subplots(height, width, squeeze=False).flat]
    steps = [step for curves in panels.values() for curve in curves for step in curve]
    for axis, (name, curves) in zip(axes, panels.items(), strict=False):
        _draw_curves(axis, name, *curves)
        axis.set_xlim(0, 1.02 * max(steps) or 1)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    return figure


def _series(log_history: Sequence[Mapping[str, Any]], key: str) -> dict[int, float]:
    """Return the values of a key by update; the last entry for an update counts."""
    entries = (entry for entry in log_history if "step" in entry and entry.get(key) is not None)
    return dict(sorted({int(entry["step"]): float(entry[key]) for entry in entries}.items()))


def _draw_curves(
    axis: "Axes", name: str, training: Mapping[int, float], validation: Mapping[int, float]
) -> None:
    for kind, curve, colour in (("training", training, "C0"), ("validation", validation, "C1")):
        # A single point draws no line.
        marker = "o" if len(curve) == 1 or validation else None
        if curve:
            points = zip(*curve.items(), strict=True)
            axis.plot(*points, colour, marker=marker, markersize=3, label=kind)
    if validation and "validation" not in name:
        axis.legend(fontsize=8)
    if name == "learning rate":
        axis.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    elif not training:
        labels = {f"validation {measure.label}": measure.best for measure in MEASURES.values()}
        best = labels.get(name, min)
        name = f"{name} (best {best(validation.values()):.4g})"
    if "perplexity" in name and max(validation.values()) > 10 * min(validation.values()):
        axis.set_yscale("log", subs=(2, 5))
        for which in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
            which("{x:g}")
    axis.locator_params("x", integer=True)
    axis.set(title=name, xlabel="update")
    tidy(axis)
