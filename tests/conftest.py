"""Settings of the whole suite, before anything imports torch."""

import os
import re
import shlex
from pathlib import Path

import pytest

# Tests run side by side; threads that wait for each other on busy cores are many times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

PAGE = Path(__file__).parents[1] / "vanilla_transformer" / "convert" / "README.md"


def _block(name, language):
    """A block of the page on import and export."""
    marked = rf"<!-- block: {name} -->\n```{language}\n(.*?)```"
    return re.search(marked, PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]


@pytest.fixture
def documented_code(monkeypatch, tmp_path):
    """The Python of a block, run in an empty directory; returns what it has defined."""
    monkeypatch.chdir(tmp_path)

    def run(name):
        defined = {}
        exec(_block(name, "python"), defined)
        return defined

    return run


@pytest.fixture
def documented_command(monkeypatch, tmp_path):
    """The command of a block, run in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def run(name):
        from vanilla_transformer.cli import main

        program, *words = shlex.split(_block(name, "bash").replace("\\\n", " "))
        assert program == ".venv/bin/vanilla-transformer"
        assert main(words) == 0

    return run
