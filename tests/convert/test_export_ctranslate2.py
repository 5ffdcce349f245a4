"""The export to CTranslate2, tested with CTranslate2 itself: pip install '.[export]'."""

import copy
import json

import pytest
import torch
from tiny_exports import (
    BYTES,
    batch_of,
    decoded_by_ctranslate2,
    make_model,
    save,
    scored_by_ctranslate2,
    sequences,
)
from tiny_models import byte_tokenizer, word_level
from transformers import AutoTokenizer

ctranslate2 = pytest.importorskip("ctranslate2", reason="comes with the extra export")

# After the check above, which skips this file where these imports would fail.
from ctranslate2.converters import TransformersConverter  # noqa: E402

from vanilla_transformer.convert.exporters.ctranslate2 import (  # noqa: E402
    VanillaTransformerLoader,
    export_ctranslate2,
    vocabulary,
    written_vocabularies,
)
from vanilla_transformer.convert.exporters.stock import export_stock  # noqa: E402
from vanilla_transformer.fast.shortlist import Shortlist, write_shortlist  # noqa: E402
from vanilla_transformer.target_tokenizer import target_tokenizer  # noqa: E402
from vanilla_transformer.texts.targets import hold_target_tokenizer  # noqa: E402

VARIANTS = {
    "paper": {},
    "untied": {"tie_word_embeddings": False},
    "norm_first": {"norm_first": True},
    "learned": {"position_encoding": "learned"},
    "tensor2tensor": {"position_encoding": "tensor2tensor"},
    "epsilon": {"layer_norm_eps": 1e-2},
    "narrow_keys": {"d_k": 5},
    "wide_keys": {"d_k": 11, "d_v": 7, "encoder_attention_heads": 2},
    "spare_rows": {"vocab_size": BYTES + 4},
    "final_norm": {"final_norm": True},
    "offset": {"position_offset": 2, "lm_head_bias": True},
    "two_tables": {"share_encoder_decoder_embeddings": False},
    **{name: {"activation_function": name} for name in ("gelu", "gelu_new", "swish", "tanh")},
}


def log_probabilities(model, source, mask, target):
    with torch.no_grad():
        logits = model(source, mask, target).logits[:, :-1]
    return logits.log_softmax(-1).gather(2, target[:, 1:, None]).squeeze(2)


def until_end(rows):
    """Return lists of ids after the start symbol, up to the end symbol."""
    rows = [row[1:] for row in rows.tolist()]
    return [row[: row.index(2) + 1] if 2 in row else row for row in rows]


@pytest.fixture(scope="module")
def exported(everyday, tmp_path_factory):
    """Return a trained model, a hundred sources with their mask, and its export."""
    output = export_ctranslate2(everyday.folder, tmp_path_factory.mktemp("exports") / "out")
    sources = everyday.tokenizer(everyday.sentences, padding=True, return_tensors="pt")
    return everyday.model, sources["input_ids"], sources["attention_mask"], output


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_scores_and_translates_equally(tmp_path, variant):
    run, model, _ = save(tmp_path, **VARIANTS[variant])
    output = export_ctranslate2(run, tmp_path / "out")
    source, mask, target = batch_of(model)
    expected = log_probabilities(model, source, mask, target)
    found = scored_by_ctranslate2(output, source, mask, target)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_search_without_length_penalty_gives_the_same_tokens(exported):
    model, source, mask, output = exported
    model, found = copy.deepcopy(model), []
    for beams in (1, 4):
        settings = {"num_beams": beams, "length_penalty": 0.0, "max_new_tokens": 20}
        ours = model.generate(source, attention_mask=mask, **settings)
        settings = {"beam_size": beams, "length_penalty": 0.0, "max_decoding_length": 20}
        found.append(decoded_by_ctranslate2(output, source, mask, **settings))
        assert found[-1] == until_end(ours)
        assert ours.unique().numel() > 30
        assert len(set((ours != 0).sum(1).tolist())) > 1
        # Among beams, CTranslate2 renormalizes over tokens that are not suppressed; we do not.
        model.generation_config.suppress_tokens = None
    assert found[0] != found[1]  # beams made a difference


@pytest.mark.parametrize("quantization", ["bfloat16", "int8", "int8_float32"])
def test_quantized_exports_are_smaller_and_score_closely(tmp_path, quantization):
    run, model, _ = save(tmp_path)
    reference = export_ctranslate2(run, tmp_path / "float32")
    output = export_ctranslate2(run, tmp_path / "out", quantization=quantization)
    size, whole = ((folder / "model.bin").stat().st_size for folder in (output, reference))
    assert size < 0.75 * whole
    source, mask, _ = batch_of(model)
    target = model.generate(source, attention_mask=mask, num_beams=1, max_new_tokens=5)
    expected = log_probabilities(model, source, mask, target)
    found = scored_by_ctranslate2(output, source, mask, target)
    lost = (found - expected).abs().mean()
    assert 1e-6 < lost < 0.1
    if quantization != "bfloat16":
        rounded = log_probabilities(rounded_to_int8(model), source, mask, target)
        torch.testing.assert_close(found, rounded, atol=1e-4, rtol=0)


def rounded_to_int8(model):
    """Return a copy with each row of a matrix rounded to multiples of its maximum / 127."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2:
                scale = 127 / weight.abs().amax(1, keepdim=True)
                weight.copy_((weight * scale).round() / scale)
                assert weight.isfinite().all(), name
    return model


def test_a_shortlist_becomes_a_vmap(tmp_path):
    run, *_ = save(tmp_path, teach=True)
    torch.manual_seed(0)
    likely = torch.randint(4, BYTES, (BYTES, 2))
    likely[::3, 1] = 0  # as if these source pieces had only one
    write_shortlist(Shortlist(torch.tensor([2, 40, 41]), likely), run, -1.0)
    output = export_ctranslate2(run, tmp_path / "out")
    written = (output / "vmap.txt").read_text(encoding="utf-8").splitlines()
    assert not [line for line in written if "<pad>" in line.split("\t")[1].split()]
    source, mask = sequences()
    found, whole = (
        decoded_by_ctranslate2(output, source, mask, max_decoding_length=20, use_vmap=used)
        for used in (True, False)
    )
    assert found != whole
    assert set().union(*found) <= {2, 40, 41, *likely[source].flatten().tolist()} - {0}


def test_export_with_a_target_tokenizer(tmp_path):
    run, model, tokenizer = save(
        tmp_path, decoder_vocab_size=30, share_encoder_decoder_embeddings=False
    )
    output = export_ctranslate2(run, tmp_path / "without")
    assert written_vocabularies(output)[1][4] == "<target 4>"
    own = word_level(["mot", "le"])
    hold_target_tokenizer(tokenizer, own)
    tokenizer.save_pretrained(run)
    output = export_ctranslate2(run, tmp_path / "out")
    source, mask, target = batch_of(model)
    expected = log_probabilities(model, source, mask, target % 30)
    found = scored_by_ctranslate2(output, source, mask, target % 30)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    assert written_vocabularies(output)[1][4] == "mot"
    assert target_tokenizer(AutoTokenizer.from_pretrained(output)).get_vocab() == own.get_vocab()


@pytest.mark.parametrize("quantization", ["float32", "bfloat16", "int8"])
def test_conversion_does_not_change_the_model(quantization):
    """The converter quantizes in place, which must not happen in the model's own memory."""
    model = make_model(vocab_size=BYTES)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    spec = VanillaTransformerLoader()(model, byte_tokenizer())
    spec.validate()
    spec.optimize(quantization=quantization)
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]), key


def test_converter_of_ctranslate2_knows_the_model(everyday, exported, tmp_path):
    output = exported[-1]
    converted = TransformersConverter(str(everyday.folder)).convert(str(tmp_path / "out"))
    assert (tmp_path / "out/model.bin").read_bytes() == (output / "model.bin").read_bytes()
    translator = ctranslate2.Translator(converted)
    (found,) = translator.translate_batch([["a", "b", "</s>"]], beam_size=1, max_decoding_length=20)
    assert found.hypotheses[0]


def test_tokens_without_a_row_of_the_model_are_refused(tmp_path):
    run, *_ = save(tmp_path, vocab_size=BYTES - 1)
    with pytest.raises(ValueError, match=f"has id {BYTES - 1}; the model has {BYTES - 1} emb"):
        export_ctranslate2(run, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(("name", "value"), [("repetition_penalty", 1.3), ("eos_token_id", [2, 5])])
def test_search_settings_that_the_engine_lacks_are_refused(tmp_path, name, value):
    run, *_ = save(tmp_path)
    path = run / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    with pytest.raises(ValueError, match=rf"cannot represent this model's {name}="):
        export_ctranslate2(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_vocabulary_has_a_distinct_token_for_every_row():
    tokenizer = byte_tokenizer()
    tokens = vocabulary(tokenizer, len(tokenizer) + 3)
    assert tokens[: len(tokenizer)] == tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    assert len(set(tokens)) == len(tokenizer) + 3


@pytest.mark.parametrize(
    ("norm_first", "reason"),
    [(False, "expected a vocabulary of size"), (True, "no attribute 'normalize_before'")],
)
def test_the_engines_own_converter_cannot_read_the_stock_classes(tmp_path, norm_first, reason):
    """It drops Marian's last row, and takes Pegasus' config for BART's: pages say so."""
    run, *_ = save(tmp_path, norm_first=norm_first)
    stock = export_stock(run, tmp_path / "stock")
    with pytest.raises((ValueError, AttributeError), match=reason):
        TransformersConverter(str(stock)).convert(str(tmp_path / "converted"))
    assert export_ctranslate2(run, tmp_path / "ours")
