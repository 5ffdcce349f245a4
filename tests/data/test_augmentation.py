"""A few pairs become more: two joined, and the opposite direction."""

import itertools
from collections import Counter

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


def test_each_pair_is_joined_with_others_in_the_same_order_on_both_sides():
    given = texts(load())
    made = texts(augmented_pairs(load(), join=True))
    joined = [pair for pair in made if pair not in given]
    every_two = itertools.product(enumerate(given), repeat=2)
    pairs = {f"{a} {c}": (f"{b} {d}", n, m) for (n, (a, b)), (m, (c, d)) in every_two}
    assert all(target == pairs[source][0] for source, target in joined)
    firsts, seconds = zip(*(pairs[source][1:] for source, _ in joined), strict=True)
    assert Counter(firsts) == Counter(seconds) == dict.fromkeys(range(50), 4)
    assert len(set(joined)) > 190
    assert made == texts(augmented_pairs(load(), join=True))


@pytest.mark.parametrize("join", [False, True])
def test_the_opposite_direction_is_tagged_and_the_given_one_is_not(join):
    forward = texts(augmented_pairs(load(), join=join))
    made = texts(augmented_pairs(load(), join=join, opposite="de"))
    exchanged = {(f"<2de> {target}", source) for source, target in forward}
    tagged = [pair for pair in made if pair[0].startswith("<2de> ")]
    assert exchanged.issuperset(tagged)
    assert set(made) - exchanged == set(forward)


@pytest.mark.parametrize("join", [False, True])
@pytest.mark.parametrize("opposite", [None, "de"])
def test_each_kind_of_pair_has_its_share_of_the_tokens(join, opposite):
    """Pairs and joined ones have half each; the opposite direction a third of each."""
    tokens = Counter()
    for source, target in texts(augmented_pairs(load(), join=join, opposite=opposite)):
        words = target.split()
        tokens[source.startswith("<2"), len(words) > 2] += len(words)
    kinds = [*itertools.product([False, True][: 1 + bool(opposite)], [False, True][: 1 + join])]
    share = {False: 2, True: 1}
    total = sum(share[kind[0]] for kind in kinds)
    expected = {kind: share[kind[0]] / total for kind in kinds}
    assert {kind: number / tokens.total() for kind, number in tokens.items()} == expected


def test_a_made_pair_is_of_the_corpus_of_its_first(tmp_path):
    corpora = mark_corpus(load(), 3)
    assert set(augmented_pairs(corpora, join=True, opposite="de")["corpus"]) == {3}
    assert augmented_pairs(corpora) is corpora


def test_a_run_trains_on_all_and_counts_them(tmp_path):
    path = tiny_recipe(tmp_path / "r", join_pairs="true", both_directions="true")
    data = run_recipe(load_recipe(str(path)), tmp_path / "run")["data"]
    assert [data[f"train_{name}"] for name in ("pairs", "pairs_kept", "made")] == [2160, 2160, 2040]


def test_text_is_translated_back_by_a_model_of_the_given_pairs(tmp_path, monkeypatch):
    monkeypatch.setattr(back_translation, "FEWEST_PAIRS", 100)
    (tmp_path / "mono.en").write_text("the house\n")
    options = {"join_pairs": "true", "monolingual_target": tmp_path / "mono.en"}
    path = tiny_recipe(tmp_path / "r", **options)
    data = run_recipe(load_recipe(str(path)), tmp_path / "run")["data"]
    assert data["train_pairs"] == 12 * (120 + data["train_back_translated"])
    given = (tmp_path / "run-back" / "train.jsonl").read_text("utf-8")
    assert given.count("\n") == 120


def test_two_tokenizers_have_one_direction(tmp_path):
    path = tiny_recipe(tmp_path / "r", both_directions="true", tokenizer="bytes,bpe")
    with pytest.raises(RequestError, match="both_directions: each side has a tokenizer of its own"):
        run_recipe(load_recipe(str(path)), tmp_path / "run")
