"""The option `--overwrite`, and the check of a command's outputs before any work."""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path


def add_overwrite(
    command: argparse.ArgumentParser,
    *,
    reads: Sequence[str],
    files: Sequence[str] = (),
    folders: Sequence[str] = (),
) -> None:
    """Add `--overwrite` to a command, and say which of its options are paths.

    Args:
        command: parser of the command.
        reads: options with paths that the command reads.
        files: options with files that it writes.
        folders: options with folders that it writes.
    """
    text = "replace an output file that exists, or all of a folder that a command wrote"
    command.add_argument("--overwrite", action="store_true", help=text)
    command.set_defaults(reads=reads, files=files, folders=folders)


def check_outputs_of(options: argparse.Namespace) -> None:
    """Refuse outputs of a command that may not be written, before any work."""
    if not hasattr(options, "overwrite"):
        return
    files, folders = _values(options, options.files), _values(options, options.folders)
    if not (files or folders):
        return
    from ..recipes.data import named_files
    from ..recipes.options import FILES, listed
    from ..storage.outputs import check_outputs
    from ..storage.run_files import recipe_values

    read = [*_values(options, options.reads), "/dev/stdin"]  # which may be a redirected file
    recipes = [recipe_values(Path(name)) for name in read]
    names = (*FILES, "dataset")
    read += [file for recipe in recipes for name in names for file in listed(recipe.get(name))]
    check_outputs(
        [Path(name) for name in files],
        [Path(name) for name in folders],
        inputs=[path for name in read for path in named_files(str(name))],
        overwrite=options.overwrite,
    )


def _values(options: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Return the texts that options have as values; an option may have a list of them."""
    values = [getattr(options, name) for name in names]
    lists = [value if isinstance(value, list) else [value] for value in values]
    return [value for found in lists for value in found if isinstance(value, str)]
