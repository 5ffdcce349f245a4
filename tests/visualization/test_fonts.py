import warnings

from vanilla_transformer.visualization.figure import new_figure, save_figure
from vanilla_transformer.visualization.fonts import text_properties


def test_fonts_are_named_for_characters_missing_in_the_default():
    import matplotlib

    # matplotlib comes with both: cmr10, which has no Cyrillic, and DejaVu, which has.
    with matplotlib.rc_context({"font.family": ["cmr10"]}):
        assert text_properties(["plain"])["fontfamily"] == ["cmr10"]
        first, second, *_ = text_properties(["Привет"])["fontfamily"]
    assert (first, second) == ("cmr10", "DejaVu Sans")


def test_characters_without_a_font_are_named_once(tmp_path, caplog, recwarn, monkeypatch):
    def savefig(path, **options):
        for number in (27748, 22982, 27748):  # matplotlib's own warnings
            warnings.warn(f"Glyph {number} missing from font(s) DejaVu Sans.", stacklevel=1)
        path.touch()

    figure = new_figure(1, 1)
    monkeypatch.setattr(figure, "savefig", savefig)
    save_figure(figure, tmp_path / "map.png")
    (record,) = caplog.records
    assert "map.png lacks characters that no font has (2)" in record.getMessage()
    assert not recwarn.list
