"""Pairs with new names and numbers: the same ones in both texts, and none that is held out."""

import random
import re

import pytest
from chinese_names import characters
from names_and_numbers import make_pairs, number_in, other_number

GERMAN = [
    ("Tom's house has three rooms.", "Toms Haus hat drei Zimmer."),
    ("I met Tom in Boston.", "Ich habe Tom in Boston getroffen."),
    ("We get up at six o'clock.", "Wir stehen um sechs Uhr auf."),
    ("The war ended in 1945.", "Der Krieg endete 1945."),
    ("She told Mary a joke.", "Sie erzählte Maria einen Witz."),
    ("They moved to Japan.", "Sie zogen nach Japan."),
    ("It is raining.", "Es regnet."),
]


def test_a_held_out_number_is_not_drawn_with_a_comma_either():
    pair = [("I see three birds.", "Ich sehe drei Vögel.")]
    held_out = [f"{number:,}" for number in range(1_000, 10_000)]
    assert not any("," in source for source, _ in make_pairs(pair, "de", held_out, 200, seed=0))


def test_both_sides_get_the_same_name_and_number():
    made = list(make_pairs(GERMAN, "de", {"Anouk", "47"}, count=200, seed=0))
    assert len({*made}) == 200
    assert made == list(make_pairs(GERMAN, "de", {"Anouk", "47"}, count=200, seed=0))
    for source, translation in made:
        assert not {"Anouk", "47"} & {*re.findall(r"[\w:]+", source)}
        numbers = re.findall(r"\d[\d:,]*", source)
        assert numbers == [
            each.replace(".", ",") for each in re.findall(r"\d[\d:.,]*", translation.rstrip("."))
        ]
        if "joke" in source:
            assert source.split()[2] in translation
        if "house" in source:
            name, owner = source.split("'s")[0], translation.split(" Haus")[0]
            assert owner in (f"{name}s", f"{name}'")
        if "get up" in source:
            assert re.search(r"um \d+:\d\d Uhr auf", translation)


def test_of_translated_pairs_those_with_a_place_and_all_names_are_used():
    places = [
        ("Tom left London.", "Tom verließ London."),
        ("Tom sold London.", "Er verkaufte London."),  # lacks a name
        ("Tom ate.", "Tom aß."),  # without a place
    ]
    made = [source for source, _ in make_pairs([], "de", (), 20, 0, places)]
    assert all(" left " in source for source in made)


@pytest.mark.parametrize(
    ("source", "translation", "target"),
    [
        ("I have two dogs and three cats.", "Ich habe zwei Hunde und drei Katzen.", "de"),
        ("He has one car.", "Er hat ein Auto.", "de"),
        ("It is half past two.", "Es ist halb drei.", "de"),
        ("It costs two hundred dollars.", "Es kostet zwei hundert Dollar.", "de"),
        ("The 2nd of three.", "Die 2. von drei.", "de"),
        ("I ate a sandwich at two.", "我两点吃了三明治。", "zh"),
        ("He is twenty-five.", "他二十五岁。", "zh"),
    ],
)
def test_numbers_that_may_not_be_the_same_stay(source, translation, target):
    assert other_number(source, translation, target, random.Random(0)) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("三个", 3),
        ("两点", 2),
        ("十岁", 10),
        ("十二个", 12),
        ("二十天", 20),
        ("九十九", 99),
        ("48个", 48),
    ],
)
def test_chinese_numbers_have_their_value(text, value):
    assert [found[2] for found in number_in(text, "zh")] == [value]


@pytest.mark.parametrize(
    ("phonemes", "name"),
    [
        ("AE N D R UW", "安德鲁"),
        ("L IH N D AH", "林达"),
        ("K AA R T ER", "卡特"),
        ("L EH S T ER", "莱斯特"),
        ("AH N UW K", "阿努克"),
        ("JH EH S IH K AH", "杰西卡"),
    ],
)
def test_names_are_written_as_they_sound(phonemes, name):
    assert characters(phonemes.split()) == name
