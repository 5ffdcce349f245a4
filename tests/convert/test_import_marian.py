"""The import from MarianMT and OPUS-MT, with directories made by transformers."""

import json
import shutil

import pytest
import torch
import written_out
from opus_models import VOCAB_SIZE, make_marian, save_opus
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    MarianMTModel,
    MarianTokenizer,
)
from written_out import assert_logits, perturb

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.convert.exporters.stock import to_stock
from vanilla_transformer.convert.importers.marian import import_marian

TARGET_SIZE = 46
TWO = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": TARGET_SIZE}
DIALECTS = {
    "opus": {},
    "relu": {"activation_function": "relu"},
    "two vocabularies": TWO,
    "untied": {"tie_word_embeddings": False},
    "untied vocabularies": {**TWO, "tie_word_embeddings": False},
    "unscaled": {"scale_embedding": False},
    "unscaled vocabularies": {**TWO, "scale_embedding": False},
}


def make_batch(config):
    pad, start = config.pad_token_id, config.decoder_start_token_id
    return written_out.make_batch(VOCAB_SIZE - 1, pad=pad, start=start)


def assert_same_logits(theirs, ours):
    assert_logits(ours, make_batch(theirs.config), lambda *batch: theirs(*batch).logits)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_imported_logits_equal_those_of_marian(tmp_path, dialect):
    marian = make_marian(**DIALECTS[dialect])
    marian.save_pretrained(tmp_path / "marian")
    import_marian(tmp_path / "marian", tmp_path / "ours")
    ours = VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path / "ours")
    assert_same_logits(marian, ours)
    # Tied tables stay tied if embeddings are scaled.
    tied = marian.config.tie_word_embeddings and marian.config.scale_embedding
    assert (ours.lm_head.weight is ours.model.decoder.embed_tokens.weight) == tied


def test_sharded_checkpoints_are_read(tmp_path):
    marian = make_marian()
    marian.save_pretrained(tmp_path / "marian", max_shard_size="20KB")
    assert len(list((tmp_path / "marian").glob("model-*.safetensors"))) > 2
    assert_same_logits(marian, import_marian(tmp_path / "marian").model)
    min((tmp_path / "marian").glob("model-*.safetensors")).unlink()
    with pytest.raises(ValueError, match=r"lists 'model-00001-of"):
        import_marian(tmp_path / "marian")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tie_word_embeddings": False, "share_encoder_decoder_embeddings": False},
        {"lm_head_bias": True, "activation_function": "swish"},
        TWO,
    ],
    ids=str,
)
def test_export_to_stock_and_import_is_bit_exact(tmp_path, fields):
    torch.manual_seed(0)
    config = VanillaTransformerConfig(
        **{"vocab_size": VOCAB_SIZE, "d_model": 24, "encoder_layers": 2, "decoder_layers": 1},
        **{"encoder_attention_heads": 3, "decoder_attention_heads": 2, "encoder_ffn_dim": 20},
        **fields,
    )
    model = perturb(VanillaTransformerForConditionalGeneration(config), factor=5)
    to_stock(model).save_pretrained(tmp_path / "marian")
    back = import_marian(tmp_path / "marian").model
    assert set(back.state_dict()) == set(model.state_dict())
    for name, tensor in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name
    same = {**model.config.to_dict(), "label_smoothing": None, "dtype": None}
    assert {**back.config.to_dict(), "label_smoothing": None, "dtype": None} == same
    bounded = {**model.generation_config.to_dict(), "max_new_tokens": 1024}
    assert back.generation_config.to_dict() == bounded


@pytest.mark.parametrize("own_file", [True, False])
def test_generation_equals_that_of_the_imported_model(tmp_path, own_file):
    marian = make_marian()
    marian.generation_config.bad_words_ids = [[VOCAB_SIZE - 1]]
    marian.generation_config.num_beams = 3
    marian.generation_config.max_length = 12
    marian.save_pretrained(tmp_path / "marian")
    if not own_file:  # as in the first OPUS-MT directories
        (tmp_path / "marian" / "generation_config.json").unlink()
        file = tmp_path / "marian" / "config.json"
        old = {"bad_words_ids": [[VOCAB_SIZE - 1]], "num_beams": 3, "max_length": 12}
        file.write_text(json.dumps({**json.loads(file.read_text()), **old}))
    stock = MarianMTModel.from_pretrained(tmp_path / "marian")
    import_marian(tmp_path / "marian", tmp_path / "ours")
    ours = VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path / "ours")
    source, mask, _ = make_batch(marian.config)
    results = []
    for model in (stock, ours):
        torch.manual_seed(3)
        results.append(model.generate(source, attention_mask=mask, do_sample=True))
    assert torch.equal(*results)
    assert results[0].unique().numel() > 5
    assert (results[0][:, 1] != VOCAB_SIZE - 1).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_kept(tmp_path, dtype):
    marian = make_marian().to(dtype)
    marian.save_pretrained(tmp_path / "marian")
    (tmp_path / "marian" / "model.safetensors").unlink()
    torch.save(marian.state_dict(), tmp_path / "marian" / "pytorch_model.bin")  # with positions
    ours = import_marian(tmp_path / "marian").model
    assert ours.dtype == dtype
    names = "model.decoder.layers.1.fc1.bias", "model.decoder.layers.1.feed_forward.fc1.bias"
    assert torch.equal(marian.state_dict()[names[0]], ours.state_dict()[names[1]])


def test_pad_is_never_generated_even_if_marian_does_not_forbid_it(tmp_path):
    marian = make_marian()
    with torch.no_grad():
        marian.final_logits_bias[0, VOCAB_SIZE - 1] = 100.0
    marian.generation_config = GenerationConfig(max_length=6, num_beams=1)
    marian.save_pretrained(tmp_path / "marian")
    ours = import_marian(tmp_path / "marian").model
    source, mask, _ = make_batch(marian.config)
    generated = ours.generate(source, attention_mask=mask)
    assert (generated[:, 0] == VOCAB_SIZE - 1).all()
    assert (generated[:, 1] != VOCAB_SIZE - 1).all()


def test_tokenizer_files_that_are_links_elsewhere_are_refused(tmp_path):
    """Otherwise a folder from someone else could take any file of its importer along."""
    make_marian().save_pretrained(tmp_path / "marian")
    for name in ("target.spm", "vocab.json"):
        (tmp_path / "marian" / name).write_text("{}")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "marian" / "source.spm").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match=r"source\.spm is a link to .*secret, which lies outside"):
        import_marian(tmp_path / "marian", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_kept_marian_tokenizer_works(tmp_path):
    folder, sentences = tmp_path / "marian", ["the dog runs", "a cat sleeps", "dogs and cats"]
    save_opus(folder, sentences, sentences)
    import_marian(folder, tmp_path / "ours")
    stock = MarianTokenizer.from_pretrained(folder)
    kept = AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert type(kept) is type(stock)
    ids = kept("the dogs sleep").input_ids
    assert ids == stock("the dogs sleep").input_ids
    assert ids[-1] == 0
    assert kept.decode(ids, skip_special_tokens=True) == "the dogs sleep"


def test_blocks_import_marian_and_import_python(documented_command, documented_code, capsys):
    make_marian().save_pretrained("opus-mt-en-de")
    documented_command("import_marian")
    AutoModelForSeq2SeqLM.from_pretrained("runs/opus-mt-en-de")
    capsys.readouterr()
    shutil.rmtree("runs")
    documented_code("import_python")
    assert capsys.readouterr().out.startswith(f"{VOCAB_SIZE} (")
