"""Validate pairs one by one; skip, count and report invalid lines, or refuse them."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..errors import RequestError
from ..storage.reading import LINE_BYTES, printable
from .columns import Given, Languages

Pairs: TypeAlias = "Iterator[tuple[str, str]]"

logger = logging.getLogger(__name__)

TEXT_BYTES = 2**16  # limit for one side of a pair: some ten thousand words

# White space as defined by Rust, Python or JavaScript, which disagree: Unicode's White_Space, the
# separators U+001C to U+001F, and the byte order mark; without the space itself. The pattern works
# in the regular expressions of tokenizers and of JavaScript too.
WHITE_SPACE = (
    r"[\u0009-\u000d\u001c-\u001f\u0085\u00a0\u1680\u2000-\u200a"
    r"\u2028\u2029\u202f\u205f\u3000\ufeff]"
)

# Invisible characters that no spelling needs: control characters, direction marks, the soft hyphen,
# the zero-width space and the word joiner. The zero-width joiner and non-joiner are not among them,
# because Persian and Hindi need these.
UNSEEN = (
    r"[\u0000-\u0008\u000e-\u001b\u007f-\u0084\u0086-\u009f\u00ad\u061c\u200b\u200e\u200f"
    r"\u202a-\u202e\u2060\u2066-\u2069]"
)
_NOTHING = re.compile(f"( |{WHITE_SPACE}|{UNSEEN})*")


class MalformedError(RequestError):
    """A line is not a valid pair."""


class EncodingError(MalformedError):
    """The line is not UTF-8."""


class EmptyError(MalformedError):
    """A side, or the line, is empty."""


class OtherLanguagesError(MalformedError):
    """The entry of a multilingual translation memory lacks one of the two languages."""


@dataclass(kw_only=True)
class PairReader:
    """Iterable over the (source, target) pairs of one input, with counts of malformed lines.

    Attributes:
        name: Name of the input, for messages.
        languages: Languages of source and target, or other names of the two sides.
        given: Columns that the user named.
        strict: Refuse malformed lines.
        read: Function that yields the pairs, and reports malformed lines to this reader.
        faults: How many lines the last iteration skipped, by the type of their error.
        examples: Errors of the first skipped lines, each with its file and line.
        notes: Warnings about how the other lines were read.
    """

    name: str
    languages: Languages
    given: Given
    strict: bool
    read: Callable[[PairReader], Pairs]
    faults: Counter[type[Exception]] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def num_malformed(self) -> int:
        """Number of lines skipped by the last iteration."""
        return self.faults.total()

    def __iter__(self) -> Pairs:
        self.faults, self.examples, self.notes = Counter(), [], []
        count = 0
        for pair in self.read(self):
            count += 1
            yield pair
        if (undecoded := self.faults[EncodingError]) > max(2, count / 10):
            what = f"{undecoded} lines of {self.name} are not UTF-8, the first: {self.examples[0]}"
            raise RequestError(f"{what}. Convert it: iconv -f ENCODING -t UTF-8.")
        malformed = self.num_malformed - self.faults[EmptyError] - self.faults[OtherLanguagesError]
        if malformed >= 10 and malformed > count > 0:  # without pairs, the caller raises an error
            counts = f"{malformed} of {malformed + count} lines are malformed"
            raise RequestError(f"{self.name}: {counts}; the first: {self.examples[0]}.")

    def pairs(
        self, rows: Iterable[tuple[int, Any]], pair_of: Callable[[Any], tuple[str, str]], place: str
    ) -> Pairs:
        """Yield each row's pair; skip malformed rows, and report them by `place` and row number."""
        for number, row in rows:
            try:
                yield pair_of(row)
            except MalformedError as error:
                self.skip(f"{place}{number}", error)

    def note(self, warning: str) -> None:
        """Log and store a warning about how the pairs were read."""
        logger.warning(warning)
        self.notes.append(warning)

    def skip(self, place: str, error: MalformedError) -> None:
        """Count a line that is not a pair, or refuse it if the reader is strict."""
        complaint = printable(f"{place}: {error}")
        if self.strict:
            raise RequestError(f"{complaint}. Repair or remove this pair, or leave out --strict.")
        self.faults[type(error)] += 1
        if len(self.examples) < 5:
            self.examples.append(complaint)


def decoded(line: bytes) -> str:
    """Decode a line of a file of pairs, which must not contain NUL.

    Raises:
        MalformedError: The line is too long, not UTF-8, or contains NUL.
    """
    text = utf8_text(line)
    if "\0" in text:
        raise EncodingError("the line contains a NUL character")
    return text


def utf8_text(line: bytes) -> str:
    """Decode a line of any text, and drop byte order marks at its beginning.

    Raises:
        MalformedError: The line is too long, or not UTF-8.
    """
    if len(line) > LINE_BYTES:
        raise MalformedError(f"the line is longer than {LINE_BYTES // 2**20} MiB")
    try:
        return line.decode("utf-8").lstrip("\ufeff")  # concatenated files have several such marks
    except UnicodeDecodeError as error:
        raise EncodingError(f"invalid UTF-8 at byte {error.start + 1} of the line") from None


def is_empty(text: str) -> bool:
    """Return whether a text has only white space and invisible characters."""
    return not text[:1].isalnum() and _NOTHING.fullmatch(text) is not None


def checked_pair(source: object, target: object) -> tuple[str, str]:
    """Return a source and a target after checking that they are a valid pair.

    Raises:
        MalformedError: A side is not a text, empty or too long.
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
