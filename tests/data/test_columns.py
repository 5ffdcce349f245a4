"""Pairs in tables as people write them: read right, or refused, never with wrong sides.

The forms follow public descriptions of corpora and exports; the sentences are our own.
"""

import csv
import gzip
import io
import itertools
import json
import logging
import re
import socket
import timeit
import zipfile
from collections import Counter
from pathlib import Path

import datasets
import pytest

from vanilla_transformer.cli import main
from vanilla_transformer.data import load_pairs, read_pairs
from vanilla_transformer.data.columns import Table, sampled
from vanilla_transformer.data.doubts import KINDS, doubtful
from vanilla_transformer.data.examination import odd_texts
from vanilla_transformer.data.selection import clean_pairs
from vanilla_transformer.errors import RequestError

SHARED = Path(__file__).parents[3] / "shared" / "data"
with (Path(__file__).parent / "sentences.tsv").open(encoding="utf-8", newline="") as lines:
    ROWS = [*csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)]
SENTENCES = {language: [row[language] for row in ROWS] for language in ROWS[0]}
PAIRS = [("en", "de"), ("en", "zh"), ("da", "no"), ("cs", "sk"), ("pt", "es"), ("ru", "uk")]
COUNT = 10
NAMES = {  # in English, of three letters, a locale, in the language itself
    "en": ("English", "eng", "en_GB", "English"),
    "de": ("German", "deu", "de_AT", "Deutsch"),
    "zh": ("Chinese", "zho", "zh_CN", "中文"),
    "da": ("Danish", "dan", "da_DK", "dansk"),
    "no": ("Norwegian", "nor", "no_NO", "norsk"),
    "cs": ("Czech", "ces", "cs_CZ", "čeština"),
    "sk": ("Slovak", "slk", "sk_SK", "slovenčina"),
    "pt": ("Portuguese", "por", "pt_BR", "português"),
    "es": ("Spanish", "spa", "es_ES", "español"),
    "ru": ("Russian", "rus", "ru_RU", "русский"),
    "uk": ("Ukrainian", "ukr", "uk_UA", "українська"),
}


def column(form):
    return [form.format(n=n, m=(7 * n) % COUNT) for n in range(COUNT)]


IDS, SCORES, KEYS = column("{n}"), column("0.9{m}13"), column("page.item_{n}")
LINKS = column("https://www.example.org/en/{n}.html")
OTHER_LINKS = column("https://www.example.org/de/{n}.html")
LICENCES = column("CC-BY 2.0 (France) Attribution: tatoeba.org #{n}77 (CK) & #{n}12 (Someone)")
TOPICS, WORKERS = ["travel", "home"] * 5, column("worker_{m}")
DATES, YES, EMPTY = column("2024-01-0{n}"), ["yes"] * COUNT, [""] * COUNT
A, B = "a", "b"  # the two languages of a file in its order
# Columns of a form, and its header as a function of the two codes; None without one.
COLUMNS = {
    "two texts": ([A, B], None),
    "a score behind": ([A, B, SCORES], None),
    "a score before": ([SCORES, A, B], None),
    "three scores and a link": ([A, B, SCORES, SCORES, LINKS], None),
    "two links before": ([LINKS, OTHER_LINKS, A, B], None),
    "bicleaner": ([LINKS, LINKS, A, B, SCORES, SCORES], None),
    "ids before each": ([IDS, A, column("9{n}"), B], None),
    "a licence behind": ([A, B, LICENCES], None),
    "a constant before": ([["train"] * COUNT, A, B], None),
    "a topic behind": ([A, B, TOPICS], None),
    "dates": ([DATES, A, B], lambda a, b: ["when", a, b]),
    "codes": ([A, B], lambda a, b: [a, b]),
    "codes in capitals": ([A, B], lambda a, b: [a.upper(), b.upper()]),
    "English names": ([A, B], lambda a, b: [NAMES[a][0], NAMES[b][0]]),
    "codes of three letters": ([A, B], lambda a, b: [NAMES[a][1], NAMES[b][1]]),
    "locales": ([A, B], lambda a, b: [NAMES[a][2], NAMES[b][2]]),
    "own names": ([A, B], lambda a, b: [NAMES[a][3], NAMES[b][3]]),
    "an id and codes": ([IDS, A, B], lambda a, b: ["id", a, b]),
    "pandas": ([IDS, A, B], lambda a, b: ["", a, b]),
    "pandas twice": ([IDS, IDS, A, B], lambda a, b: ["", "Unnamed: 0", a, b]),
    "pandas without names": ([A, B], lambda a, b: ["0", "1"]),
    "x and y": ([A, B], lambda a, b: ["x", "y"]),
    "sentence1 and sentence2": ([A, B], lambda a, b: ["sentence1", "sentence2"]),
    "codes among words": ([A, B], lambda a, b: [f"text_{a}", f"text_{b}"]),
    "codes before words": ([A, B], lambda a, b: [f"{a}_text", f"{b}_text"]),
    "names in brackets": ([A, B], lambda a, b: [f"Text ({a})", f"Text ({b})"]),
    "FLORES": ([IDS, A, B], lambda a, b: ["id", *(f"sentence_{NAMES[c][1]}" for c in (a, b))]),
    "keys": ([KEYS, A, B], lambda a, b: ["key", a, b]),
    "keys and comments": ([KEYS, EMPTY, A, B], lambda a, b: ["key", "comment", a, b]),
    "languages under names": ([A, B, "code a", "code b"], lambda a, b: ["x", "y", "lx", "ly"]),
    "a direction": (["codes", A, B], lambda a, b: ["lp", "text", "reference"]),
    "annotators": ([IDS, WORKERS, A, B, YES], lambda a, b: ["HIT", "worker", a, b, "ok"]),
    "a topic": ([TOPICS, A, B], lambda a, b: ["topic", a, b]),
    "empty columns": ([A, EMPTY, B, EMPTY], lambda a, b: [a, "", b, ""]),
}
WRITTEN = {  # how a table of cells becomes a file
    ".tsv": lambda rows: "".join("\t".join(row) + "\n" for row in rows),
    ".txt": lambda rows: "".join("\t".join(row) + "\n" for row in rows),
    ".csv": lambda rows: separated(rows, delimiter=","),
    ";.csv": lambda rows: "\ufeff" + separated(rows, delimiter=";", quoting=csv.QUOTE_ALL),
    ".jsonl": None,
}


def separated(rows, **dialect):
    text = io.StringIO(newline="")
    csv.writer(text, **dialect).writerows(rows)
    return text.getvalue()


def written(path, form, a, b, kind):
    """Write a file in a form, with the languages in this order; return it, and whether it has a
    header."""
    columns, header = COLUMNS[form]
    known = {
        A: SENTENCES[a],
        B: SENTENCES[b],
        "code a": [a] * COUNT,
        "code b": [b] * COUNT,
        "codes": [f"{a}-{b}"] * COUNT,
    }
    rows = [*zip(*(known.get(c, c) if isinstance(c, str) else c for c in columns), strict=True)]
    names = header and header(a, b)
    file = path.with_name(path.name + kind.replace(";", "_"))
    if kind == ".jsonl":
        names = names or [f"f{n}" for n in range(len(columns))]
        objects = [dict(zip(names, row, strict=True)) for row in rows]
        file.write_text("".join(json.dumps(each) + "\n" for each in objects), "utf-8")
        return file, False
    file.write_text(WRITTEN[kind]([*([names] if names else []), *rows]), "utf-8")
    return file, header is not None


def test_no_form_gives_a_wrong_pair(tmp_path):
    """In both orders of the file and both directions: 204 forms, each in one of five formats.

    Counted apart are a header that is read as a pair, a first pair that is lost, and questions.
    """
    counts, wrong = Counter(), []
    for number, (form, (a, b)) in enumerate(itertools.product(COLUMNS, PAIRS)):
        kind = [*WRITTEN][number % len(WRITTEN)]
        for first, second in ((a, b), (b, a)):
            file, has_header = written(tmp_path / "t", form, first, second, kind)
            for pair in ((a, b), (b, a)):
                counts["all"] += 1
                true = [*zip(SENTENCES[pair[0]], SENTENCES[pair[1]], strict=True)]
                try:
                    found = list(read_pairs(file, source_language=pair[0], target_language=pair[1]))
                except RequestError:
                    counts["questions"] += 1
                    counts[form, "question"] += 1
                    continue
                if has_header and len(found) == COUNT + 1:
                    counts["header kept"] += 1
                    found = found[1:]
                if found == true[1:]:
                    counts["first pair lost"] += 1
                elif found != true:
                    wrong.append((form, file.name, first, second, pair, found[:2]))
    assert not wrong, wrong[:5]
    assert counts["header kept"] + counts["first pair lost"] <= 0.02 * counts["all"], counts
    assert counts["questions"] <= 0.05 * counts["all"], counts


@pytest.mark.parametrize("kind", [".csv", ".jsonl"])
@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_content_wins_over_names_and_names_over_the_order(tmp_path, kind, a, b):
    """Names that are above the other language are wrong; short texts are known by their names."""
    rows = [*zip(SENTENCES[a], SENTENCES[b], strict=True)]
    assert read(table_of(tmp_path, [b, a], rows, kind), a, b) == rows
    words = [("OK", "OK"), ("Tom", "Tom!"), ("Kiwi", "Kiwi"), ("Taxi 1", "Taxi 2")]
    assert read(table_of(tmp_path, [a, b], words, kind), a, b) == words
    assert read(table_of(tmp_path, [b, a], words, kind), a, b) == [word[::-1] for word in words]
    assert read(table_of(tmp_path, None, words, ".csv"), a, b) == words


def test_languages_that_the_identifier_does_not_know_are_told_from_the_other(tmp_path):
    """By the one that it knows: nothing here is English but the English column."""
    fur = ["Il museu al vierç aes dîs.", "E à pierdût di gnûf lis clâfs.", "Dulà ise la stazion?"]
    rows = [*zip(EN, fur, strict=False)]
    assert read(table_of(tmp_path, None, rows, ".csv"), "en", "fur") == rows
    turned = table_of(tmp_path, None, [row[::-1] for row in rows], ".csv")
    assert read(turned, "en", "fur") == rows


def table_of(folder, names, rows, kind):
    file = folder / f"table{kind}"
    if kind == ".jsonl":
        lines = (json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
        file.write_text("".join(lines), "utf-8")
    else:
        file.write_text(separated([*([names] if names else []), *rows]), "utf-8")
    return file


def read(source, a="en", b="de", **options):
    return list(read_pairs(source, source_language=a, target_language=b, **options))


EN, DE = SENTENCES["en"], SENTENCES["de"]
BOTH = [*zip(EN, DE, strict=True)]
FORMS = {  # whose columns were mistaken once
    "names of languages as texts": [("lang.switch", "Deutsch", "English")]
    + [(f"page.{n}", *pair) for n, pair in enumerate(BOTH)],
    "a pair of names inside": [*BOTH[:4], ("German", "Deutsch"), *BOTH[4:]],
    "languages in links": [
        (f"http://a.org/en/{n}", f"http://a.org/de/{n}", *pair) for n, pair in enumerate(BOTH)
    ],
    "a title": [("Export 2024", "", ""), ("", "", ""), ("id", "en", "de")]
    + [(str(n), *pair) for n, pair in enumerate(BOTH)],
    "names that are repeated": [("en", "de", *pair) for pair in BOTH],
}


@pytest.mark.parametrize("form", FORMS)
def test_columns_are_judged_by_all_rows(tmp_path, form):
    rows = FORMS[form]
    path = tmp_path / "t.csv"
    for direction, true in ((("en", "de"), BOTH), (("de", "en"), [p[::-1] for p in BOTH])):
        path.write_text(separated(rows), "utf-8")
        found = read(path, *direction)
        assert [pair for pair in found if pair in true] == true
        assert len(found) <= len(true) + 1  # names of languages are a pair as well as others


def test_the_option_that_a_question_shows_works_as_shown(tmp_path):
    """Also below a header, which is not read as a pair."""
    rows = [(en, de, f"{en[:-1]}, {n}.") for n, (en, de) in enumerate(BOTH)]
    for names in (None, ["one", "two", "three"]):
        file = table_of(tmp_path, names, rows, ".csv")
        with pytest.raises(RequestError, match="it is not clear which columns are en and de") as e:
            read(file)
        assert EN[0][:15] in e.value.__notes__[0]
        options = re.findall(r"--(source|target)-column (\d)", str(e.value))
        found = read(file, **{f"{side}_column": int(number) for side, number in options})
        assert found == BOTH


def test_columns_that_the_user_names_win_with_a_warning(tmp_path):
    for names, columns in ((["a", "b"], ("b", "a")), (None, (2, 1)), (["en", "de"], ("2", "1"))):
        reader = read_pairs(
            table_of(tmp_path, names, BOTH, ".csv"),
            **{"source_language": "en", "target_language": "de"},
            **{"source_column": columns[0], "target_column": columns[1]},
        )
        assert list(reader) == [pair[::-1] for pair in BOTH]
        assert re.search(r"en and de look swapped \(column [12]: \d% en, \d\d", reader.notes[0])
    names = ["id", "en", "de"]
    rows = [(n, *pair) for n, pair in enumerate(BOTH)]
    found = read(table_of(tmp_path, names, rows, ".csv"), source_column="en", target_column="de")
    assert found == BOTH


@pytest.mark.parametrize("kind", [".csv", ".jsonl"])
def test_tasks_without_languages_have_named_or_ordered_columns(tmp_path, kind):
    rows = [(f"{n} + {n}", f"{2 * n}", "sum") for n in range(30)]
    for names in (["question", "answer", "kind"], ["source", "target", "kind"]):
        file = table_of(tmp_path, names, rows, kind)
        assert read(file, *names[:2]) == [row[:2] for row in rows]
        assert read(file, names[1], names[0]) == [row[1::-1] for row in rows]
    words = [(word, " ".join(word.upper())) for word in ("hello", "world", "again") * 10]
    assert read(table_of(tmp_path, None, words, ".csv"), "word", "phonemes") == words
    sentiment = [(text, ("good", "bad")[n % 2]) for n, text in enumerate(EN * 5)]
    file = table_of(tmp_path, ["text", "label"], sentiment, kind)
    assert read(file, "text", "label") == sentiment
    assert len(load_pairs(file, **languages("text", "label"), **QUIET, cache_dir=tmp_path)) == 50


QUIET = {"show_progress": False}


def languages(a="en", b="de"):
    return {"source_language": a, "target_language": b}


# ------------------------------------------------------------------------- doubtful pairs


PLACEHOLDERS = ["__NULL__", "\\N", "nan", "#N/A", "Loading...", "[TODO]", "<missing>"]


def test_doubtful_pairs_are_counted_by_kind():
    pairs = [
        (f"{en[:-1]} {n}{en[-1]}", f"{de[:-1]} {n}{de[-1]}") for n in range(20) for en, de in BOTH
    ]
    for number, text in enumerate(PLACEHOLDERS):
        for row in range(number, 20 * len(PLACEHOLDERS), len(PLACEHOLDERS)):
            pairs[row] = (pairs[row][0], text)
    pairs[150:154] = [pair[::-1] for pair in pairs[150:154]]
    pairs[160:163] = [(source, source) for source, _ in pairs[160:163]]
    pairs[170:174] = [(source, spanish) for (source, _), spanish in zip(
        pairs[170:174], SENTENCES["es"], strict=False
    )]  # fmt: skip
    kinds = doubtful(*zip(*pairs, strict=True), ("en", "de"))
    names = [None, *KINDS]
    expected = ["placeholders"] * 140 + [None] * 10 + ["swapped"] * 4 + [None] * 6
    expected += ["equal"] * 3 + [None] * 7 + ["foreign"] * 4 + [None] * 26
    assert [names[kind] for kind in kinds] == expected
    assert not doubtful(*zip(*BOTH, strict=True), ("question", "answer")).any()


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_honest_pairs_are_not_doubtful(a, b):
    assert not doubtful(SENTENCES[a], SENTENCES[b], (a, b)).any()
    short = [(f"Beat it, {n}!", "Hau ab!" if n % 40 else "Ja.") for n in range(300)]
    assert not doubtful(
        *zip(*[*short[:8], *short[40:48], *BOTH * 20], strict=True), ("en", "de")
    ).any()
    paraphrases = [*zip(EN, EN[1:] + EN[:1], strict=True)]
    assert not doubtful(*zip(*paraphrases, strict=True), ("en", "en")).any()


def test_cleaning_drops_doubtful_pairs_and_loading_tells_them(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    swapped = [pair[::-1] for pair in BOTH[:2]]
    numbered = [(f"{n}. {en}", f"{n}. {de}") for n in range(4) for en, de in BOTH]
    file = table_of(tmp_path, ["en", "de"], [*numbered, *swapped], ".csv")
    dataset = load_pairs(file, **languages(), **QUIET, cache_dir=tmp_path / "c")
    assert f"2 with the two sides swapped, such as {swapped[0][0]!r} -> " in caplog.text
    clean = clean_pairs(dataset, ("en", "de"))
    assert [tuple(row.values()) for row in clean] == numbered


@pytest.mark.parametrize("form", ["{}.txt", "part.{}"])
def test_two_files_in_the_wrong_order_are_refused_whatever_their_names(tmp_path, form):
    paths = [tmp_path / form.format(name) for name in ("en", "de")]
    for path, texts in zip(paths, (DE, EN), strict=True):
        path.write_text("".join(f"{text}\n" for text in texts), "utf-8")
    message = r"Of 10 inspected pairs of .*: \d+ with the two sides swapped.*, or give --pair de-en"
    with pytest.raises(RequestError, match=message):
        load_pairs(tuple(paths), **languages(), **QUIET, cache_dir=tmp_path / "c")
    found = load_pairs(tuple(paths), **languages("de", "en"), **QUIET, cache_dir=tmp_path / "c")
    assert found["target"][:] == EN


def test_the_command_data_tells_what_a_file_holds(tmp_path, capsys):
    rows = [*BOTH, ("Tom &amp; Al", "Tom@@ as"), ("A cafe.", "Das CafÃ©."), BOTH[0], (DE[1], EN[1])]
    file = table_of(tmp_path, ["en", "de"], rows, ".csv")
    assert main(["data", str(file), "--pair", "en-de"]) == 0
    printed = capsys.readouterr().out
    for told in (
        f"en: {EN[0]}\nde: {DE[0]}",
        "14 pairs read",
        "--clean would leave out 1 of 14 pairs, and the doubtful ones:",
        "1 with the two sides swapped",
        "source: 1 with character entities, such as: Tom &amp; Al",
        "target: 1 with pieces of words",
        "target: 1 with mojibake",
    ):
        assert told in printed, told


def test_signs_in_many_training_pairs_give_a_warning():
    for count, warnings in ((10, 0), (11, 1)):
        texts = ["Tom &amp; Mary" if n % 100 < count else f"{n} & so on." for n in range(3000)]
        numbers = [f"{n}." for n in range(3000)]
        pairs = datasets.Dataset.from_dict({"source": numbers, "target": texts})
        found = [*odd_texts(pairs)]
        assert len(found) == warnings
        assert all("11% of training pairs have character entities" in each for each in found)


# ---------------------------------------------------------------------- formats and dialects


def test_containers_with_one_table_or_pair_of_texts_give_their_pairs(tmp_path):
    text = "".join("\t".join(pair) + "\n" for pair in BOTH)
    sides = {f"corpus.{code}": "".join(f"{t}\n" for t in SENTENCES[code]) for code in ("en", "de")}
    for name, members in (("t", {"t.tsv": text}), ("s", {"README": "about", **sides})):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            for member, content in members.items():
                archive.writestr(member, content)
                (tmp_path / name).mkdir(exist_ok=True)
                (tmp_path / name / member).write_text(content, "utf-8")
        assert read(tmp_path / f"{name}.zip") == BOTH
        assert read(str(tmp_path / name), split="all") == BOTH
    rows = [dict(zip(("x", "y"), pair, strict=True)) for pair in BOTH]
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=2), "utf-8")
    (tmp_path / "lists.jsonl").write_text("".join(json.dumps(p) + "\n" for p in BOTH), "utf-8")
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "saved")
    datasets.DatasetDict(train=datasets.Dataset.from_list(rows)).save_to_disk(tmp_path / "dict")
    (tmp_path / "16.csv").write_text(separated(BOTH), "utf-16")
    (tmp_path / "bars.txt").write_text("".join(f"{a} ||| {b}\n" for a, b in BOTH), "utf-8")
    for name in ("a.json", "lists.jsonl", "saved", "dict", "16.csv", "bars.txt"):
        assert read(str(tmp_path / name)) == BOTH, name


NO_TEXTS = {
    "strings": '"page.{n}" = "{t}";',
    "properties": "page.{n}={t}",
    "yml": '  page_{n}: "{t}"',
    "po": 'msgid "page.{n}"\nmsgstr "{t}"\n',
    "ass": "Dialogue: 0,0:00:0{n}.00,0:00:09.00,Default,,0,0,0,,{t}",
    "sub": "{{{n}0}}{{{n}9}}{t}",
    "nbest": "{n} ||| {t} ||| F0= -1.2 ||| -0.3",
    "base64": "aGVsbG8gd29ybGQgdGhpcyBpcyBh{n}",
    "ids": "en/{n}.xml.gz\tde/{n}.xml.gz\t1\t1",
}


@pytest.mark.parametrize("kind", NO_TEXTS)
def test_files_that_are_no_texts_are_not_read_as_texts(tmp_path, kind):
    paths = tmp_path / f"a.en.{kind}", tmp_path / f"a.de.{kind}"
    for path, texts in zip(paths, (EN, DE), strict=True):
        lines = (NO_TEXTS[kind].format(n=n, t=text) for n, text in enumerate(texts))
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    with pytest.raises(RequestError, match="not one sentence a line"):
        read(paths)


def test_repetitive_translations_and_a_few_labels_are_sentences(tmp_path):
    """Nine lines are too few to tell; in more, each kind of sign has to be in most of them."""
    speakers, same = ["Tom: Yes.", "Mary: Yes.", "#metoo"] * 3, ["Yes.", "Yes."] * 20
    mixed = ["Tom: Yes.", "x = y", "Yes yes."] * 5
    for name, lines in (("speakers", speakers), ("same", same), ("mixed", mixed)):
        (tmp_path / name).write_text("\n".join(lines), "utf-8")
        assert read((tmp_path / name, tmp_path / name)) == [*zip(lines, lines, strict=True)], name


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.txt"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
def test_dialects_are_detected_from_all_rows(tmp_path, name, separator, quoting):
    """A quoted cell may come late, and have a separator, a quote or a line end in it."""
    late = [*BOTH * 300, (f"A{separator}b, said Tom.", 'Er sagte: "Ja"; sie auch.')]
    text = separated(late, delimiter=separator, quoting=quoting)
    (tmp_path / name).write_text(text, "utf-8")
    assert read(tmp_path / name) == late
    escaped = [(f'He said \\"{en}\\" to me', de) for en, de in BOTH]
    text = "".join(f'"{en}"{separator}"{de}"\n' for en, de in escaped)
    (tmp_path / name).write_text(text, "utf-8")
    assert read(tmp_path / name) == [(en.replace("\\", ""), de) for en, de in escaped]
    spaced = "".join(f'"{en}"{separator} "{de}"\n' for en, de in BOTH)
    (tmp_path / name).write_text(spaced, "utf-8")
    assert read(tmp_path / name) == BOTH


def test_quotes_of_texts_stay(tmp_path):
    rows = [(f'"{en[:-1]}," he said.', f'"{de[:-1]}", sagte er.') for en, de in BOTH]
    (tmp_path / "a.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), "utf-8")
    assert read(tmp_path / "a.tsv") == rows


# --------------------------------------------------------------------------- time, network


NASTY = {
    "bars": lambda n: "|" * n,
    "quotes": lambda n: '"' * n,
    "commas": lambda n: "," * n,
    "spaces before a quote": lambda n: "a," + " " * n + 'x"',
    "brackets": lambda n: "[" * n,
    "backslashes": lambda n: "\\" * n + '"',
    "hyphens": lambda n: "en-" * n,
    "colons": lambda n: "a:" * n,
    "marks": lambda n: "\u0301" * n,
}


def seconds(function):
    """Return the least time of three calls."""
    return min(timeit.repeat(function, number=1, repeat=3))


@pytest.mark.parametrize("name", NASTY)
def test_time_is_linear_in_the_length_of_a_line(tmp_path, name):
    file = tmp_path / "a.tsv"

    def reading(length):
        line = NASTY[name](length)
        text = "".join("\t".join(pair) + "\n" for pair in BOTH) + f"{line}\t{line}\n"
        file.write_text(text, "utf-8")
        return lambda: len(read(file))

    short, long = seconds(reading(15_000)), seconds(reading(60_000))
    assert long < 8 * short + 0.3


def test_time_is_linear_in_the_number_of_columns():
    def judging(width):
        rows = [[f"{en} {n}" for n in range(width)] for en in EN * 5]
        columns = dict.fromkeys(("source_column", "target_column"))
        return lambda: Table(rows, ("en", "de"), False, "a table").find((1, 2)), columns

    short, long = seconds(judging(100)[0]), seconds(judging(400)[0])
    assert long < 8 * short + 0.3


def test_identification_needs_no_network(monkeypatch):
    def refused(*_):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refused)
    assert not doubtful(EN, DE, ("en", "de")).any()


def test_a_sample_is_spread_over_all_rows():
    for count in (5, 1000, 1999, 2000, 50_000):
        found = sampled(range(count))
        assert found[0] == 0
        assert len({after - before for before, after in itertools.pairwise(found)}) == 1
        assert min(count, 1000) <= len(found) < 2001
        assert found[-1] + (found[1] - found[0]) >= count


# ------------------------------------------------------------------------------ real corpora


@pytest.mark.skipif(not SHARED.is_dir(), reason="the corpora are not here")
def test_no_window_of_a_corpus_gives_a_wrong_pair(tmp_path):
    refused = 0
    for name, (a, b) in (
        ("tatoeba_deen/validation", ("en", "de")),
        ("tatoeba_cmnen/validation", ("zh", "en")),
        ("multi30k/validation", ("de", "fr")),
    ):
        with gzip.open(SHARED / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            pairs = [json.loads(line)["translation"] for line in lines]
        for number in range(60):
            size, at = (3, 12, 60)[number % 3], number * 13
            window = [(pair[a], pair[b]) for pair in pairs[at : at + size]]
            rows = [(n, *pair[:: 1 - 2 * (number % 2)]) for n, pair in enumerate(window)]
            file = table_of(tmp_path, [None, ["n", "x", "y"]][number // 4 % 2], rows, ".csv")
            try:
                found = read(file, a, b)
            except RequestError:
                refused += 1
                continue
            assert {*found} - {*window} <= {("x", "y"), ("y", "x")}
            assert {*window[1:]} <= {*found}
    assert refused <= 6
