"""Import of transformers' FSMT directories: fairseq's WMT models, converted for transformers.

The sinusoids are those of the authors' code (`position_encoding="tensor2tensor"`) with positions
from 2, source and target may have separate vocabularies, and the decoder starts from `</s>`.
"""

import os
from pathlib import Path

from transformers import FSMTConfig

from ..marian_names import tensor_map
from .options import check_options
from .safe_files import generation_settings, read_config, read_directory, tokenizer_files
from .state_dict import (
    Imported,
    Piece,
    build_model,
    check_sinusoids,
    find_tables,
    finish,
    make_config,
)

_FIELDS = (
    "d_model",
    "encoder_layers",
    "decoder_layers",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "activation_function",
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "max_position_embeddings",
    "use_cache",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
)
_POSITIONS = tuple(f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder"))
_TOKENIZER_FILES = ("vocab-src.json", "vocab-tgt.json", "merges.txt")
_MORE_FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


def import_fsmt(
    path: str | os.PathLike[str], output: str | os.PathLike[str] | None = None
) -> Imported:
    """Import a directory with an `FSMTForConditionalGeneration`.

    Exact: logits differ by rounding alone.

    Args:
        path: a transformers directory with config.json, the weights, and the tokenizer's files.
        output: a new or empty directory. None means nothing is written.

    Raises:
        ValueError: the directory is incomplete or not FSMT's, or `output` is not empty.
    """
    source = Path(path)
    fsmt, settings = read_config(source, FSMTConfig)
    notes = check_options(settings, "transformers", "fsmt", origin=source)
    tensors = read_directory(source)
    target = "model.decoder.embed_tokens.weight"
    softmax = "model.decoder.output_projection.weight"
    encoder = "model.encoder.embed_tokens.weight"
    tables = find_tables(
        tensors,
        # Tied tensors are saved once, under any of their names.
        source=encoder if encoder in tensors or not fsmt.tie_word_embeddings else target,
        target=target,
        softmax=softmax if softmax in tensors else target,
        origin=source,
        scaled=fsmt.scale_embedding,
    )
    config = make_config(
        source,
        **{field: getattr(fsmt, field) for field in _FIELDS},
        **tables.fields,
        position_encoding="tensor2tensor",
        position_offset=(fsmt.pad_token_id or 0) + 1,
        unk_token_id=3,
    )
    check_sinusoids(tensors, _POSITIONS, config, origin=source)
    layers = {
        key: Piece((place.key,)) for key, place in tensor_map(config).items() if ".layers." in key
    }
    pieces = layers | tables.pieces
    model = build_model(config, pieces, tensors, origin=source, ignored=_POSITIONS)
    model.generation_config = generation_settings(source, config)
    files = tokenizer_files(source, _TOKENIZER_FILES, _MORE_FILES, "FSMTTokenizer")
    if not files:
        notes += ("The directory has no tokenizer; these are weights and ids only.",)
    return finish(Imported(model, files=files, notes=notes), output)
