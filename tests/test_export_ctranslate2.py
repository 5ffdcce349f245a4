"""The export to CTranslate2, with CTranslate2 itself: pip install '.[export]'."""

import copy

import pytest
import torch
from test_engines import VOCAB_SIZE, batch_of, save, sequences
from test_export_marian import make_tokenizer
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

ctranslate2 = pytest.importorskip("ctranslate2", reason="comes with the extra export")

# Behind the checks above: these import what may be missing, and then the file is skipped.
from ctranslate2.converters import TransformersConverter  # noqa: E402

from vanilla_transformer.convert.engines import CTranslate2Engine  # noqa: E402
from vanilla_transformer.convert.exporters import ctranslate2 as exporter  # noqa: E402
from vanilla_transformer.convert.exporters.ctranslate2 import (  # noqa: E402
    VanillaTransformerLoader,
    export_ctranslate2,
    vocabulary,
)
from vanilla_transformer.target_tokenizer import hold_target_tokenizer, target_tokenizer  # noqa: E402

VARIANTS = {
    "paper": {},
    "untied": {"tie_word_embeddings": False},
    "norm_first": {"norm_first": True},
    "learned": {"position_encoding": "learned"},
    "tensor2tensor": {"position_encoding": "tensor2tensor"},
    "epsilon": {"layer_norm_eps": 1e-2},
    "narrow_keys": {"d_k": 5},
    "wide_keys": {"d_k": 11, "d_v": 7, "encoder_attention_heads": 2},
    "spare_rows": {"vocab_size": VOCAB_SIZE + 4},
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
    """Lists of ids up to the end symbol; what fills a row after it is each search's own affair."""
    return [row[: row.index(2) + 1] if 2 in row else row for row in rows.tolist()]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The paper's variant: run directory, model, tokenizer, and its export in float32."""
    folder = tmp_path_factory.mktemp("ctranslate2")
    run, model, tokenizer = save(folder, teach=True)
    return run, model, tokenizer, export_ctranslate2(run, folder / "float32")


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_scores_and_translates_alike(tmp_path, variant):
    run, model, _ = save(tmp_path, **VARIANTS[variant])
    engine = CTranslate2Engine(export_ctranslate2(run, tmp_path / "out"))
    source, mask, target = batch_of(model)
    expected = log_probabilities(model, source, mask, target)
    found = engine.score_ids(source, mask, target)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    ours = model.generate(source, attention_mask=mask, num_beams=1, max_new_tokens=20)
    theirs = engine.generate(source, mask, num_beams=1, max_new_tokens=20)
    assert torch.equal(theirs, ours)


def test_greedy_search_gives_the_same_tokens(exported):
    _, model, _, output = exported
    source, mask = sequences(100)
    ours = model.generate(source, attention_mask=mask, num_beams=1, max_new_tokens=20)
    theirs = CTranslate2Engine(output).generate(source, mask, num_beams=1, max_new_tokens=20)
    assert torch.equal(theirs, ours)
    assert ours.unique().numel() > 30
    assert len(set((ours != 0).sum(1).tolist())) > 1


def test_beam_search_without_length_penalty_finds_the_same(exported):
    _, model, _, output = exported
    engine = CTranslate2Engine(output)
    # CTranslate2 divides by the probability of the tokens that may be produced; we do not.
    model = copy.deepcopy(model)
    model.generation_config.suppress_tokens = None
    engine.generation_config.suppress_tokens = None
    source, mask = sequences(100)
    settings = {"num_beams": 4, "length_penalty": 0.0, "max_new_tokens": 12}
    ours = model.generate(source, attention_mask=mask, **settings)
    theirs = engine.generate(source, mask, **settings)
    greedy = model.generate(source, attention_mask=mask, num_beams=1, max_new_tokens=12)
    assert until_end(theirs) == until_end(ours)
    assert until_end(greedy) != until_end(ours)  # beams made a difference


def test_hypotheses_come_in_the_order_of_their_scores(exported):
    _, model, _, output = exported
    source, mask = sequences(4)
    found = CTranslate2Engine(output).generate(
        source, mask, num_beams=3, num_return_sequences=3, length_penalty=0.0, max_new_tokens=7
    )
    found = found.view(4, 3, -1)
    for row in range(4):
        target = found[row]
        scores = log_probabilities(
            model, source[row].expand(3, -1), mask[row].expand(3, -1), target
        )
        ended = (target[:, :-1] == model.config.eos_token_id).cummax(1).values
        sums = scores.masked_fill(ended, 0.0).sum(1)
        assert (sums.diff() <= 1e-2).all()


@pytest.mark.parametrize("quantization", ["bfloat16", "int8", "int8_float32"])
def test_quantized_exports_are_smaller_and_close(exported, tmp_path, quantization):
    run, model, _, reference = exported
    output = export_ctranslate2(run, tmp_path / "out", quantization=quantization)
    size, whole = ((folder / "model.bin").stat().st_size for folder in (output, reference))
    assert size < 0.75 * whole
    source, mask = sequences()
    target = model.generate(source, attention_mask=mask, num_beams=1, max_new_tokens=5)
    expected = log_probabilities(model, source, mask, target)
    # In float32, what is lost is the digits of weights alone: sums of int8 overflow 16 bits on
    # processors without VNNI, which is oneDNN's doing and none of the export's.
    found = CTranslate2Engine(output, compute_type="float32").score_ids(source, mask, target)
    lost = (found - expected).abs().mean()
    assert 1e-6 < lost < 0.1
    if quantization != "bfloat16":
        rounded = log_probabilities(rounded_to_int8(model), source, mask, target)
        torch.testing.assert_close(found, rounded, atol=1e-4, rtol=0)


def rounded_to_int8(model):
    """The model with every row of a matrix as multiples of a 127th of its largest number."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2:
                scale = 127 / weight.abs().amax(1, keepdim=True)
                weight.copy_((weight * scale).round() / scale)
                assert weight.isfinite().all(), name
    return model


def test_a_target_with_its_own_tokenizer(tmp_path):
    run, model, tokenizer = save(
        tmp_path, decoder_vocab_size=30, share_encoder_decoder_embeddings=False
    )
    output = export_ctranslate2(run, tmp_path / "without")
    assert CTranslate2Engine(output).target_tokens[4] == "<target 4>"
    words = {name: i for i, name in enumerate(["<pad>", "<s>", "</s>", "<unk>", "mot", "le"])}
    own = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, "<unk>")))
    hold_target_tokenizer(tokenizer, own)
    tokenizer.save_pretrained(run)
    output = export_ctranslate2(run, tmp_path / "out")
    source, mask, target = batch_of(model)
    engine = CTranslate2Engine(output)
    expected = log_probabilities(model, source, mask, target % 30)
    found = engine.score_ids(source, mask, target % 30)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    assert engine.target_tokens[4] == "mot"
    assert target_tokenizer(AutoTokenizer.from_pretrained(output)).get_vocab() == words


@pytest.mark.parametrize("quantization", ["float32", "bfloat16", "int8"])
def test_conversion_leaves_the_model_alone(exported, quantization):
    """The converter scales what it quantizes in place: it must not be the model's own memory."""
    _, model, tokenizer, _ = exported
    before = {key: value.clone() for key, value in model.state_dict().items()}
    spec = VanillaTransformerLoader()(model, tokenizer)
    spec.validate()
    spec.optimize(quantization=quantization)
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]), key


def test_the_converter_of_ctranslate2_knows_the_model(exported, tmp_path):
    run, *_, output = exported
    converted = TransformersConverter(str(run)).convert(str(tmp_path / "out"))
    assert (tmp_path / "out/model.bin").read_bytes() == (output / "model.bin").read_bytes()
    translator = ctranslate2.Translator(converted)
    (result,) = translator.translate_batch(
        [["a", "b", "</s>"]], beam_size=1, max_decoding_length=20
    )
    assert result.hypotheses[0]


def test_export_reads_the_run_and_writes_nothing_to_it(tmp_path):
    run, *_ = save(tmp_path)
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    output = export_ctranslate2(run, tmp_path / "out", quantization="int8")
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    assert {path.name for path in output.iterdir()} == {
        *("model.bin", "config.json", "shared_vocabulary.json", "generation_config.json"),
        *("tokenizer.json", "tokenizer_config.json"),
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]


def test_an_export_that_differs_is_not_left_behind(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(exporter, "position_table", lambda stack: torch.zeros(50, 24))
    with pytest.raises(ValueError, match="differs from the model by up to"):
        export_ctranslate2(exported[0], tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"eos_token_id": [2, 5]}, r"eos_token_id=\[2, 5\]; allowed one id"),
        ({"vocab_size": VOCAB_SIZE - 1}, f"has id {VOCAB_SIZE - 1} .* ends at {VOCAB_SIZE - 2}"),
    ],
)
def test_what_cannot_be_held_is_refused_by_name(tmp_path, overrides, message):
    run, *_ = save(tmp_path, **overrides)
    with pytest.raises(ValueError, match=message):
        export_ctranslate2(run, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_unknown_quantization_is_refused(exported, tmp_path):
    with pytest.raises(ValueError, match="quantization='int4'; allowed are float32, bfloat16"):
        export_ctranslate2(exported[0], tmp_path / "out", quantization="int4")


def test_adapters_are_refused(exported):
    _, model, tokenizer, _ = exported
    model = copy.deepcopy(model)
    model.model.encoder.layers[0].self_attn.q_proj.lora_A = torch.nn.Linear(24, 2, bias=False)
    with pytest.raises(ValueError, match=r"lora_A.*merge adapters"):
        VanillaTransformerLoader()(model, tokenizer)


def test_vocabulary_has_a_token_for_every_row():
    tokenizer = make_tokenizer()
    tokens = vocabulary(tokenizer, len(tokenizer) + 3)
    assert tokens[: len(tokenizer)] == tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    assert len(set(tokens)) == len(tokenizer) + 3
