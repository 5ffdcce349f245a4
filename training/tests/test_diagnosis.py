"""The page on bad runs quotes what the package logs, and the measured figures support it."""

import ast
import json
import re
from pathlib import Path

import bad_runs
import pytest
from pages import BLOCK, SMALL, run_shell

from vanilla_transformer.cli import main
from vanilla_transformer.recipes.recipe import load_recipe, shipped_recipes

pytestmark = pytest.mark.usefixtures("own_cache")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "training/diagnosis.md").read_text(encoding="utf-8")
PAIRS = [(f"{number} dogs", f"{number} Hunde") for number in range(40)]


def logged_formats():
    """Yield a pattern of the whole line for each message that the package logs."""
    for path in (ROOT / "vanilla_transformer").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = isinstance(node, ast.Call) and ast.unparse(node.func)
            if called in ("logger.info", "logger.warning") and isinstance(
                node.args[0], ast.Constant
            ):
                text = re.escape(node.args[0].value)
                yield re.compile(re.sub(r"%(\\\.\d)?[dsefg]", ".*?", text))


def test_quoted_log_lines_are_written_by_the_package():
    formats = list(logged_formats())
    blocks = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) >= 3
    for line in lines:
        text = re.fullmatch(r"\d\d:\d\d:\d\d (.+)", line)[1]
        assert any(pattern.fullmatch(text) for pattern in formats), line


def test_block_look(tmp_path, monkeypatch):
    """Run the block `look`; metrics.json also has the keys that diagnosis.md names."""
    monkeypatch.chdir(tmp_path)
    for part in ("train", "valid"):
        bad_runs.write_texts(PAIRS, tmp_path, part)
    options = ["--vocab-size", "300", "--validation-file", "valid.en,valid.de", *SMALL]
    train = ["train", "multi30k_en_de", "--train-file", "train.en,train.de", *options]
    assert main([*train, "--output-dir", "runs/mine"]) == 0
    (block,) = [text for name, _, _, text in BLOCK.findall(PAGE) if name == "look"]
    printed = run_shell(block, tmp_path)
    assert "validation: BLEU" in printed
    metrics = json.loads((tmp_path / "runs/mine/metrics.json").read_text(encoding="utf-8"))
    for key in re.findall(r"`data\.(\w+)`", PAGE):
        assert key in metrics["data"], key
    for key in ("updates", "epochs", "target_tokens_per_second"):
        assert f"`{key}`" in PAGE
        assert key in metrics
    assert "copy_baseline" in metrics["scores"]["validation"]


def test_page_gives_the_range_of_the_recipes_peak_rates():
    recipes = [load_recipe(name) for name in shipped_recipes()]
    peaks = [
        recipe.learning_rate_factor
        / (recipe.config(vocab_size=recipe.vocab_size).d_model * recipe.warmup_steps) ** 0.5
        for recipe in recipes
    ]
    told = re.search(r"peak between (\S+) \(.*?\) and (\S+) ", " ".join(PAGE.split()))
    assert [float(number) for number in told.groups()] == [
        float(f"{peak:.1e}") for peak in (min(peaks), max(peaks))
    ]


def test_every_bad_run_is_explained_on_the_page():
    emphasised = re.findall(r"^\*(.+)\.\* ", PAGE, re.MULTILINE)
    named = [name for names in emphasised for name in names.split("; ")]
    assert sorted(["healthy", *named]) == sorted(bad_runs.FAULTS)
    chinese = (ROOT / "training/diagnosis.zh-CN.md").read_text(encoding="utf-8")
    assert re.findall(r"^\*([^*]+)\*\W", chinese, re.MULTILINE) == emphasised


def measured():
    (table,) = json.loads(bad_runs.RESULTS.read_text(encoding="utf-8"))["tables"]
    return {row[0]: dict(zip(table["columns"], row, strict=True)) for row in table["rows"]}


def test_recorded_figures_support_the_page():
    runs = measured()
    assert list(runs) == list(bad_runs.FAULTS)
    training, best, last = (
        f"{which} perplexity" for which in ("training", "best validation", "last validation")
    )
    healthy = runs.pop("healthy")
    assert all(run["BLEU"] < 0.9 * healthy["BLEU"] for run in runs.values())
    late = runs["targets a line too late"]
    assert late["BLEU"] < 5
    assert late[training] > 2 * healthy[training]
    for name in ("source and target swapped", "spaces around punctuation"):
        assert runs[name][training] < 1.3 * healthy[training]
        assert runs[name][best] > 4 * healthy[best]
    few = runs["100 pairs"]
    assert few[training] < healthy[training]
    assert few[last] > few[best] > 4 * healthy[best]
    assert few["epochs"] > 100
    assert runs["short pairs alone"][best] > 2 * healthy[best]
    assert runs["warm-up beyond the end"]["BLEU"] < 5
    steep = runs["rate ten times too high"]
    assert steep["BLEU"] < 5
    assert steep[training] > steep[best]
    assert runs["270 pieces"]["epochs"] < healthy["epochs"]
