"""Padding, gaps and whatever a mask hides change nothing, whatever ids stand there.

The oracle is one sentence at a time, without padding, gaps and masks.
"""

import copy
from contextlib import nullcontext

import pytest
import torch
from datasets import Dataset
from slow_path import without_fast_path
from test_modeling import tiny_model
from tiny_models import byte_tokenizer
from tiny_trainers import make_trainer
from transformers import EvalPrediction
from wandering_model import END, PAD, START, UNKNOWN, make_model, make_sources

from vanilla_transformer import evaluation as ours
from vanilla_transformer import translate
from vanilla_transformer.batch_translation import generate_ids
from vanilla_transformer.beam_search import beam_search
from vanilla_transformer.data.dataset import PairCollator
from vanilla_transformer.evaluation.models import decode_ids, perplexity
from vanilla_transformer.pipeline import VanillaTransformerTranslationPipeline
from vanilla_transformer.visualization import attention_weights

DTYPES = [torch.bool, torch.int32, torch.uint8, torch.float32]
MODELS = [{}, {"norm_first": True}, {"position_encoding": "learned"}, {"d_k": 3, "d_v": 5}]


def some(rows, length, *, seed):
    """Return a random mask that leaves some of each row, (rows, length)."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, length, generator=generator) < 0.6
    mask[torch.arange(rows), torch.randint(length, (rows,), generator=generator)] = True
    return mask


def hiding(ids, mask, *, seed=0):
    """Return the ids with random ones where the mask hides them."""
    generator = torch.Generator().manual_seed(seed)
    return ids.where(mask, torch.randint(0, 31, ids.shape, generator=generator))


# ---------------------------------------------------------------------------------------- masks


@pytest.mark.parametrize(("dtype", "fields"), [*zip(DTYPES, MODELS, strict=True)])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("given", ["labels", "labels and inputs"])
def test_a_forward_sees_what_its_masks_show_and_nothing_else(given, fields, attention, dtype):
    """Labels, and ids of the decoder, may have gaps that a mask of the decoder shows or not."""
    model = tiny_model(attention=attention, label_smoothing=0.1, **fields).double()
    seed, from_labels = DTYPES.index(dtype), given == "labels"
    source, target = torch.randint(4, 31, (2, 4, 7), generator=torch.Generator().manual_seed(seed))
    shown, seen = some(4, 7, seed=seed), some(4, 7, seed=seed + 9)
    gaps = ~seen & some(4, 7, seed=seed + 5)
    masks = {"attention_mask": shown.to(dtype)}
    if not from_labels:
        masks["decoder_attention_mask"] = (seen | gaps & some(4, 7, seed=seed + 7)).to(dtype)
    found = []
    for number, filler in enumerate((-100, PAD)):
        labels = target.masked_fill(~seen, filler)
        inputs = {"labels": labels, "num_items_in_batch": (labels != -100).sum()}  # by the Trainer
        if not from_labels:
            hidden = hiding(target, seen, seed=number).masked_fill(gaps, -100)
            inputs["decoder_input_ids"] = hidden
        ids = hiding(source, shown, seed=number)
        for mode in (model.train(), model.eval()):
            mode.zero_grad()
            output = mode(ids, return_logits=True, **masks, **inputs)
            output.loss.backward()
            gradients = [parameter.grad.clone() for parameter in mode.parameters()]
            found.append([output.loss, output.logits[seen], *gradients])
        encoded = model.get_encoder()(ids, attention_mask=masks["attention_mask"])
        again = model(encoder_outputs=encoded, **masks, **inputs)
        torch.testing.assert_close(again.logits[seen], output.logits[seen])
    for mode, results in ((model.train(), found[::2]), (model.eval(), found[1::2])):
        mode.zero_grad()
        outputs = []
        for row in range(4):
            one = target[row][seen[row]][None]
            inputs = {} if from_labels else {"decoder_input_ids": one}
            words = source[row][shown[row]][None]
            outputs.append(mode(words, labels=one, return_logits=True, **inputs))
        count = [output.logits.size(1) for output in outputs]
        loss = sum(output.loss * n for output, n in zip(outputs, count, strict=True)) / sum(count)
        loss.backward()
        expected = [loss, torch.cat([output.logits[0] for output in outputs])]
        expected += [parameter.grad for parameter in mode.parameters()]
        for result in results:
            for tensor, other in zip(result, expected, strict=True):
                torch.testing.assert_close(tensor, other)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float64], ids=str)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_forward_sees_what_masks_of_four_dimensions_show(attention, dtype):
    """Their padding counts as positions, so it stands at the end here, as it does in the oracle."""
    model = tiny_model(attention=attention).double()
    source, target = torch.randint(4, 31, (2, 3, 6), generator=torch.Generator().manual_seed(0))
    shown = torch.arange(6) < torch.tensor([[6], [2], [4]])
    seen = torch.arange(6) < torch.tensor([[3], [6], [1]])
    masks = [shown[:, None, None], (seen[:, None] & torch.ones(6, 6).tril().bool())[:, None]]
    if dtype != torch.bool:
        masks = [torch.zeros(mask.shape).double().masked_fill(~mask, -1e9) for mask in masks]
    names = ("attention_mask", "decoder_attention_mask")
    given = dict(zip(names, masks, strict=True))
    for number in range(2):
        ids, inputs = hiding(source, shown, seed=number), hiding(target, seen, seed=number)
        logits = model(ids, decoder_input_ids=inputs, **given).logits
        for row in range(3):
            one = {"decoder_input_ids": target[row][seen[row]][None]}
            alone = model(source[row][shown[row]][None], **one).logits[0]
            torch.testing.assert_close(logits[row][seen[row]], alone)


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_generate_sees_what_its_masks_show(num_beams, dtype):
    model = make_model()
    source, (shown, seen) = make_sources([7] * 4)[0], (some(4, 7, seed=1), some(4, 3, seed=2))
    prefix = torch.randint(4, 32, (4, 3), generator=torch.Generator().manual_seed(3))
    prefix[:, -1], seen[:, -1] = START, True
    options = {"num_beams": num_beams, "max_new_tokens": 6, "do_sample": False}
    found = model.generate(
        hiding(source, shown),
        attention_mask=shown.to(dtype),
        decoder_input_ids=hiding(prefix, seen),
        decoder_attention_mask=seen.to(dtype),
        **options,
    )
    for row in range(4):
        one = {"decoder_input_ids": prefix[row][seen[row]][None]}
        alone = model.generate(source[row][shown[row]][None], **one, **options)
        alone = alone[0, seen[row].sum() :]
        assert found[row, 3 : 3 + len(alone)].tolist() == alone.tolist()
        assert not found[row, 3 + len(alone) :].any()


@pytest.mark.parametrize("options", [{}, {"min_new_tokens": 4}, {"repetition_penalty": 2.0}])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32], ids=str)
def test_every_search_of_ids_sees_what_the_mask_shows(options, dtype):
    """The paper's, and those that `generate` has; each translation has its own limit."""
    model = make_model()
    source, shown = make_sources([7] * 5)[0], some(5, 7, seed=4)
    found = generate_ids(model, hiding(source, shown), shown.to(dtype), **options).sequences
    for row in range(5):
        one = source[row][shown[row]][None]
        alone = generate_ids(model, one, torch.ones_like(one), **options).sequences[0, 0]
        assert found[row, 0, : len(alone)].tolist() == alone.tolist()
        assert not found[row, 0, len(alone) :].any()


@pytest.mark.parametrize("decoding", [nullcontext, without_fast_path])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_search_and_alignments_see_what_the_mask_shows(decoding, dtype):
    model = make_model()
    source, shown = make_sources([7] * 4)[0], some(4, 7, seed=4)
    options = {"max_extra_tokens": 2, "num_return_sequences": 2, "return_alignments": True}
    ids, mask = hiding(source, shown).int(), shown.to(dtype)  # ids of 32 bits will do
    with decoding():
        found = beam_search(model, ids, mask, **options)
        for row in range(4):
            alone = beam_search(model, source[row][shown[row]][None], **options)
            width = alone.sequences.size(-1)
            assert torch.equal(found.sequences[row, :, :width], alone.sequences[0])
            torch.testing.assert_close(found.scores[row], alone.scores[0])
            weights = found.alignments[row, :, :width]
            torch.testing.assert_close(weights[..., shown[row]], alone.alignments[0])
            assert not weights[..., ~shown[row]].any()


def test_collators_see_what_the_mask_shows():
    model, shown = make_model(), some(9, 7, seed=6)
    source, target = torch.randint(4, 32, (2, 9, 7), generator=torch.Generator().manual_seed(0))
    plain = [
        {"input_ids": ids[mask].tolist(), "labels": labels.tolist()}
        for ids, mask, labels in zip(source, shown, target, strict=True)
    ]
    masked = [
        {**row, "input_ids": ids.tolist(), "attention_mask": mask.long().tolist()}
        for row, ids, mask in zip(plain, hiding(source, shown), shown, strict=True)
    ]
    found, expected = (model(**PairCollator()(rows)).loss for rows in (masked, plain))
    torch.testing.assert_close(found, expected)


# ---------------------------------------------------------------- padding with the id of the end


@pytest.fixture(params=[END, [END, 9]], ids=str)
def both(request):
    """Return model and tokenizer with padding of its own, and the same with the end's, as in GPT.

    More than one id may end a sentence.
    """
    pairs = []
    for pad in (PAD, END):
        tokenizer = byte_tokenizer()
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(pad)
        ids = {"bos_token_id": START, "unk_token_id": UNKNOWN, "eos_token_id": request.param}
        model = make_model(len(tokenizer), dropout=0.0, pad_token_id=pad, **ids)
        model.generation_config.suppress_tokens = [PAD, START, UNKNOWN]
        pairs.append((model, tokenizer))
    return pairs


TEXTS = ["a dog", "it is a cat", "x", "Grün"]


def test_padding_may_be_the_end_in_forward_search_and_evaluation(both, monkeypatch):
    found = []
    for model, tokenizer in both:
        source = tokenizer(TEXTS, padding=True, return_tensors="pt")
        targets = [tokenizer(text)["input_ids"] for text in TEXTS[::-1]]
        rows = [{"input_ids": ids} for ids in tokenizer(TEXTS)["input_ids"]]
        rows = [{**row, "labels": labels} for row, labels in zip(rows, targets, strict=True)]
        pad = model.config.pad_token_id
        batch = PairCollator(pad_token_id=pad, shift=model.prepare_decoder_input_ids_from_labels)(
            rows
        )
        for inputs in (batch, {**batch, "decoder_input_ids": None}):
            model.zero_grad()
            loss = model(**inputs).loss
            loss.backward()
            found.append([loss, *(p.grad.clone() for p in model.parameters())])
        texts = {"target_language": "de", "max_new_tokens": 7}
        scores = ours.score_model(model, tokenizer, TEXTS, TEXTS[::-1], **texts)
        likelihoods = list(ours.log_probabilities(model, tokenizer, zip(TEXTS, TEXTS, strict=True)))
        options = {"max_new_tokens": 7, "num_beams": 3}
        searched = beam_search(model, **source, max_new_tokens=7, num_return_sequences=2)
        generated = model.generate(**source, **options)
        given = EvalPrediction(predictions=generated.numpy(), label_ids=batch["labels"].numpy())
        pipeline = VanillaTransformerTranslationPipeline(model, tokenizer, device=-1)
        drawn = attention_weights(model, tokenizer, *TEXTS[:2])
        found.append(
            {
                **{"scores": scores, "likelihoods": likelihoods},
                "searched": searched.scores.tolist(),
                "translated": [list(translate(model, tokenizer, TEXTS, **options))],
                "generated": tokenizer.batch_decode(generated, skip_special_tokens=True),
                "measured": ours.compute_metrics(tokenizer, target_language="de")(given),
                "decoded": decode_ids(tokenizer, batch["labels"]),
                "answers": pipeline(TEXTS, **options),
                "drawn": [weights.tolist() for weights in drawn.cross],
            }
        )
    for one, other in ((found[0], found[3]), (found[1], found[4]), (found[0], found[1])):
        for tensor, expected in zip(one, other, strict=True):
            torch.testing.assert_close(tensor, expected)
    assert found[2] == found[5]
    assert found[2]["decoded"] == TEXTS[::-1]


def test_padding_may_be_the_end_in_training(both, tmp_path):
    tables, totals = [], []
    for model, tokenizer in both:
        texts = [f"{number} {'a' * (number % 7)}" for number in range(24)]
        rows = [{"input_ids": ids, "labels": ids[:]} for ids in tokenizer(texts)["input_ids"]]
        data = Dataset.from_list(rows)
        given = {"train": data, "given": {"eval_dataset": data.select(range(9))}}
        given |= {"max_steps": 2, "save_strategy": "no", "batch_tokens": 60}
        place = tmp_path / str(model.config.pad_token_id)
        trainer = make_trainer(place, model=copy.deepcopy(model).float(), **given)
        trainer.train()
        measured = trainer.evaluate()
        tables.append([parameter.detach() for parameter in trainer.model.parameters()])
        totals.append([trainer.progress.target_tokens, measured["eval_loss"]])
        counted = perplexity(trainer.model, *(data[side][:9] for side in ("input_ids", "labels")))
        assert counted["target_tokens"] == sum(len(row["labels"]) for row in rows[:9])
        assert measured["eval_loss"] == pytest.approx(counted["negative_log_likelihood"], rel=1e-5)
    assert totals[0] == pytest.approx(totals[1])
    for one, other in zip(*tables, strict=True):
        torch.testing.assert_close(one, other)
