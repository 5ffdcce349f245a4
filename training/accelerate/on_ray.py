"""Train with Ray Train: python training/accelerate/on_ray.py WORKERS RECIPE [overrides].

The same as `vanilla-transformer train` in each worker, on GPUs if the cluster has any. If a worker
dies, Ray starts all of them again, and the run continues from its last whole checkpoint.
"""

import os
import sys

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from vanilla_transformer.cli import main


def train(config: dict) -> None:
    """Train in one worker. Ray has connected the workers already, and changed the directory."""
    os.chdir(config["directory"])
    if code := main(["train", *config["words"]]):
        raise RuntimeError(f"The training ended with exit code {code}.")


if __name__ == "__main__":
    workers, *words = sys.argv[1:]
    ray.init()
    TorchTrainer(
        train,
        train_loop_config={"words": words, "directory": os.getcwd()},
        scaling_config=ScalingConfig(
            num_workers=int(workers), use_gpu="GPU" in ray.cluster_resources()
        ),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=3)),
    ).fit()
