"""Plot the values that a trainer logged."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..storage.metrics import MEASURES
from ..visualization.figure import new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_training_curves(log_history: Sequence[Mapping[str, Any]]) -> "Figure":
    """Draw the logged losses, learning rate and measures over the updates.

    There is no title: a run directory may have any name, and a card names its model itself.

    Args:
        log_history: A Trainer's `state.log_history`. `eval_training_loss` shares a panel with the
            validation loss: both are plain, cross-entropy without label smoothing and dropout.
    """
    panels = {
        "plain loss (nats per token)": {
            "training": _series(log_history, "eval_training_loss"),
            "validation": _series(log_history, "eval_loss"),
        },
        # A separate plot: label smoothing and dropout, which are not logged, may raise this loss.
        "training loss, with any smoothing and dropout": {"training": _series(log_history, "loss")},
        "learning rate": {"training": _series(log_history, "learning_rate")},
    }
    for name, measure in MEASURES.items():
        if scores := _series(log_history, f"eval_{name}"):
            title = f"validation {measure.label} (best {measure.best(scores.values()):.4g})"
            panels[title] = {"validation": scores}
    panels = {title: curves for title, curves in panels.items() if any(curves.values())}
    width, height = min(2, max(1, len(panels))), max(1, -(-len(panels) // 2))
    figure = new_figure(4.6 * width, 3.0 * height)
    axes = [*figure.subplots(height, width, squeeze=False).flat]
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    for axis, (title, curves) in zip(axes, panels.items(), strict=False):
        for label, curve in curves.items():
            # A single point draws no line.
            marker = "o" if len(curve) == 1 or label == "validation" else None
            colour = "C0" if label == "training" else "C1"
            axis.plot([*curve], [*curve.values()], colour, marker=marker, ms=3, label=label)
        if len(curves) > 1:
            axis.legend(fontsize=8)
        axis.locator_params("x", integer=True)
        axis.set(title=title, xlabel="update", xlim=(0, None))
        tidy(axis)
    return figure


def _series(log_history: Sequence[Mapping[str, Any]], key: str) -> dict[int, float]:
    """Return the values of a key by update; of several entries for an update, the last."""
    entries = (entry for entry in log_history if "step" in entry and entry.get(key) is not None)
    return dict(sorted({int(entry["step"]): float(entry[key]) for entry in entries}.items()))
