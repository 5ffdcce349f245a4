"""Tables in Markdown."""

import re
from collections.abc import Iterable, Sequence


def markdown_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: bool = False
) -> list[str]:
    """Return the lines of a Markdown table; whole numbers above 9999 get commas.

    Args:
        columns: Headings.
        rows: Cells of each row.
        right: Whether to right-align columns of numbers.
    """
    rows = [*rows]

    def line(cells: Iterable[object]) -> str:
        return f"| {' | '.join(map(_cell, cells))} |"

    rule = ["---:" if right and _are_numbers(cells) else "---" for cells in zip(*rows, strict=True)]
    rule = rule or ["---"] * len(columns)
    return [line(columns), f"|{'|'.join(rule)}|", *map(line, rows)]


def _are_numbers(cells: Iterable[object]) -> bool:
    """Return whether all cells that are not empty are numbers, with a unit or without."""
    texts = [text for text in map(str, cells) if text]
    return bool(texts) and all(re.match(r"[-+]?\d", text) for text in texts)


def _cell(value: object) -> str:
    if isinstance(value, int) and value > 9999:
        return f"{value:,}"
    return str(value).replace("|", "\\|")
