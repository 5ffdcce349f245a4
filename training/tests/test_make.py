"""The command that makes a bundled model: each stage runs once; numbers and names are counted."""

from pathlib import Path

import make
import pytest
import torch
from add_characters import add_characters
from count_names import file_of, name_is_kept, number_is_right
from short_pairs import write_pairs
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer import pretrained, translate
from vanilla_transformer.cli.parser import build_parser

PROGRAM = ["-m", "vanilla_transformer.cli"]


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """Return the commands that were run; each only creates the result of its stage."""
    commands, results, stage = [], [], make.stage

    def noted(result, *command):
        results.append(result)
        stage(result, *command)

    def run(words, check):
        commands.append(words[1:])
        folder = results[-1].parent if results[-1].suffix else results[-1]
        folder.mkdir(parents=True, exist_ok=True)
        if results[-1].suffix:
            results[-1].touch()

    monkeypatch.setattr(make, "stage", noted)
    monkeypatch.setattr(make.subprocess, "run", run)
    for split in ("train", "validation", "test"):
        pairs = [("It is 7 o'clock.", "Es ist 7 Uhr."), (f"A {split}.", f"Ein {split}.")]
        write_pairs(tmp_path / f"{split}.jsonl", pairs, "de")
    return commands


@pytest.mark.parametrize(("name", "source"), [("everyday-en-de", "A"), ("everyday-de-en", "Ein")])
@pytest.mark.parametrize(("teacher", "start"), [(None, None), ("runs/teacher", "runs/start")])
def test_every_stage_is_run_once_with_known_options(ran, tmp_path, name, source, teacher, start):
    more = tmp_path / "more"
    more.write_text(f"{source} test\nNew.\n", encoding="utf-8")
    for _ in range(2):
        make.make(name, tmp_path, tmp_path / "work", teacher, start, more)
    stages = [Path(words[0]).stem if words[:2] != PROGRAM else words[2] for words in ran]
    begin = ["short_pairs", "short_pairs", *["names_and_numbers", "train"] * (start is None)]
    taught = ["translate", "names_and_numbers", "add_characters", "train"]
    end = ["round_weights", "evaluate", "publish"]
    assert stages == [*begin, *taught, *end]
    assert [words[-1] for words in ran if "add_characters" in words[0]] == ["de"]
    first = str(tmp_path / "work/first")
    assert [words[3] for words in ran if words[2] == "translate"] == [teacher or start or first]
    for words in ran:
        if words[:2] == PROGRAM:
            assert build_parser().parse_known_args(words[2:])[1] == []
    (sources,) = (tmp_path / "work").glob("sources.*")
    lines = sources.read_text(encoding="utf-8").splitlines()
    assert lines[-2:] == [f"{source} train.", "New."]  # no test source
    assert len(lines) == (3 if teacher is None else 2)  # a given teacher gets no digits


@pytest.mark.parametrize(
    ("number", "translation", "target", "is_right"),
    [
        ("6:42", "Der Zug fährt um 6.42 Uhr.", "de", True),
        ("6:42", "Der Zug fährt um 16:42 Uhr.", "de", False),
        ("3,600", "Sie hat 3.600 Anhänger.", "de", True),
        ("44", "Er aß 444 Pfannkuchen.", "de", False),
        ("10:05", "现在10点5分。", "zh", True),
        ("10:05", "现在10点50分。", "zh", False),
        ("3,600", "有3600人。", "zh", True),
        ("3,600", "She has 3,600 followers.", "en", True),
    ],
)
def test_a_number_counts_in_the_digits_of_the_language(number, translation, target, is_right):
    assert number_is_right(number, translation, target) == is_right


def test_a_name_counts_whole_or_in_the_genitive():
    assert name_is_kept("Malika", "Malikas Haus")
    assert name_is_kept("Agnes", "Agnes' Haus")
    assert name_is_kept("Gent|Ghent", "Ghent's station")
    assert not name_is_kept("Wolf", "Wolfgang starb.")


@pytest.mark.parametrize("pair", ["en-de", "en-zh", "de-en"])
def test_the_page_tells_what_the_models_keep(pair):
    """The list has the translations, but for rounding errors; README.md counts what they keep."""
    source, target = pair.split("-")
    text = file_of(source).read_text(encoding="utf-8")
    head, *rows = [line.split("\t") for line in text.splitlines()]
    model = f"everyday-{pair}"
    told = [row[head.index(model)] for row in rows]
    folder = pretrained(model)
    loaded = [kind.from_pretrained(folder) for kind in (AutoModelForSeq2SeqLM, AutoTokenizer)]
    found = translate(*loaded, [row[0] for row in rows])
    assert sum(ours == theirs for ours, theirs in zip(found, told, strict=True)) >= 95
    numbers = sum(
        number_is_right(row[2], text, target) for row, text in zip(rows, told, strict=True)
    )
    names = sum(name_is_kept(row[1], text) for row, text in zip(rows, told, strict=True))
    names = sum(row[-1] == "yes" for row in rows) if target == "zh" else names
    said = "plausible" if target == "zh" else "kept"
    page = (file_of("en").parent / "README.md").read_text(encoding="utf-8")
    assert f"| {model} | {names} of 100 {said} | {numbers} of 100 right |" in page


def test_a_start_gets_pieces_for_characters_that_it_spells_in_bytes(tmp_path):
    start, before = pretrained("everyday-en-zh"), ("I like tea.", "我喜欢茶。")
    old = AutoTokenizer.from_pretrained(start)
    spelt = [each for each in "齄鬱" if len(old.tokenize(each)) > 1]  # in no training pair
    assert spelt
    add_characters(start, ["我", *spelt], tmp_path / "grown")
    new = AutoTokenizer.from_pretrained(tmp_path / "grown")
    models = [AutoModelForSeq2SeqLM.from_pretrained(path) for path in (start, tmp_path / "grown")]
    tables = [model.get_input_embeddings().weight for model in models]
    assert torch.equal(tables[1][: len(old)], tables[0])
    for character in spelt:
        (piece,) = new.tokenize(character)
        pieces = old.convert_tokens_to_ids(old.tokenize(character))
        mean = tables[0][pieces].mean(dim=0)
        torch.testing.assert_close(tables[1][new.convert_tokens_to_ids(piece)], mean)
        text = f"我{character}们"
        assert new.decode(new(text)["input_ids"], skip_special_tokens=True) == text
    for text in before:
        assert new(text) == old(text)  # other texts are split as before
