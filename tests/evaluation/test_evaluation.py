"""Scores, compared with sacreBLEU itself, a plain float64 loop and counts made by hand."""

import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import byte_tokenizer, tiny_config
from transformers import EvalPrediction

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer import evaluation as ours
from vanilla_transformer.evaluation.models import decode_ids, perplexity
from vanilla_transformer.evaluation.scores import (
    bleu_tokenizer,
    installed_bleu_tokenizer,
    useless_outputs,
)
from vanilla_transformer.translation.many_texts import translate
from vanilla_transformer.written_forms import WrittenForms

sacrebleu = pytest.importorskip("sacrebleu", reason="comes with the extra train")

HYPOTHESES = ["the cat sat on the mat .", "Hello, World!", "a dog runs", ""]
REFERENCES = ["the cat sat on a mat .", "Hello, World!", "A dog runs on the beach.", "x"]


TOKENIZER = byte_tokenizer()


def make_model():
    torch.manual_seed(0)
    config = tiny_config(len(TOKENIZER), dropout=0.5, label_smoothing=0.3)
    return VanillaTransformerForConditionalGeneration(config).double()


@pytest.fixture
def model():
    return make_model()


def random_pairs(number=23):
    generator = random.Random(0)

    def sentence(longest):
        return [generator.randrange(4, 200) for _ in range(generator.randrange(longest))] + [2]

    return [[sentence(longest) for _ in range(number)] for longest in (9, 15)]


# ---------------------------------------------------------------------------- scores of texts


@pytest.mark.parametrize(
    ("language", "name"),
    [
        ("de", "13a"), ("EN-us", "13a"), ("zh", "zh"), ("zh_Hans_CN", "zh"), ("zho_Hans", "zh"),
        ("th", "char"), ("lao", "char"), ("my-MM", "char"),
        ("ZH-TW", "zh"), ("cmn", "zh"), ("ja", "ja-mecab"), ("jpn_Jpan", "ja-mecab"),
        ("ko", "ko-mecab"), ("zhuang", "13a"), ("chinese", "zh"), ("yue", "zh"), ("lzh", "zh"),
        ("Japanisch", "ja-mecab"), ("korean", "ko-mecab"), ("khm", "char"), ("zh-Latn", "13a"),
        ("bo", "char"), ("target", "13a"), ("phonemes", "13a"), ("vi", "13a"),
    ],
)  # fmt: skip
def test_bleu_tokenizer_follows_the_target_language(language, name):
    assert bleu_tokenizer(language) == name


def test_scores_equal_those_of_sacrebleu():
    scores = ours.corpus_scores(HYPOTHESES, REFERENCES, target_language="de")
    bleu = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES])
    chrf = sacrebleu.metrics.CHRF()
    assert scores["bleu"] == bleu.score
    assert scores["chrf"] == chrf.corpus_score(HYPOTHESES, [REFERENCES]).score
    assert scores["exact_match"] == 25.0
    assert scores["num_sentences"] == 4
    assert "case:mixed|eff:no|tok:13a|smooth:exp|version:" in scores["bleu_signature"]
    assert "case:mixed" in scores["chrf_signature"]


@pytest.mark.parametrize(
    ("hypotheses", "warning"),
    [(["x"] * 4, "All 4 translations are the same or empty: 'x'"),
     (["", "x", "", "x"], "All 4 translations are the same or empty: 'x'"),
     ([""] * 4, "All 4 translations are empty"),
     (HYPOTHESES, "")],
)  # fmt: skip
def test_translations_that_are_all_the_same_give_one_warning(hypotheses, warning, caplog):
    ours.corpus_scores(hypotheses, REFERENCES, target_language="de")
    assert len(caplog.messages) == bool(warning)
    assert warning in caplog.text
    caplog.clear()
    ours.corpus_scores(hypotheses, hypotheses[:1] * 4, target_language="de")
    assert not caplog.messages  # the references are all the same too


@pytest.mark.parametrize(
    ("hypotheses", "sources", "measures", "told"),
    [(["x"] * 4, ["a"] * 4, ["bleu"], "All 4 translations are the same or empty: 'x'"),
     (HYPOTHESES, REFERENCES, ["bleu"], "BLEU is 41.6; the untranslated sources have 100.0"),
     (HYPOTHESES, REFERENCES, ["wer"], "token error rate is 37.5; the untranslated sources have"),
     (list("abcd"), list("efgh"), ["exact_match"], "exact match is 0.0"),
     (REFERENCES, HYPOTHESES, ["wer", "bleu"], None),
     (HYPOTHESES, list("abcd"), ["bleu", "wer"], None)],
)  # fmt: skip
def test_useless_outputs_are_alike_or_score_below_the_sources(hypotheses, sources, measures, told):
    options = {"target_language": "de", "measures": measures}
    result = ours.corpus_scores(hypotheses, REFERENCES, **options)
    result |= {"hypotheses": hypotheses, "references": REFERENCES}
    result["copy_baseline"] = ours.corpus_scores(sources, REFERENCES, **options)
    found = useless_outputs({"test": result})
    assert [warning["kind"] for warning in found] == ["outputs"] * (told is not None)
    assert (told or "") in str(found)


@pytest.fixture
def without_mecab(monkeypatch):
    """Make SacreBLEU behave as if its extras were not installed."""
    from sacrebleu.metrics import bleu

    tokenizer_of = bleu._get_tokenizer

    def missing():
        raise RuntimeError("pip install sacrebleu[...]")

    monkeypatch.setattr(
        bleu, "_get_tokenizer", lambda name: missing if "mecab" in name else tokenizer_of(name)
    )
    installed_bleu_tokenizer.cache_clear()
    yield
    installed_bleu_tokenizer.cache_clear()


@pytest.mark.parametrize("language", ["ja", "ko"])
def test_missing_mecab_falls_back_to_characters_with_one_warning(language, without_mecab, caplog):
    for _ in range(2):
        scores = ours.corpus_scores(["ねこ"], ["ねこ"], target_language=language)
        assert "tok:char" in scores["bleu_signature"]
    assert caplog.text.count(f"pip install 'sacrebleu[{language}]'") == 1


@pytest.mark.parametrize(
    "score",
    [
        lambda h, r: ours.corpus_scores(h, r, target_language="de"),
        lambda h, r: ours.score_model(None, None, h, r, target_language="de"),
    ],
)
def test_different_lengths_and_empty_lists_are_errors(score):
    with pytest.raises(ValueError, match=r": 2, references: 1"):
        score(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="no sentences"):
        score([], [])


# -------------------------------------------------------------------------------- perplexity


def plain_perplexity(model, sources, targets):
    """Compute perplexity and number of tokens in float64, one pair at a time."""
    losses = []
    model.eval()
    for source, target in zip(sources, targets, strict=True):
        labels = torch.tensor([target])
        decoder_input_ids = torch.cat([torch.tensor([[1]]), labels[:, :-1]], dim=1)
        logits = model(
            input_ids=torch.tensor([source]), decoder_input_ids=decoder_input_ids
        ).logits.double()
        losses += (-logits.log_softmax(-1).gather(-1, labels[..., None])).flatten().tolist()
    return math.exp(sum(losses) / len(losses)), len(losses)


def test_perplexity_equals_plain_float64_loop_at_any_batch_size(model, monkeypatch):
    sides = random_pairs()
    expected, tokens = plain_perplexity(model, *sides)
    model.train()  # dropout and label smoothing must not affect the perplexity
    for tokens_at_once in (1, 17, 100, 100_000):
        found = perplexity(model, *sides, tokens_at_once=tokens_at_once)
        assert found["perplexity"] == pytest.approx(expected, rel=1e-12)
        assert found["target_tokens"] == tokens
        assert found["negative_log_likelihood"] == pytest.approx(math.log(expected), rel=1e-12)
    assert model.training
    monkeypatch.setattr("vanilla_transformer.evaluation.models.WINDOW", 7)
    assert perplexity(model, *sides)["perplexity"] == pytest.approx(expected)


def test_likelihood_that_is_not_finite_is_an_error(model):
    with torch.no_grad():
        model.model.shared.weight[7] = float("nan")
    with pytest.raises(ValueError, match="nan"):
        perplexity(model, *random_pairs())


@pytest.mark.parametrize(
    ("sources", "targets", "message"),
    [
        ([], [], "no target tokens"),
        ([[5, 2]], [[]], "no target tokens"),
        ([[5], []], [[2], [5, 2]], "A source has no token; leave it out"),
    ],
)
def test_pairs_without_tokens_are_an_error(model, sources, targets, message):
    with pytest.raises(ValueError, match=message):
        perplexity(model, sources, targets)


@pytest.mark.parametrize(
    ("sources", "references", "message"),
    [
        (["one"] * 40 + ["x" * 70_000], ["a"] * 41, "Input 41 has [0-9]+ tokens; at most 4096"),
        (["a", "b"], ["a", "b" * 12], "pair 2 has 13 tokens, but the model has 9 positions"),
    ],
)
def test_too_long_texts_are_refused_before_work(model, monkeypatch, sources, references, message):
    monkeypatch.setattr("vanilla_transformer.evaluation.models.translate", None)
    monkeypatch.setattr("vanilla_transformer.texts.targets.longest_sequence", lambda model: 9)
    with pytest.raises(ValueError, match=message):
        ours.score_model(model, TOKENIZER, sources, references, target_language="de")


# ------------------------------------------------------------------------- the whole evaluation


def test_evaluate_model_scores_translations_and_the_copy_baseline(model):
    sources = ["one", "two", "a longer sentence", "Ä"]
    model.eval()
    options = {"num_beams": 2, "max_new_tokens": 4}
    expected = list(translate(model, TOKENIZER, sources, **options))
    references = [expected[0], "two", "something else", expected[3]]
    found = ours.score_model(model, TOKENIZER, sources, references, target_language="zh", **options)
    assert found["hypotheses"] == expected
    for key, value in ours.corpus_scores(expected, references, target_language="zh").items():
        assert found[key] == value
    assert found["copy_baseline"] == ours.corpus_scores(sources, references, target_language="zh")
    ids = [TOKENIZER(texts)["input_ids"] for texts in (sources, references)]
    assert found["perplexity"] == pytest.approx(plain_perplexity(model, *ids)[0])


def test_perplexity_is_of_the_sources_that_are_translated(model):
    tokenizer = byte_tokenizer()
    WrittenForms(mark=".").to_tokenizer(tokenizer)
    options = {"target_language": "de", "max_new_tokens": 1}
    scores = [ours.score_model(model, tokenizer, [text], ["x"], **options) for text in ("a", "a.")]
    assert scores[0]["perplexity"] == scores[1]["perplexity"]


# ------------------------------------------------------------------ predictions of a Trainer


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_decode_ids_ignores_pad_tokens_and_ignored_labels(texts, generator):
    rows = TOKENIZER(texts)["input_ids"]
    width = max(map(len, rows)) + 6
    padded = []
    for row in rows:
        row = list(row)
        while len(row) < width:
            row.insert(generator.randrange(len(row) + 1), generator.choice([0, -100, -1]))
        padded.append(row)
    for ids in (padded, np.array(padded), torch.tensor(padded)):
        assert decode_ids(TOKENIZER, ids) == texts


def test_compute_metrics_equals_corpus_scores():
    texts = ["one two three four", "fünf", "six seven eight nine ten"]
    labels = TOKENIZER(texts, padding=True)["input_ids"]
    labels = np.where(np.array(labels) == 0, -100, labels)
    predictions = TOKENIZER([*texts[:2], "six seven"], padding=True)["input_ids"]
    predictions = np.pad(np.array(predictions), ((0, 0), (0, 7)), constant_values=-100)
    expected = ours.corpus_scores([*texts[:2], "six seven"], texts, target_language="de")
    compute = ours.compute_metrics(TOKENIZER, target_language="de")
    for given_predictions in (predictions, (predictions, np.zeros(3))):
        found = compute(EvalPrediction(predictions=given_predictions, label_ids=labels))
        assert found == {key: expected[key] for key in ("bleu", "chrf", "exact_match")}
