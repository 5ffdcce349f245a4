"""Directories whose model does not load: every command says so in one line."""

import json
import logging
import sys
from pathlib import Path

import pytest
import torch
from published_runs import tiny_model, tiny_tokenizer
from safetensors.torch import load_file, save_file

from vanilla_transformer.cli import parser as cli
from vanilla_transformer.convert.engines import load_engine
from vanilla_transformer.publish.remote_code import embed_code
from vanilla_transformer.storage.saved_model import load_saved_model, load_saved_tokenizer

PAIR = {"translation": {"de": "ein Hund", "en": "a dog"}}


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for part in (tiny_model(), tiny_tokenizer()):
        part.save_pretrained("run")
    Path("source.txt").write_text("ein Hund\n")
    Path("test.jsonl").write_text(json.dumps(PAIR) + "\n")
    return Path("run")


@pytest.fixture(autouse=True)
def no_old_streams():
    """What an earlier command of this process logs to may be closed."""
    logging.getLogger("vanilla_transformer").handlers.clear()


def change_json(path, **changes):
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(content | changes))


def pickle_alone(run):
    torch.save(load_file(run / "model.safetensors"), run / "pytorch_model.bin")
    (run / "model.safetensors").unlink()


def cut(name):
    return lambda run: (run / name).write_bytes((run / name).read_bytes()[:-9])


def lose_a_tensor(run):
    tensors = load_file(run / "model.safetensors")
    del tensors["model.decoder.layers.0.cross_attn.q_proj.weight"]
    save_file(tensors, run / "model.safetensors", metadata={"format": "pt"})


def lose_the_tokenizer(run):
    for path in run.glob("tokenizer*"):
        path.unlink()


def of_another_kind(run):
    (run / "config.json").write_text('{"model_type": "bert"}')


def set_config(**changes):
    return lambda run: change_json(run / "config.json", **changes)


DAMAGE = {
    "pickled weights alone": (pickle_alone, "weights as pytorch_model.bin alone, which could run"),
    "no weights": (lambda run: (run / "model.safetensors").unlink(), "holds no trained model"),
    "cut weights": (cut("model.safetensors"), "the weights in run are damaged"),
    "a tensor less": (lose_a_tensor, "missing weights, such as model.decoder.layers.0.cross_attn"),
    "another shape": (set_config(encoder_ffn_dim=48), "mismatched weights, such as"),
    "cut config": (cut("config.json"), "run/config.json is not JSON"),
    "a value out of range": (set_config(dropout=1.5), "dropout=1.5 is not a probability"),
    "a value of another type": (set_config(d_model="16"), "'d_model' expected int"),
}
OTHER_KINDS = {
    "an unknown kind": (set_config(model_type="mystery"), "model_type 'mystery', which nothing"),
    "no translator": (of_another_kind, "model_type 'bert', which is not a seq"),
    "no tokenizer": (lose_the_tokenizer, "holds no tokenizer, only weights for ids"),
    "cut tokenizer": (cut("tokenizer.json"), "run/tokenizer.json is not JSON"),
    "cut settings": (cut("tokenizer_config.json"), "run/tokenizer_config.json is not JSON"),
}
EVALUATE = ["evaluate", "run", "--pair", "de-en", "--test-file", "test.jsonl"]
COMMANDS = {
    "translate": (["translate", "run", "source.txt"], DAMAGE | OTHER_KINDS),
    "evaluate": (EVALUATE, DAMAGE | OTHER_KINDS),
    "export": (["export", "marian", "run", "out"], DAMAGE),
}


def error_of(words, capsys):
    assert cli.main(words) == 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line[:8] == "vanilla-")
    return line


@pytest.mark.parametrize(
    ("command", "damage"),
    [(command, damage) for command, (_, known) in COMMANDS.items() for damage in known],
)
def test_what_does_not_load_is_said_in_one_line(run, capsys, command, damage):
    words, known = COMMANDS[command]
    change, message = known[damage]
    change(run)
    assert message in error_of(words, capsys)
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("kind", "package", "vocabulary"),
    [
        ("FSMTTokenizer", "sacremoses", "vocab-src.json"),
        ("MarianTokenizer", "sentencepiece", "vocab.json"),
    ],
)
def test_a_tokenizer_that_needs_a_package_names_it(
    run, monkeypatch, capsys, kind, package, vocabulary
):
    lose_the_tokenizer(run)
    change_json(run / "tokenizer_config.json", tokenizer_class=kind)
    change_json(run / vocabulary, a=0)
    monkeypatch.setitem(sys.modules, package, None)
    line = error_of(["translate", "run", "source.txt"], capsys)
    assert package in line
    assert "pip install '.[import]'" in line


def test_code_in_a_directory_is_neither_run_nor_asked_about(run, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("asked"))
    expected = load_saved_model(run).state_dict()
    embed_code(run)
    for path in run.glob("*.py"):
        path.write_text("raise AssertionError('was run')\n")
    found = load_saved_model(run).state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert len(load_saved_tokenizer(run)) == len(tiny_tokenizer())
    change_json(run / "config.json", model_type="mystery")
    with pytest.raises(ValueError, match="code that comes with a model is not run"):
        load_saved_model(run)


@pytest.mark.parametrize(
    ("engine", "files", "message"),
    [
        ("ctranslate2", ["model.bin"], "holds no config.json"),
        ("onnx", ["decoder.onnx"], "holds no encoder.onnx"),
        ("onnx", ["decoder.onnx", "encoder.onnx", "config.json"], "holds no generation_config"),
    ],
)
def test_an_export_that_is_not_whole_is_refused(tmp_path, engine, files, message):
    for name in files:
        (tmp_path / name).write_text("{}")
    with pytest.raises(ValueError, match=message):
        load_engine(engine, tmp_path)


@pytest.mark.parametrize(
    ("engine", "package", "files"),
    [
        ("ctranslate2", "ctranslate2", ["model.bin"]),
        ("onnx", "onnxruntime", ["encoder.onnx", "decoder.onnx"]),
    ],
)
def test_a_damaged_export_is_refused(run, capsys, engine, package, files):
    pytest.importorskip(package, reason="comes with an extra")
    for name in files:
        (run / name).write_bytes(b"cut off")
    line = error_of(["translate", "run", "source.txt", "--engine", engine], capsys)
    assert "does not load run" in line
