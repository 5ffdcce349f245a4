"""Build tokenizers that split at spaces and look words up in another system's vocabulary."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from ...configuration_vanilla_transformer import VanillaTransformerConfig
from ...errors import RequestError
from ...storage.reading import JSON_BYTES, StrPath, read_text
from ...texts.targets import hold_target_tokenizer

# White space as in Python's str.split().
_SPACES = r"[\s\x1c-\x1f]+"


def word_tokenizer(
    tokens: Sequence[str], special: Mapping[str, str], template: str, *, origin: object
) -> PreTrainedTokenizerFast:
    """Return a tokenizer that splits at white space and looks words up; unknown words become `unk`.

    The words may be pieces: decoding removes "@@" at the end (subword-nmt) or U+2581 in front
    (SentencePiece).

    Args:
        tokens: The vocabulary's tokens in order of id.
        special: The token of each role: `pad`, `bos`, `eos` and `unk`.
        template: The layout of an encoded text, such as "bos $A eos".
        origin: The vocabulary's name in errors.

    Raises:
        ValueError: A token occurs twice.
    """
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens):
        twice = next(token for number, token in enumerate(tokens) if vocabulary[token] != number)
        raise RequestError(f"{origin} holds {twice!r} twice; every token must be unique.")
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
        split_special_tokens=True,  # as in the original systems, "</s>" in a text is a word
    )


def _decoder(tokens: Sequence[str]) -> decoders.Decoder | None:
    """Return the decoder that joins pieces to words; None if all pieces are whole words.

    The marker that more tokens have is the vocabulary's: a few may contain the other one as text.
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
        ValueError: The file is too large, or not UTF-8.
    """
    lines = read_text(path, "a vocabulary", JSON_BYTES).removesuffix("\n").split("\n")
    return [line.removesuffix("\r") for line in lines]


def both_tokenizers(
    vocabularies: Sequence[Sequence[str]],
    config: VanillaTransformerConfig,
    templates: tuple[str, str],
    *,
    origins: Sequence[object],
) -> PreTrainedTokenizerFast:
    """Build the source's tokenizer, which stores the target's if the vocabularies differ.

    Args:
        vocabularies: The tokens of source and target in order of id.
        config: The model's configuration, which has the special ids.
        templates: The layouts of an encoded source and target.
        origins: The vocabularies' names in errors.

    Raises:
        ValueError: A vocabulary does not fit the model.
    """
    ids = {role: getattr(config, f"{role}_token_id") for role in ("pad", "bos", "eos", "unk")}
    if ids["unk"] is None:
        raise RequestError(f"{origins[0]} needs an id for unknown words; give unk_token_id.")
    sizes, tokenizers = (config.vocab_size, config.target_vocab_size), []
    parts = zip(vocabularies, sizes, templates, origins, strict=True)
    for tokens, size, template, origin in parts:
        if len(tokens) != size:
            raise RequestError(f"{origin} has size {len(tokens)}, but the model needs {size}.")
        special = {role: tokens[number] for role, number in ids.items()}
        tokenizers.append(word_tokenizer(tokens, special, template, origin=origin))
    sources, targets = vocabularies
    for role, number in ids.items():
        token = targets[number]
        if token in sources and sources[number] != token:
            ids_of = f"id {sources.index(token)} in {origins[0]}, but {number} in {origins[1]}"
            raise RequestError(f"{token!r} ({role}) has {ids_of}; use the same id in both.")
    source, target = tokenizers
    if (sources, templates[0]) != (targets, templates[1]):
        hold_target_tokenizer(source, target)
    return source


def vocabulary_tokenizer(
    paths: tuple[StrPath | None, StrPath | None], config: VanillaTransformerConfig, template: str
) -> PreTrainedTokenizerFast | None:
    """Build a tokenizer of source and target from files with one token per line.

    Args:
        paths: The source's file (None means no tokenizer) and the target's (None means the same).
        config: The model's configuration, which has the special ids.
        template: The layout of an encoded text.

    Raises:
        ValueError: A vocabulary does not fit the model.
    """
    if paths[0] is None:
        if paths[1] is not None:
            raise RequestError(f"{paths[1]} is the target's vocabulary; give the source's too.")
        return None
    files = [Path(paths[0]), Path(paths[1] or paths[0])]
    return both_tokenizers([*map(read_tokens, files)], config, (template, template), origins=files)
