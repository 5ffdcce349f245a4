"""Import of Joey NMT's model directories: config.yaml, a checkpoint, and two vocabularies.

Joey's layers are post-norm as in the paper (`layer_norm: post`) or pre-norm, with an epsilon of
1e-6, and its softmax has no bias.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from torch import Tensor

from ...errors import RequestError
from ...storage.pickles import NUMPY_NUMBERS
from ...storage.reading import StrPath, checked, read_yaml
from ..layer_names import STACKS, LayerNames
from .options import check_options, shared_option
from .safe_files import read_checkpoint, state_dict, unwrapped
from .state_dict import Imported, Source, finish, setting, special_ids
from .vocabulary import vocabulary_tokenizer

_DROPOUT = 0.1  # if config.yaml does not set it; the decoder gets the rate of the encoder
_CHECKPOINTS = ("best.ckpt", "avg_best.ckpt", "latest.ckpt")
_LAYERS = LayerNames(
    layers={stack: f"{stack}.layers" for stack in STACKS},
    attentions={"encoder": ("src_src_att",), "decoder": ("trg_trg_att", "src_trg_att")},
    norms={
        "encoder": ("layer_norm", "feed_forward.layer_norm"),
        "decoder": ("x_layer_norm", "dec_layer_norm", "feed_forward.layer_norm"),
    },
    projections=("q_layer", "k_layer", "v_layer", "output_layer"),
    feed_forward=("feed_forward.pwff_layer.0", "feed_forward.pwff_layer.3"),
)
_TABLES = ("src_embed.lut.weight", "trg_embed.lut.weight", "decoder.output_layer.weight")
_POSITIONS = tuple(f"{stack}.pe.pe" for stack in STACKS)
_SPECIAL_IDS = {"unk": 0, "pad": 1, "bos": 2, "eos": 3}  # unless the configuration says otherwise


class _Settings(TypedDict):
    """The sections of config.yaml that the importer reads."""

    model: dict[str, Any]
    data: NotRequired[dict[str, Any] | None]


def import_joeynmt(
    path: StrPath, output: StrPath | None = None, *, checkpoint: str | None = None
) -> Imported:
    """Import a model directory of Joey NMT; build a tokenizer if it has vocabularies.

    Exact: logits differ by rounding alone. The tokenizer expects the words or pieces of Joey's
    vocabularies, separated by spaces.

    Args:
        path: Directory with config.yaml, checkpoints, src_vocab.txt and trg_vocab.txt.
        output: A new or empty directory. None means nothing is written.
        checkpoint: Name of the checkpoint in the directory. None means the best.

    Raises:
        ValueError: The directory is incomplete, its model is not a Transformer or has features
            that this package does not support, or `output` is not empty.
        ImportError: PyYAML is not installed.
    """
    folder = Path(path)
    file, origin = _checkpoint(folder, checkpoint), folder / "config.yaml"
    settings: Any = checked(read_yaml(origin, typed=True), _Settings, origin)
    stacks = {stack: settings["model"][stack] for stack in STACKS}
    found = read_checkpoint(file, "Joey NMT", ("model_state",), allowed=NUMPY_NUMBERS)
    tensors = unwrapped(state_dict(found["model_state"], f"{file}: model_state"))
    source = Source(file, tensors, _check_options(settings, stacks, origin))
    source.find_tables(_TABLES, scaled=_scaled(settings["model"], stacks, origin))
    source.find_layers(_LAYERS)
    activations = {stack: str(stacks[stack].get("activation", "relu")) for stack in STACKS}
    config = source.make_config(
        **_rates_and_heads(stacks),
        **_special_ids(settings),
        norm_first=_norm_first(stacks, tensors, origin),
        activation_function=shared_option("activation", activations, origin=origin),
        layer_norm_eps=1e-6,
    )
    source.place_layers(_LAYERS, config)
    model = source.build_model(config, positions=_POSITIONS)
    paths = (folder / "src_vocab.txt", folder / "trg_vocab.txt")
    there = paths if any(map(Path.is_file, paths)) else (None, None)
    tokenizer = vocabulary_tokenizer(there, config, "$A eos")
    return finish(Imported(model, tokenizer, notes=source.notes), output)


def _checkpoint(folder: Path, name: str | None) -> Path:
    names = _CHECKPOINTS if name is None else (name,)
    for candidate in names:
        if (folder / candidate).is_file():
            return folder / candidate
    raise RequestError(f"{folder} has no {' or '.join(names)}; give the name of its checkpoint.")


def _check_options(
    settings: Mapping[str, Any], stacks: Mapping[str, Mapping[str, Any]], origin: Path
) -> tuple[str, ...]:
    """Refuse options that this package does not support; return notes about unknown ones."""
    model = {name: value for name, value in settings["model"].items() if name not in stacks}
    parts = {"data": settings.get("data"), "model": model}
    parts |= {name: {"type": "recurrent", **stack} for name, stack in stacks.items()}
    notes: tuple[str, ...] = ()
    for name, part in parts.items():
        notes += check_options(part, "joeynmt", origin=f"{origin}, {name},")
    return tuple(dict.fromkeys(notes))


def _norm_first(
    stacks: Mapping[str, Mapping[str, Any]], tensors: Mapping[str, Tensor], origin: Path
) -> bool:
    """Return whether both stacks are pre-norm; by default Joey NMT's encoder is pre-norm.

    Joey's first versions ended pre-norm stacks with a norm, as ours do; later ones do only if
    config.yaml says `layer_norm: pre`.
    """
    places = {}
    for name, settings in stacks.items():
        final = f"{name}.layer_norm.weight" in tensors
        default = "pre" if name == "encoder" or final else "post"
        places[name] = settings.get("layer_norm") or default
        if places[name] == "pre" and not final:
            raise RequestError(f"{origin}: the pre-norm {name} has no final norm, but needs one.")
    return shared_option("layer_norm", places, origin=origin) == "pre"


def _scaled(
    model: Mapping[str, Any], stacks: Mapping[str, Mapping[str, Any]], origin: Path
) -> bool:
    used = ("encoder",) if model.get("tied_embeddings") else STACKS
    scales = {stack: bool((stacks[stack].get("embeddings") or {}).get("scale")) for stack in used}
    return shared_option("embeddings.scale", scales, origin=origin)


def _rates_and_heads(stacks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings that tensors do not reveal: dropout rates and numbers of heads."""
    rate = setting(stacks["encoder"], "dropout", _DROPOUT)
    fields = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), rate)
    for stack, heads in {"encoder": 4, "decoder": 8}.items():
        fields[f"{stack}_attention_heads"] = setting(stacks[stack], "num_heads", heads)
    return fields


def _special_ids(settings: Mapping[str, Any]) -> dict[str, int | None]:
    named = (settings.get("data") or {}).get("special_symbols") or {}
    ids = {role: setting(named, f"{role}_id", value) for role, value in _SPECIAL_IDS.items()}
    return special_ids("bos", **ids)
