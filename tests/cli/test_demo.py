"""The demo of the README at full length, for both tested language pairs: `make test-slow`."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).parent / "vanilla-transformer"


@pytest.mark.slow
@pytest.mark.parametrize("pair", ["en-de", "en-zh"])
def test_demo_learns_to_translate_in_minutes(tmp_path, pair):
    """Run what `make demo` runs. The time limit holds for two CPU cores with no other load."""
    run = tmp_path / "run"
    command = [PROGRAM, "train", "demo", "--pair", pair, "--output-dir", run]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stderr[-3000:]
    metrics = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    scores = metrics["scores"]
    assert scores["test_values"]["exact_match"] >= 95
    assert scores["test_combinations"]["exact_match"] >= 87
    assert metrics["training_minutes"] < 6
    assert scores["test_values"]["copy_baseline"]["exact_match"] < 5
    for name in ("curves.png", "attention.png", "samples.md", "recipe.yaml"):
        assert (run / name).is_file(), name
    assert "train multi30k_en_de" in result.stdout


@pytest.mark.slow
def test_a_wheel_trains_without_the_clone(tmp_path):
    """The wheel alone is enough: it contains the recipes."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path]
    subprocess.run([*pip, Path(__file__).parents[2]], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    train = "from vanilla_transformer import cli; print(cli.__file__); raise SystemExit(cli.main())"
    words = ["train", "demo", "--max-steps", "5", "--generated-pairs", "2000"]
    result = subprocess.run(
        [sys.executable, "-c", train, *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site), "HF_DATASETS_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.startswith(str(site))
    assert (tmp_path / "runs" / "demo" / "model.safetensors").is_file()
