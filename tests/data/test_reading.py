"""Reading sentence pairs: every format gives the same pairs, every error names its place."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import re

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vanilla_transformer.data.checked_pairs import TEXT_BYTES, is_empty
from vanilla_transformer.data.dataset import read_pairs
from vanilla_transformer.errors import RequestError
from vanilla_transformer.storage.reading import LINE_BYTES

PAIRS = [
    ("A man.", "Ein Mann."),
    ("  two spaces ", "zwei  Leerzeichen "),
    ("line\u2028separator", "Zeilen\u0085trenner\x1c\x0b\x0c"),
    ("</s> <pad>", "\U0001f600 e\u0301"),
    ("\u4f60\u597d", 'tab\tquote"back\\slash'),
]
LANGUAGES = {"source_language": "en", "target_language": "de"}


def read(source, **kwargs):
    return list(read_pairs(source, **LANGUAGES, **kwargs))


def json_lines(pairs):
    rows = ({"translation": {"en": source, "de": target}} for source, target in pairs)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def write(path, content):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_parallel(folder, pairs, *, suffix="", end="\n"):
    paths = []
    for side, language in enumerate(("en", "de")):
        content = "".join(pair[side] + end for pair in pairs).encode()
        paths.append(write(folder / f"train.{language}{suffix}", content))
    return tuple(paths)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.jsonl.gz", "a.json.gz"])
@pytest.mark.parametrize("as_type", [str, lambda path: path])
def test_json_lines_give_the_pairs(tmp_path, name, as_type):
    assert read(as_type(write(tmp_path / name, json_lines(PAIRS)))) == PAIRS


@pytest.mark.parametrize("suffix", ["", ".txt", ".gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_parallel_files_give_the_pairs_and_split_only_at_line_feeds(tmp_path, suffix, end):
    assert read(write_parallel(tmp_path, PAIRS, suffix=suffix, end=end)) == PAIRS


def test_missing_final_newline_and_byte_order_mark_are_accepted(tmp_path):
    for path, text in (("a.en", "one\ntwo"), ("a.de", "eins\nzwei\n")):
        write(tmp_path / path, b"\xef\xbb\xbf" + text.encode())
    expected = [("one", "eins"), ("two", "zwei")]
    assert read((tmp_path / "a.en", tmp_path / "a.de")) == expected
    write(tmp_path / "a.jsonl", b"\xef\xbb\xbf" + json_lines(expected))
    assert read(tmp_path / "a.jsonl") == expected


def test_data_sets_give_the_pairs_in_both_forms():
    translation = datasets.Dataset.from_list(
        [{"translation": {"en": s, "de": t}, "more": 1} for s, t in PAIRS]
    )
    plain = datasets.Dataset.from_dict(
        {"de": [t for _, t in PAIRS], "en": [s for s, _ in PAIRS], "more": [1] * len(PAIRS)}
    )
    typed = translation.cast_column("translation", datasets.Translation(languages=["en", "de"]))
    for dataset in (translation, plain, typed):
        assert read(dataset) == PAIRS
        assert read(dataset.to_iterable_dataset()) == PAIRS
        assert read(dataset.select([3, 1])) == [PAIRS[3], PAIRS[1]]


@pytest.mark.parametrize("streaming", [False, True])
def test_local_data_set_folders_give_the_pairs(tmp_path, streaming, monkeypatch):
    """A folder is read in the same way as a name on the Hub."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "set"
    folder.mkdir()
    write(folder / "train.jsonl", json_lines(PAIRS))
    write(folder / "test.jsonl", json_lines(PAIRS[:2]))
    assert read(folder, streaming=streaming) == PAIRS
    assert read(str(folder), split="test", streaming=streaming) == PAIRS[:2]


def test_iterables_give_their_first_two_entries():
    assert read(pair for pair in PAIRS) == PAIRS
    assert read([[*pair, "kind"] for pair in PAIRS]) == PAIRS
    assert read([("a", "b"), ("c", "d")]) == [("a", "b"), ("c", "d")]


GOOD = {"jsonl": json_lines(PAIRS), "tsv": b"a\tb\nc\td\n", "csv": b'a,b\n"c\nc",d\n'}
FAULTS = [
    ("jsonl", b"nonsense", "not JSON"),
    ("jsonl", b"", "empty line"),
    ("jsonl", b"[" * 100_000, "not JSON"),
    ("jsonl", b'{"translation": {"en": ' + b"9" * 5000 + b', "de": "x"}}', "not JSON"),
    ("jsonl", b'["a", "b"]', "no 'en' and 'de' in ['a', 'b']"),
    ("jsonl", b'"a"', "no object of the form"),
    ("jsonl", b'{"id": 1}', "no 'en' and 'de' in {'id': 1}"),
    ("jsonl", b'{"translation": {"en": "a", "de": null}}', "the target is NoneType, not a string"),
    ("jsonl", b'{"translation": {"en": "", "de": "a"}}', "the source is empty"),
    ("jsonl", b'{"translation": {"en": "a", "de": " \\n"}}', "the target is empty"),
    (
        "jsonl",
        b'{"translation": {"en": "a\\ud800", "de": "b"}}',
        "the source holds a lone surrogate",
    ),
    (
        "jsonl",
        b'{"translation": {"en": "\xff", "de": "b"}}',
        "invalid UTF-8 at byte 25 of the line",
    ),
    ("tsv", b"one column", "1 columns, fewer than 2"),
    ("tsv", b"", "empty line"),
    ("tsv", b"\tb", "the source is empty"),
    ("tsv", b"a\t\xff", "invalid UTF-8 at byte 3 of the line"),
    ("tsv", b"a" * (LINE_BYTES + 1), "the line is longer than 1 MiB"),
    ("csv", b"", "empty line"),
    ("csv", b'"a" b,c', "',' expected after '\"'"),
    ("csv", b'"a,' + b"x" * 140_000 + b'",b', "field larger than field limit"),
    ("csv", b'"a\n\xff",b', "invalid UTF-8 at byte 1 of the line"),
]


@pytest.mark.parametrize(("kind", "line", "complaint"), FAULTS)
def test_malformed_lines_are_counted_and_skipped_or_rejected(tmp_path, kind, line, complaint):
    good = GOOD[kind]
    pairs = read(write(tmp_path / f"good.{kind}", good))
    path = write(tmp_path / f"a.{kind}", good + line + b"\n" + good)
    reader = read_pairs(path, **LANGUAGES)
    found = list(reader)
    assert found[: len(pairs)] == found[-len(pairs) :] == pairs
    assert reader.num_malformed >= 1
    number = good.count(b"\n") + 1
    assert reader.examples[0].startswith(f"{path}:{number}: {complaint}")
    with pytest.raises(RequestError, match=rf"a\.{kind}:{number}: "):
        read(path, strict=True)


def test_all_malformed_lines_are_counted_and_the_first_five_kept(tmp_path):
    path = write(tmp_path / "a.jsonl", b"x\n" * 50 + json_lines(PAIRS * 10))
    reader = read_pairs(path, **LANGUAGES)
    for _ in range(2):  # each pass counts from zero
        assert list(reader) == PAIRS * 10
        assert reader.num_malformed == 50
        assert [int(complaint.split(":")[1]) for complaint in reader.examples] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.en"])
def test_files_in_other_encodings_are_rejected(tmp_path, name):
    """Otherwise Latin-1 would lose each line with an umlaut and UTF-16 would be garbled."""
    delimiter = {"tsv": "\t", "csv": ","}.get(name.split(".")[1])
    rows = [(f"{n} dogs", f"{n} Hunde f\u00fcr mich" if n % 3 else f"{n} Hunde") for n in range(40)]
    if name.endswith("jsonl"):
        text = "".join(json.dumps({"en": s, "de": t}, ensure_ascii=False) + "\n" for s, t in rows)
    elif delimiter:
        text = "".join(f"{s}{delimiter}{t}\n" for s, t in rows)
    else:
        text = "".join(f"{t}\n" for _, t in rows)
        write(tmp_path / "a.de", text.encode())
    path = tmp_path / name
    source = (path, tmp_path / "a.de") if name == "a.en" else path
    write(path, text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"26 lines of .* are not UTF-8.*iconv -f ENCODING"):
        list(read_pairs(source, **LANGUAGES))
    for encoding in ("utf-16-le", "utf-16-be"):  # without a byte order mark
        write(path, text.encode(encoding))
        with pytest.raises(ValueError, match=r"is packed, binary or UTF-16; .*iconv -f UTF-16"):
            list(read_pairs(source, **LANGUAGES))
    for encoding in ("utf-8", "utf-16", "utf-8-sig"):
        write(path, text.encode(encoding))
        assert [target for _, target in read_pairs(source, **LANGUAGES)] == [t for _, t in rows]


def test_parallel_files_skip_empty_and_undecodable_lines_on_both_sides(tmp_path):
    write(tmp_path / "a.en", b"one\n\nthree\n\xfffour\nfive\n")
    write(tmp_path / "a.de", b"eins\nzwei\n \nvier\nf\xc3\xbcnf\n")
    reader = read_pairs((tmp_path / "a.en", tmp_path / "a.de"), **LANGUAGES)
    assert list(reader) == [("one", "eins"), ("five", "f\u00fcnf")]
    assert reader.num_malformed == 3
    assert [complaint.split(": ")[1] for complaint in reader.examples] == [
        "the source is empty",
        "the target is empty",
        "invalid UTF-8 at byte 1 of the line",
    ]
    assert f"{tmp_path / 'a.de'}:3" in reader.examples[1]


def test_malformed_rows_and_pairs_are_skipped_too():
    dataset = datasets.Dataset.from_dict({"en": ["a", None, ""], "de": ["b", "c", "d"]})
    reader = read_pairs(dataset, **LANGUAGES)
    assert list(reader) == [("a", "b")]
    assert [complaint.split(": ")[1] for complaint in reader.examples] == ["row 2", "row 3"]
    reader = read_pairs([("a", "b"), "ab", ("a",), 3, ("", "b"), ("\ud800", "b")], **LANGUAGES)
    assert list(reader) == [("a", "b")]
    assert reader.num_malformed == 5


@pytest.mark.parametrize("side", ["\u200b", "\ufeff", "\u00ad\u2060 ", "\u3000\u200e"])
def test_a_side_that_nobody_sees_is_empty(tmp_path, side):
    assert read([("a", side), (side, "b"), (f"{side}a", "b")]) == [(f"{side}a", "b")]
    rows = [("a", "b"), ("c", side), ("d", "e")]
    reader = read_pairs(write(tmp_path / "a.jsonl", json_lines(rows)), **LANGUAGES)
    assert (list(reader), reader.num_malformed) == ([rows[0], rows[2]], 1)


@pytest.mark.parametrize("end", ["\n", "\n\n", "\n \n\r\n"])
def test_blank_lines_at_the_end_of_one_of_two_files_are_no_lines(tmp_path, end):
    source, target = tmp_path / "a.en", tmp_path / "a.de"
    write(source, b"one\ntwo" + end.encode())
    write(target, b"eins\nzwei")
    assert read((source, target)) == [("one", "eins"), ("two", "zwei")]
    write(source, b"one\ntwo" + end.encode() + b"three\n")
    count = 3 + end.count("\n") - 1
    with pytest.raises(RequestError, match=rf"a\.en goes on in line {count}, where .*a\.de has"):
        read((source, target))


@pytest.mark.parametrize("letter", ["a", "\u00e9", "\U0001f600"])
def test_each_side_is_limited_to_64_kib(tmp_path, letter):
    whole = letter * (TEXT_BYTES // len(letter.encode()))
    path = write(tmp_path / "a.jsonl", json_lines([(whole, "b"), (whole + "a", "b"), ("a", whole)]))
    reader = read_pairs(path, **LANGUAGES)
    assert list(reader) == [(whole, "b"), ("a", whole)]
    assert reader.examples == [f"{path}:2: the source is longer than 64 KiB"]
    assert read([("a", "b"), ("c", whole + "a")]) == [("a", "b")]


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_each_line_is_limited_to_1_mib(tmp_path, end):
    pair = json_lines([("a", "b")]).decode().strip()
    for mark in ("", "\ufeff"):
        path = tmp_path / "a.jsonl"
        path.write_text(mark + pair.ljust(LINE_BYTES) + end, encoding="utf-8", newline="")
        assert read(path) == [("a", "b")]
        path.write_text(mark + pair.ljust(LINE_BYTES + 1) + end, encoding="utf-8", newline="")
        with pytest.raises(ValueError, match=r"a\.jsonl:1: the line is longer than 1 MiB"):
            read(path, strict=True)


def test_paths_that_are_not_regular_files_are_rejected_by_name(tmp_path):
    pipe, folder = tmp_path / "pipe.jsonl", tmp_path / "folder.jsonl"
    os.mkfifo(pipe)
    folder.mkdir()
    for path in (pipe, folder):
        for source in (path, (path, path)) if path is pipe else ((path, path),):
            with pytest.raises(RequestError, match=rf"{path} is a folder, a pipe or a device"):
                read_pairs(source, **LANGUAGES)


@pytest.mark.parametrize("names", [["a.en", "b.en", "c.en"], ["a.en"]])
def test_invalid_combinations_of_files_are_rejected_by_name(tmp_path, names):
    paths = [str(write(tmp_path / name, json_lines(PAIRS))) for name in names]
    for source in (tuple(paths), paths):
        with pytest.raises(ValueError, match=r"give one file, or two texts, SOURCE,TARGET"):
            read_pairs(source, **LANGUAGES)
    with pytest.raises(ValueError, match=re.escape(f"got the files {', '.join(paths)}; ")):
        read_pairs(paths, **LANGUAGES)


@given(
    st.lists(
        st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)] * 2)
    )
)
@settings(deadline=None, max_examples=60)
def test_any_nonblank_text_survives_json_lines(tmp_path_factory, pairs):
    path = write(tmp_path_factory.mktemp("any") / "a.jsonl", json_lines(pairs))
    assert read(path) == [pair for pair in pairs if not any(map(is_empty, pair))]


# -------------------------------------------------------------------------------------- tables

# Pairs that fit in one line of a TSV file.
ONE_LINE = [pair for pair in PAIRS if not any(mark in "".join(pair) for mark in ("\t", "\r", "\n"))]


def tsv(rows):
    return "".join("\t".join(row) + "\n" for row in rows).encode()


def comma_separated(rows, **dialect):
    text = io.StringIO(newline="")
    csv.writer(text, **dialect).writerows(rows)
    return text.getvalue().encode()


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("header", [[], [("en", "de")], [("en", "de", "a comment, by")]])
def test_delimiter_of_a_csv_is_the_one_of_most_rows(tmp_path, delimiter, header):
    pairs = [("Hello, a; b", "c"), ("Two, d, e", "f"), ("Three", "drei; 3"), ("one tab\t", "1")]
    rows = [*header, *([*pair, ""][: len(header[0]) if header else 2] for pair in pairs)]
    path = write(tmp_path / "a.csv", comma_separated(rows, delimiter=delimiter))
    assert read(path) == pairs


@pytest.mark.parametrize("before", [b"\r\n", b"sep=;\r\n", b"\n \n"])
def test_delimiter_is_that_of_the_first_line_with_text(tmp_path, before):
    pairs = [("Hello, world", "Hallo, Welt"), ("Yes, I do", "Ja, ich will")]
    table = comma_separated([("de", "en"), *(pair[::-1] for pair in pairs)], delimiter=";")
    assert read(write(tmp_path / "a.csv", before + table)) == pairs


@pytest.mark.parametrize("kind", ["tsv", "csv", "parquet", "dataset"])
@pytest.mark.parametrize(
    ("header", "columns"),
    [
        (("id", " De ", "en_GB"), {}),
        (("source_id", "target", "source"), {}),
        (("id", "German", "English"), {"source_column": "English", "target_column": "German"}),
        (("id", "de", "en"), {"source_column": "3", "target_column": 2}),
        (("en", "German", "x"), {"source_column": 3, "target_column": "German"}),
    ],
)
def test_columns_are_found_by_name_or_number(tmp_path, kind, header, columns):
    rows = [(str(n), target, source) for n, (source, target) in enumerate(ONE_LINE)]
    if kind in ("tsv", "csv"):
        content = (tsv if kind == "tsv" else comma_separated)([header, *rows])
        assert read(write(tmp_path / f"a.{kind}", content), **columns) == ONE_LINE
        return
    names = [name.strip() for name in header]
    table = datasets.Dataset.from_dict(dict(zip(names, zip(*rows, strict=True), strict=True)))
    if kind == "parquet":
        table.to_parquet(tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet" if kind == "parquet" else table, **columns) == ONE_LINE


def test_each_file_of_a_folder_is_read_as_if_given_alone(tmp_path, caplog):
    folder = tmp_path / "set"
    folder.mkdir()
    write(folder / "a.csv", b"de,en,score\nb,a,1\nd,c,0.5\n")
    write(folder / "b.jsonl", b'{"en": "e", "de": "f"}\n{"fr": "a"}\n')
    for name in ("README.md", "notes.md", "x.en"):
        write(folder / name, b"Pairs.")
    pairs = [("a", "b"), ("c", "d"), ("e", "f")]
    reader = read_pairs(folder, **LANGUAGES, split="all")
    assert list(reader) == pairs
    assert reader.num_malformed == 1
    assert reader.examples[0].startswith(f"{folder / 'b.jsonl'}:2: no ")
    assert "ignored ['notes.md', 'x.en']" in caplog.text
    datasets.Dataset.from_dict({"fr": ["a"]}).to_parquet(folder / "c.parquet")
    with pytest.raises(
        ValueError, match=r"c\.parquet: there are no two columns of text among \['fr'\]"
    ):
        read(folder, split="all")


@pytest.mark.parametrize("kind", ["large_string", "string_view", "dictionary"])
def test_parquet_files_may_hold_each_kind_of_text(tmp_path, kind):
    types = {
        **{name: getattr(pa, name)() for name in ("large_string", "string_view")},
        "dictionary": pa.dictionary(pa.int32(), pa.string()),
    }
    sides = zip(("en", "de"), zip(*PAIRS, strict=True), strict=True)
    columns = {name: pa.array(side).cast(types[kind]) for name, side in sides}
    objects = pa.StructArray.from_arrays([*columns.values()], [*columns])
    for names in (columns, {"translation": objects}):
        pq.write_table(pa.table(names), tmp_path / "a.parquet")
        assert read(tmp_path / "a.parquet") == PAIRS


NAMED = {"source_column": "English", "target_column": "German"}
TATOEBA = b"1276\tLet's go!\t77\tGehen wir!\n"
READ = [  # a name, content and options; the pairs
    ("a.tsv", b'"open\tzu\n"a"\t""\n5" pipe\tx,y\n', {}, ['"open zu', '"a" ""', '5" pipe x,y']),
    ("a.tsv", b"\n \nEnglish\tGerman\na\tb\n", NAMED, ["a b"]),
    ("a.csv", b"\n \nEnglish,German\na,b\n", NAMED, ["a b"]),
    ("a.csv", b'"en"\t"de"\n"a"\t"b"\n', {}, ["a b"]),
    ("a.tsv", b"a\tb\n" * 2 + b"one\n" * 2 + b"\n" * 9, {}, ["a b", "a b"]),
    (
        "a.tsv",
        b"Open <tmx>.\t<tmx>\n01:02:03,004 --> x\ty\n",
        {},
        ["Open <tmx>. <tmx>", "01:02:03,004 --> x y"],
    ),
    ("a.tsv", b"x\nA dog.\tEin Hund.\nOne.\tEins.\n", {}, ["A dog. Ein Hund.", "One. Eins."]),
    ("a.tsv", b"A dog.\t\tEin Hund.\n" * 2, {"source_column": 1, "target_column": 2}, []),
    ("a.jsonl", b'{"en": "a", "de": "b", "": ""}\n', {}, ["a b"]),
    ("a.tsv", TATOEBA, {}, ["Let's go! Gehen wir!"]),
    ("a.tsv", b"12\tzw\xc3\xb6lf\n", {"source_column": 1, "target_column": 2}, ["12 zw\u00f6lf"]),
    ("a.tsv", b"id\ten\tX\n1\ta\tb\n", {"source_column": 2, "target_column": 3}, ["a b"]),
    ("a.jsonl", b'{"source": "a", "target": "b"}\n', {}, ["a b"]),
    ("a.jsonl", b'{"en": "c", "de": "d", "source": "x", "target": ""}\n', {}, ["c d"]),
    ("a.jsonl", b'["a", "b"]\n["c", "d"]\n' * 2 + b'["e", "f", 3]\n[4]\n', {}, ["a b", "c d"] * 2),
    (
        *("a.jsonl", b'{"text": "a", "translation": "b"}\n'),
        *({"source_column": "text", "target_column": "translation"}, ["a b"]),
    ),
    (
        *("a.jsonl", b'{"translation": {"de": "b", "en": "a"}}\n'),
        *({"source_column": "en", "target_column": "de"}, ["a b"]),
    ),
]


@pytest.mark.parametrize(("name", "content", "options", "pairs"), READ)
def test_unusual_files_give_their_pairs(tmp_path, name, content, options, pairs):
    found = read(write(tmp_path / name, content), **options)
    assert [" ".join(pair) for pair in found] == pairs


@pytest.mark.parametrize(
    "stray",
    [
        b'"5 minutes,5 Minuten',  # nothing closes the quote
        b'"a,b\n"c","d"',  # the next cell does, in its middle
        b'"a,' + b"x" * 200_000,  # no cell may be that long
    ],
)
def test_stray_quote_costs_one_line(tmp_path, stray):
    after = [(f"a{number}", f"b{number}") for number in range(300)]
    content = b"A0,B0\n" + stray + b"\n" + comma_separated(after)
    reader = read_pairs(write(tmp_path / "a.csv", content), **LANGUAGES)
    expected = [("c", "d"), *after] if b"\n" in stray else after
    assert list(reader) == [("A0", "B0"), *expected]
    assert reader.num_malformed == 1
    assert reader.examples[0].startswith(f"{tmp_path / 'a.csv'}:2: ")


@pytest.mark.parametrize(
    ("name", "content", "pairs", "number", "complaint"),
    [
        (
            *("a.tsv", b"a\tb\nc\tx\td\ne\tf\t\n", [("a", "b"), ("e", "f")]),
            *(2, "3 columns, not 2; quote a cell that has"),
        ),
        (
            *("a.csv", b"en,de\nHello, world,Hallo Welt\nGood,Gut\na,b,\n"),
            *([("Good", "Gut"), ("a", "b")], 2, "3 columns, not 2; quote a cell that has"),
        ),
        # The line that names the delimiter is not malformed.
        ("a.csv", b"sep=;\r\nen;de\r\na;b\r\nc;\r\n", [("a", "b")], 4, "the target is empty"),
    ],
)
def test_a_bad_row_is_named_and_costs_one_line(tmp_path, name, content, pairs, number, complaint):
    path = write(tmp_path / name, content)
    reader = read_pairs(path, **LANGUAGES)
    assert list(reader) == pairs
    (example,) = reader.examples
    assert example.startswith(f"{path}:{number}: {complaint}")


def test_columns_named_after_the_languages_come_before_a_text_named_translation(tmp_path):
    table = datasets.Dataset.from_dict({"en": ["a"], "de": ["b"], "translation": ["x"]})
    assert read(table) == [("a", "b")]
    table.to_parquet(tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == [("a", "b")]


def test_rows_of_a_stream_may_differ_in_columns_and_types():
    rows = [*({"en": a, "de": b} for a, b in PAIRS), {"en": "x"}, {"en": 1, "de": "y", "z": 2}]
    reader = read_pairs(datasets.IterableDataset.from_generator(lambda: iter(rows)), **LANGUAGES)
    assert (list(reader), reader.num_malformed) == (PAIRS, 2)


@pytest.mark.parametrize("names", ["k{n}", "k"])
def test_records_may_have_other_names_beside_the_sides(tmp_path, names):
    """Other ones in each row, or one that only a row beyond the sample has."""
    rows = [{"en": f"a {n}", "de": f"b {n}"} for n in range(2102)]
    for n, row in enumerate(rows):
        row |= {names.format(n=n): 1} if n == 2101 or "n" in names else {}
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)).encode())
    assert read(path) == [(row["en"], row["de"]) for row in rows]


@pytest.mark.parametrize("kind", ["parquet", "data set", "stream"])
def test_only_columns_that_are_needed_are_read(tmp_path, kind, monkeypatch):
    """The others may hold images, which take time and may be damaged, or long documents."""
    texts = [(f"A dog, {n}.", f"Ein Hund, {n}.") for n in range(5000)]
    sides = dict(zip(("en", "de"), zip(*texts, strict=True), strict=True))
    others = {"image": [b"no image"] * 5000, "document": ["A dog. " * 9] * 5000}
    table = datasets.Dataset.from_dict(others | sides).cast_column("image", datasets.Image())
    table.to_parquet(tmp_path / "a.parquet")
    sources = {"parquet": tmp_path / "a.parquet", "data set": table}
    sources["stream"] = table.to_iterable_dataset()
    chosen = []

    def spy(kind, name, place):
        method = getattr(kind, name)

        def call(self, *arguments, **options):
            chosen.append(options.get("columns") or arguments[place])
            return method(self, *arguments, **options)

        monkeypatch.setattr(kind, name, call)

    spy(pq.ParquetFile, "iter_batches", 1)
    spy(datasets.Dataset, "select_columns", 0)
    spy(datasets.IterableDataset, "select_columns", 0)
    assert read(sources[kind]) == texts
    assert [{*each} - {"image.path"} for each in chosen] == [{"de", "document", "en"}, {"de", "en"}]


def test_multi_line_rows_are_limited_to_1_mib(tmp_path):
    row = b",".join(b'"' + b"x" * 100_000 + b'\n"' for _ in range(30))
    path = write(tmp_path / "a.csv", b'"a","b"\n' * 2000 + row)
    reader = read_pairs(path, **LANGUAGES)
    assert list(reader) == [("a", "b")] * 2000
    assert reader.examples[0].startswith(f"{path}:2001: the row is longer than 1 MiB")


def test_error_for_missing_columns_lists_the_existing_ones(tmp_path):
    path = write(tmp_path / "a.csv", b"id,English,German\n1,a,b\n")
    with pytest.raises(
        RequestError, match=r"no column 'Engl'; name two of \['id', 'English', 'Ger"
    ):
        read(path, source_column="Engl", target_column="German")
    numbers = datasets.Dataset.from_dict({"x": [1], "y": [2.5]})
    numbers.to_parquet(tmp_path / "n.parquet")
    for source in (numbers, numbers.to_iterable_dataset(), tmp_path / "n.parquet"):
        with pytest.raises(RequestError, match=r"no two columns of text among \['x', 'y'\]"):
            read(source)
    datasets.Dataset.from_dict({"x": ["a"], "y": ["b"]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(RequestError, match=r"no column 3; name two of \['x', 'y'\]"):
        read(tmp_path / "a.parquet", source_column=1, target_column=3)


# ------------------------------------------------------------------------------------ refusals

WHOLE = gzip.compress(json_lines(PAIRS * 5000))
HALF = len(WHOLE) // 2
REFUSED_FILES = [
    ("a.json", b'[{"en": "a", "de": "b"},\n{"en": "c", "de"', "is not a complete JSON array"),
    ("a.jsonl.gz", WHOLE[:-20], r"a\.jsonl\.gz is damaged or cut off"),
    ("a.jsonl.gz", WHOLE + b"more", r"is damaged or cut off .*; copy it again"),
    ("a.jsonl.gz", WHOLE[:HALF] + bytes([WHOLE[HALF] ^ 255]) + WHOLE[HALF + 1 :], "damaged"),
    ("a.tsv", b"id\tTarget\n1\ta\n", r"no two columns of text among \['id', 'Target'\]"),
    ("a.tsv", b"a\tb\rc\td\r", r"ends lines with CR alone.*tr '\\r' '\\n'\.$"),
    ("a.jsonl", b"a\tb\rc\td\r", "ends lines with CR alone"),
    ("a.tsv", b"one\n" * 30 + b"a\tb\n" * 9, r"no two columns of text among"),
    (
        "a.zst",
        b"\x28\xb5\x2f\xfd" + bytes(range(256)) * 9,
        "is packed, binary or UTF-16; unpack it, or convert",
    ),
    ("a.parquet", b"PAR1 and no more", r"a\.parquet cannot be read as parquet .*\(.*\); copy"),
]


@pytest.mark.parametrize(("name", "content", "message"), REFUSED_FILES)
def test_files_that_are_not_what_they_should_be_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    for path in (tmp_path / name, str(tmp_path / name)):
        with pytest.raises(RequestError, match=message):
            read(path)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".bz2"])
def test_packed_files_are_unpacked_whatever_their_name(tmp_path, pack, suffix):
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(pack(json_lines(PAIRS[:2])) + pack(json_lines(PAIRS[2:])))
    assert read(path) == PAIRS
    for side, language in enumerate(("en", "de")):
        text = "".join(pair[side] + "\n" for pair in ONE_LINE)
        (tmp_path / f"a.{language}{suffix}").write_bytes(pack(text.encode()))
    assert read((tmp_path / f"a.en{suffix}", tmp_path / f"a.de{suffix}")) == ONE_LINE


def test_padding_between_and_behind_streams_is_passed_over(tmp_path):
    first, second = map(lzma.compress, (json_lines(PAIRS[:1]), json_lines(PAIRS[1:])))
    path = write(tmp_path / "a.jsonl.xz", first + bytes(8) + second + bytes(2**17))
    assert read(path) == PAIRS


@pytest.mark.parametrize(
    ("source", "target"), [("a", None), (None, 2), (0, 1), (-1, 1), ("", "b"), (1, "1")]
)
def test_two_different_columns_must_be_given_together(tmp_path, source, target):
    path = write(tmp_path / "a.tsv", b"a\tb\n")
    with pytest.raises(RequestError, match=re.escape(f"got {(source, target)}; give two")):
        read_pairs(path, **LANGUAGES, source_column=source, target_column=target)


@given(st.lists(st.tuples(st.text(), st.text(), st.text()), max_size=5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_cells_written_as_csv_are_read_back(tmp_path_factory, rows, quoted):
    """Except carriage returns, control characters and surrogates, which the test removes.

    They stand below some sentences, as a header above numbers alone is refused. So is a small file
    with many control characters, which may be packed.
    """
    rows = [("A dog.", "Ein Hund.", "x"), ("A big cat.", "Eine Katze.", "y")] * 3 + rows
    rows = [tuple(re.sub("[\r\0-\b\x0e-\x1f\ud800-\udfff]", "", it) for it in row) for row in rows]
    quoting = csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
    content = comma_separated([("en", "de", "more"), *rows], quoting=quoting)
    path = write(tmp_path_factory.mktemp("any") / "a.csv", content)
    assert read(path) == [row[:2] for row in rows if not any(map(is_empty, row[:2]))]
