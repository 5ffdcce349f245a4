"""Machine-independent properties that make training fast, and runs of the benchmarks."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from phrases import generate_pairs
from tiny_models import tiny_config
from token_shares import real_token_shares
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.loss import smoothed_cross_entropy
from vanilla_transformer.machine import environment as machine
from vanilla_transformer.train.cpu_settings import cpu_training_settings

SCRIPTS = Path(__file__).parents[2] / "training" / "benchmarks"


class Calls(TorchDispatchMode):
    """Counts calls, and records the size in bytes of the largest new tensor."""

    def __init__(self):
        super().__init__()
        self.count, self.largest = 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.count += 1
        sizes = [x.numel() * x.element_size() for x in tree_leaves(out) if torch.is_tensor(x)]
        self.largest = max([self.largest, *sizes])
        return out


def test_largest_tensor_of_a_training_step_is_a_chunk_of_logits():
    torch.manual_seed(0)
    vocab_size = 40_000
    config = tiny_config(vocab_size, d_model=8, encoder_ffn_dim=16, decoder_ffn_dim=16)
    model = VanillaTransformerForConditionalGeneration(config).train()
    ids = torch.randint(4, vocab_size, (70, 10))
    with cpu_training_settings(model), Calls() as calls:
        model(input_ids=ids, labels=ids).loss.backward()
    assert ids.numel() * vocab_size * 4 > 100 * 2**20  # the size of all logits together
    assert calls.largest <= 64 * 2**20


def test_loss_reads_the_logits_of_a_chunk_five_times():
    """A matrix product writes the logits; maximum, softmax, maximum and two products read them."""
    seen = []

    class Large(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            given = [x for x in tree_leaves((args, kwargs)) if torch.is_tensor(x)]
            views = ("view", "t.", "slice", "as_strided", "detach", "empty", "transpose")
            name = str(func).removeprefix("aten.")
            if any(x.shape[-2:] in ((12, 500), (500, 12)) for x in given) and not name.startswith(
                views
            ):
                seen.append(name.split(".")[0])
            return out

    hidden = torch.randn(12, 8, requires_grad=True)
    weight = torch.randn(500, 8, requires_grad=True)
    labels = torch.randint(0, 500, (12,))
    with Large():
        smoothed_cross_entropy(hidden, weight, labels, label_smoothing=0.1).backward()
    few_numbers_each = {"gather", "scatter_add_"}
    whole = [name.lstrip("_") for name in seen if name not in few_numbers_each]
    assert whole == ["mm", "amax", "softmax", "amax", "mm", "addmm_"]


def test_batches_of_a_fixed_sample_hold_little_padding():
    pairs = list(generate_pairs("en", "de", count=5000))
    lengths = [
        [len(text) // 3 + 1 for text in side] for side in zip(*[p[:2] for p in pairs], strict=True)
    ]
    assert min(real_token_shares(*lengths, max_tokens=2048)) > 0.9


def script(name):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", SCRIPTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def run(module, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", [module.__file__, *map(str, arguments)])
    module.main()


@pytest.mark.parametrize(
    "only",
    [
        "ours,marian_grouped",
        pytest.param(
            "ours,ours_plain,ours_buckets,marian,marian_buckets,marian_tuned,bart,torch",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_training_benchmark_runs_and_records_the_machine(tmp_path, monkeypatch, capsys, only):
    run(
        script("training"),
        monkeypatch,
        *("--size", "tiny", "--rounds", 1, "--steps", 1, "--batch-tokens", 300, "--pairs", 300),
        *("--only", only, "--output", tmp_path / "results.json"),
    )
    results = json.loads((tmp_path / "results.json").read_text())
    rows = results["tables"][0]["rows"]
    assert len(rows) == len(only.split(","))
    assert rows[0][2] == 1.0  # ours relative to ours
    assert all(row[1] > 0 for row in rows)
    assert results["hardware"]["cpu"]
    assert results["versions"]["torch"] == torch.__version__
    assert "ours" in capsys.readouterr().out


def test_commit_is_marked_dirty_unless_only_results_changed(tmp_path, monkeypatch):
    def git(*words):
        name = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", "-C", tmp_path, *name, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    monkeypatch.setattr(
        machine, "__file__", str(tmp_path / "package" / "storage" / "environment.py")
    )
    assert machine.git_commit() is None
    git("init")
    for name in ("code", "results"):
        (tmp_path / name).write_text("1")
    git("add", ".")
    git("commit", "-m", "First")
    commit = git("rev-parse", "HEAD")
    assert machine.git_commit() == machine.git_commit("results") == commit
    (tmp_path / "results").write_text("2")
    assert machine.git_commit() == f"{commit}-dirty"
    assert machine.git_commit("results") == commit
    (tmp_path / "code").write_text("2")
    assert machine.git_commit("results") == f"{commit}-dirty"
