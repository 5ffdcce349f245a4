"""Fonts for characters that matplotlib's default font lacks."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

# Families that Linux distributions, macOS and Windows have for scripts that DejaVu Sans lacks.
# matplotlib takes the first of them that has a character.
_FAMILIES = (
    "DejaVu Sans",
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans SC"),
    *("WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback", "Source Han Sans SC"),
    *("PingFang SC", "Hiragino Sans GB", "Apple SD Gothic Neo", "Arial Unicode MS"),
    *("Microsoft YaHei", "SimHei", "Yu Gothic", "Malgun Gothic", "Nirmala UI", "Leelawadee UI"),
    *("Noto Sans Arabic", "Noto Naskh Arabic", "Noto Sans Hebrew", "Noto Sans Thai"),
    *("Noto Sans Devanagari", "Noto Sans Bengali", "Noto Sans Tamil", "Noto Sans Telugu"),
    *("Lohit Devanagari", "FreeSans", "FreeSerif", "Unifont", "Symbola", "Segoe UI Symbol"),
)


def text_properties(texts: Iterable[str]) -> dict[str, Any]:
    """Return matplotlib options: fonts for all characters, and no parsing of formulas."""
    from matplotlib import rcParams

    more = () if all(map(str.isascii, texts)) else _installed_families()
    fonts = list(dict.fromkeys([*rcParams["font.family"], *more]))
    return {"fontfamily": fonts, "parse_math": False, "usetex": False}


@lru_cache
def _installed_families() -> tuple[str, ...]:
    """Return which of the known font families are installed."""
    from matplotlib.font_manager import fontManager

    names = fontManager.get_font_names()
    return tuple(family for family in _FAMILIES if family in names)
