"""The tokenizer: like texts are one, no special ids come from text, AutoTokenizer loads it."""

import functools
import json
import re
import shutil
import subprocess
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from vanilla_transformer.data.checked_pairs import is_empty
from vanilla_transformer.data.tokenizer import (
    SPECIAL_TOKENS,
    make_tokenizer,
    train_tokenizer,
    vocabulary_fields,
)
from vanilla_transformer.storage.saved_model import load_saved_tokenizer
from vanilla_transformer.storage.shipped import pretrained_models
from vanilla_transformer.texts.targets import hold_target_tokenizer

CORPUS = [
    "A man in a blue shirt is standing on a ladder.",
    "Ein Mann in einem blauen Hemd steht auf einer Leiter.",
    *SPECIAL_TOKENS,  # tempt training to merge a special token's text
    "你好,世界。",
] * 20
HARD_TEXTS = [
    "",
    " ",
    "  leading, trailing and   inner  spaces   ",
    "\n\r\n\t\x0b\x0c\x85\u2028\u2029",
    "a\x00b\x00",
    "\u00a0\u3000\u200b\ufeff",
    "e\u0301 \u00e9",  # the same letter composed and decomposed
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
    "\u0b95\u0bcd\u0bb7\u0bcd \u05d0\u05b8 \u0e01\u0e34",
    "\U0010ffff\ufffe\ue000",
    "don't  'll 've it's",
    "Hallo ! Was ? Nichts , gar nichts .",
    "\u0120\u010a",  # the letters that stand for space and line feed in byte-level pieces
    *SPECIAL_TOKENS,
    "<pad>" * 5,
    "a </s> b<s>c<unk>d <pad> ",
    "I don\u2019t. \u2018No!\u2019 5\u2019 \u201cIt\u2019s \u2026\u201d Well\u2026 T\u2011s",
    "\u201eNein\u201c, \u201ahm\u2018. \u201eTak\u201d \u201dHej\u201d",  # other pairs than English
    "\u201c\u4f60\u597d\u201d\u2026\u2026\u2018\u55e8\u2019 \u201cx",
    "\uff21\u0301\uff11\uff0c\uff4f\uff07\uff43\uff01",  # full-width letters, digit, marks
]


@pytest.fixture(scope="module")
def trained():
    return train_tokenizer(CORPUS, vocab_size=400, show_progress=False)


@pytest.fixture(scope="module")
def loaded(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    trained.save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


any_text = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=80)
salted = st.lists(st.one_of(any_text, st.sampled_from(HARD_TEXTS)), max_size=4).map("".join)


# By Unicode or by str.isspace, and the byte order mark, which JavaScript strips.
WHITE = [chr(code) for code in range(0x110000) if chr(code).isspace()] + ["\ufeff"]


CONTROLS = [c for c in map(chr, range(256)) if unicodedata.category(c) == "Cc" and c not in WHITE]
DIRECTIONS = map(chr, (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)))
UNSEEN = [*CONTROLS, *DIRECTIONS, *"\u00ad\u200b\u2060"]


APOSTROPHES = "\u2019\u02bc\u00b4`\uff07\u201b\u02b9\u2032\ua78c"  # what people type for '


def normalized(text, *, keeps_typography=False):
    text = re.sub(f"[{re.escape(''.join(UNSEEN))}]", "", text)
    words = re.split(f"[{re.escape(''.join(WHITE))}]+", text)
    text = " ".join(words).strip(" ")
    if keeps_typography:
        return unicodedata.normalize("NFC", text)
    for start, end in ("09", "AZ", "az"):
        for code in range(ord(start), ord(end) + 1):
            text = text.replace(chr(code + 0xFEE0), chr(code))
    return with_ascii_quotes(unicodedata.normalize("NFC", text))


def is_eastern(character):
    """Of Chinese, Japanese or Korean, or any other letter without capitals."""
    marks = character and (0x3001 <= ord(character) <= 0x303F or 0xFF01 <= ord(character) <= 0xFF65)
    return bool(marks) or unicodedata.category(character or " ") == "Lo"


def is_letter(character):
    return unicodedata.category(character or " ") in ("Lu", "Ll", "Mn", "Mc", "Me")


def with_ascii_quotes(text):
    """Read typographic marks as ASCII, one character after the other."""
    text = "".join(
        "..."
        if mark == "\u2026"
        and not any(
            each == mark or unicodedata.category(each or " ") == "Lo"
            for each in (text[:place][-1:], text[place + 1 : place + 2])
        )
        else mark
        for place, mark in enumerate(text)
    )
    ascii_text = ""
    for place, mark in enumerate(text):
        before, after = text[:place][-1:], text[place + 1 : place + 2]
        opens = is_letter(after) or unicodedata.category(after or " ") == "Nd"
        closes = (is_letter(before) or before in [*".,!?"]) and not is_eastern(after)
        if (mark in APOSTROPHES and (opens or closes)) or (
            mark in "\u2018\u02bb" and opens and not is_eastern(before)
        ):
            mark = "'"
        elif mark in "\u2010\u2011":
            mark = "-"
        ascii_text += mark
    # Pairs of English, around at most 200 letters of scripts with capitals.
    for match in re.finditer("\u201c([^\u201c-\u201e]{1,200})\u201d", ascii_text):
        beside = ascii_text[: match.start()][-1:], ascii_text[match.end() :][:1]
        inside = any(unicodedata.category(letter) == "Lo" for letter in match[1])
        if not (inside or any(map(is_eastern, beside))):
            ascii_text = f'{ascii_text[: match.start()]}"{match[1]}"{ascii_text[match.end() :]}'
    return ascii_text


def check_round_trip(tokenizer, text, expected=None):
    expected = normalized(text) if expected is None else expected
    ids = tokenizer(text).input_ids
    assert ids[-1] == 2
    assert all(piece > 3 for piece in ids[:-1])
    assert tokenizer.decode(ids, skip_special_tokens=True) == expected
    bare = tokenizer(text, add_special_tokens=False).input_ids
    assert bare == ids[:-1]
    assert tokenizer.decode(bare) == expected
    assert tokenizer(expected).input_ids == ids


@given(salted)
@example("</s>")
@settings(deadline=None, max_examples=150)
def test_any_text_survives_encoding_before_and_after_saving(trained, loaded, text):
    check_round_trip(trained, text)
    check_round_trip(loaded, text)
    assert trained(text).input_ids == loaded(text).input_ids


@pytest.mark.parametrize("text", HARD_TEXTS)
def test_hard_texts_survive_encoding(loaded, text):
    check_round_trip(loaded, text)


def test_every_assigned_character_survives_encoding(loaded):
    characters = [chr(code) for code in range(0x110000)]
    characters = [c for c in characters if unicodedata.category(c) not in ("Cn", "Co", "Cs")]
    for start in range(0, len(characters), 4096):
        # Apart, since versions of Unicode differ in the order of several accents on one letter.
        text = "x".join(characters[start : start + 4096])
        ids = loaded(text).input_ids
        assert min(ids[:-1]) > 3
        assert loaded.decode(ids, skip_special_tokens=True) == normalized(text)


@pytest.mark.parametrize("white", WHITE, ids=ascii)
def test_white_space_of_any_kind_is_one_space_inside_and_none_outside(loaded, white):
    plain = loaded("two words").input_ids
    assert loaded(f"{white}two{white} {white}words \n{white}").input_ids == plain
    assert loaded(white).input_ids == loaded("").input_ids


@pytest.mark.parametrize("tokenizer", ["loaded", "everyday-en-de", "everyday-en-zh"])
def test_what_nobody_sees_changes_nothing(request, tokenizer):
    known = pretrained_models().get(tokenizer)
    tokenizer = load_saved_tokenizer(known) if known else request.getfixturevalue(tokenizer)
    plain = tokenizer("two words").input_ids
    for unseen in UNSEEN:
        assert tokenizer(f"{unseen}tw{unseen}o {unseen}words{unseen}").input_ids == plain
    for spelled in "\u200c\u200d":  # joiners of Persian, Hindi and emoji
        assert tokenizer(f"two{spelled} words").input_ids != plain


@given(salted)
@settings(deadline=None)
def test_a_side_of_a_pair_is_empty_if_the_normalizer_leaves_nothing(trained, text):
    normalizer = trained.backend_tokenizer.normalizer
    assert is_empty(text) == (normalizer.normalize_str(text) == "")


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_normalizer_is_the_same_in_javascript(trained, tmp_path):
    """As Transformers.js reads it, from the saved file."""
    trained.save_pretrained(tmp_path)
    odd = WHITE + UNSEEN
    texts = [f"{one}e\u0301{one} {one}x{one}" for one in odd] + HARD_TEXTS
    script = """
        const [file, texts] = process.argv.slice(1)
        const {normalizer} = JSON.parse(require("fs").readFileSync(file))
        const apply = (text, step) => ({
            Replace: () => text.replaceAll(new RegExp(step.pattern.Regex, "gu"), step.content),
            Strip: () => text.trim(),
            NFC: () => text.normalize("NFC"),
        })[step.type]()
        const results = JSON.parse(texts).map((text) => normalizer.normalizers.reduce(apply, text))
        console.log(JSON.stringify(results))
    """
    arguments = [str(tmp_path / "tokenizer.json"), json.dumps(texts)]
    run = subprocess.run(["node", "-e", script, *arguments], capture_output=True, check=True)
    assert json.loads(run.stdout) == [normalized(text) for text in texts]


def test_without_normalizer_every_character_counts():
    make = functools.partial(train_tokenizer, CORPUS, vocab_size=300, show_progress=False)
    plain, typographic = make(normalize_text=False), make(keep_typography=True)
    for text in HARD_TEXTS:
        check_round_trip(plain, text, expected=text)
        check_round_trip(typographic, text, expected=normalized(text, keeps_typography=True))


@pytest.mark.parametrize("tokenizer", ["loaded", "everyday-en-de", "everyday-en-zh"])
def test_what_a_phone_types_has_the_tokens_of_ascii(request, tokenizer):
    known = pretrained_models().get(tokenizer)
    tokenizer = load_saved_tokenizer(known) if known else request.getfixturevalue(tokenizer)

    def tokens(text):
        return tokenizer(text).input_ids

    for text in (
        "I don't",
        "It's o'clock, boys'",
        "l'\u00e9t\u00e9 \u043f'\u044f\u0442\u044c",
        "'90s",
    ):
        for apostrophe in APOSTROPHES:
            assert tokens(text.replace("'", apostrophe)) == tokens(text)
    for typed, text in (
        ("\u2018Help!\u2019 she said.", "'Help!' she said."),
        ("He said, \u201cI can\u2019t.\u201d", 'He said, "I can\'t."'),
        ("\u201cYes\u201d or \u201cNo\u201d?", '"Yes" or "No"?'),
        ("\u2018Well\u2026\u2019 he said", "'Well...' he said"),
        ("Well\u2026 no \u2026 \u2026yes", "Well... no ... ...yes"),
        ("a well\u2011known T\u2010shirt", "a well-known T-shirt"),
        ("\uff28\uff45\uff4c\uff4c\uff4f \uff17", "Hello 7"),
    ):
        assert tokens(typed) == tokens(text)
    for text in (  # other languages' own, and what is no letter's
        *(
            "\u4ed6\u8bf4\uff1a\u201c\u4f60\u597d\u2026\u2026\u201d\uff0c\u2018\u55e8\u2019\uff01",
            "\u8bf4\u201cOK\u201d\u7136\u540e\uff0c\u2018Tom\u2019\u548c\u201cAnn\u201d\u3002",
            "\u201eJa\u201c \u201aNein\u2018",
        ),
        *(
            "\u201eTak\u201d",
            "\u201dHej\u201d",
            "\u00abOui\u00bb",
            "6\u2032 \u2019 ` \u00b4",
            "\uac00\u2019\uac00",
        ),
    ):
        assert tokenizer.decode(tokens(text), skip_special_tokens=True) == text


def test_texts_survive_encoding_with_split_digits():
    tokenizer = train_tokenizer(
        ["1234 5678 1234"] * 20, vocab_size=270, split_digits=True, show_progress=False
    )
    assert [piece for piece in tokenizer.tokenize("in 1234") if piece.isdigit()] == list("1234")
    for text in [*HARD_TEXTS, " 12 3.5 \u0663\u00b2"]:
        check_round_trip(tokenizer, text)


def test_special_tokens_have_ids_0_to_3(trained, loaded):
    for tokenizer in (trained, loaded):
        assert tokenizer.convert_tokens_to_ids(["<pad>", "<s>", "</s>", "<unk>"]) == [0, 1, 2, 3]
        ids = (tokenizer.pad_token_id, tokenizer.bos_token_id)
        assert (*ids, tokenizer.eos_token_id, tokenizer.unk_token_id) == (0, 1, 2, 3)


@pytest.mark.byte_level
def test_vocabulary_always_contains_all_bytes(trained):
    """So any byte string can be encoded; the first 260 ids do not depend on training text."""
    smallest = train_tokenizer(["a"], vocab_size=260, show_progress=False)
    assert len(smallest) == 260
    assert len(smallest("\U0001f600", add_special_tokens=False).input_ids) == 4


def test_saved_tokenizer_is_one_of_transformers(trained, tmp_path):
    """So it loads where the package is not, which test_hub.py tries."""
    trained.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["split_special_tokens"] is True
    assert config["clean_up_tokenization_spaces"] is False
    assert config["tokenizer_class"] == "TokenizersBackend"
    assert "auto_map" not in config


def test_sources_and_targets_end_with_a_symbol_and_begin_with_none(loaded):
    texts = ["A man", "a ladder in a blue shirt </s>", ""]
    single = [loaded(text).input_ids for text in texts]
    both = loaded(texts, text_target=texts)
    assert both["input_ids"] == both["labels"] == single
    assert all(ids[-1] == 2 and ids.count(2) == 1 and 1 not in ids for ids in single)


@pytest.mark.byte_level
def test_vocabulary_is_the_same_in_every_process():
    """Each process orders sets and hash maps in its own way."""
    tokenizer = train_tokenizer(["ein Mann", "a man"] * 3, vocab_size=266, show_progress=False)
    merged = tokenizer.convert_ids_to_tokens(range(260, 266))
    assert merged == ["an", "Man", "ei", "man", "ĠMan", "Ġman"]


def test_lone_surrogate_is_rejected_not_replaced(loaded):
    """A lone surrogate has no UTF-8 form, so it cannot be encoded losslessly."""
    with pytest.raises(TypeError):
        loaded("a\ud800b")
    with pytest.raises(UnicodeEncodeError, match=r"'\\ud800' in position 1"):
        train_tokenizer(["a", "b\ud800"], vocab_size=300, show_progress=False)


@pytest.mark.parametrize("texts", [[], ["", ""]])
def test_empty_training_text_is_rejected(texts):
    with pytest.raises(ValueError, match="no text"):
        train_tokenizer(texts, vocab_size=300, show_progress=False)
    with pytest.raises(ValueError, match=r"got one string; .* an iterable of them"):
        train_tokenizer("a text", vocab_size=300, show_progress=False)


@pytest.mark.byte_level
def test_vocabulary_smaller_than_the_bytes_is_rejected():
    with pytest.raises(ValueError, match=r"vocab_size=259; the smallest is 260"):
        train_tokenizer(["a"], vocab_size=259, show_progress=False)


def test_vocabulary_smaller_than_requested_gives_a_warning(caplog):
    tokenizer = train_tokenizer(["ab"], vocab_size=1000, show_progress=False)
    assert f"gave {len(tokenizer)} pieces, not the 1000 requested" in caplog.text


# ----------------------------------------------------------------------- tokenizers of other tasks


def words_tokenizer(*tokens, **roles):
    backend = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, "?"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, **roles)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["HH", "AH0", "\u0259", "(NP", ")", "</s>", "<pad>", "new"])))
def test_symbols_survive_and_new_ones_are_unknown(symbols):
    tokenizer = make_tokenizer(
        "symbols", ["HH AH0  \u0259", "(NP )", "HH </s>"], vocab_size=100, show_progress=False
    )
    known = {"HH", "AH0", "\u0259", "(NP", ")"}
    *ids, end = tokenizer("  ".join(symbols)).input_ids
    assert end == tokenizer.eos_token_id == 2
    kept = [symbol if symbol in known else "<unk>" for symbol in symbols]
    assert tokenizer.decode(ids) == " ".join(kept)
    assert not {0, 1, 2} & {*ids}  # text never becomes a special token


def test_the_most_frequent_symbols_are_kept_in_an_order_that_texts_do_not_change(tmp_path):
    texts = ["b a c", "a c", "c d"]
    vocabularies = [
        make_tokenizer("symbols", order, vocab_size=7).get_vocab() for order in (texts, texts[::-1])
    ]
    assert vocabularies[0] == vocabularies[1]
    assert sorted(vocabularies[0], key=vocabularies[0].get) == [*SPECIAL_TOKENS, "c", "a", "b"]
    listed = tmp_path / "symbols.txt"
    listed.write_bytes("\ufeff<pad>\r\nb\r\na\r\n".encode())
    tokenizer = make_tokenizer(str(listed), [], vocab_size=7)
    tokenizer.save_pretrained(tmp_path)
    for each in (tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        assert each("a b").input_ids == [5, 4, 2]


@pytest.mark.byte_level
def test_bytes_are_the_tokens_of_bytes():
    tokenizer = make_tokenizer("bytes", ["x"], vocab_size=9999, show_progress=False)
    assert len(tokenizer) == 260
    assert len(tokenizer("\u00e9a").input_ids) == 4
    assert tokenizer.decode(tokenizer("\u00e9a").input_ids, skip_special_tokens=True) == "\u00e9a"


def test_a_tokenizer_of_ones_own_gives_the_model_its_special_tokens(tmp_path, caplog):
    own = words_tokenizer("?", "[SEP]", "a", "b", "[PAD]", eos_token="[SEP]", pad_token="[PAD]")
    own.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    settings["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]  # as BERT's
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = make_tokenizer(str(tmp_path), [], vocab_size=260)
    tokenizer.save_pretrained(tmp_path / "saved")
    for each in (tokenizer, AutoTokenizer.from_pretrained(tmp_path / "saved")):
        assert {*each("b a")} == {"input_ids", "attention_mask"}
    assert tokenizer("b a").input_ids == [3, 2, 1]  # it had no end of its own
    assert vocabulary_fields(tokenizer) == {
        "pad_token_id": 4, "bos_token_id": None, "eos_token_id": 1,
        "decoder_start_token_id": 4, "vocab_size": 5,
    }  # fmt: skip
    trained = train_tokenizer(CORPUS, vocab_size=300, show_progress=False)
    trained.save_pretrained(tmp_path / "trained")
    for place in ("trained", "trained/tokenizer.json"):
        again = make_tokenizer(str(tmp_path / place), [], vocab_size=260)
        assert again(CORPUS).input_ids == trained(CORPUS).input_ids


def test_tokenizers_of_two_sides_need_the_same_special_tokens():
    source = make_tokenizer("bytes", ["x"], vocab_size=260, show_progress=False)
    target = make_tokenizer("symbols", ["x y"], vocab_size=260)
    hold_target_tokenizer(source, target)
    assert vocabulary_fields(source) == {
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
        "vocab_size": 260, "decoder_vocab_size": 6, "share_encoder_decoder_embeddings": False,
    }  # fmt: skip
    other = words_tokenizer("x", "<pad>", "</s>", eos_token="</s>", pad_token="<pad>")
    hold_target_tokenizer(source, other)
    with pytest.raises(ValueError, match="Both sides need the same special ids"):
        vocabulary_fields(source)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\nb\na\n", "'a' twice; list each once"),
        ("a b\n", "'a b' that is empty or has white space"),
        ("a\n\nb", "'' that is empty or has white"),
        ("<pad>\n</s>\n", "found no symbol"),
        ("\u0259\n\u00e4\n", r"symbols\.txt is not symbols"),
    ],
)
def test_a_file_of_symbols_lists_each_once(content, message, tmp_path):
    path = tmp_path / "symbols.txt"
    path.write_text(content, encoding="ascii" if content.isascii() else "utf-16")
    with pytest.raises(ValueError, match=message):
        make_tokenizer(str(path), [], vocab_size=260)


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"pad_token": "[PAD]"}, "pad_token .PAD. and eos_token None"),
        ({"eos_token": "[SEP]"}, "has no pad_token"),
    ],
)
def test_a_tokenizer_without_end_or_padding_is_refused(roles, message, tmp_path):
    words_tokenizer("?", "[SEP]", "[PAD]", **roles).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=message):
        make_tokenizer(str(tmp_path), [], vocab_size=260)
    with pytest.raises(ValueError, match="pad_token None and eos_token None"):
        make_tokenizer(str(tmp_path / "tokenizer.json"), [], vocab_size=260)


def test_an_unknown_kind_is_named_with_what_there_is():
    with pytest.raises(ValueError, match=r"'bpee'; it must be bpe, bytes, symbols, a \.txt file"):
        make_tokenizer("bpee", [], vocab_size=260)
