"""Training that starts from a trained model: its weights, its tokenizer, new pairs."""

import dataclasses
import json
import shutil

import pytest
import torch
from command_line import error_of
from huggingface_hub.utils import filter_repo_objects
from opus_models import save_opus
from tiny_runs import WORDS, tiny_recipe, write_pairs
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.cli import main
from vanilla_transformer.errors import RequestError
from vanilla_transformer.publish.card import card_facts, render_card
from vanilla_transformer.recipes.plan import settings_as_yaml
from vanilla_transformer.recipes.planning import inherit
from vanilla_transformer.recipes.recipe import load_recipe
from vanilla_transformer.storage import saved_model
from vanilla_transformer.train import VanillaTransformerTrainer, run_recipe
from vanilla_transformer.train.run_inputs import identify_model

pytestmark = pytest.mark.usefixtures("own_cache")

RATE = 1e-3


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the run of a model with another shape than the recipes below."""
    folder = tmp_path_factory.mktemp("trained")
    values = {"d_model": 8, "vocab_size": 270, "dropout": 0.3, "split_digits": "true"}
    run_recipe(load_recipe(str(tiny_recipe(folder, **values))), folder / "first")
    return folder / "first"


def continuing_recipe(folder, model, **overrides):
    """Return a recipe with its own pairs that starts from a model."""
    path = tiny_recipe(folder)
    write_pairs(folder / "train.jsonl", 90, 7)
    given = {"init_from": str(model), "learning_rate": RATE, **overrides}
    return load_recipe(str(path), given)


@pytest.fixture(scope="module")
def finished(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    recipe = continuing_recipe(folder, trained)
    return recipe, folder / "run", run_recipe(recipe, folder / "run")


class TrainingStarted(Exception):
    """Ends a run where its training would start."""


@pytest.fixture
def initial_models(monkeypatch):
    """Collect the models that trainings would start with."""
    seen = []

    def start(trainer, *args, **kwargs):
        seen.append(trainer.model)
        raise TrainingStarted

    monkeypatch.setattr(VanillaTransformerTrainer, "train", start)
    return seen


def test_training_starts_with_the_models_weights_and_tokenizer(trained, tmp_path, initial_models):
    model = shutil.copytree(trained, tmp_path / "model")
    recipe = continuing_recipe(tmp_path, model, dropout=0.25)
    with pytest.raises(TrainingStarted):
        run_recipe(recipe, tmp_path / "run")
    (initial,) = initial_models
    weights = initial.state_dict()
    expected = AutoModelForSeq2SeqLM.from_pretrained(trained).state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert (initial.config.d_model, initial.config.vocab_size) == (8, 270)
    assert initial.config.dropout == initial.model.encoder.dropout.p == 0.25
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "run" / name).read_bytes() == (trained / name).read_bytes()

    # No update has been made, so the run starts again, from the changed model.
    settings = json.loads((model / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings["model_max_length"] = 77
    (model / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(TrainingStarted):
        run_recipe(recipe, tmp_path / "run")
    assert AutoTokenizer.from_pretrained(tmp_path / "run").model_max_length == 77


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"validation_file": None, "test_file": None}, "may have trained on held-out pairs"),
        ({"validation_file": None, "choose_on_validation": True}, "choose_on_validation has no"),
        ({"validation_file": None, "trainer": {"early_stopping_patience": 2}}, "patience has no"),
        ({"learning_rate": None}, "rises to 1.1e-01, as when training from"),  # (8 * 10)^-0.5
        ({"source_language": "en", "target_language": "de"}, "languages: 'de-en' -> 'en-de'"),
        ({}, None),
    ],
)
def test_doubtful_continuations_are_named(trained, tmp_path, initial_models, caplog, given, said):
    recipe = dataclasses.replace(continuing_recipe(tmp_path, trained), **given)
    with caplog.at_level("WARNING"), pytest.raises(TrainingStarted):
        run_recipe(recipe, tmp_path / "run")
    told = [text for text in caplog.messages if "there will be no scores" not in text]
    assert told == [] if said is None else said in caplog.text


def test_languages_and_regularization_are_the_models_unless_typed(trained, tmp_path):
    model = shutil.copytree(trained, tmp_path / "model")
    values = (model / "recipe.yaml").read_text(encoding="utf-8")
    values = values.replace("bpe_dropout: null", "bpe_dropout: 0.2")
    (model / "recipe.yaml").write_text(values, encoding="utf-8")
    (model / "metrics.json").unlink()  # which has the values too
    path = tiny_recipe(tmp_path, pair="fr-it", bpe_dropout=0.4, dropout=0.4)

    def recipe(**typed):
        given = load_recipe(str(path), {"init_from": str(model), **typed})
        return inherit(given, tmp_path / "run")

    taken = recipe()
    assert (taken.languages, taken.bpe_dropout, taken.dropout) == (("de", "en"), 0.2, None)
    typed = recipe(pair="cs-en", bpe_dropout=0.0, dropout=0.1)
    assert (typed.languages, typed.bpe_dropout, typed.dropout) == (("cs", "en"), 0.0, 0.1)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/recipe.yaml").write_text(settings_as_yaml(vars(taken)), encoding="utf-8")
    shutil.rmtree(model)
    assert recipe() == taken  # as the run began
    (tmp_path / "run/recipe.yaml").unlink()
    with pytest.raises(RequestError, match="There is no folder"):
        recipe()


def test_run_records_its_initial_model(finished, trained):
    recipe, run, metrics = finished
    assert recipe.d_model is recipe.dropout is None
    assert metrics["recipe"]["init_from"] == str(trained)
    languages = {"source_language": "de", "target_language": "en"}  # of the model
    assert load_recipe(str(run / "recipe.yaml")) == dataclasses.replace(recipe, **languages)
    assert metrics["data"]["init_from"] == identify_model(str(trained))
    names = [*metrics["data"]["init_from"]["files"]]
    assert names == ["model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert metrics["data"]["train_pairs"] == 90
    told = {"d_model": 8, "vocab_size": 270, "dropout": 0.3, "encoder_layers": 1}
    assert metrics["model"].items() >= told.items()
    assert str(trained) not in (run / "config.json").read_text(encoding="utf-8")
    model = AutoModelForSeq2SeqLM.from_pretrained(run)
    assert (model.config.dropout, model.generation_config.num_beams) == (0.3, 1)
    assert len(AutoTokenizer.from_pretrained(run)) == 270
    history = (run / "history.tsv").read_text(encoding="utf-8").splitlines()
    column = history[0].split("\t").index("learning_rate")
    rates = [float(row.split("\t")[column] or 0) for row in history[1:]]
    assert max(rates) == pytest.approx(RATE * 9 / 10)  # the warm-up has 10 updates


def test_run_resumes_bit_by_bit_without_its_initial_model(finished, trained, tmp_path):
    _, run, _ = finished
    model = shutil.copytree(trained, tmp_path / "model")
    recipe = continuing_recipe(tmp_path / "pairs", model)
    run_recipe(continuing_recipe(tmp_path / "pairs", model, max_steps=6), tmp_path / "run")
    shutil.rmtree(model)
    metrics = run_recipe(recipe, tmp_path / "run")
    assert metrics["updates"] == 9
    assert metrics["data"]["init_from"] == identify_model(str(trained))
    weights = [folder / "model.safetensors" for folder in (run, tmp_path / "run")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert run_recipe(recipe, tmp_path / "run") == metrics


def test_changing_the_initial_model_of_a_run_is_refused(finished, trained, tmp_path):
    recipe, run, _ = finished
    folder = recipe.train_file.rpartition("/")[0]
    other = str(shutil.copytree(trained, tmp_path / "other"))
    for values in ({"init_from": "none"}, {"init_from": other}, {"learning_rate": 1e-4}):
        given = {"init_from": str(trained), "learning_rate": RATE, **values}
        name = next(iter(values))
        with pytest.raises(RequestError, match=rf"another run \((.*; )?{name}: "):
            run_recipe(load_recipe(f"{folder}/tiny.yaml", given), run)


def test_model_of_the_hub_is_pinned_to_its_commit(trained, tmp_path, monkeypatch, initial_models):
    snapshot = shutil.copytree(trained, tmp_path / "snapshots" / "c0ffee")
    asked = []

    def download(name, *, revision, allow_patterns, ignore_patterns):
        files = ["model.safetensors", "onnx/model.safetensors", "checkpoint-9/config.json"]
        options = {"allow_patterns": allow_patterns, "ignore_patterns": ignore_patterns}
        assert [*filter_repo_objects(files, **options)] == files[:1]
        asked.append((name, revision))
        return str(snapshot)

    monkeypatch.setattr(saved_model, "snapshot_download", download)
    with pytest.raises(TrainingStarted):
        run_recipe(continuing_recipe(tmp_path, "user/en-de"), tmp_path / "run")
    data = json.loads((tmp_path / "run/checkpoints/identity.json").read_text(encoding="utf-8"))
    assert data["initial_model"]["revision"] == "c0ffee"
    assert asked[:2] == [("user/en-de", None)] * 2
    assert set(asked[2:]) == {("user/en-de", "c0ffee")}  # whatever is pushed meanwhile


def card_of(metrics):
    kept = {"license": "mit", "data_license": "CC0", "data_source": "drawn"}
    facts = card_facts(metrics, {"model": "user/de-en", "form": "native", **kept})
    for sample in facts["samples"]["card"]:
        sample["translation"] = sample["reference"]
    return render_card(facts)


def test_opus_models_are_trained_further_with_their_sentencepiece_files(tmp_path, capsys):
    model, run, words = tmp_path / "ours", tmp_path / "run", [[*WORDS], [*WORDS.values()]]
    save_opus(tmp_path / "opus", *words)
    assert main(["import", "marian", str(tmp_path / "opus"), str(model)]) == 0
    recipe = tiny_recipe(tmp_path / "pairs")
    train = ["train", str(recipe), "--init-from", str(model), "--learning-rate", "1e-3"]
    line = error_of(capsys, *train, "--output-dir", run)
    assert "not clear which columns are source and target" in line
    train += ["--pair", "de-en"]
    for steps in ("6", "9"):  # the second resumes
        assert main([*train, "--output-dir", str(run), "--max-steps", steps]) == 0
    data = json.loads((run / "metrics.json").read_text(encoding="utf-8"))["data"]
    files = data["init_from"]["files"].keys() - {"model.safetensors"}
    assert files == {"source.spm", "target.spm", "vocab.json", "tokenizer_config.json"}
    for name in ("source.spm", "target.spm"):  # beside the mean of two checkpoints
        assert (run / name).read_bytes() == (tmp_path / "opus" / name).read_bytes()
    (tmp_path / "source.txt").write_text("ein Hund\n")
    assert main(["translate", str(run), str(tmp_path / "source.txt")]) == 0
    assert main(["evaluate", str(run)]) == 0
    options = ["--bpe-dropout", "0.1", "--output-dir", str(tmp_path / "third")]
    assert "needs a BPE tokenizer, not MarianTokenizer" in error_of(capsys, *train, *options)


def test_card_names_the_initial_model(finished, trained):
    _, run, metrics = finished
    card = card_of(metrics)
    digest = metrics["data"]["init_from"]["files"]["model.safetensors"]
    assert "trained further from\n`first` to translate" in card.text
    assert f"the tokenizer of `first` (SHA-256 of its weights `{digest}`)" in card.text
    assert str(trained.parent) not in card.content
    assert "| `d_model` | 8 | 512 |" in card.text
    assert "| `learning_rate` | 0.001 | Eq. 3 |" in card.text
    assert card.data.base_model is None
    metrics = json.loads((run / "metrics.json").read_text())
    metrics["recipe"]["init_from"] = "user/en-de"
    metrics["data"]["init_from"]["revision"] = "c0ffee"
    card = card_of(metrics)
    assert card.data.base_model == "user/en-de"
    told = "the tokenizer of [user/en-de](https://hf.co/user/en-de) (revision `c0ffee`)"
    assert told in card.text
