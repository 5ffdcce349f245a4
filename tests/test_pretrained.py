"""The models that come with the package: their files, and what they translate."""

import json
import re
from pathlib import Path
from random import Random
from string import ascii_lowercase

import pytest
import torch
from command_line import error_of
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import vanilla_transformer
from vanilla_transformer.cli import main
from vanilla_transformer.evaluation.robustness import VARIANTS, robustness, without_mark
from vanilla_transformer.storage.shipped import pretrained_models
from vanilla_transformer.translation import translate, translate_nbest
from vanilla_transformer.translation.doubt_threshold import set_doubt_threshold
from vanilla_transformer.written_forms import upper

MODELS = pretrained_models()
TRANSLATORS = [name for name in MODELS if name.startswith("everyday")]
ROOT = Path(__file__).parents[1]
PAGES = ROOT / "training" / "pretrained"
SIZE = 5_000_000  # bytes, of a model with its tokenizer


def load(name):
    """Return a model and its tokenizer."""
    folder = vanilla_transformer.pretrained(name)
    return [kind.from_pretrained(folder) for kind in (AutoModelForSeq2SeqLM, AutoTokenizer)]


def table(page):
    """Return the names of the columns of a list, and its rows."""
    head, *rows = [line.split("\t") for line in (PAGES / page).read_text("utf-8").splitlines()]
    return head, rows


def typed_list(name):
    """Return the list of typed sentences in a model's source language."""
    return table("typed.tsv" if "-en-" in name else "typed.de.tsv")


def development_list(name):
    """Return sentences, what a model makes of them, whether that is right, and if in training."""
    head, rows = table("sentences.tsv")
    column = head.index(name)
    assert head[column + 1 : column + 3] == ["right", "in training"]
    yes = {"yes": True, "no": False}
    return [
        (row[0], row[column], *(yes[it] for it in row[column + 1 : column + 3])) for row in rows
    ]


@pytest.mark.parametrize("name", MODELS)
def test_files_are_small_and_computed_in_float32(name):
    folder = Path(vanilla_transformer.pretrained(name))
    assert sum(path.stat().st_size for path in folder.iterdir()) < SIZE
    saved = load_file(folder / "model.safetensors")
    assert {tensor.dtype for tensor in saved.values()} == {torch.bfloat16}
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    licence = "CC BY 2.0 FR" if name in TRANSLATORS else "Carnegie Mellon University. All rights"
    assert licence in (folder / "README.md").read_text(encoding="utf-8")
    digests = json.loads((folder / "metrics.json").read_text())["data"]["files"]
    assert all(len(digest) == 64 for digest in digests["train"].values())


@pytest.mark.parametrize("name", TRANSLATORS)
def test_every_form_of_a_typed_sentence_is_translated_alike(name):
    """As on the page: as written, in capitals, and in lower case without marks."""
    model, tokenizer = load(name)
    head, rows = typed_list(name)
    column = head.index(name)
    sources = [row[0] for row in rows]
    forms = [str, str.upper, lambda text: without_mark(text).lower()]
    written, shouted, bare = ([*translate(model, tokenizer, map(form, sources))] for form in forms)
    assert sum(row[column] == ours for row, ours in zip(rows, written, strict=True)) >= 95
    assert all(text == upper(text, name.split("-")[2]) for text in shouted)
    least = 97 if "-en-" in name else 93  # other cases hide which German words are nouns
    assert sum(a.lower() == b.lower() for a, b in zip(written, shouted, strict=True)) >= least
    assert sum(without_mark(a) == b for a, b in zip(written, bare, strict=True)) >= least
    right = sum(row[column + 1] == "yes" for row in rows)
    assert f"| {right} of 100 |" in (PAGES / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_model_is_less_sure_of_what_it_cannot_know(name):
    model, tokenizer = load(name)
    usual = [source for source, *_ in typed_list(name)[1]]
    random = Random(0)
    noise = [
        " ".join("".join(random.choices(ascii_lowercase, k=5)) for _ in range(4)) for _ in range(40)
    ]
    flagged = [
        sum(bool(best.doubtful) for best, *_ in translate_nbest(model, tokenizer, texts))
        for texts in (usual, noise)
    ]
    assert flagged[0] <= 15  # greetings and single words are short, and have several translations
    assert flagged[1] == 40
    kept = model.generation_config.doubtful_below
    percentiles = set_doubt_threshold(model, tokenizer, usual)
    assert model.generation_config.doubtful_below != kept
    assert [*percentiles.values()] == sorted(percentiles.values())
    assert set_doubt_threshold(model, tokenizer, []) == {}
    assert model.generation_config.doubtful_below is None


def test_robustness_scores_each_form_beside_the_text_as_written():
    model, tokenizer = load("everyday-en-de")
    sources = [source for source, *_ in development_list("everyday-en-de")][20:60]
    own = list(translate(model, tokenizer, sources))
    scores = robustness(model, tokenizer, sources, own, languages=("en", "de"), measures=["chrf"])
    assert scores.keys() == VARIANTS.keys()
    assert scores["as written"]["chrf"] == scores["capitals"]["chrf"] == pytest.approx(100)
    assert 20 < scores["a typo"]["chrf"] < 90
    assert scores["a typo"]["num_sentences"] == 40


@pytest.mark.parametrize("name", [name for name in TRANSLATORS if "-en-" in name])
def test_sentences_of_the_list_are_translated_as_written_down(name):
    """Processors round in other ways, which may change a word in a few of them."""
    folder = vanilla_transformer.pretrained(name)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    rows = development_list(name)
    found = translate(model, AutoTokenizer.from_pretrained(folder), [source for source, *_ in rows])
    same = sum(ours == theirs for ours, (_, theirs, *_) in zip(found, rows, strict=True))
    assert (len(rows), same >= 95) == (100, True)
    seen, new = ([right for *_, right, known in rows if known is it] for it in (True, False))
    told = (PAGES / "README.md").read_text(encoding="utf-8")
    assert f"| {sum(seen)} of {len(seen)} | {sum(new)} of {len(new)} |" in told
    assert f"{sum(new)} of {len(new)}" in (ROOT / "README.md").read_text(encoding="utf-8")
    chinese = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
    assert f"{len(new)} 句中的 {sum(new)} 句" in chinese


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "everyday-en-de").mkdir()
    line = error_of(capsys, "translate", "everyday-en-de", "source.txt")
    assert "everyday-en-de has no trained model" in line


def test_commands_take_the_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test.en").write_text("Good morning.\nI have a dog.\n", encoding="utf-8")
    (tmp_path / "test.de").write_text("Guten Morgen.\nIch habe einen Hund.\n", encoding="utf-8")
    pairs = ["--pair", "en-de", "--test-file", "test.en,test.de"]
    assert main(["evaluate", "everyday-en-de", *pairs]) == 0
    assert main(["compare", "everyday-en-de", "everyday-en-zh", *pairs]) == 0
    assert main(["score", "everyday-en-de", "test.en,test.de"]) == 0
    assert main(["export", "stock", "everyday-en-de", "exports/marian"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^ +everyday-en-zh +\d", printed, re.MULTILINE)  # by its name


@pytest.mark.parametrize("name", ["everyday-en-dee", "everyday", "", "../recipes"])
def test_unknown_names_are_answered_with_the_known_ones(name, tmp_path, monkeypatch, capsys):
    with pytest.raises(ValueError, match="allowed: english-phonemes, everyday-de-en, everyday"):
        vanilla_transformer.pretrained(name)
    monkeypatch.chdir(tmp_path)
    if name:
        assert "everyday-en-de" in error_of(capsys, "translate", name, "source.txt")


def test_words_have_the_same_phonemes_in_any_case():
    model, tokenizer = load("english-phonemes")
    assert sum(path.stat().st_size for path in MODELS["english-phonemes"].iterdir()) < 3_000_000
    words = {"attention": "AH T EH N SH AH N", "teacher": "T IY CH ER", "cat": "K AE T"}
    for typed in (words, map(str.upper, words), map(str.title, words)):
        assert list(translate(model, tokenizer, list(typed))) == [*words.values()]


def test_error_rates_of_phonemes_on_the_pages_are_those_of_the_model():
    scores = json.loads((MODELS["english-phonemes"] / "metrics.json").read_text())["scores"]["test"]
    assert scores["num_sentences"] == 12_000
    rates = f"{scores['wer']:.1f} % of phonemes and {100 - scores['exact_match']:.1f} % of words"
    for page in (PAGES / "README.md", MODELS["english-phonemes"] / "README.md"):
        assert rates in page.read_text(encoding="utf-8")
