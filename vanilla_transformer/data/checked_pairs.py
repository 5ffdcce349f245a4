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
    """A line is not a valid pair."""


class EncodingError(MalformedError):
    """The line is not UTF-8."""


class EmptyError(MalformedError):
    """A side, or the line, is empty."""


class OtherLanguagesError(MalformedError):
    """The line lacks one of the two languages, as in a translation memory of many."""


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
        examples: What was wrong with the first of them, each with its file and line.
        notes: Warnings of how the others were read.
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
        """Lines skipped by the last iteration."""
        return self.faults.total()

    def __iter__(self) -> Pairs:
        self.faults, self.examples, self.notes = Counter(), [], []
        count = 0
        for pair in self.read(self):
            count += 1
            yield pair
        if (undecoded := self.faults[EncodingError]) > max(2, count / 10):
            told = f"{undecoded} lines of {self.name} are not UTF-8, the first: {self.examples[0]}"
            raise RequestError(f"{told}. Convert it: iconv -f ENCODING -t UTF-8.")
        malformed = self.num_malformed - self.faults[EmptyError] - self.faults[OtherLanguagesError]
        if malformed >= 10 and malformed > count > 0:  # without any pair the caller says more
            counts = f"{malformed} lines are malformed and only {count} are pairs"
            raise RequestError(f"{self.name}: {counts}; the first: {self.examples[0]}.")

    def pairs(
        self, rows: Iterable[tuple[int, Any]], pair_of: Callable[[Any], tuple[str, str]], place: str
    ) -> Pairs:
        """Yield the pairs of numbered rows; skip a row without one, as `place` and its number."""
        for number, row in rows:
            try:
                yield pair_of(row)
            except MalformedError as error:
                self.skip(f"{place}{number}", error)

    def note(self, warning: str) -> None:
        """Keep and log a warning of how pairs were read."""
        logger.warning(warning)
        self.notes.append(warning)

    def skip(self, place: str, error: MalformedError) -> None:
        """Count a line that is not a pair, or refuse it if the reader is strict."""
        complaint = printable(f"{place}: {error}")
        if self.strict:
            raise RequestError(f"{complaint}. Repair or remove it, or leave out --strict.")
        self.faults[type(error)] += 1
        if len(self.examples) < 5:
            self.examples.append(complaint)


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
    """Return whether a text has only white space and invisible characters."""
    return not text[:1].isalnum() and _NOTHING.fullmatch(text) is not None


def checked_pair(source: object, target: object) -> tuple[str, str]:
    """Check that two values are a valid pair, and return them.

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
