import math

import pytest

from vanilla_transformer.train.curves import plot_training_curves
from vanilla_transformer.visualization import save_figure

pytestmark = pytest.mark.pictures


HISTORY = [
    {"step": 10, "loss": 5.0, "learning_rate": 1e-3, "grad_norm": 1.0, "epoch": 0.1},
    {"step": 20, "loss": 4.0, "learning_rate": 2e-3, "grad_norm": 1.0, "epoch": 0.2},
    {"step": 20, "eval_loss": 3.0, "eval_bleu": 10.0, "eval_runtime": 1.0},
    {"step": 30, "loss": 9.0},  # the last entry of an update counts
    {"step": 30, "loss": 3.0, "learning_rate": 1e-3},
    {"step": 40, "eval_loss": 2.0, "eval_training_loss": 1.5, "eval_bleu": 20.0},
    {"step": 40, "train_runtime": 9.0, "train_loss": 4.0},
]


def curves(figure):
    """Return points by the first words of a panel's title and the name of the line."""
    return {
        (axis.get_title().split(" (")[0], line.get_label()): line.get_xydata().tolist()
        for axis in figure.axes
        for line in axis.lines
    }


def test_curves_show_what_was_logged():
    found = curves(plot_training_curves(HISTORY))
    assert found == {
        ("plain loss", "training"): [[40, 1.5]],
        ("training loss, with any smoothing and dropout", "training"): [[10, 5], [20, 4], [30, 3]],
        ("plain loss", "validation"): [[20, 3], [40, 2]],
        ("learning rate", "training"): [[10, 1e-3], [20, 2e-3], [30, 1e-3]],
        ("validation BLEU", "validation"): [[20, 10], [40, 20]],
    }


@pytest.mark.parametrize(
    "history",
    [
        [],
        [{"step": 5, "train_runtime": 1.0}],
        HISTORY[:1],
        HISTORY[2:3],
        [{"step": 0, "eval_bleu": 0.0}],
        [{"step": 1, "loss": math.nan}, {"step": 1, "eval_loss": math.inf}],
        [{"step": 1, "eval_loss": 9.0}, {"step": 2, "eval_loss": 1.0}],
    ],
)
def test_missing_series_and_single_points_can_be_drawn(history, tmp_path):
    save_figure(plot_training_curves(history), tmp_path / "curves.png", dpi=40)
