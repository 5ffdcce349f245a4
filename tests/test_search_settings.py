"""Every door to a search finds the same translations, whatever a generation config holds."""

import dataclasses
import json

import pytest
import torch
from transformers import GenerationConfig
from wandering_model import make_model

from vanilla_transformer import translate
from vanilla_transformer.batch_translation import beyond_paper_search
from vanilla_transformer.beam_search import beam_search
from vanilla_transformer.errors import RequestError
from vanilla_transformer.evaluation import score_model
from vanilla_transformer.pipeline import VanillaTransformerTranslationPipeline
from vanilla_transformer.recipes.recipe import make_recipe
from vanilla_transformer.search_settings import SearchSettings, search_settings
from vanilla_transformer.storage.saved_model import load_saved_model
from vanilla_transformer.train import compare_runs, score_run
from vanilla_transformer.train.finishing import _save_search
from vanilla_transformer.translation.many_texts import translate_nbest

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
        return tokenizer.batch_decode(sequences, skip_special_tokens=True)[0]

    expected = [alone(text) for text in TEXTS]
    assert list(translate(model, tokenizer, TEXTS, **given)) == expected
    pipe = VanillaTransformerTranslationPipeline(model, tokenizer, device=-1)
    assert [one["translation_text"] for one in pipe(TEXTS, **given)] == expected
    scored = score_model(model, tokenizer, TEXTS, TEXTS, target_language="de", **given)
    assert scored["hypotheses"] == expected
    test = {"pair": "en-de", "test_file": str(saved / "pairs.tsv"), **given}
    result = score_run(saved, **test)["test"]
    assert result["hypotheses"] == expected
    assert result["num_beams"] == search_settings(model.generation_config, **given).num_beams
    for run in compare_runs([saved, saved], **test):
        assert run.results["test"]["hypotheses"] == expected


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
    _save_search(recipe.search(), tmp_path, tmp_path)
    saved = search_settings(GenerationConfig.from_pretrained(tmp_path))
    if recipe.num_beams == 1:  # a greedy model has no settings of a wider search
        assert saved == SearchSettings(num_beams=1)
    else:
        assert saved == recipe.search()


def test_settings_are_the_calls_then_the_models_then_the_papers():
    assert dataclasses.astuple(search_settings(None))[:4] == (4, 0.6, False, 1)
    config = GenerationConfig(num_beams=3, length_penalty=2.0, early_stopping=True, max_length=20)
    assert search_settings(config) == SearchSettings(3, 2.0, early_stopping=True)
    call = {"num_beams": 2, "early_stopping": False, "length_penalty": None}
    assert search_settings(config, **call) == SearchSettings(2, 2.0)


# Every setting of transformers' generation config, with a value that is not its default, and what
# `translate` does if a file holds it: whether it leaves the translations as they are, whether
# `generate` decodes, or what the refusal says. A number limits or shapes what is asked for.
NOTHING, GENERATE = "changes nothing", "is left to generate"
HOSTS_SETTINGS = {
    **{"num_beams": (2, "is read"), "suppress_tokens": ([0, 1, 3, 101], "is read")},
    **{"length_penalty": (3.0, "is read"), "early_stopping": (True, "is read")},
    **{"num_return_sequences": (2, "num_return_sequences"), "eos_token_id": ([2, 9], "is read")},
    **{"pad_token_id": (4, "is read"), "decoder_start_token_id": (4, "is read")},
    # transformers writes limits of its own, and each has the paper's instead.
    **{"max_length": (3, NOTHING), "max_new_tokens": (2, NOTHING)},
    **{"bad_words_ids": ([[0]], NOTHING), "forced_eos_token_id": (2, NOTHING)},
    **{"renormalize_logits": (True, NOTHING), "remove_invalid_values": (True, NOTHING)},
    **{"bos_token_id": (5, NOTHING), "use_cache": (False, NOTHING), "low_memory": (True, NOTHING)},
    **{"cache_implementation": ("static", NOTHING), "cache_config": ({"a": 1}, NOTHING)},
    **{"max_cache_len": (4, NOTHING), "disable_compile": (True, NOTHING)},
    **{"prefill_chunk_size": (1, NOTHING), "continuous_batching_config": ({}, NOTHING)},
    **{"compile_config": ({"mode": "default"}, "compile_config")},
    **{"output_attentions": (True, NOTHING), "output_hidden_states": (True, NOTHING)},
    **{"output_scores": (True, NOTHING), "output_logits": (True, NOTHING)},
    **{"return_dict_in_generate": (True, NOTHING), "diversity_penalty": (0.5, NOTHING)},
    **{"temperature": (2.0, NOTHING), "top_k": (2, NOTHING), "top_p": (0.5, NOTHING)},
    **{"min_p": (0.5, NOTHING), "top_h": (0.5, NOTHING), "typical_p": (0.5, NOTHING)},
    **{"epsilon_cutoff": (0.1, NOTHING), "eta_cutoff": (0.1, NOTHING)},
    **{"is_assistant": (True, NOTHING), "num_assistant_tokens": (3, NOTHING)},
    **{"num_assistant_tokens_schedule": ("heuristic", NOTHING)},
    **{"assistant_confidence_threshold": (0.1, NOTHING), "assistant_lookbehind": (2, NOTHING)},
    **{"target_lookbehind": (2, NOTHING), "assistant_ensemble_weight": (0.5, NOTHING)},
    **{"max_matching_ngram_size": (1, NOTHING), "speculation_type": ("dflash", NOTHING)},
    **{"_from_model_config": (True, NOTHING), "transformers_version": ("5.0.0", NOTHING)},
    **{"do_sample": (True, GENERATE), "min_length": (5, GENERATE), "min_new_tokens": (5, GENERATE)},
    **{"repetition_penalty": (1.5, GENERATE), "encoder_repetition_penalty": (1.5, GENERATE)},
    **{"no_repeat_ngram_size": (1, GENERATE), "encoder_no_repeat_ngram_size": (1, GENERATE)},
    **{"forced_bos_token_id": (7, GENERATE), "begin_suppress_tokens": ([8], GENERATE)},
    **{"exponential_decay_length_penalty": ([1, 2.0], GENERATE)},
    **{"sequence_bias": ([[[8], 1.0]], GENERATE), "num_beam_groups": (2, GENERATE)},
    **{"watermarking_config": ({"greenlist_ratio": 0.25}, GENERATE)},
    **{"max_time": (60.0, "max_time"), "stop_strings": (["a"], "stop_strings")},
    **{"use_mtp": (True, "use_mtp"), "token_healing": (True, "token_healing")},
    **{"guidance_scale": (2.0, "guidance_scale"), "penalty_alpha": (0.6, "penalty_alpha")},
    **{"dola_layers": ("low", "dola_layers"), "constraints": ([[5]], "constraints")},
    **{"force_words_ids": ([[5]], "force_words_ids")},
    **{"prompt_lookup_num_tokens": (2, "prompt_lookup_num_tokens")},
    **{"assistant_early_exit": (1, "assistant_early_exit")},
}


@pytest.fixture(scope="module")
def translated_with(tokenizer, tmp_path_factory):
    """Return a function that writes settings to a model's folder and translates as commands do."""
    folder = tmp_path_factory.mktemp("settings")
    make_model(len(tokenizer)).float().save_pretrained(folder)
    path = folder / "generation_config.json"
    own = json.loads(path.read_text())

    def run(settings):
        path.write_text(json.dumps({**own, **settings}))
        model = load_saved_model(folder)
        return model, list(translate(model, tokenizer, TEXTS))

    return run


def test_every_setting_of_the_hosts_has_its_place():
    assert set(GenerationConfig().to_dict()) <= set(HOSTS_SETTINGS)


@pytest.mark.parametrize("name", HOSTS_SETTINGS)
def test_a_setting_is_honoured_or_refused_by_name_or_changes_nothing(name, translated_with):
    value, place = HOSTS_SETTINGS[name]
    if place not in ("is read", NOTHING, GENERATE):
        with pytest.raises(RequestError, match=place):
            translated_with({name: value})
        return
    model, found = translated_with({name: value})
    assert len(found) == len(TEXTS)
    assert (place == GENERATE) == bool(beyond_paper_search(model, {}))
    if place == NOTHING:
        assert found == translated_with({})[1]


@pytest.mark.parametrize(
    "call", [{"eos_token_id": [2]}, {"decoder_start_token_id": 7}, {"forced_eos_token_id": 9}]
)
def test_special_ids_of_a_call_take_effect(call, translated_with, tokenizer):
    model, _ = translated_with({})
    options = {"num_beams": 1, "max_new_tokens": 5}
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True, return_token_type_ids=False)
    if "eos_token_id" in call:  # one more, which comes in the first translation
        call = {"eos_token_id": [2, int(model.generate(**inputs, **options)[0, 3])]}
    found = list(translate(model, tokenizer, TEXTS, **options, **call))
    assert found != list(translate(model, tokenizer, TEXTS, **options))
    ids = model.generate(**inputs, **options, **call)[:, 1:]
    assert found == tokenizer.batch_decode(ids, skip_special_tokens=True)


def test_a_prefix_and_alignments_work_with_the_settings_of_opus_models(translated_with, tokenizer):
    model, expected = translated_with(KINDS["OPUS"])
    options = {"prefix": expected[1][:1], "return_alignments": True}
    (found,) = translate_nbest(model, tokenizer, TEXTS[1:2], **options)
    assert found[0].text.startswith(expected[1][:1])


@pytest.mark.parametrize("value", [0, 1, False, ""])
@pytest.mark.parametrize("name", ["max_extra_tokens", "num_beem", "prepack"])
def test_options_that_nobody_knows_are_refused_whatever_their_value(tokenizer, name, value):
    with pytest.raises(RequestError, match=name):
        list(translate(make_model(len(tokenizer)).float(), tokenizer, TEXTS, **{name: value}))


@pytest.mark.parametrize("name", ["guidance_scale", "prefill_chunk_size"])
@pytest.mark.parametrize("by_config", [True, False])
def test_settings_of_decoder_only_models_are_refused_by_name(name, by_config):
    """transformers would call the model without a source, or with a part of its mask."""
    model, ids = make_model(99), torch.tensor([[5, 6, 2]])
    given = {"generation_config": GenerationConfig(**{name: 2})} if by_config else {name: 2}
    with pytest.raises(RequestError, match=f"Got {name}=2, which is for decoder-only models"):
        model.generate(ids, decoder_input_ids=torch.tensor([[1, 7, 8]]), **given)
    neutral = {"guidance_scale": 1.0, "max_new_tokens": 2}
    assert torch.equal(model.generate(ids, **neutral), model.generate(ids, max_new_tokens=2))


@pytest.mark.parametrize("search", [{}, {"num_beams": 2}])
def test_gaps_in_a_beginning_are_refused_by_generate(search):
    model, ids = make_model(99).float(), torch.tensor([[5, 6, 2], [7, 8, 2]])
    gapped = torch.tensor([[1, -100, 7], [1, 7, 8]])
    with pytest.raises(RequestError, match="decoder_input_ids contains -100; pad on the left"):
        model.generate(ids, decoder_input_ids=gapped, **search)
    if not search:  # as the message says
        left = torch.tensor([[0, 1, 7], [1, 7, 8]])
        options = {"decoder_attention_mask": (left != 0).long(), "max_new_tokens": 3}
        found = model.generate(ids, decoder_input_ids=left, **options)
        alone = model.generate(ids[:1], decoder_input_ids=left[:1, 1:], max_new_tokens=3)
        assert torch.equal(found[0, 1:], alone[0])
