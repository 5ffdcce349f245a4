"""Check the outputs of a command before it starts.

A file or a folder that exists is replaced only on request. An input of the command, and what a run
or a model consists of, is never replaced.
"""

from collections.abc import Sequence
from pathlib import Path

from ..errors import RequestError
from .atomic import MARKER, cannot_be_replaced, check_folder
from .reading import read_json
from .run_files import ATTENTION, CHECKPOINTS, CURVES, HISTORY, HYPOTHESES, METRICS, RECIPE, SAMPLES
from .saved_model import CONFIG, MODEL

_NAMES = (
    *(*MODEL, "*.safetensors", RECIPE, METRICS, SAMPLES, CURVES, ATTENTION, HISTORY),
    *(HYPOTHESES.format("*"), CHECKPOINTS),
)


def check_outputs(
    files: Sequence[Path], folders: Sequence[Path], *, inputs: Sequence[Path], overwrite: bool
) -> None:
    """Refuse outputs that cannot be written, or that would overwrite something needed.

    Args:
        files: Files to write. A device or a pipe is never refused.
        folders: Folders to write with `folder_written_aside`.
        inputs: Files and folders that the command reads. One that is missing counts for nothing.
        overwrite: Whether to replace files that exist, and folders that commands wrote.

    Raises:
        ValueError: An output may not be written; the message says why.
    """
    read = [path.resolve() for path in inputs if path.exists()]
    written = [path.resolve() for path in (*files, *folders)]
    for output in (*files, *folders):
        is_file, target = output in files, output.resolve()
        if is_file and (output.is_dir() or not output.parent.is_dir()):
            raise RequestError(f"{output} cannot be written; name a file in an existing folder.")
        if is_file and output.suffix in (".gz", ".bz2", ".xz"):
            raise RequestError(f"{output} would not be packed; leave {output.suffix} out.")
        if is_file and cannot_be_replaced(output):
            continue
        if sum(path.is_relative_to(target) for path in written) > 1:
            raise RequestError(f"{output} is given twice; give each output a path of its own.")
        taken = is_file and any(target.is_relative_to(path) for path in read if _holds_pairs(path))
        if taken or _is_needed(target) or any(path.is_relative_to(target) for path in read):
            raise RequestError(
                f"{output} is an input, or a file of a run or a model, which the output would "
                "replace; give another name."
            )
        if not is_file:
            check_folder(output)
        if (output if is_file else output / MARKER).exists() and not overwrite:
            raise RequestError(f"{output} exists; give --overwrite to replace it, or another name.")


def _is_needed(target: Path) -> bool:
    """Return True if a path is a file of a run or a model, or would be read as one."""
    above = [folder.parent for folder in target.parents if folder.name == CHECKPOINTS]
    if any((folder / RECIPE).is_file() for folder in above):
        return True
    if (target / MARKER).is_file() and any(target.rglob(RECIPE)):  # a run inside a written folder
        return True
    is_run = (target.parent / RECIPE).is_file()
    # A model that was trained elsewhere gets its metrics from `evaluate`.
    if target.name == METRICS and not is_run:
        return target.is_file() and "recipe" in read_json(target)
    is_model = (target.parent / CONFIG).is_file()
    return (is_run or is_model) and any(target.match(name) for name in _NAMES)


def _holds_pairs(path: Path) -> bool:
    """Return True if an input is a folder of files with pairs."""
    return path.is_dir() and not any((path / name).is_file() for name in (RECIPE, CONFIG))
