"""Pairs generated from CLDR: disjoint splits, one target per source, each language's own words."""

import json
import re
from datetime import datetime
from decimal import Decimal
from itertools import combinations, islice

import pytest

babel = pytest.importorskip("babel", reason="comes with the extra dev")

# After the check above: these need Babel, without which this file is skipped.
import phrases  # noqa: E402
from babel import Locale  # noqa: E402
from phrases import HELD_OUT_COMBINATIONS, KINDS, SPLITS, generate_pairs  # noqa: E402

COUNTS = {"train": 3000, "validation": 120, "test_values": 120, "test_combinations": 120}
NAMES = {"territory", "language"}


@pytest.fixture(scope="module", params=[("en", "de"), ("en", "zh")], ids="-".join)
def corpus(request):
    """Return every split of one language pair, from two seeds."""
    return {
        split: [
            pair
            for seed in (0, 1)
            for pair in generate_pairs(*request.param, split=split, count=COUNTS[split], seed=seed)
        ]
        for split in SPLITS
    }


def shared_styles(source, target):
    return phrases._shared_styles(Locale.parse(source), Locale.parse(target))


def test_seed_decides_the_pairs_and_a_smaller_count_is_a_prefix():
    pairs = list(generate_pairs("en", "de", count=200, seed=3))
    assert pairs == list(generate_pairs("en", "de", count=200, seed=3))
    assert pairs[:50] == list(generate_pairs("en", "de", count=50, seed=3))
    assert pairs != list(generate_pairs("en", "de", count=200, seed=4))


def test_pairs_are_generated_lazily():
    assert len(list(islice(generate_pairs("en", "de", count=10**9), 5))) == 5


def test_no_source_repeats_within_a_split():
    for split in SPLITS:
        pairs = list(generate_pairs("en", "de", split=split, count=COUNTS[split]))
        assert len({pair.source for pair in pairs}) == len(pairs) == COUNTS[split]


def test_no_source_is_in_two_splits_for_any_seed(corpus):
    sources = {split: {pair.source for pair in pairs} for split, pairs in corpus.items()}
    for first, second in combinations(SPLITS, 2):
        assert not sources[first] & sources[second]
    for split, pairs in corpus.items():
        assert {phrases.split_of_source(pair.source) for pair in pairs} == {split}


def test_a_source_has_one_target(corpus):
    targets = {}
    for pairs in corpus.values():
        for pair in pairs:
            assert targets.setdefault(pair.source, pair.target) == pair.target


def test_every_split_has_every_kind_and_training_has_each_alone(corpus):
    for pairs in corpus.values():
        assert {kind for pair in pairs for kind in pair.kinds} == set(KINDS)
    alone = {pair.kinds for pair in corpus["train"] if len(pair.kinds) == 1}
    assert alone == {(kind,) for kind in KINDS}


def held_out_in(pair):
    return {frozenset(two) for two in combinations(pair.kinds, 2)} & HELD_OUT_COMBINATIONS


def test_held_out_combinations_occur_only_in_their_own_split(corpus):
    for split, pairs in corpus.items():
        for pair in pairs:
            assert bool(held_out_in(pair)) == (split == "test_combinations")
    tested = {
        combination for pair in corpus["test_combinations"] for combination in held_out_in(pair)
    }
    assert tested == HELD_OUT_COMBINATIONS


def test_each_kind_has_partners_in_training_and_held_out_ones(corpus):
    met = {kind: set() for kind in KINDS}
    for pair in corpus["train"]:
        for first, second in combinations(pair.kinds, 2):
            met[first].add(second)
            met[second].add(first)
    for kind in KINDS:
        held_out = {
            other for pair in HELD_OUT_COMBINATIONS if kind in pair for other in pair - {kind}
        }
        assert 1 <= len(held_out) <= 3
        assert len(met[kind]) >= len(KINDS) - 5  # all but the held-out and the confusable ones


MONTHS = "|".join(Locale("en").months["format"]["wide"].values())


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        (rf"(?:{MONTHS}) \d+, \d{{4}}", 500),  # days
        (rf"(?:{MONTHS}) \d{{4}}", 100),  # months
        (r"(\d+:\d\d)(?::\d\d)? ([AP]M)", 500),  # times of day
        (r"\d+ (?:second|minute|hour|day|week|month|year)s? ago", 100),
        (r"in (\d+ (?:second|minute|hour|day|week|month|year)s?)", 100),
        (r"(?:\d+ days?, )?\d+ hours(?:,| and) \d+ minutes", 5),  # durations with hours and minutes
        (r"[\d,.]+ euros per \w+", 1),
    ],
)
def test_values_of_test_splits_are_not_in_training(corpus, pattern, count):
    found = {
        split: {text for pair in pairs for text in re.findall(pattern, pair.source)}
        for split, pairs in corpus.items()
    }
    trained = found["train"] | found["test_combinations"]
    assert len(trained) >= count
    for split in ("validation", "test_values"):
        assert not found[split] & trained
    assert not found["validation"] & found["test_values"]
    assert len(found["validation"] | found["test_values"]) >= count / 40


def test_every_name_occurs_in_training():
    trained = " ".join(pair.target for pair in generate_pairs("en", "de", count=8_000))
    styles = shared_styles("en", "de")
    for style in (name for kind in sorted(NAMES) for name in styles[kind]):
        assert phrases.write_value(Locale("de"), style, None) in trained


def test_single_names_occur_only_in_training(corpus):
    for split, pairs in corpus.items():
        if split != "train":
            assert not [pair for pair in pairs if len(pair.kinds) == 1 and set(pair.kinds) <= NAMES]


def test_texts_have_plain_spaces_and_no_placeholders(corpus):
    for pairs in corpus.values():
        for text in (text for pair in pairs for text in (pair.source, pair.target)):
            assert text == re.sub("[\u00a0\u2009\u202f]", " ", text).strip()
            assert not re.search(r"[{}\n%][a-z0-9(]|  ", text)


@pytest.mark.parametrize(
    ("style", "value", "english", "german", "chinese"),
    [
        ("date/full", datetime(2025, 3, 3), "Monday, March 3, 2025", "Montag, 3. März 2025", None),
        ("time/short", datetime(2025, 1, 1, 21, 5), "9:05 PM", "21:05", "21:05"),
        ("relative/hour/past", 3, "3 hours ago", "vor 3 Stunden", "3小时前"),
        ("duration/hour", 1, "1 hour", "1 Stunde", "1小时"),
        (
            "duration/hour-minute/standard",
            (3, 20),
            "3 hours and 20 minutes",
            "3 Stunden und 20 Minuten",
            "3小时和20分钟",
        ),
        ("compact/long", 1_200_000, "1.2 million", "1,2 Millionen", "120万"),
        ("percent/plain", Decimal("0.125"), "12.5%", "12,5 %", "12.5%"),
        ("currency/EUR", Decimal("1.50"), "1.50 euros", "1,50 Euro", "1.50欧元"),
        ("currency/EUR", 1, "1 euro", "1 Euro", "1欧元"),
        ("unit/length-meter", 5, "5 meters", "5 Meter", "5米"),
        (
            "rate/volume-liter-per-duration-minute",
            5,
            "5 liters per minute",
            "5 Liter pro Minute",
            "5升/分钟",
        ),
        ("territory/CH", None, "Switzerland", "Schweiz", "瑞士"),
    ],
)
def test_values_are_written_as_in_the_language(style, value, english, german, chinese):
    texts = [phrases.write_value(Locale(code), style, value) for code in ("en", "de", "zh")]
    assert texts[:2] == [english, german]
    assert chinese in (None, texts[2])


@pytest.mark.parametrize("code", ["de", "zh", "sw", "ar", "wo", "ga", "zh_Hant", "pt_PT"])
def test_codes_and_abbreviations_of_the_cldr_root_are_not_used(code):
    styles = shared_styles("en", code)
    locale = Locale.parse(code)
    for name in styles["territory"] + styles["language"]:
        assert phrases.write_value(locale, name, None) != name.partition("/")[2]
    for name in styles["unit"]:
        text = phrases.write_value(locale, name, 7)
        assert name.partition("/")[2] not in text
        root = phrases.write_value(Locale("root"), name, 7)
        assert text != root or not re.search("[a-zA-Z]", text)


def test_names_missing_in_one_language_are_left_out():
    english, swahili = Locale("en"), Locale("sw")
    unnamed = {code for code in english.languages if code not in swahili.languages}
    assert not {f"language/{code}" for code in unnamed} & set(shared_styles("en", "sw")["language"])
    assert len(shared_styles("en", "sw")["language"]) > 100


def test_the_english_or_of_the_cldr_root_is_not_used():
    assert phrases.has_or(Locale("en"))
    assert phrases.has_or(Locale("de"))
    assert not phrases.has_or(Locale("zu"))


@pytest.mark.parametrize(
    ("pair", "style"),
    [
        (("sw", "en"), "interval/days"),  # Swahili writes April 3 to May 5 as it writes May 3 to 5
        (("en", "sw"), "compact/long"),  # Babel scales by the zeros of negative numbers too
    ],
)
def test_ambiguous_and_wrong_styles_are_left_out(pair, style):
    kind = style.partition("/")[0]
    assert style not in shared_styles(*pair).get(kind, [])
    assert style in shared_styles("en", "de")[kind]


@pytest.mark.parametrize(
    ("source", "target"),
    [("zh", "en"), ("de", "fr"), ("fr", "ru"), ("ja", "sw"), ("ar", "hi"), ("pt-BR", "zh-Hant")],
)
def test_any_two_languages_make_pairs(source, target):
    splits = [
        {p.source: p.target for p in generate_pairs(source, target, split=split, count=60)}
        for split in SPLITS
    ]
    assert all(len(pairs) == 60 for pairs in splits)
    for first, second in combinations(splits, 2):
        assert not first.keys() & second.keys()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("xx", "de", {}), r"got language 'xx'.*allowed.*pybabel --list-locales"),
        (("en", "", {}), r"got language ''"),
        (("pt-BR", "pt_BR", {}), r"allowed are two different languages"),
        (("en", "de", {"split": "test"}), r"got split 'test'.*test_values"),
        (("en", "sma", {}), "'en' and 'sma', which lack common names and units"),
    ],
)
def test_invalid_arguments_are_refused_at_once(arguments, message):
    source, target, options = arguments
    with pytest.raises(ValueError, match=message):
        generate_pairs(source, target, **{"count": 1, **options})


@pytest.mark.parametrize("split", ["train", "test_combinations"])
def test_an_unreachable_count_is_refused(monkeypatch, split):
    monkeypatch.setattr(phrases, "_shared_styles", lambda *_: {"duration": ["duration/hour"]})
    monkeypatch.setattr(phrases, "_MAX_DRAWS", 3000)
    with pytest.raises(ValueError, match=r"got count=1000; allowed are about \d+.*lower count"):
        list(generate_pairs("en", "de", split=split, count=1000))


def test_files_hold_the_pairs_of_each_split(tmp_path, capsys):
    phrases.main(["--output-dir", str(tmp_path), "--pairs", "30", "--test-pairs", "5"])
    for split in SPLITS:
        lines = (tmp_path / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
        pairs = generate_pairs("en", "de", split=split, count=30 if split == "train" else 5)
        assert [*map(json.loads, lines)] == [{"en": p.source, "de": p.target} for p in pairs]
    with pytest.raises(SystemExit):
        phrases.main(["--pair", "en-tlh", "--output-dir", str(tmp_path)])
    assert "got language 'tlh'" in capsys.readouterr().err
