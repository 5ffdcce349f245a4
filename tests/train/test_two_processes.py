"""Several processes: same updates as one, resumption by any number, no loss by signals."""

import contextlib
import json
import logging
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import stock_updates
import torch
from browser import free_port
from copies import copy_of_this_process
from safetensors.torch import load_file
from tiny_exports import save
from tiny_runs import tiny_recipe
from tiny_trainers import VOCAB, At, assert_equal, copy_task, make_trainer, tiny_model, weights
from transformers import TrainerCallback

from vanilla_transformer.cli import main
from vanilla_transformer.data.dataset import PairCollator
from vanilla_transformer.train import callbacks
from vanilla_transformer.train import trainer as trainer_module
from vanilla_transformer.train.checkpoints import Progress
from vanilla_transformer.train.trainer import TrainingInterrupted

UPDATES = 8  # of 8 batches each, except the last of an epoch, which has the other 5 of 13


class Watch(TrainerCallback):
    """Callback and collator that record each update's gradient and each batch's pairs."""

    def __init__(self, collate):
        self.collate, self.batches, self.updates = collate, [], []

    def __call__(self, features):
        self.batches.append([tuple(feature["input_ids"]) for feature in features])
        return self.collate(features)

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
        self.updates.append((len(self.batches), gradient))


def several_updates(directory, *, processes, last=UPDATES, resume=None):
    """Return losses, rates, gradients and weights of some updates, and the pairs of each batch."""
    watch = Watch(None)
    trainer = make_trainer(
        directory,
        model=tiny_model(dropout=0.0).double(),
        train=copy_task(211),
        callbacks=[watch],
        given={"data_collator": watch},
        gradient_accumulation_steps=8 // processes,
        max_steps=last,
        save_steps=3,
        logging_steps=1,
    )
    watch.collate = PairCollator(vocab_size=VOCAB)
    trainer.train(resume_from_checkpoint=resume)
    assert len(trainer.train_sampler) == 13
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    return {
        "losses": [entry["loss"] for entry in history],
        "rates": [entry["learning_rate"] for entry in history],
        "tokens": [entry["target_tokens"] for entry in history],
        "gradients": [gradient for _, gradient in watch.updates],
        "weights": weights(trainer),
        "batches": watch.batches,
    }


def assert_same_updates(several, one):
    """Check that the updates of a process of several equal those of a single process."""
    for name in ("rates", "tokens"):
        assert several[name] == one[name]
    assert several["losses"] == pytest.approx(one["losses"], rel=1e-6)
    assert len(several["gradients"]) == len(one["gradients"])
    for found, expected in zip(several["gradients"], one["gradients"], strict=True):
        assert (found - expected).abs().max() <= 1e-6 * expected.abs().max()
    for name, expected in one["weights"].items():
        assert (several["weights"][name] - expected).abs().max() <= 1e-6, name


def assert_dealt(ranks, one):
    """Check that ranks took turns at one process's batches, for the same updates.

    Repeats come last in a rank's epoch.
    """
    epoch, share = 13, math.ceil(13 / len(ranks))
    for rank, found in enumerate(ranks):
        for start in range(0, len(one["batches"]) - epoch + 1, epoch):
            dealt = one["batches"][start : start + epoch][rank :: len(ranks)]
            first = start // epoch * share
            assert found["batches"][first : first + len(dealt)] == dealt
        assert_same_updates(found, one)


class Draw(TrainerCallback):
    """Callback that draws random numbers at the start of an update, as dropout would."""

    def __init__(self):
        self.drawn = []

    def on_step_begin(self, args, state, control, **kwargs):
        self.drawn.append(torch.rand(4))


def random_numbers(directory, **given):
    """Return the random numbers drawn at the start of a training."""
    draw = Draw()
    make_trainer(directory, callbacks=[draw], max_steps=1, save_steps=1, given=given).train()
    return draw.drawn


def interrupted_and_resumed(directory):
    """Train 12 updates at once, and again with SIGTERM to the second process at the seventh."""

    def stop():
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGTERM)

    whole = make_trainer(directory / "whole")
    whole.train()
    first = make_trainer(directory / "run", callbacks=[At(7, stop)])
    with pytest.raises(TrainingInterrupted) as caught:
        first.train()
    updates = math.ceil(len(first.train_sampler) / 2 / 2)
    assert caught.value.checkpoint.name == "checkpoint-7"  # not an earlier one
    assert 7 % updates > 0  # in mid-epoch
    second = make_trainer(directory / "run")
    torch.manual_seed(99)  # what the new process did before must not matter
    second.train(resume_from_checkpoint=True)
    assert_equal(weights(second), weights(whole))


def every_rank_knows_the_bleu(directory):
    """Check that ranks share the BLEU: only the first translates, all need the best checkpoint."""
    trainer = make_trainer(directory / "bleu")
    trainer.validation_pairs = [("a", "b")]
    trainer._greedy_scores = lambda: (
        {"bleu": 12.5} if os.environ["RANK"] == "0" else pytest.fail("translated")
    )
    assert trainer.evaluate()["eval_bleu"] == 12.5


def train_by_command(directory):
    """Train a recipe by the command line, with its output in a file."""
    words = ["--max-steps", "5", "--trainer", "eval_steps=3", "--gradient-accumulation", "2"]
    output = directory / f"printed-{os.environ['RANK']}.txt"
    with output.open("w") as stream, contextlib.redirect_stdout(stream):
        recipe, run = directory / "recipe" / "tiny.yaml", directory / "recipe" / "run"
        assert main(["train", str(recipe), "--output-dir", str(run), *words]) == 0
    words += ["--init-from", str(directory / "untied" / "run"), "--learning-rate", "1e-3"]
    words += ["--pair", "de-en"]
    assert main(["train", str(recipe), "--output-dir", str(directory / "continued"), *words]) == 0


def work(directory):
    """Do the work of each of the two processes; on an error the exit code is not 0."""
    complaints, seal = [], trainer_module.seal
    handler = logging.Handler()
    handler.emit = lambda record: complaints.append(record.getMessage())
    logging.getLogger("vanilla_transformer.train.checkpoints").addHandler(handler)

    def slow_seal(checkpoint):
        time.sleep(0.05)
        seal(checkpoint)

    trainer_module.seal = slow_seal
    rank = os.environ["RANK"]
    torch.save(several_updates(directory / "all", processes=2), directory / f"all-{rank}.pt")
    begun = several_updates(directory / "one", processes=2, resume=True)
    torch.save(begun, directory / f"begun-by-one-{rank}.pt")
    drawn = random_numbers(directory / "random")
    drawn += random_numbers(directory / "model_init", model_init=lambda: tiny_model())
    torch.save(drawn, directory / f"random-{rank}.pt")
    interrupted_and_resumed(directory)
    every_rank_knows_the_bleu(directory)
    stock = stock_updates.trainer_update(directory / f"stock-{rank}", batch_size=2, accumulation=2)
    torch.save(stock, directory / f"stock-{rank}.pt")
    train_by_command(directory)
    assert not complaints  # about checkpoints that the first process was still writing


def launch(directory, processes, function):
    """Start gloo processes that call a function of this file with the directory; await them."""
    port, started = free_port(), []
    for rank in map(str, range(processes)):
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": str(processes)}
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        started.append(copy_of_this_process(function, directory, **variables))
    for process in started:
        process.start()
    try:
        for process in started:
            process.join(timeout=600)
        assert {process.exitcode for process in started} == {0}
    finally:
        for process in started:
            process.kill()


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """Return the updates of a single process."""
    return several_updates(tmp_path_factory.mktemp("one"), processes=1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the directory in which two gloo processes have done their work."""
    directory = tmp_path_factory.mktemp("two")
    several_updates(directory / "one", processes=1, last=3)  # in mid-epoch
    tiny_recipe(directory / "recipe", num_samples=3)
    save(directory / "untied", tie_word_embeddings=False)
    launch(directory, 2, work)
    return directory


def test_two_processes_with_a_stock_trainer_equal_one(finished):
    """Each process accumulates two batches of two: all eight examples once."""
    one = stock_updates.one_batch(stock_updates.examples())
    for rank in range(2):
        stock_updates.assert_same_update(torch.load(finished / f"stock-{rank}.pt"), one)


def test_two_processes_train_as_one_with_an_odd_number_of_batches(finished, one):
    assert_dealt([torch.load(finished / f"all-{rank}.pt") for rank in range(2)], one)


def test_two_processes_continue_a_training_of_one(finished, one):
    for rank in range(2):
        found = torch.load(finished / f"begun-by-one-{rank}.pt")
        assert_same_updates(found, {**one, "gradients": one["gradients"][3:]})


def test_one_process_continues_a_training_of_two(finished, one):
    resumed = several_updates(
        finished / "all", processes=1, resume=str(finished / "all" / "checkpoint-3")
    )
    assert_same_updates(resumed, {**one, "gradients": one["gradients"][3:]})
    assert resumed["batches"] == one["batches"][8 + 5 + 8 :]
    assert Progress.load(finished / "all" / "checkpoint-8").world_size == 1


def test_each_process_draws_its_own_random_numbers(finished):
    first, second = (torch.load(finished / f"random-{rank}.pt") for rank in range(2))
    assert not any(map(torch.equal, first, second))


def test_resuming_with_other_processes_draws_new_reproducible_numbers(finished):
    draw = Draw()
    for before in (1, 2):
        settings = {"max_steps": 2, "gradient_accumulation_steps": 4, "save_strategy": "no"}
        trainer = make_trainer(finished / "random", callbacks=[draw], **settings)
        torch.manual_seed(before)  # what the new process did before must not matter
        trainer.train(resume_from_checkpoint=str(finished / "random" / "checkpoint-1"))
    first, second = draw.drawn
    assert torch.equal(first, second)
    assert not torch.equal(first, torch.load(finished / "random-0.pt")[0])


def test_training_resumes_after_a_signal_to_one_of_two_processes(finished):
    assert (finished / "run" / "checkpoint-12" / "manifest.json").is_file()


def test_only_the_first_of_two_processes_writes_the_run(finished):
    run = finished / "recipe" / "run"
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["devices"] == 2
    printed = [(finished / f"printed-{rank}.txt").read_text() for rank in range(2)]
    assert [text.count("The model and its metrics are in") for text in printed] == [1, 0]
    (samples,) = metrics["samples"].values()
    assert printed[0].count("\n    translation ") == 3
    assert f"\n\n    source      {samples[2]['source']}\n" in printed[0]
    checkpoint = run / "checkpoints" / "checkpoint-5"
    assert Progress.load(checkpoint).identity["batches_per_update"] == 2
    states = sorted(path.name for path in checkpoint.glob("rng_state*"))
    assert states == ["rng_state_0.pth", "rng_state_1.pth"]


def test_two_processes_train_a_model_without_ties(finished):
    metrics = json.loads((finished / "continued" / "metrics.json").read_text())
    assert metrics["devices"] == 2
    weights = load_file(finished / "continued" / "model.safetensors")
    assert metrics["parameters"] == sum(weight.numel() for weight in weights.values())


def updates_of_many(directory):
    """Do the work of each of more than two processes."""
    processes, rank = int(os.environ["WORLD_SIZE"]), os.environ["RANK"]
    found = several_updates(directory / "all", processes=processes)
    torch.save(found, directory / f"all-{rank}.pt")


@pytest.mark.slow
@pytest.mark.parametrize("processes", [4, 8])
def test_many_processes_train_as_one(tmp_path, one, processes):
    launch(tmp_path, processes, updates_of_many)
    assert_dealt([torch.load(tmp_path / f"all-{rank}.pt") for rank in range(processes)], one)


def train_and_die(directory):
    """Train a recipe; at the first start, kill the second process in the fifth update."""
    on_step_end = callbacks.RunControl.on_step_end
    to_die = "dies" in directory.name and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"

    def killed(self, args, state, control, **kwargs):
        if to_die and state.global_step == 5 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        on_step_end(self, args, state, control, **kwargs)

    callbacks.RunControl.on_step_end = killed
    recipe = str(directory.parent / "tiny.yaml")
    sys.exit(main(["train", recipe, "--output-dir", str(directory)]))


@pytest.mark.slow
def test_run_continues_when_torchrun_restarts_a_killed_process(tmp_path):
    tiny_recipe(tmp_path, gradient_accumulation=4)
    program, tests = tmp_path / "program.py", Path(__file__).parents[1]
    program.write_text(
        f"import pathlib, sys; sys.path[:0] = {[str(tests / 'train'), str(tests / 'support')]}\n"
        "from test_two_processes import train_and_die\n"
        "train_and_die(pathlib.Path(sys.argv[1]))\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "--max-restarts", "1", str(program)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_DATASETS_CACHE": str(tmp_path / "c")}
    # Otherwise the new processes sometimes get the addresses of the dead ones.
    environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    ended = {}
    for name in ("lives", "dies"):
        ended[name] = subprocess.run(
            [*command, str(tmp_path / name)],
            env=environment,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert ended[name].returncode == 0, ended[name].stderr[-3000:]
    assert "checkpoint-3." in ended["dies"].stderr.partition("Resuming from")[2]
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ended]
    assert files[0] == files[1]
