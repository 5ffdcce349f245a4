"""What every importer does: account for each tensor, and write all or nothing.

An importer says in `Piece`s where each tensor of ours is found in the source. Whatever is missing,
left over or of another shape is refused by name, before anything is written.
"""

import functools
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from ...configuration_vanilla_transformer import VanillaTransformerConfig
from ...errors import RequestError
from ...modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration, sinusoids
from ...storage.atomic import check_new_folder, folder_written_aside
from ...target_tokenizer import hold_target_tokenizer
from .safe_files import listed

# Names that other systems have for the activations of ours.
_ACTIVATIONS = {"silu": "swish", "gelu_pytorch_tanh": "gelu_new", "gelu_fast": "gelu_new"}


class Piece(NamedTuple):
    """Where a tensor of ours is found in the source.

    Attributes:
        keys: names of the tensor; several where the source ties them, and all that are there must
            then be equal. None at all: zeros, for a bias that the source does not have.
        change: makes ours of the source's; None if they are the same.
    """

    keys: tuple[str, ...]
    change: Callable[[Tensor], Tensor] | None = None


class Imported(NamedTuple):
    """What an importer found.

    Attributes:
        model: in evaluation mode, with a dtype that holds all tensors of the source exactly.
        tokenizer: of the source, or of both languages; None if it could not be rebuilt.
        target_tokenizer: of the target, where it has a vocabulary of its own. After `finish` the
            source's tokenizer holds it too.
        files: files of the source's own tokenizer, by name, kept as they are.
        notes: what a user should know, a sentence each.
    """

    model: VanillaTransformerForConditionalGeneration
    tokenizer: PreTrainedTokenizerFast | None = None
    target_tokenizer: PreTrainedTokenizerFast | None = None
    files: Mapping[str, bytes] = MappingProxyType({})
    notes: tuple[str, ...] = ()


def make_config(origin: object, **fields: Any) -> VanillaTransformerConfig:
    """The configuration with these fields.

    Raises:
        ValueError: no model of ours has these sizes.
    """
    activation = fields.get("activation_function") or "relu"
    fields["activation_function"] = _ACTIVATIONS.get(activation, activation)
    try:
        return VanillaTransformerConfig(**fields)
    except StrictDataclassError as error:
        raise RequestError(f"{origin} cannot be held: {error.__cause__ or error}") from error


def build_model(
    config: VanillaTransformerConfig,
    pieces: Mapping[str, Piece],
    tensors: Mapping[str, Tensor],
    *,
    origin: object,
    ignored: Iterable[str] = (),
) -> VanillaTransformerForConditionalGeneration:
    """A model whose every tensor comes from the source.

    Args:
        config: of the model.
        pieces: for each name in our state dict, ties once, the place in the source.
        tensors: of the source.
        origin: what the errors call the source.
        ignored: names in the source that carry nothing of the model.

    Raises:
        ValueError: tensors are missing, left over, of another shape, or differ where the source
            must have tied them; all are named.
    """
    with torch.device("meta"):  # no memory, no random numbers
        model = VanillaTransformerForConditionalGeneration(config)
    shapes = {key: parameter.shape for key, parameter in model.named_parameters()}
    if not config.tie_word_embeddings:
        pieces = {**pieces, "model.shared.weight": Piece(())}  # nothing reads it
    if set(pieces) != set(shapes):
        raise AssertionError(f"not one piece for each tensor: {set(pieces) ^ set(shapes)}")
    dtype = _common_dtype(pieces, tensors)
    problems: dict[str, list[str]] = {"missing": [], "surplus": [], "wrongly shaped": []}
    found = {}
    for key, piece in pieces.items():
        there = [name for name in piece.keys if name in tensors]
        if piece.keys and not there:
            problems["missing"].append(piece.keys[0])
        elif any(not torch.equal(tensors[name], tensors[there[0]]) for name in there[1:]):
            raise RequestError(f"{origin} ties {listed(there)}, but they differ.")
        elif not there:
            found[key] = torch.zeros(shapes[key], dtype=dtype)
        else:
            tensor = _changed(tensors[there[0]], piece.change)
            if tensor is None or tensor.shape != shapes[key] or not tensor.is_floating_point():
                got = f"{there[0]} {tuple(tensors[there[0]].shape)} {tensors[there[0]].dtype}"
                problems["wrongly shaped"].append(f"{got} for {key} {tuple(shapes[key])}")
            else:
                # A copy: views of one tensor of the source would be taken for ties.
                found[key] = tensor.detach().to(dtype).clone(memory_format=torch.contiguous_format)
    known = {name for piece in pieces.values() for name in piece.keys} | set(ignored)
    problems["surplus"] = [name for name in tensors if name not in known]
    if any(problems.values()):
        named = [f"{kind}: {listed(names)}" for kind, names in problems.items() if names]
        raise RequestError(f"{origin} does not hold the tensors of this model; {'; '.join(named)}.")
    model.load_state_dict(found, strict=False, assign=True)
    model.tie_weights()
    return model.eval()


def _common_dtype(pieces: Mapping[str, Piece], tensors: Mapping[str, Tensor]) -> torch.dtype:
    """The smallest dtype that holds every tensor of the model exactly; float32 if there is none."""
    keys = {key for piece in pieces.values() for key in piece.keys if key in tensors}
    floats = {tensors[key].dtype for key in keys if tensors[key].is_floating_point()}
    return functools.reduce(torch.promote_types, floats) if floats else torch.float32


def _changed(tensor: Tensor, change: Callable[[Tensor], Tensor] | None) -> Tensor | None:
    """The tensor as ours has it; None if its shape does not allow the change."""
    try:
        return tensor if change is None else change(tensor)
    except (RuntimeError, IndexError):
        return None


class Tables(NamedTuple):
    """Embeddings and pre-softmax transformation of a source, and what they have in common.

    Attributes:
        fields: of our configuration.
        pieces: for our state dict.
    """

    fields: dict[str, Any]
    pieces: dict[str, Piece]


def find_tables(
    tensors: Mapping[str, Tensor],
    *,
    source: str,
    target: str,
    softmax: str,
    origin: object,
    scaled: bool = True,
) -> Tables:
    """Vocabularies and ties by what the tables hold: equal ones become one.

    Args:
        tensors: of the source.
        source: name of the encoder's embedding, (V, d).
        target: of the decoder's, (V, d).
        softmax: of the pre-softmax transformation, (V, d).
        origin: what the errors call the source.
        scaled: whether the source multiplies embeddings by sqrt(d_model). If not, they are divided
            by it here, and can then not be tied to the softmax.

    Raises:
        ValueError: a table is missing.
    """
    require(tensors, (source, target, softmax), origin=origin)
    sizes = [tensors[name].size(0) for name in (source, target)]
    tied = scaled and _equal(tensors[target], tensors[softmax])
    shared = _equal(tensors[source], tensors[target])
    fields = {
        "vocab_size": sizes[0],
        "decoder_vocab_size": sizes[1] if sizes[0] != sizes[1] else None,
        "tie_word_embeddings": tied,
        "share_encoder_decoder_embeddings": shared or (not tied and sizes[0] == sizes[1]),
    }
    names = dict.fromkeys((source, target, softmax))
    if tied and shared:
        return Tables(fields, {"model.shared.weight": Piece(tuple(names))})
    encoder = "model.encoder.embed_tokens.weight"
    if tied:
        one = Piece(tuple(dict.fromkeys((target, softmax))))
        return Tables(fields, {encoder: Piece((source,)), "model.shared.weight": one})
    scale = None if scaled else _divided
    decoder = "model.decoder.embed_tokens.weight"
    pieces = {encoder: Piece((source,), scale), decoder: Piece((target,), scale)}
    return Tables(fields, {**pieces, "lm_head.weight": Piece((softmax,))})


def require(tensors: Mapping[str, Tensor], names: Iterable[str], *, origin: object) -> None:
    """Refuse a source without tensors that tell its sizes.

    Raises:
        ValueError: some are missing, or are no matrices.
    """
    names = list(dict.fromkeys(names))
    missing = [name for name in names if name not in tensors]
    if missing:
        raise RequestError(
            f"{origin} does not hold the tensors of this model; missing: {listed(missing)}."
        )
    for name in names:
        if tensors[name].dim() != 2:
            raise RequestError(
                f"{origin}: {name} has shape {tuple(tensors[name].shape)}; expected 2."
            )


def _equal(left: Tensor, right: Tensor) -> bool:
    return left is right or (left.shape == right.shape and torch.equal(left, right))


def _divided(table: Tensor) -> Tensor:
    return table / math.sqrt(table.size(1))


def is_sinusoids(
    table: Tensor, config: VanillaTransformerConfig, *, columns: Tensor | None = None
) -> bool:
    """Whether a table of positions is the one that we compute.

    Those that were computed in single precision lose digits at large positions, and are the same.

    Args:
        table: of the source, (positions, d) or with dimensions of 1 beside these.
        config: says which sinusoids, and at which row the first position is.
        columns: order of the source's columns, (d,).
    """
    table = table.squeeze()
    if table.dim() != 2 or table.size(1) != config.d_model or not table.is_floating_point():
        return False
    found = table[config.position_offset :][:512].double()
    if not len(found):
        return False
    rows = torch.arange(config.position_offset, config.position_offset + len(found))
    expected = sinusoids(rows, config.d_model, style=config.position_encoding)
    if columns is not None:
        expected = expected[:, columns]
    return bool((found - expected).abs().max() < max(1e-3, torch.finfo(table.dtype).eps))


def check_sinusoids(
    tensors: Mapping[str, Tensor],
    names: Iterable[str],
    config: VanillaTransformerConfig,
    *,
    origin: object,
    columns: Tensor | None = None,
) -> None:
    """Refuse stored tables of positions that are not those we compute.

    Raises:
        ValueError: one of the names has other numbers.
    """
    for name in names:
        if name in tensors and not is_sinusoids(tensors[name], config, columns=columns):
            raise RequestError(
                f"{origin}: {name} holds positions that are not the sinusoids of this system."
            )


def layer_count(tensors: Iterable[str], prefix: str) -> int:
    """How many layers there are, by names such as `prefix.3.weight`; 0 if none."""
    numbers = [re.match(re.escape(prefix) + r"\.(\d+)\.", name) for name in tensors]
    return max((int(number[1]) + 1 for number in numbers if number), default=0)


def check_output(output: str | os.PathLike[str] | None) -> None:
    """Refuse a place that is taken, before any work.

    Raises:
        ValueError: something is there.
    """
    if output is not None:
        check_new_folder(Path(output))


def finish(imported: Imported, output: str | os.PathLike[str] | None) -> Imported:
    """Join the tokenizers, and write all where somebody asked for it; OUT is whole or not there.

    Returns:
        `imported`.
    """
    if imported.tokenizer is not None and imported.target_tokenizer is not None:
        hold_target_tokenizer(imported.tokenizer, imported.target_tokenizer)
    if output is None:
        return imported
    with folder_written_aside(Path(output)) as aside:
        imported.model.save_pretrained(aside)
        if imported.tokenizer is not None:
            imported.tokenizer.save_pretrained(aside)
        for name, content in imported.files.items():
            (aside / name).write_bytes(content)
    return imported
