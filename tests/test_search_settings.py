"""Every door to a search finds the same translations, whatever a generation config holds."""

import dataclasses

import pytest
from test_pipeline import make_model, run_directory  # noqa: F401, a fixture
from transformers import GenerationConfig

from vanilla_transformer import beam_search, paper_beam_search, translate
from vanilla_transformer.convert import engines
from vanilla_transformer.evaluation import score_model
from vanilla_transformer.pipeline import VanillaTransformerTranslationPipeline
from vanilla_transformer.recipes.recipe import make_recipe
from vanilla_transformer.search_settings import (
    SearchSettings,
    search_settings,
    settings_of_other_searches,
)
from vanilla_transformer.storage.saved_model import load_saved_model
from vanilla_transformer.train import comparing, score_run
from vanilla_transformer.train.run import _save_search
from vanilla_transformer.train.select_checkpoints import recipe_search

TEXTS = ["a", "one two three", "Grün, 你好!"]
KINDS = {
    "nothing": {},
    "one beam": {"num_beams": 1},
    "extreme penalty": {"num_beams": 3, "length_penalty": 9.0},
    "early stopping": {"num_beams": 3, "length_penalty": 9.0, "early_stopping": True},
    "never": {"num_beams": 3, "early_stopping": "never"},
    # Its first evaluation with generation fills in all defaults of transformers.
    "Seq2SeqTrainer": GenerationConfig._get_default_generation_params(),
    "OPUS": {"bad_words_ids": [[0]], "forced_eos_token_id": 2, "renormalize_logits": True},
}


@pytest.fixture(params=KINDS, scope="module")
def saved(request, tokenizer, tmp_path_factory):
    """Return a folder with a model whose generation config is of one kind, and test pairs."""
    model = make_model(len(tokenizer)).float()
    for name, value in KINDS[request.param].items():
        setattr(model.generation_config, name, value)
    folder = tmp_path_factory.mktemp("model")
    generation_config = model.generation_config
    model.generation_config = GenerationConfig()  # which transformers checks before it saves
    model.save_pretrained(folder)
    generation_config.to_json_file(folder / "generation_config.json")
    tokenizer.save_pretrained(folder)
    (folder / "pairs.tsv").write_text("".join(f"{text}\tx\n" for text in TEXTS))
    return folder


@pytest.mark.parametrize(
    ("saved", "beams"),
    [*((kind, None) for kind in KINDS), ("one beam", 2), ("extreme penalty", 2)],
    indirect=["saved"],
)
def test_all_doors_to_a_search_find_the_same(saved, tokenizer, beams, monkeypatch):
    model, given = load_saved_model(saved), {"num_beams": beams}

    def alone(text):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        sequences = beam_search(model, ids, **given).sequences[0]
        options = {} if beams is None else given
        by_generate = model.generate(ids, custom_generate=paper_beam_search, **options)
        assert by_generate[0, 1:].tolist() == sequences[0].tolist()
        return tokenizer.batch_decode(sequences, skip_special_tokens=True)[0]

    expected = [alone(text) for text in TEXTS]
    assert list(translate(model, tokenizer, TEXTS, **given)) == expected
    pipe = VanillaTransformerTranslationPipeline(model, tokenizer, device=-1)
    assert [one["translation_text"] for (one,) in pipe(TEXTS, **given)] == expected
    scored = score_model(model, tokenizer, TEXTS, TEXTS, target_language="de", **given)
    assert scored["hypotheses"] == expected
    test = {"pair": "en-de", "test_file": str(saved / "pairs.tsv"), **given}
    result = score_run(saved, with_texts=True, **test)["test"]
    assert result["hypotheses"] == expected
    assert result["num_beams"] == search_settings(model.generation_config, **given).num_beams
    compared = []

    def noted(*arguments, **options):
        compared.append(list(translate(*arguments, **options)))
        return compared[-1]

    monkeypatch.setattr(comparing, "translate", noted)
    comparing.compare_runs([saved, saved], **test)
    assert compared[-1] == compared[-2] == expected


def test_exports_search_with_the_same_settings(saved):
    expected = search_settings(GenerationConfig.from_pretrained(saved))
    engine = engines._search_settings(saved)
    assert (engine.num_beams, engine.length_penalty) == (
        expected.num_beams,
        expected.length_penalty,
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"length_penalty": 1.5, "stop_search_early": True},
        {"num_beams": 1, "length_penalty": 1.5},
    ],
)
def test_a_run_saves_the_search_of_its_recipe(options, tmp_path):
    GenerationConfig(num_beams=7, length_penalty=9.0).save_pretrained(tmp_path)
    recipe = make_recipe({"pair": "en-de", **options})
    _save_search(recipe_search(recipe), tmp_path)
    saved = search_settings(GenerationConfig.from_pretrained(tmp_path))
    if recipe.num_beams == 1:  # a greedy model has no settings of a wider search
        assert saved == SearchSettings(num_beams=1)
    else:
        assert saved == recipe_search(recipe)


def test_settings_are_the_calls_then_the_models_then_the_papers():
    assert dataclasses.astuple(search_settings(None))[:4] == (4, 0.6, False, 1)
    config = GenerationConfig(num_beams=3, length_penalty=2.0, early_stopping=True, max_length=20)
    assert search_settings(config) == SearchSettings(3, 2.0, early_stopping=True)
    call = {"num_beams": 2, "early_stopping": False, "length_penalty": None}
    assert search_settings(config, **call) == SearchSettings(2, 2.0)


@pytest.mark.parametrize(
    ("settings", "others"),
    [
        ({"do_sample": False, "use_cache": True, "top_k": 5, "no_repeat_ngram_size": 0}, []),
        ({"repetition_penalty": 1.0, "num_beam_groups": 1, "min_length": 0}, []),
        ({"forced_bos_token_id": 0, "min_length": 1}, ["forced_bos_token_id", "min_length"]),
        (
            {"repetition_penalty": 1.1, "penalty_alpha": 0.5},
            ["repetition_penalty", "penalty_alpha"],
        ),
        ({"a_setting_of_next_year": True}, ["a_setting_of_next_year"]),
    ],
)
def test_settings_of_other_searches_are_those_that_change_something(settings, others):
    assert settings_of_other_searches(settings) == others
