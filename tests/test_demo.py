"""The demo of the README at its own length, in both tested pairs: `make test-slow`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).parent / "vanilla-transformer"


@pytest.mark.slow
@pytest.mark.parametrize("pair", ["en-de", "en-zh"])
def test_demo_learns_to_translate_in_minutes(tmp_path, pair):
    """What `make demo` runs. It measures two free CPU cores: nothing else may run beside it."""
    run = tmp_path / "run"
    command = [PROGRAM, "train", "demo", "--pair", pair, "--output-dir", run]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stderr[-3000:]
    metrics = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    scores = metrics["scores"]
    assert scores["test_values"]["exact_match"] > 85
    assert scores["test_combinations"]["exact_match"] > 80
    assert scores["test_values"]["copy_baseline"]["exact_match"] < 5
    for name in ("curves.png", "attention.png", "samples.md", "recipe.yaml"):
        assert (run / name).is_file(), name
    assert "train multi30k_en_de" in result.stdout
