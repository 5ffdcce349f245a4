"""Write the outputs of commands: check the paths first, then write atomically or not at all.

Output goes into a new temporary folder next to its target, so that it cannot overwrite a file of
the user, and is moved into place once it is complete and on the disk. A killed process leaves the
old file, and perhaps a folder `.vanilla-transformer-partial-...`, which the next write there
deletes. A written folder contains a marker file; other folders with files are never replaced.
"""

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ..errors import RequestError
from .reading import sha256

PARTIAL = ".vanilla-transformer-partial-"  # prefix of temporary folders
MARKER = ".vanilla-transformer-output"  # marker file in each folder that a command wrote
_MARK = "A command of vanilla-transformer wrote this folder; --overwrite replaces all of it."
_WRITING = ".vanilla-transformer-writing-"  # prefix of the lock beside an output
_LOCK = "lock"  # held by the process that writes into a temporary folder


def sync(*paths: Path) -> None:
    """Flush files and folder entries to the disk, so that they survive a power failure."""
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


def cannot_be_replaced(path: Path) -> bool:
    """Return True for a device, a pipe or a folder: a file cannot replace these."""
    # If /dev/stdout is redirected to a file, it looks like a file.
    folder = str(path.absolute().parent)  # unlike /dev, /dev/shm holds files
    is_device = folder in ("/dev", "/dev/fd") or folder.startswith("/proc/")
    return is_device or (path.exists() and not path.is_file())


@contextmanager
def file_written_aside(path: Path) -> Iterator[Path]:
    """Write to a temporary file and move it into place at the end; an error keeps the old file.

    A link stays, and the file that it points to is replaced. A device or a pipe cannot be replaced:
    the block then writes to it directly.

    Args:
        path: File to replace, in an existing folder.

    Raises:
        ValueError: There was no file at the beginning, and there is one at the end.
    """
    if cannot_be_replaced(path):
        yield path
        return
    target = path.resolve()
    is_new = not target.exists()
    with temporary_folder(target.parent) as aside:
        yield aside / target.name
        if is_new and target.exists():
            raise RequestError(f"{path} appeared meanwhile; give --overwrite, or move it away.")
        move_into_place(aside / target.name, target)


@contextmanager
def held_outputs(outputs: Sequence[Path]) -> Iterator[None]:
    """Lock outputs against other commands until the block ends.

    Raises:
        ValueError: Another command writes one of them.
    """
    what = "is being written by another command; wait for it, or name another output"
    with ExitStack() as stack:
        for path in outputs:
            target = path.resolve()
            if target.parent.is_dir() and (path.is_dir() or not cannot_be_replaced(path)):
                lock = target.with_name(f"{_WRITING}{target.name}")
                stack.enter_context(locked(lock, f"{path} {what}."))
        yield


@contextmanager
def locked(path: Path, message: str) -> Iterator[bool]:
    """Hold a lock until the block ends, and yield whether the file system has locks.

    The system releases the lock if its holder is killed.

    Args:
        path: Lock file, in an existing folder; it is deleted at the end.
        message: Message of the error if another process holds the lock.

    Raises:
        ValueError: Another process holds the lock.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise RequestError(message) from None
    except (OSError, NotImplementedError):  # no locks here, or too long a name: go on without
        pass
    try:
        yield lock.is_locked
    finally:
        if lock.is_locked:
            path.unlink(missing_ok=True)
        lock.release()


def write_aside(path: Path, write: Callable[[Path], object]) -> None:
    """Replace a file by calling a function that writes to a temporary path."""
    with file_written_aside(path) as aside:
        write(aside)


def write_text(path: Path, text: str) -> None:
    """Replace a file with UTF-8 text."""
    write_aside(path, lambda aside: aside.write_text(text, encoding="utf-8"))


@contextmanager
def parents_made(path: Path) -> Iterator[None]:
    """Create the parent folders of a path; at the end remove the ones that stayed empty."""
    created = [folder for folder in path.absolute().parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for folder in created:
            with suppress(OSError):  # not empty: it holds the output
                folder.rmdir()


def write_json(path: Path, content: Mapping[str, object], *, sort_keys: bool = False) -> None:
    """Replace a file with readable JSON."""
    text = json.dumps(content, indent=2, ensure_ascii=False, sort_keys=sort_keys)
    write_text(path, text + "\n")


def copy_files(source: Path, target: Path, pattern: str = "**/*") -> None:
    """Copy the files of a folder, except for those in folders such as __pycache__ or _space.

    Its errors have a number and a path, unlike those of shutil.copytree.
    """
    for path in sorted(source.glob(pattern)):
        name = path.relative_to(source)
        if path.is_file() and not any(part.startswith("_") for part in name.parts[:-1]):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / name)


def check_outputs(
    files: Sequence[Path], folders: Sequence[Path], *, inputs: Sequence[Path], overwrite: bool
) -> None:
    """Refuse outputs that cannot be written, or that would overwrite something needed.

    Args:
        files: Files to write. A device or a pipe is never refused.
        folders: Folders to write with `folder_written_aside`.
        inputs: Files and folders that the command reads; missing ones are ignored.
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
            raise RequestError(f"{output} is also an input; name another output.")
        if not is_file:
            check_folder(output)
        if (output if is_file else output / MARKER).exists() and not overwrite:
            raise RequestError(f"{output} exists; give --overwrite to replace it, or another name.")


def check_folder(output: Path) -> None:
    """Refuse an output folder that holds files, unless `folder_written_aside` wrote it.

    Args:
        output: Folder to write, which need not exist.

    Raises:
        ValueError: It is a file, or holds files that no command wrote.
    """
    held = [output] if output.is_file() else _content(output)
    if held and not (output / MARKER).is_file():
        names = ", ".join(sorted(path.name for path in held)[:3])
        raise RequestError(f"{output} must be new or empty, but has {names}; name another folder.")


def _content(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*") if not path.name.startswith(PARTIAL)]


@contextmanager
def folder_written_aside(output: Path) -> Iterator[Path]:
    """Write to a temporary folder and move it into place at the end; an error creates nothing.

    An output of an earlier call is replaced; commands check with `check_outputs` that it may be.

    The block creates a folder at the path that is yielded, for example by `save_pretrained`.
    Parent folders are created, and removed again after an error. A folder that exists stays, since
    it may be a mount point, a link, or the current directory of a shell; at the end its files are
    replaced, the largest last: without its weights no half-moved model loads.

    Args:
        output: Folder that passes `check_folder`.
    """
    check_folder(output)
    output = output.resolve()
    with parents_made(output):
        _remove_leftovers(output.parent)
        with temporary_folder(output if output.is_dir() else output.parent) as aside:
            whole = aside / output.name
            yield whole
            let_others_read_weights(whole)
            files = {path.name: sha256(path) for path in whole.iterdir() if path.is_file()}
            mark = json.dumps({"note": _MARK, "files": files}, indent=2)
            (whole / MARKER).write_text(mark + "\n", encoding="utf-8")
            check_folder(output)  # again: the block may have taken hours
            if output.is_dir():
                _replace_content(output, whole)
            else:
                move_into_place(whole, output)


def _replace_content(output: Path, whole: Path) -> None:
    """Replace the files of a folder with those of another folder, starting with the marker file."""
    old = [path for path in _content(output) if path.name != MARKER]
    move_into_place(whole / MARKER, output / MARKER)
    for path in old:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    largest = max(whole.iterdir(), key=lambda path: path.stat().st_size, default=whole)
    _move_files_into_place(whole, output, last=largest.name)


@contextmanager
def files_written_aside(folder: Path, *, last: str) -> Iterator[Path]:
    """Write to a temporary folder and move its files into an existing folder at the end.

    Args:
        folder: Existing folder. Its other files stay.
        last: Name of the file that is moved last: a process that waits for it finds the others.
    """
    with temporary_folder(folder) as aside:
        yield aside
        let_others_read_weights(aside)
        _move_files_into_place(aside, folder, last=last)


def _move_files_into_place(aside: Path, folder: Path, *, last: str) -> None:
    """Flush the files of a folder to the disk and move them into another folder."""
    sync(*aside.rglob("*"))
    for path in sorted(aside.iterdir(), key=lambda path: path.name == last):
        path.replace(folder / path.name)
    sync(folder)


@contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """Create a temporary folder in `parent`, on the same file system, and delete it at the end.

    Folders that killed processes left there are removed first. A running process holds a lock.

    Args:
        parent: Existing folder. None is the system's folder for temporary files.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    _remove_leftovers(parent)
    while True:
        folder = Path(tempfile.mkdtemp(dir=parent, prefix=PARTIAL))
        lock = FileLock(folder / _LOCK)
        with suppress(OSError, NotImplementedError):  # a file system without locks
            lock.acquire()
        if folder.is_dir():  # else another process removed it before it was locked
            break
    try:
        (folder / "new").mkdir()
        yield folder / "new"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def _remove_leftovers(parent: Path) -> None:
    """Remove the temporary folders of killed processes, which are those without a held lock."""
    for folder in parent.glob(f"{PARTIAL}*"):
        # Ignore folders that are locked, another user's, or on a file system without locks.
        with suppress(OSError, NotImplementedError), FileLock(folder / _LOCK, timeout=0):
            shutil.rmtree(folder, ignore_errors=True)


def let_others_read_weights(folder: Path) -> None:
    """Give weights the permissions of config.json; safetensors lets only the owner read them."""
    if not (folder / "config.json").is_file():
        return
    for weights in folder.glob("*.safetensors"):
        shutil.copymode(folder / "config.json", weights)
