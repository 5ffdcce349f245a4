"""Check the outputs of a command before it starts.

A file or a folder that exists is replaced only on request, and an input of the command never.
"""

from collections.abc import Sequence
from pathlib import Path

from ..errors import RequestError
from .atomic import MARKER, cannot_be_replaced, check_folder


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
        if is_file and cannot_be_replaced(output):
            continue
        if sum(path.is_relative_to(target) for path in written) > 1:
            raise RequestError(f"{output} is given twice; give each output a path of its own.")
        if any(path.is_relative_to(target) for path in read):
            raise RequestError(
                f"{output} is an input, which the output would replace; give another name."
            )
        if not is_file:
            check_folder(output)
        if (output if is_file else output / MARKER).exists() and not overwrite:
            raise RequestError(f"{output} exists; give --overwrite to replace it, or another name.")
