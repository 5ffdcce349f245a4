"""Pairs generated from CLDR: disjoint splits, one target per source, texts equal to Babel's."""

import ast
import re
import sys
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import combinations, islice
from pathlib import Path

import pytest

babel = pytest.importorskip("babel", reason="comes with the extra demo")

# After the check above: these need Babel, without which this file is skipped.
from babel import Locale, dates, lists, numbers, units  # noqa: E402

from vanilla_transformer.data.cldr import language as cldr_language  # noqa: E402
from vanilla_transformer.data.cldr import pairs as cldr  # noqa: E402
from vanilla_transformer.data.cldr.pairs import HELD_OUT_COMBINATIONS, KINDS, SPLITS, generate_pairs  # noqa: E402

Language = lru_cache(cldr_language.Language)
COUNTS = {"train": 3000, "validation": 120, "test_values": 120, "test_combinations": 120}
PAIRS = [("en", "de"), ("en", "zh")]
NAMES = {"territory", "language"}


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
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


def plain(text):
    """Replace special spaces by plain ones."""
    return re.sub("[\u00a0\u2009\u202f]", " ", text)


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
        assert {pair.split for pair in pairs} == {split}
        assert {cldr._split_of(pair.source) for pair in pairs} == {split}


def test_a_source_has_one_target(corpus):
    targets = {}
    for pairs in corpus.values():
        for pair in pairs:
            assert targets.setdefault(pair.source, pair.target) == pair.target


def test_every_split_has_every_kind_and_training_has_each_alone(corpus):
    for pairs in corpus.values():
        assert {kind for pair in pairs for kind in pair.kinds} == set(KINDS)
    assert {pair.kinds for pair in corpus["train"] if pair.form == "plain"} == {
        (kind,) for kind in KINDS
    }
    assert {pair.form for pair in corpus["train"]} == {"plain", "note", "list", "nested"}


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


def days_in(pairs):
    """Return every day in the English sources, found by the names of months in long dates."""
    months = "|".join(Locale("en").months["format"]["wide"].values())
    found = re.compile(rf"(?:{months}) \d+, \d{{4}}")
    return {day for pair in pairs for day in found.findall(pair.source)}


def times_in(pairs):
    found = re.compile(r"(\d+:\d\d)(?::\d\d)? ([AP]M)")
    return {time for pair in pairs for time in found.findall(pair.source)}


def test_days_and_times_of_test_splits_are_not_in_training(corpus):
    for values_in in (days_in, times_in):
        trained = values_in(corpus["train"]) | values_in(corpus["test_combinations"])
        assert len(trained) > 500
        for split in ("validation", "test_values"):
            tested = values_in(corpus[split])
            assert len(tested) > 30
            assert not tested & trained
    assert not days_in(corpus["validation"]) & days_in(corpus["test_values"])


def test_amounts_of_the_test_split_are_not_in_training(corpus):
    amount = re.compile(r"\d+ (?:second|minute|hour|day|week|month|quarter|year)s? ago")
    found = {
        split: {text for pair in pairs for text in amount.findall(pair.source)}
        for split, pairs in corpus.items()
    }
    assert found["test_values"]
    assert not found["test_values"] & (found["train"] | found["validation"])


def test_every_name_occurs_in_training():
    trained = " ".join(pair.target for pair in generate_pairs("en", "de", count=8_000))
    grammar = cldr._grammar("en", "de")
    for kind in sorted(NAMES):
        for style in grammar.styles[kind]:
            assert grammar.target.styles[style].render(None) in trained


def test_single_names_occur_only_in_training(corpus):
    for split, pairs in corpus.items():
        if split != "train":
            assert not [pair for pair in pairs if len(pair.kinds) == 1 and set(pair.kinds) <= NAMES]


def test_texts_have_plain_spaces_and_no_placeholders(corpus):
    for pairs in corpus.values():
        for pair in pairs:
            for text in (pair.source, pair.target):
                assert text == plain(text) == text.strip()
                assert not re.search(r"[{}\n%][a-z0-9(]|  ", text)


@pytest.mark.parametrize("code", ["de", "zh", "zh_Hant", "sw", "ar", "pt_PT", "wo"])
def test_names_are_in_the_language_and_never_codes(code):
    locale = Locale.parse(code)
    tables = {
        "territory": locale.territories,
        "language": locale.languages,
        "currency": locale.currencies,
    }
    count = 0
    for name in Language(code).styles:
        kind, _, key = name.partition("/")
        if kind in tables:
            count += 1
            assert tables[kind][key] != key
    assert count > 100


@pytest.mark.parametrize("code", ["de", "zh", "sw", "ar", "wo", "ga"])
def test_units_are_never_the_abbreviations_of_the_cldr_root(code):
    root = cldr_language._read_data("root")["unit_patterns"]
    language = Language(code)
    for name, style in language.styles.items():
        if name.startswith("unit/"):
            abbreviation = root[name.partition("/")[2]]["short"].get("other", "")
            assert style.render(7) != abbreviation.replace("{0}", "7")


def test_names_missing_in_one_language_are_left_out():
    english, swahili = Locale("en"), Locale("sw")
    unnamed = {code for code in english.languages if code not in swahili.languages}
    styles = set(cldr._grammar("en", "sw").styles["language"])
    assert any(f"language/{code}" in Language("en").styles for code in unnamed)
    assert not {f"language/{code}" for code in unnamed} & styles


def test_styles_that_are_ambiguous_in_the_source_are_left_out():
    # Swahili writes April 3 to May 5 as it writes May 3 to May 5.
    start, end = datetime(2025, 5, 3), datetime(2025, 5, 5)
    days = Language("sw").styles["interval/days"].render
    assert days((start, end)) == days((start - timedelta(30), end))
    assert "interval/days" not in cldr._grammar("sw", "en").styles["interval"]
    assert "interval/days" in cldr._grammar("en", "sw").styles["interval"]


MOMENTS = [datetime(2024, 2, 29, 0, 5, 9), datetime(1950, 12, 3, 12, 30), datetime(2031, 9, 14, 21)]
ORACLES = ["en", "de", "zh", "fr", "ru", "hi", "ar", "sw", "th", "kk", "pt_PT"]


@pytest.mark.parametrize("code", ORACLES)
def test_dates_and_times_equal_babel(code):
    styles = Language(code).styles
    for moment in MOMENTS:
        for width in ("full", "long"):
            expected = dates.format_date(moment, width, code)
            assert styles[f"date/{width}"].render(moment) == plain(expected)
        for name, skeleton in (("numeric", "yMd"), ("month", "yMMMM"), ("quarter", "yQQQQ")):
            expected = dates.format_skeleton(skeleton, moment, locale=code)
            assert styles[f"date/{name}"].render(moment) == plain(expected)
        for width in ("short", "medium"):
            expected = dates.format_time(moment, width, locale=code)
            assert styles[f"time/{width}"].render(moment) == plain(expected)


@pytest.mark.parametrize("code", ORACLES)
def test_intervals_equal_babel(code):
    styles = Language(code).styles
    hours = "hm" if "h" in Locale.parse(code).time_formats["short"].pattern else "Hm"
    for start in MOMENTS:
        for gap in (timedelta(minutes=7), timedelta(hours=5)):
            expected = dates.format_interval(start.time(), (start + gap).time(), hours, locale=code)
            if start.day == (start + gap).day:
                assert styles["interval/times"].render((start, start + gap)) == plain(expected)
        for days in (1, 40, 800):
            end = start + timedelta(days)
            expected = dates.format_interval(start, end, "yMMMd", locale=code)
            assert styles["interval/days"].render((start, end)) == plain(expected)
        expected = dates.format_interval(start, start + timedelta(99), "yMMMM", locale=code)
        assert styles["interval/months"].render((start, start + timedelta(99))) == plain(expected)


COUNTED = [1, 2, 3, 5, 11, 21, 1234, 98765, 1234567, Decimal("1.5"), Decimal("20.3")]


@pytest.mark.parametrize("code", ORACLES)
def test_numbers_and_amounts_equal_babel(code):
    styles = Language(code).styles
    for value in COUNTED:
        expected = numbers.format_decimal(value, locale=code)
        assert styles["number/plain"].render(value) == plain(expected)
        expected = numbers.format_percent(
            Decimal(value) / 1000, locale=code, decimal_quantization=False
        )
        assert styles["percent/plain"].render(Decimal(value) / 1000) == plain(expected)
    for value in (1, 2, 5, 1234, Decimal("3.07"), Decimal("1250.50")):
        expected = numbers.format_currency(
            value, "EUR", locale=code, format_type="name", currency_digits=value != int(value)
        )
        assert styles["currency/EUR"].render(value) == plain(expected)


@pytest.mark.parametrize("code", ORACLES)
def test_units_and_relative_times_equal_babel(code):
    styles = Language(code).styles
    for value in COUNTED:
        for unit in ("mass-gram", "length-mile", "speed-kilometer-per-hour"):
            expected = units.format_unit(value, unit, locale=code)
            # Babel writes a unit's code if CLDR inherits its long form from the short one.
            if unit not in expected and unit.partition("-")[2] not in expected:
                assert styles[f"unit/{unit}"].render(value) == plain(expected)
    for days in (1, 2, 5, 6):
        for sign, direction in ((-1, "past"), (1, "future")):
            expected = dates.format_timedelta(
                timedelta(days * sign), "day", threshold=99, add_direction=True, locale=code
            )
            assert styles[f"relative/day/{direction}"].render(days) == plain(expected)


@pytest.mark.parametrize("code", ["en", "de", "fr"])
def test_rates_equal_babel(code):
    for value in (1, 2, Decimal("0.5")):
        expected = units.format_compound_unit(
            value, "volume-liter", 1, "duration-minute", locale=code
        )
        rate = Language(code).styles["rate/volume-liter/duration-minute"]
        assert rate.render(value) == plain(expected)


@pytest.mark.parametrize("code", ORACLES)
def test_lists_equal_babel(code):
    forms = Language(code).forms
    for texts in (["A", "B"], ["A", "B", "C"], ["A", "B", "C", "D"]):
        assert forms["and"](texts) == lists.format_list(texts, locale=code)
        assert forms["or"](texts) == lists.format_list(texts, "or", locale=code)


def test_the_english_or_of_the_cldr_root_is_not_used():
    assert lists.format_list(["A", "B"], "or", locale="zu") == "A or B"
    assert set(Language("zu").forms) == {"and", "note"}


@pytest.mark.parametrize("code", ["sw", "en"])
def test_compact_numbers_that_babel_gets_wrong_are_left_out(code):
    """Babel scales by the zeros of the pattern for negative numbers too."""
    patterns = Locale(code).compact_decimal_formats["long"]["other"].values()
    doubled = any(";" in pattern.pattern for pattern in patterns)
    assert doubled != ("compact/long" in Language(code).styles)


@pytest.mark.parametrize("code", ["en", "de", "fr", "ru"])
def test_compact_numbers_equal_babel_and_stay_distinct(code):
    style = Language(code).styles["compact/long"]
    texts = [style.render(value) for value in (1000, 12_000, 1_200_000, 34_000_000, 120_000_000)]
    assert len(set(texts)) == 5
    assert texts[2] == plain(
        numbers.format_compact_decimal(
            1_200_000, format_type="long", locale=code, fraction_digits=1
        )
    )


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
        (("en", "en", {}), r"allowed are two different languages"),
        (("pt-BR", "pt_BR", {}), r"allowed are two different languages"),
        (("en", "de", {"split": "test"}), r"got split 'test'.*test_values"),
        (("en", "de", {"count": -1}), r"Got count=-1"),
    ],
)
def test_invalid_arguments_are_refused_at_once(arguments, message):
    source, target, options = arguments
    with pytest.raises(ValueError, match=message):
        generate_pairs(source, target, **{"count": 1, **options})


def test_languages_that_share_only_numbers_and_dates_are_refused():
    with pytest.raises(ValueError, match="'en' and 'sma', which have no words in common"):
        generate_pairs("en", "sma", count=1)


def test_combinations_are_refused_if_the_languages_share_none_that_is_held_out(monkeypatch):
    grammar = cldr._grammar("en", "de")
    few = grammar._replace(styles={"date": ("date/quarter",)})
    monkeypatch.setattr(cldr, "_grammar", lambda *_: few)
    with pytest.raises(ValueError, match="share only the kinds date, and none"):
        list(generate_pairs("en", "de", split="test_combinations", count=1))


def test_an_unreachable_count_is_refused(monkeypatch):
    grammar = cldr._grammar("en", "de")
    few = grammar._replace(styles={"date": ("date/quarter",)}, forms=frozenset())
    monkeypatch.setattr(cldr, "_grammar", lambda *_: few)
    monkeypatch.setattr(cldr, "_SHAPES", ((1,),))
    monkeypatch.setattr(cldr, "_MAX_DRAWS", 3000)
    with pytest.raises(ValueError, match=r"got count=1000; allowed are about \d+.*lower count"):
        list(generate_pairs("en", "de", count=1000))


def test_without_babel_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "babel", None)
    with pytest.raises(ValueError, match=r"pip install \"babel>=2.18\""):
        generate_pairs("en", "de", count=1)


def test_babel_is_imported_only_when_pairs_are_made():
    for module in (cldr, cldr_language):
        for node in ast.parse(Path(module.__file__).read_text()).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert "babel" not in ast.unparse(node)
