"""Same weights, same numbers: against MarianMTModel and the paper's equations."""

from itertools import chain

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from marian_tensors import from_marian_tensors
from reference import ACTIVATIONS, forward, label_smoothed_loss
from tiny_models import tiny_config
from torch import nn
from written_out import perturb

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.convert.exporters.stock import to_stock
from vanilla_transformer.convert.marian_names import tensor_names

VOCAB_SIZE = 50


def make_model(*, attention="sdpa", seed=0, **overrides):
    """Return a model whose encoder and decoder differ in every field that may differ."""
    fields = {
        **{"vocab_size": VOCAB_SIZE, "d_model": 24, "encoder_layers": 3, "decoder_layers": 2},
        **{"decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 28},
        **{"dropout": 0.0, "max_position_embeddings": 64, "attention": attention},
    }
    torch.manual_seed(seed)
    return perturb(VanillaTransformerForConditionalGeneration(tiny_config(**fields | overrides)))


def make_batch(*, padded=True, seed=1):
    """Return source, its mask, target and labels; rows differ in length if padded."""
    torch.manual_seed(seed)
    source, labels = torch.randint(4, VOCAB_SIZE, (3, 9)), torch.randint(4, VOCAB_SIZE, (3, 7))
    mask = torch.ones_like(source)
    if padded:
        for row, (source_length, target_length) in enumerate(((9, 4), (5, 7), (2, 6))):
            source[row, source_length:] = 0
            mask[row, source_length:] = 0
            labels[row, target_length:] = -100
    target = nn.functional.pad(labels[:, :-1], (1, 0), value=1)
    return source, mask, target.masked_fill(target == -100, 0), labels


def assert_close(actual, expected, tolerance=1e-5):
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)


# ------------------------------------------------------------------------------- MarianMTModel


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_logits_and_loss_equal_marian(attention, padded):
    model = make_model(attention=attention)
    marian = to_stock(model)
    marian.set_attn_implementation(attention)
    source, mask, target, labels = make_batch(padded=padded)
    ours = model(source, mask, labels=labels)
    theirs = marian(source, mask, labels=labels)
    assert_close(ours.logits, theirs.logits)
    assert_close(ours.loss, theirs.loss)
    assert_close(model(source, mask, target).logits, theirs.logits)


def test_gradients_equal_marian():
    model = make_model(label_smoothing=0.0).train()
    marian = to_stock(model).train()
    source, mask, _, labels = make_batch()
    model(source, mask, labels=labels).loss.backward()
    marian(source, mask, labels=labels).loss.backward()
    gradients = {key: it.grad for key, it in marian.named_parameters() if it.grad is not None}
    theirs = from_marian_tensors(gradients, model.config)
    ours = dict(model.named_parameters())
    assert theirs.keys() == tensor_names(model.config).keys() == ours.keys()
    for key, gradient in theirs.items():
        assert_close(ours[key].grad, gradient)


@pytest.mark.parametrize(
    "search",
    [{}, {"num_beams": 4}, {"num_beams": 4, "length_penalty": 2.0}, {"do_sample": True}],
    ids=str,
)
@pytest.mark.parametrize("norm_first", [False, True])
def test_generate_equals_the_stock_classes(search, norm_first):
    model = make_model(norm_first=norm_first)
    source, mask, _, _ = make_batch()
    search = {"num_beams": 1, "max_new_tokens": 20, "no_repeat_ngram_size": 2, **search}
    found = []
    for translator in (model, to_stock(model)):
        torch.manual_seed(2)
        found.append(translator.generate(source, attention_mask=mask, **search))
    assert torch.equal(*found)
    assert found[0].unique().numel() > 6  # otherwise the outputs would be one repeated token


# ---------------------------------------------- the paper's equations, for random configurations


@st.composite
def configurations(draw):
    """Draw the fields of a small model, all those that change the computation."""
    rates, heads = st.sampled_from([0.0, 0.5]), st.integers(1, 3)
    position_encoding = draw(st.sampled_from(["sinusoidal", "tensor2tensor", "learned"]))
    own_vocabularies = draw(st.booleans())
    widths = st.none() | st.integers(1, 5)
    return {
        "vocab_size": 12,
        "decoder_vocab_size": draw(st.sampled_from([12, 15])) if own_vocabularies else None,
        "share_encoder_decoder_embeddings": not own_vocabularies,
        "tie_word_embeddings": draw(st.booleans()),
        "d_model": draw(st.sampled_from([6, 12])),
        "d_k": draw(widths),
        "d_v": draw(widths),
        "encoder_layers": draw(st.integers(1, 2)),
        "decoder_layers": draw(st.integers(1, 2)),
        "encoder_attention_heads": draw(heads),
        "decoder_attention_heads": draw(heads),
        "encoder_ffn_dim": draw(st.integers(1, 8)),
        "decoder_ffn_dim": draw(st.integers(1, 8)),
        "activation_function": draw(st.sampled_from(sorted(ACTIVATIONS))),
        "position_encoding": position_encoding,
        "position_offset": draw(st.sampled_from([0, 2])),
        "max_position_embeddings": 6,
        "norm_first": draw(st.booleans()),
        "final_norm": draw(st.booleans()),
        "layer_norm_eps": draw(st.sampled_from([1e-6, 1e-5, 1e-2])),
        "lm_head_bias": draw(st.booleans()),
        "label_smoothing": draw(st.sampled_from([0.0, 0.1, 0.3])),
        "dropout": draw(rates),
        "attention_dropout": draw(rates),
        "activation_dropout": draw(rates),
    }


ids = st.lists(st.integers(4, 11), min_size=1, max_size=6)
batches = st.lists(st.tuples(ids, ids), min_size=1, max_size=3)
sides = st.sampled_from(["left", "right"])
implementations = st.sampled_from(["eager", "sdpa"])


def padded(rows, side, value=0):
    """Return ids and mask, (B, longest)."""
    longest = max(map(len, rows))
    filled = [[value] * (longest - len(row)) for row in rows]
    by_side = zip(filled, rows, strict=True) if side == "left" else zip(rows, filled, strict=True)
    tensor = torch.tensor([[*first, *second] for first, second in by_side])
    return tensor, (tensor != value).long()


def random_model(fields, attention):
    """Return a float64 model whose biases and norms differ from zeros and ones."""
    torch.manual_seed(0)
    model = VanillaTransformerForConditionalGeneration(VanillaTransformerConfig(**fields))
    model.set_attn_implementation(attention)
    return perturb(model).double()


def losses_of(logits, labels, epsilon):
    """Return the mean loss over all labels of a batch."""
    return label_smoothed_loss(torch.cat(logits), list(chain(*labels)), epsilon)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(configurations(), batches, implementations, sides, sides)
def test_model_matches_the_equations_of_the_paper(fields, pairs, attention, side, target_side):
    """For any configuration, attention implementation, padding and rest of the batch."""
    model = random_model(fields, attention).eval()
    weights, config = model.state_dict(), model.config
    sources, labels = (list(rows) for rows in zip(*pairs, strict=True))
    targets = [[config.decoder_start_token_id, *row[:-1]] for row in labels]
    expected = [
        forward(weights, config, torch.tensor(source), torch.tensor(target))
        for source, target in zip(sources, targets, strict=True)
    ]
    input_ids, mask = padded(sources, side)
    decoder_input_ids, target_mask = padded(targets, target_side)
    with torch.no_grad():
        logits = model(
            input_ids, mask, decoder_input_ids, decoder_attention_mask=target_mask
        ).logits
        outputs = model(input_ids, mask, labels=padded(labels, "right", -100)[0])
    for found, real, one in zip(logits, target_mask.bool(), expected, strict=True):
        assert_close(found[real], one, 1e-10)
    for found, one in zip(outputs.logits, expected, strict=True):
        assert_close(found[: len(one)], one, 1e-10)
    assert_close(outputs.loss, losses_of(expected, labels, 0.0), 1e-10)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(configurations(), batches, implementations, st.booleans())
def test_gradients_match_those_of_the_equations(fields, pairs, attention, return_logits):
    """In training mode, with the loss computed from the logits or in chunks without them."""
    rates = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.0)
    model = random_model({**fields, **rates}, attention).train()
    sources, labels = (list(rows) for rows in zip(*pairs, strict=True))
    weights = {key: p.detach().clone().requires_grad_() for key, p in model.named_parameters()}
    logits = [
        forward(weights, model.config, torch.tensor(source), torch.tensor([1, *label[:-1]]))
        for source, label in pairs
    ]
    expected = losses_of(logits, labels, model.config.label_smoothing)
    expected.backward()
    input_ids, mask = padded(sources, "right")
    outputs = model(
        input_ids, mask, labels=padded(labels, "right", -100)[0], return_logits=return_logits
    )
    assert (outputs.logits is not None) == (return_logits or fields["lm_head_bias"])
    assert_close(outputs.loss, expected, 1e-10)
    outputs.loss.backward()
    for key, parameter in model.named_parameters():
        assert_close(parameter.grad, weights[key].grad, 1e-10)
