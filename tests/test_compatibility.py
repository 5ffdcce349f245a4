"""Runs and published folders of version 0.1.0 still work and compute the same.

This file names no module of the package; fixture_0_1_0.py says how it reaches what it needs.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from fixture_0_1_0 import (
    EXPECTED,
    INTERRUPTED_AT,
    PUBLISHED,
    RECIPE,
    RUN,
    command,
    load,
    losses_after,
    observed,
)
from safetensors.torch import load_file

from vanilla_transformer.data.bpe_dropout import BpeDropout

TOLERANCE = 1e-4  # of scores and losses
# Runs without this package; its arguments are the folder and a file of sentences.
STRANGER = """
import json, sys
sys.modules["vanilla_transformer"] = None
from transformers import AutoModelForSeq2SeqLM, pipeline
folder, sentences = sys.argv[1], json.load(open(sys.argv[2], encoding="utf-8"))
AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True)
translator = pipeline("translate", model=folder, trust_remote_code=True)
json.dump(translator(sentences, return_scores=True), sys.stdout)
"""


@pytest.fixture(scope="module")
def expected():
    return json.loads(EXPECTED.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in a copy of recipe, pairs and runs, with an empty cache of pairs."""
    shutil.copytree(RUN, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "work"


def close(value, tolerance=TOLERANCE):
    return pytest.approx(value, rel=tolerance, abs=tolerance)


def check_observed(found, expected):
    """Check for the same ids and texts, and for close scores and loss."""
    assert found["source_ids"] == expected["source_ids"]
    assert found["labels"] == expected["labels"]
    assert found["loss"] == close(expected["loss"])
    check_translations(found["translations"], expected)


def check_translations(found, expected):
    before = expected["translations"]
    assert [entry["text"] for entry in found] == [entry["text"] for entry in before]
    scores = [entry["score"] for entry in before]
    assert [entry["score"] for entry in found] == close(scores)


def check_scores(found, expected):
    """Compare all numbers, but not the signatures, which name versions of sacrebleu."""
    for name, value in expected.items():
        if isinstance(value, dict):
            check_scores(found[name], value)
        elif not isinstance(value, str):
            assert found[name] == close(value), name


def contents(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_run_loads_and_translates(expected):
    check_observed(observed(*load("complete"), expected["sentences"]), expected)


def test_a_run_is_evaluated(expected):
    assert command("evaluate", "complete", "--output", "scores.json") == 0
    found = json.loads(Path("scores.json").read_text(encoding="utf-8"))
    assert found.keys() == expected["scores"].keys()
    check_scores(found, expected["scores"])


def test_a_complete_run_is_not_trained_again(folder, capsys):
    before = contents(folder)
    assert command("train", RECIPE, "--output-dir", "complete") == 0
    captured = capsys.readouterr()
    assert "complete is complete." in captured.err
    assert contents(folder) == before


def split_as_in_0_1_0(dropout, features, *, epoch=0):
    """Draw for each side by a generator of its own, seeded with that side's ids."""
    sides = []
    for name in ("input_ids", "labels"):
        rows = [np.asarray(feature[name], np.int64) for feature in features]
        seed = [dropout.seed, epoch, zlib.crc32(np.concatenate(rows).data)]
        sides.append(dropout._taken_apart(rows, np.random.default_rng(seed)))
    return [{"input_ids": a, "labels": b} for a, b in zip(*sides, strict=True)]


@pytest.mark.skipif(
    torch.cuda.is_available() or torch.backends.mps.is_available(),
    reason="the run began on a CPU, whose random numbers differ",
)
def test_an_interrupted_run_resumes_to_the_uninterrupted_result(expected, monkeypatch):
    monkeypatch.setattr(BpeDropout, "__call__", split_as_in_0_1_0)
    run, uninterrupted = Path("interrupted"), Path("complete")
    old = contents(run / "checkpoints" / f"checkpoint-{INTERRUPTED_AT}")
    assert command("train", RECIPE, "--output-dir", run) == 0
    assert contents(run / "checkpoints" / f"checkpoint-{INTERRUPTED_AT}") == old
    assert losses_after(run, INTERRUPTED_AT) == close(expected["losses"])
    found, before = (
        json.loads((path / "metrics.json").read_text(encoding="utf-8"))
        for path in (run, uninterrupted)
    )
    for name in ("averaged_checkpoints", "epochs", "target_tokens", "updates"):
        assert found[name] == before[name], name
    for name in ("data", "recipe"):  # later versions add facts and options
        assert {key: found[name].get(key) for key in before[name]} == before[name], name
    assert found["averaged_checkpoints"][0] == f"checkpoint-{INTERRUPTED_AT}"
    assert found["scores"].keys() == before["scores"].keys()
    check_scores(found["scores"], before["scores"])
    assert (run / "samples.md").read_text() == (uninterrupted / "samples.md").read_text()
    weights, others = (load_file(path / "model.safetensors") for path in (run, uninterrupted))
    assert weights.keys() == others.keys()
    for name, weight in weights.items():
        # The softmax cancels this bias: its gradient is rounding error, which Adam scales up to
        # steps. Of the rest, 2e-7 was the largest difference between instruction sets.
        tolerance = 1e-3 if name.endswith("k_proj.bias") else 1e-5
        torch.testing.assert_close(weight, others[name], rtol=0, atol=tolerance, msg=name)
    check_observed(observed(*load(run), expected["sentences"]), expected)


@pytest.mark.parametrize("form", PUBLISHED)
def test_a_published_folder_loads_with_the_package(form, expected):
    model, tokenizer = load(PUBLISHED[form])
    assert type(model).__module__.startswith("vanilla_transformer.")
    check_observed(observed(model, tokenizer, expected["sentences"]), expected)


@pytest.mark.slow
def test_a_folder_published_with_code_loads_without_the_package(expected, tmp_path):
    (tmp_path / "sentences.json").write_text(json.dumps(expected["sentences"]), encoding="utf-8")
    paths = [PUBLISHED["with_code"], tmp_path / "sentences.json"]
    environment = {"HF_HOME": str(tmp_path), "HF_MODULES_CACHE": str(tmp_path / "modules")}
    environment |= {"HF_HUB_OFFLINE": "1", "PYTHONIOENCODING": "utf-8", "CUDA_VISIBLE_DEVICES": ""}
    result = subprocess.run(
        [sys.executable, "-P", "-c", STRANGER, *map(str, paths)],
        env={**os.environ, **environment},
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
    )
    assert result.returncode == 0, result.stderr
    found = [
        {"text": entry["translation_text"], "score": entry["score"]}
        for entry in json.loads(result.stdout)
    ]
    check_translations(found, expected)


@pytest.mark.parametrize("form", ["with_code", "without_code"])
def test_an_old_run_is_published_by_the_current_code(form, capsys, quick_publishing):
    words = ["publish", "complete", "--repo", "user/tiny", "--license", "cc-by-4.0"]
    assert command(*words) == 2
    assert "add them with vanilla-transformer evaluate complete." in capsys.readouterr().err
    before = Path("complete", "samples.md").read_text(encoding="utf-8")
    assert command("evaluate", "complete") == 0
    assert "Added samples to complete/metrics.json" in capsys.readouterr().err
    assert Path("complete", "samples.md").read_text(encoding="utf-8") == before
    words += ["--with-code"] if form == "with_code" else []
    assert command(*words, "--card-dir", "card") == 0
    listed = set(re.findall(r"^(\S+) +[\d,]+$", capsys.readouterr().out, flags=re.M))
    # The names of the code's files may change.
    names = {path.name for path in PUBLISHED[form].iterdir() if path.suffix != ".py"}
    assert names <= listed
    assert any(name.endswith(".py") for name in listed) == (form == "with_code")
    found, before = (
        json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        for folder in (Path("card"), PUBLISHED[form])
    )
    assert found.keys() >= before.keys()
    check_scores(found["scores"], before["scores"])
    assert found["published"]["samples"] == before["published"]["samples"]
