"""Import of OpenNMT-py's Transformer checkpoints.

OpenNMT-py's Transformer is pre-norm, with an epsilon of 1e-6, an output bias, and sinusoids as in
the paper or in the authors' code. Before version 3, checkpoints stored vocabularies as torchtext
objects, which could run code; these are refused: save their tokens as lists first.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ...errors import RequestError
from ...storage.reading import StrPath
from ..layer_names import STACKS, LayerNames
from .options import check_options, options_in
from .safe_files import PLAIN_CLASSES, read_checkpoint, state_dict, unwrapped
from .state_dict import Imported, Piece, Source, finish, setting, special_ids
from .vocabulary import both_tokenizers

_SPECIAL = {"unk": "<unk>", "pad": "<blank>", "bos": "<s>", "eos": "</s>"}
_LAYERS = LayerNames(
    layers={"encoder": "encoder.transformer", "decoder": "decoder.transformer_layers"},
    attentions={"encoder": ("self_attn",), "decoder": ("self_attn", "context_attn")},
    norms={
        "encoder": ("layer_norm", "feed_forward.layer_norm"),
        "decoder": ("layer_norm_1", "layer_norm_2", "feed_forward.layer_norm"),
    },
    projections=("linear_query", "linear_keys", "linear_values", "final_linear"),
    feed_forward=("feed_forward.w_1", "feed_forward.w_2"),
)

_TABLE = "embeddings.make_embedding.emb_luts.0.weight"
_TABLES = (f"encoder.{_TABLE}", f"decoder.{_TABLE}", "generator.weight")


def import_opennmt(path: StrPath, output: StrPath | None = None) -> Imported:
    """Import a checkpoint of OpenNMT-py; build a tokenizer from the vocabularies in it.

    Exact: logits differ by rounding alone. The tokenizer expects words or pieces separated by
    spaces, as OpenNMT-py does.

    Args:
        path: The .pt file.
        output: A new or empty directory. None means nothing is written.

    Raises:
        ValueError: The file is damaged, could run code, holds another architecture or features
            that this package does not support, or `output` is not empty.
    """
    file = Path(path)
    parts = ("model", "generator", "vocab", "opt")
    found = read_checkpoint(file, "OpenNMT-py", parts, allowed=PLAIN_CLASSES)
    options = _options(found, file)
    notes = check_options(options, "opennmt", origin=file)
    source = Source(file, _tensors(found, file), notes)
    source.find_tables(_TABLES)
    source.find_layers(_LAYERS)
    vocabularies = _vocabularies(found["vocab"], file)
    positions = [name for name in source.tensors if name.endswith(".pe.pe")]
    masks = [name for name in source.tensors if name.endswith(".mask")]
    tables = [source.tensors[name] for name in positions]
    heads = setting(options, "heads", 8)
    style = source.sinusoid_style(tables) or "sinusoidal"
    config = source.make_config(
        **_special_ids(vocabularies[1], file),
        **{f"{stack}_attention_heads": heads for stack in STACKS},
        **dict.fromkeys(("dropout", "activation_dropout"), setting(options, "dropout", 0.1)),
        attention_dropout=setting(options, "attention_dropout", 0.1),
        position_encoding=style,
        norm_first=True,
        layer_norm_eps=setting(options, "norm_eps", 1e-6),
        lm_head_bias=True,
        activation_function=options.get("pos_ffn_activation_fn"),
    )
    source.place_layers(_LAYERS, config)
    source.fill_missing_biases()
    source.pieces["lm_head.bias"] = Piece(("generator.bias",))
    model = source.build_model(config, positions=positions, ignored=masks)
    origins = [f"{file}: vocab, {side}" for side in ("src", "tgt")]
    tokenizer = both_tokenizers(vocabularies, config, ("$A", "$A eos"), origins=origins)
    return finish(Imported(model, tokenizer, notes=notes), output)


def _tensors(found: Mapping[str, Any], file: Path) -> dict[str, Tensor]:
    """Return the tensors of `model` and `generator`; `model` may contain the generator's too."""
    tensors = unwrapped(state_dict(found["model"], f"{file}: model"))
    generator = unwrapped(state_dict(found["generator"], f"{file}: generator"))
    return tensors | {f"generator.{name}": tensor for name, tensor in generator.items()}


def _options(found: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Return the training options, together with the settings stored in the vocabularies."""
    if not (options := options_in(found["opt"])):
        kind = type(found["opt"]).__name__
        raise RequestError(f"{file}: opt is a {kind}; expected a Namespace or dict of options.")
    more = options_in(found["vocab"])
    return options | {name: value for name, value in more.items() if name not in ("src", "tgt")}


def _vocabularies(found: object, file: Path) -> tuple[list[str], list[str]]:
    parts = found if isinstance(found, Mapping) else {}
    lists = [tokens for side in ("src", "tgt") if isinstance(tokens := parts.get(side), list)]
    if len(lists) < 2:
        raise RequestError(f"{file}: vocab has no lists of tokens `src` and `tgt`.")
    source, target = ([str(token) for token in tokens] for tokens in lists)
    return source, target


def _special_ids(target: list[str], file: Path) -> dict[str, int | None]:
    missing = [token for token in _SPECIAL.values() if token not in target]
    if missing:
        raise RequestError(f"{file}: the tgt list in vocab has no token {missing[0]!r}.")
    return special_ids("bos", **{role: target.index(it) for role, it in _SPECIAL.items()})
