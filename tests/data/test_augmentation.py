"""A few pairs become more: two joined, and the opposite direction."""

import pytest
from tiny_runs import tiny_recipe

from vanilla_transformer.data.augmentation import augmented_pairs
from vanilla_transformer.data.dataset import load_pairs, mark_corpus
from vanilla_transformer.errors import RequestError
from vanilla_transformer.recipes.recipe import load_recipe
from vanilla_transformer.train import back_translation
from vanilla_transformer.train.run import run_recipe

PAIRS = [(f"Satz {number} ", f"sentence {number}") for number in range(50)]


def load(pairs=PAIRS):
    return load_pairs(pairs, source_language="de", target_language="en", show_progress=False)


def texts(dataset):
    return [*zip(dataset["source"], dataset["target"], strict=True)]


def test_each_pair_is_joined_with_one_other_in_the_same_order_on_both_sides():
    given = texts(load())
    made = texts(augmented_pairs(load(), join=True))
    assert made[:50] == given
    joined = {f"{a} {c}": (f"{b} {d}", n) for a, b in given for n, (c, d) in enumerate(given)}
    assert [target for _, target in made[50:]] == [joined[source][0] for source, _ in made[50:]]
    for (source, _), (first, _) in zip(made[50:], given, strict=True):
        assert source.startswith(f"{first} ")
    assert sorted(joined[source][1] for source, _ in made[50:]) == [*range(50)]
    assert made == texts(augmented_pairs(load(), join=True))


@pytest.mark.parametrize("join", [False, True])
def test_the_opposite_direction_is_tagged_and_the_given_one_is_not(join):
    forward = texts(augmented_pairs(load(), join=join))
    made = texts(augmented_pairs(load(), join=join, opposite="de"))
    assert made == forward + [(f"<2de> {target}", source) for source, target in texts(load())]


def test_a_made_pair_is_of_the_corpus_of_its_first(tmp_path):
    corpora = mark_corpus(load(), 3)
    assert set(augmented_pairs(corpora, join=True, opposite="de")["corpus"]) == {3}
    assert augmented_pairs(corpora) is corpora


def test_a_run_trains_on_all_and_counts_them(tmp_path):
    path = tiny_recipe(tmp_path / "r", join_pairs="true", both_directions="true")
    data = run_recipe(load_recipe(str(path)), tmp_path / "run")["data"]
    assert [data[f"train_{name}"] for name in ("pairs", "pairs_kept", "made")] == [360, 360, 240]


def test_text_is_translated_back_by_a_model_of_the_given_pairs(tmp_path, monkeypatch):
    monkeypatch.setattr(back_translation, "FEWEST_PAIRS", 100)
    (tmp_path / "mono.en").write_text("the house\n")
    options = {"join_pairs": "true", "monolingual_target": tmp_path / "mono.en"}
    path = tiny_recipe(tmp_path / "r", **options)
    data = run_recipe(load_recipe(str(path)), tmp_path / "run")["data"]
    assert data["train_pairs"] == 240 + data["train_back_translated"]
    given = (tmp_path / "run-back" / "train.jsonl").read_text("utf-8")
    assert given.count("\n") == 120


def test_two_tokenizers_have_one_direction(tmp_path):
    path = tiny_recipe(tmp_path / "r", both_directions="true", tokenizer="bytes,bpe")
    with pytest.raises(RequestError, match="both_directions: each side has a tokenizer of its own"):
        run_recipe(load_recipe(str(path)), tmp_path / "run")
