"""The script that measures decoding runs, and what it writes can be read."""

import json
import runpy
import sys
from pathlib import Path

from vanilla_transformer.exporters.marian import to_marian

SCRIPT = Path(__file__).parents[1] / "training/benchmarks/decoding.py"


def test_the_script_writes_a_table_and_where_it_was_measured(tmp_path, monkeypatch, capsys):
    output = tmp_path / "results" / "decoding.json"
    options = ["--size", "tiny", "--batch-sizes", "1", "3", "--rounds", "2", "--output", output]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, options)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    results = json.loads(output.read_text())
    (table,) = results["tables"]
    assert table["columns"][0] == "Contender"
    rows = {row[0]: row[1:] for row in table["rows"]}
    assert rows["MarianMTModel.generate"][1] == rows["MarianMTModel.generate"][3] == 1
    assert all(len(row) == len(table["columns"]) for row in table["rows"])
    assert {"hardware", "versions", "commit", "date", "settings"} <= set(results)
    assert "| ours |" in capsys.readouterr().out


def test_both_sides_give_the_same_tokens():
    """The ratio compares the same work: equal hypotheses, all of full length."""
    script = runpy.run_path(str(SCRIPT))
    model = script["random_model"]("tiny").double()
    batch = script["random_batch"](5, model.config.vocab_size)
    mine = script["ours"](model)(batch)
    assert mine == script["host"](to_marian(model))(batch)
    assert {len(tokens) for tokens in mine} == {script["NEW_TOKENS"]}
