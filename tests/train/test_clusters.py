"""Launchers of training/accelerate: two turns of a stand-in for SLURM, two workers of Ray Train."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from browser import free_port
from tiny_runs import tiny_recipe

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LAUNCHERS = ROOT / "training" / "accelerate"
# Two processes on this machine, instead of on those of the job. The code is the highest of theirs.
SRUN = """#!/bin/bash
shift 2
for rank in 0 1; do SLURM_PROCID=$rank SLURM_LOCALID=$rank SLURM_NTASKS=2 "$@" & done
code=0
for process in $(jobs -p); do
    ended=0; wait "$process" || ended=$?
    if [ "$ended" -gt "$code" ]; then code=$ended; fi
done
exit "$code"
"""
SCONTROL = """#!/bin/bash
if [ "$1" = show ]; then echo 127.0.0.1; else echo "$@" >> requeued; fi
"""
UPDATES = {"gradient_accumulation": 2, "max_steps": 100, "trainer": {"save_steps": 20}}


@pytest.fixture
def start(tmp_path):
    """Start commands in a folder that stands for the clone, with one log; end them at last."""
    (tmp_path / "training").symlink_to(ROOT / "training")
    log, running = open(tmp_path / "log", "a"), []  # noqa: SIM115, open until the test ends

    def started(*command, **variables):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **variables}
        words = [str(word) for word in command]
        running.append(
            subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=log, stderr=log)
        )
        return running[-1]

    yield started
    for process in running:
        process.kill()
    log.close()


def first_checkpoint(process, run):
    """Wait until a run has its first whole checkpoint, or its process has ended."""
    sealed = run / "checkpoints" / "checkpoint-20" / "manifest.json"
    while process.poll() is None and not sealed.exists():
        time.sleep(0.02)


def result(run):
    """Return the weights of a run, and the number of its processes."""
    metrics = json.loads((run / "metrics.json").read_text())
    return (run / "model.safetensors").read_bytes(), metrics["devices"]


def test_slurm_job_whose_time_is_up_is_requeued_and_resumes(tmp_path, start):
    tiny_recipe(tmp_path, **UPDATES)
    (tmp_path / "bin").mkdir()
    for name, script in {"srun": SRUN, "scontrol": SCONTROL}.items():
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)

    def turn(run):
        return start(
            *("bash", LAUNCHERS / "train.sbatch", "tiny.yaml", "--output-dir", run),
            PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            PYTHON=sys.executable,
            SLURM_CPUS_PER_TASK="1",
            SLURM_JOB_ID="1017",
            SLURM_JOB_NODELIST="node[1-2]",
        )

    first = turn("stopped")
    first_checkpoint(first, tmp_path / "stopped")
    first.send_signal(signal.SIGTERM)  # to the script alone, as B:TERM says
    assert first.wait(timeout=600) == 143, (tmp_path / "log").read_text()[-3000:]
    assert (tmp_path / "requeued").read_text() == "requeue 1017\n"
    assert not (tmp_path / "stopped" / "metrics.json").exists()
    assert turn("stopped").wait(timeout=600) == 0
    assert "Resuming from" in (tmp_path / "log").read_text()
    assert turn("whole").wait(timeout=600) == 0
    assert (tmp_path / "requeued").read_text() == "requeue 1017\n"
    assert result(tmp_path / "stopped") == result(tmp_path / "whole")
    assert result(tmp_path / "whole")[1] == 2


def test_ray_workers_train_the_model_of_one_process_though_one_is_killed(tmp_path, start):
    """Without dropout, whose masks each process draws for itself."""
    pytest.importorskip("ray.train", reason="the page says how to install it")
    recipe = tiny_recipe(tmp_path, dropout=0.0, **UPDATES)
    program = [sys.executable, "training/train.py", recipe, "--output-dir"]
    assert start(*program, "one").wait(timeout=600) == 0
    address = f"127.0.0.1:{free_port()}"
    ray = {"RAY_ADDRESS": address, "HOME": str(tmp_path), "RAY_AUTH_MODE": "disabled"}
    cluster = start(
        *(Path(sys.executable).with_name("ray"), "start", "--head", "--block", "--num-cpus", 2),
        *("--node-ip-address", "127.0.0.1", "--port", address.rpartition(":")[2]),
        *("--include-dashboard", "false", "--disable-usage-stats"),
        **ray,
    )
    try:
        driver = start(
            *(sys.executable, "training/accelerate/on_ray.py", 2, recipe, "--output-dir", "two"),
            **ray,
        )
        first_checkpoint(driver, tmp_path / "two")
        workers = [
            process
            for process in psutil.Process(cluster.pid).children(recursive=True)
            if "TrainWorker" in " ".join(process.cmdline())
        ]
        assert len(workers) == 2, (tmp_path / "log").read_text()[-3000:]
        workers[1].kill()
        assert driver.wait(timeout=600) == 0, (tmp_path / "log").read_text()[-3000:]
    finally:
        cluster.terminate()  # and with it all its processes
        cluster.wait(timeout=60)
    assert "Resuming from" in (tmp_path / "log").read_text()
    assert result(tmp_path / "one")[1] == 1
    assert result(tmp_path / "two") == (result(tmp_path / "one")[0], 2)
