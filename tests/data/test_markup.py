"""Pairs within markup and archives: WMT's test sets, translation memories, zip files."""

import bz2
import itertools
import tarfile
import zipfile

import pytest

from vanilla_transformer.data import read_pairs
from vanilla_transformer.errors import RequestError

ENGLISH = [
    "The museum opens at ten.",
    "She lost her keys, again.",
    "How far is the station?",
    "We had soup; it was cold.",
    "Nobody answered the phone.",
    "My brother lives in Oslo.",
]
GERMAN = [
    "Das Museum öffnet um zehn.",
    "Sie hat schon wieder ihre Schlüssel verloren.",
    "Wie weit ist es bis zum Bahnhof?",
    "Wir hatten Suppe; sie war kalt.",
    "Niemand ging ans Telefon.",
    "Mein Bruder wohnt in Oslo, glaube ich.",
]
PAIRS = list(zip(ENGLISH, GERMAN, strict=True))


def read(path, languages=("en", "de")):
    reader = read_pairs(path, source_language=languages[0], target_language=languages[1])
    return list(reader), reader.num_malformed


def sgm(kind, language, texts):
    segments = "".join(f'<seg id="{n}">{text}</seg>\n' for n, text in enumerate(texts, start=1))
    return (
        f'<{kind} setid="set" srclang="en" trglang="{language}">\n<doc docid="d" sysid="ref">\n'
        f"<p>\n{segments}</p>\n</doc>\n</{kind}>\n"
    )


WMT = (
    '<?xml version="1.0" encoding="utf-8"?>\n<dataset id="set"><doc id="d" origlang="en">'
    '<src lang="en"><p>{src}</p></src><ref lang="de" translator="A"><p>{ref}</p></ref>'
    "</doc></dataset>\n"
)
UNIT = '<tu><tuv xml:lang="{}"><seg>{}</seg></tuv><tuv xml:lang="{}"><seg>{}</seg></tuv></tu>'


def test_markup_and_archives_give_their_pairs(tmp_path):
    segments = [
        "".join(f'<seg id="{n}">{t}</seg>' for n, t in enumerate(x)) for x in (ENGLISH, GERMAN)
    ]
    units = "".join(UNIT.format("EN-US", s, "de", t) for s, t in PAIRS)
    names = {"a.en.sgm": sgm("srcset", "any", ENGLISH), "a.de.sgm": sgm("refset", "de", GERMAN)}
    names["wmt.xml"] = WMT.format(src=segments[0], ref=segments[1])
    names["memory.tmx"] = f'<?xml version="1.0"?><tmx version="1.4"><body>{units}</body></tmx>'
    for name, text in names.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "de-en.txt.zip", "w") as archive:
        archive.writestr("README", "about")
        archive.writestr("Corpus.de-en.de", "".join(f"{t}\n" for t in GERMAN))
        archive.writestr("Corpus.de-en.en", "".join(f"{t}\n" for t in ENGLISH))
    with zipfile.ZipFile(tmp_path / "sgm.zip", "w") as archive:
        for code in ("en", "de"):
            archive.write(tmp_path / f"a.{code}.sgm", f"a.{code}")
    (tmp_path / "memory16.tmx").write_text(names["memory.tmx"], encoding="utf-16")
    (tmp_path / "memory.tmx.bz2").write_bytes(bz2.compress(names["memory.tmx"].encode()))
    for source in (
        (tmp_path / "a.en.sgm", tmp_path / "a.de.sgm"),
        *(tmp_path / name for name in ("wmt.xml", "memory.tmx", "memory.tmx.bz2", "memory16.tmx")),
        *(tmp_path / name for name in ("de-en.txt.zip", "sgm.zip")),
    ):
        assert list(read_pairs(source, source_language="en", target_language="de")) == PAIRS
    reverse = read_pairs(tmp_path / "wmt.xml", source_language="de", target_language="en")
    assert list(reverse) == [pair[::-1] for pair in PAIRS]
    with pytest.raises(RequestError, match=r"wmt\.xml has the languages de, en, not en and fr"):
        read(tmp_path / "wmt.xml", ("en", "fr"))


def test_a_memory_keeps_varieties_apart_and_drops_codes_of_layout(tmp_path):
    texts = {"en": "The <hi>red</hi> bus<ph x='1'>{\\fs24 }</ph>.", "pt-BR": "O ônibus."}
    texts |= {"PT-PT": "O <bpt i='1'>&lt;b&gt;</bpt>autocarro<ept i='1'>&lt;/b&gt;</ept>."}
    unit = "".join(f'<tuv xml:lang="{c}"><seg>{t}</seg></tuv>' for c, t in texts.items())
    text = f'<tmx version="1.4"><body><tu>{unit}</tu></body></tmx>'
    (tmp_path / "a.tmx").write_text(text, encoding="utf-8")
    assert read(tmp_path / "a.tmx", ("en", "pt_BR")) == ([("The red bus.", "O ônibus.")], 0)
    assert read(tmp_path / "a.tmx", ("pt_PT", "en"))[0] == [("O autocarro.", "The red bus.")]
    reader = read_pairs(tmp_path / "a.tmx", source_language="en", target_language="pt")
    assert not list(reader)
    assert "2 texts in 'pt', not 1; codes: en, pt-BR, PT-PT" in reader.examples[0]
    with zipfile.ZipFile(tmp_path / "pt-pt_br.zip", "w") as archive:
        for name in ("C.pt-pt_br.pt", "C.pt-pt_br.pt_br", "__MACOSX/C.pt-pt_br.pt"):
            archive.writestr(name, f"{name}\n")
    found, _ = read(tmp_path / "pt-pt_br.zip", ("pt", "pt_BR"))
    assert found == [("C.pt-pt_br.pt", "C.pt-pt_br.pt_br")]


@pytest.mark.parametrize("above", ["<!-- by -->\n<!-- a tool -->", "<?xml-stylesheet href='a'?>"])
def test_what_stands_above_a_memory_is_passed_over(tmp_path, above):
    units = "".join(UNIT.format("en", s, "de", t) for s, t in [*PAIRS, ("10&nbsp;km", "10 km")])
    text = f'<?xml version="1.0"?>{above}<!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx><body>{units}'
    (tmp_path / "a.tmx").write_text(f"{text}</body></tmx>", encoding="utf-8")
    assert read(tmp_path / "a.tmx") == (PAIRS, 1)  # no file says here what &nbsp; is
    known = text.replace('SYSTEM "tmx14.dtd"', '[<!ENTITY nbsp "&#160;">]')
    (tmp_path / "a.tmx").write_text(f"{known}</body></tmx>", encoding="utf-8")
    assert read(tmp_path / "a.tmx") == ([*PAIRS, ("10\u00a0km", "10 km")], 0)
    known = text.replace('SYSTEM "tmx14.dtd"', '[<!ENTITY nbsp SYSTEM "x.txt">]')
    (tmp_path / "a.tmx").write_text(f"{known}</body></tmx>", encoding="utf-8")
    assert read(tmp_path / "a.tmx") == (PAIRS, 1)


BOMB = '<!DOCTYPE tmx [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in itertools.pairwise("abcdefghij")
)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\nHello.\n", "subtitles with times"),
        ("a.xml", "<?xml version='1.0'?><corpus/>", "unsupported markup"),
        ("a.tmx", f"<?xml version='1.0'?>{BOMB}]><tmx><body>" + UNIT.format("en", "&j;", "de", "x")
         + "</body></tmx>", "(?i)entit|no pair|not XML|source is empty"),
        ("a.tmx", "<tmx><body>" + UNIT.format("en", "a", "de", "b"), r"not XML: .*line 1"),
        ("a.zip", "PK\x03\x04 and no more", "a damaged zip"),
        ("a.sgm", sgm("srcset", "any", ENGLISH), "holds only one side; give both files"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_what_it_is(tmp_path, name, content, reason):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(RequestError, match=reason):
        list(read_pairs(tmp_path / name, source_language="en", target_language="de", strict=True))


@pytest.mark.parametrize(
    ("names", "way", "reason"),
    [
        (["xl/a.xlm", "xl/b.bin"], zipfile.ZIP_STORED, "save spreadsheets as CSV"),
        (["a.en", "a.de"], zipfile.ZIP_LZMA, "is not compressed with deflate; decompress it"),
    ],
)
def test_archives_of_other_kinds_are_refused(tmp_path, names, way, reason):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", way) as archive:
        for name in names:
            archive.writestr(name, "text\n")
    with pytest.raises(RequestError, match=reason):
        list(read_pairs(tmp_path / "a.zip", source_language="en", target_language="de"))


@pytest.mark.parametrize("form", ['{{"text": "{}"}}', '"{}"', "7\t{}"])
def test_members_of_an_archive_of_cells_or_records_are_refused(tmp_path, form):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for code, texts in (("en", ENGLISH), ("de", GERMAN)):
            archive.writestr(f"a.{code}", "".join(f"{form.format(text)}\n" for text in texts))
    with pytest.raises(RequestError, match=r"a\.zip/a\.en is a table or code"):
        read(tmp_path / "a.zip")


def test_a_damaged_archive_and_one_of_several_files_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for code, texts in (("en", ENGLISH), ("de", GERMAN)):
            archive.writestr(f"a.{code}", "\n".join(texts) * 99)
    content = bytearray((tmp_path / "a.zip").read_bytes())
    content[40:60] = bytes(range(20))
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(RequestError, match=r"a\.zip.* is (a damaged zip file|damaged or cut off)"):
        read(tmp_path / "a.zip")
    (tmp_path / "t.tsv").write_text("a\tb\n" * 999, encoding="utf-8")
    with tarfile.open(tmp_path / "t.tgz", "w:gz") as archive:
        archive.add(tmp_path / "t.tsv", "t.tsv")
    with pytest.raises(RequestError, match=r"t\.tgz is packed.*; unpack it"):
        read(tmp_path / "t.tgz")


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("tag", ["seg", "SEG"])
def test_each_segment_is_a_text_however_many_a_line_has(tmp_path, tag, end):
    for language, texts in (("en", ENGLISH), ("de", GERMAN)):
        segments = "".join(f'<{tag} id="1">{text}</{tag}>{end}' for text in texts)
        text = f'<{"srcset" if tag == "seg" else "SRCSET"} setid="x">{segments}</srcset>\n'
        (tmp_path / f"a.{language}").write_text(text, encoding="utf-8")
    assert read((tmp_path / "a.en", tmp_path / "a.de")) == (PAIRS, 0)
    (tmp_path / "a.en").write_text(f"{text[:-50]}\n</{tag}>", encoding="utf-8")
    with pytest.raises(RequestError, match="a segment of more than one line"):
        read((tmp_path / "a.en", tmp_path / "a.de"))
