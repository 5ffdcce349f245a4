"""Import of OpenNMT-py's Transformer checkpoints.

OpenNMT-py's Transformer is pre-norm, with an epsilon of 1e-6, an output bias, and sinusoids as in
the paper or in the authors' code. Before version 3, checkpoints stored vocabularies as torchtext
objects, which could run code; these are refused: save their tokens as lists first.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ...configuration_vanilla_transformer import VanillaTransformerConfig
from ...errors import RequestError
from ...storage.pickles import read_pickle
from .options import check_options, options_in
from .safe_files import PLAIN_CLASSES, state_dict, unwrapped
from .state_dict import (
    Imported,
    Piece,
    build_model,
    find_tables,
    finish,
    is_sinusoids,
    layer_count,
    make_config,
    number_setting,
    require,
)
from .vocabulary import check_size, word_tokenizer

_SPECIAL = {"unk": "<unk>", "pad": "<blank>", "bos": "<s>", "eos": "</s>"}
_STACKS = {"encoder": "encoder.transformer", "decoder": "decoder.transformer_layers"}
_PROJECTIONS = {
    "q_proj": "linear_query",
    "k_proj": "linear_keys",
    "v_proj": "linear_values",
    "out_proj": "final_linear",
}
_SUBLAYERS = {
    "encoder": {"self_attn": ("self_attn", "layer_norm")},
    "decoder": {
        "self_attn": ("self_attn", "layer_norm_1"),
        "cross_attn": ("context_attn", "layer_norm_2"),
    },
}
_FEED_FORWARD = {
    "feed_forward.fc1": "feed_forward.w_1",
    "feed_forward.fc2": "feed_forward.w_2",
    "feed_forward_norm": "feed_forward.layer_norm",
}


def import_opennmt(
    path: str | os.PathLike[str], output: str | os.PathLike[str] | None = None
) -> Imported:
    """Import a checkpoint of OpenNMT-py.

    Exact: logits differ by rounding alone. The tokenizer expects words or pieces separated by
    spaces, as OpenNMT-py does.

    Args:
        path: the .pt file.
        output: a new or empty directory. None means nothing is written.

    Raises:
        ValueError: the file is damaged, could run code, holds another architecture or features
            that this package does not support, or `output` is not empty.
    """
    file = Path(path)
    found = _parts(file)
    options = _options(found, file)
    notes = check_options(options, "opennmt", origin=file)
    tensors = _tensors(found, file)
    table = "embeddings.make_embedding.emb_luts.0.weight"
    tables = find_tables(
        tensors,
        source=f"encoder.{table}",
        target=f"decoder.{table}",
        softmax="generator.weight",
        origin=file,
    )
    vocabularies = _vocabularies(found["vocab"], file)
    positions = [name for name in tensors if name.endswith(".pe.pe")]
    masks = [name for name in tensors if name.endswith(".mask")]
    fields = {**tables.fields, **_sizes(options, tensors, file), **_special_ids(vocabularies, file)}
    config = make_config(
        file, **fields, position_encoding=_positions(tensors, positions, fields, file)
    )
    for tokens, size in zip(
        vocabularies, (config.vocab_size, config.target_vocab_size), strict=True
    ):
        check_size(tokens, size, origin=f"{file}: vocab")
    pieces = {**tables.pieces, "lm_head.bias": Piece(("generator.bias",))}
    for stack in _STACKS:
        pieces |= _pieces(config, tensors, stack)
    model = build_model(config, pieces, tensors, origin=file, ignored=[*positions, *masks])
    source, target = (
        word_tokenizer(tokens, _SPECIAL, template, origin=f"{file}: vocab")
        for tokens, template in zip(vocabularies, ("$A", "$A eos"), strict=True)
    )
    return finish(Imported(model, source, target, notes=notes), output)


def _parts(file: Path) -> Mapping[str, Any]:
    found = read_pickle(file, PLAIN_CLASSES)
    found = found if isinstance(found, Mapping) else {}
    missing = {"model", "generator", "vocab", "opt"} - found.keys()
    if missing:
        raise RequestError(
            f"{file} is not an OpenNMT-py checkpoint; it holds no {', '.join(sorted(missing))}."
        )
    return found


def _tensors(found: Mapping[str, Any], file: Path) -> dict[str, Tensor]:
    """Return the tensors of the stacks and of `generator`, which `model` may repeat."""
    tensors = {
        name: tensor
        for name, tensor in unwrapped(state_dict(found["model"], f"{file}: model")).items()
        if not name.startswith("generator.")
    }
    generator = unwrapped(state_dict(found["generator"], f"{file}: generator"))
    return tensors | {f"generator.{name}": tensor for name, tensor in generator.items()}


def _options(found: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Return the options of the training, and what the vocabularies hold besides tokens."""
    options = options_in(found["opt"])
    if not options:
        raise RequestError(f"{file}: opt is a {type(found['opt']).__name__}; expected options.")
    more = options_in(found["vocab"])
    return options | {name: value for name, value in more.items() if name not in ("src", "tgt")}


def _sizes(options: Mapping[str, Any], tensors: Mapping[str, Tensor], file: Path) -> dict[str, Any]:
    dropout = number_setting(options, "dropout", 0.1, origin=file)
    sizes: dict[str, Any] = {
        "norm_first": True,
        "layer_norm_eps": number_setting(options, "norm_eps", 1e-6, origin=file),
        "lm_head_bias": True,
        "activation_function": options.get("pos_ffn_activation_fn") or "relu",
        "dropout": dropout,
        "attention_dropout": number_setting(options, "attention_dropout", 0.1, origin=file),
        "activation_dropout": dropout,
    }
    for stack, prefix in _STACKS.items():
        inner = f"{prefix}.0.feed_forward.w_1.weight"
        require(tensors, (inner,), origin=file)
        sizes["d_model"] = tensors[inner].size(1)
        sizes[f"{stack}_ffn_dim"] = tensors[inner].size(0)
        sizes[f"{stack}_layers"] = layer_count(tensors, prefix)
        sizes[f"{stack}_attention_heads"] = number_setting(options, "heads", 8, origin=file)
    return sizes


def _vocabularies(found: object, file: Path) -> tuple[list[str], list[str]]:
    parts = found if isinstance(found, Mapping) else {}
    lists = [tokens for side in ("src", "tgt") if isinstance(tokens := parts.get(side), list)]
    if len(lists) < 2:
        raise RequestError(f"{file}: vocab holds no lists of tokens `src` and `tgt`.")
    source, target = ([str(token) for token in tokens] for tokens in lists)
    return source, target


def _special_ids(vocabularies: tuple[list[str], list[str]], file: Path) -> dict[str, int]:
    source, target = vocabularies
    for role, token in _SPECIAL.items():
        if token not in target:
            raise RequestError(f"{file}: the target's vocabulary holds no {token!r} ({role}).")
    ids = {role: target.index(token) for role, token in _SPECIAL.items()}
    pad = _SPECIAL["pad"]
    if pad not in source or source.index(pad) != ids["pad"]:
        raise RequestError(f"{file}: {pad!r} has two ids in the two vocabularies; allowed is one.")
    return {
        **{f"{role}_token_id": value for role, value in ids.items()},
        "decoder_start_token_id": ids["bos"],
    }


def _positions(
    tensors: Mapping[str, Tensor], names: list[str], fields: Mapping[str, Any], file: Path
) -> str:
    for style in ("sinusoidal", "tensor2tensor"):
        config = make_config(file, **fields, position_encoding=style)
        if all(is_sinusoids(tensors[name], config) for name in names):
            return style
    raise RequestError(f"{file}: {names[0]} holds positions that are not sinusoids.")


def _pieces(
    config: VanillaTransformerConfig, tensors: Mapping[str, Tensor], stack: str
) -> dict[str, Piece]:
    """Map the layers and final norm of a stack; projections without biases get zeros."""
    pieces = {}
    biased = {
        kind: any(f".{kind}." in name and name.endswith(".bias") for name in tensors)
        for kind in (*_PROJECTIONS.values(), "w_1", "w_2")
    }

    def add(key: str, name: str) -> None:
        kind = name.split(".")[-1]
        pieces[f"{key}.weight"] = Piece((f"{name}.weight",))
        pieces[f"{key}.bias"] = Piece((f"{name}.bias",) if biased.get(kind, True) else ())

    for layer in range(getattr(config, f"{stack}_layers")):
        ours, theirs = f"model.{stack}.layers.{layer}", f"{_STACKS[stack]}.{layer}"
        for sublayer, (attention, norm) in _SUBLAYERS[stack].items():
            add(f"{ours}.{sublayer}_norm", f"{theirs}.{norm}")
            for projection, name in _PROJECTIONS.items():
                add(f"{ours}.{sublayer}.{projection}", f"{theirs}.{attention}.{name}")
        for key, name in _FEED_FORWARD.items():
            add(f"{ours}.{key}", f"{theirs}.{name}")
    add(f"model.{stack}.norm", f"{stack}.layer_norm")
    return pieces


__all__ = ["import_opennmt"]
