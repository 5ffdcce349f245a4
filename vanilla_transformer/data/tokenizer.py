"""Byte-level BPE with a shared vocabulary (Section 5.1), and tokenizers for other tasks.

"Sentences were encoded using byte-pair encoding, which has a shared source-target vocabulary."

Deviation: pieces are made of bytes rather than characters, so that no text needs `<unk>`.

For phonemes, tags or brackets, each symbol between spaces can have a token of its own.

The result is a plain `PreTrainedTokenizerFast`: everything it does is written in `tokenizer.json`
and `tokenizer_config.json`, and the stock `AutoTokenizer` loads it without any code of ours.
"""

from __future__ import annotations

import logging
import string
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..errors import RequestError, quoted
from ..storage.reading import JSON_BYTES, read_text
from ..storage.saved_model import load_saved_tokenizer, named_errors
from ..target_tokenizer import target_tokenizer
from .checked_pairs import UNSEEN, WHITE_SPACE

logger = logging.getLogger(__name__)

# The order of the special tokens gives their ids, on which checkpoints depend.
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")

KINDS = ("bpe", "bytes", "symbols")
_INPUT_NAMES = ("input_ids", "attention_mask")

# Typographic characters, and the ASCII that most training texts use instead. _LETTER covers scripts
# with capitals; next to Chinese, Japanese or Korean, which need some of these characters, nothing
# is replaced. The patterns work in JavaScript too.
_LETTER = r"\p{Lu}\p{Ll}\p{M}"
_EAST = r"\p{Lo}\u3001-\u303f\uff01-\uff65"
_TYPOGRAPHY = (
    (r"(?<![\p{Lo}\u2026])\u2026(?![\p{Lo}\u2026])", "..."),
    # Apostrophes and single quotation marks. The left one, which closes quotations in German, is
    # replaced only before a letter.
    (
        rf"[\u2019\u201b\u02bc\u02b9\u2032\ua78c\uff07\u00b4`]"
        rf"(?:(?=[{_LETTER}\p{{Nd}}])|(?<=[{_LETTER}.,!?].)(?![{_EAST}]))"
        rf"|(?<![{_EAST}])[\u2018\u02bb](?=[{_LETTER}\p{{Nd}}])",
        "'",
    ),
    # The two quotation marks of English; German, Polish or Swedish have other pairs.
    (rf"(?<![{_EAST}])\u201c(?=[^\p{{Lo}}\u201c-\u201e]{{1,200}}\u201d(?![{_EAST}]))", '"'),
    (r'(?<="[^\p{Lo}"\u201c-\u201e]{1,200})\u201d', '"'),
    (r"[\u2010\u2011]", "-"),
)
_FULL_WIDTH = [(chr(ord(c) + 0xFEE0), c) for c in string.ascii_letters + string.digits]


def make_tokenizer(
    kind: str, texts: Iterable[str], *, vocab_size: int, **training: Any
) -> PreTrainedTokenizerFast:
    """Make a tokenizer: train one on texts, or load one from a file.

    Args:
        kind: "bpe": see `train_tokenizer`. "bytes": a token for each byte. "symbols": a token for
            each symbol between spaces in the texts, the most frequent ones if there are more than
            `vocab_size`. A text file of symbols, one a line. Or a folder or `tokenizer.json` of a
            tokenizer with a padding token and an end token, whatever they are called.
        texts: The texts of one side, or of both.
        vocab_size: Most tokens; has no effect on bytes or a given tokenizer.
        **training: Other arguments of `train_tokenizer`, for "bpe" and "bytes".

    Raises:
        ValueError: There is no such tokenizer, it cannot serve a model, or there is no text.
    """
    if kind in ("bpe", "bytes"):
        size = vocab_size if kind == "bpe" else smallest_vocab_size()
        return train_tokenizer(texts, vocab_size=size, **training)
    if kind == "symbols":
        counts = Counter(symbol for text in _checked(texts) for symbol in text.split())
        # The most frequent first; of equally frequent ones the first in Unicode, so that the order
        # of the texts does not matter.
        ranked = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
        return symbol_tokenizer(ranked[: vocab_size - len(SPECIAL_TOKENS)])
    path = Path(kind)
    if path.suffix == ".txt":
        text = read_text(path, "symbols, one a line", JSON_BYTES).removeprefix("\ufeff")
        return symbol_tokenizer(text.splitlines())
    return given_tokenizer(path)


def symbol_tokenizer(symbols: Iterable[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer that splits at spaces into symbols; unknown ones become `<unk>`.

    Args:
        symbols: The symbols in the order of their ids, after the four special tokens, which may be
            left out.

    Raises:
        ValueError: A symbol appears twice or holds white space, or there is none.
    """
    ids = {token: index for index, token in enumerate(SPECIAL_TOKENS)}
    for symbol in symbols:
        if symbol in SPECIAL_TOKENS:
            continue
        if symbol in ids or symbol.split() != [symbol]:
            fault = "twice" if symbol in ids else "that is empty or has white space"
            raise RequestError(f"got the symbol {quoted(symbol)} {fault}; list each once.")
        ids[symbol] = len(ids)
    if len(ids) == len(SPECIAL_TOKENS):
        raise RequestError("found no symbols; a .txt file needs one per line, and pairs need text.")
    backend = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    # "</s>" in a user's text is plain text, not a symbol.
    special = Regex(r"(?<!\S)<(pad|/?s)>(?!\S)")
    backend.normalizer = normalizers.Replace(special, "<unk>")
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = _ends_with("</s>", ids["</s>"])
    backend.add_special_tokens(list(SPECIAL_TOKENS))
    return _wrapped(backend)


def given_tokenizer(path: Path) -> PreTrainedTokenizerFast:
    """Load a user's own tokenizer, and make it append its end token to every text.

    Args:
        path: Folder that `save_pretrained` wrote, or a `tokenizer.json` alone, whose special
            tokens must then be called `<pad>`, `<s>`, `</s>` and `<unk>`, as far as it has them.

    Raises:
        ValueError: It cannot be read, or has no padding token or no end token.
    """
    if path.is_dir():
        tokenizer = load_saved_tokenizer(path)
    elif path.is_file():
        with named_errors(f"tokenizer: {path} does not load"):
            tokenizer = _wrapped(Tokenizer.from_str(read_text(path, "JSON", JSON_BYTES)))
    else:
        allowed = f"{', '.join(KINDS)}, a .txt file of symbols, a tokenizer.json, or its folder"
        raise RequestError(f"tokenizer: got {quoted(str(path))}; it must be {allowed}.")
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise RequestError(f"tokenizer: {path} has no tokenizer.json; give a tokenizer with one.")
    # BERT's tokenizer also lists token types, which the model does not read.
    tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = [*_INPUT_NAMES]
    if None in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        tokens = f"pad_token {tokenizer.pad_token} and eos_token {tokenizer.eos_token}"
        raise RequestError(f"tokenizer: {path} has {tokens}; set both tokens and save it again.")
    if tokenizer("a").input_ids[-1:] != [tokenizer.eos_token_id]:
        logger.info("The tokenizer of %s will append %s to each text.", path, tokenizer.eos_token)
        end = _ends_with(tokenizer.eos_token, tokenizer.eos_token_id)
        tokenizer.backend_tokenizer.post_processor = end
    return tokenizer


def smallest_vocab_size() -> int:
    """Return the smallest vocabulary size: the special tokens and every byte."""
    return len(SPECIAL_TOKENS) + len(pre_tokenizers.ByteLevel.alphabet())


def train_tokenizer(
    texts: Iterable[str],
    *,
    vocab_size: int,
    split_digits: bool = False,
    normalize_text: bool = True,
    keep_typography: bool = False,
    show_progress: bool = True,
    num_texts: int | None = None,
) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer on the sentences of both languages.

    `tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True)` returns any UTF-8 text
    as `normalize_text` leaves it, including control characters and the words "</s>" or "<pad>":
    what a user types never becomes a special token. A lone surrogate has no UTF-8 form; the
    tokenizer refuses it with a `TypeError`.

    `</s>` is appended to sources and (`text_target=`) targets alike, and kept under truncation.

    Args:
        texts: Sentences of both languages; read once.
        vocab_size: Number of tokens to learn, including 4 special tokens and 256 bytes.
        split_digits: Make each digit a token, so that unseen numbers are spelt like seen ones.
        normalize_text: Read a text without white space at its ends, each run of white space in it
            as one space, and letters with their accents as one character (NFC), so that texts that
            look alike are translated alike. Off, each character counts.
        keep_typography: Read typographic apostrophes (as phones type them), English quotation
            marks, ellipses, hyphens, and full-width letters and digits as they are. By default
            they are read as their ASCII forms, in targets too. Needs `normalize_text`.
        show_progress: Draw the trainer's progress bars.
        num_texts: How many texts there are, so that the first bar has an end.

    Raises:
        ValueError: No text, one string instead of many, or `vocab_size` below 260.
    """
    if vocab_size < smallest_vocab_size():
        least = f"{smallest_vocab_size()}, for every byte and the special tokens"
        raise RequestError(f"got vocab_size={vocab_size}; the smallest is {least}.")
    if isinstance(texts, (str, bytes)):
        raise RequestError("got one string; train_tokenizer takes an iterable of them: [text].")
    backend = _untrained_backend(split_digits=split_digits)
    if normalize_text:
        backend.normalizer = text_normalizer(keep_typography=keep_typography)
    trainer = BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        # Sorted, since the order of a set differs between processes.
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=show_progress and sys.stderr.isatty(),
    )
    if show_progress:
        logger.info("Learning a vocabulary of %s pieces.", f"{vocab_size:,}")
    backend.train_from_iterator(_checked(texts), trainer, length=num_texts)
    if backend.get_vocab_size() < vocab_size:
        got = f"The text gave {backend.get_vocab_size()} pieces, not the {vocab_size} requested"
        logger.warning("%s: a model of your own needs vocab_size=len(tokenizer).", got)
    return _wrapped(backend)


def vocabulary_fields(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return the fields of a new model's config that depend on its tokenizer.

    Raises:
        ValueError: The special tokens of source and target differ in their ids.
    """
    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    target = target_tokenizer(tokenizer)
    ids, other = ({name: getattr(side, name) for name in names} for side in (tokenizer, target))
    if ids != other:
        raise RequestError(f"Both sides need the same special ids, not {ids} and {other}.")
    start = ids["pad_token_id"] if ids["bos_token_id"] is None else ids["bos_token_id"]
    fields = {**ids, "vocab_size": len(tokenizer), "decoder_start_token_id": start}
    if target is not tokenizer:
        fields |= {"decoder_vocab_size": len(target), "share_encoder_decoder_embeddings": False}
    return fields


def text_normalizer(*, keep_typography: bool = False) -> normalizers.Normalizer:
    """Return the normalizer of white space, accents and typography; see `train_tokenizer`."""
    folded = ([], []) if keep_typography else (_FULL_WIDTH, _TYPOGRAPHY)
    before, after = ([normalizers.Replace(Regex(p), to) for p, to in pairs] for pairs in folded)
    steps = [
        normalizers.Replace(Regex(UNSEEN), ""),
        normalizers.Replace(Regex(WHITE_SPACE), " "),
        normalizers.Replace(Regex("  +"), " "),
        normalizers.Strip(),
        *before,  # first, so that NFC composes accents on letters
        normalizers.NFC(),
        *after,
    ]
    return normalizers.Sequence(steps)


def _untrained_backend(*, split_digits: bool) -> Tokenizer:
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    # No space is put before a text, because decoding would return it. ByteLevel's pattern
    # separates letters from punctuation, so that no merge can spell a special token.
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    steps = [pre_tokenizers.Digits(individual_digits=True), byte_level]
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps) if split_digits else byte_level
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = _ends_with("</s>", SPECIAL_TOKENS.index("</s>"))
    return backend


def _ends_with(end: str, index: int) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(
        single=f"$A {end}", pair=f"$A {end} $B {end}", special_tokens=[(end, index)]
    )


def _wrapped(backend: Tokenizer) -> PreTrainedTokenizerFast:
    roles = ("pad_token", "bos_token", "eos_token", "unk_token")
    names = zip(roles, SPECIAL_TOKENS, strict=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        **{role: token for role, token in names if backend.token_to_id(token) is not None},
        padding_side="right",  # positions are counted from the left
        truncation_side="right",
        model_input_names=[*_INPUT_NAMES],
        clean_up_tokenization_spaces=False,  # it would remove the space in "Hallo !"
        split_special_tokens=True,  # "</s>" in a user's text is text
    )


def _checked(texts: Iterable[str]) -> Iterator[str]:
    empty = True
    for text in texts:
        empty = empty and not text
        yield text
    if empty:
        raise RequestError("got no text to learn a vocabulary from; give at least one sentence.")
