"""Tags of languages: what is one variety, however it is written, and what is another."""

import itertools
from types import SimpleNamespace

import pytest

from vanilla_transformer.data.languages import (
    foreign_language,
    is_meant,
    language_of,
    likely_languages,
    script_of,
)
from vanilla_transformer.evaluation.scores import bleu_tokenizer
from vanilla_transformer.publish.card import _is_language, _iso_code

# Tags of each language, with the script and the region that they mean.
MEANT = """
zh zh-Hans=Hans zh-Hant=Hant zh-CN=Hans-CN zh-SG=Hans-SG zh-TW=Hant-TW zh-HK=Hant-HK
zh-Hans-CN=Hans-CN zh-Hant-HK=Hant-HK
sr sr-Latn=Latn sr-Cyrl=Cyrl sr-RS=Cyrl-RS sr-ME=Latn-ME sr-Latn-RS=Latn-RS
pt pt-BR=Latn-BR pt-PT=Latn-PT
de de-AT=Latn-AT de-DE=Latn-DE de-Latn=Latn
uz uz-Cyrl=Cyrl uz-UZ=Latn-UZ
es es-419=Latn-419 es-MX=Latn-MX es-Latn-419=Latn-419
ko ko-Kore=Kore ko-KR=Kore-KR ko-KP=Kore-KP
en en-GB=Latn-GB en-US=Latn-US
"""
TAGS: dict[str, dict] = {}
for each in MEANT.split():
    tag, _, meant = each.partition("=")
    script, _, region = meant.partition("-")
    TAGS.setdefault(tag[:2], {})[tag] = (script, region) if meant else None
OWN_NAMES = {
    **{"zh": "中文", "sr": "српски", "pt": "português", "de": "Deutsch"},
    **{"uz": "o\u2018zbek", "es": "español", "ko": "한국어", "en": "English"},
}
BY_SCRIPT = {"Hans": "zh", "Hant": "zh", "Kore": "ko-mecab"}


def spellings(tag):
    """Return ways to write a tag; the code may be of three letters."""
    code, *parts = tag.split("-")
    longer = {"zh": "zho", "sr": "srp", "pt": "por", "de": "deu", "ca": "cat", "uz": "uzb"}
    longer |= {"ko": "kor", "en": "eng", "es": "spa"}
    for form in (tag, tag.lower(), tag.upper(), "-".join([longer[code], *parts])):
        yield from (form, form.replace("-", "_"))


@pytest.mark.parametrize("code", TAGS)
def test_tags_mean_each_other_unless_both_say_what_differs(code):
    for (one, first), (other, second) in itertools.product(TAGS[code].items(), repeat=2):
        same = first is None or second is None
        if not same:
            same = all(a == b for a, b in zip(first, second, strict=True) if a and b)
        for left, right in zip(spellings(one), [*spellings(other)][::-1], strict=True):
            assert is_meant(left, right) == same, (left, right)
        for name in (OWN_NAMES[code], OWN_NAMES[code].upper()):
            assert is_meant(one, name)
    others = [tag for language, tags in TAGS.items() if language != code for tag in tags]
    others += [name for language, name in OWN_NAMES.items() if language != code]
    assert not any(map(is_meant, itertools.repeat(code), others))


@pytest.mark.parametrize(("code", "tag"), [(code, tag) for code in TAGS for tag in TAGS[code]])
def test_every_spelling_of_a_tag_has_one_language_and_one_script(code, tag):
    meant = TAGS[code][tag]
    for name in spellings(tag):
        assert language_of(name) == code
        assert _is_language(name)
        assert _iso_code(name) in (code, name[:3].lower())
        assert script_of(name) == script_of(tag)
        if meant is not None:
            assert meant[0] == script_of(name)
            assert bleu_tokenizer(name) == BY_SCRIPT.get(meant[0], "13a")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("de", "de"), ("DEU", "de"), ("ger", "de"), ("de_CH", "de"), ("zh-Hans", "zh"),
        ("German", "de"), ("cmn", "zh"), ("Swahili", "sw"), ("swh", "sw"), ("sr@latin", "sr"),
        ("score", None), ("Hello", None), ("", None), ("1.2", None), ("en_text", None),
    ],
)  # fmt: skip
def test_languages_are_known_by_code_and_name(name, code):
    assert language_of(name) == code


@pytest.mark.parametrize(
    ("text", "language", "named"),
    [
        ("Je ne comprends pas cette question.", "en", "French"),
        ("Ich bin heute sehr müde und gehe schlafen.", "English", "German"),
        ("I do not understand this question.", "en", None),
        ("Hi", "en", None),
        ("Jeg forstår ikke dette spørgsmål.", "nb", None),  # Danish and Norwegian are alike
        ("Je ne comprends pas cette question.", "graphemes", None),
    ],
)
def test_a_foreign_language_is_named_only_where_it_is_sure(text, language, named):
    assert foreign_language(text, language) == named


def test_likely_languages_are_expected_ones_unless_the_text_is_clearly_in_another(monkeypatch):
    assert likely_languages("Ich habe einen Hund.", ["en", "de"])[0][0] == "de"
    assert likely_languages("Ceci n'est pas une pipe, monsieur.", ["en", "de"])[0][0] == "fr"
    found = likely_languages("ok", ["de", "en"])
    assert {code for code, _ in found} == {"de", "en"}
    assert sum(share for _, share in found) == pytest.approx(1)
    unsure = SimpleNamespace(rank=lambda text: [("fr", 0.6), ("it", 0.4), ("en", 0.0)])
    monkeypatch.setattr("vanilla_transformer.data.languages._identifier", lambda: unsure)
    assert likely_languages("any", ["en"]) == [("en", 0.0)]  # too improbable for a float
    assert likely_languages("any", ["xx"]) == [("xx", 0.0)]  # unknown to the identifier
