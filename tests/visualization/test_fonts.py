import logging

import pytest

from vanilla_transformer.visualization.figure import new_figure, save_figure, set_title
from vanilla_transformer.visualization.fonts import text_properties


def test_fonts_are_named_for_characters_missing_in_the_default():
    import matplotlib

    # matplotlib comes with both: cmr10, which has no Cyrillic, and DejaVu, which has.
    with matplotlib.rc_context({"font.family": ["cmr10"]}):
        assert text_properties(["plain"])["fontfamily"] == ["cmr10"]
        first, second, *_ = text_properties(["Привет"])["fontfamily"]
    assert (first, second) == ("cmr10", "DejaVu Sans")


@pytest.mark.pictures
def test_characters_without_a_font_are_reported_in_one_line_with_the_remedy(tmp_path, caplog):
    figure = new_figure(2, 2)
    set_title(figure, "\U0010fffd\U0010fffc")  # code points for private use
    with caplog.at_level(logging.WARNING):
        save_figure(figure, tmp_path / "picture.png", dpi=40)
    (record,) = caplog.records
    assert "fonts-noto-cjk" in record.getMessage()
    assert "2 characters" in record.getMessage()
