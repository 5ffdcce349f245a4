"""The page on serving: every block runs and gives the same translations as `translate`."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import serving
import torch
from tiny_exports import SENTENCES, require, save

from vanilla_transformer import translate

ROOT = Path(__file__).parents[2]
PAGE = serving.PAGE.read_text(encoding="utf-8")
EXACT = ("one_at_a_time", "batches", "threads", "asyncio")
ENDPOINT = ("start", "curl", "client")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return a folder with runs/mine and source.txt, and the translations by `translate`."""
    folder, here = tmp_path_factory.mktemp("serving"), Path.cwd()
    run, model, tokenizer = save(folder)
    (run / "checkpoints").mkdir()
    serving.write_files(folder, run, names=())
    os.chdir(here)
    return folder, list(translate(model, tokenizer, SENTENCES))


@pytest.fixture
def served(saved, monkeypatch):
    """Return the same, with the folder as working directory during the test."""
    monkeypatch.chdir(saved[0])
    return saved


def test_these_tests_run_every_block_of_the_page():
    blocks = re.findall(r"(?:<!-- block: (\w+).*-->\n)?```(?:bash|python)\n", PAGE)
    names = (*serving.CONTENDERS, "load", "export", *ENDPOINT)
    assert sorted(blocks) == sorted(f"serve_{name}" for name in names)


@pytest.mark.parametrize("name", EXACT)
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


def test_invalid_request_gets_its_error_and_the_worker_continues(served):
    """The worker also continues after a cancelled request."""
    block = serving.block("asyncio").rpartition("\ntranslations")[0]
    known = {}
    exec(serving.block("load") + block, known)

    async def ask_twice():
        asyncio = known["asyncio"]
        queue = asyncio.Queue()
        worker = asyncio.create_task(known["work"](queue))
        with pytest.raises(ValueError, match="half of a character"):
            await known["ask"](queue, "half a character: \ud800")
        gone = asyncio.create_task(known["ask"](queue, SENTENCES[2]))
        await asyncio.sleep(0)
        gone.cancel()
        answer = await known["ask"](queue, SENTENCES[0])
        worker.cancel()
        return answer

    assert known["asyncio"].run(ask_twice()) == served[1][0]


@pytest.mark.slow
def test_block_of_the_compiled_model(served):
    folder, expected = served
    assert serving.prepared("compile", folder)(SENTENCES) == expected


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
def test_blocks_of_exports_translate_every_sentence(saved, tmp_path, monkeypatch, name):
    require(name)
    monkeypatch.chdir(tmp_path)
    serving.write_files(tmp_path, saved[0] / "run", names=(name,))
    assert len(serving.prepared(name, tmp_path)(SENTENCES)) == len(SENTENCES)


def test_blocks_of_the_endpoint(saved):
    """The server starts as the page says and answers curl and Gradio's client."""
    pytest.importorskip("gradio", reason="comes with a Space")
    folder, _ = saved
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def command(name):
        text = serving.block(name).replace("7860", str(port))
        text = text.replace(".venv/bin/python", sys.executable)
        return text.replace("model_cards/", f"{ROOT}/model_cards/")

    environment = os.environ | {
        "GRADIO_SERVER_PORT": str(port),
        "GRADIO_ANALYTICS_ENABLED": "False",
        "PYTHONUNBUFFERED": "1",
    }
    server = subprocess.Popen(
        ["bash", "-euc", f"exec env {command('start')}"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        lines = []
        while f":{port}" not in "".join(lines):  # also ends if the server exits
            lines.append(server.stdout.readline())
            assert lines[-1], "".join(lines)
        asked = {"check": True, "stdout": subprocess.PIPE, "text": True, "cwd": folder}
        curl = subprocess.run(["bash", "-euc", command("curl")], **asked).stdout
        event, data = curl.strip().splitlines()
        assert event == "event: complete"
        (answer,) = json.loads(data.removeprefix("data: "))
        assert len(answer) == 2
        client = subprocess.run([sys.executable, "-c", command("client")], **asked).stdout
        assert client.splitlines()[-1] == repr(answer)
    finally:
        server.terminate()
        server.wait(timeout=30)


def test_recorded_figures_support_the_page():
    (measured,) = json.loads(serving.RESULTS.read_text(encoding="utf-8"))["tables"]
    speed = {row[0]: row[1] for row in measured["rows"]}
    assert list(speed) == [name.replace("_", " ") for name in serving.CONTENDERS]
    assert speed["batches"] == max(speed[n] for n in ("one at a time", "batches", "threads"))
