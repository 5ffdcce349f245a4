from vanilla_transformer.visualization.fonts import text_properties


def test_fonts_are_named_for_characters_missing_in_the_default():
    import matplotlib

    # matplotlib comes with both: cmr10, which has no Cyrillic, and DejaVu, which has.
    with matplotlib.rc_context({"font.family": ["cmr10"]}):
        assert text_properties(["plain"])["fontfamily"] == ["cmr10"]
        first, second, *_ = text_properties(["Привет"])["fontfamily"]
    assert (first, second) == ("cmr10", "DejaVu Sans")
