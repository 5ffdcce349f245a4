"""Recipes: reading YAML into a checked dataclass, and the shipped recipes."""

import contextlib
import io
import json
import re
import types
from pathlib import Path

import hostile_values
import pytest
from huggingface_hub.errors import HFValidationError, HTTPError, OfflineModeIsEnabled
from pages import ROOT

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.cli import main
from vanilla_transformer.data.tokenizer import smallest_vocab_size
from vanilla_transformer.errors import RequestError
from vanilla_transformer.publish.card import paper_differences
from vanilla_transformer.recipes import planning
from vanilla_transformer.recipes.data import data_identity, named_files
from vanilla_transformer.recipes.options import (
    CHANGEABLE,
    LANGUAGES,
    OPTIONS,
    SECTIONS,
    Data,
    Model,
    Tokenizer,
    listed,
    names_of,
    option_type,
)
from vanilla_transformer.recipes.plan import changed_settings_as_yaml, settings_as_yaml
from vanilla_transformer.recipes.planning import argument_values, plan_run, recipe_by_size
from vanilla_transformer.recipes.recipe import (
    Recipe,
    load_recipe,
    make_recipe,
    paper_values,
    shipped_recipes,
)
from vanilla_transformer.storage.run_files import IDENTITY, shown
from vanilla_transformer.train.arguments import share_of_update
from vanilla_transformer.train.run import training_arguments
from vanilla_transformer.train.trainer import VanillaTransformerTrainingArguments

NAMES = sorted(shipped_recipes())
# Expected millions of parameters with the recipe's own vocabulary size.
SIZES = {
    "demo": (0.8, 3),
    "multi30k_en_de": (7.5, 8),
    "tatoeba_zh_en": (6.5, 7.5),
    "tatoeba_en_zh": (6.5, 7.5),
    "fewest_pairs": (7.5, 8),
    "few_pairs": (7.5, 8),
    "many_pairs": (7.5, 7.7),
    "everyday_en_de": (2.2, 2.3),  # with the tokenizer at most 5 MB at two bytes each
    "everyday_en_zh": (1.9, 2.1),
    "g2p": (1.3, 1.4),
    "student": (2.6, 2.61),  # at most a third of multi30k_en_de's
    "wmt14_ende_base": (63.0, 63.2),
    "wmt14_ende_big": (214.2, 214.3),
    "wmt14_enfr_base": (60, 61),
    "wmt14_enfr_big": (209, 210),
}


def write(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", NAMES)
def test_shipped_recipe_builds_a_model_of_the_expected_size(name):
    import torch

    recipe = load_recipe(name)
    config = recipe.config(vocab_size=recipe.vocab_size)
    with torch.device("meta"):
        model = VanillaTransformerForConditionalGeneration(config)
    millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    low, high = SIZES[name]
    assert low < millions < high


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("wmt14")])
def test_wmt_recipes_match_the_paper_and_are_marked_not_yet_run(name):
    recipe = load_recipe(name)
    language, size = name.split("_")[1:]
    assert "NOT YET RUN BY US" in shipped_recipes()[name].read_text(encoding="utf-8")
    assert recipe.preset == size
    assert recipe.batch_tokens * recipe.gradient_accumulation == 25_000
    for devices in (1, 2, 4, 8):
        assert devices * share_of_update(recipe.gradient_accumulation, devices) == 8
    assert recipe.warmup_steps == 4_000
    assert recipe.learning_rate_factor == 1.0
    assert recipe.max_steps == {"base": 100_000, "big": 300_000}[size]
    assert recipe.checkpoints_to_average == {"base": 5, "big": 20}[size]
    assert recipe.vocab_size == {"ende": 37_000, "enfr": 32_000}[language]
    assert recipe.dropout == (0.3 if (language, size) == ("ende", "big") else 0.1)
    assert (recipe.dataset, recipe.num_beams) == ("wmt/wmt14", 4)


def test_defaults_are_the_papers():
    recipe, args = Recipe(), VanillaTransformerTrainingArguments
    assert (args.adam_beta1, args.adam_beta2, args.adam_epsilon) == (0.9, 0.98, 1e-9)
    for given in (args, recipe):
        assert (given.warmup_steps, given.learning_rate_factor) == (4_000, 1.0)
    assert args.max_grad_norm == 0
    for name in ("learning_rate", "batch_tokens", "max_minutes"):
        assert getattr(recipe, name) == getattr(args, name)
    assert recipe.checkpoints_to_average == 5
    assert recipe.batch_tokens * recipe.gradient_accumulation == 25_000
    config = VanillaTransformerConfig.from_preset(recipe.preset, **recipe.fields())
    assert config.to_dict() == VanillaTransformerConfig().to_dict()


def other_value(name):
    """Return an allowed value of an option that is neither its default nor the paper's."""
    field, (kind, _) = OPTIONS[name], option_type(name)
    if kind is str:
        texts = {"preset": "C_N2", "position_encoding": "learned"}
        texts |= {"precision": "fp32", "metric": "exact_match,wer"}
        return texts.get(name, "some text")
    if kind is bool:
        return not field.default
    if name == "train_weights":
        return (4.0, 1.0)
    if name == "trainer":
        return {"adam_epsilon": 1e-8, "logging_steps": 7}
    return 0.25 if kind is float else 2 * (field.default or 8)


@pytest.fixture(scope="module")
def help_of_train():
    with contextlib.redirect_stdout(io.StringIO()) as text, pytest.raises(SystemExit):
        main(["train", "--help"])
    return text.getvalue()


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_reaches_command_line_yaml_config_and_card(name, help_of_train, tmp_path):
    metadata, value = OPTIONS[name].metadata, other_value(name)
    needed = {"train_weights": {"train_file": "a.tsv", "monolingual_target": "b.txt"}}
    needed["monolingual_source"] = {"teachers": "everyday-en-de"}
    recipe = Recipe(**{name: value}, **needed.get(name, {}))
    (title,) = [section.__doc__ for section in SECTIONS if name in names_of(section)]
    title = f"more options: {title[0].lower()}{title[1:-1]}"
    heading = "options" if metadata["common"] else title
    group = help_of_train.partition(f"\n{heading}:\n")[2].partition("\n\n")[0]
    assert re.search(rf"^  --{name.replace('_', '-')}[, ]", group, flags=re.M)
    assert metadata["help"] in " ".join(group.split())
    text = settings_as_yaml(vars(recipe))
    assert f"# {metadata['help']}\n{name}:" in text
    assert load_recipe(write(tmp_path, text)) == recipe
    config = recipe.config(vocab_size=recipe.vocab_size)
    assert all(getattr(config, field) == value for field in metadata["config"])
    if metadata["argument"] is not None:
        args = training_arguments(argument_values(recipe), tmp_path)
        set_to = getattr(args, metadata["argument"] or name)
        assert set_to == (listed(value) if isinstance(value, tuple) else value)
        strategies = (args.save_strategy, args.logging_strategy, args.eval_strategy)
        assert strategies == ("steps", "steps", "steps")
    # A card shows the length of a run, and arguments of the trainer, in other ways.
    in_paper = bool(metadata["config"]) or metadata["paper"] is not None
    in_paper &= name not in ("max_steps", "trainer")
    rows = [row for row in paper_differences({name: value}) if name != "trainer"]
    assert [row["name"] for row in rows] == [name] * in_paper
    assert [row["meaning"] for row in rows] == [metadata["help"]] * in_paper


def test_arguments_of_the_trainer_have_the_names_and_the_checks_of_transformers(tmp_path):
    file = write(tmp_path, "trainer: {save_steps: 20, adam_epsilon: 1e-8, optim: adafactor}\n")
    typed = {"trainer": ["save_steps=30", "logging_steps=4", "report_to=[]", "adam_beta2=0.9"]}
    recipe = load_recipe(file, typed)
    values = {"save_steps": 30, "adam_epsilon": 1e-8, "optim": "adafactor", "logging_steps": 4}
    assert recipe.trainer == values | {"report_to": [], "adam_beta2": 0.9}
    args = training_arguments(argument_values(recipe), tmp_path)
    assert {name: getattr(args, name) for name in values} == values
    assert args.eval_steps == 1_000
    rows = {row["name"]: row["paper"] for row in paper_differences({"trainer": recipe.trainer})}
    assert rows == {"adam_epsilon": "1e-09", "optim": "Adam", "adam_beta2": "0.98"}
    assert load_recipe(write(tmp_path, settings_as_yaml(vars(recipe)))) == recipe
    for trainer, said in (
        ({"loging_steps": 3}, "unexpected keyword argument 'loging_steps'"),
        ({"logging_strategy": "often"}, "often is not a valid IntervalStrategy"),
    ):
        with pytest.raises(RequestError, match=f"trainer: .*{said}"):
            training_arguments(argument_values(make_recipe({"trainer": trainer})), tmp_path)
    for trainer, said in (
        ({"max_steps": 3, "fp16": True}, "leave out fp16, max_steps; the run sets"),
        (["save_steps"], "got a list; it must be NAME=VALUE"),
    ):
        with pytest.raises(RequestError, match=f"trainer: {said}"):
            make_recipe({"trainer": trainer})


def test_what_no_later_start_may_change_is_in_the_plan(tmp_path):
    trainer = {"save_steps": 5, "logging_steps": 5, "optim": "adafactor"}
    values = {"train_file": ["a/x.tsv", "b/y.en,b/y.de"], "train_weights": [1, 2]}
    recipe = make_recipe({**values, "trainer": trainer, "test_file": "~/t.tsv", "seed": 3})
    binding = plan_run(recipe, tmp_path / "run").binding
    assert OPTIONS.keys() - binding.keys() == CHANGEABLE
    assert binding["trainer"] == {"save_steps": 5, "optim": "adafactor"}
    assert (binding["train_file"], binding["test_file"]) == ("x.tsv, y.en,y.de", "t.tsv")
    assert (binding["train_weights"], binding["seed"]) == ([1, 2], 3)


def test_paper_values_differ_for_the_big_model_and_exclude_time_limits():
    base, big = paper_values("base"), paper_values("big")
    assert base.keys() == big.keys()
    assert {name: (base[name], big[name]) for name in base if base[name] != big[name]} == {
        "d_model": (512, 1024),
        "attention_heads": (8, 16),
        "ffn_dim": (2048, 4096),
        "dropout": (0.1, 0.3),
        "max_steps": (100_000, 300_000),
        "checkpoints_to_average": (5, 20),
    }
    assert not {"max_minutes", "trainer", "seed"} & base.keys()


def test_typed_text_is_converted_to_the_options_type(tmp_path):
    typed = {"max_steps": "5", "dropout": "1e-1", "strict": "true", "max_minutes": "none"}
    recipe = load_recipe("demo", {**typed, "pair": "en-zh"})
    assert (recipe.max_steps, recipe.dropout, recipe.strict) == (5, 0.1, True)
    text = "source_language: no\ntrainer: {a: {b: 2, c: True, d: [1e-9, none]}}\n"
    of_file = load_recipe(write(tmp_path, text))
    assert of_file.source_language == "no"
    assert of_file.trainer == {"a": {"b": 2, "c": True, "d": [1e-9, None]}}
    assert (recipe.source_language, recipe.target_language) == ("en", "zh")
    assert recipe.max_minutes is None
    assert type(recipe.max_steps) is int
    assert load_recipe(write(tmp_path, "max_minutes: 3")).max_minutes == 3.0


# -------------------------------------------------------------------------------- precedence

RATES = {"learning_rate", "learning_rate_factor"}
OF_MODEL = names_of(Model)
OF_INIT_FROM = OF_MODEL | names_of(Tokenizer) | {*LANGUAGES, "bpe_dropout"}


@pytest.mark.parametrize(
    ("name", "typed", "replaced"),
    [
        ("student", {"train_file": "mine.jsonl"}, names_of(Data)),
        ("multi30k_en_de", {"dataset": "someone/pairs", "test_file": "t.tsv"}, names_of(Data)),
        ("mine", {"train_file": "b.tsv"}, names_of(Data)),
        ("wmt14_ende_base", {"preset": "big", "dropout": 0.2, "encoder_layers": 2}, OF_MODEL),
        ("multi30k_en_de", {"preset": "base"}, OF_MODEL),
        ("wmt14_ende_big", {"preset": "A_h1"}, OF_MODEL),
        ("mine", {"init_from": "user/en-de"}, OF_INIT_FROM),
        ("multi30k_en_de", {"learning_rate": 2e-4}, RATES),
        ("mine", {"learning_rate_factor": 0.5}, RATES),
        ("mine", {"validation_file": "w.csv", "dropout": 0.2, "max_minutes": None}, set()),
        ("mine", {"train_file": None, "learning_rate": None}, set()),
    ],
)
def test_what_is_typed_wins_and_may_replace_a_section(tmp_path, caplog, name, typed, replaced):
    if name == "mine":
        text = "pair: en-de\ntrain_file: a.csv\ntest_file: t.csv\nvalidation_file: v.csv\n"
        text += "source_column: English\ntarget_column: German\nlearning_rate: 1e-4\n"
        name = write(tmp_path, text + "dropout: 0.3\nvocab_size: 900\nd_model: 64\n")
    file, default = vars(load_recipe(name)), vars(Recipe())
    with caplog.at_level("INFO"):
        recipe = load_recipe(name, typed)
    assert recipe == load_recipe(name, dict(reversed(typed.items())))
    for option, value in vars(recipe).items():
        source = typed if option in typed else default if option in replaced else file
        assert value == source[option], option
    lost = {key for key in replaced - typed.keys() if file[key] != default[key]}
    assert all(f" {key} {shown(file[key])}" in caplog.text for key in lost)
    assert len(caplog.records) == bool(lost)
    assert load_recipe(write(tmp_path, settings_as_yaml(vars(recipe)))) == recipe


@pytest.mark.parametrize(
    "values",
    [
        {"dataset": "someone/pairs", "train_file": "mine.jsonl"},
        {"learning_rate": 2e-4, "learning_rate_factor": 2.0},
        {"init_from": "runs/mine", "preset": "big"},
        {"init_from": "runs/mine", "d_model": 8},
        {"init_from": "runs/mine", "vocab_size": 300},
        {"monolingual_target": "mono.de", "init_from": "runs/mine"},
        {"monolingual_target": "mono.de", "join_pairs": True},
        {"monolingual_target": "mono.de", "both_directions": True},
        {"siblings": 2, "init_from": "runs/mine"},
        {"siblings": 2, "teachers": "runs/mine"},
        {"siblings": 2, "monolingual_target": "mono.de"},
        {"siblings": 2, "train_weights": (2.0, 1.0)},
    ],
)
def test_options_that_do_not_go_together_are_refused(values):
    said = " and ".join(f"{name}={value!r}" for name, value in values.items())
    said = rf"got ({said}|.*), which exclude each other; leave one of them out"
    for build in (lambda: Recipe(**values), lambda: load_recipe("student", values)):
        with pytest.raises(RequestError, match=said):
            build()
    with pytest.raises(RequestError, match="init_from='x' and vocab_size=37000"):
        load_recipe("demo", {"init_from": "x", "vocab_size": 37_000})


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([1], "fewest_pairs"),
        ([2], "few_pairs"),
        ([2, 2], "many_pairs"),
        ([2, 3], "wmt14_ende_base"),
    ],
)
def test_number_of_pairs_chooses_a_recipe(tmp_path, monkeypatch, sizes, expected):
    monkeypatch.setattr(
        planning, "_BY_SIZE", dict(zip([1, 2, 4, 9], planning._BY_SIZE.values(), strict=True))
    )
    files = []
    for number, size in enumerate(sizes):
        files.append(str(tmp_path / f"{number}.tsv"))
        Path(files[-1]).write_text("".join(f"text {number}{n}\tsatz {n}\n" for n in range(size)))
    typed = {"pair": "en-de", "train_file": files, "max_steps": 7}
    assert recipe_by_size(typed, tmp_path) == load_recipe(expected, typed)
    unnamed = recipe_by_size({"train_file": files}, tmp_path)  # wmt14_ende_base has languages
    assert unnamed.languages == ("source", "target")
    page = (ROOT / "training/own_pairs.md").read_text(encoding="utf-8")
    assert f"| `{expected}`" in page
    assert expected in NAMES


def test_pairs_of_the_revision_that_the_run_reads_are_counted(tmp_path, monkeypatch):
    def dataset_info(self, name, *, revision):
        return types.SimpleNamespace(sha="c0ffee")

    counted = []
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", dataset_info)
    monkeypatch.setattr(planning, "training_pairs", lambda it: counted.append(it) or [0] * 9)
    recipe_by_size({"dataset": "someone/pairs"}, tmp_path)
    (tmp_path / IDENTITY).parent.mkdir()
    (tmp_path / IDENTITY).write_text('{"dataset": "someone/pairs", "revision": "0ld"}')
    found = recipe_by_size({"dataset": "someone/pairs"}, tmp_path)
    assert [each.dataset_revision for each in counted] == ["c0ffee", "0ld"]
    assert found.dataset_revision is None  # what the run compares with a later start


def test_symbols_have_no_merges_for_bpe_dropout_to_undo(caplog):
    with caplog.at_level("INFO"):
        assert load_recipe("few_pairs", {"tokenizer": "symbols"}).bpe_dropout is None
    assert "resets recipe values to their defaults: bpe_dropout 0.1" in caplog.text
    assert load_recipe("few_pairs", {"tokenizer": "bytes"}).bpe_dropout == 0.1


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ({"pair": "en-de"}, "fewest_pairs"),
        ({}, "few_pairs"),
        ({"d_model": 100}, "few_pairs"),  # not for the heads of wmt14_ende_base
        ({"init_from": "everyday-en-de"}, "few_pairs"),  # whose languages choose the columns
        ({"pair": "en-en"}, "few_pairs"),
        ({"pair": "letters-phonemes"}, "few_pairs"),
        ({"pair": "article-en"}, "few_pairs"),
        ({"pair": "en-de", "tokenizer": "bytes,bpe"}, "few_pairs"),
        ({"pair": "en-de", "tokenizer": "symbols"}, "few_pairs"),
        ({"pair": "en-de", "init_from": "everyday-en-de"}, "few_pairs"),
        ({"pair": "en-de", "monolingual_target": "mono.de"}, "few_pairs"),
        ({"pair": "en-de", "teachers": "everyday-en-de"}, "few_pairs"),
        ({"pair": "en-de", "siblings": 2}, "fewest_pairs"),
    ],
)
def test_only_translations_that_are_all_there_is_are_turned(tmp_path, monkeypatch, typed, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mono.de").write_text("Haus\n")
    (tmp_path / "pairs.tsv").write_text("de\ten\nHaus\thouse\nHund\tdog\n")
    typed = {"train_file": "pairs.tsv", **typed}
    assert recipe_by_size(typed, tmp_path) == load_recipe(expected, typed)
    assert load_recipe(expected).both_directions == (expected == "fewest_pairs")


# -------------------------------------------------------------------------------------- data


@pytest.mark.parametrize(
    "error", [OfflineModeIsEnabled("offline"), HTTPError("no net"), HFValidationError("a/b/c")]
)
def test_recorded_revision_is_the_requested_one_if_the_hub_gives_none(monkeypatch, tmp_path, error):
    def dataset_info(*args, **kwargs):
        raise error

    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", dataset_info)
    for revision in (None, "v1"):
        recipe = make_recipe({"dataset": "someone/pairs", "dataset_revision": revision})
        assert data_identity(planning.data_plan(recipe, tmp_path)) == {"revision": revision}


CORPORA = "train_file: [a.tsv, b.tsv]\ntrain_weights: "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch_token: 5", "unknown key 'batch_token' (did you mean batch_tokens?)"),
        ("max_steps: true", "max_steps: got 'true'; it must be a whole number from 1"),
        ("dropout: nan", "dropout: got nan; it must be a number, at least 0 and less than 1."),
        ("strict: yes", "strict: got 'yes'; it must be true or false."),
        ("precision: fp8", "precision: got 'fp8'; it must be one of auto, fp32, bf16."),
        ("d_model: 100\nattention_heads: 3", "d_model=100 is not divisible by 3 encoder heads"),
        (f"max_steps: {'9' * 4_000}", f"max_steps: got {'9' * 56} ...; it must be a whole number"),
        (f"{'x' * 500}: 1", f"unknown key '{'x' * 55} ...; "),
        ("max_steps: [1, 2]", "max_steps: got a list; it must be a whole number"),
        ('data_source: "a\\0b"', r"data_source: got 'a\x00b'; it must be text in UTF-8"),
        ("position_encoding: learned\nmax_source_length: 1025", "learned positions end at 1024"),
        ("preset: huge", "There is no preset 'huge'; choose one of base,"),
        ("pair: german", "pair: got 'german'; write SOURCE-TARGET"),
        ("- a\n- b", "the content in"),
        ("tokenizer: 'bpe,'", "give one, or two as A,B"),
        ("tokenizer: bpe,bytes,bpe", "give one, or two as A,B"),
        (f"{CORPORA}[1]", "train_weights: got 1 for 2 corpora; give one for each."),
        ("train_weights: [1, 2]", "train_weights: got 2 for 0 corpora"),
        (f"{CORPORA}[1, 0]", "train_weights: got 0.0; it must be a number, more than 0"),
        (f"{CORPORA}[1, inf]", "train_weights: got inf; it must be"),
        (f"{CORPORA}[1, null]", "train_weights: got a list; it must be a number"),
        (f"{CORPORA}heavy", "train_weights: got 'heavy'; it must be a number"),
    ],
)
def test_invalid_recipes_give_a_one_line_error(tmp_path, text, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        load_recipe(write(tmp_path, text))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_every_number_has_a_range_that_includes_its_default():
    for field in OPTIONS.values():
        kind, optional = option_type(field.name)
        if kind in (int, float):
            assert field.metadata["allowed"].whole == (kind is int)
            assert field.default in field.metadata["allowed"] or (optional and not field.default)
    assert OPTIONS["vocab_size"].metadata["allowed"].least == smallest_vocab_size()


@pytest.mark.parametrize("name", OPTIONS)
def test_any_value_of_an_option_is_used_or_rejected_by_name(name):
    """Errors are short, and accepted values can be written as JSON and UTF-8."""
    for value in (*hostile_values.TEXTS, *hostile_values.OBJECTS):
        refusal = hostile_values.refusal_of(make_recipe, {name: value})
        if refusal is None:
            found = getattr(make_recipe({name: value}), name)
            assert all(isinstance(each, option_type(name)[0]) for each in listed(found))
            assert json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
        else:
            assert name in refusal
            assert len(refusal) < 300


@pytest.mark.parametrize("value", hostile_values.TEXTS)
def test_accepted_text_survives_writing_and_reading(tmp_path, value):
    if hostile_values.refusal_of(make_recipe, {"data_source": value}) is None:
        recipe = make_recipe({"data_source": value})
        assert load_recipe(write(tmp_path, settings_as_yaml(vars(recipe)))) == recipe


def test_names_of_files_may_hold_commas_and_begin_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a, b.tsv").write_text("")
    assert named_files("a, b.tsv") == [Path("a, b.tsv")]
    assert named_files("~/a.en,~/a.de") == [tmp_path / "a.en", tmp_path / "a.de"]
    assert named_files("~a.en,b.de") == [Path("~a.en"), Path("b.de")]
    assert named_files("a.en, ~/b.de") == [Path("a.en"), tmp_path / "b.de"]
    (tmp_path / " c.de").touch()  # a name may begin with a space
    assert named_files("a.en, c.de") == [Path("a.en"), Path(" c.de")]


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("demo", {"pair": "en-zh"}),
        ("wmt14_ende_big", {"seed": "3", "learning_rate": "2e-4"}),
        ("multi30k_en_de", {"train_file": "a b.jsonl,c.tsv.gz", "data_license": "it's mine"}),
        ("student", {"train_file": ["a b.tsv", "c.en,c.de"], "train_weights": ["4", "0.5"]}),
        ("few_pairs", {"trainer": ["optim=adafactor", "save_steps=7"], "init_from": "runs/demo"}),
    ],
)
def test_changed_settings_are_a_recipe_with_the_same_values(name, overrides, tmp_path):
    recipe = load_recipe(name, overrides)
    text = changed_settings_as_yaml(json.loads(json.dumps(vars(recipe))))
    assert load_recipe(write(tmp_path, text)) == recipe
    assert "strict" not in text
