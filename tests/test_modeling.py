"""The model within transformers: attention, caches, generation, formats, and bad input.

test_paper.py tests what the model computes; these tests check that every way gives the same.
"""

import copy
import functools
import logging
import math

import pytest
import torch
import transformers
from tiny_models import tiny_config, word_level
from transformers import (
    AutoModel,
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    DynamicCache,
    EncoderDecoderCache,
    GenerationConfig,
    StaticCache,
)

from vanilla_transformer import VanillaTransformerForConditionalGeneration, VanillaTransformerModel
from vanilla_transformer.beam_search import beam_search
from vanilla_transformer.errors import RequestError
from vanilla_transformer.fast import is_unmodified
from vanilla_transformer.generation_limits import CACHE
from vanilla_transformer.modeling_vanilla_transformer import MultiHeadAttention, sinusoids

VARIANTS = {
    "paper": {},
    "other widths": {"d_k": 3, "d_v": 5},
    "learned positions": {"position_encoding": "learned"},
    "authors' positions": {"position_encoding": "tensor2tensor"},
    "norm first": {"norm_first": True},
    "untied softmax": {"tie_word_embeddings": False},
    "three tables": {"tie_word_embeddings": False, "share_encoder_decoder_embeddings": False},
    "other systems": {
        **{"decoder_vocab_size": 33, "share_encoder_decoder_embeddings": False},
        **{"final_norm": True, "position_offset": 2, "position_encoding": "tensor2tensor"},
        **{"activation_function": "gelu", "lm_head_bias": True},
    },
    "uneven stacks": {"decoder_layers": 1, "decoder_attention_heads": 2, "encoder_ffn_dim": 20},
}
variants = pytest.mark.parametrize("variant", VARIANTS)
implementations = pytest.mark.parametrize("attention", ["eager", "sdpa"])
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)


def tiny_model(model_class=VanillaTransformerForConditionalGeneration, **overrides):
    torch.manual_seed(0)
    fields = {
        **{"encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 30},
        **{"encoder_attention_heads": 4, "decoder_attention_heads": 4, "dropout": 0.0},
    }
    config = tiny_config(31, **{**fields, "attention": "eager", **overrides})
    model = model_class(config).eval()
    with torch.no_grad():  # avoid uniform attention and outputs that repeat the input
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) / 4)
            elif parameter.size(0) != config.vocab_size:
                parameter.mul_(2)
    return model


def batch(*, rows=3, target_length=5, padded=True):
    """Return sources of different lengths, padded on the right, and targets."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, 31, (rows, 7), generator=generator)
    lengths = torch.tensor([7, 4, 2][:rows] if padded else [7] * rows)
    mask = (torch.arange(7) < lengths[:, None]).long()
    target = torch.randint(4, 31, (rows, target_length), generator=generator)
    target[:, 0] = 1
    return {"input_ids": ids * mask, "attention_mask": mask, "decoder_input_ids": target}


def training_batch():
    inputs = batch()
    labels = inputs.pop("decoder_input_ids")
    return {**inputs, "labels": labels.masked_fill(labels == 1, 2)}


def assert_close(actual, expected, tolerance=1e-5):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


# --------------------------------------------------------------------------------------- attention


@pytest.mark.parametrize("variant", ["paper", "other widths"])
def test_flex_attention_equals_eager(variant):
    model = tiny_model(**VARIANTS[variant])
    eager = model(**batch()).logits
    model.set_attn_implementation("flex_attention")
    # Run eagerly, since compiling it takes minutes.
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        assert_close(model(**batch()).logits, eager)


def test_flash_attention_is_refused():
    """transformers leaves out queries of cross-attention where the source's mask has padding.

    Its `_upad_input` has one mask for queries and keys, so a padded source changed the logits.
    """
    with pytest.raises(ValueError, match="does not support Flash Attention 2"):
        tiny_model().set_attn_implementation("flash_attention_2")


@variants
def test_attentions_and_hidden_states(variant):
    model = tiny_model(**VARIANTS[variant])
    config = model.config
    out = model(**batch(), output_attentions=True, output_hidden_states=True)
    encoder_heads, decoder_heads = config.encoder_attention_heads, config.decoder_attention_heads
    for weights, layers, shape in (
        (out.encoder_attentions, config.encoder_layers, (3, encoder_heads, 7, 7)),
        (out.decoder_attentions, config.decoder_layers, (3, decoder_heads, 5, 5)),
        (out.cross_attentions, config.decoder_layers, (3, decoder_heads, 5, 7)),
    ):
        assert [tuple(layer.shape) for layer in weights] == [shape] * layers
        earlier, real = torch.ones(5, 5).tril(), batch()["attention_mask"][:, None, None]
        seen = (earlier if weights is out.decoder_attentions else real).bool()
        for layer in weights:
            assert_close(layer.sum(-1), torch.ones(shape[:-1]))
            assert torch.equal(layer > 0, seen.expand(shape))
            assert (layer >= 0).all()
    for states, layers, length in (
        (out.encoder_hidden_states, config.encoder_layers, 7),
        (out.decoder_hidden_states, config.decoder_layers, 5),
    ):
        assert [tuple(layer.shape) for layer in states] == [(3, length, 16)] * (layers + 1)
    assert torch.equal(out.encoder_hidden_states[-1], out.encoder_last_hidden_state)
    plain = model(**batch())
    assert plain.encoder_attentions is plain.decoder_hidden_states is plain.cross_attentions is None
    assert torch.equal(model(**batch(), return_dict=False)[0], plain.logits)
    model.set_attn_implementation("sdpa")  # does not return weights
    assert model(**batch()).cross_attentions is None


# ------------------------------------------------------------------------------ caches, generation


@variants
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_cached_decoding_equals_full_decoding(variant, cache):
    model = tiny_model(**VARIANTS[variant])
    inputs = batch()
    target = inputs.pop("decoder_input_ids")
    full = model(**inputs, decoder_input_ids=target).logits
    past = None
    if cache == "static":
        past = EncoderDecoderCache(
            StaticCache(config=model.config, max_cache_len=9),
            StaticCache(config=model.config, max_cache_len=7),
        )
    encoded = model.get_encoder()(**inputs)
    given = {"encoder_outputs": encoded, "attention_mask": inputs["attention_mask"]}
    for start, end in ((0, 2), (2, 3), (3, 5)):
        ids = target[:, start:end]
        step = model(**given, decoder_input_ids=ids, past_key_values=past, use_cache=True)
        past = step.past_key_values
        assert_close(step.logits, full[:, start:end])
    assert past.get_seq_length() == 5


@pytest.fixture(scope="module")
def translator(everyday):
    """Return a trained model, whose translations end and differ, and sources."""
    sentences = everyday.sentences[::6]
    return everyday.model, everyday.tokenizer(sentences, padding=True, return_tensors="pt")


def translations(ids):
    """Return the tokens between the start and the end of each row."""
    return [[*row[1:].tolist(), 2][: [*row[1:].tolist(), 2].index(2)] for row in ids]


@pytest.mark.parametrize("num_beams", [1, 4])
def test_generated_translations_end_and_differ(translator, num_beams):
    """Otherwise the other tests of generation would prove little."""
    model, inputs = translator
    found = model.generate(**inputs, num_beams=num_beams)
    assert found.eq(2).any(1).all()
    assert len({len(row) for row in translations(found)}) > 3
    assert len(found.unique(dim=0)) > 14


WAYS = {
    "without a cache": {"use_cache": False},
    "static cache": {"cache_implementation": "static"},
    "scores kept": {"return_dict_in_generate": True, "output_scores": True},
}


@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("way", WAYS)
def test_ways_to_generate_give_the_same(translator, num_beams, way):
    model, inputs = translator
    expected = model.generate(**inputs, num_beams=num_beams)
    found = model.generate(**inputs, num_beams=num_beams, **WAYS[way])
    assert torch.equal(getattr(found, "sequences", found), expected)


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
@pytest.mark.parametrize("part", ["whole", "model"])
def test_a_cache_may_have_either_name(name, part):
    model = tiny_model()
    model = model if part == "whole" else model.model
    inputs = batch()
    target = inputs.pop("decoder_input_ids")
    first = model(**inputs, decoder_input_ids=target[:, :3], use_cache=True)
    assert first.get(CACHE).get_seq_length() == 3
    second = model(**inputs, decoder_input_ids=target[:, 3:], **{name: first.get(CACHE)})
    full = model(**inputs, decoder_input_ids=target)
    assert_close(second[0], full[0][:, 3:])


def test_of_two_caches_the_filled_one_counts():
    model, inputs = tiny_model(), batch()
    target = inputs.pop("decoder_input_ids")
    full = model(**inputs, decoder_input_ids=target).logits

    def cached(length):
        made = EncoderDecoderCache(DynamicCache(), DynamicCache())
        if length:
            model(**inputs, decoder_input_ids=target[:, :length], cache=made)
        return made

    for lengths in ((4, 0), (0, 4), (4, 2)):  # the last as PEFT gives its prompt at every token
        caches = dict(zip(("cache", "past_key_values"), map(cached, lengths), strict=True))
        step = model(**inputs, decoder_input_ids=target[:, 4:], **caches, use_cache=True)
        assert_close(step.logits, full[:, 4:])
        assert step.get(CACHE).get_seq_length() == 5


def test_generation_continues_from_a_cache(translator):
    model, inputs = translator
    # Without the end symbol, no translation ends before it is continued.
    options = {"num_beams": 1, "suppress_tokens": [0, 1, 2, 3], "return_dict_in_generate": True}
    start = model.generate(**inputs, **options, max_new_tokens=2)
    kept = {"decoder_input_ids": start.sequences, "past_key_values": start.past_key_values}
    mask = torch.ones_like(start.sequences)
    whole = model.generate(**inputs, **options, max_new_tokens=4).sequences
    for given in ({}, {"decoder_attention_mask": mask}):
        again = {**copy.deepcopy(kept), **given}
        found = model.generate(**inputs, **again, **options, max_new_tokens=2).sequences
        assert torch.equal(found, whole)


@pytest.mark.parametrize("num_beams", [1, 4])
def test_generation_accepts_encoder_outputs_and_embeddings(translator, num_beams):
    model, inputs = translator
    expected = model.generate(**inputs, num_beams=num_beams)
    options = {"attention_mask": inputs["attention_mask"], "num_beams": num_beams}
    encoded = model.get_encoder()(**inputs)
    assert torch.equal(model.generate(encoder_outputs=encoded, **options), expected)
    embeds = model.get_input_embeddings()(inputs["input_ids"])
    assert torch.equal(model.generate(inputs_embeds=embeds, **options), expected)


def test_generate_without_arguments_gives_whole_translations():
    """Not cut at transformers' default of 20 tokens, and without <pad>, <s> and <unk>."""
    model = tiny_model()
    options = {"return_dict_in_generate": True, "output_scores": True}
    out = model.generate(batch()["input_ids"], eos_token_id=30, **options)  # </s> never comes
    assert out.scores[0].shape == (3, 31)  # greedy
    for scores in out.scores:
        assert scores[:, [0, 1, 3]].eq(-torch.inf).all()
    assert out.sequences.size(1) == 1 + 30  # max_position_embeddings
    assert not torch.isin(out.sequences[:, 1:], torch.tensor([0, 1, 3])).any()


def test_generated_length_is_limited_by_default_to_source_plus_50():
    """Section 6.1; with </s> suppressed, only the bound ends a translation."""
    model = tiny_model(max_position_embeddings=120)
    never, ids = {"suppress_tokens": [0, 1, 2, 3]}, batch()["input_ids"]
    length = ids.size(1)
    for bound, size in (
        ({}, 1 + length + 50),
        ({"num_beams": 2}, 1 + length + 50),
        ({"max_length": 9}, 9),
        ({"generation_config": GenerationConfig(max_length=9)}, 9),
        ({"max_length": 90}, 90),
        ({"max_new_tokens": 80}, 1 + 80),
        ({"max_new_tokens": 120}, 1 + 120),  # the default, but given
        ({"max_new_tokens": 9, "max_length": 5}, 1 + 9),  # as in transformers
        ({"min_new_tokens": 70}, 1 + 70),
        ({"min_length": 70}, 1 + 70),
        ({"max_new_tokens": None}, 1 + length + 50),  # not the host's 20
        ({"generation_config": GenerationConfig(max_new_tokens=80)}, 1 + 80),
    ):
        assert model.generate(ids, **never, **bound).size(1) == size, bound
    encoded = model.get_encoder()(ids)
    assert model.generate(encoder_outputs=encoded, **never).size(1) == 1 + length + 50
    model.generation_config.max_new_tokens = 7
    assert model.generate(ids, **never).size(1) == 1 + 7
    assert model.generate(ids, **never, max_length=30).size(1) == 30
    assert model.generation_config.max_new_tokens == 7
    # Seq2SeqTrainer fills the host's defaults into the model's config.
    model.generation_config.max_new_tokens = None
    filled_in = GenerationConfig._get_default_generation_params()
    model.generation_config.update(**filled_in, defaults_only=True)
    assert model.generation_config.max_length == 20
    assert model.generate(ids, **never).size(1) == 1 + length + 50
    assert model.generate(ids, **never, max_length=9).size(1) == 9
    copied = copy.deepcopy(model.generation_config)
    assert model.generate(ids, **never, generation_config=copied).size(1) == 1 + length + 50
    model.generation_config = GenerationConfig.from_model_config(model.config)
    for max_length in (20, 90):  # set alone, it counts
        model.generation_config.max_length = max_length
        assert model.generate(ids, **never).size(1) == max_length


# ------------------------------------------------------------------------------- labels with gaps


def with_gaps(labels, places, width):
    """Return the labels of each row at its places in order, (B, width), and -100 elsewhere."""
    found = labels.new_full((len(labels), width), -100)
    for row, (ids, columns) in enumerate(zip(labels.tolist(), places, strict=True)):
        ids = [number for number in ids if number != -100]
        found[row, columns[: len(ids)]] = torch.tensor(ids)
    return found


GAPS = {
    "left": [[3, 4, 5, 6, 7], [5, 6, 7], [7]],
    "right": [[0, 1, 2, 3, 4], [0, 1, 2], [0]],
    "middle": [[0, 2, 3, 6, 7], [1, 4, 7], [3]],
}


@pytest.mark.parametrize("filler", [-100, 0])
@pytest.mark.parametrize("gaps", GAPS)
def test_ids_and_labels_may_have_32_bits(gaps, filler):
    model = tiny_model(label_smoothing=0.1)
    labels = with_gaps(GOOD["labels"], GAPS[gaps][:2], 8)
    labels[labels == -100] = filler
    inputs = {name: GOOD[name] for name in ("input_ids", "attention_mask")}
    made = model.prepare_decoder_input_ids_from_labels(labels)
    found = []
    for head in ("plain", "hooked"):  # one computes the loss in pieces, the other from the logits
        if head == "hooked":
            model.lm_head.register_forward_hook(lambda *arguments: None)
        for given in ({}, {"decoder_input_ids": made}, {"num_items_in_batch": 9}):
            for mode in (model.train(), model.eval()):
                for dtype in (torch.int32, torch.int64):
                    whole = {**inputs, "labels": labels, **given}
                    for name, ids in whole.items():
                        whole[name] = ids.to(dtype) if torch.is_tensor(ids) else ids
                    mode.zero_grad()
                    loss = mode(**whole).loss
                    loss.backward()
                    found.append([loss, *(p.grad.clone() for p in mode.parameters())])
    for narrow, wide in zip(found[::2], found[1::2], strict=True):
        assert all(map(torch.equal, narrow, wide))


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("gaps", GAPS)
def test_all_that_a_decoder_returns_has_the_order_of_its_ids(gaps, labelled):
    """States, weights and cache at the place of each token are those of the ids without gaps."""
    model = tiny_model(attention="eager")
    inputs = {name: GOOD[name][:1] for name in ("input_ids", "attention_mask")}
    labels, places = torch.tensor([[4, 7, 9, 5, 2]]), GAPS[gaps][0]
    spread = with_gaps(labels, [places], 8)

    def run(ids):
        shifted = model.prepare_decoder_input_ids_from_labels(ids)
        target = {"labels": ids} if labelled else {"decoder_input_ids": shifted}
        return model(**inputs, **target, output_attentions=True, output_hidden_states=True)

    whole, gapped = run(labels), run(spread)
    starts = [n for n in range(8) if spread[0, n] != -100]
    for name in ("decoder_hidden_states", "cross_attentions", "decoder_attentions"):
        for one, other in zip(whole[name], gapped[name], strict=True):
            axis = 1 if name == "decoder_hidden_states" else 2
            other = other.index_select(axis, torch.tensor(starts))
            if name == "decoder_attentions":
                other = other.index_select(3, torch.tensor(starts))
            assert_close(one, other)
    assert_close(model.lm_head(gapped.decoder_hidden_states[-1]), gapped.logits)
    if not labelled:  # the next step, with a mask that hides the gaps
        mask = torch.zeros(1, 9, dtype=torch.long)
        mask[0, [*starts, 8]] = 1
        step = {**inputs, "decoder_input_ids": torch.tensor([[6]])}
        one = model(**step, cache=whole[CACHE])
        other = model(**step, cache=gapped[CACHE], decoder_attention_mask=mask)
        assert_close(one.logits, other.logits)


@pytest.mark.parametrize("filler", [-100, 0])
@pytest.mark.parametrize("multiple", [None, 8])
@pytest.mark.parametrize("collates_with_model", [True, False])
def test_collated_pairs_have_one_loss_on_whichever_side_they_are_padded(
    collates_with_model, multiple, filler
):
    model = tiny_model().train()
    pairs = [{"input_ids": [7, 8, 2], "labels": [9, 2]}, {"input_ids": [5, 2], "labels": [5, 6, 2]}]
    losses, gradients_of = [], []
    for side in ("right", "left"):
        tokenizer = word_level("abcdefghij")
        tokenizer.padding_side = side
        collate = DataCollatorForSeq2Seq(
            tokenizer,
            model=model if collates_with_model else None,
            pad_to_multiple_of=multiple,
            label_pad_token_id=filler,
        )
        batch = collate(copy.deepcopy(pairs))
        assert (batch["labels"][0, 0] == 9) == (side == "right")
        model.zero_grad()
        output = model(**batch, return_logits=True)
        output.loss.backward()
        gradients_of.append([p.grad.clone() for p in model.parameters()])
        gold = batch.pop("labels")
        losses.append(output.loss)
        # Trainer's label_smoothing_factor takes the labels and reads the logits.
        logits = model(**batch).logits if collates_with_model else output.logits
        real = (gold != -100) & (gold != 0)
        losses.append(torch.nn.functional.cross_entropy(logits[real], gold[real]))
    assert_close(torch.stack(losses[:2]), torch.stack(losses[2:]))
    for gradient, expected in zip(*gradients_of, strict=True):
        assert_close(gradient, expected)


@pytest.mark.parametrize("left_out", ["decoder_input_ids", "labels"])
def test_gaps_in_labels_need_no_branch_on_data(left_out):
    model = tiny_model()
    forward = torch.compile(model, backend="eager", fullgraph=True)
    inputs = training_batch()
    inputs["labels"] = inputs["labels"].flip(1)  # padded on the left
    made = model.prepare_decoder_input_ids_from_labels(inputs["labels"])
    inputs = {**inputs, "decoder_input_ids": made}
    del inputs[left_out]
    assert_close(forward(**inputs).logits, model(**inputs).logits)


@pytest.mark.parametrize("shape", [(1, 4), (2, 1), (2, 3)])
def test_a_mask_of_another_shape_is_refused_beside_gaps(shape):
    ids, source = torch.tensor([[1, -100, 6, 7], [1, 5, 6, 7]]), GOOD["input_ids"][:2]
    with pytest.raises(RequestError, match="attention_mask has the shape"):
        tiny_model()(source, decoder_input_ids=ids, decoder_attention_mask=torch.ones(shape))


# --------------------------------------------------------------------------- training, compilation


def gradients(model, **options):
    model.zero_grad()
    torch.manual_seed(0)
    model(**training_batch(), **options).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradient_checkpointing_gives_the_same_gradients(dropout):
    model = tiny_model(dropout=dropout, attention_dropout=dropout).train()
    expected = gradients(model)
    model.gradient_checkpointing_enable()
    assert model.model.encoder.gradient_checkpointing
    assert model.model.decoder.layers[0].gradient_checkpointing
    found = gradients(model)
    assert found.keys() == expected.keys() == dict(model.named_parameters()).keys()
    for name in expected:
        assert_close(found[name], expected[name], 1e-6)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing_takes_no_cache(use_reentrant):
    model, inputs = tiny_model().train(), batch()
    model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    assert model(**inputs, use_cache=True).get(CACHE) is None
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    with pytest.raises(RequestError, match="Got a cache in training with gradient checkpointing"):
        model(**inputs, cache=cache)
    with torch.no_grad():  # nothing is computed twice
        model(**inputs, cache=cache)
    assert cache.get_seq_length() == 5


def test_training_returns_logits_only_on_request():
    model = tiny_model()
    inputs = training_batch()
    assert model(**inputs).logits.shape == (3, 5, 31)
    assert model(**inputs, return_logits=False).logits is None
    model.train()
    out = model(**inputs)
    assert out.logits is None
    assert out.past_key_values is None
    expected = model.eval()(**inputs).logits
    model.train()
    asked = model(**inputs, return_logits=True)
    for loss, logits in ((asked.loss, asked.logits), model(**inputs, return_dict=False)[:2]):
        assert_close(logits, expected)
        assert_close(loss, out.loss)
    with_logits, without = gradients(model, return_logits=True), gradients(model)
    for name, gradient in without.items():
        assert_close(with_logits[name], gradient)
    assert model(**batch()).logits.shape == (3, 5, 31)  # no labels, as with Trainer's own smoothing


@implementations
def test_model_compiles_as_one_graph(attention):
    torch._dynamo.reset()
    model = tiny_model(attention=attention, encoder_layers=1, decoder_layers=1)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        assert_close(compiled(**batch()).logits, model(**batch()).logits)
    expected = gradients(model.train())
    model.zero_grad()
    compiled(**training_batch()).loss.backward()
    for name, parameter in model.named_parameters():
        assert_close(parameter.grad, expected[name])


# ----------------------------------------------------------------------- embeddings, formats, types


@pytest.mark.parametrize("size", [40, 20])
def test_resized_embeddings_stay_tied_and_keep_their_rows(tmp_path, size):
    model = tiny_model()
    before = model.model.shared.weight.detach().clone()
    model.resize_token_embeddings(size)
    tables = [
        *(model.model.shared, model.model.encoder.embed_tokens, model.model.decoder.embed_tokens),
        model.lm_head,
    ]
    assert len({table.weight.data_ptr() for table in tables}) == 1
    assert model.config.vocab_size == size
    kept = min(size, 31)
    assert torch.equal(model.model.shared.weight[:kept], before[:kept])
    inputs = {name: tensor.clamp(max=19) for name, tensor in batch().items()}
    assert model(**inputs).logits.shape == (3, 5, size)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, attn_implementation="eager")
    assert torch.equal(loaded(**inputs).logits, model.eval()(**inputs).logits)


@pytest.mark.parametrize("shared", [True, False])
def test_a_given_table_is_the_sources_and_if_they_share_one_the_targets(shared):
    model = tiny_model(share_encoder_decoder_embeddings=shared, tie_word_embeddings=False)
    inputs = {"input_ids": torch.tensor([[5, 6, 2]]), "decoder_input_ids": torch.tensor([[1, 7]])}
    target, table = model.model.decoder.embed_tokens, torch.nn.Embedding(31, 16)
    before = model(**inputs).logits
    model.set_input_embeddings(table)
    assert model.get_input_embeddings() is table
    assert model.model.decoder.embed_tokens is (table if shared else target)
    assert not torch.allclose(model(**inputs).logits, before)


def test_resizing_a_model_with_two_vocabularies_is_refused():
    model = tiny_model(share_encoder_decoder_embeddings=False, decoder_vocab_size=40)
    with pytest.raises(RequestError, match="vocabularies cannot be resized"):
        model.resize_token_embeddings(35)
    assert model.get_input_embeddings().num_embeddings == model.config.vocab_size == 31
    assert model.get_output_embeddings().out_features == 40


def test_bias_of_a_replaced_softmax_is_trained():
    model = tiny_model(tie_word_embeddings=False, label_smoothing=0.0)
    model.set_output_embeddings(torch.nn.Linear(16, 31))  # with a bias, unlike the config's
    inputs = training_batch()
    expected = model.eval()(**inputs).loss
    loss = model.train()(**inputs).loss
    assert_close(loss, expected)
    loss.backward()
    assert model.lm_head.bias.grad.abs().sum() > 0


@pytest.mark.parametrize("kind", ["forward_pre", "forward", "full_backward_pre", "full_backward"])
@pytest.mark.filterwarnings("ignore:.*ackward hook")
@pytest.mark.parametrize("of_all_modules", [False, True])
def test_every_hook_of_the_softmax_is_called_in_training_and_search(kind, of_all_modules):
    """Nothing is faster by leaving one out; those of a backward pass are no matter of a search."""
    model, called = tiny_model(), []

    def note(module, *arguments):
        called.append(module is model.lm_head)

    owner = torch.nn.modules.module if of_all_modules else model.lm_head
    register = getattr(owner, f"register_{'module_' if of_all_modules else ''}{kind}_hook")
    with register(note):
        model.train()(**training_batch()).loss.backward()
        assert any(called)
        called.clear()
        beam_search(model, GOOD["input_ids"], max_new_tokens=2)
        assert any(called) == ("backward" not in kind)
    assert is_unmodified(model)


def test_a_weight_of_another_kind_is_multiplied_by_its_own_layer():
    called = []

    class Packed(torch.nn.Parameter):  # as of quantized layers, which can do little more
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            called.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    model = tiny_model(tie_word_embeddings=False).train()
    expected = model(**training_batch()).loss
    model.lm_head.weight = model.lm_head.weight.data.as_subclass(Packed)
    assert_close(model(**training_batch()).loss, expected)
    assert torch.nn.functional.linear in called


@pytest.mark.parametrize(
    "adapter", [{"target_modules": ["embed_tokens"]}, {"trainable_token_indices": [5, 6]}]
)
def test_adapters_on_the_embeddings_are_trained(adapter):
    peft = pytest.importorskip("peft", reason="an option of its users")
    config = peft.LoraConfig(r=2, **{"target_modules": ["q_proj"], **adapter})
    model = peft.get_peft_model(tiny_model(), config).train()
    inputs = training_batch()
    inputs["input_ids"][:, 0] = 5
    model(**inputs).loss.backward()
    trained = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    of_table = [grad for name, grad in trained.items() if "embed_tokens" in name]
    assert any(grad is not None and grad.abs().sum() > 0 for grad in of_table)


@variants
def test_inputs_embeds_give_the_same_logits_as_ids(variant):
    model = tiny_model(**VARIANTS[variant])
    inputs = batch()
    expected = model(**inputs).logits
    encoder, decoder = model.get_encoder(), model.get_decoder()
    embedded = model(
        inputs_embeds=encoder.embed_tokens(inputs["input_ids"]),
        attention_mask=inputs["attention_mask"],
        decoder_inputs_embeds=decoder.embed_tokens(inputs["decoder_input_ids"]),
    )
    assert torch.equal(embedded.logits, expected)


@variants
def test_save_and_load_round_trip_is_bit_exact(tmp_path, variant):
    model = tiny_model(**VARIANTS[variant])
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, attn_implementation="eager")
    assert type(loaded) is VanillaTransformerForConditionalGeneration
    state = loaded.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(loaded(**batch()).logits, model(**batch()).logits)
    data = {
        loaded.get_submodule(name).weight.data_ptr()
        for name in ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    }
    assert len(data) == {"untied softmax": 2, "three tables": 3, "other systems": 2}.get(variant, 1)


def test_base_model_and_head_load_each_others_checkpoints(tmp_path):
    model = tiny_model()
    model.save_pretrained(tmp_path / "head")
    base = AutoModel.from_pretrained(tmp_path / "head", attn_implementation="eager")
    assert type(base) is VanillaTransformerModel
    states = base(**batch()).last_hidden_state
    assert torch.equal(states, model.model(**batch()).last_hidden_state)
    base.save_pretrained(tmp_path / "base")
    head = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "base", attn_implementation="eager")
    assert torch.equal(head(**batch()).logits, model(**batch()).logits)


@implementations
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_close_and_finite(attention, dtype):
    model = tiny_model(attention=attention)
    expected = model(**batch())
    out = model.to(dtype)(**batch())
    assert out.logits.dtype == dtype
    # Layer norms bound the states, so errors are a few units of the 8th (11th) bit.
    error = (out.logits.float() - expected.logits).abs().max() / expected.logits.abs().max()
    assert error < (0.1 if dtype == torch.bfloat16 else 0.02)
    model.train()(**training_batch()).loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model.float().eval()(**batch()).logits.isfinite().all()


@pytest.mark.parametrize("style", ["sinusoidal", "tensor2tensor"])
def test_positions_stay_exact_in_a_model_loaded_in_bfloat16(tmp_path, style):
    tiny_model(position_encoding=style).save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path, dtype=torch.bfloat16)
    x = torch.zeros(1, 3000, 16, dtype=torch.bfloat16)
    for stack in (loaded.encoder, loaded.decoder, loaded.encoder.float().bfloat16()):
        found = stack.embed_positions(x, None, 0)
        assert torch.equal(found, sinusoids(torch.arange(3000), 16, style=style).bfloat16())


# --------------------------------------------------------------------------------------- bad input


@implementations
@dtypes
def test_row_of_padding_gives_no_nan_and_changes_no_other_row(attention, dtype):
    model = tiny_model(attention=attention).to(dtype)
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):  # all scores near -128: float16 ends at -65504
            torch.nn.init.constant_(module.q_proj.bias, 8)
            torch.nn.init.constant_(module.k_proj.bias, -8)
    inputs = training_batch()
    good = model(**inputs)
    inputs["attention_mask"][1] = 0
    out = model(**inputs)
    assert out.logits.isfinite().all()
    assert_close(out.logits[[0, 2]], good.logits[[0, 2]], 1e-5 if dtype == torch.float32 else 0.02)
    model.train()(**inputs).loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_sequences_beyond_learned_positions_are_refused():
    model = tiny_model(position_encoding="learned", max_position_embeddings=6)
    inputs = batch(target_length=8)
    short = {name: inputs[name][:, :6] for name in ("input_ids", "attention_mask")}
    for wrong, length in ((batch(), 7), (batch(padded=False), 7), ({**inputs, **short}, 8)):
        with pytest.raises(ValueError, match=rf"has {length} tokens.*max_position_embeddings=6"):
            model(**wrong)


@pytest.mark.parametrize("longest", [4, 6])
def test_padding_may_extend_beyond_learned_positions(longest):
    model = tiny_model(position_encoding="learned", max_position_embeddings=6)
    inputs = batch(rows=2, padded=False)
    inputs["attention_mask"] = (torch.arange(7) < torch.tensor([[longest], [2]])).long()
    narrow = {**inputs, **{k: inputs[k][:, :longest] for k in ("input_ids", "attention_mask")}}
    assert_close(model(**inputs).logits, model(**narrow).logits)
    masks = {"attention_mask": inputs["attention_mask"].clone()}
    masks["attention_mask"][0] = 1
    with pytest.raises(ValueError, match=r"has 7 tokens.*max_position_embeddings=6"):
        model(**{**inputs, **masks})


EMBEDS = torch.zeros(2, 3, 16)


GOOD = {
    "input_ids": torch.tensor([[4, 5, 2], [6, 2, 0]]),
    "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
    "decoder_input_ids": torch.tensor([[1, 4, 7, 9], [1, 8, 2, 0]]),
    "decoder_attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
    "labels": torch.tensor([[4, 7, 9, 2], [8, 2, -100, -100]]),
}
WRONG_MASKS = {
    "one dimension": lambda mask: mask[0],
    "a token less": lambda mask: mask[:, 1:],
    "one row": lambda mask: mask[:1],
}
WRONG_INPUTS = {  # and the fragment of a message, most of them of torch
    "no target": (
        {"decoder_input_ids": None, "labels": None},
        r"Decoder needs .* label_smoothing_factor.* DataCollatorForSeq2Seq\(.*model\)",
    ),
    "no source": ({"input_ids": None}, "Encoder needs either ids or embeddings"),
    "two sources": ({"inputs_embeds": EMBEDS}, "Encoder needs either ids or embeddings"),
    "ids beyond the vocabulary": ({"input_ids": torch.tensor([[4, 31, 2]] * 2)}, "out of range"),
    "labels beyond it": ({"labels": torch.tensor([[4, 7, 9, 31]] * 2)}, "out of bounds"),
    "negative labels": ({"labels": torch.tensor([[4, 7, 9, -1]] * 2)}, "out of bounds"),
    "labels of fewer rows": ({"labels": torch.tensor([[4, 7, 9, 2]])}, "one label for each"),
    "floats as labels": ({"labels": torch.ones(2, 4)}, "int64 for index|Long"),
    "more rows": ({"input_ids": torch.ones(3, 3).long()}, r"allowed is \(3, 3\)"),
    "embeddings of another width": (
        {"input_ids": None, "inputs_embeds": torch.zeros(2, 3, 15)},
        "must match the size of tensor",
    ),
}


def every_forward(model):
    """Return the model and its parts that take any keyword, each with its own inputs."""
    inputs, ids = batch(padded=False), batch(padded=False)["input_ids"]
    x = torch.randn(len(ids), 5, model.config.d_model)
    memory = {"encoder_hidden_states": x}
    attention = model.model.decoder.layers[0].self_attn
    return [
        (model, inputs),
        (model.model, inputs),
        (model.get_encoder(), {"input_ids": ids}),
        (model.get_decoder(), {"input_ids": ids, **memory}),
        (functools.partial(attention, x), {}),
    ]


# Names that the types of transformers know, or that none does.
NOT_READ = ["position_ids", "token_type_ids", "cash", "memory", "layer", "kwargs"]


@implementations
@pytest.mark.parametrize("name", NOT_READ)
def test_an_argument_that_nothing_reads_is_refused_by_name(name, attention):
    for module, inputs in every_forward(tiny_model(attention=attention)):
        module(**inputs, **{name: None})  # has no effect, and is not given
        with pytest.raises(RequestError, match=rf"Neither .* reads {name}; leave it out"):
            module(**inputs, **{name: torch.ones(3, 5)})


@pytest.mark.parametrize("return_logits", [True, False])
@pytest.mark.parametrize("wrong", WRONG_INPUTS)
def test_no_wrong_input_passes_in_silence(wrong, return_logits):
    change, message = WRONG_INPUTS[wrong]
    errors = (RequestError, RuntimeError, IndexError, TypeError, ValueError)
    with pytest.raises(errors, match=message):
        tiny_model()(**{**GOOD, **change}, return_logits=return_logits)


@pytest.mark.parametrize("wrong", WRONG_MASKS)
@pytest.mark.parametrize("name", ["attention_mask", "decoder_attention_mask"])
def test_masks_of_wrong_shape_are_refused(name, wrong):
    model = tiny_model()
    arguments = {**GOOD, name: WRONG_MASKS[wrong](GOOD[name])}
    side = "Decoder" if name.startswith("decoder") else "Encoder"
    with pytest.raises(RequestError, match=f"^{side} attention_mask .*; (allowed|give)"):
        model(**arguments)
    if name == "attention_mask":
        states = model.model.encoder(GOOD["input_ids"]).last_hidden_state
        with pytest.raises(
            RequestError, match=r"^Decoder encoder_attention_mask .*; (allowed|give)"
        ):
            model(**{**arguments, "input_ids": None}, encoder_outputs=(states,))


def test_a_decoder_without_memory_is_refused():
    with pytest.raises(RequestError, match="The decoder needs encoder_hidden_states"):
        tiny_model().get_decoder()(GOOD["input_ids"])


def test_decoder_mask_of_a_cached_step_covers_earlier_tokens():
    model = tiny_model()
    first = model(**{**GOOD, "labels": None}, use_cache=True)
    step = {**GOOD, "labels": None, "decoder_input_ids": torch.tensor([[3], [5]])}
    step["decoder_attention_mask"] = torch.nn.functional.pad(
        GOOD["decoder_attention_mask"], (0, 1), value=1
    )
    for width in (1, 4):
        narrow = {"decoder_attention_mask": step["decoder_attention_mask"][:, -width:]}
        with pytest.raises(RequestError, match=r"Decoder attention_mask .* allowed is \(2, 5\)"):
            model(**{**step, **narrow}, past_key_values=first.past_key_values)
    assert model(**step, past_key_values=first.past_key_values).logits.shape == (2, 1, 31)


@pytest.mark.parametrize("padded", [True, False])
def test_padding_without_a_mask_is_warned_of(caplog, monkeypatch, padded):
    """Else translations change in silence: here, and for all encoder-decoders in transformers."""
    transformers.utils.logging.warning_once.cache_clear()
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    ids = GOOD["input_ids"].masked_fill(GOOD["attention_mask"] == 0, 4)
    pad = tiny_model().config.pad_token_id
    ids = torch.nn.functional.pad(ids, (0, 1), value=pad if padded else 4)
    tiny_model()(**{**GOOD, "input_ids": ids, "attention_mask": None})
    assert ("`attention_mask` since your input_ids may be padded" in caplog.text) == padded


def test_the_exported_model_takes_batches_of_any_size():
    model = tiny_model().eval()
    inputs = {name: GOOD[name] for name in ("input_ids", "attention_mask", "decoder_input_ids")}
    rows = torch.export.Dim("rows", min=2, max=64)
    shapes = {**{name: {0: rows} for name in inputs}, "use_cache": None}
    exported = torch.export.export(model, (), {**inputs, "use_cache": False}, dynamic_shapes=shapes)
    more = {name: ids.repeat(3, 1) for name, ids in inputs.items()}
    found = exported.module()(**more, use_cache=False).logits
    assert_close(found, model(**more).logits)


@pytest.mark.parametrize("token", [2, 0.5, -1, math.nan])
def test_masks_count_any_value_but_0_as_a_token(token):
    """As in transformers."""
    model = tiny_model()
    ones = torch.tensor([[0, 0, 1, 1, 1]])
    x, mask = torch.zeros(1, 5, 16), torch.where(ones == 1, token, 0)
    positions = model.model.encoder.embed_positions
    assert torch.equal(positions(x, mask, 0), positions(x, ones, 0))
    encode = torch.compile(model.model.encoder, backend="eager", fullgraph=True)
    ids = torch.tensor([[0, 0, 4, 5, 2]])
    found, expected = (encode(ids, attention_mask=m).last_hidden_state for m in (mask, ones))
    assert torch.equal(found, expected)


WAYS_TO_GENERATE = {
    "greedy": {"num_beams": 1},
    "sampling": {"do_sample": True, "num_beams": 1},
    "beams": {"num_beams": 4},
    "n best": {"num_beams": 4, "num_return_sequences": 3},
    "beams that are sampled": {"num_beams": 3, "do_sample": True},
}


@pytest.mark.parametrize("way", WAYS_TO_GENERATE)
@pytest.mark.parametrize("in_dict", [False, True])
def test_rows_hold_padding_alone_after_their_first_end(translator, way, in_dict):
    model, inputs = translator
    torch.manual_seed(0)
    found = model.generate(**inputs, **WAYS_TO_GENERATE[way], return_dict_in_generate=in_dict)
    sequences = found.sequences if in_dict else found
    for row in sequences.flatten(0, -2).tolist():
        words = row[1:] if row[0] == 1 else row
        length = words.index(2) + 1
        assert words[length:] == [0] * (len(words) - length)
    assert (sequences == 0).any()


@pytest.mark.parametrize("padding", [0, 7])
def test_a_row_that_is_cut_gets_padding_and_no_end(translator, padding):
    model, inputs = translator
    criteria = [lambda ids, _: torch.full((len(ids),), ids.size(1) > 2) & (ids[:, 1] % 2 == 0)]
    options = {"num_beams": 2, "stopping_criteria": criteria, "pad_token_id": padding}
    found = model.generate(**inputs, **options, suppress_tokens=[0, 1, 2, 3])
    assert 0 < (found[:, -1] == padding).sum() < len(found)
    assert not (found == 2).any()


def test_without_an_end_rows_stay_as_they_are(translator):
    model, inputs = translator
    endless = copy.deepcopy(model)
    endless.config.eos_token_id = endless.generation_config.eos_token_id = None
    for beams in (1, 2):
        found = endless.generate(**inputs, num_beams=beams, max_new_tokens=6)
        assert found.size(1) == 7
        assert not (found == 0).any()


@pytest.mark.parametrize("way", ["greedy", "beams"])
def test_outputs_as_labels_have_the_loss_of_the_text(translator, way):
    model, inputs = translator
    rows = model.generate(**inputs, **WAYS_TO_GENERATE[way])
    texts = [torch.tensor([*text, 2]) for text in translations(rows)]
    labels = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=-100)
    expected, found = model(**inputs, labels=labels).loss, rows[:, 1:]
    for filler in (0, -100):  # padding is no target either
        own = found.masked_fill(found == 0, filler)
        assert_close(model(**inputs, labels=own).loss, expected)


def test_assisted_decoding_equals_greedy_decoding(translator):
    model, inputs = translator
    assistant = copy.deepcopy(model)
    with torch.no_grad():
        assistant.model.decoder.layers[0].feed_forward.fc2.weight.mul_(-1)  # sometimes wrong
    for row in range(4):
        one = {name: tensor[row : row + 1] for name, tensor in inputs.items()}
        expected = model.generate(**one, num_beams=1)
        assert torch.equal(model.generate(**one, num_beams=1, assistant_model=assistant), expected)


def test_lora_has_only_adapters_to_train_and_reloads(tmp_path):
    peft = pytest.importorskip("peft", reason="an option of its users")
    lora = peft.LoraConfig(task_type="SEQ_2_SEQ_LM", r=2, target_modules=["q_proj", "v_proj"])
    model = peft.get_peft_model(tiny_model(), lora)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    # A and B of q_proj and v_proj, in two attentions of the encoder and four of the decoder
    assert len(trained) == 2 * 2 * (2 + 4)
    assert all("lora_" in name for name in trained)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter += 0.1 * ("lora_" in name)
    model.eval().save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(tiny_model(), tmp_path).eval()
    assert torch.equal(loaded(**batch()).logits, model(**batch()).logits)
    merged = loaded.merge_and_unload()
    assert_close(merged(**batch()).logits, model(**batch()).logits)
