"""Draw the sinusoids of Section 3.5 and the learning rate of Eq. 3."""

import math
from typing import TYPE_CHECKING

import torch

from vanilla_transformer.modeling_vanilla_transformer import sinusoids
from vanilla_transformer.train.optimization import noam_lr
from vanilla_transformer.visualization.figure import new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

D_MODEL = r"$d_{\mathrm{model}}$"


def plot_positional_encoding(d_model: int = 128, length: int = 100) -> "Figure":
    """Draw the sinusoids of Section 3.5: all of them as a heat map, a few as curves.

    Args:
        d_model: Width of the model.
        length: Number of positions.
    """
    table = sinusoids(torch.arange(length), d_model).numpy()  # (length, d)
    # Curves of two sines that show about one and two waves, and of their cosines.
    waves = [math.log(max(length, 20) / 6.3 / n, 10_000) for n in (2, 1)]  # exponents 2i / d_model
    pairs = [int(min(d_model / 2 * wave, d_model // 2 - 1)) for wave in waves]
    dimensions = [2 * pair + cosine for pair in pairs for cosine in (0, 1)]
    figure = new_figure(10, 4)
    heat, curves = figure.subplots(1, 2, width_ratios=(1, 1.2))
    image = heat.imshow(table, cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    heat.set(xlabel="dimension", ylabel="position", title=f"{D_MODEL} = {d_model}")
    figure.colorbar(image, ax=heat, pad=0.02)
    for dimension in dimensions:
        curves.plot(table[:, dimension], label=f"dimension {dimension}")
    curves.set(xlabel="position", ylabel="value", xlim=(0, max(length - 1, 1)), ylim=(-1.1, 1.1))
    curves.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=8, ncols=4, frameon=False)
    tidy(curves)
    return figure


def plot_schedule() -> "Figure":
    """Draw the learning rate of Eq. 3 for some pairs of d_model and warm-up updates."""
    figure = new_figure(6.4, 4)
    axis = figure.subplots()
    points = range(40, 20_001, 40)
    for d_model, warmup in ((512, 4000), (512, 8000), (1024, 4000)):
        rates = [noam_lr(step, d_model=d_model, warmup_steps=warmup) for step in points]
        axis.plot(points, rates, label=f"{D_MODEL} = {d_model}, {warmup} warm-up updates")
    axis.set(xlabel="update", ylabel="learning rate", xlim=(0, points[-1]), ylim=(0, None))
    axis.set_title("Learning rate (Eq. 3)")
    axis.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    axis.legend(fontsize=8)
    tidy(axis)
    return figure
