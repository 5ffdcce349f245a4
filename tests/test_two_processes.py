"""Two processes: the update of one, and runs that survive a signal."""

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
from test_trainer import At, assert_equal, copy_task, make_trainer, tiny_model, weights
from transformers import TrainerCallback

from vanilla_transformer.train import trainer as trainer_module
from vanilla_transformer.train.trainer import TrainingInterrupted


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
    torch.save(one_update(directory, processes=2), directory / f"{os.environ['RANK']}.pt")
    interrupted_and_resumed(directory)
    every_rank_knows_the_bleu(directory)
    assert not complaints  # of checkpoints that the first process was about to finish


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The directory in which two gloo processes have done their work."""
    directory = tmp_path_factory.mktemp("two")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = (
        f"import pathlib, sys; sys.path[:0] = {[str(Path(__file__).parent)]}\n"
        "from test_two_processes import work\n"
        "work(pathlib.Path(sys.argv[1]))\n"
    )
    processes = []
    for rank in ("0", "1"):
        environment = {
            **os.environ,
            **{"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2"},
            **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"},
        }
        command = [sys.executable, "-c", code, str(directory)]
        processes.append(subprocess.Popen(command, env=environment, cwd=Path(__file__).parents[1]))
    try:
        assert [process.wait(timeout=120) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    return directory


def test_two_processes_give_the_loss_and_gradient_of_one(finished, tmp_path):
    expected_loss, expected = one_update(tmp_path, processes=1)
    for rank in range(2):
        loss, gradient = torch.load(finished / f"{rank}.pt")
        assert loss == pytest.approx(expected_loss, rel=1e-6)
        assert (gradient - expected).abs().max() <= 1e-6 * expected.abs().max()


def test_signal_to_one_of_two_processes_costs_nothing(finished):
    assert (finished / "run" / "checkpoint-12" / "manifest.json").is_file()


def test_one_process_does_not_go_on_where_two_stopped(finished):
    with pytest.raises(ValueError, match=r"got 1 process\(es\); .* trained by 2\. Start 2, or"):
        make_trainer(finished / "run").train(resume_from_checkpoint=True)
