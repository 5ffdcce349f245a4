"""The shared byte-level vocabulary of Section 5.1.

"Sentences were encoded using byte-pair encoding, which has a shared source-target vocabulary."

Deviation: pieces are made of bytes rather than characters, so that no text needs `<unk>`.

The result is a plain `PreTrainedTokenizerFast`: everything it does is written in `tokenizer.json`
and `tokenizer_config.json`, and the stock `AutoTokenizer` loads it without any code of ours.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from ..errors import RequestError

logger = logging.getLogger(__name__)

# Their places are their ids; checkpoints depend on them.
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")

# What Rust, Python or JavaScript calls white space, for they disagree: Unicode's White_Space, the
# separators U+001C to U+001F, and the byte order mark; without the space itself. Written so that
# the regular expressions of tokenizers and of JavaScript read it alike.
_WHITE_SPACE = (
    r"[\u0009-\u000d\u001c-\u001f\u0085\u00a0\u1680\u2000-\u200a"
    r"\u2028\u2029\u202f\u205f\u3000\ufeff]"
)


def check_vocab_size(vocab_size: int) -> None:
    """Refuse a vocabulary without room for every byte.

    Raises:
        ValueError: it is below 260.
    """
    count = len(pre_tokenizers.ByteLevel.alphabet())
    smallest = len(SPECIAL_TOKENS) + count
    if vocab_size < smallest:
        raise RequestError(
            f"got vocab_size={vocab_size}; allowed are sizes from {smallest}: "
            f"{len(SPECIAL_TOKENS)} special tokens and {count} bytes."
        )


def train_tokenizer(
    texts: Iterable[str],
    *,
    vocab_size: int,
    model_max_length: int | None = None,
    split_digits: bool = False,
    normalize_text: bool = True,
    show_progress: bool = True,
) -> PreTrainedTokenizerFast:
    """Learn one byte-level BPE vocabulary from the sentences of both languages.

    `tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True)` returns any UTF-8 text
    as `normalize_text` leaves it, including control characters and the words "</s>" or "<pad>":
    what a user types never becomes a special token. A lone surrogate has no UTF-8 form; the
    tokenizer refuses it with a `TypeError`.

    `</s>` is appended to sources and (`text_target=`) targets alike, and kept under truncation.

    Args:
        texts: sentences of both languages; read once.
        vocab_size: number of tokens to learn, including 4 special tokens and 256 bytes.
        model_max_length: most tokens with `truncation=True`. None for no limit.
        split_digits: make each digit a token, so that unseen numbers are spelt like seen ones.
        normalize_text: read a text without white space at its ends, each run of white space in it
            as one space, and letters with their accents as one character (NFC), so that texts that
            look alike are translated alike. Off, each character counts.
        show_progress: draw the trainer's progress bars.

    Raises:
        ValueError: no text, one string instead of many, or `vocab_size` below 260.
    """
    check_vocab_size(vocab_size)
    if isinstance(texts, (str, bytes)):
        raise RequestError("got one string; train_tokenizer takes an iterable of them: [text].")
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend = _untrained_backend(split_digits=split_digits, normalize_text=normalize_text)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(alphabet),  # a set: sorted, for the same ids in every process
        show_progress=show_progress,
    )
    backend.train_from_iterator(_checked(texts), trainer)
    if backend.get_vocab_size() < vocab_size:
        logger.warning(
            "The text gave %d pieces, not the %d asked for: a model of your own needs "
            "vocab_size=len(tokenizer).",
            backend.get_vocab_size(),
            vocab_size,
        )
    return _wrapped(backend, model_max_length=model_max_length)


def _untrained_backend(*, split_digits: bool, normalize_text: bool) -> Tokenizer:
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    if normalize_text:
        steps = [
            normalizers.Replace(Regex(_WHITE_SPACE), " "),
            normalizers.Replace(Regex("  +"), " "),
            normalizers.Strip(),
            normalizers.NFC(),
        ]
        backend.normalizer = normalizers.Sequence(steps)
    # No space is put before a text, because decoding would return it. ByteLevel's pattern
    # separates letters from punctuation, so that no merge can spell a special token.
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.pre_tokenizer = (
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
        if split_digits
        else byte_level
    )
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>",
        pair="$A </s> $B </s>",
        special_tokens=[("</s>", SPECIAL_TOKENS.index("</s>"))],
    )
    return backend


def _wrapped(backend: Tokenizer, *, model_max_length: int | None) -> PreTrainedTokenizerFast:
    limit = {} if model_max_length is None else {"model_max_length": model_max_length}
    pad, bos, eos, unk = SPECIAL_TOKENS
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=pad,
        bos_token=bos,
        eos_token=eos,
        unk_token=unk,
        padding_side="right",  # positions are counted from the left
        truncation_side="right",
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,  # it would remove the space in "Hallo !"
        split_special_tokens=True,  # "</s>" in a user's text is text
        **limit,
    )


def _checked(texts: Iterable[str]) -> Iterator[str]:
    empty = True
    for text in texts:
        empty = empty and not text
        yield text
    if empty:
        raise RequestError("got no text to learn a vocabulary from; give at least one sentence.")
