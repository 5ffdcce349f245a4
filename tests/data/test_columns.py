"""Pairs in tables as the world writes them: read right, or refused with the rows shown."""

import bz2
import csv
import io
import itertools
import json
import re
import tarfile
import unicodedata
import zipfile
from contextlib import suppress

import pytest
from babel import Locale
from command_line import error_of
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from vanilla_transformer.cli import main
from vanilla_transformer.data import load_pairs, read_pairs
from vanilla_transformer.data.columns import find_sides
from vanilla_transformer.data.examination import doubts
from vanilla_transformer.data.language_names import language_of, script_of
from vanilla_transformer.data.tables import Dialect
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
CHINESE = [
    "博物馆十点开门。",
    "她又丢了钥匙。",
    "车站在那边。",
    "我们喝了汤。",
    "没有人接电话。",
    "我哥哥住在奥斯陆。",
]
PAIRS = list(zip(ENGLISH, GERMAN, strict=True))
COUNT = len(PAIRS)


def column(form):
    return [form.format(n=n) for n in range(COUNT)]


def table(*columns, header=None, above=()):
    return [*above, *([header] if header else []), *zip(*columns, strict=True)]


CAPTIONS = [[side[:-1] for side in sides] for sides in (ENGLISH, GERMAN)]
CAPTION_PAIRS = list(zip(*CAPTIONS, strict=True))
ALIKE = column("A man in clothes of colour {n} walks.")
SCORES, IDS = column("1.0{n}"), column("{n}")
LINKS = column("http://example.org/page/{n}")
LICENCES = column("CC-BY 2.0 (France) Attribution: tatoeba.org #{n}77 (CK) & #{n}12 (Someone)")
EN, DE = ["en"] * COUNT, ["de"] * COUNT
# The form of a public corpus, and its rows.
READ = {
    "two texts": table(ENGLISH, GERMAN),
    "WikiMatrix with languages": table(SCORES, ENGLISH, GERMAN, EN, DE),
    "CCMatrix": table(ENGLISH, GERMAN, SCORES),
    "Tatoeba with ids": table(IDS, ENGLISH, column("9{n}"), GERMAN),
    "Anki": table(ENGLISH, GERMAN, LICENCES),
    "bicleaner": table(LINKS, LINKS, ENGLISH, GERMAN, SCORES, SCORES),
    "NLLB": table(ENGLISH, GERMAN, SCORES, column("0.9{n}"), column("0.8{n}"), LINKS),
    "ids under their name": table(IDS, ENGLISH, GERMAN, header=("ID", "English", "German")),
    "names reversed": table(GERMAN, ENGLISH, header=("German", "English")),
    "names in German": table(GERMAN, ENGLISH, header=("Deutsch", "Englisch")),
    "codes of three letters": table(ENGLISH, GERMAN, header=("eng", "deu")),
    "other codes of three letters": table(GERMAN, ENGLISH, header=("ger", "eng")),
    "tags": table(ENGLISH, GERMAN, header=("en-GB", "de_AT")),
    "Joey NMT": table(ENGLISH, GERMAN, header=("src", "trg")),
    "Hugging Face": table(GERMAN, ENGLISH, header=("target", "source")),
    "pandas": table(IDS, ENGLISH, GERMAN, header=("", "en", "de")),
    "a title": table(GERMAN, ENGLISH, header=("de", "en"), above=[("Export 2024", ""), ("", "")]),
    "dates": table(column("2024-01-0{n}"), ENGLISH, GERMAN, header=("when", "en", "de")),
    "languages under names": table(
        *(ENGLISH, GERMAN, EN, DE), header=("source", "target", "source_lang", "target_lang")
    ),
    "a reversed corpus": table(GERMAN, ENGLISH, DE, EN),
    "a constant": table(["train"] * COUNT, ENGLISH, GERMAN),
    "names in brackets": table(GERMAN, ENGLISH, header=("Text (de)", "Text (en)")),
    "languages among the sides' words": table(
        GERMAN, ENGLISH, header=("Source (German)", "Target: English")
    ),
    "FLORES": table(
        *(IDS, GERMAN, ENGLISH), header=("id", "sentence_deu_Latn", "sentence_eng_Latn")
    ),
    "a comment": table(GERMAN, ENGLISH, header=("#de", "#en")),
    "names with signs that nobody sees": table(GERMAN, ENGLISH, header=("\u200bde", "en\ufeff")),
    "titles of several cells": table(
        *(GERMAN, ENGLISH),
        header=("de", "en"),
        above=[("Exported by", "Max"), ("on", "2024-01-01"), ("a", "b", "c", "d")],
    ),
    "languages below words for the sides": table(
        *(GERMAN, IDS, ENGLISH), header=("de_DE", "", "English"), above=[("Source", "id", "Target")]
    ),
    "directions": table(["de-en"] * COUNT, GERMAN, ENGLISH),
    "other directions": table(["German>English"] * COUNT, GERMAN, ENGLISH),
    "a direction under its name": table(
        ["de-en"] * COUNT, GERMAN, ENGLISH, header=("lp", "src", "ref")
    ),
    "scores of languages": table(
        *(SCORES, GERMAN, ENGLISH, SCORES), header=("score_de", "de", "en", "score_en")
    ),
    "countries": table(GERMAN, ENGLISH, header=("German (Germany)", "English (United States)")),
    "codes and names": table(GERMAN, ENGLISH, header=("DE - German", "EN - English")),
    "other words of each": table(
        GERMAN, ENGLISH, header=("German sentence", "English translation")
    ),
    "signs between": table(GERMAN, ENGLISH, header=("German/DE", "English/EN")),
    "words for the sides before regions": table(*(GERMAN, ENGLISH), header=("src_DE", "tgt_EN")),
    "codes before words": table(
        *(GERMAN, ENGLISH, ALIKE), header=("de_text", "en_text", "de_note")
    ),
    "codes of other languages before regions": table(
        *(GERMAN, ENGLISH), header=("str_DE", "str_EN")
    ),
    "notes below no name": [("German", "English", ""), *zip(GERMAN, ENGLISH, CHINESE, strict=True)],
    "segments": table(GERMAN, ENGLISH, header=("Target segment", "Source segment")),
    "copies of CSV's index": table(
        IDS, IDS, ENGLISH, GERMAN, header=("", "Unnamed: 0", "en", "de")
    ),
}


def sides(rows, languages, given=None):
    layout = find_sides(rows, languages, given, "a table")
    return [layout.sides(row, languages) for row in rows[layout.skipped :]]


@pytest.mark.parametrize("form", READ)
def test_forms_of_public_corpora_are_read_right(form):
    assert sides(READ[form], ("en", "de")) == PAIRS


@pytest.mark.parametrize("form", READ)
def test_forms_of_public_corpora_are_read_in_the_other_direction_or_refused(form):
    """Where nothing tells which side is which, the user's order counts."""
    found = sides(READ[form], ("de", "en"))
    told = {"two texts", "CCMatrix", "Tatoeba with ids", "Anki", "bicleaner", "NLLB", "Joey NMT"}
    told |= {"Hugging Face", "a constant", "segments"}
    assert found == (PAIRS if form in told else [pair[::-1] for pair in PAIRS])


REFUSED = {
    "sentences of one language": (table(IDS, DE, GERMAN), "not clear which columns"),
    "numbers and a text": (table(IDS, GERMAN), "not clear which columns"),
    "three texts": (table(ENGLISH, GERMAN, CHINESE), "not clear which columns"),
    "half a header": (table(ENGLISH, GERMAN, header=("English", "Text")), "not the other side"),
    "a comment beside texts that begin alike": (
        table(ALIKE, GERMAN, column("{n} of us saw this")),
        "not clear which columns",
    ),
    "another pair's header": (table(ENGLISH, GERMAN, header=("English", "Czech")), "cs and en"),
    "names of no one's": (
        table(IDS, ENGLISH, GERMAN, header=("id", "Vorlage", "Übersetzung")),
        "not clear which is the source",
    ),
    "labels": (table(GERMAN, ENGLISH, header=("Ziel", "Quelle")), "not clear which is the source"),
    "numbers as labels": (table(ENGLISH, GERMAN, header=("0", "1")), "header has '0' and '1'"),
    "an identifier's name beside labels": (
        table(column("doc_{n}"), GERMAN, ENGLISH, header=("doc_id", "Ziel", "Quelle")),
        "not clear which is the source",
    ),
    "no name above dates beside labels": (
        table(column("2024-01-0{n}"), GERMAN, ENGLISH, header=("", "Ziel", "Quelle")),
        "not clear which is the source",
    ),
    "notes beside words for the sides": (
        table(*(ENGLISH, GERMAN, ALIKE, ALIKE), header=("source", "target", "en_note", "de_note")),
        "words for the sides, and languages in other names",
    ),
    "labels above captions": (
        table(*(CAPTIONS[::-1]), header=("Deutscher Text", "Englischer Text")),
        "not clear which is the source",
    ),
    "names of rows without a name": (
        [("en", "de"), *zip(ALIKE, ENGLISH, GERMAN, strict=True)],
        "its header has 2 cells, most rows have 3",
    ),
    "words for the sides beside languages": (
        table(*(ENGLISH, GERMAN, ALIKE, ALIKE), header=("ref", "source", "text_de", "text_en")),
        "words for the sides, and languages in other names",
    ),
    "another variety": (
        table(ENGLISH, GERMAN, header=("en-US", "de-AT")),
        "names de and en, but the pair is en_GB-de_DE",
    ),
    "labels of other signs": (
        table(CHINESE, ENGLISH, header=("译文", "原文")),
        "not clear which is the source",
    ),
    "labels above languages": (
        table(GERMAN, DE, ENGLISH, EN, header=("first text", "its tag", "second text", "its tag")),
        "not clear which is the source",
    ),
    "several scores of languages": (
        table(*(ENGLISH, GERMAN) * 2, header=("raw_en", "raw_de", "clean_en", "clean_de")),
        "not clear which columns",
    ),
    "another separator": (
        [f"{source} = {target}".split(", ") for source, target in PAIRS],
        "only 2 of its first rows have several cells",
    ),
    "one column": (table(ENGLISH), "no row has two cells"),
    "a corpus called source": (
        table(["opus"] * COUNT, ENGLISH, GERMAN, header=("source", "text", "translation")),
        "not clear which is the source",
    ),
    "links called by languages": (
        table(*(ENGLISH, GERMAN, LINKS, LINKS), header=("text", "translation", "url_en", "url_de")),
        "not clear which is the source",
    ),
    "languages called source and target": (
        table(EN, DE, ENGLISH, GERMAN, header=("source", "target", "text", "translated")),
        "not clear which is the source",
    ),
    "numbers of rows before a header": (
        [("source", "target"), *zip(IDS, ENGLISH, GERMAN, strict=True)],
        "not clear which is the source",
    ),
}

PAIR_OF = {"another variety": ("en_GB", "de_DE")}


@pytest.mark.parametrize("form", REFUSED)
def test_what_is_not_clear_is_refused_with_the_rows_drawn(form):
    rows, reason = REFUSED[form]
    with pytest.raises(RequestError, match=reason) as caught:
        find_sides(rows, PAIR_OF.get(form, ("en", "de")), None, "a table")
    assert "--source-column" in str(caught.value)
    (note,) = caught.value.__notes__
    lines = note.splitlines()
    assert lines[0].split(" | ")[-1].strip() == str(len(rows[-1]))
    assert lines[-1].startswith(rows[4][0][:20])


@pytest.mark.parametrize("name", ["europarl-v10.de-en.tsv.gz", "x/de-en.tsv", "News.deu_eng.txt"])
def test_a_table_named_after_the_other_direction_needs_another_sign_of_it(name):
    for rows, places in ((PAIRS, (0, 1)), (table(SCORES, GERMAN, ENGLISH), (1, 2))):
        with pytest.raises(RequestError, match="its name has de before en, but"):
            find_sides(rows, ("en", "de"), None, name)
        assert find_sides(rows, ("de", "en"), None, name).places == places
        assert find_sides(rows, ("en", "de"), (1, 2), name).places == (0, 1)
    for form in ("names reversed", "Hugging Face", "a reversed corpus", "directions"):
        assert find_sides(READ[form], ("en", "de"), None, name).places == (
            find_sides(READ[form], ("en", "de"), None, "a table").places
        )
    for rows in (table(ENGLISH, CHINESE), table(CHINESE, ENGLISH)):
        assert rows[0][find_sides(rows, ("en", "zh"), None, "zh-en.tsv").places[0]] in ENGLISH


@pytest.mark.parametrize(
    "header",
    [("source_text_de", "target_text_de"), ("Source string", "Translation"), ("src_0", "tgt_0")],
)
def test_words_that_begin_to_name_the_sides_tell_them(header):
    for names, places in ((header, (1, 2)), (header[::-1], (2, 1))):
        layout = find_sides(
            table(IDS, ENGLISH, GERMAN, header=("id", *names)), ("en", "de"), None, ""
        )
        assert (layout.places, layout.skipped) == (places, 1)


def test_words_for_the_sides_are_names_above_sentences_as_short_as_they_are():
    short = table(("Wait.", "Run!", "Who?"), ("Warte.", "Lauf!", "Wer?"))
    for header, places in (
        (("src_text", "tgt_text"), (0, 1)),
        (("Target term", "Source term"), (1, 0)),
    ):
        assert find_sides([header, *short], ("en", "de"), None, "")[:2] == (places, 1)
    assert find_sides([("The source.", "Das Ziel."), *short], ("en", "de"), None, "")[1] == 0
    for names in (("Sources", "Quellen"), ("Output", "Output")):
        with pytest.raises(RequestError, match="not clear which is the source"):
            find_sides([names, *short], ("en", "de"), None, "")


def test_columns_that_the_user_names_are_taken():
    rows, _ = REFUSED["three texts"]
    assert find_sides(rows, ("en", "de"), (2, 3), "").places == (1, 2)
    rows, _ = REFUSED["names of no one's"]
    layout = find_sides(rows, ("en", "de"), ("Vorlage", "Übersetzung"), "")
    assert layout[:2] == ((1, 2), 1)
    rows, _ = REFUSED["another pair's header"]
    assert find_sides(rows, ("en", "de"), (1, 2), "")[:2] == ((0, 1), 1)
    for languages in (("en", "de"), ("de", "en")):  # whatever all rows say
        found = sides(READ["languages under names"], languages, (2, 1))
        assert found == [pair[::-1] for pair in PAIRS]
    rows, _ = REFUSED["names of no one's"]
    with pytest.raises(RequestError, match="no single column is named 'Text' among"):
        find_sides(rows, ("en", "de"), ("Vorlage", "Text"), "")


def test_a_header_below_a_title_is_found_whether_or_not_columns_are_given_by_number():
    rows = [("Export of", "2024"), ("en", "de"), *PAIRS]
    assert sides(rows, ("en", "de")) == sides(rows, ("en", "de"), (1, 2)) == PAIRS


@pytest.mark.parametrize("first", [("Original", "Translated"), ("Hello", "Hallo")])
def test_a_first_pair_that_may_be_a_header_is_named_each_time(tmp_path, caplog, first):
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"{s}\t{t}\n" for s, t in [first, *PAIRS]), encoding="utf-8")
    given = {"source_column": 1, "target_column": 2, "cache_dir": tmp_path / "cache"}
    for _ in range(2):  # the second time from the cache
        caplog.clear()
        pairs = load_pairs(path, source_language="en", target_language="de", **given)
        assert pairs[0] == {"source": first[0], "target": first[1]}
        (warning,) = (each.message for each in caplog.records if each.levelname == "WARNING")
        assert warning.startswith(f"{path}: its first row is read as a pair: {[*first]!r}.")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
@pytest.mark.parametrize("names", [("de", "en"), ("text_de", "text_en"), ("German", "English")])
def test_columns_that_are_named_after_the_other_sides_are_refused(tmp_path, name, names):
    rows = [dict(zip(names, pair, strict=True)) for pair in zip(GERMAN, ENGLISH, strict=True)]
    with (tmp_path / name).open("w", encoding="utf-8") as file:
        if name == "a.jsonl":
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            csv.writer(file).writerows([names, *(row.values() for row in rows)])
    given = dict(zip(("source_column", "target_column"), names, strict=True))
    with pytest.raises(RequestError, match="named after the other sides of en-de"):
        read(tmp_path / name, **given)
    turned = {"source_column": names[1], "target_column": names[0]}
    assert read(tmp_path / name, **turned) == (PAIRS, 0)


@pytest.mark.parametrize("pair", [("I speak English", "Ich kann Deutsch"), ("English", "Englisch")])
def test_first_pairs_that_name_languages_are_pairs(pair):
    rows = table(ENGLISH, GERMAN, header=("source", "target"), above=[])
    rows.insert(1, pair)
    assert sides(rows, ("en", "de")) == [pair, *PAIRS]


@pytest.mark.parametrize("place", [0, 1, 5])
@pytest.mark.parametrize(
    ("languages", "pair"),
    [
        (("no", "en"), ("en gang til", "no way")),
        (("da", "de"), ("de er her", "sie sind da")),
        (("es", "de"), ("de nuevo llueve", "es regnet wieder")),
        (("en", "no"), ("oh, no", "en til!")),
    ],
)
def test_words_that_are_also_codes_are_no_names_of_columns(languages, pair, place):
    rows = [*CAPTION_PAIRS]
    rows.insert(place, pair)
    assert sides(rows, languages) == rows


@pytest.mark.parametrize("form", ["{} text", "text: {}", "{} - text", "text/{}", "#{}", "src {}"])
def test_codes_in_names_of_columns_stand_beside_a_sign_or_the_same_words(form):
    rows = table(*CAPTIONS[::-1], header=(form.format("DE"), form.format("EN")))
    assert sides(rows, ("en", "de")) == CAPTION_PAIRS


@pytest.mark.parametrize("first", [("1", "Introduction", "Einleitung"), ("k.1", "Hi", "Hallo")])
def test_a_short_first_text_beside_a_number_like_all_others_is_a_pair(first):
    rows = [first, *zip(column(first[0] + "{n}"), *CAPTIONS, strict=True)]
    assert find_sides(rows, ("en", "de"), None, "")[:2] == ((1, 2), 0)


def test_first_pairs_are_no_labels():
    """Europarl begins with a heading, and short sentences end as others do."""
    for first in (
        ("Resumption of the session", "Wiederaufnahme der Sitzungsperiode"),
        ("Go!", "Geh!"),
        ("1994", "1994."),
    ):
        rows = [first, *PAIRS]
        assert find_sides(rows, ("en", "de"), None, "")[:2] == ((0, 1), 0)
    for rows in (table(GERMAN, ENGLISH, header=("Ziel", "Quelle")), [("Hallo", "Hello"), *PAIRS]):
        assert find_sides(rows, ("en", "de"), (2, 1), "").skipped == 0  # by number: no header


def read(path, pair=("en", "de"), **given):
    reader = read_pairs(path, source_language=pair[0], target_language=pair[1], **given)
    return list(reader), reader.num_malformed


VARIETIES = {
    "zh_TW": table(CHINESE[::-1], ENGLISH, CHINESE, header=("zh-CN", "en", "zh-TW")),
    "id": table(IDS, ENGLISH, CHINESE, header=("id", "en", "Indonesian")),
    "no": table(IDS, ENGLISH, CHINESE, header=("No", "EN", "Norsk")),
    "pt": table(ENGLISH, CHINESE, CHINESE[::-1], header=("en", "pt", "pt-BR")),
    "phonemes": table(ENGLISH, CHINESE, header=("en", "phonemes")),
}


@pytest.mark.parametrize("other", VARIETIES)
def test_a_column_is_not_taken_for_what_its_name_says(other):
    """A region is part of a language's name, and a number's column may be called `id`."""
    rows = VARIETIES[other]
    layout = find_sides(rows, ("en", other), None, "")
    assert [row[layout.places[1]] for row in rows[layout.skipped :]] == CHINESE


def test_records_of_two_varieties_give_the_one_that_is_asked_for(tmp_path):
    rows = [{"id": str(n), "zh-CN": "简", "zh_TW": zh, "en": "a"} for n, zh in enumerate(CHINESE)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert [pair[1] for pair in read(tmp_path / "a.jsonl", ("en", "zh-TW"))[0]] == CHINESE
    assert read(tmp_path / "a.jsonl", ("en", "zh")) == ([], COUNT)  # which of the two?
    rows = [{"id": "1", "en": "a", "ind": "b"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert read(tmp_path / "a.jsonl", ("en", "id")) == ([], 1)


@pytest.mark.parametrize("name", ["a.jsonl", "a.tsv"])
def test_rows_of_another_variety_are_not_those_asked_for(tmp_path, name):
    rows = [
        {"source_lang": "zh-CN", "target_lang": "zh-TW", "source": s, "target": t}
        for s, t in zip(CHINESE, CHINESE[::-1], strict=True)
    ]
    lines = [*map(json.dumps, rows)]
    if name == "a.tsv":
        lines = ["\t".join(row) for row in (rows[0], *(row.values() for row in rows))]
    (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    pairs = list(zip(CHINESE, CHINESE[::-1], strict=True))
    assert read(tmp_path / name, ("zh_CN", "zh_TW")) == (pairs, 0)
    assert read(tmp_path / name, ("zh_TW", "zh_CN")) == ([pair[::-1] for pair in pairs], 0)
    assert read(tmp_path / name, ("zh_HK", "zh_CN")) == ([], COUNT)


def test_records_that_name_the_sides_in_two_ways_are_refused(tmp_path):
    row = {"url_en": "http://x/1", "url_de": "http://x/2", "source": "Hi.", "target": "Hallo."}
    (tmp_path / "a.jsonl").write_text(json.dumps(row), encoding="utf-8")
    assert read(tmp_path / "a.jsonl") == ([], 1)


SAME = [  # pairs of languages, and names of the same varieties
    (("zh_Hans", "en"), ("zho_Hans", "eng_Latn")),
    (("zh_Hans", "en"), ("sentence_zho_Hans", "sentence_eng_Latn")),
    (("zh_Hans", "en"), ("zh-CN", "en-GB")),
    (("zh_CN", "en_US"), ("zh-Hans-CN", "en_XX")),
    (("sr_Cyrl", "en"), ("text_srp_Cyrl", "text_eng_Latn")),
    (("pt_BR", "en"), ("por_Latn", "eng_Latn")),
    (("zh_TW", "en"), ("zh-Hant", "en")),
    (("zh_CN", "en"), ("zh_text", "en_text")),
    (("ko_KR", "en"), ("kor_Hang", "eng_Latn")),
]
OTHERS = [
    (("zh_TW", "en"), ("zh-Hans", "en")),
    (("zh_TW", "en"), ("zh-cn", "en")),
    (("es_ES", "en"), ("es-419", "en")),
    (("sr_Latn", "en"), ("sr-RS", "en")),
    (("pt_PT", "en"), ("text_pt-BR", "text_en")),
]


@pytest.mark.parametrize(("pair", "names"), [*SAME, *OTHERS])
@pytest.mark.parametrize("form", ["header", "rows"])
def test_tags_of_one_variety_have_several_forms(tmp_path, pair, names, form):
    texts = [names, *zip(CHINESE, ENGLISH, strict=True)]
    if form == "rows":
        said = ("source_lang", "target_lang", "source", "target")
        texts = [said, *((*(n.removeprefix("text_") for n in names), *row) for row in texts[1:])]
    path = tmp_path / "a.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in texts), encoding="utf-8")
    if (pair, names) in SAME:
        found, _ = read(path, pair)
        assert found == list(zip(CHINESE, ENGLISH, strict=True))
    else:
        with suppress(RequestError):
            assert read(path, pair)[0] == []


def test_words_behind_a_code_are_no_variety(tmp_path):
    header = ("pt_comment", "pt_text", "en_text")
    rows = [header, *zip(GERMAN, CHINESE, ENGLISH, strict=True)]
    (tmp_path / "a.tsv").write_text("\n".join(map("\t".join, rows)), encoding="utf-8")
    assert read(tmp_path / "a.tsv", ("pt_BR", "en"))[0] == list(zip(CHINESE, ENGLISH, strict=True))


def test_of_two_varieties_the_exact_one_is_meant(tmp_path):
    row = {"source_lang": "zh-TW", "target_lang": "zh", "source": "a", "target": "b"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row), encoding="utf-8")
    assert read(tmp_path / "a.jsonl", ("zh", "zh_TW")) == ([("b", "a")], 0)


@pytest.mark.parametrize("names", [("de", "en"), ("English", "German"), ("eng_Latn", "deu_Latn")])
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_records_whose_sides_are_their_languages_are_refused(tmp_path, names, kind):
    rows = [
        {"src": names[0], "trg": names[1], "src_text": source, "trg_text": target}
        for source, target in PAIRS * 2
    ]
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        Dataset.from_list(rows).to_parquet(path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    reader = read_pairs(path, source_language="en", target_language="de")
    assert not [*reader]
    assert "'src' and 'trg' hold its languages, not its texts" in reader.examples[0]
    texts = {"source_column": "src_text", "target_column": "trg_text"}
    assert read(path, **texts)[0] == PAIRS * 2


def write_records(folder, kind, rows):
    data = Dataset.from_list(rows)
    if kind == "data set":
        return data
    (data.to_parquet if kind == "parquet" else data.to_json)(folder / f"a.{kind}")
    return folder / f"a.{kind}"


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "data set"])
@pytest.mark.parametrize("values", [LINKS, SCORES, column("doc_{n}"), ["opus"] * COUNT])
def test_records_whose_side_holds_no_texts_beside_others_are_refused(tmp_path, kind, values):
    rows = [
        {"id": 7, "source": value, "text": s, "translation": t}
        for value, (s, t) in zip(values, PAIRS, strict=True)
    ]
    path = write_records(tmp_path, kind, rows)
    with pytest.raises(RequestError, match=r"not clear which columns are the sides; seen: 1 \w+, "):
        read(path)
    for name, expected in (("text", ENGLISH), ("source", values), (3, ENGLISH)):
        target = "translation" if isinstance(name, str) else 4
        found, _ = read(path, source_column=name, target_column=target)
        assert found == list(zip(expected, GERMAN, strict=True))


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "data set"])
def test_records_of_numbers_and_their_names_are_pairs(tmp_path, kind):
    rows = [
        {"source": f"1{n}", "target": text, "url": link, "note": None}
        for n, (text, link) in enumerate(zip(GERMAN, LINKS, strict=True))
    ]
    found = [(f"1{n}", text) for n, text in enumerate(GERMAN)]
    assert read(write_records(tmp_path, kind, rows)) == (found, 0)


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "data set"])
def test_keys_that_the_user_names_against_what_all_records_say_are_taken(tmp_path, kind):
    rows = [{"lp": "en-de", "src": s, "mt": t} for s, t in PAIRS]
    path = write_records(tmp_path, kind, rows)
    turned = [pair[::-1] for pair in PAIRS]
    assert read(path, ("de", "en"), source_column="mt", target_column="src") == (turned, 0)
    assert read(path, ("en", "de"), source_column="src", target_column="mt") == (PAIRS, 0)
    assert read(path, ("en", "fr"), source_column="src", target_column="mt") == ([], COUNT)


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
@pytest.mark.parametrize("name", ["orig_lang", "slang", "note"])
def test_one_language_beside_columns_that_the_user_names_says_nothing(tmp_path, kind, name):
    """It may be that of an original, or a word."""
    told = itertools.cycle(["fr", "no", "de"])
    rows = [{"text": s, "other": t, name: next(told)} for s, t in PAIRS]
    path = tmp_path / f"a.{kind}"
    with path.open("w", encoding="utf-8", newline="") as file:
        if kind == "csv":
            writer = csv.DictWriter(file, [*rows[0]])
            writer.writeheader()
            writer.writerows(rows)
        else:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    assert read(path, source_column="text", target_column="other") == (PAIRS, 0)


def test_names_of_languages_may_be_translated(tmp_path):
    pairs = [("German", "Deutsch"), ("English", "Englisch"), ("no", "nein"), ("German", "en")]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"en": s, "de": t}) + "\n" for s, t in pairs))
    assert read(path) == (pairs, 0)


def test_a_file_of_other_countries_is_no_file_of_other_languages(tmp_path):
    rows = ["\t".join((*pair, country)) for country in ("FR", "IT", "DE") for pair in PAIRS * 3]
    (tmp_path / "a.tsv").write_text("\n".join(rows), encoding="utf-8")
    with pytest.raises(RequestError, match=r"36 lines of .* are malformed, and only 18 are pairs"):
        read(tmp_path / "a.tsv")


@pytest.mark.parametrize("kind", ["tmx", "jsonl", "tsv"])
def test_a_file_of_many_languages_gives_those_of_the_pair(tmp_path, kind):
    rows = [("en", s, language, t) for language in ("fr", "de", "cs") for s, t in PAIRS * 3]
    if kind == "tmx":
        text = f"<tmx><body>{''.join(UNIT.format(*row) for row in rows)}</body></tmx>"
    elif kind == "jsonl":
        names = ("source_lang", "source", "target_lang", "target")
        text = "\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows)
    else:
        text = "\n".join("\t".join(row) for row in rows)
    (tmp_path / f"a.{kind}").write_text(text, encoding="utf-8")
    assert read(tmp_path / f"a.{kind}") == (PAIRS * 3, 2 * 3 * COUNT)


def test_full_rows_above_a_header_are_named(tmp_path, caplog):
    rows = [("a.open", "Open", "Öffnen"), ("a.lang", "English", "Deutsch")]
    rows += [(f"a.{n}", *pair) for n, pair in enumerate(PAIRS)]
    (tmp_path / "a.csv").write_text("\n".join(map(";".join, rows)), encoding="utf-8")
    assert read(tmp_path / "a.csv") == (PAIRS[:3] + PAIRS[4:], 1)  # one has a semicolon
    assert "a.csv:1 is above the header: ['a.open', 'Open', 'Öffnen']." in caplog.text


def test_files_that_were_joined_are_read_as_one_or_refused(tmp_path):
    one = "\ufeffen\tde\n" + "".join("\t".join(pair) + "\n" for pair in PAIRS)
    (tmp_path / "a.tsv").write_text(one * 2, encoding="utf-8")
    assert read(tmp_path / "a.tsv") == (PAIRS * 2, 1)
    (tmp_path / "a.tsv").write_text(f"{one}en\ten\n", encoding="utf-8")
    assert read(tmp_path / "a.tsv") == ([*PAIRS, ("en", "en")], 0)  # two names of one thing
    reverse = "de\ten\n" + "".join("\t".join(pair[::-1]) + "\n" for pair in PAIRS)
    (tmp_path / "a.tsv").write_text(one + reverse, encoding="utf-8")
    with pytest.raises(RequestError, match=r"a\.tsv:8 begins a table with other columns"):
        read(tmp_path / "a.tsv")


TOLD = [  # by records and by columns that have names
    {"source_lang": "{0}", "target_lang": "{1}"},
    {"target_lang": "{1}_Latn", "source_lang": "{0}_Latn"},
    {"srcLang": "{0}", "tgtLang": "{1}"},
    {"language 1": "{0}-XX", "language 2": "{1}-XX"},
    {"tgt_language": "{1}"},
    {"orig_lang": "fr", "lp": "{0}-{1}"},
    {"language_pair": "{0}_{1}"},
    {"direction": "{0}2{1}"},
    {"direction": "{0}→{1}"},
    {"Direction": "{0}-DE:{1}-US"},
    {"pair": "{0}_Latn to {1}_Latn"},
]


@pytest.mark.parametrize("form", TOLD, ids=str)
@pytest.mark.parametrize("kind", ["jsonl", "parquet", "data set", "csv"])
def test_each_row_says_its_languages_in_every_format(tmp_path, kind, form):
    """Rows in the other direction are turned; those in other languages are no pairs."""
    rows = []
    for source, target in PAIRS:
        for *texts, codes in (
            (source, target, ("en", "de")),
            (target, source, ("deu", "eng")),
            (source, "Oui.", ("en", "fr")),
        ):
            told = {name: value.format(*codes) for name, value in form.items()}
            rows.append({"source": texts[0], "target": texts[1], **told})
    twice = [pair for pair in PAIRS for _ in range(2)]
    found = path = tmp_path / f"a.{kind}"
    if kind == "csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([rows[0], *(row.values() for row in rows)])
    elif kind == "jsonl":
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    else:
        found = Dataset.from_list(rows)
        if kind == "parquet":
            found.to_parquet(path)
            found = path
    given = {"source_column": "source", "target_column": "target"}
    for options in ({}, given):
        assert read(found, **options) == (twice, COUNT)
        assert read(found, ("de", "en"), **options) == ([pair[::-1] for pair in twice], COUNT)


@pytest.mark.parametrize("form", ["{0}\t{1}", "{0}-{1}", "{0}2{1}", "{0}_XX > {1}_XX"])
def test_each_row_says_its_languages_without_names(tmp_path, form):
    """Also after the rows that told the columns."""
    rows = ["\t".join((*pair, form.format("en", "de"))) for pair in PAIRS * 10]
    for languages in (("de", "en"), ("en", "fr")):
        rows += ["\t".join((*pair[::-1], form.format(*languages))) for pair in PAIRS]
    (tmp_path / "a.tsv").write_text("\n".join(rows), encoding="utf-8")
    assert read(tmp_path / "a.tsv") == (PAIRS * 11, COUNT)
    rows = [row for pair in zip(rows[60:66], rows[66:], strict=True) for row in pair]
    (tmp_path / "a.tsv").write_text("\n".join(rows), encoding="utf-8")
    assert read(tmp_path / "a.tsv") == (PAIRS, COUNT)


@pytest.mark.parametrize("names", [("de", "fr"), ("en-de", "en-fr"), ("it", "fr"), ("new", "old")])
def test_rows_without_names_that_are_sorted_by_language_are_those_of_the_pair(tmp_path, names):
    """A word that all first rows have may be a code, but not of a language of the pair."""
    rows = ["\t".join((*pair, name)) for name in names for pair in PAIRS * 10]
    (tmp_path / "a.tsv").write_text("\n".join(rows), encoding="utf-8")
    says = [{}] if "de" in names[0] else []
    if "-" in names[0]:  # one alone may be that of an original, beside columns that the user names
        says.append({"source_column": 1, "target_column": 2})
    for options in ({}, {"source_column": 1, "target_column": 2}):
        expected = (PAIRS * 10, 10 * COUNT) if options in says else (PAIRS * 20, 0)
        assert read(tmp_path / "a.tsv", **options) == expected


def test_short_words_are_no_languages_beside_columns_that_the_user_names(tmp_path):
    rows = ["\t".join((*pair, word)) for word in ("sg", "pl") for pair in PAIRS]
    (tmp_path / "a.tsv").write_text("\n".join(rows), encoding="utf-8")
    assert read(tmp_path / "a.tsv", source_column=1, target_column=2) == (PAIRS * 2, 0)


@pytest.mark.parametrize("values", [["de", "pt"], ["no", "yes"], ["fr"], ["0.9", "unknown"]])
@pytest.mark.parametrize("name", ["language", "formal"])
def test_one_language_of_a_row_must_be_of_the_pair(tmp_path, name, values):
    """Where its column is named so: other columns hold the same words."""
    rows = [{"source": s, "target": t, name: v} for v in values for s, t in PAIRS]
    text = "".join(f'"{row["source"]}","{row["target"]}",{row[name]}\n' for row in rows)
    (tmp_path / "a.csv").write_text(f"source,target,{name}\n{text}", encoding="utf-8")
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    other = [value in ("pt", "no", "fr") and name == "language" for value in values]
    for path in (tmp_path / "a.csv", tmp_path / "a.jsonl"):
        assert read(path) == (PAIRS * other.count(False), COUNT * other.count(True))
        # Questions and answers may be in any language.
        assert read(path, ("question", "answer")) == (PAIRS * len(values), 0)


@pytest.mark.parametrize(
    "form",
    ["{}", "corpus.{}", "train.{}.txt", "c.en-de.{}", "{}/text", "test-src.{}.sgm", "t-{1}.{0}"],
)
def test_two_files_in_the_other_order_than_the_pair_are_refused(tmp_path, form):
    sides = {}
    for code, texts in (("en", ENGLISH), ("de", GERMAN)):
        # WMT's sets of the other direction: the languages say more than these words.
        path = sides[code] = tmp_path / form.format(code, "ref" if code == "en" else "src")
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(texts), encoding="utf-8")
    assert read((sides["en"], sides["de"]))[0] == PAIRS
    with pytest.raises(RequestError, match=r"is named after the target of en-de, and .* after its"):
        read((sides["de"], sides["en"]))


@pytest.mark.parametrize("form", ["{}", "train.{}", "train.{}.txt.gz"])
@pytest.mark.parametrize(
    ("ends", "pair"),
    [
        (("en", "fr"), ("en", "de")),
        (("pt_BR", "en"), ("pt_PT", "en")),
        (("fra", "eng"), ("en", "de")),
        (("src", "mt"), None),
        (("eng_Latn", "deu_Latn"), None),
        (("en", "hyp"), None),
        (("en", "fr"), ("question", "answer")),
    ],
)
def test_two_files_named_after_another_pair_are_told(tmp_path, form, ends, pair, caplog):
    paths = [tmp_path / form.format(end) for end in ends]
    for path, texts in zip(paths, (ENGLISH, GERMAN), strict=True):
        path.write_text("\n".join(texts), encoding="utf-8")
    assert read(paths, pair or ("en", "de"))[0] == PAIRS
    is_other = pair is not None and pair[0] != "question"
    assert ("named after other languages than" in caplog.text) == is_other


@pytest.mark.parametrize("words", [("src", "tgt"), ("Source", "Target"), ("input", "reference")])
@pytest.mark.parametrize(
    "form", ["{}", "train.{}", "{}-train.txt", "train.{}.txt", "src-ref_{}.en", "src/{}/text.gz"]
)
def test_two_files_named_after_the_other_sides_are_refused(tmp_path, form, words):
    paths = [tmp_path / form.format(word) for word in words]
    for path, texts in zip(paths, (ENGLISH, GERMAN), strict=True):
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("\n".join(texts), encoding="utf-8")
    assert read(paths)[0] == PAIRS
    with pytest.raises(RequestError, match="is named after the target"):
        read(paths[::-1])


@pytest.mark.parametrize(
    "form",
    ["{{'en': {!r}, 'de': {!r}}}", '["{}", "{}"]', "({!r}, {!r}),", "| {} | {} |", "'{}','{}'"],
)
def test_records_of_programs_are_no_rows_of_a_table(tmp_path, form):
    path = tmp_path / "a.txt"
    path.write_text("".join(form.format(*pair) + "\n" for pair in PAIRS), encoding="utf-8")
    with pytest.raises(RequestError, match=r"a\.txt holds records, not the rows of a table"):
        read(path)


@pytest.mark.parametrize("sign", [",", ";"])
def test_a_text_with_a_comma_in_each_sentence_is_no_table(tmp_path, sign):
    path, given = tmp_path / "a.txt", {"source_column": 1, "target_column": 2}
    lines = [f"{ENGLISH[n - 1][:-1]}{sign} {ENGLISH[n]}\n" for n in range(COUNT)]
    path.write_text("".join(lines).replace("keys, ", ""), encoding="utf-8")
    with pytest.raises(RequestError, match="looks like one text") as error:
        read(path)
    assert "SOURCE,TARGET" in str(error.value)
    assert len(read(path, **given)[0]) >= COUNT - 2
    pairs = [(source, f" {target}") for source, target in zip(*CAPTIONS, strict=True)]
    path.write_text("\n".join(map(sign.join, [("en", " de"), *pairs])), encoding="utf-8")
    assert read(path)[0][0] == pairs[0]


def test_a_text_that_a_program_wrote_as_a_column_is_refused(tmp_path):
    texts = [*ENGLISH, 'He said "no", twice.', "One, two.", 'A "b".'], [*GERMAN, "A", "B, b", "C"]
    for name, lines in zip(("a.en", "a.de"), texts, strict=True):
        with (tmp_path / name).open("w", encoding="utf-8") as file:
            csv.writer(file).writerows([line] for line in lines)
    with pytest.raises(RequestError, match=r"a\.en holds cells or records"):
        read((tmp_path / "a.en", tmp_path / "a.de"))
    said = ['"No."', '"Yes, sir."', '"Stop!"', "They went on.", '"So?"']  # a dialogue
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("\n".join(said), encoding="utf-8")
    assert len(read((tmp_path / "a.en", tmp_path / "a.de"))[0]) == len(said)


@pytest.mark.parametrize("form", ['{{"text": "{}"}}', '"{}"', "{}\tmore"])
def test_two_files_of_cells_or_records_are_refused(tmp_path, form):
    for name, texts in (("a.en", ENGLISH), ("a.de", GERMAN)):
        lines = "".join(f"{form.format(text)}\n" for text in texts)
        (tmp_path / name).write_text(lines, encoding="utf-8")
    with pytest.raises(RequestError, match="holds cells or records"):
        read((tmp_path / "a.en", tmp_path / "a.de"))


@pytest.mark.parametrize("suffix", ["json", "csv", "csv.txt", "jsonl"])
def test_two_files_are_no_texts_if_their_names_say_so(tmp_path, suffix):
    paths = tmp_path / f"en.{suffix}", tmp_path / f"de.{suffix}"
    for path, texts in zip(paths, (ENGLISH, GERMAN), strict=True):
        path.write_text("{\n" + "\n".join(texts) + "\n}\n", encoding="utf-8")
    with pytest.raises(RequestError, match="holds cells or records"):
        read(paths)


def test_a_text_that_begins_with_a_brace_is_in_a_table(tmp_path):
    pairs = [("{0} files were found.", "{0} Dateien gefunden."), *PAIRS]
    (tmp_path / "a.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    assert read(tmp_path / "a.tsv")[0] == pairs


def test_a_record_without_the_languages_is_told_its_own(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        json.dumps({"translation": {"en": "Hi", "fr": "Salut"}}) + "\n", encoding="utf-8"
    )
    reader = read_pairs(path, source_language="en", target_language="de")
    assert not [*reader]
    assert "among ['en', 'fr']" in reader.examples[0]


@pytest.mark.parametrize("header", ["", "en\tde\n", '"en"\t"de"\n'])
def test_quotes_around_all_cells_but_the_header_are_no_text(tmp_path, header):
    rows = "".join(f'"{source}"\t"{target}"\n' for source, target in PAIRS)
    (tmp_path / "a.tsv").write_text(header + rows, encoding="utf-8")
    assert read(tmp_path / "a.tsv")[0] == PAIRS


@pytest.mark.parametrize("share", [0.1, 0.2])
def test_pairs_that_hold_no_translations_give_a_warning(share):
    turned = int(100 * share)
    english, chinese = [f"{n} cats" for n in range(100)], [f"{n} 只猫" for n in range(100)]

    def warnings(sources, targets, languages=("en", "zh")):
        return [*doubts(Dataset.from_dict({"source": sources, "target": targets}), {}, languages)]

    mixed = chinese[:turned] + english[turned:], english[:turned] + chinese[turned:]
    equal = english, english[:turned] + chinese[turned:]
    constant = ["opus"] * turned + english[turned:]
    assert not warnings(english, chinese) + warnings(constant[turned:], chinese[turned:])
    assert len(warnings(*mixed)) == len(warnings(*equal)) / 2 == (share > 0.1)  # no Chinese either
    assert not warnings(*mixed, ("phonemes", "source"))
    for languages in (("en", "de"), ("ja", "en"), ("zh", "ru")):  # one side or both
        assert len(warnings(english, chinese, languages)) == 1
    assert not warnings(chinese, english, ("ja", "sr_Latn"))
    (few,) = warnings(["opus", "news"] * 50, chinese)
    assert few == "There are only 2 different sources in 100 training pairs."


@pytest.mark.parametrize("rows", [table(ENGLISH, CHINESE), table(CHINESE, ENGLISH)])
@pytest.mark.parametrize("pair", [("en", "zh"), ("zh", "en")])
def test_scripts_tell_the_sides(rows, pair):
    places = find_sides(rows, pair, None, "").places
    assert (rows[0][places[0]] in CHINESE) == (pair[0] == "zh")


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_columns_in_any_order_are_read_right_or_refused(data):
    """Never silently wrong: with names, or with languages beside them, the sides are certain."""
    more = {"score": SCORES, "id": IDS, "url": LINKS, "split": ["train"] * COUNT}
    chosen = data.draw(st.lists(st.sampled_from(sorted(more)), unique=True))
    names = data.draw(st.permutations(["English", "de", *chosen]))
    columns = [{"English": ENGLISH, "de": GERMAN, **more}[name] for name in names]
    rows = table(*columns, header=tuple(names))
    layout = find_sides(rows, ("en", "de"), None, "")
    assert [names[place] for place in layout.places] == ["English", "de"]
    assert layout.skipped == 1
    bare = find_sides(rows[1:], ("en", "de"), None, "")
    assert sorted(names[place] for place in bare.places) == ["English", "de"]
    assert bare.skipped == 0


# ------------------------------------------------------------------- separators and quoting


@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
@pytest.mark.parametrize(
    ("separator", "name"), list(itertools.product(",;\t|", ("pairs.tsv", "pairs.csv", "deu.txt")))
)
def test_separator_and_quoting_are_told_by_all_rows(tmp_path, separator, name, quoting):
    pairs = [*PAIRS, ('He said "No", twice.', '"Nein", sagte er; zweimal.'), ("two\nlines", "a\tb")]
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator, quoting=quoting).writerows(pairs)
    (tmp_path / name).write_text(text.getvalue(), encoding="utf-8")
    reader = read_pairs(tmp_path / name, source_language="en", target_language="de")
    assert list(reader) == pairs
    assert reader.num_malformed == 0


@pytest.mark.parametrize("header", ["", "en{} de\n", '"en"{}  "de"\n'])
@pytest.mark.parametrize(("separator", "name"), [*itertools.product(",;|\t", ("a.csv", "a.txt"))])
def test_spaces_between_a_separator_and_a_quote_are_no_text(tmp_path, separator, name, header):
    pairs = [*PAIRS, ('A; "b", | c', 'A, "b"; | c'), ("a", f'{separator} "b"{separator} c')]
    rows = [
        [f'"{cell}"' for cell in (s.replace('"', '""'), t.replace('"', '""'))] for s, t in pairs
    ]
    text = header.format(separator) + "".join(f"{separator} ".join(row) + "\n" for row in rows)
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert read(tmp_path / name) == (pairs, 0)


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.txt"])
@pytest.mark.parametrize("place", [0, 3])
def test_a_line_end_within_a_row_is_in_no_text(tmp_path, name, place):
    """CR among lines that end in LF, as when files of two systems were joined."""
    lines = [("," if name == "a.csv" else "\t").join(pair) for pair in [("Up", "Auf")] * 8]
    lines[place : place + 2] = ["\r".join(lines[place : place + 2])]
    (tmp_path / name).write_bytes("\n".join(lines).encode())
    assert read(tmp_path / name) == ([("Up", "Auf")] * 6, 1)


@pytest.mark.parametrize("separator", ",;|\t")
@pytest.mark.parametrize(
    "odd", ['"She said: "no"."{0}"Sie sagte: nein."', '"Not closed.{0}"Offen."', '"a"b"{0}"c"d"']
)
@pytest.mark.parametrize("place", [0, 3, COUNT])
def test_a_malformed_row_in_quotes_costs_itself(tmp_path, separator, odd, place):
    rows = [f'"{source}"{separator}"{target}"' for source, target in PAIRS]
    rows.insert(place, odd.format(separator))
    (tmp_path / "a.txt").write_text("\n".join(rows), encoding="utf-8")
    assert read(tmp_path / "a.txt") == (PAIRS, 1)


@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_backslashes_before_quotes_are_no_text(tmp_path, quoting, name):
    """As databases export them."""
    pairs = [*PAIRS, ('He said "No", twice.', '"Nein", sagte er; zweimal.'), ("C:\\a", 'a "b"')]
    text = io.StringIO(newline="")
    sign = "," if name == "a.csv" else "\t"
    written = {"doublequote": False, "escapechar": "\\", "quoting": quoting}
    csv.writer(text, delimiter=sign, **written).writerows(pairs)
    (tmp_path / name).write_text(text.getvalue(), encoding="utf-8")
    assert read(tmp_path / name) == (pairs, 0)


@pytest.mark.parametrize("is_escaped", [False, True])
@given(text=st.text(alphabet='a"\\,\t '))
@settings(max_examples=60, deadline=None)
def test_a_cell_is_read_as_the_text_that_it_was(is_escaped, text):
    dialect = Dialect(",", is_quoted=True, is_escaped=is_escaped)
    assert [*dialect.reader([f"{dialect.cell(text)},end"])] == [[text, "end"]]


def test_backslashes_and_quotes_of_texts_stay(tmp_path):
    """TeX, paths and escapes of programs beside quotes; a dialogue on one side."""
    tex = [*PAIRS, ('sch\\"on \\alpha', "C:\\neu"), ('Cannot open \\"%s\\"\\nTry 1', "a")]
    said = [(f'"{source}"', target) for source, target in PAIRS * 9]
    said.insert(3, ('"Yes," he said.', "Ja, sagte er."))
    for pairs in (tex, said):
        (tmp_path / "a.tsv").write_text("\n".join(map("\t".join, pairs)), encoding="utf-8")
        assert read(tmp_path / "a.tsv") == (pairs, 0)
    paths = [*PAIRS * 5, ("D:\\x", "the path, C:\\")]
    rows = "".join(f'"{source}","{target}"\n' for source, target in paths)
    (tmp_path / "a.csv").write_text(rows, encoding="utf-8")
    assert read(tmp_path / "a.csv") == (paths, 0)


@pytest.mark.parametrize(
    ("form", "name"),
    [
        *(("({})\t({})", "a.tsv"), ("[{}]\t[{}]", "a.tsv"), ("'{}'\t'{}'", "a.tsv")),
        *(("(n) {}\t{} (n)", "a.tsv"), ("{}\t {}", "a.tsv"), ("{}| {}", "a.txt")),
        *(("{} ||| {}", "a.txt"), ("{}, {}", "a.csv")),
    ],
)
def test_brackets_and_spaces_of_a_table_are_no_sign_of_another_format(tmp_path, form, name):
    pairs = [[side.replace(",", "") for side in pair] for pair in PAIRS]
    (tmp_path / name).write_text("\n".join(form.format(*pair) for pair in pairs), encoding="utf-8")
    found, _ = read(tmp_path / name)
    assert len(found) == COUNT
    assert all(a in one and b in other for (a, b), (one, other) in zip(pairs, found, strict=True))


@pytest.mark.parametrize("form", ["({})", "'{}'", "[{}]"])
def test_lines_of_a_text_may_stand_in_brackets(tmp_path, form):
    for name, side in (("a.en", ENGLISH), ("a.de", GERMAN)):
        (tmp_path / name).write_text("\n".join(map(form.format, side)), encoding="utf-8")
    assert len(read((tmp_path / "a.en", tmp_path / "a.de"))[0]) == COUNT


def test_quotes_that_begin_late_are_seen(tmp_path):
    pairs = PAIRS * 30 + [('He said "no".', "Er sagte nein."), ("two\nlines", "zwei Zeilen")]
    with (tmp_path / "a.tsv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t").writerows(pairs)
    assert read(tmp_path / "a.tsv") == (pairs, 0)


def test_raw_tabs_keep_the_quotes_of_a_text(tmp_path):
    pairs = [*PAIRS, ('"Stop!"', '"Halt!"'), ('"Yes," she said.', "„Ja“, sagte sie.")]
    # A speech of several sentences, which looks like one cell.
    pairs += [('"I am tired.', "„Ich bin müde."), ('Let me go."', "Lasst mich gehen.“"), *PAIRS]
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    (tmp_path / "a.tsv").write_text(text, encoding="utf-8")
    assert list(read_pairs(tmp_path / "a.tsv", source_language="en", target_language="de")) == pairs


@pytest.mark.parametrize("separator", ",;")
@pytest.mark.parametrize("place", [0, 3, COUNT])
@pytest.mark.parametrize("header", [False, True])
def test_a_row_with_a_separator_in_a_text_costs_itself_wherever_it_is(
    tmp_path, separator, place, header
):
    """Rows that are alike say how wide a table is, and its header, but not its first pair."""
    rows = [["Up", "Auf"], ["Down", "Ab"]] * (COUNT // 2)
    rows.insert(place, [f"Yes{separator} I do.", "Ja."])
    rows.insert(COUNT + 1, [f"No{separator} I do not.", "Nein."])
    text = "".join(f"{separator.join(row)}\n" for row in [["en", "de"]] * header + rows)
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    pairs = [("Up", "Auf"), ("Down", "Ab")] * (COUNT // 2)
    assert read(tmp_path / "a.csv") == (pairs, 2)


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
@pytest.mark.parametrize("odd", ["A\tB\t\n", "A\tB\tnote\n", "\n"])
def test_a_tab_is_likelier_than_commas_in_all_texts(tmp_path, name, odd):
    pairs = [("It costs 1,000 dollars. ", f" Es kostet 1.{n:03},00 Dollar.") for n in range(9)]
    text = "".join(map("{0[0]}\t{0[1]}\n".format, pairs)) + odd
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert read(tmp_path / name)[0][:9] == pairs


@pytest.mark.parametrize("name", ["a.csv", "a.txt"])
@pytest.mark.parametrize("header", [[], [("English", "German", "tags")]])
def test_a_sign_in_all_cells_of_a_column_is_no_separator_beside_quotes(tmp_path, name, header):
    pairs = [(s, f"{t[:-1]}, Nr. {n};") for n, (s, t) in enumerate(PAIRS)]
    text = io.StringIO(newline="")
    rows = [*header, *((s, t, "travel;easy") for s, t in pairs)]
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    (tmp_path / name).write_text(text.getvalue(), encoding="utf-8")
    given = {} if header else {"source_column": 1, "target_column": 2}
    reader = read_pairs(tmp_path / name, source_language="en", target_language="de", **given)
    assert (list(reader), reader.num_malformed) == (pairs, 0)


def test_tabs_in_quotes_divide_nothing(tmp_path):
    text = "".join(f'"{s}\tx","{t}"\n' for s, t in [("en", "de"), *PAIRS])
    (tmp_path / "a.csv").write_text(text.replace("en\tx", "en"), encoding="utf-8")
    assert read(tmp_path / "a.csv") == ([(f"{s}\tx", t) for s, t in PAIRS], 0)


def test_tabs_and_quotes_around_cells_with_a_comma_are_a_spreadsheets(tmp_path):
    rows = [[f'"{side}"' if "," in side else side for side in pair] for pair in PAIRS]
    (tmp_path / "a.txt").write_text("\n".join(map("\t".join, rows)), encoding="utf-8")
    assert read(tmp_path / "a.txt") == (PAIRS, 0)


def test_a_last_cell_that_most_rows_leave_empty_is_a_column(tmp_path):
    rows = [f"{s}\t{t}\t{'a note' if n % 3 == 2 else ''}" for n, (s, t) in enumerate(PAIRS)]
    (tmp_path / "a.tsv").write_text("\n".join(rows), encoding="utf-8")
    assert read(tmp_path / "a.tsv") == (PAIRS, 0)
    rows[1:1] = ["Yes,\tI do.\tJa.\t"]  # a cell more than all others, though the last is empty
    (tmp_path / "a.tsv").write_text("\n".join(rows), encoding="utf-8")
    assert read(tmp_path / "a.tsv") == (PAIRS, 1)


# ---------------------------------------------------------------------------- other formats


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
    (tmp_path / "memory16.tmx").write_text(names["memory.tmx"], encoding="utf-16")
    (tmp_path / "memory.tmx.bz2").write_bytes(bz2.compress(names["memory.tmx"].encode()))
    for source in (
        (tmp_path / "a.en.sgm", tmp_path / "a.de.sgm"),
        *(tmp_path / name for name in ("wmt.xml", "memory.tmx", "memory.tmx.bz2", "memory16.tmx")),
        tmp_path / "de-en.txt.zip",
    ):
        assert list(read_pairs(source, source_language="en", target_language="de")) == PAIRS
    reverse = read_pairs(tmp_path / "wmt.xml", source_language="de", target_language="en")
    assert list(reverse) == [pair[::-1] for pair in PAIRS]
    reader = read_pairs(tmp_path / "wmt.xml", source_language="en", target_language="fr")
    assert not list(reader)
    assert reader.examples[0].endswith("wmt.xml: segment 1: its languages are ['en', 'de']")


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
    assert "2 texts in 'pt' of en, pt-BR, PT-PT" in reader.examples[0]
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


def test_texts_may_speak_of_tags(tmp_path):
    pairs = [
        *PAIRS,
        ("Open a <dataset> or <tmx>.", "<dataset> und <tmx>"),
        ("01:02:03,004 --> x", "y"),
    ]
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    (tmp_path / "a.tsv").write_text(text, encoding="utf-8")
    assert list(read_pairs(tmp_path / "a.tsv", source_language="en", target_language="de")) == pairs


BOMB = '<!DOCTYPE tmx [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in itertools.pairwise("abcdefghij")
)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\nHello.\n", "subtitles with times"),
        ("a.xml", "<?xml version='1.0'?><corpus/>", "markup that is not read"),
        ("a.tmx", f"<?xml version='1.0'?>{BOMB}]><tmx><body>" + UNIT.format("en", "&j;", "de", "x")
         + "</body></tmx>", "(?i)entit|no pair|not XML|source is empty"),
        ("a.tmx", "<tmx><body>" + UNIT.format("en", "a", "de", "b"), r"not XML: .*line 1"),
        ("a.zip", "PK\x03\x04 and no more", "not a whole zip"),
        ("a.sgm", sgm("srcset", "any", ENGLISH), "holds one side; give both files"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_what_it_is(tmp_path, name, content, reason):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(RequestError, match=reason):
        list(read_pairs(tmp_path / name, source_language="en", target_language="de", strict=True))


@pytest.mark.parametrize(
    ("names", "way", "reason"),
    [
        (["xl/workbook.xml"], zipfile.ZIP_STORED, "needed is one .* save a spreadsheet as CSV"),
        (["a.en", "a.de"], zipfile.ZIP_LZMA, "is packed by another method than deflate; unpack it"),
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
    with pytest.raises(RequestError, match=r"a\.zip/a\.en holds cells or records"):
        read(tmp_path / "a.zip")


def test_members_of_an_archive_may_be_sets_of_segments(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.en", sgm("srcset", "any", ENGLISH))
        archive.writestr("a.de", sgm("refset", "de", GERMAN))
    assert read(tmp_path / "a.zip") == (PAIRS, 0)


def test_a_damaged_archive_and_one_of_several_files_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for code, texts in (("en", ENGLISH), ("de", GERMAN)):
            archive.writestr(f"a.{code}", "\n".join(texts) * 99)
    content = bytearray((tmp_path / "a.zip").read_bytes())
    content[40:60] = bytes(range(20))
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(RequestError, match=r"a\.zip is not a whole zip file"):
        read(tmp_path / "a.zip")
    (tmp_path / "t.tsv").write_text("a\tb\n" * 999, encoding="utf-8")
    with tarfile.open(tmp_path / "t.tgz", "w:gz") as archive:
        archive.add(tmp_path / "t.tsv", "t.tsv")
    with pytest.raises(RequestError, match=r"t\.tgz is packed.*; unpack it"):
        read(tmp_path / "t.tgz")


def test_a_folder_names_what_it_does_not_read(tmp_path, caplog):
    text = "".join("\t".join(pair) + "\n" for pair in PAIRS)
    for name in ("a.tsv", "b.tab", "c.csv", "notes.md", "x.en"):
        (tmp_path / name).write_text(text, encoding="utf-8")
    reader = read_pairs(str(tmp_path), source_language="en", target_language="de", split="all")
    assert list(reader) == PAIRS * 3
    assert "not read: ['notes.md', 'x.en']" in caplog.text


@pytest.mark.parametrize("kind", ["list<", "binary", "int64"])
@pytest.mark.parametrize("name", ["de", "target", "translation"])
def test_a_column_of_parquet_that_is_no_text_is_named_with_its_type(tmp_path, kind, name):
    value = {"list<": GERMAN, "binary": b"x", "int64": 7}[kind]
    source = {"de": "en", "target": "source", "translation": "id"}[name]
    rows = [{source: ENGLISH[0], name: value}] * COUNT
    Dataset.from_list(rows).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(RequestError, match=f"holds no text in {name}, which is (large_)?{kind}"):
        read(tmp_path / "a.parquet")


def test_metadata_beside_a_translation_is_no_side(tmp_path):
    rows = [{"source": "web", "translation": {"en": en, "de": de}} for en, de in PAIRS]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    Dataset.from_list(rows).to_parquet(tmp_path / "a.parquet")
    for source in (tmp_path / "a.jsonl", tmp_path / "a.parquet", Dataset.from_list(rows)):
        assert read(source) == (PAIRS, 0)


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


def test_segments_that_are_not_utf_8_are_named(tmp_path):
    for name, language in (("a.en.sgm", "en"), ("a.de.sgm", "de")):
        content = sgm("srcset" if language == "en" else "refset", language, ["A caf\u00e9.", "B."])
        (tmp_path / name).write_bytes(content.encode("latin-1"))
    source = (tmp_path / "a.en.sgm", tmp_path / "a.de.sgm")
    reader = read_pairs(source, source_language="en", target_language="de")
    assert list(reader) == [("B.", "B.")]
    assert "invalid UTF-8" in reader.examples[0]


# ------------------------------------------------------------------------------- languages


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("de", "de"), ("DEU", "de"), ("ger", "de"), ("de_CH", "de"), ("zh-Hans", "zh"),
        ("German", "de"), ("Deutsch", "de"), ("allemand", "de"), ("中文", "zh"), ("cmn", "zh"),
        ("Swahili", "sw"), ("swh", "sw"), ("score", None), ("Hello", None), ("", None),
        ("1.2", None),
    ],
)  # fmt: skip
def test_languages_are_known_by_code_and_name(name, code):
    assert language_of(name) == code


def test_scripts_are_those_of_unicode():
    assert script_of("ru") == {"CYRILLIC"}
    assert script_of("sr-Latn") == script_of("en") == {"LATIN"}
    assert script_of("ja") >= {"HIRAGANA", "CJK"}
    assert script_of("phonemes") == set()
    assert language_of("yi") == "yi"  # a code, and the name of another language


def test_letters_of_each_language_are_in_its_script():
    """Babel's names of scripts begin as Unicode's names of letters, but for those in a table."""
    in_unicode = {unicodedata.name(chr(n), "?").split()[0] for n in range(0x20000)}
    for code in Locale("en").languages:
        assert script_of(code) <= in_unicode, code


def test_the_command_data_tells_what_a_file_holds(tmp_path, capsys):
    rows = [f"1.{n}\t{s}\t{t}\ten\tde" for n, (s, t) in enumerate(PAIRS)]
    rows += ["1.7\tTom &amp; Mary\tTom@@ as\ten\tde", "1.8\tThe café.\tDas CafÃ©.\ten\tde"]
    (tmp_path / "pairs.txt").write_text("\n".join([*rows, rows[0]]), encoding="utf-8")
    assert main(["data", str(tmp_path / "pairs.txt"), "--pair", "en-de"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].split(" | ")[-1].strip() == "5"
    assert f"en: {ENGLISH[0]}\nde: {GERMAN[0]}" in printed
    assert "9 pairs read" in printed
    assert "--clean would leave out 1 of 9 pairs" in printed
    assert "source: 1 with character entities, such as: Tom &amp; Mary" in printed
    assert "target: 1 with pieces of words" in printed
    assert "target: 1 with mojibake" in printed
    told = re.search(r"source: half of .* at most (\d+) .*, 99 of 100 at most (\d+);", printed)
    lengths = [len(row.split("\t")[1]) for row in [*rows, rows[0]]]
    for limit, share in zip(told.groups(), (0.5, 0.99), strict=True):
        assert sum(length <= int(limit) for length in lengths) >= share * len(lengths)
    folder = tmp_path / "several"  # all of whose files `train` reads, whatever their names
    folder.mkdir()
    for name in ("train.tsv", "test.jsonl"):
        row = f"{name}\tx" if name.endswith("tsv") else json.dumps({"en": name, "de": "x"})
        (folder / name).write_text(f"{row}\n", encoding="utf-8")
    assert main(["data", str(folder), "--pair", "en-de"]) == 0
    assert "2 pairs read" in capsys.readouterr().out
    (tmp_path / "unclear.tsv").write_text("a b\tc d\te f\n" * 3, encoding="utf-8")
    assert "not clear" in error_of(capsys, "data", tmp_path / "unclear.tsv", "--pair", "en-de")


@pytest.mark.parametrize(
    ("text", "doubt"),
    [
        ("Tom &amp; Mary", "character entities"),
        ("<b>Tom</b>", "markup"),
        ("H@@ aus", "pieces of words"),
        ("CafÃ©", "mojibake"),
        ("Ça va ?", None),
    ],
)
def test_signs_in_many_training_pairs_give_a_warning(text, doubt):
    for count, side in itertools.product((10, 11), ("source", "target")):
        others = [f"{n} < {n + 1} & so on." for n in range(3000)]
        texts = [text if n % 100 < count else other for n, other in enumerate(others)]
        numbers = [f"{n}." for n in range(3000)]
        pairs = {"source": numbers, "target": numbers[::-1], side: texts}
        found = [*doubts(Dataset.from_dict(pairs), {}, ("en", "de"))]
        assert len(found) == (count == 11 and doubt is not None)
        assert all(f"11% of the training pairs have {doubt}: " in each for each in found)


def test_pairs_to_be_scored_that_are_the_other_way_round_give_a_warning():
    english = [f"the {n % 7} dogs and a cat {n}" for n in range(60)]
    german = [f"die {n % 7} Hunde und eine Katze {n}" for n in range(60)]
    train = Dataset.from_dict({"source": english[:50], "target": german[:50]})
    (warning,) = doubts(train, {"own": (german[50:], english[50:])}, ("en", "de"))
    assert warning.startswith("The own pairs seem to be the other way round")
    both = Dataset.from_dict({"source": english + german, "target": german + english})
    for pairs, sides in (
        (train, (english[50:], german[50:])),
        (both, (german, english)),  # a model of both directions
        (train, (["neun"], ["nine"])),  # of other words
        (train, ([], [])),
        (Dataset.from_dict({"source": english, "target": english[::-1]}), (english, english)),
    ):
        assert not [*doubts(pairs, {"test": sides}, ("en", "de"))]
