"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def markdown_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: bool = False
) -> list[str]:
    """Return the lines of a table; large whole numbers get commas.

    Args:
        columns: headings.
        rows: cells of each row.
        right: whether to right-align all columns but the first.
    """

    def line(cells: Iterable[object]) -> str:
        return f"| {' | '.join(map(_cell, cells))} |"

    rule = ["---", *["---:" if right else "---"] * (len(columns) - 1)]
    return [line(columns), f"|{'|'.join(rule)}|", *map(line, rows)]


def _cell(value: object) -> str:
    if isinstance(value, int) and value > 9999:
        return f"{value:,}"
    return str(value).replace("|", "\\|")
