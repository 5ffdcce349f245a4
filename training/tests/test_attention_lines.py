"""The lines of Figures 3 to 5: opacity is the weight, colour the head."""

import numpy as np
import pytest
from attention_lines import plot_attention_lines

from vanilla_transformer.visualization import Attention, save_figure

pytestmark = pytest.mark.pictures


def of_words(*words, heads=4):
    """Return random self-attention between words, without a model."""
    weights = np.random.default_rng(0).dirichlet(np.ones(len(words)), size=(1, heads, len(words)))
    return Attention([*words], [], [], weights, weights, weights)


def lines_of(figure):
    (lines,) = figure.axes[0].collections
    return lines


def test_lines_show_weight_as_opacity_and_head_as_colour():
    attention = of_words("a", "$5 and $6", "x_y", "</s>")
    figure = plot_attention_lines(attention, heads=[1, 3])
    drawn = {}
    lines = lines_of(figure)
    for segment, (*colour, opacity) in zip(lines.get_segments(), lines.get_colors(), strict=True):
        query, key = np.rint(segment[:, 1]).astype(int)
        drawn.setdefault(tuple(colour), np.zeros((4, 4)))[query, key] = opacity
    first, second = drawn.values()  # ordered by the strongest weight
    if not np.allclose(first, attention.encoder[0, 1]):
        first, second = second, first
    np.testing.assert_allclose(first, attention.encoder[0, 1])
    np.testing.assert_allclose(second, attention.encoder[0, 3])
    assert [text.get_text() for text in figure.axes[0].texts] == 2 * attention.source_words


def test_lines_can_be_limited_to_some_words():
    attention = of_words("ein", "^2", "</s>")
    segments = lines_of(plot_attention_lines(attention, words=[-1])).get_segments()
    assert {round(segment[0][1]) for segment in segments} == {2}
    with pytest.raises(IndexError):
        plot_attention_lines(attention, words=[3])


@pytest.mark.parametrize(
    "words", [["x", "</s>"], ["$\\frac{", "a_b^c", "$$", "\\"], ["你好", "\x00"]]
)
def test_any_words_can_be_drawn_and_saved(words, tmp_path):
    figure = plot_attention_lines(of_words(*words), heads=1)
    path = save_figure(figure, tmp_path / "picture.png", dpi=40)
    assert path.read_bytes().startswith(b"\x89PNG")
