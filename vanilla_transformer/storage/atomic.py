"""Atomic writes: files and folders appear complete or not at all.

Output goes into a new temporary folder next to its target, so that it cannot overwrite a file of
the user, and is moved into place once it is complete and on the disk. A killed process leaves the
old file, and perhaps a folder `.vanilla-transformer-partial-...`, which may be deleted.
"""

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from ..errors import RequestError

PARTIAL = ".vanilla-transformer-partial-"  # prefix of temporary folders
_SEVERAL = f"{PARTIAL}files-"  # prefix of those for several files of one folder
_DEVICES = (Path("/dev"), Path("/proc"))
# Errors of a disk that cannot be written to.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


@contextmanager
def writing(path: Path, *, only_saves: bool = False) -> Iterator[None]:
    """Turn a failed write to the disk into a one-line error; other errors pass unchanged.

    Args:
        path: file that the block writes, or folder if it writes several.
        only_saves: whether the block does nothing else, so that a RuntimeError is a failed write of
            torch, which does not say why.

    Raises:
        ValueError: the disk is full, read-only or broken, or it limits the size of files.
    """
    try:
        yield
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else None
        # safetensors and tokenizers, which raises nothing more specific, give no number either.
        by_library = isinstance(error, SafetensorError) or type(error) is Exception
        if not by_library and not (only_saves and isinstance(error, RuntimeError)):
            named = Path(getattr(error, "filename", None) or path)
            inside = named.resolve().is_relative_to(path.resolve().parent)  # else a read failed
            if number not in _DISK or not inside:
                raise
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise RequestError(
            f"{path} could not be written: {reason}; make room there, or see `ulimit -f`, and run "
            "the same command again."
        ) from error


def sync(*paths: Path) -> None:
    """Flush files, and the entries of folders, to the disk, so that they survive a power cut."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # the file system cannot sync
                raise
        finally:
            os.close(descriptor)


def move_into_place(aside: Path, target: Path) -> None:
    """Flush a complete file or folder to the disk and rename it to its target."""
    sync(*aside.rglob("*"), aside)
    aside.replace(target)
    sync(target.parent)


@contextmanager
def file_written_aside(path: Path) -> Iterator[Path]:
    """Replace a file with what the block writes to the yielded path; an error keeps the old one.

    A link stays, and the file that it points to is replaced. A device or a pipe cannot be replaced:
    the block then writes to it directly.

    Args:
        path: file to replace, in an existing folder.
    """
    # Redirected to a file, /dev/stdout looks like one.
    is_device = any(folder in path.absolute().parents for folder in _DEVICES)
    if is_device or (path.exists() and not path.is_file()):
        with writing(path):
            yield path
        return
    target = path.resolve()
    with writing(path), _folder_inside(target.parent, name=path) as aside:
        yield aside / target.name
        move_into_place(aside / target.name, target)


def write_aside(path: Path, write: Callable[[Path], object]) -> None:
    """Replace a file with what a function writes to the path that it gets."""
    with file_written_aside(path) as aside:
        write(aside)


def write_text(path: Path, text: str) -> None:
    """Replace a file with UTF-8 text."""
    write_aside(path, lambda aside: aside.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: Mapping[str, object], *, sort_keys: bool = False) -> None:
    """Replace a file with readable JSON."""
    text = json.dumps(content, indent=2, ensure_ascii=False, sort_keys=sort_keys)
    write_text(path, text + "\n")


def check_new_folder(output: Path) -> None:
    """Refuse an output folder that exists and is not empty, before any work.

    Raises:
        ValueError: `output` exists and is not an empty directory.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise RequestError(f"{output} exists and is not an empty directory; name another one.")


@contextmanager
def folder_written_aside(output: Path) -> Iterator[Path]:
    """Create a folder with what the block writes to the yielded path; an error creates nothing.

    The block creates the folder at that path, for example by `save_pretrained`.
    Parent folders are created, and removed again after an error. An empty folder stays, since it
    may be a mount point, a link, or the current directory of a shell; it gets the files at the end.

    Args:
        output: new or empty folder, as `check_new_folder` demands.
    """
    output = output.resolve()
    created = [folder for folder in output.parents if not folder.exists()]
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        parent = output if output.is_dir() else output.parent
        with writing(output), _folder_inside(parent, name=output) as aside:
            whole = aside / output.name
            yield whole
            let_others_read_weights(whole)
            if parent == output:
                _move_files_into_place(whole, output)
            else:
                move_into_place(whole, output)
    finally:
        for folder in created:
            with suppress(OSError):  # it holds the output
                folder.rmdir()


@contextmanager
def files_written_aside(folder: Path, *, last: str) -> Iterator[Path]:
    """Replace files of a folder with those that the block writes to the yielded folder.

    Args:
        folder: existing folder that no other process writes to. Its other files stay.
        last: name of the file that is moved last: a process that waits for it finds the others.
    """
    for abandoned in folder.glob(f"{_SEVERAL}*"):  # left by a killed process
        shutil.rmtree(abandoned, ignore_errors=True)
    with writing(folder / last), _folder_inside(folder, name=folder, prefix=_SEVERAL) as aside:
        yield aside
        let_others_read_weights(aside)
        _move_files_into_place(aside, folder, last=last)


def _move_files_into_place(aside: Path, folder: Path, *, last: str | None = None) -> None:
    """Flush the files of a folder to the disk and rename them to those of another one."""
    sync(*aside.rglob("*"))
    for path in sorted(aside.iterdir(), key=lambda path: path.name == last):
        path.replace(folder / path.name)
    sync(folder)


@contextmanager
def _folder_inside(parent: Path, *, name: Path, prefix: str = PARTIAL) -> Iterator[Path]:
    """Create a temporary folder in `parent`, so that moves stay on one file system."""
    try:
        aside = Path(tempfile.mkdtemp(dir=parent, prefix=prefix))
    except OSError as error:  # say which file cannot be written, not which temporary folder
        raise type(error)(error.errno, error.strerror, str(name)) from error
    try:
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def let_others_read_weights(folder: Path) -> None:
    """Give weights the permissions of config.json: safetensors lets only their owner read them."""
    if not (folder / "config.json").is_file():
        return
    for weights in folder.glob("*.safetensors"):
        shutil.copymode(folder / "config.json", weights)
