"""Import of transformers' FSMT directories: fairseq's WMT models, converted for transformers.

The sinusoids are those of the authors' code (`position_encoding="tensor2tensor"`) with positions
from 2, source and target may have separate vocabularies, and the decoder starts from `</s>`.
"""

import os
from pathlib import Path

from transformers import FSMTConfig

from ..marian_names import MARIAN_LAYERS, SHARED_FIELDS
from .options import check_options
from .safe_files import generation_settings, read_config, read_directory, tokenizer_files
from .state_dict import Imported, build_model, find_tables, finish, layer_pieces, make_config

_POSITIONS = tuple(f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder"))
_TOKENIZER_FILES = ("vocab-src.json", "vocab-tgt.json", "merges.txt")


def import_fsmt(
    path: str | os.PathLike[str], output: str | os.PathLike[str] | None = None
) -> Imported:
    """Import a directory with an `FSMTForConditionalGeneration`.

    Exact: logits differ by rounding alone. The arguments are as for `import_marian`.

    Raises:
        ValueError: The directory is incomplete or not FSMT's, or `output` is not empty.
    """
    source = Path(path)
    fsmt, settings = read_config(source, FSMTConfig)
    notes = check_options(settings, "transformers", "fsmt", origin=source)
    tensors = read_directory(source)
    target = "model.decoder.embed_tokens.weight"
    softmax = "model.decoder.output_projection.weight"
    encoder = "model.encoder.embed_tokens.weight"
    tables, pieces = find_tables(
        tensors,
        # Tied tensors are saved once, under any of their names.
        source=encoder if encoder in tensors or not fsmt.tie_word_embeddings else target,
        target=target,
        softmax=softmax if softmax in tensors else target,
        origin=source,
        scaled=fsmt.scale_embedding,
    )
    fields = {field: getattr(fsmt, field, None) for field in SHARED_FIELDS}
    fields |= tables
    fields |= {
        "position_encoding": "tensor2tensor",
        "position_offset": (fsmt.pad_token_id or 0) + 1,
        "unk_token_id": 3,
    }
    config = make_config(source, **fields)
    pieces |= layer_pieces(MARIAN_LAYERS, config)
    model = build_model(config, pieces, tensors, origin=source, positions=_POSITIONS)
    model.generation_config = generation_settings(source, config)
    files = tokenizer_files(source, _TOKENIZER_FILES, "FSMTTokenizer")
    return finish(Imported(model, files=files, notes=notes), output)
