"""Tags of languages: what is one variety, however it is written, and what is another."""

import itertools

import pytest

from vanilla_transformer.data.language_names import is_meant, language_of, script_of
from vanilla_transformer.evaluation.scores import bleu_tokenizer
from vanilla_transformer.publish.card import _is_language, _iso_code

# Tags with the script, region and variant that they mean; None: any.
TAGS = {
    "zh": {
        **{"zh": None, "zh-Hans": ("Hans", None, None), "zh-Hant": ("Hant", None, None)},
        **{"zh-CN": ("Hans", "CN", None), "zh-SG": ("Hans", "SG", None)},
        **{"zh-TW": ("Hant", "TW", None), "zh-HK": ("Hant", "HK", None)},
        **{"zh-Hans-CN": ("Hans", "CN", None), "zh-Hant-HK": ("Hant", "HK", None)},
    },
    "sr": {
        **{"sr": None, "sr-Latn": ("Latn", None, None), "sr-Cyrl": ("Cyrl", None, None)},
        **{"sr-RS": ("Cyrl", "RS", None), "sr-ME": ("Latn", "ME", None)},
        **{"sr-Latn-RS": ("Latn", "RS", None)},
    },
    "pt": {"pt": None, "pt-BR": ("Latn", "BR", None), "pt-PT": ("Latn", "PT", None)},
    "de": {
        **{"de": None, "de-AT": ("Latn", "AT", None), "de-DE": ("Latn", "DE", None)},
        **{"de-1901": ("Latn", None, "1901"), "de-1996": ("Latn", None, "1996")},
        **{"de-AT-1901": ("Latn", "AT", "1901"), "de-Latn": ("Latn", None, None)},
    },
    "ca": {"ca": None, "ca-valencia": ("Latn", None, "valencia"), "ca-ES": ("Latn", "ES", None)},
    "uz": {"uz": None, "uz-Cyrl": ("Cyrl", None, None), "uz-UZ": ("Latn", "UZ", None)},
    "es": {
        **{"es": None, "es-419": ("Latn", "419", None), "es-MX": ("Latn", "MX", None)},
        **{"es-Latn-419": ("Latn", "419", None)},
    },
    "ko": {
        **{"ko": None, "ko-Hang": ("Kore", None, None), "ko-Kore": ("Kore", None, None)},
        **{"ko-KR": ("Kore", "KR", None), "ko-KP": ("Kore", "KP", None)},
    },
    "en": {
        **{"en": None, "en-GB": ("Latn", "GB", None), "en-US": ("Latn", "US", None)},
        **{"en-GB-oxendict": ("Latn", "GB", "oxendict"), "en-XX": ("Latn", None, None)},
    },
}
OWN_NAMES = {
    **{"zh": "中文", "sr": "српски", "pt": "português", "de": "Deutsch", "ca": "català"},
    **{"uz": "o\u2018zbek", "es": "español", "ko": "한국어", "en": "English"},
}
LETTERS = {"Hans": "CJK", "Hant": "CJK", "Latn": "LATIN", "Cyrl": "CYRILLIC", "Kore": "HANGUL"}


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
            (*parts, variant), (*others, other_variant) = first, second
            agree = all(a == b for a, b in zip(parts, others, strict=True) if a and b)
            same = agree and variant == other_variant
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
            assert LETTERS[meant[0]] in script_of(name)
            by_letters = {"CJK": "zh", "HANGUL": "ko-mecab"}
            assert bleu_tokenizer(name) == by_letters.get(LETTERS[meant[0]], "13a")
