import logging

from vanilla_transformer.visualization.fonts import text_properties


def test_fonts_are_found_for_characters_missing_in_the_default():
    import matplotlib

    # matplotlib comes with both: cmr10, which has no Cyrillic, and DejaVu, which has.
    with matplotlib.rc_context({"font.family": ["cmr10"]}):
        first, *others = text_properties(["Привет"])["fontfamily"]
    assert first == "cmr10"
    assert len(others) == 1


def test_characters_without_a_font_are_reported_once_with_the_remedy(caplog):
    private = "\U0010fffd"  # a code point for private use
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            text_properties([f"word{private}"])
    (record,) = caplog.records
    assert "fonts-noto-cjk" in record.getMessage()
    assert private in record.getMessage()
