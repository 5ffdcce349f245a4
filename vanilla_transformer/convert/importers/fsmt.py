"""Import of transformers' FSMT directories: fairseq's WMT models, converted for transformers.

The sinusoids are those of the authors' code (`position_encoding="tensor2tensor"`) with positions
from 2, source and target may have separate vocabularies, and the decoder starts from `</s>`.
"""

from pathlib import Path

from transformers import FSMTConfig

from ...storage.reading import StrPath
from ..marian_names import MARIAN_LAYERS, SHARED_FIELDS
from .options import check_options
from .safe_files import generation_settings, read_config, read_directory, tokenizer_files
from .state_dict import Imported, Source, finish

_POSITIONS = tuple(f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder"))


def import_fsmt(path: StrPath, output: StrPath | None = None) -> Imported:
    """Import a directory with an `FSMTForConditionalGeneration` and its tokenizer files.

    Exact: logits differ by rounding alone. The arguments are as for `import_marian`.

    Raises:
        ValueError: The directory is incomplete or not FSMT's, or `output` is not empty.
    """
    folder = Path(path)
    fsmt, settings = read_config(folder, FSMTConfig)
    notes = check_options(settings, "transformers", "fsmt", origin=folder)
    source = Source(folder, read_directory(folder), notes)
    source.fields |= {field: getattr(fsmt, field, None) for field in SHARED_FIELDS}
    target = "model.decoder.embed_tokens.weight"
    softmax = "model.decoder.output_projection.weight"
    encoder = "model.encoder.embed_tokens.weight"
    # Tied tensors are saved once, under any of their names.
    if encoder not in source.tensors and fsmt.tie_word_embeddings:
        encoder = target
    if softmax not in source.tensors:
        softmax = target
    source.find_tables((encoder, target, softmax), scaled=fsmt.scale_embedding)
    config = source.make_config(
        position_encoding="tensor2tensor",
        position_offset=(fsmt.pad_token_id or 0) + 1,
        unk_token_id=3,
    )
    source.place_layers(MARIAN_LAYERS, config)
    model = source.build_model(config, positions=_POSITIONS)
    model.generation_config = generation_settings(folder, config)
    files = tokenizer_files(folder, "FSMTTokenizer")
    return finish(Imported(model, files=files, notes=notes), output)
