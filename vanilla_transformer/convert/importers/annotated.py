"""Import of the state dict of The Annotated Transformer (harvardnlp).

Its network is pre-norm, with its own layer norm: this uses the unbiased deviation s and adds
epsilon e to s rather than to the variance. With a = a_2 sqrt((d - 1) / d),

    a_2 (x - mean) / (s + e) = a (x - mean) / (sqrt(variance) + e sqrt((d - 1) / d)),

so `nn.LayerNorm` with scale a differs only in where e is added. The relative difference is about
e / deviation: 1e-6 for a deviation of 1, no more than rounding.
"""

import math
from pathlib import Path

from torch import Tensor

from ...storage.reading import StrPath
from ..layer_names import STACKS, LayerNames
from .options import check_options
from .safe_files import read_state_dict, unwrapped
from .state_dict import Imported, Piece, Source, finish, special_ids
from .vocabulary import vocabulary_tokenizer

EPSILON = 1e-6  # added to the standard deviation
_LAYERS = LayerNames(
    layers={stack: f"{stack}.layers" for stack in STACKS},
    attentions={"encoder": ("self_attn",), "decoder": ("self_attn", "src_attn")},
    norms={
        "encoder": ("sublayer.0.norm", "sublayer.1.norm"),
        "decoder": ("sublayer.0.norm", "sublayer.1.norm", "sublayer.2.norm"),
    },
    projections=("linears.0", "linears.1", "linears.2", "linears.3"),
    feed_forward=("feed_forward.w_1", "feed_forward.w_2"),
    last_norm="{}.norm",
)
_TABLES = ("src_embed.0.lut.weight", "tgt_embed.0.lut.weight", "generator.proj.weight")
_POSITIONS = ("src_embed.1.pe", "tgt_embed.1.pe")


def import_annotated(
    path: StrPath,
    output: StrPath | None = None,
    *,
    heads: int = 8,
    source_vocab: StrPath | None = None,
    target_vocab: StrPath | None = None,
) -> Imported:
    """Import a model of The Annotated Transformer; build its tokenizer from vocabulary files.

    Args:
        path: File with a state dict, as for `import_torch`.
        output: A new or empty directory. None means nothing is written.
        heads: Number of attention heads, `h` of `make_model`.
        source_vocab: File with the source's tokens, one per line by id, for a word tokenizer.
            None means no tokenizer.
        target_vocab: Such a file with the target's tokens. None means the source's file.

    Raises:
        ValueError: The file is damaged or could run code, tensors are missing, surplus or wrongly
            shaped, or `output` is not empty.
    """
    file = Path(path)
    tensors, settings = read_state_dict(file)
    notes = check_options(settings, "annotated", origin=file, given={"h": heads})
    source = Source(file, unwrapped(tensors), notes)
    source.find_tables(_TABLES)
    source.find_layers(_LAYERS)
    config = source.make_config(
        **{f"{stack}_attention_heads": heads for stack in STACKS},
        norm_first=True,
        layer_norm_eps=EPSILON**2,
        lm_head_bias=True,
        **special_ids("bos", bos=0, eos=1, pad=2, unk=3),
    )
    source.pieces["lm_head.bias"] = Piece(("generator.proj.bias",))
    for key, name in _LAYERS.tensors(config).items():
        source.pieces[key] = _norm(name) if "norm" in key else Piece((name,))
    model = source.build_model(config, positions=_POSITIONS)
    tokenizer = vocabulary_tokenizer((source_vocab, target_vocab), config, "bos $A eos")
    return finish(Imported(model, tokenizer, notes=source.notes), output)


def _norm(name: str) -> Piece:
    """Return the source's name of a norm's scale or bias, and how to convert the scale."""
    name, _, part = name.rpartition(".")
    return Piece((f"{name}.b_2",)) if part == "bias" else Piece((f"{name}.a_2",), _biased)


def _biased(scale: Tensor) -> Tensor:
    return scale * math.sqrt((scale.numel() - 1) / scale.numel())
