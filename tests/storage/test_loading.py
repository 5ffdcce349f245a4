"""Directories with a model that does not load: every command gives a one-line error."""

import json
import math
import shutil
import sys
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from published_runs import tiny_model, tiny_tokenizer
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, modeling_utils

from vanilla_transformer.cli import parser as cli
from vanilla_transformer.publish.remote_code import embed_code
from vanilla_transformer.storage.reading import own_file
from vanilla_transformer.storage.saved_model import (
    copy_own_files,
    load_saved_model,
    load_saved_tokenizer,
    model_folder,
    weight_files,
)

PAIR = {"translation": {"de": "ein Hund", "en": "a dog"}}


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for part in (tiny_model(), tiny_tokenizer()):
        part.save_pretrained("run")
    Path("source.txt").write_text("ein Hund\n")
    Path("test.jsonl").write_text(json.dumps(PAIR) + "\n")
    return Path("run")


def change_json(path, **changes):
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(content | changes))


def pickle_alone(run):
    torch.save(load_file(run / "model.safetensors"), run / "pytorch_model.bin")
    (run / "model.safetensors").unlink()


def lose_the_tokenizer(run):
    for path in run.glob("tokenizer*"):
        path.unlink()


def name_a_shard(name):
    """Return a change after which an index of weights names a file `name`."""

    def change(run):
        tensors = load_file(run / "model.safetensors")
        (run / "model.safetensors").unlink()
        save_file(tensors, run / "part.safetensors", metadata={"format": "pt"})
        weight_map = dict.fromkeys(tensors, "part.safetensors") | {"another": name}
        index = {"metadata": {}, "weight_map": weight_map}
        (run / "model.safetensors.index.json").write_text(json.dumps(index))

    return change


def set_weights(edit):
    """Return a change of the tensors of a model by a function of them."""

    def change(run):
        path = run / "model.safetensors"
        save_file(edit(load_file(path)), path, metadata={"format": "pt"})

    return change


def set_config(**changes):
    return lambda run: change_json(run / "config.json", **changes)


LOST = "model.decoder.layers.0.cross_attn.q_proj.weight"
DAMAGE = {
    "pickled weights alone": (pickle_alone, "has only pytorch_model.bin, which could run"),
    "no weights": (lambda run: (run / "model.safetensors").unlink(), "has no trained model"),
    "a tensor less": (
        set_weights(lambda found: {name: found[name] for name in found if name != LOST}),
        f"missing weights, such as {LOST}",
    ),
    "a tensor more": (
        set_weights(lambda found: found | {"model.lora_A": torch.zeros(2, 24)}),
        "unexpected weights, such as model.lora_A",
    ),
    "another shape": (set_config(encoder_ffn_dim=48), "mismatched weights, such as"),
    "a value of another type": (set_config(d_model="16"), "'d_model' expected int"),
    "NaN in the weights": (
        set_weights(lambda found: found | {LOST: found[LOST] * math.nan}),
        f"{LOST} in run/model.safetensors holds NaN",
    ),
    "a shard as a pickle": (name_a_shard("shard.bin"), "lists 'shard.bin', which is not"),
    "a shard elsewhere": (name_a_shard("../b.safetensors"), "lists '../b.safetensors', which"),
    "a misspelt field": (set_config(unk_tokn_id=3), "run/config.json: A config has no field"),
    "an odd dtype": (set_config(dtype="float33"), "config.json is not a model configuration: "),
    "weights in whole numbers": (
        set_weights(lambda found: {name: weight.int() for name, weight in found.items()}),
        "mismatched weights",
    ),
    "a list of a list": (set_config(architectures=[["x"]]), "architectures in run/config.json is"),
    "a class of the user": (
        set_config(architectures=["WithRotary"]),
        "'WithRotary', whose code is",
    ),
}
OTHER_KINDS = {
    "an unknown kind": (set_config(model_type="mystery"), "model_type 'mystery', which is no seq"),
    "no number": (
        lambda run: change_json(run / "generation_config.json", length_penalty=math.nan),
        "ot length_penalty=nan; it must be",
    ),
    "no tokenizer": (lose_the_tokenizer, "has no tokenizer; save the tokenizer"),
}
EVALUATE = ["evaluate", "run", "--pair", "de-en", "--test-file", "test.jsonl"]
COMMANDS = {
    "translate": (["translate", "run", "source.txt"], DAMAGE | OTHER_KINDS),
    "evaluate": (EVALUATE, OTHER_KINDS),
    "export": (["export", "stock", "run", "out"], DAMAGE),
}


def error_of(words, capsys):
    assert cli.main(words) == 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line[:8] == "vanilla-")
    return line


@pytest.mark.parametrize(
    ("command", "damage"),
    [(command, damage) for command, (_, known) in COMMANDS.items() for damage in known],
)
def test_files_that_do_not_load_give_a_one_line_error(run, capsys, command, damage):
    words, known = COMMANDS[command]
    change, message = known[damage]
    change(run)
    assert message in error_of(words, capsys)
    assert not Path("out").exists()


def test_an_interrupted_run_is_said_to_have_checkpoints(run, capsys):
    (run / "config.json").unlink()
    (run / "recipe.yaml").touch()
    (run / "checkpoints").mkdir()
    line = error_of(["translate", "run", "source.txt"], capsys)
    assert "run has no trained model (no config.json); its training is not finished" in line
    assert line.endswith("give a checkpoint in run/checkpoints.")


@pytest.mark.parametrize(
    ("kind", "package", "vocabulary"),
    [
        ("FSMTTokenizer", "sacremoses", "vocab-src.json"),
        ("MarianTokenizer", "sentencepiece", "vocab.json"),
    ],
)
def test_missing_tokenizer_package_is_named(run, monkeypatch, capsys, kind, package, vocabulary):
    lose_the_tokenizer(run)
    change_json(run / "tokenizer_config.json", tokenizer_class=kind)
    change_json(run / vocabulary, a=0)
    monkeypatch.setitem(sys.modules, package, None)
    line = error_of(["translate", "run", "source.txt"], capsys)
    assert package in line
    assert "pip install '.[import]'" in line


def test_code_in_a_model_directory_is_not_run(run, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("asked"))
    expected = load_saved_model(run).state_dict()
    embed_code(run)
    for path in run.glob("*.py"):
        path.write_text("raise AssertionError('was run')\n")
    found = load_saved_model(run).state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert len(load_saved_tokenizer(run)) == len(tiny_tokenizer())
    change_json(run / "config.json", model_type="mystery")
    with pytest.raises(ValueError, match="code of a model is not run"):
        load_saved_model(run)


def test_a_copied_tokenizer_has_the_vocabulary_of_sentencepiece(tmp_path):
    for name in ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model"):
        (tmp_path / name).write_text(name)
        (tmp_path / "copy").mkdir(exist_ok=True)
        copy_own_files(tmp_path, tmp_path / "copy")
        assert (tmp_path / "copy" / name).read_text() == name


def test_config_files_cannot_choose_code_or_replace_methods(run, monkeypatch):
    """Try every setting by which transformers loads kernels, quantizers or other weights."""
    expected = load_saved_model(run)
    loaded = []
    monkeypatch.setattr(modeling_utils, "lazy_import_flash_attention", loaded.append)
    monkeypatch.setattr(modeling_utils, "get_hf_quantizer", refuse_a_quantizer)
    change_json(
        run / "config.json",
        **dict.fromkeys(("attn_implementation", "_attn_implementation"), "someone/kernel"),
        **{"_attn_implementation_internal": "someone/kernel", "experts_implementation": "a/b"},
        **{"quantization_config": {"quant_method": "awq"}, "fusion_config": {"a": True}},
        **{"transformers_weights": "adapter_model.bin", "to_dict": "x", "get_text_config": 1},
        **{"custom_pipelines": {"translate": {"impl": "evil.Pipeline"}}, "mine": "kept"},
    )
    change_json(run / "generation_config.json", to_dict="x", validate=5)
    (run / "adapter_config.json").write_text('{"base_model_name_or_path": "someone/else"}')
    found = load_saved_model(run)
    assert loaded == []
    assert found.config._attn_implementation == expected.config._attn_implementation == "sdpa"
    assert found.config.mine == "kept"
    assert found.generation_config.to_dict() == expected.generation_config.to_dict()
    names = expected.state_dict()
    assert all(torch.equal(found.state_dict()[name], names[name]) for name in names)


def test_ids_that_the_generation_config_lacks_are_the_models(run):
    """A stock class cannot search without them; ours has the same ids in both files."""
    (run / "generation_config.json").write_text("{}", encoding="utf-8")
    model = load_saved_model(run)
    for name in ("decoder_start_token_id", "eos_token_id", "pad_token_id"):
        assert getattr(model.generation_config, name) == getattr(model.config, name)


def refuse_a_quantizer(config, quantization_config, device_map, *others, **more):
    assert not hasattr(config, "quantization_config")
    return None, config, device_map


def test_sharded_weights_load_like_a_single_file(run, tmp_path):
    model = load_saved_model(run)
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(weight_files(tmp_path / "shards")) > 1
    found = load_saved_model(tmp_path / "shards").state_dict()
    assert all(torch.equal(found[name], weight) for name, weight in model.state_dict().items())


def test_large_finite_half_precision_weights_are_accepted(run):
    """Their sum overflows in that precision."""
    tensors = {name: weight.half() for name, weight in load_file(run / "model.safetensors").items()}
    tensors["model.shared.weight"].fill_(60_000)
    save_file(tensors, run / "model.safetensors", metadata={"format": "pt"})
    change_json(run / "config.json", dtype="float16")
    assert load_saved_model(run).dtype == torch.float16


def test_tokenizer_that_does_not_fit_the_model_is_noticed(run, caplog):
    for end in (2, [9, 2]):
        change_json(run / "config.json", eos_token_id=end)
        load_saved_tokenizer(run)
        assert not caplog.text
    change_json(run / "config.json", eos_token_id=7)
    load_saved_tokenizer(run)
    assert "has eos_token_id=2, config.json 7; is it the model's" in caplog.text
    change_json(run / "config.json", vocab_size=20)
    with pytest.raises(ValueError, match=r"has ids up to 286, but config.json says vocab_size=20"):
        load_saved_tokenizer(run)


def test_links_are_followed_only_within_the_hub_cache(run, tmp_path):
    """In the cache, every file of a snapshot is a link to a blob."""
    snapshot, blobs = tmp_path / "cache" / "snapshots" / "c0", tmp_path / "cache" / "blobs"
    snapshot.mkdir(parents=True)
    shutil.copytree(run, blobs)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(Path("..", "..", "blobs", path.name))
    assert load_saved_model(snapshot)
    assert own_file(snapshot / "config.json") == snapshot / "config.json"
    (snapshot / "notes").symlink_to(tmp_path / "source.txt")
    with pytest.raises(ValueError, match=r"notes is a link to .*source.txt, which lies outside"):
        own_file(snapshot / "notes")


@pytest.mark.parametrize("name", ["run/checkpoint-9", "runs/demo-en-dee"])
def test_a_mistyped_folder_is_not_asked_of_the_hub(run, monkeypatch, capsys, name):
    monkeypatch.setattr("vanilla_transformer.storage.saved_model.snapshot_download", None)
    Path("runs").mkdir()
    assert f"There is no folder {name}" in error_of(["translate", name, "source.txt"], capsys)


# ------------------------------------------------------------------------------ LoRA adapters


@pytest.fixture
def adapter(run):
    """Write an adapter of the run that changes what it computes, and return the adapted model."""
    settings = {"task_type": "SEQ_2_SEQ_LM", "target_modules": ["q_proj", "v_proj"], "r": 2}
    adapted = get_peft_model(load_saved_model(run), LoraConfig(**settings))
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                weight.normal_()
    adapted.save_pretrained("lora")
    return adapted.eval()


def test_an_adapter_is_a_model_of_every_command(run, adapter, capsys, quick_publishing):
    tokenizer = load_saved_tokenizer(run)
    inputs = dict(tokenizer("ein Hund", text_target="a dog", return_tensors="pt"))
    expected = adapter(**inputs)
    merged = load_saved_model(model_folder("lora"))
    assert torch.allclose(merged(**inputs).logits, expected.logits, atol=1e-5)
    base = load_saved_model(run)(**inputs)
    assert not torch.allclose(base.logits, expected.logits, atol=1e-2)
    for words in (
        ["translate", "lora", "source.txt", "--output", "out.txt"],
        ["evaluate", "lora", "--pair", "de-en", "--test-file", "test.jsonl"],
        ["export", "stock", "lora", "stock"],
        ["publish", "lora", "--repo", "user/name", "--license", "other", "--output", "published"],
    ):
        assert cli.main(words) == 0, capsys.readouterr().err
    stock = AutoModelForSeq2SeqLM.from_pretrained("stock")
    published = AutoModelForSeq2SeqLM.from_pretrained("published")
    for model in (stock, published):
        assert torch.allclose(model(**inputs).logits, expected.logits, atol=1e-4)


def rename_tensors(old, new):
    def change(folder):
        path = folder / "adapter_model.safetensors"
        tensors = {name.replace(old, new): tensor for name, tensor in load_file(path).items()}
        save_file(tensors, path, metadata={"format": "pt"})

    return change


def widen_the_base(folder):
    tiny_model(d_model=32).save_pretrained("run")


def name_base(**changes):
    return lambda folder: change_json(folder / "adapter_config.json", **changes)


@pytest.mark.parametrize(
    ("damage", "message"),
    {
        "of another model": (rename_tensors("layers.0", "layers.7"), "is not an adapter"),
        "of another width": (
            lambda _: tiny_model(d_model=32).save_pretrained("run"),
            "fit its base",
        ),
        "without a base": (name_base(base_model_name_or_path=None), "give a LoRA adapter of"),
        "of a lost base": (name_base(base_model_name_or_path="lost"), "There is no folder lost"),
        "of another kind": (name_base(peft_type="IA3"), "has peft_type 'IA3'"),
        "a pickle": (lambda lora: (lora / "adapter_model.safetensors").unlink(), "adapter_model"),
    }.values(),
)
def test_an_adapter_that_does_not_fit_is_refused_in_one_line(adapter, capsys, damage, message):
    damage(Path("lora"))
    assert message in error_of(["translate", "lora", "source.txt"], capsys)


def test_an_adapter_without_peft_says_what_to_install(adapter, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "peft", None)
    assert "peft; in the clone of vanilla_transformer, pip install '.[lora]'" in error_of(
        ["translate", "lora", "source.txt"], capsys
    )
