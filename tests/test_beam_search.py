"""The paper's beam search: compared with brute force and the authors' code; its invariants."""

import functools
import itertools
import math
import random
from contextlib import nullcontext
from unittest.mock import Mock

import pytest
import torch
from reference import NEVER, authors_search, log_prob, penalty
from slow_path import without_fast_path
from torch import nn
from transformers import EncoderDecoderCache, GenerationConfig, StaticCache
from transformers.modeling_outputs import Seq2SeqLMOutput
from wandering_model import END, PAD, START, UNKNOWN, make_model, make_sources

from vanilla_transformer.batch_translation import generate_ids
from vanilla_transformer.beam_search import beam_search, best_tokens
from vanilla_transformer.errors import RequestError
from vanilla_transformer.fast.incremental_decoding import IncrementalDecoder
from vanilla_transformer.generation_limits import CACHE, longest_sequence
from vanilla_transformer.ranges import EXTRA_TOKENS


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def batch():
    return make_sources([9, 3, 5, 9, 1, 7, 2])


@pytest.fixture(params=["fast", "plain"])
def each_decoder(request, monkeypatch):
    """Decode by the fast path, and by `model(...)`, which serves changed models."""
    if request.param == "plain":
        monkeypatch.setitem(beam_search.__globals__, "FASTER_DECODERS", [])


def tokens_of(found, sentence, rank=0):
    return tuple(found.sequences[sentence, rank, : found.lengths[sentence, rank]].tolist())


def with_start(sequences):
    return nn.functional.pad(sequences, (1, 0), value=START)


def alone(model, batch, sentence, **options):
    ids, mask = batch
    return beam_search(model, ids[sentence : sentence + 1, : mask[sentence].sum()], **options)


# ------------------------------------------------------------------------------------------ results


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
def test_a_wide_beam_equals_exhaustive_search(alpha):
    model, limit = make_model(7, sharpness=1.0), 4
    source = torch.tensor([[5, 4, 6, END]])
    # every translation of at most 4 tokens, end included
    every = [(*ids, END) for n in range(limit) for ids in itertools.product((4, 5, 6), repeat=n)]
    scores = {ids: log_prob(model, source, ids) / penalty(len(ids), alpha) for ids in every}
    expected = sorted(every, key=scores.get, reverse=True)
    options = {"num_beams": 3**limit, "length_penalty": alpha, "max_new_tokens": limit}
    found = beam_search(model, source, num_return_sequences=len(every), **options)
    assert [tokens_of(found, 0, rank) for rank in range(len(every))] == expected
    torch.testing.assert_close(
        found.scores[0], torch.tensor([scores[t] for t in expected]).double()
    )
    assert found.finished.all()
    assert tokens_of(beam_search(model, source, **options), 0) == expected[0]


KINDS_OF_MODEL = [
    {},
    {"norm_first": True},
    {"position_encoding": "learned", "max_position_embeddings": 70},
    {"position_encoding": "tensor2tensor"},
    {"d_k": 5, "d_v": 3},
    {"tie_word_embeddings": False},
    {"final_norm": True, "activation_function": "gelu"},
    {"position_offset": 2, "lm_head_bias": True},
    {"decoder_layers": 1, "decoder_attention_heads": 4},
]


@pytest.mark.parametrize("number", range(40))
def test_search_equals_the_authors_search(number):
    """For every kind of model and whatever ends a sentence: up to four ids of any kind, or none."""
    draw = random.Random(number)
    size, beam, longest = draw.randint(6, 12), draw.randint(1, 5), draw.randint(4, 9)
    ends = draw.sample(range(size), number % 5)
    sizes = {"encoder_layers": 1, "decoder_layers": 1}
    sizes |= KINDS_OF_MODEL[number % len(KINDS_OF_MODEL)]
    if number % 3 == 0:  # the source has more words
        sizes |= {"decoder_vocab_size": size, "share_encoder_decoder_embeddings": False}
    sharpness, words = draw.choice((0.3, 0.6, 1.0)), size + 4 * (number % 3 == 0)
    model = make_model(words, seed=number, sharpness=sharpness, **sizes)
    ids, mask = make_sources([draw.randint(1, 5) for _ in range(3)], size, seed=number)
    suppressed = draw.choice((None, draw.sample(range(size), draw.randint(0, 3))))
    never = NEVER - {*ends} if suppressed is None else {*suppressed}
    words = [n for n in range(size) if n not in ends]
    prefixes = [draw.choices(words, k=draw.choice((0, 0, 1, 3))) for _ in range(3)]
    if ends:  # only the last id of a prefix may end it
        prefixes[0] = [*prefixes[0][:2], ends[0], *(draw.random() < 0.5) * [PAD]]
    settings = {
        **{"num_beams": beam, "length_penalty": draw.choice((0.0, 0.6, 1.0, 2.5))},
        "early_stopping": draw.random() < 0.5,
    }
    limits = {"max_new_tokens": longest, "max_extra_tokens": draw.choice((None, 3))}
    given = {**limits, "prefix": prefixes, "suppress_tokens": suppressed}
    count = draw.randint(1, beam)  # of hypotheses that are returned
    model.generation_config = GenerationConfig(
        eos_token_id=ends, num_return_sequences=count, **settings
    )
    for decoding in (nullcontext, without_fast_path):
        with decoding():
            found = beam_search(model, ids, mask, **given)
        for sentence, prefix in enumerate(prefixes):
            source = ids[sentence][None, mask[sentence].bool()]
            limit = longest
            if limits["max_extra_tokens"] is not None:
                limit = min(limit, source.size(1) + 3)
            best = authors_search(
                *(model, source, beam),
                **{"alpha": settings["length_penalty"], "early": settings["early_stopping"]},
                **{"limit": limit, "prefix": prefix, "never": never, "ends": ends},
            )[:count]
            scores = [score for score, _ in best] + [-math.inf] * (count - len(best))
            tokens = [tokens for _, tokens in best] + [()] * (count - len(best))
            assert [tokens_of(found, sentence, rank) for rank in range(count)] == tokens
            assert found.scores[sentence].tolist() == pytest.approx(scores, abs=1e-9)
            ended = [bool(each) and each[-1] in ends for each in tokens]
            assert found.finished[sentence].tolist() == ended


# --------------------------------------------------------------------------------------- invariants


@pytest.mark.usefixtures("each_decoder")
@pytest.mark.parametrize(("beam", "early"), [(1, False), (4, False), (4, True)])
def test_results_do_not_depend_on_the_batch_or_its_order(model, batch, beam, early):
    options = {"num_beams": beam, "early_stopping": early}
    options |= {"num_return_sequences": min(beam, 3), "return_alignments": True}
    together = beam_search(model, *batch, **options)
    order = torch.tensor([3, 6, 0, 5, 1, 4, 2])
    shuffled = beam_search(model, batch[0][order], batch[1][order], **options)
    assert len(set(together.lengths[:, 0].tolist())) > 2
    for sentence in range(len(order)):
        single = alone(model, batch, sentence, **options)
        place = int((order == sentence).nonzero())
        for found, row in ((together, sentence), (shuffled, place)):
            length, size = single.sequences.size(-1), single.alignments.size(-1)
            assert torch.equal(found.sequences[row, :, :length], single.sequences[0])
            assert (found.sequences[row, :, length:] == PAD).all()
            assert torch.equal(found.lengths[row], single.lengths[0])
            torch.testing.assert_close(found.scores[row], single.scores[0])
            torch.testing.assert_close(
                found.alignments[row, :, :length, :size], single.alignments[0]
            )
            assert not found.alignments[row, :, length:].any()
            assert not found.alignments[row, :, :, size:].any()


def test_other_ids_of_all_tokens_only_rename_the_results(model, batch):
    torch.manual_seed(0)
    new = torch.randperm(32)  # the new id of each id
    roles = {"pad": PAD, "bos": START, "decoder_start": START, "eos": END, "unk": UNKNOWN}
    renamed = make_model(**{f"{role}_token_id": int(new[old]) for role, old in roles.items()})
    with torch.no_grad():
        for part in (renamed.model.shared, renamed.model.decoder.embed_tokens, renamed.lm_head):
            part.weight[new] = part.weight.clone()
    expected = beam_search(model, *batch, num_return_sequences=4)
    found = beam_search(renamed, new[batch[0]], batch[1], num_return_sequences=4)
    assert torch.equal(found.sequences, new[expected.sequences])
    torch.testing.assert_close(found.scores, expected.scores)


def test_greedy_search_equals_generate(model, batch):
    expected = model.generate(batch[0], attention_mask=batch[1], num_beams=1, max_new_tokens=40)
    found = beam_search(model, *batch, num_beams=1, max_extra_tokens=None, max_new_tokens=40)
    assert (found.finished).any()
    assert len(set(found.lengths.flatten().tolist())) > 2
    assert torch.equal(with_start(found.sequences)[:, 0], expected)


def test_generate_alone_is_greedy_as_in_transformers(batch):
    model = make_model()
    greedy = model.generate(batch[0], attention_mask=batch[1], num_beams=1)
    assert torch.equal(model.generate(batch[0], attention_mask=batch[1]), greedy)


# ----------------------------------------------------------------------------------------- limits


def test_each_sentence_has_its_own_length_limit(model, batch):
    never = [PAD, START, END, UNKNOWN]
    found = beam_search(model, *batch, num_beams=2, suppress_tokens=never)
    assert torch.equal(found.lengths[:, 0], batch[1].sum(1) + EXTRA_TOKENS)
    assert not found.finished.any()
    tokens = tokens_of(found, 1)
    expected = log_prob(model, batch[0][1:2, :3], tokens) / penalty(len(tokens))
    assert found.scores[1, 0].item() == pytest.approx(expected, abs=1e-9)
    for bounds, most in (
        ({"max_extra_tokens": 2}, batch[1].sum(1) + 2),
        ({"max_new_tokens": 8}, (batch[1].sum(1) + 50).clamp(max=8)),
        ({"max_extra_tokens": 0, "max_new_tokens": 4}, batch[1].sum(1).clamp(max=4)),
    ):
        found = beam_search(model, *batch, suppress_tokens=never, **bounds)
        assert torch.equal(found.lengths[:, 0], most)


def test_learned_positions_limit_the_length(batch):
    model = make_model(position_encoding="learned", max_position_embeddings=12)
    found = beam_search(model, *batch, suppress_tokens=[END])
    assert longest_sequence(model) == 12
    assert (found.lengths == 12).all()
    never = {"suppress_tokens": [PAD, START, END]}
    for given in ({}, {"decoder_input_ids": torch.tensor([[START, 5, 6]] * len(batch[0]))}):
        found = model.generate(batch[0], attention_mask=batch[1], num_beams=1, **never, **given)
        assert found.size(1) == 13  # also with a beginning


# -------------------------------------------------------------------------------- suppressed tokens


@pytest.mark.parametrize("beam", [1, 4])
def test_padding_start_and_unknown_are_never_produced(batch, beam):
    model = make_model()
    with torch.no_grad():
        model.lm_head.weight[[PAD, START, UNKNOWN]] = 3 * model.lm_head.weight[4:7]
    found = beam_search(model, *batch, num_beams=beam, num_return_sequences=beam)
    produced = {t for s in range(7) for rank in range(beam) for t in tokens_of(found, s, rank)}
    assert not produced & NEVER
    model.generation_config.suppress_tokens = None
    again = beam_search(model, *batch, num_beams=beam, num_return_sequences=beam)
    assert torch.equal(again.sequences, found.sequences)
    allowed = beam_search(model, *batch, num_beams=beam, suppress_tokens=[])
    assert {t for s in range(7) for t in tokens_of(allowed, s)} & NEVER


def test_a_generation_config_must_let_sentences_end(batch):
    """As when the end is set after the model was made, so that it is still among the suppressed."""
    model = make_model()
    model.config.eos_token_id = model.generation_config.eos_token_id = START
    for search in (functools.partial(beam_search, model), model.generate):
        told = r"suppress_tokens=\[0, 1, 3\] .* suppresses \[1\], .* set suppress_tokens=\[0, 3\]"
        with pytest.raises(ValueError, match=told):
            search(batch[0])
        search(batch[0], suppress_tokens=[START], max_new_tokens=3)  # a call may
    given = GenerationConfig(suppress_tokens=[START], eos_token_id=START, max_new_tokens=3)
    model.generate(batch[0], generation_config=given)
    model.generation_config.eos_token_id = [START, END]  # one of which is left
    for search in (functools.partial(beam_search, model), model.generate):
        search(batch[0], max_new_tokens=3)
    model.generation_config.eos_token_id = START
    model.generation_config.suppress_tokens = model.config.ids_outside_of_text()
    assert beam_search(model, *batch).finished[:, 0].any()


# ------------------------------------------------------------------------------------ alignment


@pytest.mark.usefixtures("each_decoder")
@pytest.mark.parametrize("layers", [2, 3])
def test_alignments_are_the_models_cross_attention(batch, layers):
    model = make_model(decoder_layers=layers)
    model.set_attn_implementation("eager")
    found = beam_search(model, *batch, num_return_sequences=2, return_alignments=True)
    longest, size = found.sequences.size(-1), batch[0].size(1)
    assert found.alignments.shape == (7, 2, longest, size)
    for sentence, rank in itertools.product(range(7), range(2)):
        tokens = tokens_of(found, sentence, rank)
        source = batch[0][sentence][None, batch[1][sentence].bool()]
        with torch.no_grad():
            weights = model(
                source,
                decoder_input_ids=torch.tensor([[START, *tokens[:-1]]]),
                output_attentions=True,
            ).cross_attentions[1][0].mean(0)  # the last of two, or last but one  # fmt: skip
        rows = found.alignments[sentence, rank]
        torch.testing.assert_close(rows[: len(tokens), : source.size(1)], weights)
        sums = rows.sum(-1)
        torch.testing.assert_close(sums[: len(tokens)], torch.ones(len(tokens)).double())
        assert not sums[len(tokens) :].any()
    first = beam_search(model, *batch, return_alignments=True, alignment_layer=0)
    assert not torch.allclose(first.alignments[:, 0, 0], found.alignments[:, 0, 0])


# ----------------------------------------------------------------------------- efficiency and modes


@pytest.mark.parametrize("sources", [1, 2, 3])
def test_logits_of_some_sources_at_a_time_find_the_same(sources, model, batch, monkeypatch):
    options = {"num_return_sequences": 4, "prefix": [[END], [], [9, 10], [], [4], [], [5]]}
    whole, sizes = beam_search(model, *batch, **options), []

    def counted(log_probs, count):
        sizes.append(len(log_probs))
        return best_tokens(log_probs, count)

    at_once = sources * 4 * model.config.vocab_size  # of 4 hypotheses each
    monkeypatch.setitem(IncrementalDecoder.step.__globals__, "LOGITS", at_once)
    monkeypatch.setitem(beam_search.__globals__, "best_tokens", counted)
    found = beam_search(model, *batch, **options)
    assert torch.equal(found.sequences, whole.sequences)
    torch.testing.assert_close(found.scores, whole.scores)
    assert sources in sizes


@pytest.mark.parametrize("size", [5, 64, 2048, 2049, 5000])
@pytest.mark.parametrize("count", [1, 5])
def test_best_tokens_found_in_blocks_equal_topk(size, count):
    torch.manual_seed(size)
    log_probs = torch.randn(3, 4, size).log_softmax(-1)
    log_probs[..., [0, size - 1]] = -math.inf
    log_probs[1, 2, size - 2] = log_probs[0, 1, size - 1] = 0.0
    log_probs[2, 0, : size - count] = -math.inf
    best, tokens = best_tokens(log_probs, count)
    assert torch.equal(best, log_probs.topk(count).values)
    assert torch.equal(log_probs.gather(-1, tokens), best)
    assert (tokens.sort().values.diff() > 0).all()


def test_search_runs_without_dropout(batch):
    model = make_model()
    expected = beam_search(model, *batch)
    assert torch.equal(beam_search(model.train(), *batch).scores, expected.scores)
    assert not expected.scores.is_inference()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_search_has_finite_scores_and_alignments(batch, dtype):
    found = beam_search(make_model().to(dtype), *batch, return_alignments=True, max_new_tokens=12)
    assert found.scores.isfinite().all()
    assert found.alignments.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("beam", [1, 4])
def test_only_the_logits_of_half_precision_are_rounded(dtype, beam):
    """Scores are those of exact arithmetic on the rounded logits, here of the last token alone."""
    model = make_model(12, encoder_layers=1, decoder_layers=1).to(dtype)
    table = torch.randn(12, 12, generator=torch.Generator().manual_seed(beam)).mul(3).to(dtype)
    table[:, END] -= 1
    given = {CACHE: Mock(), "encoder_last_hidden_state": torch.zeros(1, 1, 16, dtype=dtype)}

    def rounded(**inputs):
        return Seq2SeqLMOutput(logits=table[inputs["decoder_input_ids"]], **given)

    def exact(source, *, decoder_input_ids, **options):
        return Seq2SeqLMOutput(logits=table.double()[decoder_input_ids])

    model.forward, source, limits = rounded, torch.tensor([[5]]), {"max_new_tokens": 12}
    found = beam_search(model, source, num_beams=beam, num_return_sequences=beam, **limits)
    best = authors_search(exact, source, beam, limit=12)[:beam]
    assert [tokens_of(found, 0, rank) for rank in range(beam)] == [tokens for _, tokens in best]
    assert found.scores.dtype == torch.float32
    assert found.scores[0].tolist() == pytest.approx([score for score, _ in best], abs=1e-5)
    assert max(len(tokens) for _, tokens in best) > 2


# ------------------------------------------------------------------------------------- generate


def test_padded_prefixes_are_refused_within_generate(model, batch):
    ids, mask = batch
    prefix = torch.tensor([[PAD, START, 7]]).expand(7, -1)
    options = {"attention_mask": mask, "decoder_input_ids": prefix, "max_new_tokens": 4}
    options["decoder_attention_mask"] = (prefix != PAD).long()
    # A static cache is given a mask of four dimensions, which does not tell where tokens begin.
    with pytest.raises(ValueError, match="decoder_attention_mask has padding"):
        model.generate(ids, cache_implementation="static", **options)
    caches = [StaticCache(config=model.config, max_cache_len=99) for _ in range(2)]
    with pytest.raises(ValueError, match="which a static cache does not support"):
        model.generate(ids, past_key_values=EncoderDecoderCache(*caches), **options)
    options |= {"decoder_input_ids": prefix[:, 1:], "decoder_attention_mask": torch.ones(7, 2)}
    found = model.generate(ids, cache_implementation="static", **options)
    assert torch.equal(found, model.generate(ids, **options))


def test_learned_prompts_are_left_to_generate(model, batch):
    peft = pytest.importorskip("peft")
    ids, mask = batch
    kind = peft.PrefixTuningConfig(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=3)
    adapted = peft.get_peft_model(make_model(), kind).eval()
    with pytest.raises(ValueError, match="adapter's learned prompt"):
        beam_search(adapted, ids, mask)
    options = {"input_ids": ids, "attention_mask": mask, "num_beams": 1}
    found = generate_ids(adapted, ids, mask, num_beams=1, max_new_tokens=6).sequences[:, 0]
    assert torch.equal(found, adapted.generate(max_new_tokens=6, **options)[:, 1:])


# --------------------------------------------------------------------------------------- errors


@pytest.mark.usefixtures("each_decoder")
def test_masks_that_do_not_fit_are_refused(model, batch):
    ids, mask = batch
    for sources in (None, ids[0], ids[:0]):
        with pytest.raises(RequestError, match=r"Got sources of shape .*; give input_ids of shape"):
            beam_search(model, sources)
    for wrong in (mask[:, :1], mask[:2], mask[0]):
        with pytest.raises(ValueError, match="attention_mask has the shape"):
            beam_search(model, ids, wrong)
    with pytest.raises(ValueError, match="attention_mask of sentence 3 must be 0 at"):
        beam_search(model, ids, mask.index_fill(0, torch.tensor([2, 4]), 0))
    for wrong in ((1.0 - mask) * -1e9, mask * math.nan, mask * 2):
        with pytest.raises(ValueError, match="attention_mask of sentence 1 must be 0 at"):
            beam_search(model, ids, wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 10**9}, "num_beams=1000000000; it must be a whole number from 1 to 1000"),
        ({"num_return_sequences": 5}, "num_return_sequences=5; it must be .* from 1 to 4"),
        ({"length_penalty": -1.0}, "length_penalty=-1.0; it must be a number from 0 to 10"),
        ({"early_stopping": 1}, "early_stopping=1; it must be true or false"),
        ({"max_new_tokens": 0}, "max_new_tokens=0; it must be a whole number, at least 1"),
        ({"max_extra_tokens": None}, "give a limit"),
        ({"suppress_tokens": [-1]}, "Got -1 in suppress_tokens; an id must be .* from 0 to 31"),
        ({"prefix": [[4]]}, r"zip\(\) argument 2 is longer"),
        ({"prefix": [[4]] * 6 + [[4] * 53]}, "Prefix 7 has 53 tokens.*may have 52"),
        ({"prefix": [[5, END, 7]] * 7}, "Prefix 1, .*, has tokens after the end of its sentence"),
        ({"prefix": [[4]] * 6 + [[99]]}, "Got 99 in prefix 7; an id must be .* from 0 to 31"),
    ],
)
def test_wrong_arguments_are_named(model, batch, options, message):
    with pytest.raises(ValueError, match=message):
        beam_search(model, *batch, **options)


@pytest.mark.usefixtures("each_decoder")
@pytest.mark.parametrize("beam", [1, 4])
def test_a_model_with_nonfinite_outputs_is_refused(batch, beam):
    model = make_model()
    with torch.no_grad():
        model.model.decoder.layers[1].cross_attn.q_proj.weight[3, 5] = math.nan
    with pytest.raises(RequestError, match="outputs are not finite"):
        beam_search(model, *batch, num_beams=beam)
    model = make_model()
    found = beam_search(model, *batch, num_beams=beam, suppress_tokens=list(range(32)))  # no token
    assert (found.scores == -math.inf).all()
