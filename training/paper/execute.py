"""Write the notebooks of this folder from their sources, and run them: `make notebook`."""

from pathlib import Path

import jupytext
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent

for source in sorted(FOLDER.glob("notebook.*.py")):
    notebook = jupytext.read(source)
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id = f"cell-{number}"  # random by default, and different in every run
    client = NotebookClient(
        notebook,
        resources={"metadata": {"path": str(FOLDER)}},  # working directory of the kernel
        record_timing=False,
        coalesce_streams=True,  # one output for all lines that a cell prints
    )
    client.execute()
    jupytext.write(notebook, source.with_suffix(".ipynb"))
    print(f"ran {source.name}")
