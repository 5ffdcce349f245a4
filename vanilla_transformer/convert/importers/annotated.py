"""Import of the state dict of The Annotated Transformer (harvardnlp).

Its network is pre-norm, with its own layer norm: this uses the unbiased deviation s and adds
epsilon e to s rather than to the variance. With a = a_2 sqrt((d - 1) / d),

    a_2 (x - mean) / (s + e) = a (x - mean) / (sqrt(variance) + e sqrt((d - 1) / d)),

so `nn.LayerNorm` with scale a differs only in where e is added. The relative difference is about
e / deviation: 1e-6 for a deviation of 1, no more than rounding.
"""

import math
import os
from pathlib import Path

from torch import Tensor

from .options import check_options
from .safe_files import read_state_dict, unwrapped
from .state_dict import (
    Imported,
    Piece,
    build_model,
    check_sinusoids,
    find_tables,
    finish,
    layer_count,
    make_config,
    require,
)
from .vocabulary import vocabulary_tokenizers

EPSILON = 1e-6  # added to the deviation
_ATTENTIONS = {"self_attn": "self_attn", "cross_attn": "src_attn"}
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")
_NORMS = {
    "encoder": ("self_attn_norm", "feed_forward_norm"),
    "decoder": ("self_attn_norm", "cross_attn_norm", "feed_forward_norm"),
}
_STACKS = ("encoder", "decoder")
_POSITIONS = ("src_embed.1.pe", "tgt_embed.1.pe")


def import_annotated(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    heads: int = 8,
    source_vocab: str | os.PathLike[str] | None = None,
    target_vocab: str | os.PathLike[str] | None = None,
) -> Imported:
    """Import a model of The Annotated Transformer.

    Args:
        path: a file that `torch.save(model.state_dict(), ...)` wrote, a safetensors file, or a
            training's checkpoint.
        output: a new or empty directory. None means nothing is written.
        heads: h of `make_model`.
        source_vocab: file with the source's tokens, one per line by id, for a word tokenizer.
            None means no tokenizer.
        target_vocab: the same for the target. None means the source's.

    Raises:
        ValueError: the file is damaged or could run code, tensors are missing, surplus or wrongly
            shaped, or `output` is not empty.
    """
    file = Path(path)
    tensors, settings = read_state_dict(file)
    tensors = unwrapped(tensors)
    notes = check_options(settings, "annotated", origin=file, given={"h": heads})
    tables = find_tables(
        tensors,
        source="src_embed.0.lut.weight",
        target="tgt_embed.0.lut.weight",
        softmax="generator.proj.weight",
        origin=file,
    )
    inner = [f"{stack}.layers.0.feed_forward.w_1.weight" for stack in _STACKS]
    require(tensors, inner, origin=file)
    config = make_config(
        file,
        **tables.fields,
        **{f"{stack}_layers": layer_count(tensors, f"{stack}.layers") for stack in _STACKS},
        **{f"{stack}_attention_heads": heads for stack in _STACKS},
        **{
            f"{stack}_ffn_dim": tensors[name].size(0)
            for stack, name in zip(_STACKS, inner, strict=True)
        },
        d_model=tensors[inner[0]].size(1),
        norm_first=True,
        layer_norm_eps=EPSILON**2,
        lm_head_bias=True,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        unk_token_id=3,
        decoder_start_token_id=0,
    )
    check_sinusoids(tensors, _POSITIONS, config, origin=file)
    pieces = {**tables.pieces, "lm_head.bias": Piece(("generator.proj.bias",))}
    for stack in _STACKS:
        pieces |= _stack(stack, getattr(config, f"{stack}_layers"))
    model = build_model(config, pieces, tensors, origin=file, ignored=_POSITIONS)
    paths, templates = (source_vocab, target_vocab), ("bos $A eos", "bos $A eos")
    source, target = vocabulary_tokenizers(paths, config, templates)
    if not source:
        notes += ("A state dict has no tokenizer; these are weights and ids only.",)
    return finish(Imported(model, source, target, notes=notes), output)


def _stack(stack: str, layers: int) -> dict[str, Piece]:
    pieces = _norm(f"model.{stack}.norm", f"{stack}.norm")
    for layer in range(layers):
        pieces |= _layer(f"model.{stack}.layers.{layer}", f"{stack}.layers.{layer}", stack)
    return pieces


def _layer(ours: str, theirs: str, stack: str) -> dict[str, Piece]:
    pieces = {}
    for part in ("weight", "bias"):
        for name, attention in list(_ATTENTIONS.items())[: len(_NORMS[stack]) - 1]:
            for number, projection in enumerate(_PROJECTIONS):
                key = f"{ours}.{name}.{projection}.{part}"
                pieces[key] = Piece((f"{theirs}.{attention}.linears.{number}.{part}",))
        for number in (1, 2):
            key = f"{ours}.feed_forward.fc{number}.{part}"
            pieces[key] = Piece((f"{theirs}.feed_forward.w_{number}.{part}",))
    for number, norm in enumerate(_NORMS[stack]):
        pieces |= _norm(f"{ours}.{norm}", f"{theirs}.sublayer.{number}.norm")
    return pieces


def _norm(ours: str, theirs: str) -> dict[str, Piece]:
    def biased(scale: Tensor) -> Tensor:
        return scale * math.sqrt((scale.numel() - 1) / scale.numel())

    return {
        f"{ours}.weight": Piece((f"{theirs}.a_2",), biased),
        f"{ours}.bias": Piece((f"{theirs}.b_2",)),
    }


__all__ = ["EPSILON", "import_annotated"]
