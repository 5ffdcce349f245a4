"""The speedrun: what it times, what it writes, and that its page shows its records."""

import json
import runpy
from pathlib import Path

import pytest

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.recipes.recipe import load_recipe

FOLDER = Path(__file__).parents[2] / "training" / "speedrun"


@pytest.fixture
def speedrun(tmp_path, monkeypatch):
    """Return the script's globals, with copies of its page and records, and instant trainings."""
    names = runpy.run_path(str(FOLDER / "speedrun.py"))
    script = names["main"].__globals__
    for name in ("PAGE", "RECORDS"):
        copy = tmp_path / script[name].name
        copy.write_text(script[name].read_text(encoding="utf-8"), encoding="utf-8")
        monkeypatch.setitem(script, name, copy)
    script["turns"], script["bleu"] = [], 36.0

    def timed(contender, seed, files):
        script["turns"].append((contender, seed))
        minutes = 12.0 if contender == "baseline" else 5.0 + seed
        facts = {"contender": contender, "seed": seed, "minutes": minutes, "updates": 3}
        return {**facts, "bleu": script["bleu"], "signature": "nrefs:1"}

    script["really_timed"] = script["timed"]
    monkeypatch.setitem(script, "timed", timed)
    return script


WORDS = [
    "--train-file",
    "train.jsonl",
    "--validation-file",
    "valid.jsonl",
    "--change",
    "less | more",
]


def test_block_speedrun(speedrun):
    """A record is one row: mean minutes over the seeds, and their ratio to the baseline's."""
    before = json.loads(speedrun["RECORDS"].read_text(encoding="utf-8"))
    speedrun["main"](WORDS)
    assert speedrun["turns"] == [
        ("candidate", 0), ("baseline", 0), ("candidate", 1), ("candidate", 2)
    ]  # fmt: skip
    records = json.loads(speedrun["RECORDS"].read_text(encoding="utf-8"))
    assert records[:-1] == before
    assert {"commit", "date", "hardware", "versions", "runs"} <= records[-1].keys()
    page = speedrun["PAGE"].read_text(encoding="utf-8")
    assert "| less \\| more | 6.0 | 12.0 | 0.50 | 36.0, 36.0, 36.0 | 36.0 |" in page


def test_a_mean_below_the_goal_is_no_record(speedrun):
    before = [speedrun[name].read_text(encoding="utf-8") for name in ("PAGE", "RECORDS")]
    speedrun["bleu"] = 34.99
    with pytest.raises(SystemExit, match=r"The mean BLEU is 34\.99"):
        speedrun["main"](WORDS)
    assert [speedrun[name].read_text(encoding="utf-8") for name in ("PAGE", "RECORDS")] == before


def test_page_shows_the_committed_records(speedrun):
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    records = json.loads((FOLDER / "records.json").read_text(encoding="utf-8"))
    assert speedrun["page"](page, records) == page


def test_candidate_is_the_papers_model_with_other_sizes():
    recipe = load_recipe(FOLDER / "recipe.yaml").config(vocab_size=6000).to_dict()
    base = VanillaTransformerConfig.from_preset("base").to_dict()
    sizes = {"d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim", "decoder_ffn_dim"}
    sizes |= {"encoder_attention_heads", "decoder_attention_heads", "vocab_size"}
    differing = {name for name in base if recipe[name] != base[name]}
    assert differing - sizes == {"dropout", "norm_first"}


@pytest.mark.slow
def test_a_training_is_timed_with_empty_caches(speedrun, tmp_path, monkeypatch):
    rows = [{"translation": {"en": f"the dog {n}", "de": f"der Hund {n}"}} for n in range(40)]
    for name in ("train", "valid"):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
    files = ["--train-file", str(tmp_path / "train.jsonl"), "--held-out-pairs", "0"]
    files += ["--validation-file", str(tmp_path / "valid.jsonl"), "--max-steps", "2"]
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    result = speedrun["really_timed"]("candidate", 1, files)
    assert result["updates"] == 2
    assert result["minutes"] > 0
    assert "bleu" in result
    assert not (tmp_path / "cache").exists()
