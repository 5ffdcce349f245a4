"""The command line: what users type, and what they read when it is wrong."""

import argparse
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from command_line import error_of
from tiny_runs import tiny_recipe

from vanilla_transformer.cli import main
from vanilla_transformer.cli import parser as cli
from vanilla_transformer.storage import extras

pytestmark = pytest.mark.usefixtures("own_cache")

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "vanilla_transformer.cli"]


def environment(cache, **changes):
    changes = {"HF_DATASETS_CACHE": str(cache), "PYTHONPATH": str(ROOT), **changes}
    return {**os.environ, **changes}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the folder of a tiny run that the command made, and of its log."""
    folder = tmp_path_factory.mktemp("trained")
    recipe = tiny_recipe(folder)
    with (folder / "log").open("w") as log, contextlib.redirect_stderr(log):
        code = main(["train", str(recipe), "--output-dir", str(folder / "run"), "--max-steps=10"])
    assert code == 0
    return folder


def translate(monkeypatch, capfd, folder, content, *arguments):
    """Return what `translate` prints for bytes on standard input."""
    source = folder / "stdin.txt"
    source.write_bytes(content)
    with source.open("rb") as stream:
        monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": stream}))
        run = [str(argument) for argument in arguments]
        assert main(["translate", str(folder / "run"), "--num-beams", "1", *run]) == 0
    return capfd.readouterr().out


def commands(parser, words=()):
    """Yield the words and the parser of every command."""
    yield words, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield from commands(command, (*words, name))


COMMANDS = dict(commands(cli.build_parser()))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_examples_that_the_parser_accepts(capsys, words):
    with pytest.raises(SystemExit) as exit:
        main([*words, "--help"])
    assert exit.value.code == 0
    text = capsys.readouterr().out
    shown = text.partition("\nExample:\n")[2].partition("\n\n")[0].replace("\\\n", " ")
    examples = [line.partition("vanilla-transformer ")[2] for line in shown.splitlines()]
    assert examples
    for example in examples:
        given = shlex.split(example)
        assert tuple(given[: len(words)]) == words
        _, unknown = cli.build_parser().parse_known_args(given)  # exits where it cannot
        assert unknown == []


# The program that pip installs, except that it also prints the slow libraries it has loaded.
INSTALLED = """
import atexit, sys
slow = ("torch", "transformers", "numpy", "yaml", "huggingface_hub")
atexit.register(lambda: print("loaded:", *(name for name in slow if name in sys.modules)))
from vanilla_transformer.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["train", "--help"], ["import", "torch", "--help"], ["x"]]
)
def test_help_and_mistyped_commands_load_no_slow_library(tmp_path, words):
    program = tmp_path / "vanilla-transformer"
    program.write_text(INSTALLED, encoding="utf-8")
    command = [sys.executable, str(program), *words]
    run = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True)
    assert run.returncode == (2 if words == ["x"] else 0), run.stderr
    assert run.stdout.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "demmo"], "did you mean demo?"),
        (["train", "demo", "--max-step", "5"], "(did you mean --max-steps?)"),
        (["train", "demo", "--max-steps", "five"], "max_steps: got 'five'; it must be a whole"),
        (["train", "demo", "--seed", "9" * 10_000], "seed: got '999"),
        (
            ["train", "demo", "--data-source", "caf\udce9"],
            "data_source: 'caf\\udce9' is not UTF-8 in this locale",
        ),
        (["train", "demo", "--train-file", "FIFO"], "FIFO is a folder, a pipe or a device"),
        (["train", "demo", "--train-file", "/proc/self/mem"], "mem: Input/output error"),
        (["train", "demo", "--test-file", "missing.jsonl"], "missing.jsonl"),
        (["train", "x" * 5000 + ".yaml"], "File name too long"),
        (["train", "demo", "--pair", "../../x-en"], "pair: got '../../x-en'; write SOURCE-TARGET"),
        (["translate", "nowhere", "--nbest", "9" * 5000], "--nbest: invalid count value: '999"),
        (["import", "torch", "a", "b", "--heads", "9" * 5000], "invalid int value"),
        (["train"], "Name a recipe, such as multi30k_en_de, or give --train-file"),
        (["teach", "demo"], "invalid choice: 'teach'"),
        (["translate", "nowhere"], "There is no folder nowhere"),
        (["data", "missing.tsv", "--pair", "en-de"], "missing.tsv'; there is no such file"),
    ],
)
def test_mistakes_give_a_one_line_error(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("FIFO")
    line = error_of(capsys, *arguments)
    assert message in line
    assert len(line) < 600
    assert os.listdir() == ["FIFO"]


@pytest.mark.parametrize(
    ("options", "pair"),
    [
        ({"position_encoding": "learned"}, {"de": "ein Hund", "en": "dog " * 1100}),
        ({}, {"de": "Hund " * 4100, "en": "dog"}),
    ],
    ids=["translation", "source"],
)
def test_too_long_test_pairs_are_refused_before_training(tmp_path, capsys, options, pair):
    recipe = tiny_recipe(tmp_path, **options)
    long = json.dumps({"translation": pair})
    with (tmp_path / "test.jsonl").open("a") as file:
        file.write(f"{long}\n")
    line = error_of(capsys, "train", recipe, "--output-dir", tmp_path / "run")
    which = "The translation of pair" if options else "Input"
    assert f"{which} 11 has" in line
    assert not list((tmp_path / "run" / "checkpoints").glob("checkpoint-*"))


def test_defects_keep_their_traceback(monkeypatch, trained):
    def defect(*args, **kwargs):
        int("not a number")  # a ValueError whose last frame lies outside the package

    monkeypatch.setattr("vanilla_transformer.train.scoring.score_run", defect)
    with pytest.raises(ValueError, match="invalid literal"):
        main(["evaluate", str(trained / "run")])


def test_evaluate_prints_a_table_and_writes_json(capsys, trained, tmp_path):
    scores = tmp_path / "scores.json"
    assert main(["evaluate", str(trained / "run"), "--output", str(scores)]) == 0
    text = capsys.readouterr().out
    assert re.search(r"bleu +chrf +exact_match +copied +perplexity", text)
    assert "tok:13a" in text
    stored = json.loads((trained / "run" / "metrics.json").read_text(encoding="utf-8"))
    assert json.loads(scores.read_text())["scores"] == {"test": stored["scores"]["test"]}


def test_translate_prints_one_line_per_input_line_in_order(monkeypatch, capfd, trained):
    lines = ["ein Hund", "", "alt", "   ", "Haus und Hund und Haus", "\u4f60\u597d \U0001f600 \x00"]
    together = translate(monkeypatch, capfd, trained, "\n".join(lines).encode()).split("\n")
    assert together.pop() == ""
    assert len(together) == len(lines)
    assert together[1] == together[3] == ""
    for line, translation in zip(lines, together, strict=True):
        alone = translate(monkeypatch, capfd, trained, line.encode() + b"\n")
        assert alone == f"{translation}\n"


def test_translate_gives_the_n_best_with_scores(monkeypatch, capfd, trained):
    options = ("--num-beams", "2", "--nbest", "2")
    lines = translate(monkeypatch, capfd, trained, b"ein Hund\n\nalt\n", *options).split("\n")
    cells = [line.split(" ||| ") for line in lines[:-1]]
    assert [number for number, *_ in cells] == ["0", "0", "1", "2", "2"]
    assert cells[2] == ["1", "", "0.000000"]
    for first, second in ((cells[0], cells[1]), (cells[3], cells[4])):
        assert float(first[2]) >= float(second[2])
    best = translate(monkeypatch, capfd, trained, b"ein Hund\n", "--num-beams", "2")
    assert cells[0][1] == best.rstrip("\n")


def test_translate_treats_all_line_endings_alike(monkeypatch, capfd, trained):
    unix = translate(monkeypatch, capfd, trained, b"ein Hund\nalt\n")
    assert translate(monkeypatch, capfd, trained, b"\xef\xbb\xbfein Hund\r\nalt") == unix
    # U+2028 and form feed end a line for str.splitlines, but not in a file.
    odd = translate(monkeypatch, capfd, trained, "ein\u2028Hund\falt\n".encode())
    assert odd.count("\n") == 1


def test_translate_keeps_what_it_had_made_before_an_error(monkeypatch, capsys, trained, tmp_path):
    path, target = tmp_path / "in.txt", tmp_path / "out.txt"
    path.write_bytes(b"ein Hund\n" * 64 + b"sch\xf6n\n")  # after the first window
    target.write_text("an older translation")
    command = ["translate", str(trained / "run"), str(path), "--output", str(target)]
    assert main([*command, "--overwrite"]) == 2
    kept = tmp_path / ".vanilla-transformer-rows-out.txt"
    said = capsys.readouterr().err
    assert f"Finished rows are in {kept}; repeat the command to continue." in said
    assert "in.txt, line 65: invalid UTF-8" in said
    assert kept.read_bytes().count(b"\n") == 64
    assert target.read_text() == "an older translation"
    path.write_bytes(b"ein Hund\n" * 64 + b"alt\n")  # repaired
    assert main([*command, "--overwrite"]) == 0
    assert "has the first 64 rows" in capsys.readouterr().err
    assert target.read_text(encoding="utf-8").count("\n") == 65
    assert not kept.exists()


def test_translate_uses_utf8_in_any_locale_and_answers_each_line(trained, tmp_path):
    """A conversation over pipes: the answer comes before the next line is sent."""
    with subprocess.Popen(
        [*PROGRAM, "translate", str(trained / "run"), "--num-beams", "1"],
        env=environment(tmp_path, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        for line in ("\u00fcber das Haus", "ein Hund"):
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
            assert process.stdout.readline().endswith(b"\n")
        # A reader that leaves early, as `head -1` does, is no error.
        process.stdout.close()
        process.stdin.write(b"alt\n")
        process.stdin.close()
        errors = process.stderr.read()
    assert process.returncode == 141
    (warning,) = errors.decode().splitlines()
    assert "of the characters occur in no training source" in warning


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_full_disk_behind_a_redirection_gives_one_line(trained, tmp_path):
    (tmp_path / "a.txt").write_text("ein Hund\n")
    with Path("/dev/full").open("wb") as full:
        process = subprocess.run(
            [*PROGRAM, "translate", str(trained / "run"), str(tmp_path / "a.txt")],
            env=environment(tmp_path),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert process.returncode == 2
    (line,) = process.stderr.splitlines()
    assert "could not be written: No space left on device; make room" in line


@pytest.mark.parametrize("package", extras.TRAIN)
def test_training_without_its_extra_says_what_to_install(package, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["train", "demo", "--output-dir", str(tmp_path / "run")]) == 2
    said = f"needs {package}; in the clone of vanilla_transformer, pip install '.[train]'"
    assert capsys.readouterr().err.endswith(f"{said}\n")
    assert not list(tmp_path.iterdir())


def test_every_extra_holds_the_packages_that_are_said_to_be_in_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {"yaml": "pyyaml", "onnx_ir": "onnxscript", "python_multipart": "python-multipart"}
    for package, extra in extras.EXTRAS.items():
        requirements = " ".join(project["optional-dependencies"][extra])
        assert re.search(rf"\b{names.get(package, package)}>=", requirements), package
