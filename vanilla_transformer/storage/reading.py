"""Read files from other programs or versions: in bounded memory, and checked before use.

Whatever a file holds, the caller gets the expected type or a one-line error that names the file.
"""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, overload

from ..errors import RequestError, quoted

# Far larger than any real file: vocabularies are the largest JSON, recipes the only YAML.
JSON_BYTES = 512 * 2**20
YAML_BYTES = 2**20
IS_NO_TEXT = "is UTF-16 or binary; save it as UTF-8, or convert it: iconv -f UTF-16 -t UTF-8."
LINE_BYTES = 2**20  # of a text: a longer line is neither a sentence nor a pair
# First bytes of packed files, and what unpacks them.
_UNPACKERS: dict[bytes, Any] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ": lzma.LZMAFile,
}
_REASON = 200  # characters of a library's message that an error repeats
_COPY = "copy or download it again"
# Integers and floats without quotes in YAML.
_NUMBERS = (
    r"[-+]?(0|[1-9][0-9_]*)$",
    r"[-+]?(([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(inf|nan))$",
)


@overload
def read_json(
    path: Path, *, keys: Mapping[str, type | tuple[type, ...]] | None = None, remedy: str = _COPY
) -> dict[str, Any]: ...
@overload
def read_json(path: Path, kind: type[list], *, remedy: str = _COPY) -> list[Any]: ...
def read_json(
    path: Path,
    kind: type[Any] = dict,
    *,
    keys: Mapping[str, type | tuple[type, ...]] | None = None,
    remedy: str = _COPY,
) -> Any:
    """Read a JSON object, or a list.

    Args:
        path: existing file of at most 512 MiB.
        kind: `dict` or `list`.
        keys: keys that the object must have, and the types of their values.
        remedy: what the error tells the user to do.

    Raises:
        ValueError: the file holds something else.
        OSError: it cannot be read; `filename` says which.
    """
    text = _text(path, "JSON", JSON_BYTES, remedy)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{path} is not JSON ({_reason(error)}); {remedy}.") from None
    if not isinstance(content, kind):
        raise RequestError(
            f"{path} holds a {type(content).__name__} instead of a {kind.__name__}; {remedy}."
        )
    for key, types in (keys or {}).items():
        value = content.get(key)
        if isinstance(value, bool) or not isinstance(value, types):  # True is an int in Python
            raise RequestError(f"{key!r} in {path} is {quoted(value)}; {remedy}.")
    return content


def read_yaml(path: Path, *, remedy: str = "repair it") -> dict[str, Any]:
    """Read the `key: value` lines of a YAML file; dates stay text.

    Args:
        path: existing file of at most 1 MiB.
        remedy: what the error tells the user to do.

    Raises:
        ValueError: the file holds something else, or a key twice.
        OSError: it cannot be read; `filename` says which.
    """
    import yaml

    text = _text(path, "YAML", YAML_BYTES, remedy)
    try:
        content = yaml.load(text, Loader=_yaml_loader())
    # YAML constructors trust the tags in a file: `!!bool abc` raises KeyError.
    except (yaml.YAMLError, ValueError, LookupError, RecursionError) as error:
        raise RequestError(f"{path} is not YAML ({_reason(error)}); {remedy}.") from None
    if not isinstance(content, dict | None):
        kind = type(content).__name__
        raise RequestError(f"{path} must hold `key: value` lines; it holds a {kind}.")
    return content or {}


def as_yaml(values: Mapping[str, object]) -> str:
    """Return `key: value` lines that both `read_yaml` and YAML 1.1 read as these values."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    _add_numbers(Dumper)  # quotes text that looks like a number
    return yaml.dump(dict(values), Dumper=Dumper, allow_unicode=True)


def read_lines(file: IO[bytes] | io.BufferedIOBase, name: str) -> Iterator[bytes]:
    """Yield the lines of a text without their ends, LF or CRLF, and without a byte order mark.

    A line longer than `LINE_BYTES` is cut, but stays longer than that, so that a caller can refuse
    it. The rest is never held in memory at once.

    Raises:
        ValueError: after the only line, if it has the line ends of old Macs in it; the message
            begins with `name`.
    """
    mark = b"\xef\xbb\xbf"
    count = 0
    while line := file.readline(LINE_BYTES + len(mark) + 2):
        if not line.endswith(b"\n"):
            while (rest := file.readline(LINE_BYTES)) and not rest.endswith(b"\n"):
                pass
        text = line.removeprefix(mark).removesuffix(b"\n").removesuffix(b"\r")
        yield text
        mark, count = b"", count + 1
    if count == 1 and b"\r" in text:
        raise RequestError(
            f"{name} ends its lines with CR alone, as old Macs did; convert them: tr '\\r' '\\n'."
        )


def open_content(path: Path) -> BinaryIO:
    """Open a file to read what it holds, unpacked if it was packed by gzip, bzip2 or xz.

    Raises:
        OSError: it cannot be opened; `filename` says which.
    """
    with errors_naming(path):
        file = path.open("rb")
        first = file.peek(6)  # a pipe cannot go back
    for magic, unpacked in _UNPACKERS.items():
        if first.startswith(magic):
            return unpacked(file)
    return file


@contextmanager
def damage_naming(path: str | os.PathLike) -> Iterator[None]:
    """Name the file in the block whose packed content is damaged.

    Raises:
        ValueError: it is damaged.
    """
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise RequestError(
            f"{path} is not a whole packed file: {error}. Fetch it again."
        ) from error


@contextmanager
def errors_naming(path: str | os.PathLike) -> Iterator[None]:
    """Add a file name to the operating system's errors in the block, if they have none."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        reason = error.strerror or " ".join(str(error).split())
        raise OSError(error.errno, reason, os.fspath(path)) from error


def own_file(path: Path) -> Path:
    """Return the path of a file that may be copied elsewhere, such as to the Hub.

    Raises:
        ValueError: it is a link to a file outside its directory.
    """
    target, directory = path.resolve(), path.parent.resolve()
    if target.is_relative_to(directory):
        return path
    # The Hub's cache keeps the files of all snapshots of a repository in one folder.
    if directory.parent.name == "snapshots" and target.parent == directory.parents[1] / "blobs":
        return path
    raise RequestError(
        f"{path} is a link to {target}, which lies outside its directory; replace the link by a "
        "copy if the file belongs there."
    )


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with errors_naming(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _text(path: Path, language: str, most: int, remedy: str) -> str:
    with errors_naming(path), path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise RequestError(
            f"{path} is larger than {most // 2**20} MiB, the limit for {language} here; {remedy}."
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is not {language} ({_reason(error)}); {remedy}.") from None


def _yaml_loader() -> type:
    """Return a safe loader that reads numbers and dates as they look and refuses duplicate keys."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {
            first: [row for row in rows if not row[0].endswith((":int", ":float", ":timestamp"))]
            for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
            names = Counter(key.value for key, _ in node.value if isinstance(key.value, str))
            for name, count in names.most_common(1):
                if count > 1:
                    problem = f"the key {name!r} comes twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            return super().construct_mapping(node, deep)

    _add_numbers(Loader)
    return Loader


def _add_numbers(resolver: type[Any]) -> None:
    """Make numbers read as they look: YAML 1.1 reads 010 as 8, 1:30 as 90 and 1e-9 as text."""
    for name, pattern in zip(("int", "float"), _NUMBERS, strict=True):
        tag = f"tag:yaml.org,2002:{name}"
        resolver.add_implicit_resolver(tag, re.compile(pattern), [*"-+.0123456789"])


def _reason(error: Exception) -> str:
    """Return a library's message about a file, shortened to one line."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return reason if len(reason) <= _REASON else f"{reason[:_REASON]} ..."
