import pytest
import torch
from tiny_exports import make_batch, make_model, save
from transformers import MarianMTModel, PegasusForConditionalGeneration

from vanilla_transformer.convert.exporters.stock import export_stock, to_stock
from vanilla_transformer.convert.verification import check_equal

TWO = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 70}
SWISH = {"activation_function": "swish", "lm_head_bias": True}
DIALECTS = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "two vocabularies": TWO,
    "untied vocabularies": {**TWO, "tie_word_embeddings": False},
    "swish and a bias": SWISH,
    "norms first": {"norm_first": True},
    "norms first, swish and a bias": {**SWISH, "norm_first": True},
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_export_computes_the_same_logits_with_the_same_ties_and_dtype(dialect):
    model = make_model(**DIALECTS[dialect])
    stock = to_stock(model)
    kinds = {False: MarianMTModel, True: PegasusForConditionalGeneration}
    assert type(stock) is kinds[model.config.norm_first]
    is_tied = stock.lm_head.weight is stock.model.decoder.embed_tokens.weight
    assert is_tied == model.config.tie_word_embeddings
    source, mask, target = make_batch()
    with torch.no_grad():
        ours = model(source, mask, target, output_hidden_states=True)
        theirs = stock(source, mask, target, output_hidden_states=True)
    torch.testing.assert_close(theirs.logits, ours.logits, atol=1e-5, rtol=0)
    columns = [n for first in (0, 1) for n in range(first, model.config.d_model, 2)]
    for our, their in zip(ours.decoder_hidden_states, theirs.decoder_hidden_states, strict=True):
        torch.testing.assert_close(their, our[..., columns], atol=1e-5, rtol=0)
    assert to_stock(model.bfloat16()).dtype == torch.bfloat16


def test_export_does_not_change_model_or_random_state():
    model = make_model().train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    random_state = torch.get_rng_state()
    marian = to_stock(model)
    assert torch.equal(torch.get_rng_state(), random_state)
    with torch.no_grad():
        for parameter in marian.parameters():
            parameter.fill_(7.0)
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
    assert model.training


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ({"position_encoding": "learned"}, ["position_encoding='learned'"]),
        ({"final_norm": True}, ["final_norm=True"]),
        ({"layer_norm_eps": 1e-6}, ["layer_norm_eps=1e-06"]),
        ({"d_k": 5}, ["d_k=5", "encoder heads", "decoder heads"]),
        ({"d_k": 8, "d_v": 8}, ["d_k=8", "decoder heads"]),
        ({"position_offset": 2, "layer_norm_eps": 1e-6}, ["position_offset=2", "layer_norm_eps"]),
        ({"norm_first": True, "tie_word_embeddings": False}, ["tie_word_embeddings=False"]),
        (
            {"norm_first": True, **TWO},
            ["share_encoder_decoder_embeddings=False", "decoder_vocab_size=70"],
        ),
    ],
)
def test_settings_that_stock_classes_lack_are_refused_by_name(overrides, named):
    model = make_model(**overrides)
    kind = "PegasusForConditionalGeneration" if "norm_first" in overrides else "MarianMTModel"
    with pytest.raises(ValueError, match=f"{kind} cannot represent this model") as error:
        to_stock(model)
    for name in named:
        assert name in str(error.value)


def test_foreign_tensors_are_refused():
    model = make_model()
    model.model.encoder.layers[0].self_attn.q_proj.lora_A = torch.nn.Linear(24, 2, bias=False)
    with pytest.raises(ValueError, match=r"lora_A.*merge adapters"):
        to_stock(model)
    model = make_model()
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone() + 1)
    with pytest.raises(ValueError, match=r"lm_head\.weight"):
        to_stock(model)


def test_export_that_reads_the_padding_of_sources_is_refused(tmp_path, monkeypatch):
    forward = MarianMTModel.forward
    monkeypatch.setattr(
        MarianMTModel, "forward", lambda self, attention_mask, **inputs: forward(self, **inputs)
    )
    with pytest.raises(ValueError, match="log-probabilities are off by"):
        export_stock(save(tmp_path)[0], tmp_path / "stock")


def test_nan_differences_fail_the_export_check():
    assert check_equal(torch.tensor([5e-5, -1e-4]), name="X") == pytest.approx(1e-4)
    with pytest.raises(ValueError, match="X export: log-probabilities are off by"):
        check_equal(torch.tensor([0.0, torch.nan]), name="X")
