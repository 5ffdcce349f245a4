"""Import of transformers' MarianMT and OPUS-MT directories; the inverse of the Marian export.

Marian's network is the paper's with the sinusoids' columns in another order (marian_names.py).
OPUS-MT models use swish, an output bias, and a decoder that starts from `<pad>`. Their
SentencePiece tokenizer is kept unchanged.
"""

from pathlib import Path

from transformers import MarianConfig

from ...storage.reading import StrPath
from ...storage.saved_model import CONFIG
from ..marian_names import LOGITS_BIAS, MARIAN_LAYERS, MARIAN_NORM_EPS, SHARED_FIELDS, reordered
from .marian_archive import DECODER, import_archive
from .options import check_options
from .safe_files import generation_settings, read_config, read_directory, tokenizer_files
from .state_dict import Imported, Names, Piece, Source, finish

_SOURCE = "model.encoder.embed_tokens.weight"
_TARGET = "model.decoder.embed_tokens.weight"
_SHARED = "model.shared.weight"
_SOFTMAX = "lm_head.weight"
_POSITIONS = tuple(f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder"))


def import_marian(
    path: StrPath, output: StrPath | None = None, *, like_transformers: bool = False
) -> Imported:
    """Import a directory with a `MarianMTModel`, or an archive of OPUS-MT in Marian's own format.

    Exact: logits differ by rounding alone, and an export of our model comes back bit for bit.

    Args:
        path: A transformers directory with config.json, the weights, and the tokenizer's files; or
            a folder or zip file with decoder.yml (see `marian_archive`).
        output: A new or empty directory. None means nothing is written.
        like_transformers: Whether to compute what transformers' conversion of an archive computes.

    Raises:
        ValueError: The directory is incomplete or not Marian's, or `output` is not empty.
    """
    folder = Path(path)
    if folder.is_file() or ((folder / DECODER).is_file() and not (folder / CONFIG).is_file()):
        return import_archive(folder, output, like_transformers=like_transformers)
    marian, settings = read_config(folder, MarianConfig)
    notes = check_options(settings, "transformers", "marian", origin=folder)
    tensors = reordered(read_directory(folder), marian.d_model, from_marian=True)
    source = Source(folder, tensors, notes)
    source.fields |= {field: getattr(marian, field, None) for field in SHARED_FIELDS}
    # Tied tensors are saved once or several times, under any of their names.
    encoder: Names = _SOURCE
    target: Names = (_TARGET, _SOFTMAX) if marian.tie_word_embeddings else _TARGET
    softmax: Names = target if marian.tie_word_embeddings else _SOFTMAX
    one_size = marian.decoder_vocab_size in (None, marian.vocab_size)
    if marian.tie_word_embeddings and marian.share_encoder_decoder_embeddings and one_size:
        encoder = target = softmax = (_SHARED, _SOURCE, _TARGET, _SOFTMAX)
    source.find_tables((encoder, target, softmax), scaled=marian.scale_embedding)
    bias = source.tensors.get(LOGITS_BIAS)
    config = source.make_config(
        # OPUS-MT has no `<s>` and gives `</s>` instead.
        bos_token_id=None if marian.bos_token_id == marian.eos_token_id else marian.bos_token_id,
        layer_norm_eps=MARIAN_NORM_EPS,
        lm_head_bias=bias is not None and bool(bias.any()),
    )
    source.place_layers(MARIAN_LAYERS, config)
    if config.lm_head_bias:
        source.pieces["lm_head.bias"] = Piece((LOGITS_BIAS,), lambda row: row.squeeze(0))
    model = source.build_model(config, positions=_POSITIONS, ignored=(LOGITS_BIAS, _SHARED))
    model.generation_config = generation_settings(folder, config)
    files = tokenizer_files(folder, "MarianTokenizer")
    return finish(Imported(model, files=files, notes=notes), output)
