"""The curves of Section 3.5 and Eq. 3."""

import functools

import numpy as np
from curves import plot_positional_encoding, plot_schedule

from vanilla_transformer.train.optimization import noam_lr


def test_positional_encoding_plot_shows_the_sinusoids():
    figure = plot_positional_encoding(16, 30)
    heat, curves = figure.axes[:2]
    table = heat.get_images()[0].get_array()
    assert table.shape == (30, 16)
    np.testing.assert_allclose(table[:, 0], np.sin(np.arange(30)), atol=1e-12)
    named = [int(line.get_label().split()[-1]) for line in curves.lines]
    assert [number % 2 for number in named] == [0, 1, 0, 1]
    for line, number in zip(curves.lines, named, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), table[:, number])


def test_schedule_shows_eq3_with_its_peak():
    axis = plot_schedule().axes[0]
    for line, values in zip(axis.lines, [(512, 4000), (512, 8000), (1024, 4000)], strict=True):
        of_eq3 = functools.partial(noam_lr, d_model=values[0], warmup_steps=values[1])
        assert list(line.get_ydata()) == [of_eq3(int(step)) for step in line.get_xdata()]
        assert max(line.get_ydata()) == of_eq3(values[1])
