"""The models that come with the package: their files, and what they translate."""

import json
import sys
from pathlib import Path

import pytest
import torch
from command_line import error_of
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

import vanilla_transformer
from vanilla_transformer.cli import main
from vanilla_transformer.storage.shipped import pretrained_models
from vanilla_transformer.translation import translate

MODELS = pretrained_models()
SENTENCES = Path(__file__).parents[1] / "training" / "pretrained" / "sentences.tsv"
SIZE = 5_000_000  # bytes, of a model with its tokenizer


def newcomers(language):
    """Return the hundred sentences, and for a language what its model made of them."""
    rows = [line.split("\t") for line in SENTENCES.read_text(encoding="utf-8").splitlines()]
    column = rows[0].index(language)
    return [row[0] for row in rows[1:]], [row[column] for row in rows[1:]]


@pytest.mark.parametrize("name", MODELS)
def test_files_are_small_and_computed_in_float32(name):
    folder = Path(vanilla_transformer.pretrained(name))
    assert sum(path.stat().st_size for path in folder.iterdir()) < SIZE
    saved = load_file(folder / "model.safetensors")
    assert {tensor.dtype for tensor in saved.values()} == {torch.bfloat16}
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert "CC BY 2.0 FR" in (folder / "README.md").read_text(encoding="utf-8")
    digests = json.loads((folder / "metrics.json").read_text())["data"]["files"]
    assert all(len(file["sha256"]) == 64 for file in digests["train"])


@pytest.mark.parametrize("name", MODELS)
def test_newcomers_sentences_are_translated_as_written_down(name):
    """Processors round in other ways, which may change a word in a few of them."""
    sources, expected = newcomers(name.rpartition("-")[2])
    folder = vanilla_transformer.pretrained(name)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    found = list(translate(model, AutoTokenizer.from_pretrained(folder), sources))
    same = sum(ours == theirs for ours, theirs in zip(found, expected, strict=True))
    assert same >= 95


def test_pipeline_and_command_know_the_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "source.txt").write_text("Thank you.\nGood night.\n")
    translator = pipeline("translate", model=vanilla_transformer.pretrained("everyday-en-de"))
    texts = [found["translation_text"] for found in translator(["Thank you.", "Good night."])]
    assert texts == ["Danke!", "Gute Nacht!"] or "Danke" in texts[0]
    assert main(["translate", "everyday-en-de", "source.txt"]) == 0
    assert capsys.readouterr().out.splitlines() == texts


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "everyday-en-de").mkdir()
    (tmp_path / "source.txt").write_text("Hi.\n")
    assert "holds no trained model" in error_of(
        ["translate", "everyday-en-de", "source.txt"], capsys
    )


@pytest.mark.parametrize("name", ["everyday-en-dee", "everyday", "", "../recipes"])
def test_unknown_names_are_answered_with_the_known_ones(name, tmp_path, monkeypatch, capsys):
    with pytest.raises(ValueError, match="allowed: everyday-en-de"):
        vanilla_transformer.pretrained(name)
    monkeypatch.chdir(tmp_path)
    if name:
        assert "everyday-en-de" in error_of(["translate", name, "source.txt"], capsys)


def test_python_alone_knows_the_folder():
    """`import vanilla_transformer.pretrained` would hide the function behind the folder."""
    assert callable(vanilla_transformer.pretrained)
    assert "vanilla_transformer.pretrained" not in sys.modules
