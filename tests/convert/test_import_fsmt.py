"""The import from FSMT, with directories made by transformers."""

import json

import pytest
import torch
from transformers import FSMTConfig, FSMTForConditionalGeneration
from written_out import assert_logits, make_batch, perturb

from vanilla_transformer.convert.importers.fsmt import import_fsmt

SOURCE_SIZE, TARGET_SIZE = 37, 41
DIALECTS = {
    "two vocabularies": {},
    "tied softmax": {},
    "all tied": {"tie_word_embeddings": True, "tgt_vocab_size": SOURCE_SIZE},
    "unscaled": {"scale_embedding": False},
    "gelu": {"activation_function": "gelu"},
    "odd width": {"d_model": 15, "encoder_attention_heads": 3, "decoder_attention_heads": 5},
}


def make_fsmt(dialect="two vocabularies", **options):
    torch.manual_seed(0)
    config = FSMTConfig(
        **{
            **{"langs": ["en", "ru"], "src_vocab_size": SOURCE_SIZE, "tgt_vocab_size": TARGET_SIZE},
            **{"d_model": 16, "encoder_layers": 2, "decoder_layers": 3},
            **{"encoder_attention_heads": 4, "decoder_attention_heads": 2},
            **{"encoder_ffn_dim": 20, "decoder_ffn_dim": 28, "max_position_embeddings": 30},
            **DIALECTS[dialect],
            **options,
        }
    )
    fsmt = perturb(FSMTForConditionalGeneration(config), factor=5)
    if dialect == "tied softmax":  # as fairseq's --share-decoder-input-output-embed leaves it
        decoder = fsmt.model.decoder
        decoder.output_projection.weight.data.copy_(decoder.embed_tokens.weight)
    return fsmt


@pytest.mark.parametrize("dialect", DIALECTS)
def test_imported_logits_equal_those_of_fsmt(tmp_path, dialect):
    fsmt = make_fsmt(dialect)
    fsmt.save_pretrained(tmp_path / "fsmt")
    ours = import_fsmt(tmp_path / "fsmt").model
    # FSMT makes its decoder's masks only without a cache.
    assert_logits(ours, make_batch(SOURCE_SIZE), lambda *ids: fsmt(*ids, use_cache=False).logits)
    tied = dialect in ("tied softmax", "all tied")
    assert (ours.lm_head.weight is ours.model.decoder.embed_tokens.weight) == tied
    shared = ours.model.encoder.embed_tokens.weight is ours.model.decoder.embed_tokens.weight
    assert shared == (dialect == "all tied")


@pytest.mark.parametrize(
    "settings", [{"num_beams": 1, "length_penalty": 1.15, "early_stopping": True}, {"top_k": 7}]
)
def test_settings_without_effect_are_left_out(tmp_path, settings):
    make_fsmt().save_pretrained(tmp_path / "fsmt")
    path = tmp_path / "fsmt" / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    import_fsmt(tmp_path / "fsmt", tmp_path / "ours")
    kept = json.loads((tmp_path / "ours" / "generation_config.json").read_text())
    assert kept.keys() & settings.keys() <= {"num_beams"}
