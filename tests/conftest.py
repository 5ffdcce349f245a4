"""Settings of the whole suite, before anything imports torch."""

import os
import re
import shlex
from pathlib import Path

import pytest

# Tests run side by side; threads that wait for each other on busy cores are many times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

PAGE = Path(__file__).parents[1] / "vanilla_transformer" / "importers" / "README.md"


@pytest.fixture
def documented_command(monkeypatch, tmp_path):
    """The command of a block of the page on import and export, run in an empty directory."""
    text = PAGE.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def run(name):
        from vanilla_transformer.cli import main

        command = re.search(rf"<!-- block: {name} -->\n```bash\n(.*?)```", text, re.DOTALL)[1]
        program, *words = shlex.split(command.replace("\\\n", " "))
        assert program == ".venv/bin/vanilla-transformer"
        assert main(words) == 0

    return run
