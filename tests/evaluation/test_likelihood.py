"""Log-probabilities of given translations, compared with a loop over tokens and with the search."""

import pytest
import torch
from test_evaluation import TOKENIZER, make_model

from vanilla_transformer import evaluation as ours
from vanilla_transformer.beam_search import beam_search
from vanilla_transformer.evaluation import models

PAIRS = [("one", "eins"), ("a longer sentence", "x"), ("Ä", "noch ein Satz"), ("two", "")]


@pytest.fixture
def model():
    return make_model()


def by_hand(model, source, target):
    """Return the log-probability by one call per token, and the number of tokens."""
    ids = torch.tensor([TOKENIZER(source)["input_ids"]])
    labels = TOKENIZER(text_target=target)["input_ids"]
    written, total = [model.config.decoder_start_token_id], 0.0
    for label in labels:
        logits = model(input_ids=ids, decoder_input_ids=torch.tensor([written])).logits
        total += logits[0, -1].log_softmax(-1)[label].item()
        written.append(label)
    return total, len(labels)


@pytest.mark.parametrize("tokens_at_once", [1, 40, 4096])
def test_log_probabilities_equal_a_loop_over_tokens(model, tokens_at_once):
    model.train()  # must not cause dropout
    found = list(ours.log_probabilities(model, TOKENIZER, PAIRS, tokens_at_once=tokens_at_once))
    assert model.training
    model.eval()
    with torch.no_grad():
        for likelihood, pair in zip(found, PAIRS, strict=True):
            total, tokens = by_hand(model, *pair)
            assert likelihood.log_probability == pytest.approx(total, rel=1e-9)
            assert likelihood.target_tokens == tokens


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_only_the_logits_of_half_precision_are_rounded(model, dtype):
    model = model.to(dtype).eval()
    found = list(ours.log_probabilities(model, TOKENIZER, PAIRS, tokens_at_once=1))
    for likelihood, (source, target) in zip(found, PAIRS, strict=True):
        batch = TOKENIZER(source, text_target=target, return_tensors="pt")
        with torch.inference_mode():
            logits = model(**batch).logits.double()
        gold = logits.log_softmax(-1).gather(-1, batch["labels"][..., None])
        assert likelihood.log_probability == pytest.approx(gold.sum().item(), rel=1e-5)


def test_log_probabilities_are_search_scores_without_the_penalty(model):
    letters = TOKENIZER("abcdefgh", add_special_tokens=False)["input_ids"]
    model.eval()
    bias = torch.zeros(len(TOKENIZER))
    bias[2] = 1.0  # untrained, it would never end
    model.lm_head.register_forward_hook(lambda module, inputs, output: output + bias)
    # Only letters, so that the decoded text is encoded to the same tokens.
    suppressed = [token for token in range(len(TOKENIZER)) if token not in (*letters, 2)]
    sources = ["one", "another one"]
    batch = TOKENIZER(sources, padding=True, return_tensors="pt")
    found = beam_search(
        model, batch["input_ids"], batch["attention_mask"],
        suppress_tokens=suppressed, num_beams=3, num_return_sequences=3, length_penalty=0.6,
    )  # fmt: skip
    compared = 0
    for row, source in enumerate(sources):
        for place in range(3):
            if not found.finished[row, place]:
                continue
            text = TOKENIZER.decode(found.sequences[row, place], skip_special_tokens=True)
            (likelihood,) = ours.log_probabilities(model, TOKENIZER, [(source, text)])
            length = found.lengths[row, place].item()
            expected = found.scores[row, place].item() * ((5 + length) / 6) ** 0.6
            assert likelihood.target_tokens == length
            assert likelihood.log_probability == pytest.approx(expected, rel=1e-5)
            compared += 1
    assert compared


def test_pairs_are_read_one_window_at_a_time(model, monkeypatch):
    monkeypatch.setattr("vanilla_transformer.evaluation.models.WINDOW", 3)
    read = []
    found = ours.log_probabilities(model, TOKENIZER, (read.append(p) or p for p in PAIRS * 2))
    assert not read
    next(found)
    assert len(read) == 3
    assert len(list(found)) == 7


def test_blank_sources_are_refused_by_number(model, monkeypatch):
    """Also a zero-width space alone, which the tokenizer drops."""
    for source in (" ", "\u200b"):
        with pytest.raises(ValueError, match="Pair 2 has a blank source"):
            list(ours.log_probabilities(model, TOKENIZER, [("a", "b"), (source, "a")]))
        monkeypatch.setattr(models, "encode", lambda *_, **__: [[5], []])
