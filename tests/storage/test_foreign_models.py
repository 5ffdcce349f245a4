"""Models of other systems are recognized by the files that these systems write."""

import argparse
import json
import zipfile

import pytest
import torch

from vanilla_transformer.cli import main
from vanilla_transformer.storage.foreign_models import foreign_model

FAIRSEQ = {"args": None, "cfg": {"_name": "bart_large"}, "model": {}, "extra_state": {}}
OPENNMT = {"model": {}, "generator": {}, "vocab": {}, "opt": argparse.Namespace()}
T2T = ("checkpoint", "model.ckpt-250000.index", "model.ckpt-250000.meta", "hparams.json")
STATE = {"transformer.encoder.layers.0.self_attn.in_proj_weight": torch.ones(1)}
# Names of empty files in a folder, or a file's name and content; and what the answer says.
MODELS = [
    (("config.json", "vocab.json", "model.00.safetensors"), "an Eole model; it cannot"),
    (("config", "version", "params.best", "vocab.src.0.json", "vocab.trg.0.json"), "a Sockeye"),
    (("model.bin", "config.json", "shared_vocabulary.json"), "a CTranslate2 model; import"),
    ({"model.bin": b"\6\0\0\0\x10\0TransformerSpec\0"}, "a CTranslate2 model"),
    (T2T, "a tensor2tensor model"),
    (("checkpoint", "operative_config.gin", "model.ckpt-1000000.index"), "a T5 checkpoint"),
    (("model.ende.intgemm.alphas.bin", "vocab.ende.spm", "lex.50.50.ende.s2t.bin"), "a Bergamot"),
    ({"model.enru.intgemm.alphas.bin": b"\1\0"}, "a Bergamot model (int8); import the .npz"),
    ({"model.bin": b"\1\0\0special:model.yml\0Wemb\0"}, "a binary model of Marian"),
    (("decoder.yml", "opus.npz", "source.spm"), "import marian PATH OUT"),
    ("t5", "a T5 model; it need not be"),
    ("mt5", "a T5 model"),
    ("bart", "a BART model; it need not"),
    ("mbart", "a BART model"),
    ("fsmt", "import fsmt PATH OUT"),
    ({"model.pt": FAIRSEQ}, "a BART of fairseq"),
    ({"model.pt": FAIRSEQ | {"cfg": {}}}, "import fairseq PATH OUT"),
    ({"model.pt": OPENNMT}, "import opennmt PATH OUT"),
    (("config.yaml", "best.ckpt", "src_vocab.txt"), "import joeynmt PATH OUT"),
    ({"model.pt": STATE}, "import torch PATH OUT"),
    ({"model.pt": {"model": torch.ones(2)}}, None),
    (("README.md",), None),
    ({"notes.txt": b"an Eole model, BART, T5"}, None),
]


def write(folder, files):
    folder.mkdir()
    if isinstance(files, str):
        (folder / "config.json").write_text(json.dumps({"model_type": files}))
    elif isinstance(files, tuple):
        for name in files:
            (folder / name).write_text("{}")
    else:
        for name, content in files.items():
            if isinstance(content, bytes):
                (folder / name).write_bytes(content)
            else:
                torch.save(content, folder / name)
        return folder / name
    return folder


@pytest.mark.parametrize(("files", "answer"), MODELS)
def test_models_are_recognized_by_their_files(tmp_path, files, answer):
    found = foreign_model(write(tmp_path / "model", files))
    assert found is None if answer is None else answer in found


@pytest.mark.parametrize(
    "command", ["translate {} in.txt", "import marian {} out", "export stock {} out"]
)
def test_commands_say_what_a_foreign_model_is(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "model", MODELS[0][0])
    (tmp_path / "in.txt").write_text("a\n")
    assert main(command.format("model").split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.count("model is an Eole model; it cannot be imported") == 1


def test_damaged_and_missing_files_are_not_recognized(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", b"opt vocab generator" * 9)
    assert "import opennmt" in foreign_model(path)
    whole = path.read_bytes()
    for place in (30, 42):  # the name, and the compressed content
        path.write_bytes(whole[:place] + b"x" * 8 + whole[place + 8 :])
        assert foreign_model(path) is None
    assert foreign_model(tmp_path / "none") is None
