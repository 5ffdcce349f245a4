"""Read texts and pairs from markup: WMT's test sets and translation memories (TMX).

The first lines of a file show its kind of markup, whatever its name is.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..errors import RequestError
from ..storage.reading import reason_of
from .checked_pairs import MalformedError, OtherLanguagesError, PairReader, Pairs, checked_pair
from .languages import is_meant, language_of, places_of

if TYPE_CHECKING:
    from lxml import etree

_CHUNK = 2**16
_XML_BYTES = 2**24  # limit on XML in memory; its parsed elements take 30 times as much
_TOO_MUCH_XML = f"more than {_XML_BYTES // 2**20} MiB of XML"
_XML_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_CODES = [f"{{*}}{name}" for name in ("bpt", "ept", "it", "ph", "ut")]  # formatting in a segment
_END = re.compile("</seg>", re.IGNORECASE)
_LANGUAGE = re.compile(r'<(src|ref)\b[^>]{0,500}\blang="([^"]{1,50})"')
_KINDS = {
    "tmx": re.compile(rb"<tmx\b"),
    "wmt": re.compile(rb"<dataset\b"),
    "sgm": re.compile(rb"<(srcset|refset|tstset|mteval)\b|^<seg ", re.MULTILINE | re.IGNORECASE),
    "subtitles": re.compile(rb"\A(\d+\s+)?\d\d:\d\d:\d\d[,.]\d{3} --> |\AWEBVTT"),
    "markup": re.compile(rb"\A\s*(<\?xml|<!DOCTYPE|<html|<xliff|<cesAlign|<cesDoc|<text>)", re.I),
}
_REMEDIES = {
    "subtitles": "holds subtitles with times; take sentences that are aligned, as OPUS has them",
    "markup": "holds unsupported markup; convert it to one sentence a line",
    "sgm": "holds only one side; give both files, SOURCE,TARGET",
}


def markup_of(head: bytes) -> str | None:
    """Detect the kind of markup from the first bytes of a file; None for plain text."""
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    # Plain text may contain a tag; markup begins with one.
    kinds = [*_KINDS] if head.startswith(b"<") else ["subtitles"]
    return next((kind for kind in kinds if _KINDS[kind].search(head)), None)


def sgm_segments(path: Path, lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the segments of a WMT .sgm file, cleaned as sacreBLEU does."""
    from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

    clean = FakeSGMLDataset._clean
    for number, line in enumerate(lines, start=1):
        text = line.decode("utf-8", "surrogateescape")  # invalid UTF-8 is refused later
        found = [part[part.lower().rfind("<seg") :] for part in _END.split(text)[:-1]]
        if len(found) != text.lower().count("<seg"):
            fault = f"{path}:{number}: a segment of more than one line"
            raise RequestError(f"{fault}; convert the set to text with sacrebleu --echo.")
        for segment in found:
            yield clean(segment.partition(">")[2]).encode("utf-8", "surrogateescape")


def refuse(path: Path, kind: str) -> RequestError:
    """Return the error for a file of a kind that cannot be read here."""
    remedy = _REMEDIES.get(kind, "holds pairs; give it alone, not as one of two files")
    return RequestError(f"{path} {remedy}.")


def wmt_pairs(path: Path, file: BinaryIO, reader: PairReader) -> Pairs:
    """Yield the pairs of a WMT test set of 2021 or later, with the first reference."""
    from lxml import etree
    from sacrebleu.dataset.wmt_xml import WMTXMLDataset

    content = file.read(_XML_BYTES + 1)
    if len(content) > _XML_BYTES:
        raise RequestError(f"{path} is a WMT test set of {_TOO_MUCH_XML}; write its pairs as text.")
    tags = dict(_LANGUAGE.findall(content.decode("utf-8", "replace")))
    try:
        fields = WMTXMLDataset._unwrap_wmt21_or_later(io.BytesIO(content))
    except (etree.XMLSyntaxError, AssertionError, KeyError, ValueError, TypeError) as error:
        raise RequestError(f"{path} is not a test set of WMT: {reason_of(error)}.") from error
    reference = next((name for name in sorted(fields) if name.startswith("ref")), None)
    if reference is None:
        raise RequestError(f"{path} has sources without references; pairs need both.")

    sides = ["src", "ref"]
    if tags and all(map(language_of, reader.languages)):
        sides = [side for it in reader.languages for side, tag in tags.items() if is_meant(it, tag)]
    if sorted(sides) != ["ref", "src"]:
        found, meant = ", ".join(sorted(tags.values())), " and ".join(reader.languages)
        raise RequestError(f"{path} has the languages {found}, not {meant}; give another --pair.")
    texts = {"src": fields["src"], "ref": fields[reference]}
    rows = enumerate(zip(*(texts[side] for side in sides), strict=True), start=1)
    yield from reader.pairs(rows, lambda row: checked_pair(*row), f"{path}: segment ")


def tmx_pairs(path: Path, file: BinaryIO, reader: PairReader) -> Pairs:
    """Yield the pairs of a translation memory, unit by unit."""
    from lxml import etree

    places = lru_cache(places_of)
    text = etree.XPath("string(*[local-name() = 'seg'])", smart_strings=False)

    def pair_of(unit: etree._Element) -> tuple[str, str]:
        etree.strip_elements(unit, *_CODES, with_tail=False)
        variants = unit.findall("{*}tuv")
        names = tuple(each.get(_XML_LANGUAGE) or each.get("lang") or "" for each in variants)
        found = [places(language, names) for language in reader.languages]
        for language, side in zip(reader.languages, found, strict=True):
            if len(side) != 1:
                kind = MalformedError if side else OtherLanguagesError
                raise kind(f"{len(side)} texts in {language!r}, not 1; codes: {', '.join(names)}")
        sides = [variants[side[0]] for side in found]
        dtd = unit.getroottree().docinfo.internalDTD
        entities = () if dtd is None else dtd.iterentities()
        known = {each.name for each in entities if each.content}
        used = {each.name for side in sides for each in side.iter(etree.Entity)}
        if unknown := sorted(used - known):
            raise MalformedError(f"the file does not define &{unknown[0]};")
        return checked_pair(*map(text, sides))

    try:
        units = enumerate(_units(path, file), start=1)
        yield from reader.pairs(units, pair_of, f"{path}: unit ")
    except etree.XMLSyntaxError as error:
        raise RequestError(f"{path} is not XML: {reason_of(error)}.") from error


def _units(path: Path, file: BinaryIO) -> Iterator[etree._Element]:
    """Yield the units of a translation memory one by one, and free earlier ones from memory."""
    from lxml import etree

    parser = etree.XMLPullParser(
        tag="{*}tu", resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False
    )
    size = 0  # bytes that may still be in memory
    while chunk := file.read(_CHUNK):
        parser.feed(chunk)
        size += len(chunk)
        for _, unit in parser.read_events():
            size = len(chunk)
            yield unit
            for part in (unit, *unit.iterancestors()):
                while part.getparent() is not None and part.getprevious() is not None:
                    del part.getparent()[0]
            unit.clear()
        if size > _XML_BYTES:
            raise RequestError(f"{path} has a unit of {_TOO_MUCH_XML}; leave it out.")
    parser.close()
