"""Import of state dicts that contain a `torch.nn.Transformer`.

`torch.nn.Transformer` is the paper's two stacks with a norm after each, without embeddings,
positions and pre-softmax transformation. These are found by the names in PyTorch's tutorials;
other names must be given.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ...configuration_vanilla_transformer import VanillaTransformerConfig
from ...errors import RequestError
from .options import check_options
from .safe_files import listed, read_state_dict
from .state_dict import (
    Imported,
    Piece,
    build_model,
    find_tables,
    finish,
    is_sinusoids,
    layer_count,
    make_config,
    require,
)
from .vocabulary import vocabulary_tokenizers

# Modules of a layer: our name and torch's.
_LINEAR = {"feed_forward.fc1": "linear1", "feed_forward.fc2": "linear2"}
_ATTENTION = {"self_attn": "self_attn", "cross_attn": "multihead_attn"}
_NORMS = {
    "encoder": ("self_attn_norm", "feed_forward_norm"),
    "decoder": ("self_attn_norm", "cross_attn_norm", "feed_forward_norm"),
}
# Patterns that find the tables whose names are not given.
_SOURCE = re.compile(r"(src|source|encoder|enc).*(emb|tok).*weight$", re.IGNORECASE)
_TARGET = re.compile(r"(tgt|trg|target|decoder|dec).*(emb|tok).*weight$", re.IGNORECASE)
_SOFTMAX = re.compile(r"(generator|lm_head|fc_out|output|out|proj|classifier).*weight$", re.I)
_POSITIONS = re.compile(r"(pos|pe$|\.pe\b)", re.IGNORECASE)
_OF_TARGET = re.compile(r"(tgt|trg|target|dec)", re.IGNORECASE)


def import_torch(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    heads: int,
    pad_token_id: int,
    bos_token_id: int,
    eos_token_id: int,
    unk_token_id: int | None = None,
    source_embedding: str | None = None,
    target_embedding: str | None = None,
    generator: str | None = None,
    norm_first: bool = False,
    activation: str = "relu",
    layer_norm_eps: float = 1e-5,
    unscaled: bool = False,
    source_vocab: str | os.PathLike[str] | None = None,
    target_vocab: str | os.PathLike[str] | None = None,
) -> Imported:
    """Import a state dict with a `torch.nn.Transformer`, embeddings and a pre-softmax table.

    Exact: logits differ by rounding alone. The arguments give what a state dict does not contain.

    Args:
        path: a file that `torch.save(model.state_dict(), ...)` wrote, a safetensors file, or a
            training's checkpoint.
        output: a new or empty directory. None means nothing is written.
        heads: attention heads (`nhead`).
        pad_token_id: id of padding.
        bos_token_id: id from which the decoder starts.
        eos_token_id: id that ends a target.
        unk_token_id: id of unknown words, never produced. None means there is none.
        source_embedding: name of the encoder's embedding, (V, d). None means find it.
        target_embedding: name of the decoder's embedding, (V, d). None means find it.
        generator: name of the pre-softmax table, (V, d). None means find it.
        norm_first: the value given to `torch.nn.Transformer`.
        activation: "relu" or "gelu", as given to `torch.nn.Transformer`.
        layer_norm_eps: the value given to `torch.nn.Transformer`.
        unscaled: whether embeddings were used without the factor sqrt(d_model).
        source_vocab: file with the source's tokens, one per line, for a word tokenizer that puts
            `bos` and `eos` around a text, as in PyTorch's tutorial. None means no tokenizer.
        target_vocab: the same for the target. None means the source's.

    Raises:
        ValueError: the file is damaged or could run code, a table was not found, tensors are
            missing, surplus or wrongly shaped, or `output` is not empty.
    """
    file = Path(path)
    tensors, settings = read_state_dict(file)
    given = {"nhead": heads, "norm_first": norm_first, "activation": activation}
    given["layer_norm_eps"] = layer_norm_eps
    notes = check_options(settings, "torch", origin=file, given=given)
    prefix = _prefix(tensors, file)
    names = {
        "source": source_embedding or _find(tensors, _SOURCE, "source-embedding", prefix, file),
        "target": target_embedding or _find(tensors, _TARGET, "target-embedding", prefix, file),
        "softmax": generator or _find(tensors, _SOFTMAX, "generator", prefix, file),
    }
    tables = find_tables(tensors, **names, origin=file, scaled=not unscaled)
    bias = names["softmax"].removesuffix("weight") + "bias"
    final_norm = any(name.startswith(f"{prefix}encoder.norm.") for name in tensors)
    fields = {
        **tables.fields,
        **_sizes(tensors, prefix, file),
        **{f"{stack}_attention_heads": heads for stack in ("encoder", "decoder")},
        "norm_first": norm_first,
        "final_norm": final_norm and not norm_first,
        "activation_function": activation,
        "layer_norm_eps": layer_norm_eps,
        "lm_head_bias": bias in tensors,
        "pad_token_id": pad_token_id,
        "bos_token_id": bos_token_id,
        "eos_token_id": eos_token_id,
        "unk_token_id": unk_token_id,
        "decoder_start_token_id": bos_token_id,
    }
    positions = _positions(tensors, prefix, names)
    config = make_config(file, **fields, **_position_fields(positions, tensors, fields, file))
    pieces = {**tables.pieces, **_layer_pieces(config, tensors, prefix)}
    pieces |= {"lm_head.bias": Piece((bias,))} if config.lm_head_bias else {}
    pieces |= _table_pieces(positions, file) if config.position_encoding == "learned" else {}
    model = build_model(config, pieces, tensors, origin=file, ignored=positions)
    paths, templates = (source_vocab, target_vocab), ("bos $A eos", "bos $A eos")
    source, target = vocabulary_tokenizers(paths, config, templates)
    if not source:
        notes += ("A state dict has no tokenizer; these are weights and ids only.",)
    if not positions:
        notes += ("No positions are stored; the paper's sinusoids are assumed.",)
    return finish(Imported(model, source, target, notes=notes), output)


def _prefix(tensors: Mapping[str, Tensor], file: Path) -> str:
    """Return the prefix of the tensors of torch.nn.Transformer."""
    ending = "encoder.layers.0.self_attn.in_proj_weight"
    found = [name.removesuffix(ending) for name in tensors if name.endswith(ending)]
    if len(found) != 1:
        got = listed(found) if found else "none"
        raise RequestError(f"{file} holds {got}; expected one torch.nn.Transformer.")
    return found[0]


def _find(
    tensors: Mapping[str, Tensor], pattern: re.Pattern[str], option: str, prefix: str, file: Path
) -> str:
    own = (f"{prefix}encoder.layers.", f"{prefix}decoder.layers.")
    matrices = [
        name
        for name, tensor in tensors.items()
        if tensor.dim() == 2 and not name.startswith(own) and not _POSITIONS.search(name)
    ]
    found = [name for name in matrices if pattern.search(name)]
    if len(found) != 1:
        said = "may be any of several tables" if found else "was not found"
        raise RequestError(
            f"{file}: the {option} {said}; give its name with --{option}. Matrices are "
            f"{listed(found or matrices) or 'none'}."
        )
    return found[0]


def _sizes(tensors: Mapping[str, Tensor], prefix: str, file: Path) -> dict[str, int]:
    sizes = {}
    for stack in ("encoder", "decoder"):
        inner = f"{prefix}{stack}.layers.0.linear1.weight"
        require(tensors, (inner,), origin=file)
        sizes["d_model"] = tensors[inner].size(1)
        sizes[f"{stack}_ffn_dim"] = tensors[inner].size(0)
        sizes[f"{stack}_layers"] = layer_count(tensors, f"{prefix}{stack}.layers")
    return sizes


def _positions(tensors: Mapping[str, Tensor], prefix: str, names: Mapping[str, str]) -> list[str]:
    """Return the names of position tables, which are outside the stacks."""
    own = (f"{prefix}encoder.layers.", f"{prefix}decoder.layers.")
    return [
        name
        for name, tensor in tensors.items()
        if _POSITIONS.search(name)
        and tensor.squeeze().dim() == 2
        and not name.startswith(own)
        and name not in names.values()
    ]


def _position_fields(
    names: list[str], tensors: Mapping[str, Tensor], fields: Mapping[str, Any], file: Path
) -> dict[str, Any]:
    """Return the positional encoding that the tables contain: sinusoids, or a learned one."""
    odd = names and fields["d_model"] % 2  # sinusoids come in pairs, so it must be learned
    for style in () if odd else ("sinusoidal", "tensor2tensor"):
        config = make_config(file, **fields, position_encoding=style)
        if all(is_sinusoids(tensors[name], config) for name in names):
            return {"position_encoding": style}
    rows = {tensors[name].squeeze().size(0) for name in names}
    if len(rows) > 1:
        raise RequestError(
            f"{file} has position tables of different lengths ({listed(names)}); allowed is one "
            "length for both stacks: cut them to the shorter one."
        )
    return {"position_encoding": "learned", "max_position_embeddings": rows.pop()}


def _table_pieces(names: list[str], file: Path) -> dict[str, Piece]:
    """Map one learned table to both stacks, or one to each."""
    of_target = [name for name in names if _OF_TARGET.search(name)]
    if len(names) == 1:
        chosen = {"encoder": names[0], "decoder": names[0]}
    elif len(names) == 2 and len(of_target) == 1:
        (of_source,) = set(names) - set(of_target)
        chosen = {"encoder": of_source, "decoder": of_target[0]}
    else:
        raise RequestError(
            f"{file} has several learned position tables ({listed(names)}); allowed are one for "
            "both stacks, or two of which one is named after the target or the decoder."
        )
    return {
        f"model.{stack}.embed_positions.weight": Piece((name,), lambda rows: rows.squeeze())
        for stack, name in chosen.items()
    }


def _third(number: int) -> Callable[[Tensor], Tensor]:
    """Return a function that takes Q, K or V from a matrix with the rows of all three."""
    return lambda rows: rows.chunk(3)[number]


def _layer_pieces(
    config: VanillaTransformerConfig, tensors: Mapping[str, Tensor], prefix: str
) -> dict[str, Piece]:
    """Map layers and final norms; a model without any biases gets zeros instead."""
    stacks = (f"{prefix}encoder.", f"{prefix}decoder.")
    biased = any(name.startswith(stacks) and name.endswith("bias") for name in tensors)
    pieces = {}

    def add(key: str, name: str, change: Callable[[Tensor], Tensor] | None = None) -> None:
        pieces[key] = Piece((name,) if biased or not name.endswith("bias") else (), change)

    for stack, norms in _NORMS.items():
        for layer in range(getattr(config, f"{stack}_layers")):
            ours, theirs = f"model.{stack}.layers.{layer}", f"{prefix}{stack}.layers.{layer}"
            for part in ("weight", "bias"):
                for number, norm in enumerate(norms, start=1):
                    add(f"{ours}.{norm}.{part}", f"{theirs}.norm{number}.{part}")
                for name, linear in _LINEAR.items():
                    add(f"{ours}.{name}.{part}", f"{theirs}.{linear}.{part}")
                for name, attention in list(_ATTENTION.items())[: len(norms) - 1]:
                    fused = f"{theirs}.{attention}.in_proj_{part}"
                    for third, projection in enumerate("qkv"):
                        key = f"{ours}.{name}.{projection}_proj.{part}"
                        add(key, fused, _third(third))
                    out = f"out_proj.{part}"
                    add(f"{ours}.{name}.{out}", f"{theirs}.{attention}.{out}")
        if config.norm_first or config.final_norm:
            for part in ("weight", "bias"):
                add(f"model.{stack}.norm.{part}", f"{prefix}{stack}.norm.{part}")
    return pieces


__all__ = ["import_torch"]
