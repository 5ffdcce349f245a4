"""A few pairs become more: two joined, and the opposite direction."""

import itertools
import re
from collections import Counter
from random import Random

import datasets
import pytest
from safetensors.torch import load_file
from tiny_runs import tiny_recipe
from tiny_trainers import assert_equal

from vanilla_transformer.data.augmentation import augmented_pairs
from vanilla_transformer.data.dataset import load_pairs, mark_corpus
from vanilla_transformer.data.informal_variants import VARIANTS, informal_pair
from vanilla_transformer.errors import RequestError
from vanilla_transformer.recipes.recipe import load_recipe
from vanilla_transformer.train import run_recipe

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
    """Pairs and joined ones have half each; the opposite direction a third of each.

    Both sides have as many words here. Where they have not, it is a third of the pairs.
    """
    tokens = Counter()
    for source, target in texts(augmented_pairs(load(), join=join, opposite=opposite)):
        words = target.split()
        tokens[source.startswith("<2"), len(words) > 2] += len(words)
    kinds = [*itertools.product([False, True][: 1 + bool(opposite)], [False, True][: 1 + join])]
    share = {False: 2, True: 1}
    total = sum(share[kind[0]] for kind in kinds)
    expected = {kind: share[kind[0]] / total for kind in kinds}
    assert {kind: number / tokens.total() for kind, number in tokens.items()} == expected


def test_a_made_pair_has_pairs_of_one_corpus(tmp_path):
    numbers = {"a": 3, "b": 7, "c": 9}
    corpora = [
        mark_corpus(load([(f"{name}{n}", f"{name}{n}") for n in range(20)]), number)
        for name, number in numbers.items()
    ]
    given = datasets.concatenate_datasets([*corpora, corpora[0].select([0, 1])])
    made = augmented_pairs(given, join=True, opposite="de")
    for source, corpus in zip(made["source"], made["corpus"], strict=True):
        assert {numbers[word[0]] for word in source.removeprefix("<2de> ").split()} == {corpus}
    assert len(set(made["source"])) > 300
    assert augmented_pairs(given) is given


def test_a_run_trains_on_all_and_counts_them(tmp_path):
    path = tiny_recipe(tmp_path / "r", join_pairs="true", both_directions="true")
    data = run_recipe(load_recipe(str(path)), tmp_path / "run")["data"]
    assert [data[f"train_{name}"] for name in ("pairs", "pairs_kept", "made")] == [120, 120, 2040]
    assert [*data["shares"]] == ["joined pairs", "opposite direction"]
    assert data["shares"]["joined pairs"]["target_tokens"] == pytest.approx(1 / 2, rel=0.1)
    assert data["shares"]["opposite direction"]["pairs"] == pytest.approx(1 / 3)


def test_made_pairs_that_are_too_long_are_no_loss_and_their_share_is_told(tmp_path, caplog):
    lengths = dict.fromkeys(("max_source_length", "max_target_length"), 20)
    path = tiny_recipe(tmp_path / "r", join_pairs="true", **lengths)
    metrics = run_recipe(load_recipe(str(path)), tmp_path / "run")
    data = metrics["data"]
    assert (data["train_pairs_kept"], data["train_too_long"]) == (120, 0)
    assert 7 * 120 < data["train_made"] < 11 * 120
    share = data["shares"]["joined pairs"]
    assert share["pairs"] == pytest.approx(1 - 8 * 120 / (120 + data["train_made"]))
    assert share["pairs"] < share["target_tokens"] < 0.45
    told = rf"WARNING .*joined pairs is {share['target_tokens']:.1%} of .* planned were 50\.0%"
    assert re.search(told, caplog.text)


def test_two_tokenizers_have_one_direction(tmp_path):
    path = tiny_recipe(tmp_path / "r", both_directions="true", tokenizer="bytes,bpe")
    with pytest.raises(RequestError, match="both_directions: each side has a tokenizer of its own"):
        run_recipe(load_recipe(str(path)), tmp_path / "run")


def drawn(*pair, languages, number=1_000):
    random = Random(0)
    return Counter(informal_pair(*pair, languages, random) for _ in range(number))


def test_half_of_the_noisy_sources_have_a_typo_and_the_others_each_other_form():
    """Capitals and quotation marks change the target too."""
    pair = ("Ich habe einen Hund.", "I have a dog.")
    found = drawn(*pair, languages=("de", "en"))
    forms = {form(pair[0], "de", Random(0)) for key, form in VARIANTS.items() if "typo" not in key}
    others = {typed: target for typed, target in found if typed in forms}
    assert others.keys() == forms - {pair[0]}
    assert others.pop("ICH HABE EINEN HUND.") == "I HAVE A DOG."
    assert others.pop(f'"{pair[0]}"') == f'"{pair[1]}"'
    assert set(others.values()) == {pair[1]}
    typos = {typed: target for typed, target in found if typed not in forms}
    assert all(sorted(typed) == sorted(pair[0]) for typed in typos)
    assert set(typos.values()) == {pair[1]}
    assert 450 < sum(number for (typed, _), number in found.items() if typed in typos) < 550


def test_a_source_without_case_keeps_the_case_of_its_target():
    found = drawn("我有一只狗。", "I have a dog.", languages=("zh", "en"))
    assert {target for _, target in found} == {"I have a dog.", '"I have a dog."'}
    assert not any(typed == "我有一只狗。" for typed, _ in found)
    assert drawn("ISTANBUL", "x", languages=("tr", "en"))["\u0131stanbul", "x"]


@pytest.mark.parametrize("settings", [{}, {"join": True}, {"opposite": "de"}])
def test_noise_changes_its_share_of_each_kind_of_pair_and_others_each_time(settings):
    noise = {**settings, "noise": 0.2, "languages": ("de", "en")}
    made = augmented_pairs(load(), **noise)
    clean = Counter(texts(augmented_pairs(load(), **settings)))
    assert texts(made) == texts(augmented_pairs(load(), **noise))
    for kind in {mark & 3 for mark in made["made"]}:
        marks = [mark for mark in made["made"] if mark & 3 == kind]
        assert sum(mark > 3 for mark in marks) == len(marks) / 5
    for pair, mark in zip(texts(made), made["made"], strict=True):
        assert (pair in clean) == (mark < 4)
    sets = [{source for source, _ in texts(made)[n : n + 50]} for n in range(0, 200, 50)]
    assert settings or len(set.union(*sets)) > 50 + 35


def test_noise_leaves_tagged_sources_alone():
    tagged = [(f"<BT> {source}", target) for source, target in PAIRS]
    made = augmented_pairs(load([*PAIRS, *tagged]), noise=0.25)
    sources = Counter(source for source in made["source"] if source.startswith("<"))
    assert sources == {source: 4 for source, _ in tagged}
    assert sum(mark > 3 for mark in made["made"]) == 100


def test_a_run_with_noise_resumes_as_if_it_had_not_stopped(tmp_path):
    path = str(tiny_recipe(tmp_path / "r", noise=0.3, trainer={"save_steps": 1}))
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    shares = run_recipe(load_recipe(path), whole)["data"]["shares"]
    for steps in (4, 9):
        run_recipe(load_recipe(path, {"max_steps": steps}), stopped)
    weights = [
        load_file(run / "checkpoints/checkpoint-9/model.safetensors") for run in (whole, stopped)
    ]
    assert_equal(*weights)
    assert shares["noisy sources"]["pairs"] == pytest.approx(0.3)
