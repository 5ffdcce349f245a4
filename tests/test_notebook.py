"""The paper's notebook: the same code in both languages, stored with its outputs."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "training" / "paper"
LANGUAGES = ("en", "zh")


def cells(language):
    """Return kind and text of each cell of a source in jupytext's percent format."""
    text = (FOLDER / f"notebook.{language}.py").read_text(encoding="utf-8")
    _, *parts = re.split(r"^# %%(.*)\n", text, flags=re.MULTILINE)
    kinds = ["markdown" if "[markdown]" in mark else "code" for mark in parts[::2]]
    bodies = [body.strip("\n") for body in parts[1::2]]
    return list(zip(kinds, bodies, strict=True))


def notebook(language):
    return json.loads((FOLDER / f"notebook.{language}.ipynb").read_text(encoding="utf-8"))


def as_in_a_notebook(kind, body):
    if kind == "code":  # a command of Jupyter is a comment in Python
        return re.sub(r"^# %(?=\w)", "%", body, flags=re.MULTILINE)
    return re.sub(r"^# ?", "", body, flags=re.MULTILINE)


def test_both_languages_have_the_same_code():
    english, chinese = (cells(language) for language in LANGUAGES)
    assert [kind for kind, _ in english] == [kind for kind, _ in chinese]
    for (kind, one), (_, other) in zip(english, chinese, strict=True):
        assert kind == "markdown" or one == other


def test_both_languages_have_the_same_formulas():
    """Displayed formulas only; those within the text may move."""
    displayed = [re.findall(r"\$\$.+?\$\$", str(cells(language))) for language in LANGUAGES]
    assert displayed[0] == displayed[1]
    assert len(displayed[0]) > 10


@pytest.mark.parametrize("language", LANGUAGES)
def test_stored_notebook_equals_its_source_and_was_run_in_order(language):
    stored = notebook(language)["cells"]
    written = [as_in_a_notebook(kind, body) for kind, body in cells(language)]
    assert ["".join(cell["source"]) for cell in stored] == written
    run = [cell for cell in stored if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in run] == list(range(1, len(run) + 1))
    outputs = [output for cell in run for output in cell["outputs"]]
    assert not [out for out in outputs if out["output_type"] == "error"]
    assert not [out for out in outputs if out.get("name") == "stderr"]
    assert sum("image/png" in out.get("data", {}) for out in outputs) >= 8
    assert any("'Good morning.'\n" in "".join(out.get("text", [])) for out in outputs)


def test_stored_notebooks_are_small():
    for language in LANGUAGES:
        assert (FOLDER / f"notebook.{language}.ipynb").stat().st_size < 1_500_000


def test_notebook_pairs_are_few_and_attributed():
    with (FOLDER / "tatoeba_en_zh.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert len(rows) <= 200
    assert "早上好\N{FULLWIDTH EXCLAMATION MARK}" in [
        row["zh"] for row in rows if row["en"] == "Good morning."
    ]
    for row in rows:
        assert re.fullmatch(r"tatoeba\.org #\d+ \(.+\) & #\d+ \(.+\)", row["attribution"])
    assert "CC BY 2.0 FR" in (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_notebook_runs_and_its_assertions_hold():
    """Run the English source as a script; the Chinese one has the same code."""
    environment = os.environ | {"MPLBACKEND": "agg"}
    command = [sys.executable, "notebook.en.py"]
    done = subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "'Good morning.'\n" in done.stdout
