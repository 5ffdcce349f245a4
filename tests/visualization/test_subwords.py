import pytest
from tiny_models import word_level
from tokenizers import decoders

from vanilla_transformer.data.tokenizer import train_tokenizer
from vanilla_transformer.visualization.subwords import (
    label,
    label_width,
    token_words,
    whole_words,
    words_and_mix,
)

SENTENCES = [
    "A man in an orange hat is staring at something.",
    "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt.",
    "It costs $5 or 10$ per snake_case; the café's naïve t-shirt was sold at 10:30, wasn't it?",
    "这是汤姆的东西吗。",
    "हिन्दी में लिखा है",
    "smile 😀 👨‍👩‍👧! ",
    "  two  spaces\tand a tab",
    "<s> is text here </s>",
]


@pytest.fixture(scope="module", params=[261, 400])
def tokenizer(request):
    """Return tokenizers with almost only bytes and with pieces between bytes and words."""
    return train_tokenizer(SENTENCES * 2, vocab_size=request.param, show_progress=False)


def words(tokenizer, text):
    return [word.text for word in whole_words(tokenizer, tokenizer(text)["input_ids"])]


@pytest.mark.parametrize("text", SENTENCES)
def test_each_id_belongs_to_one_word_and_the_words_are_the_text(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    *found, end = whole_words(tokenizer, ids)
    assert [i for word in (*found, end) for i in range(word.start, word.end)] == [*range(len(ids))]
    assert all(word.start < word.end for word in found)
    assert end.text == "</s>"
    joined = "".join(word.text for word in found if word.text != "\N{OPEN BOX}")
    assert "".join(joined.split()) == "".join(text.split())
    for merge in (True, False):
        texts, mix = words_and_mix(tokenizer, ids, merge=merge)
        assert mix.shape == (len(texts), len(ids))
        assert (mix.sum(axis=0) == 1).all()


def test_words_match_ordinary_words(tokenizer):
    assert words(tokenizer, SENTENCES[1])[:7] == [
        *("Ein", "Mann", "mit", "einem", "orangefarbenen", "Hut", ",")
    ]
    assert words(tokenizer, SENTENCES[2]) == [
        *("It", "costs", "$", "5", "or", "10", "$", "per", "snake_case", ";", "the", "café's"),
        *("naïve", "t-shirt", "was", "sold", "at", "10:30", ",", "wasn't", "it", "?", "</s>"),
    ]
    assert words(tokenizer, SENTENCES[4])[:-1] == SENTENCES[4].split()
    assert words(tokenizer, SENTENCES[5])[:2] == ["smile", "😀"]


def test_chinese_characters_are_neither_split_nor_joined(tokenizer):
    for word in words(tokenizer, SENTENCES[3])[:-1]:
        assert word in SENTENCES[3]
    bytes_only = train_tokenizer(["你好吗"], vocab_size=260, show_progress=False)
    assert words(bytes_only, "你好吗") == ["你", "好", "吗", "</s>"]


def test_special_tokens_are_words_and_their_names_in_a_text_are_not(tokenizer):
    ids = tokenizer("</s>x")["input_ids"]
    start, *found, end = (word.text for word in whole_words(tokenizer, [1, *ids]))
    assert (start, end) == ("<s>", "</s>")
    assert "".join(found) == "</s>x"
    assert {"s", "x"} < set(found)


def test_pieces_inside_a_word_are_marked():
    tokenizer = train_tokenizer(["ab ab"], vocab_size=261, show_progress=False)
    assert token_words(tokenizer, tokenizer("abab ab, 5")["input_ids"]) == [
        *("ab", "·ab", "\N{OPEN BOX}", "ab", ",", "\N{OPEN BOX}", "5", "</s>")
    ]


def test_partial_characters_are_shown_as_hexadecimal_bytes():
    tokenizer = train_tokenizer(["a"], vocab_size=260, show_progress=False)
    assert token_words(tokenizer, tokenizer("你")["input_ids"]) == [
        *(r"\xe4", r"\xbd", r"\xa0", "</s>")
    ]
    # A barely trained model can produce incomplete characters.
    broken = tokenizer("你")["input_ids"][:2]
    assert "".join(word.text for word in whole_words(tokenizer, broken)) == r"\xe4\xbd"


def test_sentencepiece_vocabularies_are_supported():
    tokenizer = word_level(["\u2581caf", "é", "\u2581au"])
    tokenizer.backend_tokenizer.decoder = decoders.Metaspace()
    assert token_words(tokenizer, [4, 5, 6, 2]) == ["caf", "·é", "au", "</s>"]
    assert [word.text for word in whole_words(tokenizer, [4, 5, 6, 2])] == ["café", "au", "</s>"]


def test_labels_drop_invisible_characters_and_are_shortened():
    assert label("a\u200d\ufe0fb\x00") == r"ab\x00"
    assert label("x" * 100) == "x" * 23 + "…"
    assert label("orangefarbenen") == "orangefarbenen"
    assert label_width("ab你") == 4
