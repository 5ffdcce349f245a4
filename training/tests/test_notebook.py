"""The paper's notebook: its code once, its text in two languages, stored with its outputs."""

import csv
import json
import os
import re
import subprocess
import sys

import pytest
from execute import FOLDER, LANGUAGES, SOURCE, build, source_cells


def test_every_text_is_there_in_both_languages():
    marks = re.findall(r"^# %%(.*)\n", SOURCE.read_text(encoding="utf-8"), re.MULTILINE)
    text = [mark for mark in marks if mark]
    assert text == [f" [markdown] {language}" for language in LANGUAGES] * (len(text) // 2)
    assert [kind for kind, _ in source_cells("en")] == [kind for kind, _ in source_cells("zh")]


def test_both_languages_have_the_same_formulas():
    """Only displayed formulas are compared; the order of words may move those within the text."""
    displayed = [re.findall(r"\$\$.+?\$\$", str(source_cells(language))) for language in LANGUAGES]
    assert displayed[0] == displayed[1]
    assert len(displayed[0]) > 10


@pytest.mark.parametrize("language", LANGUAGES)
def test_stored_notebook_is_built_from_the_source_and_was_run_in_order(language):
    path = FOLDER / f"notebook.{language}.ipynb"
    stored = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in stored if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [out for out in outputs if out["output_type"] == "error"]
    assert not [out for out in outputs if out.get("name") == "stderr"]
    assert sum("image/png" in out.get("data", {}) for out in outputs) >= 8
    assert any("'Good morning.'\n" in "".join(out.get("text", [])) for out in outputs)
    for cell in stored:
        cell["source"] = "".join(cell["source"])
    for cell in code:
        cell |= {"execution_count": None, "outputs": []}
    assert stored == build(language)["cells"]
    assert path.stat().st_size < 1_500_000


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
    environment = os.environ | {"MPLBACKEND": "agg"}
    command = [sys.executable, SOURCE.name]
    done = subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "'Good morning.'\n" in done.stdout
