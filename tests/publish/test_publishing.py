"""Which files of a model are published, which models are rejected, and what the card says."""

import ast
import copy
import itertools
import json
import re
import runpy
import shlex
import shutil
import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from card_checks import card_problems
from command_line import error_of as error_of_command
from huggingface_hub import ModelCard
from opus_models import save_opus
from pages import BLOCKS, in_clone
from published_runs import (
    METRICS,
    SCORES,
    SENTENCES,
    load_here,
    named_code,
    save_all,
    tiny_model,
    tiny_tokenizer,
    write_run,
)
from safetensors.torch import load_file
from tiny_runs import tiny_recipe
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
    pipeline,
)

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.cli import parser as cli
from vanilla_transformer.convert.exporters.stock import export_stock
from vanilla_transformer.errors import RequestError
from vanilla_transformer.evaluation.scores import choose_samples
from vanilla_transformer.publish import publishing
from vanilla_transformer.publish.card import (
    check_licenses,
    is_non_commercial,
    paper_differences,
    render_card,
)
from vanilla_transformer.publish.publishing import publish_folder
from vanilla_transformer.publish.space import write_space
from vanilla_transformer.recipes.recipe import Recipe, load_recipe, shipped_recipes
from vanilla_transformer.storage.atomic import MARKER
from vanilla_transformer.train import run_recipe, synthetic_pairs

ROOT = Path(__file__).parents[2]
MODEL = {"config.json", "generation_config.json", "model.safetensors"}
TOKENIZER = {"tokenizer.json", "tokenizer_config.json"}
CARD = {"README.md", "metrics.json", "curves.png", "history.tsv"}
CARD |= {f"attention-{number}.png" for number in (1, 2, 3)}
COMMITTED = [path.parent for path in in_clone("model_cards/*/metrics.json")]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "mine")


@pytest.fixture
def copied(run, tmp_path):
    """Return a copy of the run that a test may damage."""
    return Path(shutil.copytree(run, tmp_path / "run"))


def error_of(capsys, *arguments):
    """Run `publish`, which must fail, and return its one-line error."""
    return error_of_command(capsys, "publish", *arguments)


def request(directory, *more, license="cc-by-4.0"):
    return [directory, "--repo", "user/de-en", "--license", license, *more]


def facts(**changes):
    """Return the content of a published metrics.json."""
    content = copy.deepcopy(METRICS)
    rows = content["samples"]["test"]
    content["samples"] = {"card": [{**row, "translation": row["reference"]} for row in rows]}
    published = {"model": "user/de-en", "pushed": True, "form": "native", "license": "cc-by-4.0"}
    published |= {"data_license": "CC BY 4.0", "data_source": "Three sentences", "curves": True}
    content["published"] = {**published, **changes}
    return content


def pictures(folder):
    for name in CARD - {"README.md", "metrics.json"}:
        (folder / name).write_bytes(b"\x89PNG")
    return folder


# ---------------------------------------------------------------------------- what is pushed


@pytest.mark.usefixtures("quick_publishing")
def test_dry_run_lists_every_file_without_contacting_the_hub(run, tmp_path, monkeypatch, capsys):
    """The README's command, on another run."""
    program, *arguments = shlex.split(BLOCKS["publish"])
    assert program == ".venv/bin/vanilla-transformer"
    arguments = [str(run) if word == "runs/demo-en-de" else word for word in arguments]

    def refuse(*args, **kwargs):
        raise AssertionError("a dry run must not contact the Hub")

    monkeypatch.setattr("huggingface_hub.HfApi.create_repo", refuse)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    output = tmp_path / "new" / "files"
    arguments += ["--output", str(output)]
    assert cli.main(arguments) == 0
    text = capsys.readouterr().out
    listed = dict(re.findall(r"^(\S+) +([\d,]+)$", text, flags=re.M))
    assert set(listed) == MODEL | TOKENIZER | CARD
    assert f"{len(listed)} files, " in text
    assert "Nothing was pushed" in text
    found = {path.name: f"{path.stat().st_size:,}" for path in output.iterdir()}
    assert found.pop(MARKER)
    assert found == listed
    assert AutoModelForSeq2SeqLM.from_pretrained(output).config.name_or_path == str(output)
    assert {path: path.read_bytes() for path in before} == before
    assert cli.main(arguments) == 2
    assert "files exists; give --overwrite to replace it" in capsys.readouterr().err
    for path in output.glob("*.[jm]*[nd]"):
        assert b"somebody" not in path.read_bytes()


def test_published_config_has_no_leftovers_from_training(copied, tmp_path):
    settings = {"generation_config.json": {"max_length": 20, "_from_model_config": True}}
    settings["config.json"] = {"_name_or_path": "/home/a", "use_cache": False, "auto_map": {}}
    settings["tokenizer_config.json"] = {"name_or_path": "/home/a/b", "tokenizer_file": "/home/c"}
    for name, left in settings.items():
        kept = json.loads((copied / name).read_text())
        settings[name] = {key: value for key, value in kept.items() if key not in left}
        (copied / name).write_text(json.dumps(kept | left))
    settings["config.json"]["use_cache"] = True
    publishing.stage_model(copied, tmp_path / "staged", with_code=False)
    for name, expected in settings.items():
        assert json.loads((tmp_path / "staged" / name).read_text()) == expected
    assert {path.name for path in (tmp_path / "staged").iterdir()} == MODEL | TOKENIZER
    (copied / "generation_config.json").unlink()  # config.json may have its fields
    publishing.stage_model(copied, tmp_path / "again", with_code=False)
    names = {path.name for path in (tmp_path / "again").iterdir()}
    assert names == (MODEL | TOKENIZER) - {"generation_config.json"}


def test_another_model_than_the_runs_is_published_with_its_own_scores_only(
    copied, tmp_path, quick_publishing, capsys
):
    """With what holds for it too: of the run's rounded weights, or of the run's test pairs."""
    whole = json.loads((copied / "metrics.json").read_text())
    whole["data"] |= {"shared_with_training": {"test": 3}, "files": {"test": {"test.tsv": "ab"}}}
    whole["recipe"]["checkpoints_to_average"] = 7
    whole["chosen_on_validation"] = {"pairs": 200, "averaged": 2, "usual_pieces": 9}
    (copied / "metrics.json").write_text(json.dumps(whole))
    other = write_run(tmp_path / "other", seed=1)
    (other / "metrics.json").unlink()
    assert "give different outputs; score" in error_of(capsys, *request(other, "--run", copied))

    def card_of_other(output, **scores):
        (other / "metrics.json").write_text(json.dumps({"scores": {"test": SCORES | scores}}))
        publish_folder(other, "u/n", run=copied, license="mit", output=tmp_path / output)
        return (tmp_path / output / "README.md").read_text()

    search = json.loads((other / "generation_config.json").read_text())
    (other / "generation_config.json").write_text(json.dumps({**search, "length_penalty": 1.7}))
    card = card_of_other("average", bleu=12.34)
    assert "BLEU 12.3 on the test set" in card
    assert "| `length_penalty` | 1.7 | 0.6 |" in card
    run_facts = ("mean of the last", "on 200", "`checkpoints_to_average`", "Test file", "pairs too")
    assert [fact for fact in run_facts if fact in card] == ["Test file", "pairs too"]
    tiny_model().bfloat16().float().save_pretrained(other)  # the run's, rounded
    card = card_of_other("rounded", copy_baseline={"bleu": 0.5})  # of other pairs
    assert [fact for fact in run_facts if fact in card] == [*run_facts[:3]]
    tiny_tokenizer(280).save_pretrained(other)
    assert "have different vocabularies" in error_of(capsys, *request(other, "--run", copied))


@pytest.mark.parametrize("scored", [True, False])
def test_a_model_without_a_training_record_has_a_card_of_what_is_known(
    copied, tmp_path, quick_publishing, caplog, scored
):
    (copied / "metrics.json").unlink()
    if scored:
        (copied / "metrics.json").write_text(json.dumps({"scores": {"test": SCORES}}))
    shutil.rmtree(copied / "checkpoints")
    publish_folder(copied, "u/n", license="mit", output=tmp_path / "out")
    assert "has no training record" in caplog.text
    card = ModelCard((tmp_path / "out" / "README.md").read_text())
    problems = card_problems(card, tmp_path / "out")
    assert problems == ([] if scored else ["a model-index that does not round-trip"])
    assert ("BLEU 34.4 on the test set" in card.text) is scored
    for heading in ("## Sample", "## Data", "paper, apart"):
        assert heading not in card.text
    assert "Nothing about the training, nor about its pairs, is recorded." in card.text
    model = VanillaTransformerForConditionalGeneration.from_pretrained(copied)
    assert f"{model.num_parameters() / 1e6:.1f} million parameters" in card.text


def test_what_a_trainer_left_and_what_evaluate_measured_are_on_the_card(
    tmp_path, monkeypatch, capsys, quick_publishing
):
    """Scores of another model are refused, and so is one that changed afterwards."""
    monkeypatch.chdir(tmp_path)
    for folder, seed in (("saved", 0), ("other", 1)):
        save_all(folder, tiny_model(seed), tiny_tokenizer())
    log = [{"loss": 5.5, "step": 2}, {"eval_loss": 2.5, "eval_runtime": 3.0, "eval_bleu": 7.25}]
    state = {"global_step": 1234, "epoch": 2.5, "log_history": [*log, {"train_runtime": 600.0}]}
    Path("saved/trainer_state.json").write_text(json.dumps(state))
    rows = [{"de": source, "en": target} for source, target in SENTENCES.items()]
    Path("test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for folder in ("saved", "other"):
        scored = ["--pair", "de-en", "--test-file", "test.jsonl", "--output"]
        assert cli.main(["evaluate", folder, *scored, f"{folder}/metrics.json"]) == 0
    words = [*request("saved"), "--pair", "de-en", "--output", "out"]
    assert cli.main(["publish", *words]) == 0, capsys.readouterr().err
    card = ModelCard(Path("out/README.md").read_text(encoding="utf-8"))
    assert not card_problems(card, Path("out"))
    assert card.data.language == ["de", "en"]
    told = "1,234 updates, 2.5 epochs, 10.0 minutes. The last evaluation of the training: "
    assert f"{told}`eval_loss` 2.5, `eval_bleu` 7.25." in card.text
    for source in SENTENCES:
        assert f"source      {source}" in card.text
    shutil.copy("other/metrics.json", "saved/metrics.json")
    assert "saved/model.safetensors changed after it was scored" in error_of(
        capsys, *request("saved")
    )
    assert not Path("out2").exists()


@pytest.mark.usefixtures("quick_publishing")
@pytest.mark.parametrize("norm_first", [False, True])
def test_a_run_is_published_as_a_stock_class(tmp_path, norm_first):
    run = write_run(tmp_path / "run")
    tiny_model(norm_first=norm_first).save_pretrained(run)
    output = tmp_path / "out"
    options = {"license": "mit", "stock": True, "output": output}
    assert publish_folder(run, "user/de-en", **options).form == "stock"
    stock = AutoModelForSeq2SeqLM.from_pretrained(output)
    kind = "PegasusForConditionalGeneration" if norm_first else "MarianMTModel"
    assert type(stock).__name__ == kind
    card = (output / "README.md").read_text(encoding="utf-8")
    assert "BLEU 34.4 on the test set" in card
    assert "no remote code" in card
    assert not list(output.glob("*.py"))
    tiny_model(position_offset=2).save_pretrained(run)
    with pytest.raises(ValueError, match="position_offset=2; allowed 0"):
        publish_folder(run, "user/de-en", **options)


def bart():
    sizes = {"vocab_size": 300, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1}
    return BartForConditionalGeneration(BartConfig(**sizes))


def t5():
    sizes = {"vocab_size": 300, "d_model": 16, "d_kv": 4, "num_layers": 1}
    return T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0))


@pytest.mark.parametrize("make_model", [bart, t5, None])
def test_models_of_transformers_are_published_as_they_are(tmp_path, make_model, request):
    if make_model is t5:  # the other two show that a clean process loads such models
        request.getfixturevalue("quick_publishing")
    torch.manual_seed(0)
    package = "transformers and torch"
    if make_model is None:
        save_opus(tmp_path / "model", list(SENTENCES), list(SENTENCES.values()))
        package = "transformers, sentencepiece and torch"
    else:
        save_all(tmp_path / "model", make_model(), tiny_tokenizer())
    scores = {"scores": {"test": SCORES}, "samples": {"test": METRICS["samples"]["test"][:1]}}
    (tmp_path / "model" / "metrics.json").write_text(json.dumps(scores))
    output = tmp_path / "out"
    options = {"license": "mit", "output": output, "pair": "de-en", "base_model": "some/model"}
    assert publish_folder(tmp_path / "model", "user/de-en", **options).form == "stock"
    card = ModelCard((output / "README.md").read_text(encoding="utf-8"))
    assert not card_problems(card, output)
    assert card.data.base_model == "some/model"
    assert f"you need only {package}" in card.text


def test_model_with_other_outputs_in_a_clean_process_is_refused(run, quick_publishing, monkeypatch):
    def slightly_otherwise(folder, texts, **options):
        answer = load_here(folder, texts, **options)
        return {**answer, "logits": [logit + 0.01 for logit in answer["logits"]]}

    monkeypatch.setattr(publishing, "load_in_clean_process", slightly_otherwise)
    with pytest.raises(ValueError, match="give different outputs"):
        publish_folder(run, "u/n", license="mit")


# ---------------------------------------------------------------------------- what is rejected


def spoil_the_metrics(folder):
    (folder / "metrics.json").write_text(json.dumps(METRICS | {"epochs": "x", "seed": "y"}))


def pickle_the_weights(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        (None, ["--license", "mit", "--data-license", "non-commercial"], "got 'mit', but"),
        (None, ["--stock", "--with-code"], "--with-code: not allowed with argument --stock"),
        (None, ["--space", "--pair", "de-en"], "--space does not work with --license, --pair"),
        (None, ["--repo", "name"], "got 'name' as repository on the Hub"),
        (None, ["--repo", "user/na me"], "got 'user/na me' as repository on the Hub"),
        (None, ["--run", "."], ". has no training record (metrics.json); check --run"),
        (spoil_the_metrics, [], "epochs, seed in"),
        (lambda folder: (folder / "tokenizer.json").unlink(), [], "has no tokenizer;"),
        (pickle_the_weights, [], "has only pytorch_model.bin, which could run code"),
    ],
)
def test_what_cannot_be_published_is_rejected(copied, capsys, change, words, message):
    if change is not None:
        change(copied)
    assert message in error_of(capsys, *request(copied, *words))


@pytest.fixture
def private(tmp_path, monkeypatch):
    """Return a folder of a telling name with two runs, whose every option of a path lies in it."""
    folder = tmp_path / "Zebra" / "Jane.Doe"
    recipe = tiny_recipe(folder, max_steps=2, trainer={"save_steps": 1})
    tiny_tokenizer().save_pretrained(folder / "pieces")
    (folder / "own.de").write_text("ein Hund\nein Haus\n")
    (folder / "own.en").write_text("a dog\na house\n")
    (folder / "mono.en").write_text("a house\nan old dog\na dog and a house\n")
    (folder / "set").mkdir()
    for split in ("train", "validation", "test"):
        shutil.copyfile(folder / f"{split}.jsonl", folder / "set" / f"{split}.jsonl")
    first = {
        "train_file": (str(folder / "train.jsonl"), f"{folder / 'own.de'},{folder / 'own.en'}"),
        **{"tokenizer": str(folder / "pieces"), "monolingual_target": str(folder / "mono.en")},
        "test_file": f"{folder / 'own.de'},{folder / 'own.en'}",
    }
    second = dict.fromkeys(("train_file", "validation_file", "test_file"))
    second |= {"init_from": str(folder / "first"), "dataset": str(folder / "set")}
    monkeypatch.setattr(synthetic_pairs, "FEWEST_PAIRS", 1)
    for name, values in (("first", first), ("second", second)):
        given = {**values, "data_license": "CC BY 4.0"}
        run_recipe(load_recipe(str(recipe), given), folder / name)
    return folder


def test_no_path_of_this_machine_is_published(private, tmp_path, quick_publishing, monkeypatch):
    first, second, place = private / "first", private / "second", tmp_path / "Quokka"
    mean = shutil.copytree(second / "checkpoints" / "checkpoint-2", private / "mean")
    of_tokenizers = ("name_or_path", "tokenizer_file", "special_tokens_map_file")
    for name, leaks in (  # as transformers 4 saves them
        ("config.json", ["_name_or_path"]),
        ("tokenizer_config.json", of_tokenizers),
        ("generation_config.json", ["_name_or_path"]),
    ):
        settings = json.loads((mean / name).read_text())
        (mean / name).write_text(json.dumps(settings | dict.fromkeys(leaks, str(mean / "x"))))
    evaluate = ["evaluate", str(mean), "--pair", "de-en", "--test-file"]
    evaluate += [str(private / "test.jsonl"), "--output", str(mean / "metrics.json")]
    assert cli.main(evaluate) == 0
    count = itertools.count()

    def keep(source, *arguments, **options):
        shutil.copytree(source, place / f"pushed-{next(count)}")

    monkeypatch.setattr(publishing, "push_folder", keep)
    stock = export_stock(first, tmp_path / "stock")
    for source, options in (
        (first, {"push": True}),
        (first, {"push": False, "with_code": True}),
        (stock, {"push": True, "run": first}),
        (mean, {"push": True, "run": second}),
        (second, {"push": False}),
    ):
        output = place / f"output-{next(count)}"
        publish_folder(source, "user/de-en", license="mit", output=output, force=True, **options)
    write_space(place / "space", "user/de-en")
    secrets = [part.encode() for part in (*private.parts[-2:], place.name)]
    files = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    assert sum(path.name == "README.md" for path in files) == 5 + 3 + 1
    assert [path for path, text in files.items() if any(map(text.__contains__, secrets))] == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"data": {"train_pairs": 120, "train_pairs_kept": 120, "train_made": 240}},
            ["120 used of 120 read, and 240 that are made of them", "knows 120 pairs and nothing"],
        ),
        ({"data": {"train_back_translated": 70}}, ["read, 70 of which are text in the target"]),
        ({"threads": [1, 2]}, ["on 1 to 2 CPU cores"]),
        ({"threads": [1]}, ["on 1 of 2 CPU cores"]),
        ({}, [f"train.jsonl (SHA-256 `{'8e' * 32}`)", "100,000), 5.259 epochs, 2,522,630"]),
        ({"recipe": {"train_weights": [4, 1]}}, ["100,000), 2,522,630 target"]),
        (
            {"data": {"files": {}, "revision": "ab" * 20}}
            | {"recipe": {"train_file": None, "dataset": "user/pairs"}},
            [
                "[user/pairs](https://hf.co/datasets/user/pairs)",
                f"| Revision | `{'ab' * 20}` |",
                "datasets:\n- user/pairs\n",
                f"revision: {'ab' * 20}\n",
            ],
        ),
    ],
)
def test_card_says_what_the_data_are_and_what_trained(changes, words):
    content = facts()
    for name, value in changes.items():
        content[name] = content[name] | value if isinstance(value, dict) else value
    text = str(render_card(content))
    assert [word for word in words if word not in text] == []


def test_card_names_the_versions_that_the_package_takes():
    needed = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    first, last = re.search(r'"transformers>=([\d.]+),<5\.(\d+)"', needed).groups()
    text = render_card(facts(form="with_code")).text
    assert f"transformers ({first} to 5.{int(last) - 1})" in text


def test_nothing_is_unpickled_outside_of_one_module():
    """One module reads other systems' files, safely (test_import_*.py)."""
    files = (ROOT / "vanilla_transformer").rglob("*.py")
    call = re.compile(r"\b(torch\.load|pickle\.\w+|np\.load|joblib)\b(?!.*allow_pickle=False)")
    hits = {path.name for path in files if call.search(path.read_text(encoding="utf-8"))}
    assert hits == {"pickles.py"}


@pytest.mark.parametrize("word", ["--token=hf_secret", "hf_secret"])
def test_misplaced_arguments_are_not_echoed(capsys, word):
    line = error_of_command(capsys, "train", "demo", word)
    assert "unknown option --token" in line or "got 1 argument too many" in line
    assert "secret" not in line


# ------------------------------------------------------------------------------------- the code


def test_embedded_code_is_flat_and_is_dropped_again(run, tmp_path):
    folder = tmp_path / "staged"
    publishing.stage_model(run, folder, with_code=True)
    config = json.loads((folder / "config.json").read_text())
    references = [*config["auto_map"].values(), config["custom_pipelines"]["translate"]["impl"]]
    for reference in references:
        module, name = reference.split(".")
        assert f"class {name}(" in (folder / f"{module}.py").read_text(encoding="utf-8")
    assert set(config["auto_map"]) == {"AutoConfig", "AutoModel", "AutoModelForSeq2SeqLM"}
    assert not (folder / "custom_generate").exists()
    # With the package installed, none of the embedded code runs.
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert type(model) is VanillaTransformerForConditionalGeneration
    publishing.stage_model(folder, tmp_path / "again", with_code=False)
    assert "auto_map" not in (tmp_path / "again" / "config.json").read_text()
    assert not list((tmp_path / "again").glob("*.py"))


def test_what_the_package_saves_from_a_published_model_names_no_code(run, tmp_path):
    pushed, saved = tmp_path / "pushed", tmp_path / "saved"
    publishing.stage_model(run, pushed, with_code=True)
    tokenizer = AutoTokenizer.from_pretrained(pushed, trust_remote_code=False)
    for kind in (AutoConfig, AutoModel, AutoModelForSeq2SeqLM):
        kind.from_pretrained(pushed).save_pretrained(saved / kind.__name__)
    translator = pipeline("translate", model=str(pushed), device="cpu")
    translator.save_pretrained(saved / "pipeline")
    settings = Seq2SeqTrainingArguments(
        saved / "trained", **{"max_steps": 1, "save_steps": 1, "report_to": "none", "use_cpu": True}
    )
    rows = [tokenizer("ein Hund", text_target="a dog")]
    collator = DataCollatorForSeq2Seq(tokenizer)
    trainer = Seq2SeqTrainer(translator.model, settings, train_dataset=rows, data_collator=collator)
    trainer.train()
    folders = [path.parent for path in saved.rglob("config.json")]
    assert len(folders) == 5
    assert [path for path in folders if named_code(path) or [*path.glob("*.py")]] == []


# ------------------------------------------------------------------------------------- the card


@pytest.mark.parametrize("form", ["native", "with_code", "stock"])
def test_card_is_complete_in_every_form(tmp_path, form):
    card = render_card(facts(form=form, revision="smaller"))
    assert card_problems(card, pictures(tmp_path)) == []
    text = card.text
    assert text.count('revision="smaller"') == (2 if form == "stock" else 1)
    assert 'revision="main"' not in text
    assert ("/commits/smaller" in text) is (form == "with_code")
    for word in ("34.4", "57.9", "6.72", "28,997 used of 29,000 read", "2 malformed", "3 left out"):
        assert word in text
    for word in ("20.0 minutes", SCORES["bleu_signature"], SCORES["chrf_signature"]):
        assert word in text
    # Our positions are computed from the mask, Marian's are not.
    assert ("Padding belongs on the right" in text) == (form == "stock")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        calls = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)]
        given = [{keyword.arg for keyword in call.keywords} for call in calls]
        trusting = [names for names in given if "trust_remote_code" in names]
        assert all("revision" in names for names in trusting)
        assert bool(trusting) == (form == "with_code")
    for source, translation in SENTENCES.items():
        assert f"    source      {source}\n" in text
        assert f"    translation {translation}\n" in text


@pytest.mark.parametrize(
    "tag",
    ["pt_BR", "pt", "zh-Hans", "zh_Hant_HK", "sr-Latn", "sr_Cyrl_RS", "ca-valencia", "de-1901"],
)
@pytest.mark.parametrize("side", ["source_language", "target_language"])
def test_languages_with_a_region_or_script_are_named_as_the_hub_allows(side, tag):
    content, code = facts(), tag[:2]
    content["recipe"] |= {"source_language": "en", "target_language": "en", side: tag}
    card = render_card(content)
    assert sorted(card.data.language) == sorted(["en", code])
    shown = [] if tag == code else [tag.replace("_", "-")]
    assert card.data.to_dict().get("language_bcp47", []) == shown
    name = {"pt": "Portuguese", "zh": "Chinese", "sr": "Serbian", "ca": "Catalan", "de": "German"}
    assert name[code] + (f" ({tag})" if shown else "") in card.text


@pytest.mark.parametrize("shipped", [None, 0.6, 1.5])
@pytest.mark.parametrize("of_recipe", [None, 0.6, 1.3])
def test_a_card_shows_the_length_penalty_that_the_model_has(shipped, of_recipe):
    content = facts(length_penalty=shipped)
    content["recipe"]["length_penalty"] = of_recipe
    used = of_recipe if shipped is None else shipped
    content["chosen_on_validation"] = {"pairs": 200, "averaged": 2, "length_penalty": 1.5}
    text = render_card(content).text
    assert ("this one and the length penalty 1.5 of" in text) == (shipped == 1.5)
    found = re.findall(r"^\| `length_penalty` \| (\S+) \| 0.6 \|", text, re.M)
    assert found == ([] if used in (None, 0.6) else [f"{used:g}"])


@pytest.mark.parametrize("form", ["native", "with_code", "stock"])
def test_card_of_a_model_that_was_not_pushed_names_nothing_on_the_hub(
    run, tmp_path, quick_publishing, monkeypatch, capsys, form
):
    """Its code loads the folder that it is in, and it shows the run's recipe."""
    monkeypatch.chdir(tmp_path)
    directory = export_stock(run, tmp_path / "marian") if form == "stock" else run
    more = {"with_code": form != "native", "run": run if form == "stock" else None}
    publication = publish_folder(directory, "user/de-en", license="mit", output="mine", **more)
    assert publication.form == form
    assert {name for name in publication.files if name[-3:] != ".py"} == MODEL | TOKENIZER | CARD
    text = Path("mine", "README.md").read_text()
    assert "user/" not in text + Path("mine", "metrics.json").read_text()
    assert "huggingface.co" not in text
    Path("recipe.yaml").write_text(re.search(r"```yaml\n(?!license)(.*?)```", text, re.S).group(1))
    recipe = load_recipe("./recipe.yaml")
    assert (recipe.vocab_size, recipe.train_file) == (300, "train.jsonl")
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)
    capsys.readouterr()
    Path("block.py").write_text(block, encoding="utf-8")
    runpy.run_path("block.py")
    assert f"# {' '.join(capsys.readouterr().out.split())}" == block.splitlines()[-1].rstrip()


@pytest.mark.parametrize(
    ("sides", "languages", "purpose"),
    [
        (("de", "en"), ["de", "en"], "to translate German into English"),
        (("pt_BR", "zh_Hant"), ["pt", "zh"], "to translate Portuguese (pt_BR) into"),
        (("en", "phonemes"), ["en"], "to turn English into phonemes"),
        (("letters", "x"), None, "to turn letters into x"),
        ((None, None), None, "to turn source into target"),
    ],
)
def test_a_card_names_sides_and_only_languages_as_languages(tmp_path, sides, languages, purpose):
    scores = {"num_sentences": 9, "wer": 4.25, "wer_signature": "nrefs:1", "exact_match": 81.0}
    content = facts()
    content["recipe"] |= dict(zip(("source_language", "target_language"), sides, strict=True))
    content["recipe"]["metric"] = "wer,exact_match"
    content["scores"] = {"test": {**scores, "copy_baseline": {"wer": 99.0}, "perplexity": 1.5}}
    card = ModelCard(str(render_card(content)))
    assert card_problems(card, pictures(tmp_path)) == []
    assert card.data.language == languages
    assert card.data.pipeline_tag == ((languages and len(languages) == 2 and "translation") or None)
    assert purpose in card.text
    assert "token error rate 4.2 % on the test set" in card.text
    assert "| test | 9 | 81.0 | 4.2 | 1.50 | 99.0 |" in card.text
    types = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert types == {"exact_match": 81.0, "wer": 4.25, "perplexity": 1.5}


HOSTILE = "a|b `c` [d](javascript:e) ![f](curves.png) <h onclick=i>\n# j\n---\n```\nk: l\n```"
HOSTILE += "\x1b[31m\u202e\x9b"


def test_everything_in_the_metrics_is_escaped_in_the_card(tmp_path):
    """Markup, HTML, YAML and template syntax in untrusted metrics stay plain text."""
    content = facts(data_source=HOSTILE, data_license=HOSTILE)
    content |= {"precision": HOSTILE, "git_commit": HOSTILE, "versions": {HOSTILE: HOSTILE}}
    content["hardware"]["cpu"] = content["recipe"]["activation_function"] = HOSTILE
    content["data"] |= {"files": {HOSTILE: {HOSTILE: HOSTILE}}}
    content["data"]["revision"] = HOSTILE
    content["model"] = {"activation_function": HOSTILE}
    content["scores"][HOSTILE] = SCORES | {"bleu_signature": HOSTILE}
    for sample in content["samples"]["card"]:
        sample.update(dict.fromkeys(("source", "reference", "translation"), HOSTILE))
    card = ModelCard(str(render_card(content)))
    assert card_problems(card, pictures(tmp_path)) == []
    assert not {"\x1b", "\u202e", "\x9b"} & {*str(card)}
    assert card.data.to_dict()["license"] == "cc-by-4.0"
    prose = re.sub(r"^    .*$", "", card.text, flags=re.M)  # samples are shown verbatim
    prose = re.sub(r"```python\n.*?\n```", "", prose, flags=re.S)
    told = re.sub(r"`[^`\n]*`", "", prose).replace(r"\[", "").replace(r"\]", "").replace(r"\<", "")
    assert "javascript" in told
    assert "](javascript" not in told
    assert "<h" not in told
    assert not re.search(r"^(# j|---|k: .*)$", prose, flags=re.M)
    for table in re.findall(r"(?:^\|.*\n)+", prose, flags=re.M):
        columns = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(columns) == 1, table


@pytest.mark.parametrize("name", ["curves.png", "metrics.json", "model.safetensors"])
def test_links_to_outside_the_folder_are_rejected(copied, tmp_path, capsys, quick_publishing, name):
    """A run from someone else could link to any file of the person who publishes it."""
    (copied / name).rename(tmp_path / "secret")
    (copied / name).symlink_to(tmp_path / "secret")
    line = error_of(capsys, *request(copied))
    assert f"{copied / name} is a link to {tmp_path / 'secret'}, which lies outside" in line
    (copied / name).unlink()
    (tmp_path / "secret").rename(copied / "inside")
    (copied / name).symlink_to("inside")
    (tmp_path / "whole").symlink_to(copied)
    assert publish_folder(tmp_path / "whole", "user/de-en", license="mit").files[name]


def test_at_least_three_samples_are_kept_for_the_card():
    texts = ["one", "two", "three", "four"]
    result = dict.fromkeys(("sources", "references", "hypotheses"), texts)
    for asked, chosen in ((0, 3), (1, 3), (4, 4), (9, 4)):
        samples = choose_samples({"validation": {}, "test": result}, asked)
        assert [len(of_one_set) for of_one_set in samples.values()] == [chosen]
    assert list(choose_samples({"validation": result}, 3)) == ["validation"]
    assert choose_samples({}, 3) == {}


NON_COMMERCIAL = ("cc-by-nc-4.0", "CC BY-NC-SA 2.0", "Non-commercial research", "noncommercial")
FREE = ("cc-by-4.0", "Unicode-3.0", "mit", "CC BY 2.0 FR", "license of France", "other")


@pytest.mark.parametrize("of_data", [*NON_COMMERCIAL, *FREE])
def test_a_model_of_non_commercial_pairs_says_so(of_data):
    assert is_non_commercial(of_data) == (of_data in NON_COMMERCIAL)
    told = "They are for non-commercial use, and so is this model."
    assert (told in render_card(facts(data_license=of_data)).text) == (of_data in NON_COMMERCIAL)
    for license in (*NON_COMMERCIAL, *FREE):
        allowed = of_data in FREE or license in (*NON_COMMERCIAL, "other")
        with nullcontext() if allowed else pytest.raises(RequestError, match="commercial use"):
            check_licenses(license, of_data)


def test_card_lists_the_recipes_differences_from_the_paper():
    assert paper_differences(dict.fromkeys(Recipe.__dataclass_fields__)) == []
    for name in ("wmt14_ende_base", "wmt14_ende_big"):
        assert paper_differences(vars(load_recipe(name))) == []
    recipe = load_recipe("multi30k_en_de", {"dropout": "0.15"})
    rows = {row["name"]: row for row in paper_differences(vars(recipe))}
    assert (rows["dropout"]["here"], rows["dropout"]["paper"]) == ("0.15", "0.1")
    # Time limits and intervals are not settings of the paper. max_steps is left out because the
    # card already shows the updates that were made.
    assert not {"seed", "max_minutes", "max_steps"} & rows.keys()
    (row,) = paper_differences({}, {"activation_function": "swish"})
    assert (row["here"], row["paper"]) == ("swish", "relu")
    fewest = {row["name"] for row in paper_differences(vars(load_recipe("fewest_pairs")))}
    assert {"join_pairs", "both_directions"} <= fewest


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_shipped_recipes_name_the_licence_of_their_pairs(name):
    recipe = load_recipe(name)
    assert bool(recipe.data_license) == bool(recipe.dataset)
    own = load_recipe(name, {"train_file": "mine.jsonl"})
    assert (own.data_license, own.data_source) == (None, None)


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: folder.name)
def test_committed_cards_match_their_metrics(folder):
    content = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    card = render_card(content)
    assert str(card) == (folder / "README.md").read_text(encoding="utf-8")
    assert card_problems(card, folder) == []
    assert not re.search(r"/(home|work|tmp|root)/", json.dumps(content))


def test_wheel_contains_the_card_template():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    places = wheel["targets"]["wheel"]["force-include"]
    assert places["model_cards/card.md.j2"] == "vanilla_transformer/_model_cards/card.md.j2"
    assert '"_model_cards"' in (ROOT / "vanilla_transformer" / "publish" / "card.py").read_text()
