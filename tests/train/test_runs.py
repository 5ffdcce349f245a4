"""Run directories: trained from a recipe, complete, resumable, and locked against other runs."""

import dataclasses
import hashlib
import json
import math
import os
import re
import shutil
import types
from pathlib import Path

import datasets
import huggingface_hub
import pytest
import torch
from command_line import error_of
from safetensors.torch import load_file
from tiny_runs import TRAINER, WORDS, tiny_recipe, write_pairs
from transformers import AutoModelForSeq2SeqLM, GenerationConfig

from vanilla_transformer.cli import main
from vanilla_transformer.errors import RequestError
from vanilla_transformer.evaluation import corpus_scores
from vanilla_transformer.evaluation.scores import without_texts
from vanilla_transformer.fast import shortlist
from vanilla_transformer.machine import environment
from vanilla_transformer.recipes import planning
from vanilla_transformer.recipes.data import TextPairs, evaluation_sets
from vanilla_transformer.recipes.options import Evaluation
from vanilla_transformer.recipes.plan import settings_as_yaml
from vanilla_transformer.recipes.planning import plan_run
from vanilla_transformer.recipes.recipe import load_recipe
from vanilla_transformer.storage.metrics import all_metrics, write_metrics
from vanilla_transformer.storage.run_files import digests
from vanilla_transformer.storage.saved_model import MODEL, RECORDED
from vanilla_transformer.train import averaging, run_directory, run_inputs, run_recipe
from vanilla_transformer.train import run as runs
from vanilla_transformer.train import trainer as trainer_module
from vanilla_transformer.train.averaging import average_checkpoints, mean_of_weights
from vanilla_transformer.train.run_directory import check_shared, training_lock
from vanilla_transformer.train.scoring import score_run

pytestmark = pytest.mark.usefixtures("own_cache")


# The files of a finished run.
RUN_DIRECTORY = {
    *("config.json", "generation_config.json", "model.safetensors"),
    *("tokenizer.json", "tokenizer_config.json", "recipe.yaml", "checkpoints"),
    *("metrics.json", "curves.png", "samples.md", "attention.png", "history.tsv"),
    *("hypotheses.validation.txt", "hypotheses.test.txt"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    recipe = load_recipe(str(tiny_recipe(folder, trainer={"eval_steps": 3})))
    return recipe, folder / "run", run_recipe(recipe, folder / "run")


def refuse_to_train(*args, **kwargs):
    raise AssertionError("there was nothing left to train")


@pytest.fixture
def copied(finished, tmp_path):
    """Return recipe, directory and metrics of a copied complete run that a test may damage."""
    recipe, run, metrics = finished
    shutil.copytree(run, tmp_path / "run")
    return recipe, tmp_path / "run", metrics


@pytest.fixture
def unfinished(copied, monkeypatch):
    """Return the same for a run that has done all updates but was killed before the end."""
    recipe, run, metrics = copied
    (run / "metrics.json").unlink()
    monkeypatch.setattr(runs.VanillaTransformerTrainer, "train", refuse_to_train)
    return recipe, run, metrics


def test_run_holds_the_documented_files_and_the_mean_of_the_last_checkpoints(finished, tmp_path):
    _, run, metrics = finished
    assert {path.name for path in run.iterdir()} == RUN_DIRECTORY
    assert metrics["averaged_checkpoints"] == ["checkpoint-6", "checkpoint-9"]
    folders = [run / "checkpoints" / name for name in metrics["averaged_checkpoints"]]
    average_checkpoints(folders, tmp_path)
    weights = (tmp_path / "model.safetensors").read_bytes()
    assert weights == (run / "model.safetensors").read_bytes()


def test_metrics_describe_scores_data_versions_and_hardware(finished):
    recipe, run, metrics = finished
    assert all_metrics(run / "metrics.json") == metrics
    assert set(metrics["scores"]) == {"validation", "test"}
    for scores in metrics["scores"].values():
        assert math.isfinite(scores["perplexity"])
        assert "tok:13a" in scores["bleu_signature"]
        assert scores["num_sentences"] == 10
    model = AutoModelForSeq2SeqLM.from_pretrained(run)
    assert metrics["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert (metrics["updates"], metrics["seed"], metrics["devices"]) == (9, 0, 1)
    assert metrics["target_tokens"] > 0
    assert metrics["target_tokens_per_second"] > 0
    assert metrics["training_minutes"] > 0
    data = dict(metrics["data"])
    files = data.pop("files")
    assert data == {
        **{"train_pairs": 120, "train_pairs_kept": 120, "validation_pairs": 10},
        "shared_with_training": {"test": 1},
        **{"train_malformed": 0, "train_empty": 0, "train_too_long": 0},
        **{"train_duplicates": 5, "train_copies": 0, "train_odd_ratios": 0, "held_out_pairs": 0},
    }
    digest = hashlib.sha256((run.parent / "train.jsonl").read_bytes()).hexdigest()
    assert files["train"] == {"train.jsonl": digest}
    assert set(files) == {"train", "validation", "test"}
    assert {"torch", "transformers", "python"} <= set(metrics["versions"])
    assert metrics["hardware"]["cores"] > 0
    assert metrics["recipe"] == json.loads(json.dumps(dataclasses.asdict(recipe)))


def test_all_translations_and_the_whole_log_are_kept(finished):
    _, run, metrics = finished
    for name in ("validation", "test"):
        pairs = (run.parent / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        references = [json.loads(line)["translation"]["en"] for line in pairs]
        hypotheses = (run / f"hypotheses.{name}.txt").read_text("utf-8").splitlines()
        assert len(hypotheses) == len(references) == 10
        scores = corpus_scores(hypotheses, references, target_language="en")
        assert scores["chrf"] == pytest.approx(metrics["scores"][name]["chrf"], abs=1e-6)
    rows = (run / "history.tsv").read_text(encoding="utf-8").splitlines()
    names, *rows = [row.split("\t") for row in rows]
    state = run / "checkpoints" / "checkpoint-9" / "trainer_state.json"
    history = json.loads(state.read_text(encoding="utf-8"))["log_history"]
    assert {"loss", "eval_loss", "eval_training_loss", "eval_bleu", "learning_rate"} <= {*names}
    for entry in history:
        (row,) = [row for row in rows if row[0] == str(entry["step"])]
        kept = {name: float(text) for name, text in zip(names, row, strict=True) if text}
        assert {name: kept[name] for name in entry} == pytest.approx(entry, rel=1e-9)


def test_a_run_without_test_pairs_is_scored_on_validation_pairs(tmp_path):
    """Its checkpoints come after each quarter of its updates."""
    quarters = {"trainer": {"save_steps": 0.25}, "max_steps": 8}
    recipe = load_recipe(str(tiny_recipe(tmp_path, test_file="null", **quarters)))
    metrics = run_recipe(recipe, tmp_path / "run")
    assert metrics["averaged_checkpoints"] == ["checkpoint-6", "checkpoint-8"]
    again = score_run(tmp_path / "run")
    assert without_texts(again) == metrics["scores"]
    assert list(metrics["samples"]) == list(metrics["scores"]) == ["validation"]
    assert metrics["data"]["held_out_pairs"] == 0


def test_same_command_again_does_nothing(finished, monkeypatch):
    recipe, run, metrics = finished
    monkeypatch.setattr(run_inputs, "training_pairs", refuse_to_train)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert run_recipe(recipe, run) == metrics
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_finished_stages_are_not_repeated_on_another_machine(unfinished, monkeypatch):
    """The metrics name the machine that trained."""
    recipe, run, metrics = unfinished
    before = {name: (run / name).read_bytes() for name in MODEL if (run / name).is_file()}
    (run / "model.safetensors").unlink()
    (run / "generation_config.json").write_text("noise")
    monkeypatch.setattr(run_inputs, "make_tokenizer", refuse_to_train)
    for module in (trainer_module, environment):
        monkeypatch.setattr(module, "hardware", lambda: {"cpu": "another", "cores": 1})
        monkeypatch.setattr(module, "git_commit", lambda: "later")
    other = {"fp32": "bf16", "bf16": "fp32"}[metrics["precision"]]
    monkeypatch.setattr(planning, "resolve_precision", lambda _: other)
    again = run_recipe(recipe, run)
    for name in ("scores", "hardware", "git_commit", "precision", "devices"):
        assert again[name] == metrics[name]
    assert {name: (run / name).read_bytes() for name in before} == before


def test_averaging_from_warmup_warns_and_can_be_redone(unfinished, caplog):
    recipe, run, metrics = unfinished
    again = run_recipe(recipe, run)
    assert again["scores"] == metrics["scores"]
    assert "begin at update 6, before the end of warm-up at 10" in str(again["warnings"])
    last = run_recipe(dataclasses.replace(recipe, checkpoints_to_average=1), run)
    assert last["averaged_checkpoints"] == ["checkpoint-9"]
    assert "(checkpoints_to_average: 2 -> 1), which replaces its model" in caplog.text
    assert last["scores"] != metrics["scores"]
    assert "may translate better" not in str(last["warnings"])


def test_scores_say_what_is_not_as_in_the_run(copied, tmp_path, caplog):
    """Other pairs, pairs that it was trained on, other languages, and another model."""
    recipe, run, metrics = copied
    for name in ("train", "test"):
        file = shutil.copy(getattr(recipe, f"{name}_file"), tmp_path)
        recipe = dataclasses.replace(recipe, **{f"{name}_file": str(file)})
    (run / "recipe.yaml").write_text(settings_as_yaml(vars(recipe)), encoding="utf-8")
    write_metrics(run / "metrics.json", metrics | {"model_files": digests(run, RECORDED)})

    def told(**options):
        caplog.clear()
        score_run(run, **options)
        return caplog.messages

    train = Path(recipe.train_file).read_text(encoding="utf-8").splitlines(keepends=True)
    test = Path(recipe.test_file).read_text(encoding="utf-8").splitlines(keepends=True)
    own = [line for line in test if line not in train]
    assert f"The training pairs contain {len(test) - len(own)} of {len(test)} test" in told()[0]
    mixed = str(tmp_path / "mixed.jsonl")
    Path(mixed).write_text("".join([*own[:3], *train[:2]]), encoding="utf-8")
    (shared,) = told(test_file=mixed)
    assert shared.startswith("The training pairs contain 2 of 5 test pairs")
    Path(mixed).write_text("".join(own), encoding="utf-8")
    assert told(test_file=mixed) == []
    languages, swapped, *_ = told(test_file=mixed, pair="en-de")
    assert "with the two sides swapped" in swapped
    assert languages == f"The languages differ from those of {run}: languages: 'de-en' -> 'en-de'."
    Path(recipe.train_file).write_text("".join(train[1:]), encoding="utf-8")
    (unknown,) = told(test_file=mixed)
    Path(recipe.test_file).write_text("".join(own), encoding="utf-8")
    assert f"The test pairs differ from those of {run}: test: test.jsonl changed." in told()
    assert unknown.startswith(f"Test pairs were not compared with the training pairs of {run}: ")
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "note": 1}))
    changed, *_ = told()
    assert changed == f"config.json changed since {run} was written or scored."
    (run / "recipe.yaml").unlink()  # as in a published model, whose metrics say the languages
    assert languages in told(test_file=mixed, pair="en-de")


@pytest.mark.parametrize("early", [False, True])
def test_average_and_penalty_are_chosen_on_validation_pairs(unfinished, monkeypatch, caplog, early):
    """With the rule for ending a search that the model is published with."""
    caplog.set_level("INFO", logger="vanilla_transformer")
    recipe, run, before = unfinished
    folders = [run / "checkpoints" / name for name in ("checkpoint-6", "checkpoint-9")]
    means = [mean_of_weights(folders[-count:])["model.shared.weight"] for count in (1, 2)]
    searched = []

    def translations(model, tokenizer, sources, **search):
        weight = model.state_dict()["model.shared.weight"]
        (count,) = [1 + i for i, mean in enumerate(means) if torch.equal(weight, mean)]
        searched.append((count, search))
        # The last checkpoint alone and a penalty of 1 have the fewest wrong translations.
        wrong = {None: count, 1.0: 1, 1.3: 2, 2.0: 2}.get(search.get("length_penalty"), 3)
        right = [" ".join(WORDS[word] for word in source.split()) for source in sources]
        return ["nothing at all like that"] * wrong + right[wrong:]

    monkeypatch.setattr(averaging, "translate", translations)
    changes = {"num_beams": 2, "length_penalty": 1.3, "stop_search_early": early}
    metrics = run_recipe(dataclasses.replace(recipe, choose_on_validation=True, **changes), run)
    search = {"num_beams": 2, "early_stopping": early}
    tried = (1.3, 1.0, 1.5, 2.0, 3.0) if early else (1.3, 0.6, 1.0, 1.5)
    beams = [(1, {**search, "length_penalty": each}) for each in tried]
    assert searched == [(2, {"num_beams": 1}), (1, {"num_beams": 1}), *beams]
    chosen = metrics["chosen_on_validation"]
    assert (chosen["pairs"], chosen["length_penalty"]) == (10, 1.0)
    assert chosen["averaged"] == 1
    assert chosen["greedy"].keys() == {"1", "2"}
    assert chosen["beam"]["1"] == max(chosen["beam"].values()) < 100
    assert metrics["averaged_checkpoints"] == ["checkpoint-9"]
    assert torch.equal(load_file(run / "model.safetensors")["model.shared.weight"], means[0])
    assert GenerationConfig.from_pretrained(run).length_penalty == 1.0
    told = "the last 1 checkpoint comes within 0.5 of the best score, and averaging more does not."
    assert told in caplog.text
    least = "1" if early else "0.6"
    assert f"length penalty 1 is best. With 2 beams, BLEU by penalty: {least}: " in caplog.text
    assert "warm-up" not in caplog.text
    assert before["scores"]["test"]["copy_baseline"] == metrics["scores"]["test"]["copy_baseline"]


@pytest.mark.parametrize(("difference", "averaged"), [(0.4, 2), (0.6, 1)])
@pytest.mark.parametrize("name", ["bleu", "wer"])
def test_mean_of_more_wins_if_scores_are_close(unfinished, monkeypatch, name, difference, averaged):
    _, run, _ = unfinished
    scores = iter([50.0, 50.0 + difference if name == "bleu" else 50.0 - difference])
    monkeypatch.setattr(averaging, "translate", lambda *_, **__: [])
    monkeypatch.setattr(averaging, "corpus_scores", lambda *_, **__: {name: next(scores)})
    folders = [run / "checkpoints" / f"checkpoint-{number}" for number in (6, 9)]
    plan, pairs = Evaluation(metric=name, num_beams=1), TextPairs(["ein"], ["a"])
    chosen, _ = averaging.choose_on_validation_pairs(folders, pairs, plan, "en")
    assert chosen["averaged"] == averaged


def test_the_smallest_shortlist_that_hardly_costs_quality_is_saved(unfinished, monkeypatch):
    monkeypatch.setattr(shortlist, "USUAL", (8, 30, 60))
    recipe, run, _ = unfinished
    wrong = {8: 1, 30: 0, 60: 0}

    def translations(model, tokenizer, sources, **search):
        used = shortlist.SHORTLISTS.get(model)
        count = 0 if used is None else wrong[len(used.usual)]
        right = [" ".join(WORDS[word] for word in source.split()) for source in sources]
        return ["nothing at all like that"] * count + right[count:]

    monkeypatch.setattr(averaging, "translate", translations)
    recipe = dataclasses.replace(recipe, choose_on_validation=True)
    chosen = run_recipe(recipe, run)["chosen_on_validation"]
    assert (chosen["usual_pieces"], chosen["shortlist"]["30"]) == (30, 100.0)
    assert chosen["shortlist"]["8"] < 95
    saved, doubtful_below = shortlist.read_shortlist(run)
    assert len(saved.usual) == 30
    own = json.loads((run / "generation_config.json").read_text())["doubtful_below"]
    assert doubtful_below > own
    wrong |= {30: 1, 60: 1}
    (run / "metrics.json").unlink()
    chosen = run_recipe(recipe, run)["chosen_on_validation"]
    assert ("usual_pieces" in chosen, len(chosen["shortlist"])) == (False, 3)
    assert not (run / "shortlist.safetensors").exists()


def test_extended_run_equals_one_long_run(copied, tmp_path):
    recipe, run, _ = copied
    longer = dataclasses.replace(recipe, max_steps=12)
    assert run_recipe(longer, run)["updates"] == 12
    at_once = dataclasses.replace(longer, trainer=TRAINER)
    run_recipe(at_once, tmp_path / "at_once")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "at_once")]
    assert weights[0] == weights[1]


def test_early_stopped_run_is_complete_and_goes_on_with_patience(tmp_path, monkeypatch, caplog):
    values = {"trainer": {"early_stopping_patience": 1, "eval_steps": 2}}
    recipe = load_recipe(str(tiny_recipe(tmp_path, **values)))
    worse = iter([2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    monkeypatch.setattr(runs.VanillaTransformerTrainer, "_plain_loss", lambda *_, **__: next(worse))
    # Each evaluation takes two losses: on the validation pairs and on training pairs.
    run = tmp_path / "run"
    assert run_recipe(recipe, run)["updates"] == 4
    with monkeypatch.context() as patch:
        patch.setattr(runs.VanillaTransformerTrainer, "train", refuse_to_train)
        (run / "metrics.json").unlink()
        assert run_recipe(recipe, run)["updates"] == 4
        longer = dataclasses.replace(recipe, max_steps=12)
        assert run_recipe(longer, run)["updates"] == 4
    patient = dataclasses.replace(recipe, trainer={**recipe.trainer, "early_stopping_patience": 2})
    assert run_recipe(patient, run)["updates"] == 6
    with caplog.at_level("WARNING"):
        at_once = dataclasses.replace(recipe, trainer={**recipe.trainer, "eval_strategy": "no"})
        assert run_recipe(at_once, tmp_path / "other")["updates"] == recipe.max_steps
    assert "early_stopping_patience has no effect" in caplog.text


def test_run_of_another_or_shorter_recipe_is_rejected(finished):
    recipe, run, _ = finished
    before = (run / "recipe.yaml").read_text(encoding="utf-8")
    changed = r"\(dropout: not set -> 0\.3; batch_tokens: 256 -> 512\)"
    for changes, message in (
        ({"max_steps": 5}, "but 9 updates are done"),
        ({"dropout": 0.3, "batch_tokens": 512, "num_beams": 2}, changed),
    ):
        with pytest.raises(RequestError, match=message):
            run_recipe(dataclasses.replace(recipe, **changes), run)
    assert (run / "recipe.yaml").read_text(encoding="utf-8") == before


def test_several_files_are_one_data_set_and_weights_share_the_updates(tmp_path):
    path = str(tiny_recipe(tmp_path))
    for folder, count in (("own", 40), ("general", 400)):
        (tmp_path / folder).mkdir()
        write_pairs(tmp_path / folder / "pairs.jsonl", count, count)
    files = [tmp_path / folder / "pairs.jsonl" for folder in ("own", "general")]
    (tmp_path / "both.jsonl").write_text("".join(file.read_text() for file in files))
    both = {"train_file": str(tmp_path / "both.jsonl")}
    given = {"train_file": [*map(str, files)]}
    for run, train in (("1", both), ("2", given)):
        run_recipe(load_recipe(path, train), tmp_path / run)
    models = [(tmp_path / run / "model.safetensors").read_bytes() for run in "12"]
    assert models[0] == models[1]

    (tmp_path / "weighted.yaml").write_text(
        Path(path).read_text().replace(f"train_file: {tmp_path}/train.jsonl", "train_file: [FILES]")
        .replace("FILES", ", ".join(given["train_file"])) + "train_weights: [4, 1]\n"
    )  # fmt: skip
    run, recipe = tmp_path / "3", load_recipe(str(tmp_path / "weighted.yaml"))
    weighted = run_recipe(recipe, run)
    assert (recipe.train_file, recipe.train_weights) == (tuple(given["train_file"]), (4.0, 1.0))
    assert load_recipe(str(run / "recipe.yaml")) == recipe
    assert weighted["recipe"]["train_weights"] == [4, 1]
    with pytest.raises(RequestError, match=r"another run \(train_weights: 4.0, 1.0 -> 4.0, 2.0"):
        run_recipe(dataclasses.replace(recipe, train_weights=(4.0, 2.0)), run)
    with files[0].open("a") as file:
        file.write(files[1].read_text())
    with pytest.raises(RequestError, match=r"another run .*pairs.jsonl changed"):
        run_recipe(dataclasses.replace(recipe, max_steps=12), run)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"train_file": "away.jsonl"}, "train_file: got '.*away.jsonl'; there is no such file"),
        ({"test_file": "train.jsonl,away.de"}, "test_file: got '.*away.de'; there is no such file"),
        ({"train_file": "none", "dataset": "train.jsonl"}, "train.jsonl is a file; give files"),
        ({"train_file": "none"}, "names no training pairs; give --train-file"),
        ({"pair": "en-fr"}, "not clear which columns are en and fr"),
        ({"validation_file": "none", "test_file": "none", "held_out_pairs": "500"}, "got 500"),
    ],
)
def test_unusable_pairs_leave_no_directory_behind(tmp_path, monkeypatch, values, message):
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe(str(tiny_recipe(tmp_path)), values)
    with pytest.raises(RequestError, match=message):
        run_recipe(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_complete_run_without_checkpoints_is_neither_retrained_nor_restored(copied):
    recipe, run, metrics = copied
    for checkpoint in (run / "checkpoints").glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    before = {path: path.read_bytes() for path in run.iterdir() if path.is_file()}
    for name, told in (("max_steps", "9 -> 12"), ("seed", "0 -> 12")):
        with pytest.raises(RequestError, match=rf"or be restored \({name}: {told}\)"):
            run_recipe(dataclasses.replace(recipe, **{name: 12}), run)
    assert run_recipe(recipe, run) == metrics
    assert {path: path.read_bytes() for path in before} == before
    (run / "config.json").unlink()
    with pytest.raises(RequestError, match=r"or be restored \(config\.json\)"):
        run_recipe(recipe, run)
    (run / "checkpoints" / "identity.json").write_text("{}")
    (run / "metrics.json").unlink()  # the rest is not trained over
    with pytest.raises(RequestError, match="is not empty and not a run"):
        run_recipe(dataclasses.replace(recipe, seed=9), run)


def test_run_without_validation_and_test_pairs(tmp_path, caplog):
    caplog.set_level("INFO", logger="vanilla_transformer")
    path = tiny_recipe(
        tmp_path, validation_file="null", test_file="null", trainer={"eval_steps": 2}
    )
    overrides = {"max_steps": 2, "precision": "bf16", "held_out_pairs": 0}
    metrics = run_recipe(load_recipe(str(path), overrides), tmp_path / "run")
    assert metrics["scores"] == metrics["samples"] == {}
    assert metrics["precision"] == "bf16"
    told, begun = "there will be no scores", "Precision: bf16."
    assert caplog.text.index(told) < caplog.text.index(begun)
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_pairs_are_held_out_if_no_validation_or_test_pairs_are_given(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", logger="vanilla_transformer")
    path = tiny_recipe(tmp_path, validation_file="null", test_file="null")
    recipe = load_recipe(str(path), {"max_steps": 2})
    metrics = run_recipe(recipe, tmp_path / "run")
    facts, count = metrics["data"], 120 // 20
    assert facts["held_out_pairs"] == facts["validation_pairs"] == count
    assert (facts["train_pairs"], facts["train_pairs_kept"]) == (120, 120 - 2 * count)
    assert [metrics["scores"][name]["num_sentences"] for name in ("validation", "test")] == [6, 6]
    assert f"Held out for validation: {count} pairs, and as many for test" in caplog.text
    assert score_run(tmp_path / "run")["test"]["bleu"] == metrics["scores"]["test"]["bleu"]
    longer = run_recipe(dataclasses.replace(recipe, max_steps=3), tmp_path / "run")
    assert longer["data"] == facts
    for value in (0, 5):
        with pytest.raises(RequestError, match=f"held_out_pairs: not set -> {value}"):
            run_recipe(dataclasses.replace(recipe, held_out_pairs=value), tmp_path / "run")


def test_several_test_files_are_scored_one_by_one(tmp_path):
    path, names = tiny_recipe(tmp_path, max_steps=1), ["test", "other"]
    (tmp_path / "other.jsonl").write_bytes((tmp_path / "validation.jsonl").read_bytes())
    files = [str(tmp_path / f"{name}.jsonl") for name in names]
    metrics = run_recipe(load_recipe(str(path), {"test_file": files}), tmp_path / "run")
    assert [*metrics["scores"]] == ["validation", *names]
    assert [*metrics["data"]["files"]["test"]] == ["test.jsonl", "other.jsonl"]
    assert {"hypotheses.test.txt", "hypotheses.other.txt"} <= set(os.listdir(tmp_path / "run"))
    assert [*score_run(tmp_path / "run")] == names
    for clash in ("test.jsonl", "validation.jsonl"):
        recipe = load_recipe(str(path), {"test_file": [files[0], str(tmp_path / clash)]})
        with pytest.raises(RequestError, match="names must differ"):
            evaluation_sets(recipe)


class Hub:
    """Stand-in for a changing data set on the Hub that records what is fetched."""

    def __init__(self, monkeypatch):
        self.sha, self.fetched, self.splits = "0ld", [], ["train", "validation", "test"]
        self.word = "Hund"
        monkeypatch.setattr(datasets, "load_dataset", self.load_dataset)
        monkeypatch.setattr(datasets, "get_dataset_split_names", lambda *_, **__: self.splits)
        monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", self.dataset_info)

    def dataset_info(self, name, *, revision):
        return types.SimpleNamespace(sha=self.sha)

    def load_dataset(self, name, config, *, split, revision, streaming):
        self.fetched.append((name, split, revision, streaming))
        rows = [{"translation": {"de": f"{self.word} {n}", "en": f"dog {n}"}} for n in range(40)]
        pairs = datasets.Dataset.from_list(rows)
        return pairs.to_iterable_dataset() if streaming else pairs


@pytest.mark.parametrize("streaming", [False, True])
def test_every_start_of_a_run_loads_the_recorded_revision(tmp_path, monkeypatch, streaming):
    hub = Hub(monkeypatch)
    nothing = {"train_file": "null", "validation_file": "null", "dataset": "someone/pairs"}
    path = str(tiny_recipe(tmp_path, **nothing, max_steps=1, streaming=streaming))
    # A shared cache would hide what is fetched.
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    metrics = run_recipe(load_recipe(path), tmp_path / "run")
    assert metrics["data"]["revision"] == "0ld"
    assert set(metrics["data"]["files"]) == {"test"}
    splits = [("someone/pairs", split, "0ld", streaming) for split in ("train", "validation")]
    assert hub.fetched == splits
    hub.sha, hub.fetched[:] = "n3w", []
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "another")
    metrics = run_recipe(load_recipe(path, {"max_steps": 2}), tmp_path / "run")
    assert metrics["data"]["revision"] == "0ld"
    assert hub.fetched == splits
    hub.word = "Hunde"  # a revision that is no commit may hold other pairs
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "third")
    with pytest.raises(RequestError, match=r"records other pairs \(train changed; valid"):
        run_recipe(load_recipe(path, {"max_steps": 3}), tmp_path / "run")
    hub.word = "Hund"
    evaluated = load_recipe(path, {"test_file": "none", "max_steps": 2})
    text = settings_as_yaml(vars(evaluated))
    (tmp_path / "run" / "recipe.yaml").write_text(text)
    score_run(tmp_path / "run")
    assert hub.fetched[-1] == ("someone/pairs", "test", "0ld", streaming)
    run_recipe(load_recipe(path), tmp_path / "fresh")
    assert hub.fetched[-1][:3] == ("someone/pairs", "validation", "n3w")


def test_missing_splits_of_a_data_set_are_held_out(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    Hub(monkeypatch).splits = ["train"]
    files = {"train_file": "null", "validation_file": "null", "test_file": "null"}
    path = tiny_recipe(tmp_path, **files, dataset="someone/pairs", max_steps=1)
    metrics = run_recipe(load_recipe(str(path)), tmp_path / "run")
    assert set(metrics["scores"]) == {"validation", "test"}
    assert "someone/pairs has no validation pairs, only train." in caplog.text


def test_changed_training_pairs_are_rejected_after_training_began(tmp_path):
    recipe = load_recipe(str(tiny_recipe(tmp_path, max_steps=1)))
    train = tmp_path / "train.jsonl"
    before = train.read_bytes()
    metrics = run_recipe(recipe, tmp_path / "run")
    write_pairs(train, 120, 7)
    # Complete, incomplete, and by another recipe, which the number of pairs may have chosen.
    longer = dataclasses.replace(recipe, max_steps=2)
    for chosen in (recipe, longer, dataclasses.replace(longer, dropout=0.3)):
        with pytest.raises(RequestError, match=r"another run \(.*files: train: train\.jsonl ch"):
            run_recipe(chosen, tmp_path / "run")
    train.write_bytes(before)
    assert run_recipe(recipe, tmp_path / "run") == metrics
    train.unlink()  # a missing file is no change: the complete run does not need it
    assert run_recipe(recipe, tmp_path / "run") == metrics


def test_tokenizer_is_relearned_if_pairs_change_before_training(tmp_path, monkeypatch):
    recipe = load_recipe(str(tiny_recipe(tmp_path, max_steps=1)))
    with monkeypatch.context() as patched:
        patched.setattr(runs.VanillaTransformerTrainer, "train", refuse_to_train)
        with pytest.raises(AssertionError):
            run_recipe(recipe, tmp_path / "run")
    old = (tmp_path / "run" / "tokenizer.json").read_bytes()
    pairs = ({"translation": {"de": f"Katze{n}", "en": f"cat{n}"}} for n in range(120))
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    run_recipe(recipe, tmp_path / "run")
    run_recipe(recipe, tmp_path / "fresh")
    new = (tmp_path / "run" / "tokenizer.json").read_bytes()
    assert new == (tmp_path / "fresh" / "tokenizer.json").read_bytes() != old


def test_stopped_continuation_does_not_change_a_complete_run(copied, monkeypatch):
    """Its values would otherwise be those of `evaluate` and `compare` from then on."""
    recipe, run, metrics = copied
    before = (run / "recipe.yaml").read_text(encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(runs.VanillaTransformerTrainer, "train", refuse_to_train)
        with pytest.raises(AssertionError):
            run_recipe(dataclasses.replace(recipe, max_steps=20, num_samples=1), run)
    assert run_recipe(recipe, run) == metrics
    assert (run / "recipe.yaml").read_text(encoding="utf-8") == before


def test_second_training_in_a_directory_is_rejected(unfinished, tmp_path):
    recipe, run, metrics = unfinished
    before = {path.name for path in (run / "checkpoints").iterdir()}
    with training_lock(run):
        with pytest.raises(RequestError, match=f"another process is already training in {run}"):
            run_recipe(recipe, run)
        score_run(run)  # evaluation needs no lock
    assert {path.name for path in (run / "checkpoints").iterdir()} == before
    assert run_recipe(recipe, run)["scores"] == metrics["scores"]
    assert {path.name for path in (run / "checkpoints").iterdir()} == before
    with training_lock(run):  # a complete run is not trained, so it needs no lock
        assert run_recipe(recipe, run)["scores"] == metrics["scores"]


def test_training_lock_leaves_no_files_behind(tmp_path):
    with training_lock(tmp_path / "new" / "run"):
        pass
    assert not (tmp_path / "new").exists()
    (tmp_path / "run").mkdir()
    with training_lock(tmp_path / "run"):
        copy = tmp_path / "killed"
        shutil.copytree(tmp_path / "run", copy)
    assert not list((tmp_path / "run").iterdir())
    # What an immediately killed process leaves behind does not count as someone's run.
    recipe = load_recipe(str(tiny_recipe(tmp_path, max_steps=1)))
    plan = plan_run(recipe, copy)
    run_directory.identify(plan, copy)
    (copy / "checkpoints" / "identity.json").write_text("{}")
    run_directory.identify(plan, copy)
    (tmp_path / "own").mkdir()  # with a recipe that somebody wrote
    shutil.copy(tmp_path / "tiny.yaml", tmp_path / "own" / "recipe.yaml")
    with pytest.raises(RequestError, match="is not empty and not a run"):
        run_directory.identify(plan, tmp_path / "own")


@pytest.mark.parametrize("option", ["train_file", "dataset"])
def test_a_run_is_not_made_where_its_pairs_are_read(tmp_path, option):
    (tmp_path / "pairs").mkdir()
    write_pairs(tmp_path / "pairs" / "train.jsonl", 20, 0)
    values = dict.fromkeys(("train_file", "validation_file", "test_file"), "null")
    recipe = load_recipe(str(tiny_recipe(tmp_path, **values | {option: tmp_path / "pairs"})))
    for place in (tmp_path / "pairs", tmp_path / "pairs" / "run", tmp_path / "x" / ".." / "pairs"):
        with pytest.raises(RequestError, match=r"is in .*pairs, a folder of pairs"):
            run_recipe(recipe, place)
    assert [path.name for path in (tmp_path / "pairs").iterdir()] == ["train.jsonl"]


def test_missing_files_of_a_complete_run_are_restored(copied, monkeypatch, caplog):
    recipe, run, metrics = copied
    monkeypatch.setattr(runs.VanillaTransformerTrainer, "train", refuse_to_train)
    names = ("config.json", "model.safetensors", "tokenizer.json", "generation_config.json")
    before = {name: (run / name).read_bytes() for name in names}
    for name in names:
        (run / name).unlink()
        assert run_directory.completed(plan_run(recipe, run), run) is None
        assert f"{run / name} is missing; averaging and evaluating again" in caplog.text
        if name != names[-1]:
            (run / name).write_bytes(before[name])
    (run / "config.json").unlink()
    assert run_recipe(recipe, run)["scores"] == metrics["scores"]
    assert {name: (run / name).read_bytes() for name in names} == before


def test_outputs_never_replace_what_the_command_reads(copied, tmp_path, capsys):
    _, run, _ = copied
    with_comma = tmp_path / "pairs, 2.jsonl"
    write_pairs(with_comma, 3, 3)
    before = with_comma.read_bytes()
    command = ["evaluate", run, "--test-file", with_comma, "--overwrite", "--output"]
    assert f"{with_comma} is also an input" in error_of(capsys, *command, with_comma)
    with with_comma.open() as stdin:  # redirected to a command that reads it
        saved = os.dup(0)
        os.dup2(stdin.fileno(), 0)
        line = error_of(capsys, "translate", run, "--overwrite", "--output", with_comma)
        os.dup2(saved, 0)
    assert "is also an input" in line
    assert with_comma.read_bytes() == before
    assert main([*map(str, command), "/dev/null"]) == 0


def test_machine_that_does_not_share_the_directory_is_rejected(tmp_path):
    with pytest.raises(ValueError, match="does not see the first process's training in"):
        check_shared(tmp_path)
    with training_lock(tmp_path):
        check_shared(tmp_path)


def test_a_useless_model_is_named_at_the_end_and_published_only_by_force(copied, tmp_path, capsys):
    _, run, metrics = copied
    kinds = [warning["kind"] for warning in metrics["warnings"]]
    assert kinds.count("outputs") == 2  # of validation and test set
    assert "test" in kinds
    assert main(["train", str(run / "recipe.yaml"), "--output-dir", str(run)]) == 0
    printed = capsys.readouterr().out
    assert all(f"Warning: {warning['text']}" in printed for warning in metrics["warnings"])
    assert "It has not learned its task; to find out why: training/diagnosis.md." in printed
    assert "Next:" not in printed
    publish = ["publish", str(run), "--repo", "user/bad", "--license", "mit"]
    assert "has not learned its task. BLEU is 0.0" in error_of(capsys, *publish)
    assert main([*publish, "--force", "--output", str(tmp_path / "bad")]) == 0
    card = (tmp_path / "bad" / "README.md").read_text(encoding="utf-8")
    assert "## Known problems\n\n- BLEU is 0.0; the untranslated sources have 0.0" in card


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "gain"),
    [
        ({"warmup_steps": 4_000}, 5),
        ({"learning_rate": 0.3}, 5),
        ({"warmup_steps": 250, "checkpoints_to_average": 6}, 0),
        ({"copied": True}, 1),
    ],
)
def test_the_remedy_of_a_warning_helps(fault, gain, tmp_path):
    """The user types what the warning says: it is gone, and the model is better."""
    values = {"train_file": write_pairs(tmp_path / "many.jsonl", 2_000, 1), "batch_tokens": 1024}
    values |= {"d_model": 32, "ffn_dim": 64, "max_steps": 300, "warmup_steps": 50, **fault}
    if values.pop("copied", False):
        pairs = Path(values["train_file"])
        lines = pairs.read_text(encoding="utf-8").splitlines(keepends=True)
        copy = r'(": "(.+)", .*": ").+"}}'
        lines[::3] = [re.sub(copy, r'\1\2"}}', line) for line in lines[::3]]
        pairs.write_text("".join(lines), encoding="utf-8")
    path = str(tiny_recipe(tmp_path, trainer={"save_steps": 50}, **values))
    before = run_recipe(load_recipe(path), tmp_path / "before")
    (told,) = [it for it in before["warnings"] if "--" in it["text"]][:1]
    typed = re.findall(r"--([a-z-]+) ?([0-9.e-]*)", told["text"])
    remedy = {name.replace("-", "_"): value or "true" for name, value in typed}
    after = run_recipe(load_recipe(path, remedy), tmp_path / "after")
    assert told["kind"] not in [warning["kind"] for warning in after["warnings"]]
    bleu = [run["scores"]["validation"]["bleu"] for run in (before, after)]
    assert bleu[1] > bleu[0] + gain, bleu
