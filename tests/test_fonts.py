import logging

from vanilla_transformer.visualization.fonts import text_properties


def test_fonts_are_found_for_signs_that_the_default_has_not():
    import matplotlib

    # cmr10, which comes with matplotlib, knows no Cyrillic; DejaVu, which does too, knows it.
    with matplotlib.rc_context({"font.family": ["cmr10"]}):
        first, *others = text_properties(["Привет"])["fontfamily"]
    assert first == "cmr10"
    assert len(others) == 1


def test_signs_without_any_font_are_reported_once_with_the_remedy(caplog):
    private = "\U0010fffd"  # a code point that is nobody's character
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            text_properties([f"word{private}"])
    (record,) = caplog.records
    assert "fonts-noto-cjk" in record.getMessage()
    assert private in record.getMessage()
