"""`compare` and `score`: sacreBLEU's significance test, the verdict, and log-probabilities."""

import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from command_line import error_of
from pages import README
from safetensors.torch import load_file, save_file
from tiny_runs import tiny_recipe, write_pairs

from vanilla_transformer import evaluation as ours
from vanilla_transformer.cli import main
from vanilla_transformer.cli.compare import _score
from vanilla_transformer.data.informal_variants import VARIANTS
from vanilla_transformer.recipes.recipe import load_recipe
from vanilla_transformer.storage.metrics import all_metrics
from vanilla_transformer.storage.saved_model import WEIGHTS, load_saved_model, load_saved_tokenizer
from vanilla_transformer.train import run_recipe
from vanilla_transformer.train.scoring import compare_runs, comparison_page, score_run

pytestmark = pytest.mark.usefixtures("own_cache")

sacrebleu = pytest.importorskip("sacrebleu", reason="comes with the extra train")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of two tiny runs: the same pairs, other weights and vocabularies."""
    folder = tmp_path_factory.mktemp("compared")
    recipe = tiny_recipe(folder, max_steps=1)
    for name, values in (("first", {}), ("second", {"seed": 1, "vocab_size": 270})):
        run_recipe(load_recipe(str(recipe), values), folder / name)
        weights = load_file(folder / name / WEIGHTS)  # so little trained, it would write nothing
        letters = load_saved_tokenizer(folder / name).convert_tokens_to_ids(list("doghuse"))
        torch.manual_seed(0)
        table = torch.randn(weights["model.shared.weight"].shape)
        table[letters] *= 4
        weights["model.shared.weight"] = table
        save_file(weights, folder / name / WEIGHTS, metadata={"format": "pt"})
    return folder


# ------------------------------------------------------------------------------- significance


def test_equal_scores_have_no_p_value():
    same = [f"word {number}" for number in range(120)]
    rows, _ = ours.paired_bootstrap([same, same], same[::-1], target_language="de", num_samples=5)
    assert rows[1]["bleu"].p_value is rows[1]["chrf"].p_value is None


def test_the_verdict_is_by_each_measure_and_warns_of_few_sentences():
    base = {name: ours.SystemScore(30.0, None) for name in ("bleu", "chrf", "exact_match", "wer")}
    given = {"bleu": (1.23, 0.002), "chrf": (0.1, 0.4), "exact_match": (0, None), "wer": (2, 0.01)}
    row = {name: ours.SystemScore(30 + by, chance) for name, (by, chance) in given.items()}
    none = "no significant difference"
    said = (
        f"+1.2 BLEU (p = 0.002), better; +0.1 chrF (p = 0.400), {none}; +0.0 exact match, {none}; "
        "+2.0 token error rate (p = 0.010), worse."
    )
    assert ours.verdict(base, row, 100) == said
    assert ours.verdict(base, row, 99) == f"{said} Too few sentences: take 100 or more."


def test_most_different_sentences_come_first_and_equal_ones_never():
    references = ["one two three", "four five six", "seven eight", "nine"]
    first = ["one two three", "four five", "seven eight", "nine"]
    second = ["x", "four five six", "seven eight", "nine"]
    found = ours.most_different([first, second], references)
    assert [index for index, _ in found] == [0, 1]
    assert found[0][1][0] == 100 > found[0][1][1]
    assert found[1][1][1] == sacrebleu.sentence_chrf("four five six", ["four five six"]).score
    assert len(ours.most_different([first, second], references, count=1)) == 1


# ------------------------------------------------------------------------------------ compare


def test_compare_prints_a_table_and_writes_a_page(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    page = tmp_path / "page.md"
    test = write_pairs(tmp_path / "test.jsonl", 12, 5)
    command = ["compare", "first", "second", "--test-file", test, "--output", str(page)]
    assert main([*command, "--num-beams", "2"]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines[2] == "- Recipe, first -> second: vocab_size: 280 -> 270; seed: 0 -> 1."
    assert "## test, 12 sentences" in lines
    start = next(n for n, line in enumerate(lines) if line.startswith("    "))
    table = lines[start : start + 3]
    assert table[0].split()[:4] == ["BLEU", "chrF", "exact", "match"]
    assert [line.split()[0] for line in table[1:]] == ["first", "second"]
    assert len({len(line) for line in table}) == 1
    assert "- second against first: " in printed
    assert "Too few sentences" in printed
    text = page.read_text(encoding="utf-8")
    assert text.startswith(printed[: printed.index("    reference")])
    assert len(re.findall("^    reference ", text, re.MULTILINE)) > 3
    assert len(re.findall("^    reference ", printed, re.MULTILINE)) == 3


def test_other_searches_are_noted(folder, tmp_path):
    run = shutil.copytree(folder / "first", tmp_path / "run")
    config = run / "generation_config.json"
    shipped = {**json.loads(config.read_text()), "length_penalty": 1.5, "early_stopping": True}
    config.write_text(json.dumps(shipped), encoding="utf-8")
    same, other = (
        comparison_page(compare_runs([run, path], num_beams=2)) for path in (run, folder / "first")
    )
    assert "- Search" not in same
    assert "length_penalty: 1.5 -> 0.6; early_stopping: True -> False." in other


def test_scores_of_typed_sources_are_shown_if_asked_for(folder, capsys):
    command = ["compare", str(folder / "first"), str(folder / "second"), "--num-beams", "1"]
    assert main(command) == 0
    assert "people type" not in capsys.readouterr().out
    assert main([*command, "--robustness"]) == 0
    printed = capsys.readouterr().out
    assert "BLEU on sources as people type them, without regard to case:" in printed
    for form in VARIANTS:
        assert re.search(rf"^    {form} +[\d.]+ +[\d.]+$", printed, re.MULTILINE), form


def test_held_out_pairs_of_a_changed_file_are_not_tested_on(tmp_path, capsys):
    pairs = Path(write_pairs(tmp_path / "pairs.jsonl", 60, 9))
    recipe = tiny_recipe(tmp_path, max_steps=1)
    values = {"train_file": str(pairs), "held_out_pairs": 3}
    none = dict.fromkeys(("validation_file", "test_file"))
    recipe = dataclasses.replace(load_recipe(str(recipe), values), **none)
    run_recipe(recipe, tmp_path / "run")
    assert score_run(tmp_path / "run")["test"]["num_sentences"] == 3
    capsys.readouterr()  # what the run has logged
    columns = ("--source-column", "de", "--target-column", "en")
    line = error_of(capsys, "evaluate", tmp_path / "run", *columns)
    assert "are read differently now (source_column, target_column); give --test-file" in line
    pairs.unlink()
    line = error_of(capsys, "compare", tmp_path / "run", tmp_path / "run")
    assert f"differently now (train: no longer {pairs.name}); give --test-file" in line


def test_runs_with_different_test_pairs_or_languages_are_refused(folder, tmp_path, capsys):
    other = tmp_path / "other"
    shutil.copytree(folder / "second", other)
    recipe = (other / "recipe.yaml").read_text(encoding="utf-8")
    test = write_pairs(tmp_path / "test.jsonl", 10, 7)
    (other / "recipe.yaml").write_text(recipe.replace(str(folder / "test.jsonl"), test), "utf-8")
    line = error_of(capsys, "compare", folder / "first", other)
    assert f"test pairs of {folder / 'first'} and {other} differ; give --test-file" in line
    assert compare_runs([folder / "first", other], test_file=test)[1].results["test"]
    Path(test).unlink()
    line = error_of(capsys, "compare", folder / "first", other)
    assert f"test_file: got '{test}'; there is no such file" in line
    recipe = recipe.replace("source_language: de", "source_language: en")
    recipe = recipe.replace("target_language: en", "target_language: de")
    (other / "recipe.yaml").write_text(recipe, encoding="utf-8")
    assert "Languages or test pairs" in error_of(capsys, "compare", folder / "first", other)
    assert "give two or more" in error_of(capsys, "compare", folder / "first")


# -------------------------------------------------------------------------------------- score


def test_score_prints_each_score_on_the_line_of_its_pair(folder, tmp_path, capsys, monkeypatch):
    texts = {"de": ["", "ein Hund", "alt und Haus", "Haus", " ", "Haus " * 5000]}
    texts["en"] = ["a", "a dog", "old and house", "house", "old", "house"]
    for language, lines in texts.items():
        text = "".join(f"{line}\n" for line in lines)
        (tmp_path / f"pairs.{language}").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vanilla_transformer.translation.many_texts.WINDOW", 2)

    def scores(*options):
        assert main(["score", str(folder / "first"), *options]) == 0
        return capsys.readouterr()

    found = scores("pairs.de,pairs.en")
    lines = found.out.split("\n")
    assert [bool(line) for line in lines] == [False, True, True, True, False, False, False]
    assert "Invalid pairs: 3; first pairs.de and pairs.en:1" in found.err
    model = load_saved_model(folder / "first")
    tokenizer = load_saved_tokenizer(folder / "first")
    pairs = list(zip(*texts.values(), strict=True))[1:4]
    expected = list(ours.log_probabilities(model, tokenizer, pairs))
    printed = [float(line) for line in lines[1:4]]
    assert printed == pytest.approx([one.log_probability for one in expected], abs=1e-5)
    (tmp_path / "long.de").write_text("Hund\n" + "Haus " * 5000)
    (tmp_path / "long.en").write_text("dog\nhouse")
    assert "Invalid pairs: 1; first pair 2: Input 2 has" in scores("long.de,long.en").err
    means = [float(line) for line in scores("pairs.de,pairs.en", "--per-token").out.split()]
    expected = [one.log_probability / one.target_tokens for one in expected]
    assert means == pytest.approx(expected, abs=1e-5)


def test_score_evaluate_and_compare_read_columns_of_a_table(folder, tmp_path, capsys):
    pairs = [("ein Hund", "a dog"), ("Haus", "house")]
    (tmp_path / "pairs.jsonl").write_text(
        "\n".join(json.dumps({"de": de, "en": en}) for de, en in pairs), encoding="utf-8"
    )
    lines = ["no\tEnglish\tGerman", *(f"{n}\t{en}\t{de}" for n, (de, en) in enumerate(pairs))]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines), encoding="utf-8")
    columns = ["--source-column", "German", "--target-column", "English"]

    def printed(command, file, *options):
        file = str(tmp_path / file)
        runs = [str(folder / "first")] + [str(folder / "second")] * (command == "compare")
        test = [file] if command == "score" else ["--test-file", file]
        assert main([command, *runs, *test, *options]) == 0
        return capsys.readouterr().out

    for command in ("score", "evaluate"):
        assert printed(command, "pairs.tsv", *columns) == printed(command, "pairs.jsonl")
    assert len(printed("score", "pairs.jsonl", "--pair", "en-de").split()) == 2
    assert "house" in printed("compare", "pairs.tsv", *columns)
    line = error_of(capsys, "score", folder / "first", tmp_path / "pairs.tsv", *columns[:2])
    assert "give two different ones" in line
    with pytest.raises(ValueError, match="Got d_model; options of a test: pair, test_file"):
        score_run(folder / "first", d_model=4)


@pytest.mark.parametrize("page", ["help", "README"])
def test_documented_filter_command_keeps_likely_pairs(page, tmp_path):
    text = README
    if page == "help":
        text = _score.__doc__.replace("\\\n", "\n")
    command = re.search(r"paste - [^}]*}'", text)[0]
    files = {"scores": "\n-2.5\n-3.5\n-1\n"}
    files |= {"pairs.en": "a\nb\nc\nd e\n", "pairs.de": "A\nB\nC\nD E\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    subprocess.run(["bash", "-euc", f"cat scores | {command}"], cwd=tmp_path, check=True)
    assert (tmp_path / "kept.en").read_text() == "b\nd e\n"
    assert (tmp_path / "kept.de").read_text() == "B\nD E\n"


# -------------------------------------------------------------------- evaluate: more than scores


def test_evaluation_gives_other_kinds_of_bleu_and_the_texts(folder, tmp_path, capsys):
    line = error_of(capsys, "evaluate", folder / "first", "--output", tmp_path / "a.csv")
    assert "write scores to .json, texts to .jsonl." in line
    pytest.importorskip("sacremoses", reason="comes with the extra import")
    rows = [{"de": "ein\tHund", "en": "a \\ dog\nx"}, {"de": "Haus", "en": "house"}]
    test = tmp_path / "test.jsonl"
    test.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    texts = tmp_path / "texts.jsonl"
    command = ["evaluate", str(folder / "first"), "--test-file", str(test)]
    assert main([*command, "--metric", "tokenized_bleu,compound_bleu", "--output", str(texts)]) == 0
    printed = capsys.readouterr().out
    assert "tokenized_bleu compound_bleu" in printed
    assert "tokenized BLEU: nrefs:1|case:lc" in printed
    assert "|compounds:split" in printed
    result = score_run(folder / "first", test_file=str(test))["test"]
    for line, row, hypothesis in zip(texts.open(), rows, result["hypotheses"], strict=True):
        found = {"source": row["de"], "hypothesis": hypothesis, "reference": row["en"]}
        assert json.loads(line) == found | {"test_set": "test"}
    # The same test pairs can be read from there.
    names = {"source_column": "source", "target_column": "reference"}
    again = score_run(folder / "first", test_file=str(texts), **names)["test"]
    for side in ("sources", "references", "hypotheses"):
        assert again[side] == result[side]


def test_scores_join_what_a_models_own_metrics_say(folder, tmp_path, capsys):
    run = shutil.copytree(folder / "first", tmp_path / "run")
    before = all_metrics(run / "metrics.json")
    words = ["evaluate", str(run), "--num-beams", "1", "--robustness", "--output"]
    assert main([*words, str(run / "metrics.json"), "--overwrite"]) == 0
    after = all_metrics(run / "metrics.json")
    assert set(after["scores"]["test"]["robustness"]) == {*VARIANTS}
    assert after["scores"]["validation"] == before["scores"]["validation"]
    for name in before.keys() - {"scores", "model_files"}:
        assert after[name] == before[name], name
    assert main([*words, str(tmp_path / "other.json")]) == 0
    assert "recipe" not in all_metrics(tmp_path / "other.json")
