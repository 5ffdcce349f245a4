"""Tokenizers for vocabularies of space-separated words, with the vocabularies' ids."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from ...configuration_vanilla_transformer import VanillaTransformerConfig
from ...errors import RequestError

# White space as in Python's str.split().
_SPACES = r"[\s\x1c-\x1f]+"


def word_tokenizer(
    tokens: Sequence[str], special: Mapping[str, str], template: str, *, origin: object
) -> PreTrainedTokenizerFast:
    """Return a tokenizer that splits at white space and looks each word up; unknown ones are `unk`.

    The words may be pieces: decoding removes "@@" at the end (subword-nmt) or U+2581 in front
    (SentencePiece).

    Args:
        tokens: the vocabulary's tokens in order of id.
        special: the tokens that are `pad`, `bos`, `eos` and `unk`.
        template: the layout of an encoded text, such as "bos $A eos".
        origin: the vocabulary's name in errors.

    Raises:
        ValueError: a token occurs twice, or a special one is missing.
    """
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens):
        twice = next(token for number, token in enumerate(tokens) if vocabulary[token] != number)
        raise RequestError(f"{origin} holds {twice!r} twice; every token must be unique.")
    for role, token in special.items():
        if token not in vocabulary:
            raise RequestError(f"{origin} holds no {token!r} ({role}); give the whole vocabulary.")
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=special["unk"]))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(_SPACES), "removed")
    decoder = _decoder(tokens)
    if decoder is not None:
        backend.decoder = decoder
    words = [special.get(word, word) for word in template.split()]
    if words != ["$A"]:
        named = [(word, vocabulary[word]) for word in words if word != "$A"]
        backend.post_processor = processors.TemplateProcessing(
            single=" ".join(words), special_tokens=named
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        **{f"{role}_token": token for role, token in special.items()},
        padding_side="right",
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,  # the sources look up "</s>" in a text like any word
    )


def _token(tokens: Sequence[str], role: str, number: int, file: Path) -> str:
    if number >= len(tokens):
        raise RequestError(f"{file} holds {len(tokens)} tokens, so {number} is no id for {role}.")
    return tokens[number]


def _decoder(tokens: Sequence[str]) -> decoders.Decoder | None:
    """Return the decoder from pieces to text; None joins words with spaces.

    The sign that more tokens have is that of the vocabulary: a few may have the other as text.
    Spaces at an edge are replaced rather than stripped: `decoders.Strip` fails on an empty text.
    """
    joining = sum(token.endswith("@@") and token != "@@" for token in tokens)
    spaced = sum(token.startswith("\u2581") for token in tokens)
    if joining > spaced:
        space_after_each = decoders.Replace(Regex(r"\z"), " ")
        joined = decoders.Replace("@@ ", "")
        return decoders.Sequence(
            [space_after_each, joined, decoders.Fuse(), decoders.Replace(Regex(r" \z"), "")]
        )
    if spaced:
        spaces = decoders.Replace("\u2581", " ")
        return decoders.Sequence([decoders.Fuse(), spaces, decoders.Replace(Regex(r"\A "), "")])
    return None


def read_tokens(path: Path) -> list[str]:
    """Read a vocabulary with one token per line.

    Raises:
        ValueError: the file is not UTF-8, or has an empty line.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is not UTF-8 ({error.reason}).") from error
    if lines and not lines[-1]:
        lines.pop()
    lines = [line.removesuffix("\r") for line in lines]
    for number, line in enumerate(lines, start=1):
        if not line:
            raise RequestError(f"{path}, line {number}, is empty; expected one token per line.")
    return lines


def check_size(tokens: Sequence[str], rows: int, *, origin: object) -> None:
    """Refuse a vocabulary whose size is not the model's.

    Raises:
        ValueError: the numbers of tokens differ.
    """
    if len(tokens) != rows:
        raise RequestError(f"{origin} holds {len(tokens)} tokens, but the model has {rows}.")


def vocabulary_tokenizers(
    paths: tuple[str | os.PathLike[str] | None, str | os.PathLike[str] | None],
    config: VanillaTransformerConfig,
    templates: tuple[str, str],
) -> tuple[PreTrainedTokenizerFast | None, PreTrainedTokenizerFast | None]:
    """Build tokenizers of source and target from files with one token per line.

    Args:
        paths: the source's file (None means no tokenizers) and the target's (None means the same).
        config: the model's configuration, which has the special ids.
        templates: the layouts of an encoded source and target.

    Returns:
        The source's and the target's tokenizer; None for the target's if it is the same.

    Raises:
        ValueError: a vocabulary does not fit the model.
    """
    if paths[0] is None:
        if paths[1] is not None:
            raise RequestError(f"{paths[1]} is the target's vocabulary; give the source's too.")
        return None, None
    files = [Path(paths[0]), Path(paths[1] or paths[0])]
    sizes = (config.vocab_size, config.target_vocab_size)
    found = []
    for file, size, template in zip(files, sizes, templates, strict=True):
        tokens = read_tokens(file)
        check_size(tokens, size, origin=file)
        ids = {role: getattr(config, f"{role}_token_id") for role in ("pad", "bos", "eos", "unk")}
        if ids["unk"] is None:
            raise RequestError(f"{file} needs an id for unknown words; give unk_token_id.")
        special = {role: _token(tokens, role, number, file) for role, number in ids.items()}
        found.append((tokens, template, special, file))
    (others, _, _, file), (_, _, special, _) = found
    for role, token in special.items():
        if token in others and others[ids[role]] != token:
            raise RequestError(
                f"{file} has {token!r} ({role}) as {others.index(token)}, but {files[1]} as "
                f"{ids[role]}; allowed is one id for both: order the source's vocabulary, and its "
                "embeddings, likewise."
            )
    source, target = (
        word_tokenizer(tokens, special, template, origin=file)
        for tokens, template, special, file in found
    )
    return source, None if found[0][:2] == found[1][:2] else target
