"""Text in the target language becomes training pairs: `--monolingual-target`."""

import json
import shutil
from pathlib import Path

import pytest
from tiny_runs import WORDS, tiny_recipe, write_pairs

from vanilla_transformer.errors import RequestError
from vanilla_transformer.recipes.recipe import load_recipe
from vanilla_transformer.train import run_recipe, synthetic_pairs
from vanilla_transformer.train.synthetic_pairs import TAG
from vanilla_transformer.translation import translate_nbest

TEXT = [" ".join(list(WORDS.values())[start : start + 4]) for start in (0, 1, 2, 0, 1)]


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Return a function that writes text, trains, and returns the metrics."""
    monkeypatch.setattr(synthetic_pairs, "FEWEST_PAIRS", 100)

    def started(lines, run=tmp_path / "run", **overrides):
        text = tmp_path / "mono.en"
        text.write_bytes("".join(f"{line}\n" for line in lines).encode())
        values = {"monolingual_target": text, "max_steps": 2, **overrides}
        path = tiny_recipe(tmp_path / "recipe", **values)
        return run_recipe(load_recipe(str(path)), run)

    return started


def rows(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_every_sentence_is_a_tagged_pair_more(start, tmp_path):
    metrics = start([TEXT[0], "", "  ", *TEXT[1:]])
    new = rows(tmp_path / "run-back" / "translated.jsonl")
    assert [pair["target"] for pair in new] == TEXT
    assert all(pair["source"] == "" or pair["source"].startswith(TAG) for pair in new)
    made = sum(pair["source"] != "" for pair in new)
    assert metrics["data"]["train_back_translated"] == made
    counts = ("train_pairs", "train_pairs_kept")
    assert [metrics["data"][name] for name in counts] == [120 + made] * 2
    assert [*metrics["data"]["files"]["monolingual"]] == ["mono.en"]
    back = load_recipe(str(tmp_path / "run-back" / "model" / "recipe.yaml"))
    assert back.languages == ("en", "de")
    assert rows(tmp_path / "run-back" / "train.jsonl")[0].keys() == {"source", "target"}


def test_noise_has_its_share_of_all_pairs_and_is_not_in_the_opposite_model(start, tmp_path):
    data = start(TEXT, noise=0.2)["data"]
    assert data["shares"]["noisy sources"]["pairs"] == pytest.approx(0.2)
    assert data["train_made"] == 3 * data["train_pairs_kept"]
    assert load_recipe(str(tmp_path / "run-back" / "model" / "recipe.yaml")).noise == 0


def test_new_pairs_are_the_last_of_several_weighted_corpora(start, tmp_path):
    files = [tmp_path / "recipe" / name for name in ("own.jsonl", "general.jsonl")]
    files[0].parent.mkdir()
    names = [str(write_pairs(file, 60 + seed, seed)) for seed, file in enumerate(files)]
    metrics = start(TEXT, train_file=names, train_weights=[2, 1, 1])
    assert metrics["data"]["train_pairs_kept"] == 121 + metrics["data"]["train_back_translated"]
    back = load_recipe(str(tmp_path / "run-back" / "model" / "recipe.yaml"))
    assert back.train_weights is None
    assert len(rows(tmp_path / "run-back" / "train.jsonl")) == 121


def test_pairs_that_are_held_out_are_in_no_training(start, tmp_path):
    start(TEXT, validation_file="null", test_file="null")
    trained = rows(tmp_path / "run-back" / "train.jsonl")
    held_out = rows(tmp_path / "run-back" / "validation.jsonl")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert len(trained) + 2 * len(held_out) == 120
    assert metrics["scores"].keys() == {"validation", "test"}
    texts = {json.dumps(pair) for pair in trained}
    assert not texts & {json.dumps(pair) for pair in held_out}


@pytest.fixture
def stop_after(monkeypatch):
    """Return a function that lets translating back stop after some sentences, and counts them."""
    made = []

    def stop(count):
        made.clear()

        def one_by_one(model, tokenizer, texts, **options):
            for text in texts:
                if len(made) == count:
                    raise KeyboardInterrupt
                made.append(text)
                yield from translate_nbest(model, tokenizer, [text], **options)

        monkeypatch.setattr(synthetic_pairs, "translate_nbest", one_by_one)
        return made

    return stop


def test_a_killed_translation_goes_on_to_the_same_pairs(start, tmp_path, stop_after):
    done = tmp_path / "run-back" / "translated.jsonl"
    partial = done.with_name(f".vanilla-transformer-rows-{done.name}")
    stop_after(2)
    with pytest.raises(KeyboardInterrupt):
        start(TEXT)
    assert partial.is_file()
    assert not done.exists()
    made = stop_after(None)
    start(TEXT)
    assert made == TEXT[2:]
    assert not partial.exists()
    whole = done.read_bytes()
    shutil.rmtree(tmp_path / "run")
    done.unlink()
    start(TEXT)
    assert done.read_bytes() == whole


def test_translations_of_a_model_that_goes_on_are_made_anew(start, tmp_path):
    start(TEXT, max_steps=2)
    back = tmp_path / "run-back"
    earlier = (back / "translated.jsonl").read_bytes()
    shutil.rmtree(tmp_path / "run")
    start(TEXT, max_steps=12)
    assert json.loads((back / "model" / "metrics.json").read_text())["updates"] == 12
    assert (back / "translated.jsonl").read_bytes() != earlier


def test_pairs_that_others_wrote_are_not_taken(start, tmp_path):
    (tmp_path / "run-back").mkdir()
    write_pairs(tmp_path / "run-back" / "train.jsonl", 200, 7)
    content = (tmp_path / "run-back" / "train.jsonl").read_bytes()
    with pytest.raises(RequestError, match="run-back must hold only translations"):
        start(TEXT)
    assert (tmp_path / "run-back" / "train.jsonl").read_bytes() == content


def test_pairs_that_change_meanwhile_are_not_trained_on(start, tmp_path, monkeypatch):
    def changing(*args, **options):
        with (tmp_path / "recipe" / "train.jsonl").open("a") as file:
            file.write(json.dumps({"translation": {"de": "neu", "en": "new"}}) + "\n")
        return translate_nbest(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(synthetic_pairs, "translate_nbest", changing)
        data = start(TEXT)["data"]
    assert data["train_pairs_kept"] == 120 + data["train_back_translated"]
    start(TEXT, max_steps=12)  # with the pairs as they were


@pytest.mark.parametrize(
    ("lines", "overrides", "message"),
    [
        ([f"7\t{text}" for text in TEXT], {}, "mono.en is a table or code"),
        ([json.dumps({"text": text}) for text in TEXT], {}, "mono.en is a table or code"),
        ([*WORDS], {}, "mono.en looks like de; give text in en"),
        ([" ", ""], {}, "mono.en: sentences: 0; left out: 0"),
        ([TEXT[0], "\0", "ü" * 2001], {}, "sentences: 1; left out: 2 .* in a sample. Give a text"),
        (TEXT, {"fewest": 121}, "Got 120 training pairs, without those held out; .* 121 at least"),
    ],
)
def test_useless_input_is_refused_before_anything_is_written(
    start, tmp_path, monkeypatch, lines, overrides, message
):
    monkeypatch.setattr(synthetic_pairs, "FEWEST_PAIRS", overrides.get("fewest", 100))
    with pytest.raises(RequestError, match=message):
        start(lines)
    assert {path.name for path in tmp_path.iterdir()} == {"recipe", "mono.en"}


def test_pairs_of_other_pairs_or_another_text_are_not_taken(start, tmp_path):
    start(TEXT)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(RequestError, match=r"json records another run \(files: train: train"):
        start(TEXT, clean=True)
    start(TEXT[:3])  # translated anew by the same model
    assert [pair["target"] for pair in rows(tmp_path / "run-back/translated.jsonl")] == TEXT[:3]


def test_nothing_is_trained_for_a_run_that_cannot_follow(start, tmp_path):
    other = tmp_path / "run" / "notes.txt"
    other.parent.mkdir()
    other.write_text("kept")
    with pytest.raises(RequestError, match="run is not empty and not a run"):
        start(TEXT)
    assert not (tmp_path / "run-back").exists()
    other.unlink()
    start(TEXT)
    shutil.rmtree(tmp_path / "run-back")
    with pytest.raises(RequestError, match=r"translated\.jsonl is missing or changed"):
        start(TEXT, max_steps=12)
    assert not (tmp_path / "run-back").exists()


def test_one_language_on_both_sides_is_translated_back(start, tmp_path):
    """Such as old spelling to new: the sides are not told by their language."""
    files = {}
    for name, count in (("train", 120), ("validation", 10), ("test", 10)):
        found = rows(Path(write_pairs(tmp_path / f"{name}.jsonl", count, count)))
        pairs = [row["translation"].values() for row in found]
        sides = [dict(zip(("source", "target"), pair, strict=True)) for pair in pairs]
        path = tmp_path / f"{name}.en.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in sides), encoding="utf-8")
        files[f"{name}_file"] = path
    start(TEXT, pair="en-en", max_source_length=90, max_target_length=80, **files)
    back = tmp_path / "run-back"
    assert rows(back / "train.jsonl") == rows(files["train_file"])
    recipe = load_recipe(str(back / "model" / "recipe.yaml"))
    assert (recipe.max_source_length, recipe.max_target_length) == (80, 90)
    assert (recipe.source_column, recipe.target_column) == ("target", "source")


@pytest.mark.parametrize("form", ["{}", "{} ", "\u00a0{}"])
def test_damaged_lines_and_sentences_to_be_scored_are_left_out(start, tmp_path, caplog, form):
    test = tmp_path / "test.jsonl"
    test.write_text(json.dumps({"translation": {"de": "a", "en": form.format(TEXT[0])}}) + "\n")
    with caplog.at_level("INFO"):
        metrics = start([*TEXT, "a\0"], test_file=test)
    new = rows(tmp_path / "run-back" / "translated.jsonl")
    assert [pair["target"] for pair in new] == TEXT
    usable = sum(pair["source"] != "" and pair["target"] != TEXT[0] for pair in new)
    assert metrics["data"]["train_back_translated"] == usable
    assert "sentences: 5; left out: 1 (not UTF-8" in " ".join(caplog.text.split())
    assert "that are in validation or test pairs: " in caplog.text
