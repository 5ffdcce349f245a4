"""Find installed fonts for characters that matplotlib's default font lacks.

All installed fonts are searched: a fixed list of families would leave boxes in the picture of a
Chinese, Arabic or Hindi text whenever another font for the script is installed.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any

logger = logging.getLogger(__name__)


def text_properties(texts: Iterable[str]) -> dict[str, Any]:
    """Return matplotlib options that draw texts literally: fonts for all signs, no formulas."""
    from matplotlib import rcParams

    signs = frozenset(sign for text in texts for sign in text if not sign.isspace())
    fonts = [*rcParams["font.family"], *_more_fonts(signs, tuple(rcParams["font.family"]))]
    return {"fontfamily": fonts, "parse_math": False, "usetex": False}


@lru_cache
def _more_fonts(signs: frozenset[str], default: tuple[str, ...]) -> tuple[str, ...]:
    """Return fonts for signs that the default fonts lack; warn once about signs without a font."""
    from matplotlib.font_manager import FontProperties, fontManager

    missing = set(signs)
    for family in default:
        path = fontManager.findfont(FontProperties(family=[family]))
        missing -= _drawable(path, signs)
    chosen = []
    for rescan in (False, True):
        if missing and rescan:
            _add_new_fonts()
        while missing:
            best, found = _best_font(frozenset(missing))
            if not found:
                break
            chosen.append(best)
            missing -= found
    if missing:
        _warn_once(frozenset(missing))
    return tuple(chosen)


@lru_cache
def _warn_once(missing: frozenset[str]) -> None:
    """Warn about signs that no font has; the parts of a picture ask for fonts one by one."""
    logger.warning(
        "No installed font has %d of the characters of this picture (%s); they will be boxes. "
        "Install one, such as Noto Sans CJK (Debian: fonts-noto-cjk) for Chinese, Japanese and "
        "Korean, or Symbola (fonts-symbola) for emoji, and draw again.",
        len(missing),
        " ".join(sorted(missing)[:10]),
    )


def _best_font(missing: frozenset[str]) -> tuple[str, set[str]]:
    """Return the font with most of the signs, and those it has; prefer regular, then sans serif."""
    from matplotlib.font_manager import fontManager

    best: tuple[tuple[object, ...], str, set[str]] = ((0,), "", set())
    for font in fontManager.ttflist:
        # Last Resort draws a labelled box for every character.
        if font.name.startswith("Last Resort") or font.style != "normal":
            continue
        found = _drawable(font.fname, missing)
        regular = font.weight in (400, "normal", "regular", "book")
        rank = (len(found), regular, "Sans" in font.name, "Mono" not in font.name)
        if rank > best[0]:
            best = (rank, font.name, found)
    return best[1:]


def _drawable(path: str, signs: frozenset[str]) -> set[str]:
    """Return the signs that the font in a file can draw."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(path)
    except (OSError, RuntimeError):  # listed, but since removed or not readable
        return set()
    # matplotlib cannot draw the bitmaps of colour emoji.
    return {sign for sign in signs if font.scalable and font.get_char_index(ord(sign))}


def _add_new_fonts() -> None:
    """Add fonts that were installed after matplotlib cached its list of fonts."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    known = {font.fname for font in fontManager.ttflist}
    for path in findSystemFonts():
        if path not in known:
            # matplotlib refuses some, such as colour emoji; its own scan skips them too.
            with suppress(OSError, RuntimeError):
                fontManager.addfont(path)
