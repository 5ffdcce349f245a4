"""The page on serving: every block runs and gives the same translations as `translate`."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import serving
import torch
from browser import free_port
from browser import served as server_of
from tiny_exports import require
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer import pretrained, translate

ROOT = Path(__file__).parents[2]
PAGE = serving.PAGE.read_text(encoding="utf-8")
PRINTED = re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
EXACT = ("one_at_a_time", "batches", "threads", "asyncio")
SENTENCES = ["Good morning.", "", "I have a dog.", "x", "Two men run on the beach."]
ENDPOINT = ("start", "curl", "client", "libretranslate", "post")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return an empty folder, and the translations of the page's model by `translate`."""
    name = pretrained("everyday-en-de")
    model = AutoModelForSeq2SeqLM.from_pretrained(name)
    found = translate(model, AutoTokenizer.from_pretrained(name), SENTENCES)
    return tmp_path_factory.mktemp("serving"), list(found)


@pytest.fixture
def served(saved, monkeypatch):
    """Return the same, with the folder as working directory during the test."""
    monkeypatch.chdir(saved[0])
    return saved


def test_these_tests_run_every_block_of_the_page():
    blocks = re.findall(r"(?:<!-- block: (\w+).*-->\n)?```(?:bash|python)\n", PAGE)
    names = (*serving.CONTENDERS, "load", "export", "web", *ENDPOINT)
    assert sorted(blocks) == sorted(f"serve_{name}" for name in names)


@pytest.mark.parametrize("name", [*EXACT, pytest.param("compile", marks=pytest.mark.slow)])
def test_blocks_translate_as_translate_does(served, name):
    folder, expected = served
    run = serving.prepared(name, folder)
    assert run(SENTENCES) == expected
    assert run(SENTENCES[::-1]) == expected[::-1]


@pytest.mark.filterwarnings("ignore:torch:DeprecationWarning")
@pytest.mark.parametrize("name", ["bfloat16", "int8"])
def test_blocks_of_other_numbers_translate_every_sentence(served, name):
    found = serving.prepared(name, served[0])(SENTENCES)
    assert len(found) == len(SENTENCES)
    assert [bool(text) for text in found] == [bool(text) for text in SENTENCES]


def test_compiled_forward_is_used_by_the_search(served, monkeypatch):
    """`torch.compile` is replaced by a wrapper that counts calls."""
    calls = []

    def compile_nothing(forward, **options):
        assert options == {"dynamic": True}
        return lambda *args, **kwargs: calls.append(1) or forward(*args, **kwargs)

    monkeypatch.setattr(torch, "compile", compile_nothing)
    folder, expected = served
    assert serving.prepared("compile", folder)(SENTENCES) == expected
    assert calls


@pytest.mark.parametrize("name", ["ctranslate2", pytest.param("onnx", marks=pytest.mark.slow)])
def test_blocks_of_exports_translate_every_sentence(tmp_path, monkeypatch, name):
    require(name)
    monkeypatch.chdir(tmp_path)
    serving.write_exports(tmp_path, names=(name,))
    translated = serving.prepared(name, tmp_path)
    assert len(translated(SENTENCES)) == len(SENTENCES)
    assert translated(["Good morning.", "I have a dog."]) == [
        "Guten Morgen!",
        "Ich habe einen Hund.",
    ]


def started(name, folder, port):
    """Run a block that starts a server in a folder, at another port than the page's."""
    return server_of(["bash", "-euc", f"exec env {command(name, port)}"], folder, port)


def command(name, port):
    """Return a block for another port, and for the Python and the clone of these tests."""
    text = re.sub("7860|5000", port, serving.block(name))
    text = text.replace(".venv/bin/", f"{Path(sys.executable).parent}/")
    return text.replace("model_cards/", f"{ROOT}/model_cards/")


@pytest.fixture
def port():
    return str(free_port())


def test_blocks_of_the_endpoint(saved, port):
    """The server starts as the page says and answers curl and Gradio's client."""
    pytest.importorskip("gradio", reason="comes with a Space")
    folder, _ = saved
    with started("start", folder, port):
        asked = {"check": True, "stdout": subprocess.PIPE, "text": True, "cwd": folder}
        curl = subprocess.run(["bash", "-euc", command("curl", port)], **asked).stdout
        assert curl.strip() in PRINTED
        (answer,) = json.loads(curl.partition("data: ")[2])
        client = subprocess.run([sys.executable, "-c", command("client", port)], **asked).stdout
        assert client.splitlines()[-1] == repr(answer)


def test_blocks_of_the_server(saved, port):
    pytest.importorskip("fastapi", reason="comes with the extra serve")
    with started("libretranslate", saved[0], port):
        asked = subprocess.check_output(["bash", "-euc", command("post", port)], text=True)
    assert asked in PRINTED


def test_recorded_figures_support_the_page():
    (measured,) = json.loads(serving.RESULTS.read_text(encoding="utf-8"))["tables"]
    speed = {row[0]: row[1] for row in measured["rows"]}
    assert list(speed) == [name.replace("_", " ") for name in serving.CONTENDERS]
    assert speed["batches"] == max(speed[n] for n in ("one at a time", "batches", "threads"))
