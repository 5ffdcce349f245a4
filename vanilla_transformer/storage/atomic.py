"""Files and folders that appear whole or not at all.

What is written goes into a new temporary folder beside its target, so that no file of a user has
the same name, and is moved into place once it is whole. A process that is killed leaves the old
file, and perhaps a folder `.vanilla-transformer-partial-...`, which may be deleted.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import RequestError

PARTIAL = ".vanilla-transformer-partial-"  # begins the names of temporary folders
_SEVERAL = f"{PARTIAL}files-"  # of those for several files of one folder
_DEVICES = (Path("/dev"), Path("/proc"))


@contextmanager
def file_written_aside(path: Path) -> Iterator[Path]:
    """Replace a file by what the block writes to the path that it gets; after an error, keep it.

    A link stays, and the file that it points to is replaced. A device or a pipe cannot be replaced:
    the block then writes to it directly.

    Args:
        path: target, in a folder that exists.
    """
    # Redirected to a file, /dev/stdout looks like one.
    is_device = any(folder in path.absolute().parents for folder in _DEVICES)
    if is_device or (path.exists() and not path.is_file()):
        yield path
        return
    target = path.resolve()
    with _folder_inside(target.parent, name=path) as aside:
        yield aside / target.name
        (aside / target.name).replace(target)


def write_aside(path: Path, write: Callable[[Path], object]) -> None:
    """Replace a file by what a function writes to the path that it gets."""
    with file_written_aside(path) as aside:
        write(aside)


def write_text(path: Path, text: str) -> None:
    """Replace a file by UTF-8 text."""
    write_aside(path, lambda aside: aside.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: dict[str, object], *, sort_keys: bool = False) -> None:
    """Replace a file by JSON that people can read."""
    text = json.dumps(content, indent=2, ensure_ascii=False, sort_keys=sort_keys)
    write_text(path, text + "\n")


def check_new_folder(output: Path) -> None:
    """Refuse a folder that is taken, before any work.

    Raises:
        ValueError: `output` exists and is not an empty directory.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise RequestError(f"{output} exists and is not an empty directory; name another one.")


@contextmanager
def folder_written_aside(output: Path) -> Iterator[Path]:
    """Create a folder from what the block writes to the path that it gets; after an error, do not.

    Parent folders are created, and removed again after an error.

    Args:
        output: passes `check_new_folder`.
    """
    output = output.absolute()
    created = [folder for folder in output.parents if not folder.exists()]
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _folder_inside(output.parent, name=output) as aside:
            yield aside / output.name
            _let_others_read_weights(aside / output.name)
            (aside / output.name).replace(output)
    finally:
        for folder in created:
            with suppress(OSError):  # it holds the output
                folder.rmdir()


@contextmanager
def files_written_aside(folder: Path, *, last: str) -> Iterator[Path]:
    """Replace some files of a folder by those that the block writes to the folder that it gets.

    Args:
        folder: exists, and no other process writes to it; its other files stay.
        last: name of the file that is moved last, so that whoever waits for it finds the others.
    """
    for abandoned in folder.glob(f"{_SEVERAL}*"):  # by a process that was killed
        shutil.rmtree(abandoned, ignore_errors=True)
    with _folder_inside(folder, name=folder, prefix=_SEVERAL) as aside:
        yield aside
        _let_others_read_weights(aside)
        for path in aside.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        for path in sorted(aside.iterdir(), key=lambda path: path.name == last):
            path.replace(folder / path.name)


@contextmanager
def _folder_inside(parent: Path, *, name: Path, prefix: str = PARTIAL) -> Iterator[Path]:
    """A temporary folder, on the same file system as its parent so that files can be moved."""
    try:
        aside = Path(tempfile.mkdtemp(dir=parent, prefix=prefix))
    except OSError as error:  # say which file cannot be written, not which temporary folder
        raise type(error)(error.errno, error.strerror, str(name)) from error
    try:
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _let_others_read_weights(folder: Path) -> None:
    """Give weights the permissions of config.json: safetensors lets only their owner read them."""
    if not (folder / "config.json").is_file():
        return
    for weights in folder.glob("*.safetensors"):
        shutil.copymode(folder / "config.json", weights)
