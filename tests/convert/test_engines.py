"""Engines that run an export instead of the model: pip install '.[export]'."""

import functools
import json
import shutil
from pathlib import Path

import pytest
import torch
from tiny_exports import SENTENCES, require, save

from vanilla_transformer import translate
from vanilla_transformer.batch_translation import generation_option
from vanilla_transformer.cli import main
from vanilla_transformer.convert.engines import load_engine


@pytest.fixture(scope="module")
def exports(request, everyday, tmp_path_factory):
    """Return, for an engine: its name, a run directory, the model, tokenizer and export."""

    @functools.cache
    def made(name):
        if name == "onnx":
            return name, *request.getfixturevalue("reverser")
        require(name)
        from vanilla_transformer.convert.exporters.ctranslate2 import export_ctranslate2

        output = tmp_path_factory.mktemp(name) / "out"
        export_ctranslate2(everyday.folder, output)
        return name, everyday.folder, everyday.model, everyday.tokenizer, output

    return made


@pytest.fixture(params=["ctranslate2", "onnx"])
def exported(request, exports):
    return exports(request.param)


def test_translate_accepts_an_engine_as_the_model(exported):
    name, _, model, tokenizer, output = exported
    engine = load_engine(name, output)
    settings = {"num_beams": 1, "max_new_tokens": 15}
    ours = list(translate(model, tokenizer, SENTENCES, **settings))
    assert list(translate(engine, tokenizer, SENTENCES, **settings)) == ours
    assert list(translate(engine, tokenizer, SENTENCES, batch_tokens=8, **settings)) == ours
    assert ours[1] == ""
    assert len(set(ours)) > 1
    # The paper's search, with these settings in the generation config or with none.
    assert [generation_option(each, {}, "num_beams") for each in (model, engine)] == [4, 4]
    assert engine.generation_config.length_penalty == 0.6


def test_ctranslate2_refuses_the_papers_rule_for_the_end(exports):
    _, _, _, tokenizer, output = exports("ctranslate2")
    engine = load_engine("ctranslate2", output)
    with pytest.raises(ValueError, match=r"Got early_stopping=False, a rule that CTranslate2"):
        list(translate(engine, tokenizer, SENTENCES, early_stopping=False))


def test_each_translation_is_limited_to_its_source_length_plus_50(exported):
    """In any batch."""
    name, _, model, tokenizer, output = exported
    engine = load_engine(name, output)
    sentences = ["a", "a dog and a cat and a dog and a cat", "two men"]
    search = {"num_beams": 1, "suppress_tokens": [0, 1, 2, 3]}  # so that none ends by itself
    ours = list(translate(model, tokenizer, sentences, **search))
    if name == "ctranslate2":  # a call has no such setting there
        engine.generation_config.suppress_tokens = search.pop("suppress_tokens")
    together = list(translate(engine, tokenizer, sentences, **search))
    alone = [next(translate(engine, tokenizer, [text], **search)) for text in sentences]
    assert together == ours
    assert alone == ours
    source = torch.full((3, 9), 5)
    limits = type("Limits", (), {"limits": torch.tensor([3, 59, 7])})
    if name == "ctranslate2":
        criteria = {"stopping_criteria": [limits]}
        found = engine.generate(source, torch.ones_like(source), num_beams=1, **criteria)
        assert (found != 0).sum(1).tolist() == [4, 60, 8]  # with the start symbol


def test_translate_command_runs_the_engine(exported, tmp_path, capsys):
    name, _, model, tokenizer, output = exported
    source = tmp_path / "source.txt"
    source.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    command = ["translate", str(output), str(source), "--engine", name, "--num-beams", "1"]
    assert main(command) == 0
    expected = list(translate(model, tokenizer, SENTENCES, num_beams=1))
    expected = [" ".join(line.splitlines()) for line in expected]
    assert capsys.readouterr().out.split("\n")[:-1] == expected


def test_folder_and_engine_must_match(exported, tmp_path, capsys):
    name, run, *_, output = exported
    text = tmp_path / "text"
    text.write_text("a\n")
    for command, message in (
        (["translate", output, text], f"holds an exported model; give --engine {name}"),
        (["translate", run, text, "--engine", name], f"vanilla-transformer export {name} RUN"),
        (
            ["translate", output, text, "--engine", name, "--attention", "x.png"],
            "--engine and --attention do not",
        ),
    ):
        assert main([str(word) for word in command]) == 2
        assert message in capsys.readouterr().err


def block_of_export(documented_command, name):
    require(name)
    run, *_ = save(Path("runs"), encoder_layers=1, decoder_layers=1)
    run.rename("everyday-en-de")  # comes before the bundled model, and is smaller
    documented_command(f"export_{name}")


def block_of_translation(exports, documented_command, name, folder):
    shutil.copytree(exports(name)[-1], f"exports/{folder}")
    Path("source.txt").write_text("a dog\ntwo dogs\n")
    documented_command(f"translate_{name}")
    assert Path("target.txt").read_text().count("\n") == 2


def test_block_export_marian(documented_command):
    block_of_export(documented_command, "marian")


def test_block_export_ctranslate2(documented_command):
    block_of_export(documented_command, "ctranslate2")


def test_block_export_onnx(documented_command):
    block_of_export(documented_command, "onnx")


def test_block_export_web(documented_command):
    block_of_export(documented_command, "web")


def test_block_translate_ctranslate2(exports, documented_command):
    block_of_translation(exports, documented_command, "ctranslate2", "int8")


def test_block_translate_onnx(exports, documented_command):
    block_of_translation(exports, documented_command, "onnx", "onnx")


def test_quantization_is_for_ctranslate2(tmp_path, capsys):
    command = ["export", "onnx", str(tmp_path), str(tmp_path / "out"), "--quantization", "int8"]
    assert main(command) == 2
    assert "--quantization is for ctranslate2; onnx has none" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*command[:-1], "int4"])
    error = capsys.readouterr().err
    assert "invalid choice: 'int4'" in error
    assert "did you mean" not in error


@pytest.mark.parametrize(
    ("name", "change"),
    [("generation_config.json", {"num_beams": 4.5}), ("config.json", {"d_model": "x"})],
)
def test_damaged_settings_of_an_export_are_refused(exports, tmp_path, name, change):
    copied = shutil.copytree(exports("onnx")[-1], tmp_path / "copied")
    content = json.loads((copied / name).read_text(encoding="utf-8"))
    (copied / name).write_text(json.dumps({**content, **change}))
    with pytest.raises(ValueError, match=next(iter(change))):
        load_engine("onnx", copied)
