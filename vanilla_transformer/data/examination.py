"""Summary of a parallel corpus before training: counts, odd texts, the longest lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..storage.reading import printable, shortened
from .dataset import reading_report, text_blocks
from .selection import describe_report, pair_report

if TYPE_CHECKING:
    from datasets import Dataset

# Patterns of texts that are not clean sentences, in RE2's syntax.
_SIGNS = {
    "character entities": r"&(#\d+|#x[0-9a-fA-F]+|[a-zA-Z]{2,8});",
    "markup": r"</?[a-zA-Z][a-zA-Z0-9]*( [^<>]*)?/?>|\{\\an?\d",
    # UTF-8 read as Latin-1 or cp1252.
    "mojibake": r"[\x{c2}\x{c3}\x{d0}\x{d1}\x{e2}][\x{80}-\x{bf}\x{2013}-\x{20ac}]|\x{fffd}",
    "pieces of words": r"\S@@( |$)|\x{2581}| ##\S",
    "control characters": r"[\x{0}-\x{8}\x{b}\x{c}\x{e}-\x{1f}\x{7f}]",
    "spaces before punctuation": r"\S +[.,;!?]( |$)",
}
_ORDINARY = "spaces before punctuation"  # in French and in treebanks: no reason to warn
_SHOWN = 60  # characters of an example


def examine(pairs: Dataset) -> Iterator[str]:
    """Yield the lines of a summary of pairs: counts, doubtful pairs, lengths, and odd texts.

    Args:
        pairs: Data set with the columns `source` and `target`, from `load_pairs`.
    """
    report = pair_report(pairs)
    yield f"{describe_report(report)}."
    left_out = sum(report[name] for name in ("duplicates", "copies", "odd_ratios"))
    yield f"--clean would leave out {left_out} of {report['read']} pairs, and the doubtful ones:"
    yield reading_report(pairs)["doubts"]["text"] or "No pair is doubtful."
    for side in ("source", "target"):
        yield from _examine_side(pairs, side)


def odd_texts(pairs: Dataset) -> Iterator[str]:
    """Yield warnings about odd texts in a sample of a thousand training pairs.

    Args:
        pairs: Training pairs with the columns `source` and `target`.
    """
    import pyarrow.compute as pc

    table = next(text_blocks(pairs.select(range(0, len(pairs), len(pairs) // 1000 or 1))))
    for sign, pattern in _SIGNS.items():
        found = pc.or_(*(pc.match_substring_regex(side, pattern) for side in table.columns))
        # In a few texts, such characters may be intended.
        if (share := pc.mean(found).as_py()) > 0.1 and sign != _ORDINARY:
            yield f"{share:.0%} of training pairs have {sign} to repair; see the command `data`."
    yield from few_sources(table["source"].to_pylist(), "training pairs")


def few_sources(sources: Sequence[str], pairs: str) -> Iterator[str]:
    """Yield a warning if few of the sources are distinct."""
    if (count := len({*sources})) <= len(sources) / 10:
        yield f"Different sources in {len(sources)} {pairs}: only {count}."


def _examine_side(pairs: Dataset, side: str) -> Iterator[str]:
    import pyarrow.compute as pc

    texts = pairs.with_format("arrow")[:][side]

    def shown(place: int) -> str:
        return printable(shortened(texts[place].as_py(), _SHOWN))

    sizes = pc.utf8_length(texts)
    half, most = pc.quantile(sizes, q=[0.5, 0.99], interpolation="higher").to_pylist()
    longest = pc.max(sizes).as_py()
    usual = f"half of the texts have at most {half} characters, 99 of 100 at most {most}"
    text = shown(pc.index(sizes, longest).as_py())
    yield f"{side}: {usual}; the longest has {longest}: {text}"
    for sign, pattern in _SIGNS.items():
        found = pc.match_substring_regex(texts, pattern)
        if count := pc.sum(found).as_py():
            yield f"{side}: {count} with {sign}, such as: {shown(pc.index(found, True).as_py())}"
