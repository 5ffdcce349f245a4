"""Read untrusted files in bounded memory, and check them before use.

Whatever a file holds, the caller gets the expected type or a one-line error that names the file. A
JSON file has a schema: a `TypedDict` with the keys that are read. A key that may be missing is
NotRequired, or belongs to a class with `total=False`; other keys may hold anything.
"""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from types import UnionType
from typing import IO, Any, BinaryIO, TypeVar, get_args, get_origin, get_type_hints, is_typeddict

from ..errors import RequestError

# Far larger than any real file: vocabularies are the largest JSON, recipes the only YAML. Values
# take up to 25 times as much memory as their text.
JSON_BYTES = 32 * 2**20
YAML_BYTES = 2**20
_CHUNK = 2**16
_XZ_BYTES = 2**28  # memory limit of xz's dictionary; `xz -9` needs a quarter
IS_NO_TEXT = "is packed, binary or UTF-16; unpack it, or convert it: iconv -f UTF-16 -t UTF-8."
StrPath = str | os.PathLike[str]  # how callers may give a path
LINE_BYTES = 2**20  # longest line of a text: a longer one is neither a sentence nor a pair
_READING = threading.Lock()  # the memory limit applies to the whole process
# First bytes of compressed files, and how to open them.
_UNPACKERS: dict[bytes, Any] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ": lambda file: io.BufferedReader(_XzReader(file)),
}
_REASON = 200  # maximum length of what an error quotes from a library's message
_REMEDY = "repair it, or copy it again"
# Control characters, line and paragraph separators, direction overrides and isolates, surrogates.
_UNPRINTABLE = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_Content = TypeVar("_Content")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object and has at most 32 MiB.

    Raises:
        ValueError: The file holds something else.
        OSError: It cannot be read; `filename` says which.
    """
    return checked(read_text(path, "JSON", JSON_BYTES, json.loads), dict[str, Any], path)


def checked(content: object, schema: type[_Content], path: Path) -> _Content:
    """Check that the content of a file matches its schema, and return it.

    Raises:
        ValueError: It does not match; the message names the first wrong keys.
    """
    places = [*islice(_mistakes(content, schema, ""), 3)]
    if places:
        place = shortened(", ".join(places)) or "the content"
        raise RequestError(f"{place} in {path} is missing or of a wrong type; {_REMEDY}.")
    return content  # type: ignore[return-value]  # as has just been checked


def read_text(path: Path, language: str, most: int, parse: Callable[[str], Any] = str) -> Any:
    """Read a UTF-8 text file of limited size.

    Args:
        path: Existing file.
        language: Expected format, for errors.
        most: Largest number of bytes.
        parse: Function that turns the text of the file into the value to return.

    Raises:
        ValueError: The file is larger, not UTF-8, or cannot be parsed.
        OSError: It cannot be read; `filename` says which.
    """
    with errors_naming(path), path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise RequestError(f"{path} is larger than {most // 2**20} MiB, the limit for {language}.")
    try:
        return parse(content.decode("utf-8"))
    # YAML's constructors trust a file's tags and can raise any error: `!!bool abc` a KeyError.
    except Exception as error:
        raise RequestError(f"{path} is not {language} ({reason_of(error)}); {_REMEDY}.") from None


def _mistakes(value: object, kind: Any, place: str) -> Iterator[str]:
    """Yield the places where a JSON value does not match a type."""
    if kind is Any:
        return
    container, inner = get_origin(kind), get_args(kind)
    if container is UnionType:
        if all(any(True for _ in _mistakes(value, one, place)) for one in inner):
            yield place
    elif is_typeddict(kind) and isinstance(value, dict):
        for name, hint in get_type_hints(kind).items():
            if name in value or name in kind.__required_keys__:
                yield from _mistakes(value.get(name), hint, f"{place}.{name}".strip("."))
    elif container is dict and isinstance(value, dict):
        for name, item in value.items():
            yield from _mistakes(item, inner[1], f"{place}.{name}".strip("."))
    elif container in (list, tuple) and isinstance(value, list):  # JSON has no tuples
        if container is tuple and len(value) != len(inner):
            yield place
        for item, kind in zip(value, cycle(inner)):
            yield from _mistakes(item, kind, f"{place}[]")
    elif (
        container is not None  # and the value is not such a container
        or is_typeddict(kind)
        or isinstance(value, bool) != (kind is bool)  # True is an int in Python
        or not isinstance(value, (int, float) if kind is float else kind)
    ):
        yield place


def read_yaml(path: Path, *, typed: bool = False) -> dict[str, Any]:
    """Read the `key: value` lines of a YAML file of at most 1 MiB.

    Args:
        path: The file.
        typed: Whether to read numbers and truth values as YAML 1.1 does, in which `010` is 8 and
            `no` is false. By default all values but null are text, or lists and mappings of text.

    Raises:
        ValueError: The file holds something else, a key twice (unless `typed`), or an alias.
        OSError: It cannot be read; `filename` says which.
    """
    content = read_text(path, "YAML", YAML_BYTES, lambda text: parse_yaml(text, typed=typed))
    return checked({} if content is None else content, dict[str, Any], path)


def parse_yaml(text: str, *, typed: bool) -> object:
    """Return the content of a YAML text, as `read_yaml` reads it.

    Raises:
        ValueError: It has an alias.
        yaml.YAMLError: It is no YAML.
    """
    import yaml

    # A few aliases can expand to gigabytes.
    if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
        raise RequestError("YAML aliases, as in *name, are not allowed")
    return yaml.load(text, Loader=yaml.SafeLoader if typed else _text_loader())


def as_yaml(values: Mapping[str, object]) -> str:
    """Format values as YAML that any YAML 1.1 parser reads as the same values."""
    import yaml

    return yaml.safe_dump(dict(values), allow_unicode=True)


def read_lines(file: IO[bytes] | io.BufferedIOBase, name: str) -> Iterator[bytes]:
    """Yield the lines of a text file without line ends (LF or CRLF) and the byte order mark.

    A line longer than `LINE_BYTES` is cut, but stays longer than that, so that a caller can refuse
    it. The rest is never held in memory at once.

    Raises:
        ValueError: After the only line, if it has the line ends of old Macs in it; the message
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
        raise RequestError(f"{name} ends lines with CR alone; convert it: tr '\\r' '\\n'.")


def open_content(path: Path) -> BinaryIO:
    """Open a file, and decompress it if it is compressed with gzip, bzip2 or xz.

    Raises:
        OSError: It cannot be opened; `filename` says which.
    """
    with errors_naming(path):
        file = path.open("rb")
        first = file.peek(6)  # a pipe cannot seek back
    for magic, unpacked in _UNPACKERS.items():
        if first.startswith(magic):
            return unpacked(file)
    return file


class _XzReader(io.RawIOBase):
    """Decompress xz with a limit on the memory, which lzma.open lacks: a file may request 4 GB."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._unpacker = lzma.LZMADecompressor(memlimit=_XZ_BYTES)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = b""
        while not data:
            packed = b""
            if self._unpacker.eof:
                packed = self._unpacker.unused_data
                while not (packed := packed.lstrip(b"\0")):  # streams may be padded
                    packed = self._file.read(_CHUNK)
                    if not packed:
                        return 0
                self._unpacker = lzma.LZMADecompressor(memlimit=_XZ_BYTES)  # for the next stream
            elif self._unpacker.needs_input:
                packed = self._file.read(_CHUNK)
                if not packed:
                    raise EOFError("it is cut off")
            data = self._unpacker.decompress(packed, len(buffer))
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def errors_naming(path: str | os.PathLike) -> Iterator[None]:
    """Add the file's name to errors of the operating system and of decompression.

    Raises:
        ValueError: A compressed file is damaged.
    """
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        # gzip and bzip2 raise an OSError without a number.
        if not isinstance(error, OSError) or error.errno is None:
            raise RequestError(f"{path} is damaged or cut off ({error}); copy it again.") from error
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def in_bounded_memory(batches: Iterator[_Content]) -> Iterator[_Content]:
    """Iterate over batches, each of which may take at most 1 GB of memory (on Linux only).

    Raises:
        MemoryError: A batch takes more. A small file of another program may expand to gigabytes,
            in more ways than checks could list.
    """
    while (batch := _next_in_bounded_memory(batches)) is not None:
        yield batch


def _next_in_bounded_memory(batches: Iterator[_Content]) -> _Content | None:
    if sys.platform != "linux":
        return next(batches, None)
    import resource

    with _READING:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        size, used, shared, *_, data, _ = map(int, Path("/proc/self/statm").read_text().split())
        # The limit of one gigabyte also counts memory that allocators have mapped but do not use.
        # gVisor reports no `data` in statm, so `size` replaces it.
        page = resource.getpagesize()
        most = max((used - shared) * page + 2**30, (data or size) * page + 2**28)
        lower = most if soft == resource.RLIM_INFINITY else min(soft, most)
        resource.setrlimit(resource.RLIMIT_DATA, (lower, hard))
        try:
            return next(batches, None)
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def own_file(path: Path) -> Path:
    """Return a path, but refuse a link to a file outside its folder.

    Raises:
        ValueError: It is a link to a file outside its directory.
    """
    target, directory = path.resolve(), path.parent.resolve()
    if target.is_relative_to(directory):
        return path
    # The Hub's cache keeps the files of all snapshots of a repository in one folder.
    if directory.parent.name == "snapshots" and target.parent == directory.parents[1] / "blobs":
        return path
    raise RequestError(f"{path} is a link to {target}, which lies outside its directory.")


def printable(text: str) -> str:
    """Escape characters that change how the text around them is shown.

    These are control characters, line ends and direction overrides, but not joiners or direction
    marks, which some languages need.
    """
    return _UNPRINTABLE.sub(lambda sign: sign[0].encode("unicode_escape").decode(), text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 pair", "2,000 pairs"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def is_utf8(name: str) -> bool:
    """Return whether the locale encodes a file's name in the same bytes as UTF-8."""
    try:
        return os.fsencode(name) == name.encode()
    except UnicodeEncodeError:
        return False


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with errors_naming(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _text_loader() -> type:
    """Return a safe YAML loader that reads all but null as text, and refuses duplicate keys."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {
            first: [row for row in rows if row[0].endswith(":null")]
            for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
            names = Counter(key.value for key, _ in node.value if isinstance(key.value, str))
            for name, count in names.most_common(1):
                if count > 1:
                    problem = f"the key {name!r} comes twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            return super().construct_mapping(node, deep)

    return Loader


def reason_of(error: BaseException | str) -> str:
    """Shorten a library's error message to one line."""
    return shortened(" ".join(str(error).split()) or type(error).__name__)


def shortened(text: str, most: int = _REASON) -> str:
    """Cut a text to a number of characters."""
    return text if len(text) <= most else f"{text[:most]} ..."
