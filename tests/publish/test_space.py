"""The demo Space: what its page computes and shows, and whether its files are complete."""

import html
import importlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from huggingface_hub import SpaceCard
from published_runs import METRICS, save_all, tiny_model

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.convert.exporters.stock import export_stock
from vanilla_transformer.data.tokenizer import train_tokenizer
from vanilla_transformer.publish.space import write_space

pytestmark = pytest.mark.pictures

ROOT = Path(__file__).parents[2]
SPACE = ROOT / "model_cards" / "space"
SENTENCE = "A man in an orange hat."
SAMPLES = [
    {"source": f"A man, {n}.", "reference": "Ein Mann.", "translation": ""} for n in range(20)
]


@pytest.fixture(scope="module")
def translation():
    """Import the Space's module `translation`."""
    sys.path.insert(0, str(SPACE))
    try:
        yield importlib.import_module("translation")
    finally:
        sys.path.remove(str(SPACE))
        sys.modules.pop("translation", None)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Return a random model saved like a run; its encoder and decoder differ in depth."""
    tokenizer = train_tokenizer([SENTENCE, "Ein Mann."] * 2, vocab_size=290, show_progress=False)
    sizes = {"vocab_size": len(tokenizer), "encoder_layers": 3, "decoder_layers": 2}
    model = tiny_model(**sizes, decoder_attention_heads=4)
    with torch.no_grad():
        # With small tied embeddings a random model repeats its last token.
        model.model.shared.weight.normal_(std=0.3)
    folder = save_all(tmp_path_factory.mktemp("run"), model, tokenizer)
    metrics = METRICS | {"samples": {"one": SAMPLES[:9], "two": SAMPLES[9:]}}
    (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def translator(translation, directory):
    return translation.load_translator(str(directory))


@pytest.fixture(scope="module")
def attention(translation, translator):
    return translation.attention_of(translator, SENTENCE, "Ein Mann.")


# ---------------------------------------------------------------------------- model and examples


def test_model_id_variable_takes_precedence_over_the_file(translation, tmp_path, monkeypatch):
    monkeypatch.setattr(translation, "HERE", tmp_path)
    monkeypatch.delenv("MODEL_ID", raising=False)
    assert Path(translation.model_name()).name == "everyday-en-de"
    (tmp_path / "model_id").write_text("user/file\n")
    assert translation.model_name() == "user/file"
    monkeypatch.setenv("MODEL_ID", "user/variable")
    assert translation.model_name() == "user/variable"
    link = translation.markdown_link("user/name")
    assert link == "[user/name](https://huggingface.co/user/name)"
    assert "](" not in translation.markdown_link(str(tmp_path))


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        (("de", "en"), ("German", "English", True)),
        (("pt_BR", "zh-Hant"), ("Portuguese", "Chinese", True)),
        (("letters", "phonemes"), ("letters", "phonemes", False)),
        ((None, None), ("Source text", "Target text", False)),
    ],
)
def test_sides_and_examples_are_those_of_the_models_metrics(translation, tmp_path, sides, expected):
    recipe = dict(zip(("source_language", "target_language"), sides, strict=True))
    for samples in ({"one": SAMPLES[:9], "two": SAMPLES[9:]}, {"card": SAMPLES[::6]}):
        metrics = METRICS | {"recipe": recipe, "samples": samples}
        (tmp_path / "metrics.json").write_text(json.dumps(metrics))
        *found, examples = translation.task_of(str(tmp_path))
        assert tuple(found) == expected
        assert examples == [f"A man, {n}." for n in (0, 6, 12)]


@pytest.mark.parametrize("content", [None, '{"scores": {"test": {"bleu": 1.0}}}', "{"])
def test_model_without_metrics_has_a_page_too(translation, tmp_path, content):
    if content is not None:
        (tmp_path / "metrics.json").write_text(content)
    assert translation.task_of(str(tmp_path)) == ("Source text", "Target text", False, [])


# --------------------------------------------------------------------------------- the translation


def test_too_long_text_is_rejected_before_tokenizing(translation, translator, monkeypatch):
    """A browser enforces the text box's limit, other clients may not."""
    most = translation.MAX_CHARACTERS
    assert translation.checked_sentence(translator, "A" + " " * (most - 1)) == "A"
    monkeypatch.setattr(translator, "tokenizer", None)
    for text in ("A" * (most + 1), " " * 2_000_000):
        with pytest.raises(ValueError, match=rf"it has {len(text)} characters.* up to {most}\."):
            translation.checked_sentence(translator, text)
    for text, message in (
        (None, "There is no text yet"),
        (" \n", "There is no text yet"),
        ("A\ud83d", "holds half"),
    ):
        with pytest.raises(ValueError, match=message):
            translation.checked_sentence(translator, text)


def test_limit_is_lowered_to_the_models_positions(translation, translator, tmp_path):
    for encoding in ("learned", "sinusoidal"):
        config = translator.model.config.to_dict() | {"position_encoding": encoding}
        config = VanillaTransformerConfig(**config | {"max_position_embeddings": 9})
        model = VanillaTransformerForConditionalGeneration(config)
        folder = save_all(tmp_path / encoding, model, translator.tokenizer)
        if encoding == "sinusoidal":  # a stock model has as few positions
            folder = export_stock(folder, tmp_path / "stock")
        small = translation.load_translator(str(folder))
        assert translation.checked_sentence(small, "!" * 8) == "!" * 8
        assert translation.translations(small, "!" * 8)
        with pytest.raises(ValueError, match=r"has 10 tokens.* up to 9\."):
            translation.checked_sentence(small, "!" * 9)


def test_translations_are_sorted_by_score(translation, translator):
    found = translation.translations(translator, SENTENCE)
    assert len(found) == translation.NUM_TRANSLATIONS
    scores = [each.score for each in found]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == len(scores)
    assert all(score < 0 for score in scores)
    alone = translator(SENTENCE, num_beams=translation.NUM_TRANSLATIONS)
    assert found[0][0] == alone[0]["translation_text"]


# ----------------------------------------------------------------------------------- the attention


def test_every_choice_has_its_own_picture(translation, attention):
    choices = [
        *(("cross", "1", "1"), ("cross", "2", "1"), ("cross", "2", "4"), ("cross", "2", "mean")),
        *(("encoder", "2", "1"), ("decoder", "2", "1"), ("cross", "1", "all")),
    ]
    pictures = [translation.picture(attention, *choice) for choice in choices]
    assert min(side for image in pictures for side in image.size) > 200
    assert len({np.asarray(image).tobytes() for image in pictures}) == len(pictures)


def test_lines_sent_by_a_program_are_translated_like_sentences(translation, translator):
    texts = ["Ein Hund.", "Two men run"]
    found = translation.translated_lines(translator, ["Ein Hund.", " Two\nmen  run "])
    assert found == [translation.translations(translator, text)[0][0] for text in texts]
    assert translation.translated_lines(translator, []) == []
    assert translation.translated_lines(translator, ["", *texts, " \n"]) == ["", *found, ""]
    wrong = (("Ein Hund.", "list of texts"), ([1], "list of texts"))
    for texts, message in (*wrong, (["x"] * 65, "65 texts"), (["!" * 900], "too long")):
        with pytest.raises(ValueError, match=message):
            translation.translated_lines(translator, texts)


# ---------------------------------------------------------------------------------------- the page


@pytest.fixture
def app(translation):
    pytest.importorskip("gradio", reason="comes with a Space")
    sys.path.insert(0, str(SPACE))
    try:
        return importlib.import_module("app")
    finally:
        sys.path.remove(str(SPACE))
        sys.modules.pop("app", None)


def test_page_shows_progress_and_then_the_results(app, translation, translator):
    task = translation.Task("<German>", "<English>", True, [])
    steps = list(app.translating(translator, task)(SENTENCE, "cross", "2", "mean"))
    assert [step[0] for step in steps] == ["Computing ...", ""]
    _, results, best, table, shown, image = steps[-1]
    assert results.visible
    assert table.startswith("<table><tr><th>&lt;English&gt;</th><th>Score</th></tr>")
    cells = re.findall('<td dir="auto">(.*?)</td><td>(.*?)</td>', table, re.DOTALL)
    found = translation.translations(translator, SENTENCE)
    assert [(html.unescape(text), score) for text, score in cells] == [
        (each.text, f"{each.score:.3f}") for each in found
    ]
    assert best == found[0][0]
    assert shown == (SENTENCE, best)  # the only state kept for a visitor
    again = translation.picture(translation.attention_of(translator, *shown), "cross", "2", "mean")
    assert np.array_equal(np.asarray(image), np.asarray(again))


def test_page_has_all_controls_and_computes_nothing_on_load(app, translation, translator):
    for task, button in (
        (translation.Task("German", "English", True, ["One.", "Two."]), "Translate"),
        (translation.Task("letters", "phonemes", False, []), "Run"),
    ):
        blocks = app.page(translator, name="user/name", task=task)
        components = blocks.get_config_file()["components"]
        labels = {part["props"].get("label") for part in components}
        assert {task.source, task.target, "Attention", "Layer", "Head"} <= labels
        values = [str(part["props"].get("value")) for part in components]
        assert button in values
        assert any(f"# {task.source} to {task.target}" in value for value in values)
        assert task.is_translation or not re.search("translat|language", str(values), re.I)
        assert not blocks.fns[0].targets[0][1].startswith("load")


# --------------------------------------------------------------------------- the files of the Space


def test_space_pins_the_tested_versions():
    tested = set((ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines())
    lines = (SPACE / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line for line in lines if not line.startswith(("#", "--"))}
    assert pinned <= tested
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    needed = project.split("\ndependencies = [")[1].split("]")[0]
    names = {*re.findall(r'"([\w-]+)', needed), "matplotlib", "pillow"}
    names |= {"sacremoses", "sentencepiece"}  # of imported models' own tokenizers
    assert {line.partition("==")[0] for line in pinned} == names
    card = yaml.safe_load((SPACE / "README.md").read_text(encoding="utf-8").split("---")[1])
    assert f"gradio=={card['sdk_version']}" in tested


def test_written_space_is_complete_and_contains_the_package(tmp_path):
    folder = tmp_path / "space"
    write_space(folder, "user/name")
    card = SpaceCard.load(folder / "README.md")
    assert card.data.sdk == "gradio"
    assert card.data.models == ["user/name"]
    assert (folder / card.data.app_file).is_file()
    assert "{model_id}" not in card.content
    assert (folder / "vanilla_transformer" / "visualization" / "attention.py").is_file()
    assert (folder / "model_id").read_text() == "user/name\n"
    assert not [path for path in folder.rglob("*") if "__pycache__" in path.parts]
    assert not [path for path in folder.rglob("*") if path.parent.name.startswith("_")]
