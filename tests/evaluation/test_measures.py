"""Each measure against another implementation of it, or a count made by hand."""

import math
import random
import unicodedata
from functools import cache
from unittest.mock import Mock

import pytest
from test_evaluation import HYPOTHESES, REFERENCES

import vanilla_transformer
from vanilla_transformer.evaluation import corpus_scores, paired_bootstrap, verdict
from vanilla_transformer.recipes.data import TextPairs
from vanilla_transformer.recipes.options import Evaluation
from vanilla_transformer.storage import saved_model
from vanilla_transformer.storage.metrics import MEASURES
from vanilla_transformer.train.arguments import VanillaTransformerTrainingArguments
from vanilla_transformer.train.averaging import choose_on_validation_pairs
from vanilla_transformer.train.checkpoints import stopped_early
from vanilla_transformer.train.curves import plot_training_curves

sacrebleu = pytest.importorskip("sacrebleu", reason="comes with the extra train")
pytest.importorskip("jiwer", reason="comes with the extra train")
pytest.importorskip("sacremoses", reason="comes with the extra dev")

SEVERAL = [[REFERENCES[0], "the cat sat on the mat"], ["Hello!"], ["a dog runs", "dogs"], ["x", ""]]


def score(name, hypotheses, references, language="de"):
    return corpus_scores(hypotheses, references, target_language=language, measures=[name])[name]


def edits(ours, theirs):
    """Return the fewest insertions, deletions and substitutions between two sequences."""

    @cache
    def distance(i, j):
        if i == 0 or j == 0:
            return i + j
        replaced = distance(i - 1, j - 1) + (ours[i - 1] != theirs[j - 1])
        return min(replaced, distance(i - 1, j) + 1, distance(i, j - 1) + 1)

    return distance(len(ours), len(theirs))


@pytest.mark.parametrize(
    ("name", "split"), [("wer", str.split), ("cer", lambda text: list(" ".join(text.split())))]
)
def test_error_rates_count_the_fewest_edits_to_the_closest_reference(name, split):
    draw = random.Random(0)
    texts = [" ".join(draw.choices("a b cc", k=draw.randrange(7))) for _ in range(160)]
    hypotheses, references = texts[:40], [texts[40 + 3 * i : 43 + 3 * i] for i in range(40)]
    wrong = total = 0
    for text, row in zip(hypotheses, references, strict=True):
        fewest, length = min((edits(split(text), split(each)), len(split(each))) for each in row)
        wrong, total = wrong + fewest, total + length
    assert score(name, hypotheses, references) == pytest.approx(100 * wrong / total)
    shuffled = [draw.sample(row, 3) for row in references]
    assert score(name, hypotheses, shuffled) == score(name, hypotheses, references)
    assert score(name, ["a b"], [""]) == {"wer": 200, "cer": 300}[name]  # of nothing, as of one


def test_exact_match_takes_any_of_several_references():
    assert score("exact_match", HYPOTHESES, REFERENCES) == 25
    assert score("exact_match", HYPOTHESES, SEVERAL) == 50


@pytest.mark.parametrize("name", ["exact_match", "wer", "cer"])
def test_white_space_and_composition_of_a_reference_are_no_error(name):
    """A model's tokenizer writes neither; files have them."""
    texts = ["Grün, n\u00e9 !", "two words"]
    others = [unicodedata.normalize("NFD", texts[0]).replace(" ", "\u00a0"), "two  words \n"]
    assert score(name, texts, others) == score(name, texts, texts)


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_several_references_are_those_of_sacrebleu(name):
    streams = [[row[0] for row in SEVERAL], [row[1] if row[1:] else None for row in SEVERAL]]
    metric = {"bleu": sacrebleu.metrics.BLEU, "chrf": sacrebleu.metrics.CHRF}[name]()
    assert score(name, HYPOTHESES, SEVERAL) == metric.corpus_score(HYPOTHESES, streams).score
    assert score(name, HYPOTHESES, [[row] for row in REFERENCES]) == score(
        name, HYPOTHESES, REFERENCES
    )


def test_tokenized_bleu_uses_lowercased_moses_tokens():
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(lang="de")
    sides = [
        [" ".join(moses.tokenize(text.lower(), escape=False)) for text in side]
        for side in (HYPOTHESES, REFERENCES)
    ]
    expected = sacrebleu.corpus_bleu(sides[0], [sides[1]], tokenize="none", force=True).score
    assert score("tokenized_bleu", HYPOTHESES, REFERENCES, "de-DE") == expected
    upper = [text.upper() for text in HYPOTHESES]
    assert score("tokenized_bleu", upper, REFERENCES) == expected


def test_compound_bleu_equals_multi_bleu_with_split_compounds():
    split = "a rich ##AT##-##AT## text format , e.g. X ##AT##-##AT## Y-Z"
    hypotheses = ["a rich-text format\uff0c e.g. X-Y-Z", "the cat sat on the mat"]
    references = ["a rich-text format, e.g. X-Y-Z", "the cat sat on a mat ."]
    # Counted by hand: the first sentence is right, and 5, 3, 2 and 1 n-grams of the second are.
    length, right = len(split.split()), (5, 3, 2, 1)
    precisions = [(length - n + right[n]) / (length - n + 6 - n) for n in range(4)]
    brevity = math.exp(1 - (length + 7) / (length + 6))
    expected = 100 * brevity * math.prod(precisions) ** 0.25
    assert score("compound_bleu", hypotheses, references, "en") == pytest.approx(expected)
    # Without smoothing, one precision of zero makes the score zero, as in multi-bleu.perl.
    assert score("compound_bleu", ["a b"], ["a c"], "en") == 0


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        ("tokenized_bleu", ("case:lc", "tok:none", "moses:sacremoses-", "-de|")),
        ("compound_bleu", ("case:mixed", "smooth:none", "punct:ascii", "compounds:split")),
        ("wer", ("unit:token", "jiwer:")),
        ("cer", ("unit:character", "jiwer:")),
        ("exact_match", ("nrefs:1",)),
    ],
)
def test_signatures_say_how_a_score_is_computed(name, marks):
    scores = corpus_scores(HYPOTHESES, REFERENCES, target_language="de", measures=[name])
    assert all(mark in scores[f"{name}_signature"] for mark in marks)


@pytest.mark.parametrize("name", MEASURES)
def test_the_module_of_evaluate_gives_the_same(name, tmp_path):
    evaluate = pytest.importorskip("evaluate", reason="comes with the extra train")
    module = vanilla_transformer.metric(name, cache_dir=str(tmp_path))
    assert isinstance(module, evaluate.Metric)
    for references in (REFERENCES, SEVERAL):
        found = module.compute(predictions=HYPOTHESES, references=references, target_language="de")
        scores = corpus_scores(HYPOTHESES, references, target_language="de", measures=[name])
        assert found == {key: scores[key] for key in (name, f"{name}_signature")}


@pytest.mark.parametrize("name", MEASURES)
def test_p_values_are_those_of_a_bootstrap_over_sentences(name):
    draw = random.Random(0)
    np = pytest.importorskip("numpy")
    rows = [[" ".join(draw.choices("ab", k=5)) for _ in range(60)] for _ in range(3)]
    first, second, references = rows
    second = [r if draw.random() < 0.3 else s for s, r in zip(second, references, strict=True)]
    found, signatures = paired_bootstrap(
        [first, second], references, target_language="de", measures=[name], num_samples=40
    )
    assert "seed:12345" in signatures[name]
    drawn = np.random.default_rng(12345).choice(60, size=(40, 60), replace=True)

    def of(texts, chosen):
        return score(name, [texts[i] for i in chosen], [references[i] for i in chosen])

    observed = abs(of(second, range(60)) - of(first, range(60)))
    sampled = np.array([abs(of(second, part) - of(first, part)) for part in drawn])
    chance = (sum(sampled - sampled.mean() > observed) + 1) / 41
    assert found[1][name] == (of(second, range(60)), pytest.approx(chance))
    assert found[0][name] == (of(first, range(60)), None)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", MEASURES)
def test_every_choice_takes_the_texts_with_the_fewest_errors(name, seed, monkeypatch, tmp_path):
    """Of verdicts, patience, averages, penalties, best models and curves, in every measure."""
    draw = random.Random(seed)
    references = [[f"word{draw.randrange(60)}" for _ in range(9)] for _ in range(120)]

    def spoilt(errors):
        rows = [[w if draw.random() >= errors else "wrong" for w in row] for row in references]
        return [" ".join(row) for row in rows]

    texts = {errors: spoilt(errors) for errors in (0.0, 0.05, 0.15, 0.4)}
    references = [" ".join(row) for row in references]
    order = draw.sample([*texts], 4)  # as they come; the better has fewer errors
    values = [score(name, texts[errors], references) for errors in order]
    best = order.index(0.0)

    two = paired_bootstrap(
        *([texts[order[0]], texts[order[1]]], references),
        **{"target_language": "de", "measures": [name], "num_samples": 50},
    )[0]
    word = "better" if order[1] < order[0] else "worse"
    assert verdict(*two, 120).endswith(f"), {word}.")

    history = [{"step": step, f"eval_{name}": value} for step, value in enumerate(values, start=1)]
    for patience in range(1, 5):
        assert stopped_early(history, patience, name) == (3 - best >= patience)
    figure = plot_training_curves(history)
    assert f"(best {values[best]:.4g})" in figure.axes[0].get_title()

    rises = score(name, texts[0.0], references) > score(name, texts[0.4], references)
    for watched in (name, f"eval_{name}"):
        options = {"metric_for_best_model": watched, "report_to": "none", "use_cpu": True}
        made = VanillaTransformerTrainingArguments(tmp_path, **options)
        assert made.greater_is_better is rises

    counts, penalties = (1, 2, 3, 4), (0.6, 1.0, 1.5, 2.0)
    averaged = []
    chooses = choose_on_validation_pairs.__globals__
    for load in ("load_saved_model", "load_saved_tokenizer"):
        monkeypatch.setattr(saved_model, load, lambda *_, **__: Mock())
    monkeypatch.setitem(chooses, "release", Mock())
    monkeypatch.setitem(chooses, "COUNTS", counts)
    monkeypatch.setitem(chooses, "PENALTIES", {False: penalties})
    monkeypatch.setitem(chooses, "mean_of_weights", averaged.append)

    def translations(model, tokenizer, sources, *, num_beams, length_penalty=None, **options):
        if num_beams == 1:
            return texts[order[counts.index(len(averaged[-1]))]]
        assert len(averaged[-1]) == counts[best]
        return texts[order[penalties.index(length_penalty)]]

    monkeypatch.setitem(chooses, "translate", translations)
    pairs, plan = TextPairs(references, references), Evaluation(metric=name)
    found, _ = choose_on_validation_pairs([tmp_path] * 4, pairs, plan, "de")
    assert (found["averaged"], found["length_penalty"]) == (counts[best], penalties[best])


@pytest.mark.parametrize(
    "call", [lambda: score("rouge", ["a"], ["a"]), lambda: vanilla_transformer.metric("rouge")]
)
def test_an_unknown_measure_is_named_with_those_there_are(call):
    with pytest.raises(
        ValueError, match="metric: got 'rouge'; choose from bleu, chrf, exact_match, wer"
    ):
        call()
