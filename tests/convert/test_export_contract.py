"""What every export does with its folders and with models that it cannot export."""

import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from command_line import error_of
from tiny_exports import decoded_by_ctranslate2, make_model, require, save
from transformers import AutoTokenizer, MarianMTModel

from vanilla_transformer import translate
from vanilla_transformer.cli import main
from vanilla_transformer.convert.exporters.source import export_tokenizer
from vanilla_transformer.data.tokenizer import make_tokenizer, vocabulary_fields
from vanilla_transformer.storage.atomic import MARKER
from vanilla_transformer.storage.reading import read_json
from vanilla_transformer.target_tokenizer import target_tokenizer
from vanilla_transformer.texts.targets import hold_target_tokenizer

WEIGHTS = "model.safetensors"
ENCODER, DECODER = "onnx/encoder_model.onnx", "onnx/decoder_model_merged.onnx"
BIAS = "model.encoder.layers.0.feed_forward.fc1.bias"
TOKENIZER = {"tokenizer.json", "tokenizer_config.json"}


class Format(NamedTuple):
    """A format of exports.

    Attributes:
        files: The files of an export, besides the tokenizer's.
        spoil: Patches the exporter, so that it writes another model than it read.
        folder: Where in an export the model is.
    """

    files: set[str]
    spoil: Callable[[pytest.MonkeyPatch], None]
    folder: str = ""


def spoil_stock(monkeypatch):
    save_model = MarianMTModel.save_pretrained

    def save_another(self, directory, **kwargs):
        with torch.no_grad():
            self.model.encoder.layers[0].fc1.bias.add_(0.1)
        save_model(self, directory, **kwargs)

    monkeypatch.setattr(MarianMTModel, "save_pretrained", save_another)


def spoil_ctranslate2(monkeypatch):
    place = "vanilla_transformer.convert.exporters.ctranslate2.position_table"
    monkeypatch.setattr(place, lambda stack: torch.zeros(50, 24))


def spoil_onnx(monkeypatch):
    exporter = exporter_of("onnx")
    write = exporter.write_graphs

    def write_another(model, folder, **options):
        bias = model.get_parameter(BIAS).data
        bias += 0.5
        write(model, folder, **options)
        bias -= 0.5

    monkeypatch.setattr(exporter, "write_graphs", write_another)


FORMATS = {
    "stock": Format({WEIGHTS, "config.json", "generation_config.json"}, spoil_stock),
    "ctranslate2": Format(
        {"model.bin", "config.json", "generation_config.json", "shared_vocabulary.json"},
        spoil_ctranslate2,
    ),
    "onnx": Format({ENCODER, DECODER, "config.json", "generation_config.json"}, spoil_onnx),
    "web": Format(
        {
            *("index.html", "package.json", "page.js", "style.css", "task.json", "worker.js"),
            "forms.js",
            *(f"model/{name}" for name in (ENCODER, DECODER)),
            *("model/config.json", "model/generation_config.json"),
        },
        spoil_onnx,  # which writes the model
        folder="model",
    ),
}


def exporter_of(name):
    return importlib.import_module(f"vanilla_transformer.convert.exporters.{name}")


@pytest.fixture(params=FORMATS)
def name(request):
    if request.param != "stock":
        require(request.param)
    return request.param


@pytest.fixture
def export(name):
    return getattr(exporter_of(name), f"export_{name}")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save(tmp_path_factory.mktemp("saved"), encoder_layers=1, decoder_layers=1)[0]


@pytest.fixture
def run(saved, tmp_path):
    return Path(shutil.copytree(saved, tmp_path / "run"))


def contents(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_command_prints_the_new_folder_and_leaves_the_run_alone(name, run, tmp_path, capsys):
    before, output = contents(run), tmp_path / "out"
    model = output / FORMATS[name].folder
    output.mkdir()  # an empty folder is accepted
    assert main(["export", name, str(run), str(output)]) == 0
    assert capsys.readouterr().out == f"{output}\n"
    assert contents(run) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]
    tokenizer = {str((model / file).relative_to(output)) for file in TOKENIZER}
    assert contents(output).keys() == FORMATS[name].files | tokenizer | {MARKER}
    assert len({(output / file).stat().st_mode for file in contents(output)}) == 1
    text = "Hi there, 你好"
    ours, theirs = (AutoTokenizer.from_pretrained(path)(text).input_ids for path in (run, model))
    assert theirs == ours
    # Only transformers 5 knows the class name that it saves; 4 and 5 know the exported one.
    classes = [read_json(it / "tokenizer_config.json")["tokenizer_class"] for it in (run, model)]
    assert classes == ["TokenizersBackend", "PreTrainedTokenizerFast"]


def test_export_of_two_vocabularies_gives_the_models_translations(name, export, tmp_path):
    sources, targets = ["HH AH0 L OW1", "L OW1"], ["(S (NP ) (VP ) )", "(VP ) )"]
    tokenizer, target = (
        make_tokenizer(kind, texts, vocab_size=300, show_progress=False)
        for kind, texts in zip(("bytes", "symbols"), (sources, targets), strict=True)
    )
    hold_target_tokenizer(tokenizer, target)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
    model = make_model(**vocabulary_fields(tokenizer), **sizes)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    inputs = tokenizer(sources, padding=True, return_tensors="pt")
    labels = target(targets, padding=True, return_tensors="pt")["input_ids"]
    for _ in range(150):
        model(**inputs, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "run")
    if name == "web":  # Transformers.js would write with the source's tokenizer
        with pytest.raises(ValueError, match=r"needs one tokenizer\.json for both"):
            export(tmp_path / "run", tmp_path / "out")
        return
    output = export(tmp_path / "run", tmp_path / "out")
    reads = AutoTokenizer.from_pretrained(output)
    if name == "stock":
        model = MarianMTModel.from_pretrained(output)
        assert list(translate(model, reads, sources, num_beams=1, max_new_tokens=9)) == targets
    elif name == "ctranslate2":
        inputs = reads(sources, padding=True, return_tensors="pt").values()
        ids = decoded_by_ctranslate2(output, *inputs, beam_size=1, max_decoding_length=9)
        assert target_tokenizer(reads).batch_decode(ids, skip_special_tokens=True) == targets
    else:  # the exporter has compared logits
        assert target_tokenizer(reads).get_vocab() == target.get_vocab()


@pytest.mark.parametrize("inputs", [{}, {"model_input_names": ["input_ids"]}])
def test_tokenizer_is_exported_with_settings_for_transformers_4_and_5(tmp_path, inputs):
    source, target = tmp_path / "source", tmp_path / "target"
    for folder in (source, target):
        folder.mkdir()
    given = {"unk_token": "?", "tokenizer_class": "TokenizersBackend", **inputs}
    (source / "tokenizer_config.json").write_text(json.dumps(given))
    export_tokenizer(source, target)
    names = {"model_input_names": ["input_ids", "attention_mask"], **inputs}
    names |= {"clean_up_tokenization_spaces": False}
    expected = {**given, "tokenizer_class": "PreTrainedTokenizerFast", **names}
    assert read_json(target / "tokenizer_config.json") == expected
    own = {"tokenizer_class": "MarianTokenizer", "clean_up_tokenization_spaces": True}
    (source / "tokenizer_config.json").write_text(json.dumps(own))
    export_tokenizer(source, target)
    assert read_json(target / "tokenizer_config.json") == own


def test_export_that_differs_from_the_model_is_deleted(name, export, run, tmp_path, monkeypatch):
    FORMATS[name].spoil(monkeypatch)
    with pytest.raises(ValueError, match="log-probabilities are off by"):
        export(run, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "tokenizer_config.json", "bart"])
def test_folder_without_a_model_of_ours_or_tokenizer_is_refused(name, run, tmp_path, capsys, file):
    if file == "bart":
        (run / "config.json").write_text('{"model_type": "bart"}')
    else:
        (run / file).unlink()
    line = error_of(capsys, "export", name, run, tmp_path / "out")
    assert str(run) in line
    assert file in line
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_blocks_export_stock_and_export_ctranslate2_and_export_onnx_and_export_web(
    name, saved, documented_command
):
    shutil.copytree(saved, "everyday-en-de")  # comes before the bundled model, and is smaller
    documented_command(f"export_{name}")


def test_quantization_is_for_ctranslate2(tmp_path, capsys):
    line = error_of(capsys, "export", "onnx", tmp_path, tmp_path / "out", "--quantization", "int8")
    assert "--quantization works only with ctranslate2, not onnx" in line
