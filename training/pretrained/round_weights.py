"""Copy a trained model with 16-bit weights, as the models that come with the package have them.

    python training/pretrained/round_weights.py RUN OUT

The weights are bfloat16 on disk, and config.json still says float32: that is what the model
computes in, on any processor, and what a loaded model holds.
"""

import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from vanilla_transformer.storage.atomic import folder_written_aside
from vanilla_transformer.storage.saved_model import SETTINGS, WEIGHTS


def round_weights(run: Path, output: Path) -> None:
    """Copy a run's rounded model and its tokenizer, without the scores of the unrounded model."""
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(run / WEIGHTS).items()}
    with folder_written_aside(output) as aside:
        aside.mkdir()
        for name in SETTINGS:
            if (run / name).is_file():
                shutil.copyfile(run / name, aside / name)
        save_file(weights, aside / WEIGHTS, metadata={"format": "pt"})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, metavar="RUN", help="run directory")
    parser.add_argument("output", type=Path, metavar="OUT", help="new directory")
    options = parser.parse_args()
    round_weights(options.run, options.output)
