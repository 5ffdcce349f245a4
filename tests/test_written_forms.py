"""Sources in capitals, without capitals or marks are read as training sources are written."""

import itertools
import json
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import byte_tokenizer
from transformers import AutoTokenizer

from vanilla_transformer.convert import exporters
from vanilla_transformer.data.form_counts import count_forms
from vanilla_transformer.texts.unknown import unknown_characters
from vanilla_transformer.written_forms import WRITTEN_FORMS, WrittenForms, written_forms

NAMES = ("Ingrid", "Kwame", "Lake Geneva", "the USA", "O'Neill")
STATEMENTS = ("My sister and I met {} in the town.", "I'm sure that {} is behind the old house.")
QUESTIONS = ("Where is {} now?", "Where does the train to {} leave?")
SOURCES = [text.format(name) for text in STATEMENTS + QUESTIONS for name in NAMES] * 5
TARGETS = [f"Satz {number}, größer." for number in range(100)]
FORMS = count_forms(SOURCES, TARGETS, ("en", "de"))


def title(text):
    return " ".join(word[:1].upper() + word[1:] for word in text.split(" "))


def without_mark(text):
    return text.rstrip(".?!")


@pytest.mark.parametrize("mark", [str, without_mark])
@pytest.mark.parametrize("case", [str, str.upper, str.lower, title])
def test_every_form_of_a_training_source_is_read_as_the_source(case, mark):
    for source in SOURCES:
        assert FORMS.source_of(mark(case(source))) == source


def test_typographic_apostrophes_hide_no_word():
    assert FORMS.source_of("I\u2019M SURE") == "I'm sure."
    assert FORMS.source_of("i\u00b4m sure that") == "I'm sure that."


@pytest.mark.parametrize(
    "text",
    [
        "Hello, my name is Siobhan.",
        "Good Morning, Lake Geneva!",  # no common word tells that it is in title case
        "Siobhan",
        '"Where?" she asked',
        "",
    ],
)
def test_what_may_be_written_normally_keeps_its_case(text):
    assert FORMS.source_of(text) == text + FORMS.mark_missing(text)


def test_a_missing_apostrophe_or_sharp_s_is_restored_where_the_word_is_no_other():
    sources = ["I don't know it.", "We're here.", "We were here."] * 20
    forms = count_forms(sources, TARGETS, ("en", "de"))
    typed = ["I dont know", "DONT GO!", "we were here", "I don\u2019t go", "dont@x.org", "I, Dont"]
    read = ["I don't know.", "Don't go!", "We were here.", "I don\u2019t go.", "dont@x.org."]
    read.append("I, Dont.")  # may be a name
    assert [forms.source_of(text) for text in typed] == read
    forms = count_forms(["Wie heißt die Straße?", "Die Masse und Maße."] * 20, TARGETS, ("de", ""))
    assert forms.source_of("WIE HEISST DIE MASSE") == "Wie heißt die Masse?"


def test_a_greeting_or_a_rare_opening_makes_no_question():
    sources = [*SOURCES, *["Hi, where is Kwame now?"] * 9, *["So is it?"] * 6, "So is mine."]
    forms = count_forms(sources + ["I left."] * 20, TARGETS, ("en", "de"))
    assert [forms.mark_missing(text) for text in ("Hi", "Hi there", "So", "Where")] == [*"...?"]
    assert forms.mark_missing("Hi, Ingrid, where does the train leave") == "?"


def test_what_is_no_word_stays():
    read = FORMS.source_of("MY SISTER MET THE U.S. AT X@Y.ORG IN B2B, HTTP://A.ORG/B")
    assert read == "My sister met the U.S. at X@Y.ORG in B2B, HTTP://A.ORG/B."


def test_a_name_keeps_its_capital_in_title_case_alone():
    assert FORMS.source_of("Where Does Siobhan Leave?") == "Where does Siobhan leave?"
    assert FORMS.source_of("where does siobhan leave?") == "Where does siobhan leave?"


@pytest.mark.parametrize(
    ("typed", "translated", "expected"),
    [
        ("WHERE IS SHE?", "Wo ist die große Straße?", "WO IST DIE GROßE STRAßE?"),
        ("WHERE IS SHE", "Wo ist sie?", "WO IST SIE"),
        ("where is she", "Wo ist sie?", "Wo ist sie"),
        ("Where is she?", "Wo ist sie?", "Wo ist sie?"),
        ("where is she", "Wo ist sie", "Wo ist sie"),
        ("the usa", "Die USA.", "Die USA"),
        ("USA", "Die USA.", "Die USA"),  # an abbreviation is no shouting
        ("where is she", "", ""),
    ],
)
def test_the_translation_follows_what_was_typed(typed, translated, expected):
    assert FORMS.translation_of(typed, translated) == expected


def test_turkish_has_a_dotted_and_a_dotless_i():
    sources = [
        "Bugün Isparta ile İzmir aras\u0131nda \u0131l\u0131k bir gün.",
        "Benim ad\u0131m İnci ve Irmak.",
    ] * 9
    forms = count_forms(sources, sources, ("tr", "tr"))
    for source in sources:
        shouted = source.replace("i", "İ").upper()
        assert forms.source_of(shouted) == source
        assert forms.translation_of(shouted, source) == shouted


def test_german_nouns_get_their_capitals():
    sources = ["Der Hund läuft ins Haus.", "Wo ist der Hund?", "Das Haus ist neu."] * 5
    forms = count_forms(sources, sources, ("de", "en"))
    for change, source in itertools.product((str.lower, str.upper, without_mark), sources):
        assert forms.source_of(change(source)) == source


@pytest.mark.parametrize(
    ("sources", "typed", "expected"),
    [
        (["hello", "dog", "catalogue"], "HELLO", "hello"),  # letters to phonemes
        (["hello", "dog", "catalogue"], "Hello", "hello"),
        (["HELLO", "DOG", "CATALOGUE"], "hello", "HELLO"),
        (["a dog runs .", "two cats sleep ."], "A DOG SLEEPS", "a dog sleeps."),
        (["我喜欢猫。", "你在哪里\uff1f"], "我喜欢狗", "我喜欢狗。"),
        (["select x from y", "SELECT a FROM b", "Select A from B"], "select z", "select z"),
        (["1 2 3", "4 5"], "7 8", "7 8"),
    ],
)
def test_other_sources_decide_by_their_own_form(sources, typed, expected):
    forms = count_forms(sources * 10, sources * 10, ("", ""))
    assert forms.source_of(typed) == expected
    assert all(forms.source_of(source) == source for source in sources)


def test_targets_without_cases_are_never_raised():
    forms = count_forms(SOURCES, ["h ə l oʊ", "d ɒ k"], ("en", "ipa"))
    assert forms.translation_of("WHERE IS SHE?", "w ɛ ɹ") == "w ɛ ɹ"


@pytest.mark.parametrize(("unmarked", "added"), [(1, "."), (5, "")])
def test_a_mark_is_added_only_where_hardly_any_source_lacks_one(unmarked, added):
    sources = ["A dog runs."] * (100 - unmarked) + ["A dog runs"] * unmarked
    forms = count_forms(sources, sources, ("en", "de"))
    assert forms.source_of("A cat sleeps") == f"A cat sleeps{added}"


def test_no_sources_change_nothing():
    for empty in ([], ["", " "]):
        forms = count_forms(empty, empty, ("en", "de"))
        assert forms.source_of("WHERE IS SHE") == "WHERE IS SHE"
        assert forms.translation_of("WHERE IS SHE", "Wo?") == "Wo?"


def test_only_characters_that_no_source_has_are_told():
    tokenizer = byte_tokenizer()
    assert unknown_characters(tokenizer, ["привет"]) is None  # it is unknown what sources have
    count_forms(["dog", "catalogue"] * 9, ["d"], ("", "")).to_tokenizer(tokenizer)
    assert unknown_characters(tokenizer, ["DOG", "Catalogue"]) is None
    assert unknown_characters(tokenizer, ["dog", "привет"]).startswith("67% of the characters")


def test_forms_are_saved_and_loaded_with_the_tokenizer(tmp_path):
    tokenizer = byte_tokenizer()
    assert written_forms(tokenizer).source_of("where is she") == "where is she"
    FORMS.to_tokenizer(tokenizer)
    tokenizer.save_pretrained(tmp_path)
    assert written_forms(AutoTokenizer.from_pretrained(tmp_path)) == FORMS


@pytest.mark.parametrize("written", ["", "[]", '{"mark": 1, "x": 2}', '{"forms": 3}', "{"])
def test_damaged_forms_are_named(written):
    tokenizer = byte_tokenizer()
    tokenizer.init_kwargs[WRITTEN_FORMS] = written
    with pytest.raises(ValueError, match=r"written_forms in tokenizer_config.json is damaged"):
        written_forms(tokenizer)


LETTERS = st.sampled_from(
    [*"aAbBiI\u0131İßéÉdDžǅ'\u2019 .,?!-@/1²中文のひ\n\t\"«“_", "Where", "the", "THE"]
)


@given(st.lists(LETTERS, max_size=30).map("".join))
def test_reading_twice_is_reading_once(text):
    read = FORMS.source_of(text)
    assert FORMS.source_of(read) == read


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_the_browser_page_does_the_same():
    module = Path(exporters.__file__).with_name("page") / "forms.js"
    script = """
        const {readFileSync} = require("fs")
        const source = encodeURIComponent(readFileSync(process.argv[1]))
        const cases = readFileSync(0)
        import(`data:text/javascript,${source}`).then(({WrittenForms}) => {
            const results = JSON.parse(cases).map(([facts, text, translation]) => {
                const forms = new WrittenForms(facts)
                return [forms.sourceOf(text), forms.translationOf(text, translation)]
            })
            console.log(JSON.stringify(results))
        })
    """
    texts = [
        change(mark(s))
        for s in SOURCES
        for change in (str, str.upper, str.lower, title)
        for mark in (str, without_mark)
    ]
    texts += ["I\u2019M SURE", "THE U.S. AT X@Y.ORG", "\u0131I İi DAĞ", "ǅ ß É\u2019É"]
    texts += ["². 中文", "Don't, where is it", "IM SURE", "Im sure that"]
    variants = (FORMS, WrittenForms(), count_forms(["dog"] * 9, ["D"] * 9, ("tr", "tr")))
    cases = [(forms, text, "Die Straße ist groß.") for forms in variants for text in texts]
    given = json.dumps([(asdict(forms), *rest) for forms, *rest in cases])
    command = ["node", "-e", script, str(module)]
    run = subprocess.run(command, input=given.encode(), capture_output=True, check=True)
    for (forms, text, translated), result in zip(cases, json.loads(run.stdout), strict=True):
        assert result == [forms.source_of(text), forms.translation_of(text, translated)], text
