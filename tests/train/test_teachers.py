"""Teachers make training pairs: `--teachers`, `--monolingual-source`."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from tiny_runs import tiny_recipe, write_pairs
from transformers import M2M100Config, M2M100ForConditionalGeneration, NllbTokenizer

from vanilla_transformer import pretrained
from vanilla_transformer.convert.exporters.stock import export_stock
from vanilla_transformer.errors import RequestError
from vanilla_transformer.evaluation import log_probabilities
from vanilla_transformer.publish.card import card_facts
from vanilla_transformer.recipes.recipe import load_recipe
from vanilla_transformer.recipes.testing import plan_test
from vanilla_transformer.storage.saved_model import load_saved_model, load_saved_tokenizer
from vanilla_transformer.train import run_recipe, synthetic_pairs
from vanilla_transformer.translation import translate, translate_nbest

TEACHER = "everyday-en-de"
GERMAN = ["Das ist mein altes Haus.", "Ich sehe es nicht."]
TEXTS = 32  # different ones: 29 of the pairs, and the following
TEXT = ["Where is the old house?", "I see a dog in the garden.", "She has two old friends."]
LONGER = [*TEXT, "We need a car.", "The water is cold.", "They go to school.", "He reads a book."]


@pytest.fixture
def start(tmp_path):
    """Return a function that trains an English-German model with teachers."""

    def started(*teachers, text=TEXT, run=tmp_path / "run", **overrides):
        path = tmp_path / "mono.en"
        path.write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
        values = {"pair": "en-de", "train_file": write_pairs(tmp_path / "few.jsonl", 30, 1)}
        values |= {"teachers": json.dumps(teachers), "monolingual_source": path, "max_steps": 2}
        recipe = tiny_recipe(tmp_path / "recipe", **values | overrides)
        return run_recipe(load_recipe(str(recipe)), run)

    return started


@pytest.fixture
def patched(monkeypatch):
    """Return a function that changes translations, and notes those before."""

    def patch(changed=lambda source, found: found):
        made = []

        def one_by_one(model, tokenizer, texts, **options):
            for text in texts:
                ((found,),) = translate_nbest(model, tokenizer, [text], **options)
                made.append((text, found.token_score, tokenizer, options))
                yield [found._replace(text=changed(text, found.text))]

        monkeypatch.setattr(synthetic_pairs, "translate_nbest", one_by_one)
        return made

    return patch


def test_translations_of_both_texts_are_pairs_more(start, tmp_path, patched):
    made = patched()
    data = start(TEACHER)["data"]
    scores = {text: score for text, score, *_ in made}
    lines = (tmp_path / "run-teacher-1" / "translated.jsonl").read_text("utf-8").splitlines()
    found = {row["source"]: row["target"] for row in map(json.loads, lines)}
    assert scores.keys() - found.keys() == {*sorted(scores, key=scores.get)[:2]}  # a twentieth
    assert found[TEXT[0]].startswith("Wo ist")
    assert len(found) - 6 < data["train_taught"] <= len(found)
    assert data["train_pairs_kept"] == 30 + data["train_taught"]
    (teacher,) = data["teachers"]
    assert (teacher["name"], teacher["license"]) == (TEACHER, "cc-by-2.0")


def test_copies_other_languages_and_scored_sources_are_left_out(start, tmp_path, patched):
    test = tmp_path / "test.jsonl"
    test.write_text(json.dumps({"translation": {"en": f" {TEXT[2]}", "de": "x"}}) + "\n")
    alone = start(TEACHER, text=LONGER, train_file="null", test_file=test, run=tmp_path / "alone")
    assert (alone["data"]["train_pairs"], alone["data"]["held_out_pairs"]) == (5, 0)
    before = start(TEACHER)["data"]["train_taught"]
    patched({TEXT[0]: TEXT[0], TEXT[1]: "Je vois un chien dans le jardin de ma maison."}.get)
    made = start(TEACHER, test_file=test, run=tmp_path / "other")["data"]["train_taught"]
    assert made == before - 3


def test_each_teacher_has_a_weight(start):
    data = start(TEACHER, TEACHER, train_weights="[2, 1, 1]")["data"]
    shares = [data["shares"][f"corpus {number}"]["target_tokens"] for number in (1, 2, 3)]
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.05)


def test_pairs_of_a_text_alone_are_held_out_too(start, tmp_path, caplog):
    alone = dict.fromkeys(("train_file", "validation_file", "test_file"), "null")
    with pytest.raises(RequestError, match="names no training pairs; give --train-file"):
        start(TEACHER, **alone, monolingual_source="null")
    alone |= {"text": LONGER, "held_out_pairs": 1, "train_weights": "[2, 1]"}
    alone |= {"source_column": "English", "target_column": "German"}  # there is no table
    with caplog.at_level("INFO"):
        metrics = start(TEACHER, TEACHER, **alone)
    assert f"Held-out references are translations by {TEACHER}" in caplog.text
    data = metrics["data"]
    assert data["train_pairs_kept"] == data["train_taught"] == 2 * (len(LONGER) - 3)
    assert [*data["shares"]] == ["corpus 1", "corpus 2"]
    sources = [sample["source"] for sample in metrics["samples"]["test"]]
    assert plan_test(tmp_path / "run", {}).sets["test"].sources == sources
    start(TEACHER, TEACHER, **alone, max_steps=12)


@pytest.mark.parametrize(
    ("teacher", "pair", "made", "text", "message"),
    [
        ("runs/none", "en-de", None, TEXT, "There is no folder runs/none"),
        ("everyday-en-zh", "en-de", None, TEXT, "translates en to zh; give one for en to de"),
        (TEACHER, "de-en", None, GERMAN, "translates en to de; give one for de to en"),
        (TEACHER, "en-de", "{}", TEXT, "32 with two equal sides, .* translates en to de"),
        (TEACHER, "en-de", "Je vois le chien: {:.5}", TEXT, "32 .* in another language"),
        (TEACHER, "en-de", None, GERMAN, "mono.en looks like de; give text in en"),
        (TEACHER, "en-de", None, [""], "sentences: 0; left out: 0"),
    ],
)
def test_unfit_teachers_and_texts_are_refused_before_anything_is_written(
    start, tmp_path, patched, teacher, pair, made, text, message
):
    if made is not None:
        patched(lambda source, _: made.format(source))
    with pytest.raises(RequestError, match=message):
        start(teacher, pair=pair, text=text)
    assert {path.name for path in tmp_path.iterdir()} == {"recipe", "few.jsonl", "mono.en"}


def test_a_changed_text_or_teacher_does_not_go_on(start, tmp_path):
    teacher = shutil.copytree(pretrained(TEACHER), tmp_path / "teacher")
    start(str(teacher))
    with pytest.raises(RequestError, match=r"another run \(files: monolingual source: mono.en"):
        start(str(teacher), text=TEXT[:2], max_steps=12)
    config = json.loads((teacher / "config.json").read_text())
    (teacher / "config.json").write_text(json.dumps({**config, "dropout": 0.5}))
    with pytest.raises(RequestError, match=r"teacher has changed .* \(config.json changed\)"):
        start(str(teacher), max_steps=12)
    shutil.rmtree(teacher)
    start(str(teacher), max_steps=12)  # its translations are enough


def test_a_teacher_of_many_languages_gets_those_of_the_pairs(tmp_path, patched):
    words = ["<s>", "<pad>", "</s>", "<unk>", *"abc"]
    vocabulary = {word: number for number, word in enumerate(words)}
    codes = ["deu_Latn", "eng_Latn", "zho_Hant", "zho_Hans"]
    tokenizer = NllbTokenizer(vocab=vocabulary, extra_special_tokens=codes)
    parts = ("layers", "attention_heads", "ffn_dim")
    sizes = {f"{side}_{part}": 2 for side in ("encoder", "decoder") for part in parts}
    config = M2M100Config(vocab_size=len(tokenizer), d_model=16, **sizes)
    M2M100ForConditionalGeneration(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    made = patched()
    ((_, score),) = synthetic_pairs._translator(str(tmp_path), ("en", "zh"))(["a b c"])
    _, _, used, options = made[0]
    ids = [used("a b c")["input_ids"][0], options["forced_bos_token_id"]]
    assert tokenizer.convert_ids_to_tokens(ids) == ["eng_Latn", "zho_Hans"]  # the usual script
    assert score < 0
    with pytest.raises(RequestError, match="no token for the language fr"):
        synthetic_pairs._translator(str(tmp_path), ("en", "fr"))


def test_a_class_of_transformers_scores_the_mean_of_a_token(tmp_path):
    folder, sources = Path(pretrained(TEACHER)), ["I see a dog.", "Where can I buy a ticket?"]
    stock = str(export_stock(folder, tmp_path / "stock"))
    found = [*synthetic_pairs._translator(stock, ("en", "de"))(sources)]
    own = load_saved_model(folder, dtype=torch.float32), load_saved_tokenizer(folder)
    assert [text for text, _ in found] == [*translate(*own, sources)]
    pairs = zip(sources, (text for text, _ in found), strict=True)
    means = [pair.log_probability / pair.target_tokens for pair in log_probabilities(*own, pairs)]
    assert [score for _, score in found] == pytest.approx(means, abs=0.01)  # in bfloat16


def test_a_card_names_teachers_and_their_licences_but_no_paths(start, tmp_path):
    teacher = shutil.copytree(pretrained(TEACHER), tmp_path / "big")
    (teacher / "metrics.json").write_text('{"recipe": {"source_language": null}}')
    (teacher / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n")
    metrics = start(str(teacher))
    with pytest.raises(RequestError, match=r"'mit', but .* \(teacher big: cc-by-nc-4.0\)"):
        card_facts(metrics, {"license": "mit"})
    facts = card_facts(metrics, {"license": "cc-by-nc-4.0"})
    assert facts["published"]["data_license"] == "teacher big: cc-by-nc-4.0"
    assert str(tmp_path) not in json.dumps(facts)
