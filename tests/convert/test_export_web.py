"""The page that translates in a browser: its model everywhere, itself in Chromium (slow)."""

import contextlib
import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import asdict

import pytest
import serving
import torch
from browser import free_port, opened, served
from command_line import error_of
from opus_models import save_opus
from published_runs import METRICS
from tiny_exports import batch_of, require, save, sequences

from vanilla_transformer import translate
from vanilla_transformer.cli import main
from vanilla_transformer.written_forms import WrittenForms

EXPORT, _, INSTALL, SERVE = serving.block("web").splitlines()
BEYOND_THE_EDGE = "document.documentElement.scrollWidth > innerWidth"


def test_a_model_without_the_file_that_the_page_reads_is_refused(tmp_path, capsys):
    """Such as one of OPUS, whose pieces are in source.spm."""
    require("web")
    save_opus(tmp_path / "opus", ["a b", "c d"] * 9, ["e f", "g h"] * 9)
    assert main(["import", "marian", str(tmp_path / "opus"), str(tmp_path / "ours")]) == 0
    error = error_of(capsys, "export", "web", tmp_path / "ours", tmp_path / "page")
    assert "needs one tokenizer.json for both sides" in error


def test_heads_of_other_widths_are_refused(tmp_path, capsys):
    require("web")
    saved, *_ = save(tmp_path, d_k=5)
    error = error_of(capsys, "export", "web", saved, tmp_path / "page")
    assert "ONNX cannot represent this model's d_k=5 and d_v=8 with 3 encoder heads" in error


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return a run directory, its model, its tokenizer and its page."""
    require("web")
    folder = tmp_path_factory.mktemp("web")
    saved, model, tokenizer = save(folder, teach=True)
    run = saved.rename(folder / "everyday-en-de")  # a folder comes before the bundled model
    samples = [{"source": text, "reference": ""} for text in sentences(tokenizer)]
    metrics = METRICS | {"samples": {"test": samples}}
    (run / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    with contextlib.chdir(folder):
        assert main(shlex.split(EXPORT)[1:]) == 0
    return run, model, tokenizer, folder / "exports/web"


def sentences(tokenizer):
    """Return three texts like those that the model was trained on."""
    return tokenizer.batch_decode(sequences()[0][1:4], skip_special_tokens=True)


def test_model_is_the_one_with_weights_in_half_precision(exported):
    run, model, _, output = exported
    onnx = pytest.importorskip("vanilla_transformer.convert.exporters.onnx")
    source, mask, target = batch_of(model)
    graphs = onnx.WrittenGraphs(output / "model")
    found, _ = graphs.decode(target, mask, graphs.encode(source, mask), None)
    inputs = {"input_ids": source, "attention_mask": mask, "decoder_input_ids": target}
    with torch.no_grad():
        rounded = type(model).from_pretrained(run).half().float()
        expected, unrounded = (each(**inputs).logits for each in (rounded, model))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)
    assert (unrounded - expected).abs().max() > 2e-4  # so that the line above tells them apart


def test_all_weights_are_stored_in_half_precision(exported):
    onnx_ir = pytest.importorskip("onnx_ir")
    _, _, _, output = exported
    for file in ("encoder_model.onnx", "decoder_model_merged.onnx"):
        stored = onnx_ir.load(output / "model" / "onnx" / file).graph.initializers.values()
        sizes = dict.fromkeys(("FLOAT", "FLOAT16"), 0)
        for weight in stored:
            if weight.dtype.name in sizes:
                sizes[weight.dtype.name] += weight.const_value.size
        assert sizes["FLOAT"] < 10 < 10_000 < sizes["FLOAT16"]


def test_page_knows_the_two_sides_and_examples_of_the_run(exported):
    _, _, tokenizer, output = exported
    found = json.loads((output / "task.json").read_text(encoding="utf-8"))
    assert {found.pop(key) is None for key in ("doubtful_below", "written_forms")} == {True, False}
    assert found == {
        "source": METRICS["recipe"]["source_language"],
        "target": METRICS["recipe"]["target_language"],
        "examples": sentences(tokenizer),
    }


@pytest.fixture(scope="module")
def address(exported):
    """Serve the page as its documentation says, on another port."""
    *_, output = exported
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    result = subprocess.run(INSTALL.split(), cwd=output, capture_output=True, text=True)
    if result.returncode != 0:
        pytest.skip(f"npm install fails: {result.stderr.strip()[-200:]}")
    port = free_port()
    command = [sys.executable, *SERVE.split()[1:], str(port), "--bind", "127.0.0.1"]
    with served(command, output, port):
        yield f"http://127.0.0.1:{port}/"


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1280])
def test_visitor_translates_by_keyboard_alone(exported, address, width):
    _, model, tokenizer, _ = exported
    texts = sentences(tokenizer)
    expected = list(translate(model, tokenizer, texts, num_beams=1))
    with opened(address, width=width) as page:
        page.get_by_text("Ready.").wait_for()
        page.keyboard.type(texts[0])
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.get_by_text("Done.").wait_for()
        assert page.locator("#target p").all_text_contents() == expected[:1]
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("ControlOrMeta+A")
        page.keyboard.type("\n\n".join(texts))
        page.keyboard.press("Control+Enter")
        page.locator("#target p").nth(4).wait_for()
        lines = [expected[0], "", expected[1], "", expected[2]]
        assert page.locator("#target p").all_text_contents() == lines
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="English").wait_for()
        assert page.evaluate("document.documentElement.lang") == "zh"
        page.get_by_role("button", name=texts[2]).press("Enter")
        page.locator("#target p:only-child").wait_for()
        assert page.locator("#target p").all_text_contents() == expected[2:]
        assert not page.evaluate(BEYOND_THE_EDGE)
        assert {url for url in page.requests if not url.startswith(address)} == set()
        assert page.problems == []


@pytest.mark.slow
def test_visitor_reads_what_is_wrong(exported, address):
    with opened(address, width=360) as page:
        for text, message in (
            ("  ", "There is no text yet"),
            ("a" * 300, "Line 1 is too long"),
            ("a\n" * 65 + "a", "These are 66 lines"),
            ("a" * 6000, "it has 6000 characters"),
        ):
            page.locator("textarea").fill(text)
            page.get_by_role("button", name="Translate").click()
            page.get_by_role("status").get_by_text(message).wait_for()
            assert not page.evaluate(BEYOND_THE_EDGE)
    with opened(address, width=360, before="delete globalThis.WebAssembly") as page:
        page.get_by_role("status").get_by_text("has no WebAssembly").wait_for()


@pytest.mark.slow
def test_page_reads_what_people_type(exported, address):
    """As the package does, with the facts of a model that has some."""
    *_, output = exported
    known = WrittenForms(
        languages=("en", "de"), unusual=("upper",), are_sentences=True, has_cased_targets=True
    )
    task = json.loads((output / "task.json").read_text(encoding="utf-8"))
    changed = {**task, "written_forms": asdict(known), "doubtful_below": 99}
    (output / "task.json").write_text(json.dumps(changed), encoding="utf-8")
    try:
        with opened(address, width=1280) as page:
            page.get_by_text("Ready.").wait_for()
            page.keyboard.type("some words\nSOME WORDS")
            page.keyboard.press("Control+Enter")
            page.get_by_text("Done.").wait_for()
            small, shouted = page.locator("#target p").all_inner_texts()
            hint = "The model is far less sure of this line than usual; it may be wrong."
            assert small.endswith(hint)
            assert shouted == f"{small.removesuffix(hint).upper()}{hint}"
            assert page.problems == []
    finally:
        (output / "task.json").write_text(json.dumps(task), encoding="utf-8")
