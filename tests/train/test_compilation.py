"""Training with `torch_compile`: one graph for all shapes, the same losses, and a limit of time."""

import re

import pytest
import torch
from tiny_trainers import At, copy_task, make_trainer, tiny_model
from torch._dynamo.utils import counters

from vanilla_transformer.train import compilation


def train(directory, *, stance="default", model=None, **options):
    """Return the losses of each update, the trainer and the number of graphs."""
    torch._dynamo.reset()
    counters.clear()
    settings = {"torch_compile_backend": "eager", "logging_steps": 1, "save_strategy": "no"}
    settings |= {"train": copy_task(300), "gradient_accumulation_steps": 1, **options}
    trainer = make_trainer(directory, model=model or tiny_model(), **settings)
    with torch.compiler.set_stance(stance):
        trainer.train()
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    return losses, trainer, counters["stats"]["unique_graphs"]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_one_graph_computes_the_same_losses_for_all_shapes(tmp_path, attention):
    results = []
    for stance in ("force_eager", "default"):
        model = tiny_model(attention=attention, dropout=0.0)
        results.append(train(tmp_path, model=model, stance=stance))
    (expected, _, none), (found, trainer, graphs) = results
    assert (none, graphs) == (0, 1)
    assert found == pytest.approx(expected, rel=1e-5)
    assert len({batch["labels"].shape for batch in trainer.get_train_dataloader()}) > 8
    assert trainer.progress.identity["torch_compile"] is True  # it resumes only as such


def test_a_changed_model_is_trained_as_it_is(tmp_path, caplog):
    model, seen = tiny_model(), []
    model.model.encoder.layers[0].register_forward_hook(lambda *_: seen.append(1))
    losses, trainer, graphs = train(tmp_path, model=model, max_steps=3)
    assert "which could bypass model changes: model.encoder.layers.0 has hooks" in caplog.text
    assert (len(losses), len(seen), graphs, trainer.train_sampler.lengths) == (3, 3, 0, None)


def test_nothing_is_compiled_beyond_the_limit_of_time(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(compilation, "_MOST_SECONDS", 0.0)
    caplog.set_level("INFO", "vanilla_transformer")
    model = tiny_model()

    def change():  # without smoothing, the loss is another graph
        model.config.label_smoothing = 0.0

    losses, _, graphs = train(tmp_path, model=model, max_steps=4, callbacks=[At(2, change)])
    assert re.search(r"Compiling has taken \d+ sec.*Compilation stopped", caplog.text, re.DOTALL)
    assert (len(losses), graphs) == (4, 1)
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    assert counters["stats"]["unique_graphs"] == 2  # after the training, all compiles again
