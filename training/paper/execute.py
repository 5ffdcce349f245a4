"""Build the paper's notebook in both languages from its source, and run it: `make notebook`."""

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SOURCE = FOLDER / "notebook_source.py"
LANGUAGES = ("en", "zh")


def main() -> None:
    """Run the code, which both notebooks share, and write both with what it prints and draws."""
    import nbformat  # here, so that the tests can build a notebook without Jupyter
    from nbclient import NotebookClient

    notebooks = [nbformat.from_dict(build(language)) for language in LANGUAGES]
    first = notebooks[0]
    NotebookClient(
        first,
        resources={"metadata": {"path": str(FOLDER)}},  # working directory of the kernel
        record_timing=False,
        coalesce_streams=True,  # one output for all lines that a cell prints
    ).execute()
    for language, notebook in zip(LANGUAGES, notebooks, strict=True):
        notebook.metadata = first.metadata
        for cell, ran in zip(notebook.cells, first.cells, strict=True):
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = ran.outputs, ran.execution_count
        nbformat.write(notebook, FOLDER / f"notebook.{language}.ipynb")
        print(f"wrote notebook.{language}.ipynb")


def build(language: str) -> dict[str, object]:
    """Return the notebook in one language as its file holds it, before the code is run."""
    cells = []
    for number, (kind, text) in enumerate(source_cells(language), start=1):
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def source_cells(language: str) -> list[tuple[str, str]]:
    """Return kind ("code" or "markdown") and text of each cell of the "en" or "zh" notebook."""
    _, *parts = re.split(r"^# %%(.*)\n", SOURCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    cells = []
    for mark, body in zip(parts[::2], parts[1::2], strict=True):
        if not mark:  # a command of Jupyter, such as %matplotlib, is a comment in the source
            code = re.sub(r"^# %(?=\w)", "%", body.strip("\n"), flags=re.MULTILINE)
            cells.append(("code", code))
        elif mark == f" [markdown] {language}":
            cells.append(("markdown", re.sub(r"^# ?", "", body.strip("\n"), flags=re.MULTILINE)))
    return cells


if __name__ == "__main__":
    main()
