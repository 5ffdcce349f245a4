"""Training and decoding on a GPU, by the same tests as on a CPU, and the GPU benchmark."""

import copy

import gpu
import numpy as np
import pytest
import torch
from test_batch_independence import assert_same, model, search, sources, texts  # noqa: F401
from tiny_trainers import At, make_trainer, tiny_model

from vanilla_transformer.beam_search import beam_search

no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, no_gpu])]
on_each_device = pytest.mark.parametrize("device", DEVICES)


def batch(device, *, padding=0):
    """Return two pairs, with `padding` more columns on the right of each side."""
    generator = torch.Generator().manual_seed(0)
    ids, labels = torch.randint(4, 40, (2, 2, 7), generator=generator)
    ids[1, 4:], labels[1, 5:] = 0, -100
    ids = torch.nn.functional.pad(ids, (0, padding))
    labels = torch.nn.functional.pad(labels, (0, padding), value=-100)
    inputs = {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}
    return {name: tensor.to(device) for name, tensor in inputs.items()}


@on_each_device
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_bf16_loss_is_close_to_float32_at_any_padding(device, attention):
    single = tiny_model(dropout=0.0).to(device).train()
    single.set_attn_implementation(attention)
    expected = single(**batch(device)).loss
    expected.backward()
    for padding in (0, 9):
        reduced = tiny_model(dropout=0.0).to(device).train()
        reduced.set_attn_implementation(attention)
        with torch.autocast(device, torch.bfloat16):
            loss = reduced(**batch(device, padding=padding)).loss
        loss.backward()
        assert loss.item() == pytest.approx(expected.item(), rel=2e-2)
        for (name, p), q in zip(reduced.named_parameters(), single.parameters(), strict=True):
            assert p.grad.isfinite().all(), name
            similar = torch.nn.functional.cosine_similarity(p.grad.flatten(), q.grad.flatten(), 0)
            assert similar > 0.98 or q.grad.norm() < 1e-4, name


@on_each_device
def test_logits_and_gradients_equal_those_on_the_cpu(device):
    results = []
    for place in ("cpu", device):
        copied = tiny_model(dropout=0.0).to(place).train()
        out = copied(**batch(place), return_logits=True)
        out.loss.backward()
        results.append([out.logits.cpu(), *(p.grad.cpu() for p in copied.parameters())])
    for cpu, other in zip(*results, strict=True):
        assert torch.allclose(cpu, other, rtol=1e-4, atol=1e-5)


@on_each_device
def test_resumed_training_equals_uninterrupted_training(device, tmp_path):
    """Compare the losses of all updates, not bit by bit: a GPU's order of summation varies."""
    losses = []
    for name, stops in (("one go", (12,)), ("stopped", (8, 12))):
        for last in stops:
            trainer = make_trainer(
                tmp_path / name, max_steps=last, logging_steps=1, use_cpu=device == "cpu"
            )
            trainer.train(resume_from_checkpoint=True if last > stops[0] else None)
        losses.append([log["loss"] for log in trainer.state.log_history if "loss" in log])
    assert trainer.model.device.type == device
    assert len(losses[0]) == 12
    assert np.allclose(*losses, rtol=1e-4)


@pytest.mark.gpu
@no_gpu
@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead"])
def test_ten_whole_updates_wait_for_nothing(mode, tmp_path):
    """With `torch_compile` too, after its first updates; its losses are those without."""
    wait, losses = torch.cuda.set_sync_debug_mode, []
    for stance in ("force_eager", "default"):
        settings = {"use_cpu": False, "bf16": True, "max_steps": 60, "logging_steps": 20}
        trainer = make_trainer(
            tmp_path / str(len(losses)),
            model=tiny_model(dropout=0.0),
            callbacks=[At(45, lambda: wait("error")), At(55, lambda: wait("default"))],
            **{**settings, "torch_compile_mode": mode, "save_strategy": "no"},
        )
        try:
            with torch.compiler.set_stance(stance):
                trainer.train()
        finally:
            wait("default")
        losses.append([log["loss"] for log in trainer.state.log_history if "loss" in log])
    assert np.allclose(*losses, rtol=2e-2)


@pytest.mark.parametrize("work", ["train", "evaluate", "search"])
def test_attention_of_cudnn_is_left_out_while_shapes_vary(work, tmp_path):
    """On an H100 it takes six times as long to train and 16 times as long to translate."""
    trainer = make_trainer(tmp_path, max_steps=2, save_strategy="no")
    enabled, ids = set(), torch.full((1, 3), 5)
    trainer.model.get_encoder().register_forward_hook(
        lambda *_: enabled.add(torch.backends.cuda.cudnn_sdp_enabled())
    )
    actions = {
        "train": trainer.train,
        "evaluate": trainer.evaluate,
        "search": lambda: beam_search(trainer.model, ids, torch.ones_like(ids)),
    }
    for before in (True, False):
        torch.backends.cuda.enable_cudnn_sdp(before)
        try:
            actions[work]()
            assert torch.backends.cuda.cudnn_sdp_enabled() is before
        finally:
            torch.backends.cuda.enable_cudnn_sdp(True)
    assert enabled == {False}


@pytest.mark.gpu
@no_gpu
def test_translations_equal_those_on_the_cpu(model, sources):  # noqa: F811
    moved = copy.deepcopy(model).to("cuda")
    for start in range(0, len(sources), 16):
        rows = sources[start : start + 16]
        pairs = zip(search(moved, rows), search(model, rows), strict=True)
        for found, expected in pairs:
            assert_same(found, expected)


def test_gpu_suite_runs_at_tiny_size_and_resumes(tmp_path, monkeypatch):
    options = ["--size", "tiny", "--results", str(tmp_path)]
    gpu.Gpu().main([*options, "--rows", "matrix product"])
    page = (tmp_path / "gpu.tiny.md").read_text(encoding="utf-8")
    assert "python training/benchmarks/gpu.py --size tiny" in page
    monkeypatch.setattr(gpu, "product_rate", None)  # fails if it is measured again
    rows = "matrix product,train tiny ours,train tiny Marian stock,decode 4 ours,profile tiny ours"
    gpu.Gpu().main([*options, "--rows", rows])
    page = (tmp_path / "gpu.tiny.md").read_text(encoding="utf-8")
    assert all(row in page for row in ("| 4 | ours |", "| tiny | ours |", "| tiny ours |"))
