"""Several processes: the updates of one, resumption by any number, signals that cost nothing."""

import logging
import math
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from test_trainer import VOCAB, At, assert_equal, copy_task, make_trainer, tiny_model, weights
from transformers import TrainerCallback

from vanilla_transformer.data.dataset import PairCollator
from vanilla_transformer.train import trainer as trainer_module
from vanilla_transformer.train.checkpoints import Progress
from vanilla_transformer.train.trainer import TrainingInterrupted

UPDATES = 8  # of 8 batches each, but the last of an epoch, which has what is left of 13


class KeepGradient(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.gradient = torch.cat([p.grad.flatten() for p in model.parameters()])


def one_update(directory, *, processes):
    """Loss and gradient of an epoch of eight batches, all of them in one update."""
    keep = KeepGradient()
    trainer = make_trainer(
        directory,
        model=tiny_model(dropout=0.0),
        train=copy_task(112),
        callbacks=[keep],
        gradient_accumulation_steps=8 // processes,
        max_steps=1,
        save_strategy="no",
        logging_steps=1,
    )
    trainer.progress.matmul_precision = "highest"
    trainer.train()
    assert len(trainer.train_sampler) == 8
    return trainer.state.log_history[0]["loss"], keep.gradient


class Watch(TrainerCallback):
    """Notes of each update its pairs, in the order of their batches, and its gradient."""

    def __init__(self, collate):
        self.collate, self.batches, self.updates = collate, [], []

    def __call__(self, features):
        self.batches.append([tuple(feature["input_ids"]) for feature in features])
        return self.collate(features)

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
        self.updates.append((len(self.batches), gradient))


def several_updates(directory, *, processes, last=UPDATES, resume=None):
    """Losses, rates, gradients and weights of some updates, and the pairs of each batch."""
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
    trainer.progress.matmul_precision = "highest"
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
    """That each process has seen what one alone sees."""
    for name in ("rates", "tokens"):
        assert several[name] == one[name]
    assert several["losses"] == pytest.approx(one["losses"], rel=1e-6)
    assert len(several["gradients"]) == len(one["gradients"])
    for found, expected in zip(several["gradients"], one["gradients"], strict=True):
        assert (found - expected).abs().max() <= 1e-6 * expected.abs().max()
    for name, expected in one["weights"].items():
        assert (several["weights"][name] - expected).abs().max() <= 1e-6, name


def assert_dealt(ranks, one):
    """That each epoch of one process was dealt batch by batch; what is repeated ends a rank's."""
    epoch, share = 13, math.ceil(13 / len(ranks))
    for rank, found in enumerate(ranks):
        for start in range(0, len(one["batches"]) - epoch + 1, epoch):
            dealt = one["batches"][start : start + epoch][rank :: len(ranks)]
            first = start // epoch * share
            assert found["batches"][first : first + len(dealt)] == dealt


def random_numbers(directory):
    """What dropout would draw in the first update, and in the first after a resumption."""
    drawn = []
    look = At(1, lambda: drawn.append(torch.rand(4)))
    make_trainer(directory, callbacks=[look], max_steps=1, save_steps=1).train()
    return drawn


def interrupted_and_resumed(directory):
    """12 updates at once, and again with SIGTERM to the second process at the seventh."""

    def stop():
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGTERM)

    whole = make_trainer(directory / "whole")
    whole.train()
    first = make_trainer(directory / "run", callbacks=[At(7, stop)])
    with pytest.raises(TrainingInterrupted) as caught:
        first.train()
    updates = math.ceil(len(first.train_sampler) / 2 / 2)
    assert caught.value.checkpoint.name == "checkpoint-7"  # not an older one
    assert 7 % updates > 0  # in mid-epoch
    second = make_trainer(directory / "run")
    torch.manual_seed(99)  # what the new process did before must not matter
    second.train(resume_from_checkpoint=True)
    assert_equal(weights(second), weights(whole))


def every_rank_knows_the_bleu(directory):
    """Only the first one translates; the best checkpoint has to be the same on all."""
    trainer = make_trainer(directory / "bleu")
    trainer.validation_pairs = [("a", "b")]
    trainer._greedy_bleu = lambda: 12.5 if os.environ["RANK"] == "0" else pytest.fail("translated")
    assert trainer.evaluate()["eval_bleu"] == 12.5


def work(directory):
    """What each of the two processes does; an error ends it with another code than 0."""
    complaints, seal = [], trainer_module.seal
    handler = logging.Handler()
    handler.emit = lambda record: complaints.append(record.getMessage())
    logging.getLogger("vanilla_transformer.train.checkpoints").addHandler(handler)

    def slow_seal(checkpoint):
        time.sleep(0.2)
        seal(checkpoint)

    trainer_module.seal = slow_seal
    rank = os.environ["RANK"]
    torch.save(one_update(directory, processes=2), directory / f"{rank}.pt")
    torch.save(several_updates(directory / "all", processes=2), directory / f"all-{rank}.pt")
    begun = several_updates(directory / "one", processes=2, resume=True)
    torch.save(begun, directory / f"begun-by-one-{rank}.pt")
    torch.save(random_numbers(directory / "random"), directory / f"random-{rank}.pt")
    interrupted_and_resumed(directory)
    every_rank_knows_the_bleu(directory)
    assert not complaints  # of checkpoints that the first process was about to finish


def launch(directory, processes, function):
    """Start gloo processes that call a function of this file with the directory, and await them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = (
        f"import pathlib, sys; sys.path[:0] = {[str(Path(__file__).parent)]}\n"
        f"from test_two_processes import {function}\n"
        f"{function}(pathlib.Path(sys.argv[1]))\n"
    )
    started = []
    for rank in map(str, range(processes)):
        environment = {
            **os.environ,
            **{"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": str(processes)},
            **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"},
        }
        command = [sys.executable, "-c", code, str(directory)]
        started.append(subprocess.Popen(command, env=environment, cwd=Path(__file__).parents[1]))
    try:
        assert {process.wait(timeout=60 * processes) for process in started} == {0}
    finally:
        for process in started:
            process.kill()


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """What one process alone sees."""
    return several_updates(tmp_path_factory.mktemp("one"), processes=1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The directory in which two gloo processes have done their work."""
    directory = tmp_path_factory.mktemp("two")
    several_updates(directory / "one", processes=1, last=3)  # in mid-epoch
    launch(directory, 2, "work")
    return directory


def test_two_processes_give_the_loss_and_gradient_of_one(finished, tmp_path):
    expected_loss, expected = one_update(tmp_path, processes=1)
    for rank in range(2):
        loss, gradient = torch.load(finished / f"{rank}.pt")
        assert loss == pytest.approx(expected_loss, rel=1e-6)
        assert (gradient - expected).abs().max() <= 1e-6 * expected.abs().max()


def test_two_processes_train_as_one_where_the_batches_cannot_be_dealt_evenly(finished, one):
    ranks = [torch.load(finished / f"all-{rank}.pt") for rank in range(2)]
    assert_dealt(ranks, one)
    for found in ranks:
        assert_same_updates(found, one)


def test_two_processes_go_on_where_one_stopped(finished, one):
    for rank in range(2):
        found = torch.load(finished / f"begun-by-one-{rank}.pt")
        assert_same_updates(found, {**one, "gradients": one["gradients"][3:]})


def test_one_process_goes_on_where_two_stopped(finished, one):
    resumed = several_updates(
        finished / "all", processes=1, resume=str(finished / "all" / "checkpoint-3")
    )
    assert_same_updates(resumed, {**one, "gradients": one["gradients"][3:]})
    assert resumed["batches"] == one["batches"][8 + 5 + 8 :]
    assert Progress.load(finished / "all" / "checkpoint-8").world_size == 1


def test_each_process_draws_its_own_random_numbers(finished):
    (first,), (second,) = (torch.load(finished / f"random-{rank}.pt") for rank in range(2))
    assert not torch.equal(first, second)


def test_random_numbers_after_a_resumption_by_another_number_are_new_and_settled(finished):
    drawn = []
    for before in (1, 2):
        torch.manual_seed(before)  # must not matter
        look = At(2, lambda: drawn.append(torch.rand(4)))
        settings = {"max_steps": 2, "gradient_accumulation_steps": 4, "save_strategy": "no"}
        trainer = make_trainer(finished / "random", callbacks=[look], **settings)
        trainer.train(resume_from_checkpoint=str(finished / "random" / "checkpoint-1"))
    assert torch.equal(*drawn)


def test_signal_to_one_of_two_processes_costs_nothing(finished):
    assert (finished / "run" / "checkpoint-12" / "manifest.json").is_file()


def updates_of_many(directory):
    """What each of more processes does."""
    processes, rank = int(os.environ["WORLD_SIZE"]), os.environ["RANK"]
    found = several_updates(directory / "all", processes=processes)
    torch.save(found, directory / f"all-{rank}.pt")


@pytest.mark.slow
@pytest.mark.parametrize("processes", [4, 8])
def test_many_processes_train_as_one(tmp_path, one, processes):
    launch(tmp_path, processes, "updates_of_many")
    ranks = [torch.load(tmp_path / f"all-{rank}.pt") for rank in range(processes)]
    assert_dealt(ranks, one)
    for found in ranks:
        assert_same_updates(found, one)
