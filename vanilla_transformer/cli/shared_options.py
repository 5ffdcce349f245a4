"""Options shared by several commands, and checks of output paths before any work."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..recipes.data import named_files
from ..recipes.options import TEST_OPTIONS, listed
from ..storage.metrics import MEASURES
from ..storage.shipped import local_model

Names = Sequence[str]  # names of options


def count(text: str) -> int:
    """Parse a positive integer; argparse adds the option's name to a ValueError."""
    if int(text) < 1:
        raise ValueError
    return int(text)


def add_test_options(command: argparse.ArgumentParser) -> None:
    """Add the options that choose the test pairs and how to translate them."""
    command.add_argument("--test-file", help="test pairs (default: those of the run's recipe)")
    add_pair_options(command)
    text = "merge test pairs with equal sources into one with several references"
    command.add_argument("--several-references", action="store_true", default=None, help=text)
    text = f"measures (default: the recipe's): {', '.join(MEASURES)}"
    command.add_argument("--metric", metavar="NAME,...", help=text)
    text = "refuse malformed lines of test pairs instead of skipping them"
    command.add_argument("--strict", action="store_true", default=None, help=text)
    command.add_argument("--num-beams", type=count, help="beams (default: the model's own)")
    text = "score the sources also in capitals, without capitals, without marks, with typos ..."
    command.add_argument("--robustness", action="store_true", help=text)
    text = "size of a batch: sentences x beams x tokens of the longest (default: 4096)"
    command.add_argument("--tokens-at-once", type=count, default=4096, help=text)


def add_pair_options(command: argparse.ArgumentParser) -> None:
    """Add the options for the languages and columns of source and target."""
    text = "languages or other names of the two sides (default: the recipe's, if any)"
    command.add_argument("--pair", metavar="S-T", help=text)
    for side in ("source", "target"):
        text = f"column of the {side} sentences in a table: name, or number from 1"
        command.add_argument(f"--{side}-column", metavar="COLUMN", help=text)


def load_for_translation(options: argparse.Namespace, folder: Path) -> tuple[Any, Any]:
    """Return a folder's model and tokenizer; on a CPU, beam search may use a shortlist."""
    from ..fast.shortlist import use_shortlist
    from ..storage.saved_model import load_saved_model, load_saved_tokenizer

    model, tokenizer = load_saved_model(folder, device="auto"), load_saved_tokenizer(folder)
    if model.device.type == "cpu" and not options.no_shortlist:
        use_shortlist(model, folder)
    return model, tokenizer


def test_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the options of `add_test_options`, by their names in a recipe."""
    return {name: getattr(options, name) for name in (*TEST_OPTIONS, "tokens_at_once")}


def add_overwrite(
    command: argparse.ArgumentParser, *, reads: Names, files: Names = (), folders: Names = ()
) -> None:
    """Add `--overwrite` to a command, and record which of its options are paths.

    Args:
        command: Parser of the command.
        reads: Options with paths that the command reads.
        files: Options with files that it writes.
        folders: Options with folders that it writes.
    """
    text = "replace a file that exists, or all of a folder that a command wrote"
    command.add_argument("--overwrite", action="store_true", help=text)
    command.set_defaults(reads=reads, files=files, folders=folders)


@contextmanager
def outputs_held(options: argparse.Namespace) -> Iterator[None]:
    """Check that a command may write its outputs, and lock them until the block ends."""
    names = (getattr(options, "files", ()), getattr(options, "folders", ()))
    files, folders = ([Path(name) for name in _values(options, kind)] for kind in names)
    if not (files or folders):
        yield
        return
    from ..storage.atomic import check_outputs, held_outputs

    read = [*_values(options, options.reads), "/dev/stdin"]  # stdin may be a redirected file
    inputs = [path for name in read for path in named_files(str(name))]
    check_outputs(files, folders, inputs=inputs, overwrite=options.overwrite)
    with held_outputs([*files, *folders]):
        yield


def check_models_of(options: argparse.Namespace) -> None:
    """Refuse invalid model names before the libraries are loaded, which takes seconds."""
    for name in ("directory", "directories", "run_directory", "init_from"):
        for value in listed(getattr(options, name, None)):
            local_model(value)


def _values(options: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Return the values of the named options as one list; an option may have several."""
    values = [value for name in names for value in listed(getattr(options, name))]
    return [value for value in values if isinstance(value, str)]
