"""Import of transformers' MarianMT and OPUS-MT directories; the inverse of the Marian export.

Marian's network is the paper's with the sinusoids' columns in another order (marian_names.py).
OPUS-MT models use swish, an output bias, and a decoder that starts from `<pad>`. Their
SentencePiece tokenizer is kept unchanged.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import MarianConfig

from ...configuration_vanilla_transformer import VanillaTransformerConfig
from ..marian_names import (
    LOGITS_BIAS,
    MARIAN_LAYER_NORM_EPS,
    marian_columns,
    shared_fields,
    tensor_map,
)
from .options import check_options
from .safe_files import generation_settings, read_config, read_directory, tokenizer_files
from .state_dict import Imported, Piece, Source, finish

_SOURCE = "model.encoder.embed_tokens.weight"
_TARGET = "model.decoder.embed_tokens.weight"
_SHARED = "model.shared.weight"
_SOFTMAX = "lm_head.weight"
_POSITIONS = tuple(f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder"))


def import_marian(
    path: str | os.PathLike[str], output: str | os.PathLike[str] | None = None
) -> Imported:
    """Import a directory with a `MarianMTModel`, such as those of OPUS-MT.

    Exact: logits differ by rounding alone, and an export of our model comes back bit for bit.

    Args:
        path: A transformers directory with config.json, the weights, and the tokenizer's files.
        output: A new or empty directory. None means nothing is written.

    Raises:
        ValueError: The directory is incomplete or not Marian's, or `output` is not empty.
    """
    folder = Path(path)
    marian, settings = read_config(folder, MarianConfig)
    notes = check_options(settings, "transformers", "marian", origin=folder)
    source = Source(folder, read_directory(folder), notes)
    config = source.make_config(**_fields(marian, source.tensors.get(LOGITS_BIAS)))
    source.pieces = _pieces(marian, config)
    model = source.build_model(
        config,
        positions=_POSITIONS,
        columns=marian_columns(config.d_model),
        ignored=(LOGITS_BIAS, _SHARED),
    )
    model.generation_config = generation_settings(folder, config)
    files = tokenizer_files(folder, "MarianTokenizer")
    return finish(Imported(model, files=files, notes=notes), output)


def _fields(marian: MarianConfig, bias: Tensor | None) -> dict[str, Any]:
    fields = shared_fields(marian)
    return fields | {
        # OPUS-MT has no `<s>` and gives `</s>` instead.
        "bos_token_id": None if marian.bos_token_id == marian.eos_token_id else marian.bos_token_id,
        "layer_norm_eps": MARIAN_LAYER_NORM_EPS,
        "lm_head_bias": bias is not None and bool(bias.any()),
        # Unscaled embeddings are divided here, so they cannot stay tied to the softmax weights.
        "tie_word_embeddings": marian.tie_word_embeddings and marian.scale_embedding,
        # Marian ties all three tables, or the target's and the softmax, or none.
        "share_encoder_decoder_embeddings": marian.share_encoder_decoder_embeddings
        and marian.tie_word_embeddings
        and not fields["decoder_vocab_size"],
    }


def _pieces(marian: MarianConfig, config: VanillaTransformerConfig) -> dict[str, Piece]:
    columns = marian_columns(config.d_model).argsort()

    def reordered(axis: int | None, scale: float = 1.0) -> Callable[[Tensor], Tensor]:
        def change(tensor: Tensor) -> Tensor:
            if axis is not None and tensor.size(axis) == len(columns):  # else refused later
                tensor = tensor.index_select(axis, columns)
            return tensor if scale == 1.0 else tensor * scale

        return change

    pieces = {
        key: Piece((place.key,), reordered(place.axis))
        for key, place in tensor_map(config).items()
        if ".layers." in key
    }
    if config.lm_head_bias:
        pieces["lm_head.bias"] = Piece((LOGITS_BIAS,), lambda row: row.squeeze(0))
    tables: dict[str, tuple[str, ...]] = {_SOURCE: (_SOURCE,), _TARGET: (_TARGET,)}
    if config.share_encoder_decoder_embeddings:
        tables = {_SHARED: (_SHARED, _SOURCE, _TARGET, _SOFTMAX)}
    elif marian.tie_word_embeddings:
        tables[_TARGET] = (_TARGET, _SOFTMAX)
    if not config.tie_word_embeddings:
        tied = tables.get(_SHARED, tables.get(_TARGET, ()))
        softmax = tied if marian.tie_word_embeddings else (_SOFTMAX,)
        pieces[_SOFTMAX] = Piece(softmax, reordered(1))
    scale = 1.0 if marian.scale_embedding else 1 / math.sqrt(config.d_model)
    return pieces | {key: Piece(names, reordered(1, scale)) for key, names in tables.items()}
