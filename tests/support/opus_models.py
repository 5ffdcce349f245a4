"""Small directories as OPUS-MT's: a MarianMTModel with the files of its SentencePiece tokenizer."""

import io
import json

import pytest
import torch
from transformers import MarianConfig, MarianMTModel
from written_out import perturb

VOCAB_SIZE = 40
# As in OPUS-MT: `</s>` is first, and `<pad>` is last and starts the decoder.
OPUS = {"eos_token_id": 0, "bos_token_id": 0, "forced_eos_token_id": 0}
OPUS |= {"activation_function": "swish", "scale_embedding": True}


def make_marian(seed=0, *, vocab_size=VOCAB_SIZE, **overrides):
    torch.manual_seed(seed)
    pad = vocab_size - 1
    config = MarianConfig(
        **{
            **{"vocab_size": vocab_size, "decoder_vocab_size": vocab_size, "d_model": 24},
            **{"encoder_layers": 2, "decoder_layers": 3, "max_position_embeddings": 64},
            **{"encoder_attention_heads": 3, "decoder_attention_heads": 2},
            **{"encoder_ffn_dim": 40, "decoder_ffn_dim": 32},
            **{"pad_token_id": pad, "decoder_start_token_id": pad, **OPUS},
            **overrides,
        }
    )
    return perturb(MarianMTModel(config), factor=5)


def trained_pieces(sentences, vocab_size=30):
    """Return a SentencePiece model of these sentences and its pieces, without the special ones."""
    spm = pytest.importorskip("sentencepiece", reason="comes with the extra import")
    written = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=written,
        vocab_size=vocab_size,
        hard_vocab_limit=False,  # few sentences give fewer pieces
        minloglevel=2,
    )
    model = spm.SentencePieceProcessor(model_proto=written.getvalue())
    return written.getvalue(), [model.id_to_piece(number) for number in range(3, len(model))]


def save_opus(folder, sources, targets, vocab_size=30):
    """Save a model with pieces of these sentences."""
    folder.mkdir()
    names = {}
    for side, sentences in (("source", sources), ("target", targets)):
        model, pieces = trained_pieces(sentences, vocab_size)
        (folder / f"{side}.spm").write_bytes(model)
        names |= dict.fromkeys(pieces)
    vocabulary = ["</s>", "<unk>", *names, "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({p: n for n, p in enumerate(vocabulary)}))
    (folder / "tokenizer_config.json").write_text('{"source_lang": "en", "target_lang": "de"}')
    make_marian(vocab_size=len(vocabulary)).save_pretrained(folder)
