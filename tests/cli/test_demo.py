"""The demo of the README at full length, for both tested language pairs: `make test-slow`."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).parent / "vanilla-transformer"


@pytest.mark.slow
@pytest.mark.parametrize("pair", ["en-de", "en-zh"])
def test_demo_learns_to_translate_in_minutes(tmp_path, pair):
    """Run what `make demo` runs. The time limit holds for two CPU cores with no other load."""
    run, pairs = tmp_path / "run", tmp_path / "pairs"
    script = [sys.executable, ROOT / "training/demo/phrases.py"]
    subprocess.run([*script, "--pair", pair, "--output-dir", pairs], check=True)
    command = [PROGRAM, "train", "demo", "--pair", pair, "--output-dir", run]
    for part in ("train", "validation"):
        command += [f"--{part}-file", pairs / f"{part}.jsonl"]
    command += ["--test-file", pairs / "test_values.jsonl", pairs / "test_combinations.jsonl"]
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


@pytest.mark.slow
def test_a_wheel_trains_without_the_clone(tmp_path):
    """The wheel alone is enough: it contains the recipes."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path]
    subprocess.run([*pip, ROOT], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    train = "from vanilla_transformer import cli; print(cli.__file__); raise SystemExit(cli.main())"
    words = ["train", "demo", "--max-steps", "5", "--vocab-size", "300"]
    words += ["--train-file", str(ROOT / "tests/fixtures/tiny_pairs/train.jsonl")]
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
