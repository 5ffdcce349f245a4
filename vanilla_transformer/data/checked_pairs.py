"""What a line must be to be a pair, and what is wrong with one that is none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import RequestError
from ..storage.reading import LINE_BYTES
from .columns import Given, Languages

TEXT_BYTES = 2**16  # most for one side of a pair: some ten thousand words

# What Rust, Python or JavaScript calls white space, for they disagree: Unicode's White_Space, the
# separators U+001C to U+001F, and the byte order mark; without the space itself. Written so that
# the regular expressions of tokenizers and of JavaScript read it alike.
WHITE_SPACE = (
    r"[\u0009-\u000d\u001c-\u001f\u0085\u00a0\u1680\u2000-\u200a"
    r"\u2028\u2029\u202f\u205f\u3000\ufeff]"
)

# What nobody sees and no spelling needs: controls, marks of direction, the soft hyphen, the
# zero-width space and the word joiner. Joiners, which Persian and Hindi write, stay.
UNSEEN = (
    r"[\u0000-\u0008\u000e-\u001b\u007f-\u0084\u0086-\u009f\u00ad\u061c\u200b\u200e\u200f"
    r"\u202a-\u202e\u2060\u2066-\u2069]"
)
_NOTHING = re.compile(f"( |{WHITE_SPACE}|{UNSEEN})*")


class MalformedError(RequestError):
    """What is wrong with one line."""


class EncodingError(MalformedError):
    """The line is not UTF-8."""


class EmptyError(MalformedError):
    """A side, or the line, is empty."""


class OtherLanguagesError(MalformedError):
    """The line is in other languages, as some are in a file of many."""


# Called with the place of a line that is not a pair, and with what is wrong with it.
Skip = Callable[[str, Exception], None]
# Called with a warning of how the others were read.
Note = Callable[[str], None]


@dataclass(frozen=True)
class Reading:
    """What the user asks of a reading, and who is told of what it meets."""

    languages: Languages
    given: Given
    skip: Skip
    note: Note

    def pairs(
        self, rows: Iterable[Any], pair_of: Callable[[Any], tuple[str, str]], place: str
    ) -> Iterator[tuple[str, str]]:
        """Yield the valid pairs; skip other rows, as `place` and their number from 1."""
        for number, row in enumerate(rows, start=1):
            try:
                yield pair_of(row)
            except MalformedError as error:
                self.skip(f"{place}{number}", error)


def decoded(line: bytes) -> str:
    """Return the text of a line.

    Raises:
        MalformedError: The line is too long, or not UTF-8.
    """
    if len(line) > LINE_BYTES:
        raise MalformedError(f"the line is longer than {LINE_BYTES // 2**20} MiB")
    try:
        text = line.decode("utf-8").lstrip("\ufeff")  # of files that were joined
    except UnicodeDecodeError as error:
        raise EncodingError(f"invalid UTF-8 at byte {error.start + 1} of the line") from None
    if "\0" in text:
        raise EncodingError("a NUL among the characters of the line")
    return text


def is_empty(text: str) -> bool:
    """Return whether the normalizer of tokenizers leaves nothing of a text."""
    return not text[:1].isalnum() and _NOTHING.fullmatch(text) is not None


def checked_pair(source: object, target: object) -> tuple[str, str]:
    """Return both sides, unchanged.

    Raises:
        MalformedError: A side is no text, empty or too long.
    """
    return _checked_side("source", source), _checked_side("target", target)


def _checked_side(name: str, side: object) -> str:
    if not isinstance(side, str):
        raise MalformedError(f"the {name} is {type(side).__name__}, not a string")
    if is_empty(side):
        raise EmptyError(f"the {name} is empty")
    try:
        size = len(side) if side.isascii() else len(side.encode("utf-8"))
    except UnicodeEncodeError:
        raise MalformedError(f"the {name} holds a lone surrogate") from None
    if size > TEXT_BYTES:
        raise MalformedError(f"the {name} is longer than {TEXT_BYTES // 2**10} KiB")
    return side
