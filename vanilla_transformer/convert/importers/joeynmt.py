"""Import of Joey NMT's model directories: config.yaml, a checkpoint, and two vocabularies.

Joey's layers are post-norm as in the paper (`layer_norm: post`) or pre-norm, with an epsilon of
1e-6, and its softmax has no bias.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ...configuration_vanilla_transformer import VanillaTransformerConfig
from ...errors import RequestError, quoted
from ...storage.pickles import NUMPY_NUMBERS, read_pickle
from ...storage.reading import read_yaml
from .options import check_options
from .safe_files import listed, state_dict, unwrapped
from .state_dict import (
    Imported,
    Piece,
    build_model,
    check_sinusoids,
    find_tables,
    finish,
    make_config,
    number_setting,
)
from .vocabulary import read_tokens, vocabulary_tokenizers

_CHECKPOINTS = ("best.ckpt", "avg_best.ckpt", "latest.ckpt")
_STACKS = ("encoder", "decoder")
# Modules of a layer: our name and Joey's.
_PROJECTIONS = {"q_proj": "q_layer", "k_proj": "k_layer", "v_proj": "v_layer"}
_PROJECTIONS["out_proj"] = "output_layer"
_FEED_FORWARD = {
    "feed_forward.fc1": "feed_forward.pwff_layer.0",
    "feed_forward.fc2": "feed_forward.pwff_layer.3",
    "feed_forward_norm": "feed_forward.layer_norm",
}
_SUBLAYERS = {
    "encoder": {"self_attn": ("src_src_att", "layer_norm")},
    "decoder": {
        "self_attn": ("trg_trg_att", "x_layer_norm"),
        "cross_attn": ("src_trg_att", "dec_layer_norm"),
    },
}
_POSITIONS = tuple(f"{stack}.pe.pe" for stack in _STACKS)
_SPECIAL_IDS = {"unk": 0, "pad": 1, "bos": 2, "eos": 3}  # unless the configuration says otherwise


def import_joeynmt(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    checkpoint: str | None = None,
) -> Imported:
    """Import a model directory of Joey NMT.

    Exact: logits differ by rounding alone. The tokenizer expects the words or pieces of Joey's
    vocabularies, separated by spaces.

    Args:
        path: directory with config.yaml, checkpoints, src_vocab.txt and trg_vocab.txt.
        output: a new or empty directory. None means nothing is written.
        checkpoint: name of the checkpoint in the directory. None means the best.

    Raises:
        ValueError: the directory is incomplete, its model is not a Transformer or has features
            that this package does not support, or `output` is not empty.
        ImportError: PyYAML is not installed.
    """
    folder = Path(path)
    settings = _read_yaml(folder / "config.yaml")
    model_settings = _section(settings, "model", folder)
    stacks = {name: _section(model_settings, name, folder) for name in _STACKS}
    file = _checkpoint(folder, checkpoint)
    tensors = _tensors(file)
    notes = _check_options(settings, stacks, folder)
    norm_first = _norm_first(stacks, tensors, folder)
    tables = find_tables(
        tensors,
        source="src_embed.lut.weight",
        target="trg_embed.lut.weight",
        softmax="decoder.output_layer.weight",
        origin=file,
        scaled=_scaled(model_settings, stacks, folder),
    )
    config = make_config(
        file,
        **tables.fields,
        **_sizes(stacks, folder),
        norm_first=norm_first,
        activation_function=_activation(stacks, folder),
        layer_norm_eps=1e-6,
        **_special_ids(settings, folder),
    )
    check_sinusoids(tensors, _POSITIONS, config, origin=file)
    pieces = {**tables.pieces, **dict(_pieces(config))}
    model = build_model(config, pieces, tensors, origin=file, ignored=_POSITIONS)
    source, target = vocabulary_tokenizers(_vocabularies(folder), config, ("$A eos", "$A eos"))
    if not source:
        notes += ("There are no vocabularies; these are weights and ids only.",)
    return finish(Imported(model, source, target, notes=notes), output)


def _tensors(file: Path) -> dict[str, Tensor]:
    found = read_pickle(file, NUMPY_NUMBERS)
    if not isinstance(found, Mapping) or "model_state" not in found:
        raise RequestError(f"{file} is not a Joey NMT checkpoint; it holds no `model_state`.")
    return unwrapped(state_dict(found["model_state"], f"{file}: model_state"))


def _read_yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise RequestError(f"There is no {path}; name a model directory of Joey NMT.")
    return read_yaml(path, remedy="name a model directory of Joey NMT")


def _section(settings: Mapping[str, Any], name: str, folder: Path) -> dict[str, Any]:
    section = settings.get(name)
    if not isinstance(section, dict):
        raise RequestError(
            f"{folder}/config.yaml needs a section {name!r} with settings; it has "
            f"{quoted(section)}."
        )
    return section


def _settings(settings: Mapping[str, Any], name: str, folder: Path) -> dict[str, Any]:
    """Return a section that may be missing."""
    return {} if settings.get(name) is None else _section(settings, name, folder)


def _checkpoint(folder: Path, name: str | None) -> Path:
    names = (name,) if name else _CHECKPOINTS
    for candidate in names:
        if (folder / candidate).is_file():
            return folder / candidate
    raise RequestError(f"{folder} holds no {' or '.join(names)}; name its checkpoint.")


def _check_options(
    settings: Mapping[str, Any], stacks: Mapping[str, Mapping[str, Any]], folder: Path
) -> tuple[str, ...]:
    """Refuse options that this package does not support; return notes of unknown ones."""
    model = {name: value for name, value in settings["model"].items() if name not in stacks}
    parts = {"data": settings.get("data"), "model": model}
    parts |= {name: {"type": "recurrent", **stack} for name, stack in stacks.items()}
    notes = [
        check_options(part, "joeynmt", origin=f"{folder}/config.yaml, {name},")
        for name, part in parts.items()
    ]
    return tuple(dict.fromkeys(note for part in notes for note in part))


def _norm_first(
    stacks: Mapping[str, Mapping[str, Any]], tensors: Mapping[str, Tensor], folder: Path
) -> bool:
    """Return whether both stacks are pre-norm, which is the encoder's default in Joey.

    Joey's first versions ended pre-norm stacks with a norm, as ours do; later ones do only if
    config.yaml says `layer_norm: pre`.
    """
    places = {}
    for name, settings in stacks.items():
        final = f"{name}.layer_norm.weight" in tensors
        default = "pre" if name == "encoder" or final else "post"
        places[name] = settings.get("layer_norm") or default
        if places[name] == "pre" and not final:
            raise RequestError(
                f"{folder}: the {name} is pre-norm without a norm after its layers, which this "
                "package does not support; set `layer_norm: pre` in config.yaml and train it again."
            )
    if len(set(places.values())) > 1:
        raise RequestError(
            f"{folder}: layer_norm is {places}; this package has one value for both stacks."
        )
    return places["encoder"] == "pre"


def _scaled(
    model: Mapping[str, Any], stacks: Mapping[str, Mapping[str, Any]], folder: Path
) -> bool:
    used = ("encoder",) if model.get("tied_embeddings") else _STACKS
    scales = [bool(_settings(stacks[name], "embeddings", folder).get("scale")) for name in used]
    if len(set(scales)) > 1:
        raise RequestError(f"{folder}: only one of the embeddings is scaled; allowed: both, none.")
    return scales[0]


def _sizes(stacks: Mapping[str, Mapping[str, Any]], folder: Path) -> dict[str, Any]:
    def of(stack: str, name: str, default: float) -> Any:
        return number_setting(stacks[stack], name, default, origin=f"{folder}/config.yaml, {stack}")

    sizes = {"d_model": of("encoder", "hidden_size", 512)}
    for name in ("dropout", "attention_dropout", "activation_dropout"):
        sizes[name] = of("encoder", "dropout", 0.1)
    for stack, (layers, heads) in {"encoder": (8, 4), "decoder": (4, 8)}.items():
        sizes[f"{stack}_layers"] = of(stack, "num_layers", layers)
        sizes[f"{stack}_attention_heads"] = of(stack, "num_heads", heads)
        sizes[f"{stack}_ffn_dim"] = of(stack, "ff_size", 2048)
    return sizes


def _special_ids(settings: Mapping[str, Any], folder: Path) -> dict[str, int]:
    named = _settings(_settings(settings, "data", folder), "special_symbols", folder)
    ids = {
        role: number_setting(named, f"{role}_id", value, origin=f"{folder}/config.yaml")
        for role, value in _SPECIAL_IDS.items()
    }
    return {
        **{f"{role}_token_id": value for role, value in ids.items()},
        "decoder_start_token_id": ids["bos"],
    }


def _activation(stacks: Mapping[str, Mapping[str, Any]], folder: Path) -> str:
    names = {str(settings.get("activation", "relu")) for settings in stacks.values()}
    if len(names) > 1:
        raise RequestError(
            f"{folder}: activations {sorted(names)}; allowed is one for both stacks."
        )
    return names.pop()


def _pieces(config: VanillaTransformerConfig) -> Iterator[tuple[str, Piece]]:
    for stack, sublayers in _SUBLAYERS.items():
        names = dict(_FEED_FORWARD)
        for sublayer, (attention, norm) in sublayers.items():
            names[f"{sublayer}_norm"] = norm
            for projection, name in _PROJECTIONS.items():
                names[f"{sublayer}.{projection}"] = f"{attention}.{name}"
        for part in ("weight", "bias"):
            for layer in range(getattr(config, f"{stack}_layers")):
                ours, theirs = f"model.{stack}.layers.{layer}", f"{stack}.layers.{layer}"
                for our_name, name in names.items():
                    yield f"{ours}.{our_name}.{part}", Piece((f"{theirs}.{name}.{part}",))
            if config.norm_first:
                yield f"model.{stack}.norm.{part}", Piece((f"{stack}.layer_norm.{part}",))


def _vocabularies(folder: Path) -> tuple[Path | None, Path | None]:
    paths = [folder / f"{side}_vocab.txt" for side in ("src", "trg")]
    there = [path for path in paths if path.is_file()]
    if len(there) == 1:
        missing = [str(path) for path in paths if path not in there]
        raise RequestError(f"There is no {listed(missing)} beside {there[0].name}.")
    if not there:
        return None, None
    same = read_tokens(paths[0]) == read_tokens(paths[1])
    return (paths[0], None if same else paths[1])


__all__ = ["import_joeynmt"]
