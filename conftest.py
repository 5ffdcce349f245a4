"""Settings for the whole suite, made before anything imports torch."""

import gc
import logging
import os
import re
import shlex
import tempfile
from pathlib import Path

import pytest

# Tests run side by side; threads that wait for each other on busy cores are many times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests keep no pairs in the cache of whoever runs them.
CACHE = tempfile.TemporaryDirectory(prefix="vanilla-transformer-tests-")
os.environ["HF_DATASETS_CACHE"] = CACHE.name

# A PNG of one pixel, for tests that do not look at pictures.
BLANK = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a4944415478da63f80f00010101001cb08c990000000049454e44ae426082"
)
PAGE = Path(__file__).parent / "vanilla_transformer" / "convert" / "README.md"


def _block(name, language):
    """Return a code block of the pages."""
    from pages import README

    marked = rf"<!-- block: {name} -->\n```{language}\n(.*?)```"
    return re.search(marked, PAGE.read_text(encoding="utf-8") + README, re.DOTALL)[1]


@pytest.fixture(autouse=True, scope="module")
def quick_garbage_collection():
    """Hide what is there before a file's tests from the garbage collector.

    Accelerate collects garbage before each training, and looking at all objects of all imported
    libraries takes most of the time of a small one.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def silent_log():
    """Undo what earlier commands did to the log of the package, which they show on their stderr."""
    package = logging.getLogger("vanilla_transformer")
    package.handlers.clear()
    package.propagate = True
    package.setLevel(logging.NOTSET)


@pytest.fixture(autouse=True, scope="module")
def draw(request):
    """Make figures without drawing them, which would take half of the time of a small run.

    Files and tests that look at pictures are marked `pictures`.
    """
    from matplotlib.figure import Figure

    def blank(figure, path, **options):
        Path(path).write_bytes(BLANK)

    drawing = Figure.savefig
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("pictures") is None:
            patch.setattr(Figure, "savefig", blank)
            for plot in ("plot_attention", "plot_training_curves"):
                patch.setattr(f"vanilla_transformer.train.finishing.{plot}", lambda shown: Figure())
        yield drawing


@pytest.fixture(autouse=True)
def drawn_pictures(request, draw, monkeypatch):
    """Draw the pictures that a test looks at."""
    if request.node.get_closest_marker("pictures") is not None:
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", draw)


@pytest.fixture(autouse=True, scope="session")
def quick_runs():
    """Measure the speed of training by one update, and do not wait for the disk.

    What is synced, and in which order, is in tests/storage/test_atomic.py.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vanilla_transformer.train.speed._SECONDS", 0.0)
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory):
    """Use a separate cache for this file's tests and drop it afterwards."""
    import datasets

    before = datasets.config.HF_DATASETS_CACHE
    datasets.config.HF_DATASETS_CACHE = tmp_path_factory.mktemp("cache")
    yield
    datasets.config.HF_DATASETS_CACHE = before


@pytest.fixture(scope="session")
def tokenizer():
    """Return a tokenizer whose tokens are bytes."""
    from tiny_models import byte_tokenizer

    return byte_tokenizer()


@pytest.fixture(scope="session")
def everyday():
    """Return a trained model and sentences for it; tests change only copies of it."""
    from everyday import load

    return load()


@pytest.fixture(scope="session")
def reverser(tmp_path_factory):
    """Return run, model, tokenizer and ONNX export of a tiny model that reverses sequences.

    To export `everyday` to ONNX takes most of a minute.
    """
    from tiny_exports import require, save

    require("onnx")
    from vanilla_transformer.convert.exporters.onnx import export_onnx

    folder = tmp_path_factory.mktemp("reverser")
    sizes = {"encoder_layers": 1, "decoder_layers": 2, "max_position_embeddings": 120}
    run, model, tokenizer = save(folder, teach=True, **sizes)
    return run, model, tokenizer, export_onnx(run, folder / "out")


@pytest.fixture
def quick_publishing(monkeypatch):
    """Publish without trying the model in a clean process, and without drawing pictures."""
    from published_runs import draw_nothing, load_here

    from vanilla_transformer.publish import publishing

    monkeypatch.setattr(publishing, "load_in_clean_process", load_here)
    monkeypatch.setattr(publishing, "_draw", draw_nothing)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Serve a local Hub that this process takes for the real one; nobody is logged in."""
    from hub_server import TOKEN, HubServer
    from huggingface_hub import constants

    server = HubServer({TOKEN: "user"})
    for name, value in {
        "ENDPOINT": server.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": server.url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_DISABLE_PROGRESS_BARS": True,
        "HF_HUB_CACHE": str(tmp_path / "cache"),
        "HF_TOKEN_PATH": str(tmp_path / "token"),
        "HF_STORED_TOKENS_PATH": str(tmp_path / "stored_tokens"),
    }.items():
        monkeypatch.setattr(constants, name, value)
    # transformers keeps one client, with the address that it found first.
    monkeypatch.setattr("transformers.utils.hub._hf_api", None)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    yield server
    server.close()


@pytest.fixture
def documented_code(monkeypatch, tmp_path):
    """Run the Python of a block in an empty directory and return what it defines."""
    monkeypatch.chdir(tmp_path)

    def run(name):
        defined = {}
        exec(_block(name, "python"), defined)
        return defined

    return run


@pytest.fixture
def documented_command(monkeypatch, tmp_path):
    """Run the command of a block in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def run(name):
        from vanilla_transformer.cli import main

        program, *words = shlex.split(_block(name, "bash").replace("\\\n", " "))
        assert program == ".venv/bin/vanilla-transformer"
        assert main(words) == 0

    return run
