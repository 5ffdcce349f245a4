"""Runs on pairs that are no translations: letters to phonemes, with measures of their own."""

import dataclasses
import json
import sys
import types
from pathlib import Path

import pytest
from tiny_runs import tiny_recipe

from vanilla_transformer.cli import main
from vanilla_transformer.evaluation import corpus_scores
from vanilla_transformer.recipes.data import evaluation_sets, training_pairs
from vanilla_transformer.recipes.recipe import load_recipe
from vanilla_transformer.recipes.testing import shared_with_training
from vanilla_transformer.storage.saved_model import load_saved_model, load_saved_tokenizer
from vanilla_transformer.target_tokenizer import target_tokenizer
from vanilla_transformer.train import run_recipe
from vanilla_transformer.translation import translate

WORDS = {"cat": ["K AE T"], "read": ["R EH D", "R IY D"], "at": ["AE T"], "rack": ["R AE K"]}


def write_words(path, words):
    rows = [f"{word}\t{each}\n" for word in words for each in WORDS[word]]
    path.write_text("letters\tphonemes\n" + "".join(rows))
    return str(path)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    return tiny_recipe(
        folder,
        pair="letters-phonemes",
        train_file=write_words(folder / "train.tsv", [*WORDS] * 30),
        validation_file=write_words(folder / "valid.tsv", ["read", "at"]),
        test_file=write_words(folder / "test.tsv", ["read", "cat", "rack"]),
        tokenizer="bytes,symbols",
        several_references="true",
        metric="exact_match,wer",
        max_steps=60,
        warmup_steps=20,
        learning_rate_factor=3,
        trainer={"save_steps": 10, "eval_steps": 10},
        choose_on_validation="true",
    )


def test_a_test_pair_among_the_training_pairs_is_told_by_any_reference(recipe, tmp_path, caplog):
    values = load_recipe(str(recipe))
    only_second = tmp_path / "train.tsv"
    only_second.write_text("letters\tphonemes\nread\tR IY D\nat\tAE\n")
    sets = {"test": evaluation_sets(values)["test"]}
    training = training_pairs(dataclasses.replace(values, train_file=str(only_second)))
    assert shared_with_training(values, training, sets) == {"test": 1}


@pytest.fixture(scope="module")
def run(recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "letters"
    return folder, run_recipe(load_recipe(str(recipe)), folder)


def test_written_texts_have_all_references_and_are_read_back(run, tmp_path, capsys):
    folder, metrics = run
    texts = tmp_path / "texts.jsonl"
    assert main(["evaluate", str(folder), "--output", str(texts)]) == 0
    rows = [json.loads(line) for line in texts.read_text().splitlines()]
    assert [(row["source"], row["reference"]) for row in rows] == [
        (word, each) for word in ("read", "cat", "rack") for each in WORDS[word]
    ]
    columns = ["--source-column", "source", "--target-column", "reference"]
    scores = tmp_path / "scores.json"
    again = ["evaluate", str(folder), "--test-file", str(texts), *columns, "--output", str(scores)]
    assert main(again) == 0
    found = json.loads(scores.read_text())["scores"]["test"]
    assert found == {name: metrics["scores"]["test"][name] for name in found}


def test_a_run_is_scored_by_the_measures_of_its_recipe(run):
    folder, metrics = run
    model, tokenizer = load_saved_model(folder), load_saved_tokenizer(folder)
    assert model.config.vocab_size == 260
    assert model.config.decoder_vocab_size == len(target_tokenizer(tokenizer)) == 4 + 7
    found = metrics["scores"]["test"]
    assert found["num_sentences"] == 3  # each word once
    outputs = list(translate(model, tokenizer, ["read", "cat", "rack"], num_beams=1))
    expected = corpus_scores(
        outputs,
        [WORDS["read"], WORDS["cat"], WORDS["rack"]],
        target_language="phonemes",
        measures=["exact_match", "wer"],
    )
    assert {name: found[name] for name in expected} == expected
    assert "bleu" not in found
    assert found["wer"] < 100
    assert metrics["chosen_on_validation"]["measure"] == "exact_match"
    heading = (folder / "history.tsv").read_text().splitlines()[0].split("\t")
    assert {"eval_exact_match", "eval_wer"} <= {*heading}
    assert "eval_bleu" not in heading


def test_without_languages_the_sides_are_source_and_target(tmp_path, capsys):
    recipe = tiny_recipe(tmp_path, pair="x-y", tokenizer="symbols", metric="wer")
    text = recipe.read_text().replace("pair: x-y\n", "")
    rows = "".join(f"{a} b\tB {c}\n" for a, c in zip("acdefghij" * 9, "ACDEFGHIJ" * 9, strict=True))
    (tmp_path / "rows.tsv").write_text("source\ttarget\n" + rows)
    for split in ("train", "validation", "test"):
        text = text.replace(f"{tmp_path / split}.jsonl", f"{tmp_path / 'rows.tsv'}")
    recipe.write_text(text)
    assert main(["train", str(recipe), "--output-dir", str(tmp_path / "run")]) == 0
    written = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert written["recipe"]["source_language"] is None
    assert "wer" in written["scores"]["test"]
    assert main(["score", str(tmp_path / "run"), str(tmp_path / "rows.tsv")]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 81


def test_new_symbols_of_a_test_set_are_counted(recipe, tmp_path, caplog):
    test = tmp_path / "test.tsv"
    test.write_text("letters\tphonemes\ncat\tK ZH T\nat\tNG T\n")
    values = {"test_file": str(test), "max_steps": 1}
    run_recipe(load_recipe(str(recipe), values), tmp_path / "run")
    assert "lacks 2 of 7 target tokens of the test set, which become <unk>" in caplog.text
    assert "source tokens of the test set" not in caplog.text


def test_early_stopping_watches_a_measure(recipe, tmp_path, caplog):
    caplog.set_level("INFO")
    values = {
        "trainer": {"early_stopping_patience": 1, "early_stopping_on": "wer"},
        "learning_rate_factor": 1e-9,
    }
    metrics = run_recipe(load_recipe(str(recipe), values), tmp_path / "run")
    assert metrics["updates"] == 20  # the second evaluation is no better than the first
    assert "token error rate has not improved in 1 evaluation." in caplog.text


# ------------------------------------------------------------------------------ the page


def test_block_cmudict(documented_code, monkeypatch):
    entries = [(f"word{'abc'[i % 3] * i}", ["K", "AE1", "T"]) for i in range(1, 15001)]
    entries += [("a", ["AH0"]), ("a", ["EY1"]), ("a", ["EY2"]), ("can't", ["K"])]
    module = types.ModuleType("cmudict")
    module.entries = lambda: [(word.replace("0", ""), sounds) for word, sounds in entries]
    monkeypatch.setitem(sys.modules, "cmudict", module)
    documented_code("cmudict")
    rows = {
        name: [line.split("\t") for line in Path(f"{name}.tsv").read_text().splitlines()[1:]]
        for name in ("train", "valid", "test")
    }
    words = [{word for word, _ in found} for found in rows.values()]
    assert sum(map(len, words)) == len(set.union(*words))  # no word is in two
    assert [len(found) for found in words[1:]] == [2500, 12000]
    assert sorted(each for found in rows.values() for each in found if each[0] == "a") == [
        ["a", "AH"], ["a", "EY"]
    ]  # fmt: skip


def test_block_evaluate_module(documented_code, capsys):
    pytest.importorskip("evaluate", reason="comes with the extra train")
    documented_code("evaluate_module")
    assert capsys.readouterr().out == "25.0\n"


def test_block_measures(run, documented_command, capsys):
    folder, _ = run
    Path("runs").mkdir()
    Path("runs/g2p").symlink_to(folder)
    documented_command("measures")
    assert "character error rate: nrefs:var" in capsys.readouterr().out
