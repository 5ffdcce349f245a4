"""`translate` on the command line: options, pictures of the attention, progress."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import re
import shutil
import sys
import types

import pytest
from command_line import error_of
from tiny_runs import tiny_recipe

from vanilla_transformer import visualization
from vanilla_transformer.batch_translation import MAX_SOURCE_TOKENS
from vanilla_transformer.cli import main
from vanilla_transformer.cli.translate import Pipe, arriving
from vanilla_transformer.recipes.recipe import load_recipe
from vanilla_transformer.storage.reading import LINE_BYTES
from vanilla_transformer.storage.saved_model import load_saved_model, load_saved_tokenizer
from vanilla_transformer.texts.sentences import join_sentences
from vanilla_transformer.train import run_recipe
from vanilla_transformer.translation import many_texts

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a tiny run directory."""
    folder = tmp_path_factory.mktemp("trained")
    run_recipe(load_recipe(str(tiny_recipe(folder))), folder / "run")
    return folder / "run"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.txt"
    path.write_text("\n  ein Hund\nalt und Haus\n", encoding="utf-8")
    return path


def recorded(monkeypatch, module, name):
    """Record the arguments of each call of a function, which still runs."""
    calls, function = [], getattr(module, name)

    def record(*args, **kwargs):
        calls.append((args, kwargs))
        return function(*args, **kwargs)

    monkeypatch.setattr(module, name, record)
    return calls


@pytest.mark.parametrize("num_beams", [[], ["--num-beams", "1"], ["--nbest", "2"]])
def test_picture_shows_the_translation(run, source, tmp_path, monkeypatch, capsys, num_beams):
    drawn = recorded(monkeypatch, visualization, "attention_weights")
    picture = tmp_path / "map.png"
    command = ["translate", str(run), str(source), *num_beams]
    assert main([*command, "--attention", str(picture)]) == 0
    lines = capsys.readouterr().out.splitlines()
    printed = lines[1].split(" ||| ")[1] if "--nbest" in num_beams else lines[1]
    (((_, _, text, translation), _),) = drawn
    assert text == "  ein Hund"
    assert " ".join(translation.splitlines()) == printed
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--num-beams", "2000"], "Got num_beams=2000; it must be a whole number from 1 to 1000"),
        (["--attention", "map.docx"], "map.docx; the name must end in one of"),
        (["--attention", "none/map.png"], "none/map.png cannot be written; name a file in an"),
        (["--attention", "SOURCE"], "source.txt is also an input"),
        (["--attention", "MAP", "--alignments", "MAP"], "map.png is given twice; give each"),
        (["--output", "."], ". cannot be written; name a file in an existing folder"),
        (["--split-sentences", "--nbest", "2"], "--split-sentences excludes --nbest"),
        (["--tsv", "2", "--nbest", "2"], "argument --nbest: not allowed with argument --tsv"),
        (["--tsv", "0"], "--tsv: invalid column value: '0'"),
        (["--csv", "2", "--tsv", "2"], "argument --tsv: not allowed with argument --csv"),
    ],
)
def test_wrong_options_are_named_and_touch_no_file(run, source, tmp_path, capsys, options, message):
    target, picture = tmp_path / "target.txt", tmp_path / "map.png"
    target.write_text("an older translation")
    options = [{"MAP": picture, "SOURCE": source}.get(option, option) for option in options]
    command = ["translate", run, source, "--output", target]
    assert "exists; give --overwrite to replace it" in error_of(capsys, *command)
    assert message in error_of(capsys, *command, "--overwrite", *options)
    assert target.read_text() == "an older translation"
    assert not picture.exists()


@pytest.mark.parametrize(
    ("last", "message"),
    [
        (b"sch\xf6n", "source.txt, line 2: invalid UTF-8 at byte 4 of the line; repair the line."),
        (b"\xff\xfeg\x00u\x00t\x00", "source.txt, line 2: invalid UTF-8 at byte 1"),
        (b"gut " * (MAX_SOURCE_TOKENS + 1), "Input 2 has "),
        (b"a" * (LINE_BYTES + 1), "source.txt, line 2: the line is longer than 1 MiB"),
    ],
    ids=["latin1", "utf-16", "tokens", "bytes"],
)
def test_a_bad_line_is_named(run, tmp_path, capsys, last, message):
    path, target = tmp_path / "source.txt", tmp_path / "target.txt"
    path.write_bytes(b"ein Hund\n" + last)
    assert message in error_of(capsys, "translate", run, path, "--output", target)
    assert not list(tmp_path.glob("target.txt*"))


@pytest.mark.parametrize("more", [[], ["--nbest", "2"], ["--num-beams", "1"]])
def test_a_stopped_translation_goes_on(run, tmp_path, capsys, monkeypatch, more):
    path, target, links = (tmp_path / name for name in ("source.txt", "target.txt", "links.txt"))
    path.write_text("".join(f"{'alt und ' * (n % 3)}Haus\n" for n in range(200)), encoding="utf-8")
    command = [str(word) for word in ("translate", run, path, "--alignments", links, *more)]
    assert main([*command, "--output", str(tmp_path / "whole.txt")]) == 0
    aligned = links.read_bytes()
    links.unlink()
    generate = many_texts.generate_ids
    calls = []

    def stopping(*args, **options):
        calls.append(args)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return generate(*args, **options)

    monkeypatch.setattr(many_texts, "generate_ids", stopping)
    command += ["--output", str(target)]
    assert main(command) == 130
    assert "repeat the command to continue" in capsys.readouterr().err
    assert {it.name for it in tmp_path.iterdir()} == {
        *("source.txt", "whole.txt", ".vanilla-transformer-rows-target.txt")
    }
    monkeypatch.setattr(many_texts, "generate_ids", generate)
    lines = recorded(monkeypatch, many_texts, "encode")
    assert main(command) == 0
    assert "has the first 64 rows" in capsys.readouterr().err
    assert len(lines[0][0][2]) == 64  # the first window of the rest
    assert target.read_bytes() == (tmp_path / "whole.txt").read_bytes()
    assert links.read_bytes() == aligned
    assert {it.name for it in tmp_path.iterdir()} == {
        *("source.txt", "whole.txt", "target.txt", "links.txt")
    }


def test_two_commands_do_not_write_one_output(run, source, tmp_path, capsys, monkeypatch):
    target, command = tmp_path / "target.txt", ["translate", str(run), str(source), "--output"]
    generate = many_texts.generate_ids

    def interfering(*args, **options):
        monkeypatch.setattr(many_texts, "generate_ids", generate)
        told = error_of(capsys, *command, str(target))
        assert f"{target} is being written by another command" in told
        target.write_text("of somebody else")
        return generate(*args, **options)

    monkeypatch.setattr(many_texts, "generate_ids", interfering)
    assert main([*command, str(target)]) == 2
    assert f"{target} appeared meanwhile; give --overwrite, or move" in capsys.readouterr().err
    assert target.read_text() == "of somebody else"
    monkeypatch.setattr(many_texts, "generate_ids", None)  # all translations were kept
    assert main([*command, str(target), "--overwrite"]) == 0
    assert target.read_text(encoding="utf-8").count("\n") == 3


def test_redirected_file_is_translated_from_its_current_position(run, source, monkeypatch, capsys):
    with source.open("rb", buffering=0) as stream:
        stream.readline()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(stream)))
        assert main(["translate", str(run)]) == 0
    assert capsys.readouterr().out.count("\n") == 2


@pytest.mark.parametrize("option", ["--csv", "--tsv", "--output"])
def test_an_option_without_a_value_is_refused(run, capsys, option):
    assert f"{option} is empty; give a value or omit it." in error_of(
        capsys, "translate", run, option, ""
    )


def translated(capsys, *command):
    """Return the lines that `translate` prints, and its standard error."""
    assert main(["translate", *map(str, command)]) == 0
    printed = capsys.readouterr()
    return printed.out.split("\n")[:-1], printed.err


@pytest.fixture
def loud(monkeypatch):
    """Translate to capitals, with a tab and a line end added."""

    def translate_nbest(model, tokenizer, texts, **options):
        return ([many_texts.Translation(f"{text.upper()}\t!\n", -1.0)] for text in texts)

    monkeypatch.setattr(many_texts, "translate_nbest", translate_nbest)


def test_a_column_is_translated_and_the_others_stay(run, loud, tmp_path, capsys):
    rows = ['0\tein "Hund\t x', "1\t\t", "2\talt und\thaus", ""]
    expected = [f"{row}\t{row.split(chr(9))[1].upper()} !" for row in rows[:3]] + [""]
    table = tmp_path / "table.tsv"
    table.write_bytes("\r\n".join(rows).encode() + b"\n")
    lines, said = translated(capsys, run, table, "--tsv", "2")
    assert lines == expected
    assert said == ""
    table.write_text("\n".join(["number\tsource\trest", *rows]) + "\n")
    found = translated(capsys, run, table, "--tsv", "source")
    assert found == (["number\tsource\trest\ttranslation", *expected], "")


@pytest.mark.parametrize("column", ["text", "1"])
@pytest.mark.parametrize(("option", "separator"), [("--csv", ","), ("--csv", ";"), ("--tsv", "\t")])
@pytest.mark.parametrize("texts", [["Ja, ich.", "Gut."], ["1;2", "Nein.", "3|4", "Gut, a, b"]])
def test_a_table_stays_one(run, loud, tmp_path, capsys, column, option, separator, texts):
    """With its separator, whatever signs its texts have, and with a short row filled up."""
    table = tmp_path / "table"
    rows = [[text, "2,50", "x"] for text in ["text", *texts]]
    with table.open("w", newline="") as file:
        csv.writer(file, delimiter=separator).writerows(rows)
        file.write(f"Hund{separator}3\n")
    lines, _ = translated(capsys, run, table, option, column)
    said = "\t!" if option == "--csv" else " !"
    expected = [[*row, f"{row[0].upper()}{said}"] for row in [*rows, ["Hund", "3", ""]]]
    expected[0][3] = "translation" if column == "text" else expected[0][3]
    assert [*csv.reader(lines, delimiter=separator)] == expected


@pytest.mark.parametrize("packer", [bz2, gzip, lzma])
def test_packed_text_is_translated(run, loud, tmp_path, capsys, packer):
    path = tmp_path / "source.packed"
    path.write_bytes(packer.compress(b"ein Hund\nalt\n"))
    assert translated(capsys, run, path)[0] == ["EIN HUND\t!", "ALT\t!"]


def test_quoted_cells_of_a_table_are_translated_and_it_stays_one(run, loud, tmp_path, capsys):
    path = tmp_path / "table.csv"
    rows = [["id", "a text", "n"], ["1", 'ein, "alt"', "x"], ["2", "", "y"], ["3", "ein\nHund", ""]]
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=";").writerows(rows)
    lines, said = translated(capsys, run, path, "--csv", "a text")
    assert said == ""
    expected = ["translation", 'EIN, "ALT"\t!', "\t!", "EIN HUND\t!"]
    found = [*csv.reader(io.StringIO("\n".join(lines) + "\n"), delimiter=";")]
    assert found == [[*row, cell] for row, cell in zip(rows, expected, strict=True)]


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (
            "id\tsource\tn\n1\tein\n",
            "--tsv 4",
            "table needs one column 4; its first row is 'id', 's",
        ),
        (
            "id\tsource\n1\tein\n",
            "--tsv text",
            "needs one column 'text'; its first row is 'id', 's",
        ),
        ("en\ten\none\ttwo\n", "--tsv en", "needs one column 'en'; its first row is 'en', 'en'"),
        ("id,source\n1,ein\n", "--tsv 2", "needs one column 2; its first row is 'id,source'"),
        ("id,source\n1,ein\n2,ja, alt\n3,ein", "--csv 2", "line 3: 3 cells, not 2; fix it."),
        ('id,source\n1,"ein\n', "--csv 2", "table, line 2: unexpected end of data; repair the"),
    ],
)
def test_missing_column_is_refused_before_work(run, tmp_path, capsys, table, options, message):
    (tmp_path / "table").write_text(table)
    target = tmp_path / "target"
    command = [run, tmp_path / "table", *options.split(), "--output", target]
    assert main(["translate", *map(str, command)]) == 2
    assert message in capsys.readouterr().err
    assert not target.exists()


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.jsonl", '{"de": "ein"}\n', "JSON"),
        ("a.txt", '\ufeff{"de": "ein"}\n', "JSON"),
        ("a.txt", '[\n  {"de": "ein"}\n]\n', "JSON array"),
        ("a.json", '["ein"]\n', "JSON"),
        ("a.sgm", '<srcset>\n<seg id="1">ein</seg>\n</srcset>\n', "sgm"),
        ("a.txt", "1\n00:00:01,000 --> 00:00:02,000\nein\n", "subtitles"),
        ("a.txt", "<html>\nein\n", "markup"),
        ("a.txt", "PK\3\4", "zip"),
        ("a.txt", '{} alt\n["ein"]\n<b>Hund</b>\n', None),
        ("a.csv", "ein,alt\n", None),
    ],
)
def test_other_formats_than_text_are_refused(run, loud, tmp_path, capsys, name, content, kind):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    if kind is None:
        lines = [f"{line.upper()}\t!" for line in content.splitlines()]
        assert translated(capsys, run, path) == (lines, "")
    else:
        expected = f"{name} holds {kind}, not one sentence a line; convert it to text"
        assert expected in error_of(capsys, "translate", run, path)


def test_alignments_file_links_the_lines_written(run, tmp_path, capsys):
    links, table = tmp_path / "links", tmp_path / "table.tsv"
    texts = ["ein Hund", "", "alt und Haus"]
    table.write_text("\n".join(["source", *texts]))
    model, tokenizer = load_saved_model(run), load_saved_tokenizer(run)
    options = {"prefix": "a b", "return_alignments": True}
    for nbest, more in ((1, ["--tsv", "source"]), (2, ["--nbest", "2"])):
        sources = texts if nbest == 1 else ["source", *texts]
        found = many_texts.translate_nbest(
            model, tokenizer, sources, num_beams=nbest, num_return_sequences=nbest, **options
        )
        expected = [one for translations in found for one in translations]
        written = [" ".join(f"{i}-{j}" for i, j in one.alignment) for one in expected]
        command = [run, table, "--alignments", links, "--prefix", "a b", *more]
        command += ["--overwrite"] * (nbest > 1)
        lines, _ = translated(capsys, *command)
        assert len(lines) == len(written) + (nbest == 1)
        assert links.read_text().split("\n")[:-1] == [""] * (nbest == 1) + written
        assert all(one.text.startswith("a b") for one in expected if one.alignment)
        assert sum(map(bool, written)) >= 2


@pytest.fixture
def splitter(monkeypatch):
    """Replace sentencex: a sentence ends with a full stop and the spaces after it."""
    calls = []

    def segment(language, text):
        calls.append(language)
        return re.findall(r"[^.]+[.]?\s*", text)

    monkeypatch.setitem(sys.modules, "sentencex", types.SimpleNamespace(segment=segment))
    return calls


@pytest.fixture
def bracketed(monkeypatch):
    """Translate a sentence by putting it in brackets."""

    def translate_nbest(model, tokenizer, sentences, **options):
        for text in sentences:
            found = f"[{text}]" if text.strip() else ""
            yield [many_texts.Translation(found, -1.0)]

    monkeypatch.setattr(many_texts, "translate_nbest", translate_nbest)


def test_document_is_translated_by_sentence_and_keeps_its_lines(
    run, splitter, bracketed, tmp_path, monkeypatch, capsys
):
    lines = ["ein Hund. alt  und. Haus", "", "   ", "ein. ", "alt"]
    expected = ["[ein Hund.] [alt  und.] [Haus]", "", "", "[ein. ]", "[alt]"]
    document, table = tmp_path / "document.txt", tmp_path / "table.tsv"
    document.write_text("\n".join(lines))
    found, said = translated(capsys, run, document, "--split-sentences")
    assert (found, said, {*splitter}) == (expected, "", {"de"})  # the run's language
    translated(capsys, run, document, "--split-sentences", "--pair", "pt-en")
    assert {*splitter} == {"de", "pt"}

    table.write_text("".join(f"{line}\t7\n" for line in ["text", *lines]))
    found, _ = translated(capsys, run, table, "--tsv", "text", "--split-sentences")
    assert found[0] == "text\t7\ttranslation"
    assert [row.split("\t")[:2] for row in found[1:]] == [[line, "7"] for line in lines]
    assert [row.split("\t")[2] for row in found[1:]] == expected

    reading, writing = os.pipe()
    os.write(writing, document.read_bytes())
    os.close(writing)
    with os.fdopen(reading) as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        assert translated(capsys, run, "--split-sentences")[0] == expected


def test_splitting_sentences_needs_languages(run, source, splitter, tmp_path, capsys):
    copy = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    (copy / "recipe.yaml").unlink()
    translated(capsys, copy, source, "--split-sentences")  # metrics.json says it too
    assert {*splitter} == {"de"}
    (copy / "metrics.json").unlink()
    settings = json.loads((copy / "tokenizer_config.json").read_text())
    del settings["written_forms"]  # which says it too
    (copy / "tokenizer_config.json").write_text(json.dumps(settings))
    line = error_of(capsys, "translate", copy, source, "--split-sentences")
    assert "does not record its languages; give --pair, such as en-de." in line


def test_a_model_of_single_sentences_splits_lines_and_names_doubtful_ones(capsys, tmp_path):
    """As everyday-en-de, which comes with the package, does."""
    text = tmp_path / "typed.txt"
    spanish = "SI USTED TIENE TIEMPO, VENGA CON NOSOTROS"
    text.write_text(f"Where is Tom? I am tired.\nqwrt zxcv bnml\n{spanish}\nI am hungry.\n")
    alone = [["Where is Tom?", "I am tired."], ["qwrt zxcv bnml"], ["I am hungry."]]
    found, said = translated(capsys, "everyday-en-de", text)
    parts = [tmp_path / f"{number}.txt" for number in range(3)]
    for part, lines in zip(parts, alone, strict=True):
        part.write_text("".join(f"{line}\n" for line in lines))
    expected = [" ".join(translated(capsys, "everyday-en-de", part)[0]) for part in parts]
    assert [found[0], found[1], found[3]] == expected
    assert "line 2, may be translated wrongly: the model is far less sure of it than usual." in said
    assert "line 3, looks like Spanish; its translation may be wrong." in said
    assert "line 1" not in said
    whole, _ = translated(capsys, "everyday-en-de", text, "--no-split-sentences")
    assert whole[1:] == found[1:]
    best, _ = translated(capsys, "everyday-en-de", text, "--nbest", "1")
    assert [line.endswith("||| doubtful") for line in best] == [False, True, True, False]


@pytest.mark.parametrize("size", [1, 7, 2**20])
def test_a_pipe_gives_the_lines_of_its_stream_and_says_when_none_is_left(size):
    class Stream(io.BytesIO):
        def read1(self, most):
            return super().read1(min(most, size))

    content = b"\n".join([b"a" * 20, b"", b"b c", b"d" * 9])
    pipe, stream = Pipe(Stream(content)), io.BytesIO(content)
    while line := stream.readline(12):
        assert pipe.readline(12) == line
        assert pipe.is_empty() or size > 1
    assert pipe.readline(12) == b""
    assert pipe.is_empty()


def test_texts_that_arrive_together_are_one_group():
    pipe = Pipe(io.BytesIO(b"a\nb\nc\n"))
    lines = iter(lambda: pipe.readline(9), b"")
    assert [*arriving(lines, pipe, most=2)] == [[b"a\n", b"b\n"], [b"c\n"]]


def test_sentences_are_joined_by_a_space_except_in_zh_and_ja():
    assert join_sentences(["Ja. ", "", " Nein."], "de") == "Ja. Nein."
    for language in ("zh", "zh-Hant", "ja", "ZH_cn", "zho_Hans", "jpn"):
        assert join_sentences(["你好。 ", "我是学生。"], language) == "你好。我是学生。"
    assert join_sentences([], "en") == join_sentences([""], "en") == ""
