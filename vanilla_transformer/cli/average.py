"""`vanilla-transformer average`: average several checkpoints into one model."""

import argparse
from collections.abc import Callable
from pathlib import Path

from ..errors import RequestError
from .shared_options import add_overwrite, count


def add_average(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command `average` with its options."""
    command = add_command("average", _average)
    text = "checkpoint directories, oldest first; with --last one run directory"
    command.add_argument("checkpoints", metavar="CHECKPOINT", nargs="+", help=text)
    text = "average the last N checkpoints of a run, or of a stock Trainer's output directory"
    command.add_argument("--last", type=count, metavar="N", help=text)
    text = "new directory for the model"
    command.add_argument("--output", metavar="DIR", required=True, help=text)
    add_overwrite(command, reads=("checkpoints",), folders=("output",))


def _average(options: argparse.Namespace) -> int:
    """Make one model from the mean of several checkpoints (Section 6.1).

    Example:
      vanilla-transformer average runs/demo-en-de --last 5 --output runs/demo-mean-of-5
      vanilla-transformer average out/checkpoint-8000 out/checkpoint-9000 --output out/mean

    Checkpoints of a stock Trainer work too. The tokenizer and the configuration come from the last
    checkpoint, the number of beams and the length penalty from its run.
    """
    from ..storage.atomic import folder_written_aside
    from ..storage.run_files import warn_of_changed_model
    from ..train.averaging import average_checkpoints
    from ..train.checkpoints import last_checkpoints

    names = [Path(name) for name in options.checkpoints]
    if (options.last is None) == (len(names) == 1):
        raise RequestError("Give one run directory with --last N, or name several checkpoints.")
    if options.last is not None:
        names = last_checkpoints(names[0], options.last)
    for folder in (names[-1].resolve().parents[1], *names):  # a run, and its checkpoints
        warn_of_changed_model(folder)
    with folder_written_aside(Path(options.output)) as aside:
        average_checkpoints(names, aside)
    return 0
