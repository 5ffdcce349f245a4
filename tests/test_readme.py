"""Every command block of the README runs in a test or names the slower command that runs it."""

import contextlib
import io
import json
import re
import runpy
import shlex
import sys
from collections import Counter
from pathlib import Path

import phrases as generator
import pytest
from good_teachers import make_teachers_good
from hub_server import TOKEN
from pages import BLOCK, BLOCKS, README, SMALL, in_clone, run_shell

from vanilla_transformer import pretrained
from vanilla_transformer.cli import main
from vanilla_transformer.cli.parser import build_parser
from vanilla_transformer.recipes.options import OPTIONS
from vanilla_transformer.recipes.recipe import load_recipe, shipped_recipes
from vanilla_transformer.train import finishing

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")  # the start page only
CONVERT = (ROOT / "vanilla_transformer/convert/README.md").read_text(encoding="utf-8")

PROGRAM, PYTHON = ".venv/bin/vanilla-transformer", ".venv/bin/python"
TESTS = in_clone("tests/**/test_*.py", "training/tests/test_*.py")


def run(command, folder):
    """Run shell commands as a reader would, with this interpreter's programs instead of .venv's.

    Commands of the package and Python scripts run in this process, because a new process would
    have to import torch and transformers again. Return what was printed.
    """
    printed = []
    for line in command.replace("\\\n", " ").strip().splitlines():
        typed, program = re.fullmatch(r'(?:echo "([^"]*)" \| )?(.*)', line).groups()
        plain = not re.search(r"[|<>;&{}$]", program)
        if plain and program.startswith((f"{PROGRAM} ", f"{PYTHON} ")):
            printed.append(run_here(shlex.split(program), folder, typed=typed))
        else:
            printed.append(run_shell(line, folder))
    return "".join(printed)


def run_here(words, folder, *, typed=None):
    program = str(Path(sys.executable).with_name(Path(words[0]).name))
    output, before, stdin = io.StringIO(), sys.argv, sys.stdin
    with contextlib.chdir(folder), contextlib.redirect_stdout(output):
        sys.argv = [program, *words[1:]]
        if typed is not None:
            (folder / "typed").write_text(f"{typed}\n", encoding="utf-8")
            sys.stdin = (folder / "typed").open(encoding="utf-8")
        try:
            if words[0] == PROGRAM:
                assert main(words[1:]) == 0
            else:
                runpy.run_path(words[1])
        finally:
            sys.argv, sys.stdin = before, stdin
    return output.getvalue()


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """Return a folder in which the commands of `make demo` have run, on few pairs."""
    folder = tmp_path_factory.mktemp("reader")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^demo: .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)[1]
    for name, value in {"BIN": ".venv/bin", "PHRASES": "runs/phrases", "PAIR": "en-de"}.items():
        recipe = recipe.replace(f"$({name})", value)
    phrases, train = recipe.replace("\\\n", "").splitlines()
    _, script, *words = shlex.split(phrases)
    assert (ROOT / script).samefile(generator.__file__)
    with contextlib.chdir(folder):
        generator.main([*words, "--pairs", "300", "--test-pairs", "10"])
    options = ["--warmup-steps", "10", "--vocab-size", "400", *SMALL]
    with pytest.MonkeyPatch.context() as patch:  # so few updates teach it nothing
        patch.setattr(finishing, "useless_outputs", lambda results: [])
        printed = run(f"{train} {' '.join(options)}", folder)
    (folder / "printed").write_text(printed, encoding="utf-8")
    return folder


def test_every_block_has_a_unique_name():
    names = [name for name, *_ in BLOCK.findall(README + CONVERT) if name]
    assert len(names) == len(set(names))
    unnamed = [text for name, _, _, text in BLOCK.findall(PAGE + CONVERT) if not name]
    assert not unnamed, "a command block has no <!-- block: name --> line"


def test_every_block_is_run_by_a_test_or_its_named_runner():
    tests = "".join(path.read_text(encoding="utf-8") for path in TESTS)
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    for name, runner, _, block in BLOCK.findall(README + CONVERT):
        if not name:
            continue
        if not runner:
            assert re.search(rf"def test_blocks?_(\w+_and_)?{name}(_and_\w+)?\(", tests), name
            continue
        program, *words = runner.split()
        if program == "make":
            assert words[0] in targets, name
        file = {"make": "Makefile", "pytest": words[-1]}.get(program, program) if words else program
        text = (ROOT / file).read_text(encoding="utf-8")
        options = re.findall(r" (--[\w-]+)", block)
        taken_from_here = re.search(rf'(block\(|BLOCKS\[)"{name}"', text)
        assert taken_from_here or all(option in text for option in options), name


@pytest.mark.slow
def test_commands_printed_after_training_can_be_pasted(reader):
    printed = (reader / "printed").read_text(encoding="utf-8")
    lines = printed.replace("\\\n", "").split("Next:\n")[1].splitlines()
    assert len(lines) == 1
    (reader / "FILE").write_text("3 hours\n", encoding="utf-8")
    assert run_shell(lines[0], reader).count("\n") == 1
    programs = {line.split()[0] for line in lines}
    assert all(Path(program).is_file() for program in programs), programs


def test_block_translate_cli_and_translate_python(tmp_path):
    printed = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)[0]
    assert run(BLOCKS["translate_cli"], tmp_path) == printed
    (tmp_path / "snippet.py").write_text(BLOCKS["translate_python"], encoding="utf-8")
    assert run(".venv/bin/python snippet.py", tmp_path) == printed


def test_block_search(tmp_path):
    (tmp_path / "search.py").write_text(BLOCKS["search"], encoding="utf-8")
    result = run(".venv/bin/python search.py", tmp_path)
    assert result.count("[") >= 4
    assert result.count("'Wo bekomme") == 2


def test_block_pictures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(BLOCKS["pictures"], {})
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")


def test_block_translate_own(reader):
    assert run(BLOCKS["translate_own"], reader).count("\n") == 1


def test_block_translate_attention(tmp_path):
    result = run(BLOCKS["translate_attention"], tmp_path)
    assert result.count("\n") == 1
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def own(reader):
    """Return the folder with the reader's own pairs and a model trained on them in runs/mine."""
    words = ["eins", "zwei", "drei", "vier", "funf", "sechs"]
    for part in ("train", "valid", "test"):
        for language in ("en", "de"):
            lines = [f"{a} {b} {language}" for a in words for b in words]
            (reader / f"{part}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    run_short("train_own", reader)
    return reader


def test_block_train_own(own):
    for name in ("config.json", "model.safetensors", "tokenizer.json", "metrics.json"):
        assert (own / "runs" / "mine" / name).is_file(), name


def run_short(name, folder):
    """Run the block with tiny sizes in its `train` commands."""
    small = " ".join(["--vocab-size", "300", "--num-samples", "1", *SMALL])
    whole = BLOCKS[name].replace("\\\n", " ")
    short = re.sub(r"(transformer train (?!.*--init-from).*)", rf"\1 {small}", whole)
    # A training from an initial model has the sizes of that model.
    run(re.sub(r"--max-steps \d+", "--max-steps 2 --evaluate-pairs 2", short), folder)


def test_block_student(own, monkeypatch):
    make_teachers_good(monkeypatch, lambda text: text.replace("en", "de"))
    run_short("student", own)
    pairs = own / "runs/student-teacher-2/translated.jsonl"
    assert pairs.read_text(encoding="utf-8").count("\n") == 36
    search = json.loads((own / "runs/student/generation_config.json").read_text("utf-8"))
    assert search["num_beams"] == 1
    assert "runs/student" in (own / "student.md").read_text(encoding="utf-8")


@pytest.mark.slow  # four trainings
def test_block_learn_from_each_other(own, monkeypatch):
    make_teachers_good(monkeypatch, lambda text: text.replace("en", "de"))
    run_short("learn_from_each_other", own)
    data = json.loads((own / "runs/together/taught/metrics.json").read_text("utf-8"))["data"]
    assert len(data["teachers"]) == 3


def test_block_small_model(own, monkeypatch, quick_publishing):
    make_teachers_good(monkeypatch, lambda text: text.replace("She sees the", "Sie sieht die"))
    monkeypatch.setattr(finishing, "useless_outputs", lambda results: [])  # after two updates
    (own / "text.en").write_text("".join(f"She sees the {n}.\n" for n in range(60)))
    run_short("small_model", own)
    card = (own / "small/README.md").read_text(encoding="utf-8")
    assert "| Teacher | everyday-en-de, BLEU 38.7 on its test set |" in card
    assert "The references are translations by everyday-en-de, not by people" in card


def test_block_back_translation(own, monkeypatch):
    monkeypatch.setattr("vanilla_transformer.train.synthetic_pairs.FEWEST_PAIRS", 30)
    (own / "mono.de").write_text("eins vier de\nzwei drei de\n", encoding="utf-8")
    run_short("back_translation", own)
    assert (own / "runs/with-mono-back/translated.jsonl").read_text("utf-8").count("\n") == 2


def test_block_init_from(tmp_path):
    for language in ("en", "de"):
        lines = [f"{number} {language}" for number in range(40)]
        (tmp_path / f"more.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    small = ["--max-steps", "2", "--evaluate-pairs", "2", "--num-samples", "1"]
    run(f"{BLOCKS['init_from'].rstrip()} {' '.join(small)}", tmp_path)
    folders = (tmp_path / "runs/tuned", Path(pretrained("everyday-en-de")))
    first, second = [(folder / "tokenizer.json").read_bytes() for folder in folders]
    assert first == second


def test_block_train_python(reader, hub, quick_publishing, monkeypatch):
    lines = [f"{a} and {b}\t{a} und {b}" for a in range(12) for b in range(12)]
    (reader / "pairs.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    small = {"20_000": "2", "d_model=256": "d_model=16"}
    small |= {'license="apache-2.0", data': 'force=True, license="apache-2.0", data'}
    small |= {'strategy="steps"': 'strategy="steps", eval_steps=1, save_steps=1'}
    block = BLOCKS["train_python"]
    for long, short in small.items():
        assert block.count(long) == 1
        block = block.replace(long, short)
    (reader / "train_python.py").write_text(block, encoding="utf-8")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert run(".venv/bin/python train_python.py", reader).count("\n") >= 3
    card = hub.files("user/mine")["README.md"].decode()
    assert "English to German" in card
    assert "our own manuals" in card
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (reader / "runs" / "python" / name).is_file(), name


def test_block_tokenized_bleu(reader):
    block = BLOCKS["tokenized_bleu"].replace("runs/multi30k_en_de", "runs/demo-en-de")
    printed = run(block, reader)
    told = re.search(r"`(nrefs:1\|case:lc\|.+?)`", README)[1]
    versions = r"(version:|sacremoses-)[\d.]+"
    assert re.sub(versions, r"\1", told) in re.sub(versions, r"\1", printed)


def test_block_tatoeba(tmp_path):
    """Skip the download, unpacking and conversion; use a file in the same format."""
    *before, train = BLOCKS["tatoeba"].rstrip().splitlines()
    assert [line.split()[0] for line in before[:2]] == ["curl", "unzip"]
    assert before[2:] == [
        ".venv/bin/pip install opencc",
        ".venv/bin/opencc -c t2s -i cmn.txt -o cmn.tsv",
    ]
    pairs = "".join(f"It is {n}.\t现在{n}。\tCC-BY 2.0 (France) Attribution\n" for n in range(80))
    (tmp_path / "cmn.tsv").write_text(pairs, encoding="utf-8")
    tiny = " ".join(["--vocab-size", "300", "--held-out-pairs", "4", *SMALL])
    printed = run(f"{train} {tiny}", tmp_path)
    assert "test" in printed


def commands(text):
    """Yield the package's command lines in code blocks and in comments of recipes."""
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    blocks += ["\n".join(re.findall(r"^#   +(.*)$", text, re.MULTILINE))]
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            found = re.search(r"(?:^|[\s/])vanilla-transformer (?!:)([^|<]+)", line)
            script = re.search(r"training/train\.py ([^|<]+)", line)
            if found and not line.startswith("vanilla-transformer:"):
                yield shlex.split(found[1], comments=True)
            elif script:
                yield ["train", *shlex.split(script[1], comments=True)]


PAGES = [
    *in_clone("*.md", "training/**/*.md", "vanilla_transformer/**/*.md"),
    *in_clone("training/recipes/*.yaml"),
    *(ROOT / name for name in ("model_cards/README.md", "tests/README.md")),
]


def test_parser_and_recipes_accept_every_command_on_the_pages_and_cards():
    """A value that no recipe allows is refused before any work: a reader pastes it in vain."""
    checked = Counter()
    for page in [*PAGES, *in_clone("model_cards/*/README.md")]:
        for words in commands(page.read_text(encoding="utf-8")):
            options, unknown = build_parser().parse_known_args(words)  # exits on invalid arguments
            assert unknown == [], (page, words)
            checked[words[0]] += 1
            if words[0] == "train" and options.recipe in shipped_recipes():
                given = {name: getattr(options, name) for name in ("pair", *OPTIONS)}
                given = {name: value for name, value in given.items() if value is not None}
                load_recipe(options.recipe, given)
    assert {"train", "translate", "import", "export", "publish"} <= checked.keys()
    assert checked["train"] > 30


def options_of(parser):
    for action in parser._actions:
        yield from action.option_strings
        for command in action.choices.values() if isinstance(action.choices, dict) else ():
            yield from options_of(command)


# Programs whose options are not ours.
OTHERS = ("pip ", ".venv/bin/pip ", "python ", "make ", "accelerate ", "torchrun ")


def test_every_option_mentioned_on_the_pages_exists():
    known = set(options_of(build_parser()))
    folders = ("benchmarks", "paper", "pretrained")
    scripts = [p for folder in folders for p in ROOT.glob(f"training/{folder}/*.py")]
    known |= set(re.findall(r'"(--[\w-]+)"', "".join(p.read_text("utf-8") for p in scripts)))
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for code in re.findall(r"`([^`]+)`", text):
            if not code.startswith(OTHERS) and "index-url" not in code:
                for option in re.findall(r"(?:^|\s)(--[\w-]+)", code):
                    assert option in known, (page, code)


def outline(page):
    """Return the levels of the headings, the code blocks and the starts of table rows, in order."""
    parts = r"^(?:<!-- block: .*\n)?```[^`]*```|^#+ |^\|"
    return re.findall(parts, page.read_text(encoding="utf-8"), re.MULTILINE)


def code_by_section(page):
    """Yield the code in the prose of each section, without placeholders: they are translated."""
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for section in re.split(r"^#+ ", prose, flags=re.MULTILINE):
        code = re.findall(r"`([^`]+)`", section)
        yield {each for each in code if each.isascii() and not re.search("[A-Z]{5}", each)}


@pytest.mark.parametrize(
    "chinese",
    in_clone("*.zh-CN.md", "training/*.zh-CN.md"),
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_chinese_pages_have_the_headings_blocks_rows_and_code_of_the_english_ones(chinese):
    english = chinese.with_name(chinese.name.replace(".zh-CN", ""))
    assert outline(chinese) == outline(english)
    assert list(code_by_section(chinese)) == list(code_by_section(english))
    assert f"]({english.name}) | 简体中文\n" in chinese.read_text(encoding="utf-8")
    assert f"\nEnglish | [简体中文]({chinese.name})\n" in english.read_text(encoding="utf-8")


def test_every_link_on_the_pages_resolves():
    for page in (page for page in PAGES if page.suffix == ".md"):
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if link.startswith(("http", "mailto")):
                continue
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), (page, link)
            found = target.read_text(encoding="utf-8") if target.suffix == ".md" else ""
            headings = re.findall(r"^#+ (.*)$", found, re.MULTILINE)
            anchors = [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings]
            assert not anchor or anchor in anchors, (page, link)


def test_every_remote_code_example_pins_a_revision():
    folders = ("vanilla_transformer", "training", "model_cards", "tests")
    pages = in_clone("*.md", *(f"{folder}/**/*.md" for folder in folders))
    blocks = [block for page in pages for _, _, _, block in BLOCK.findall(page.read_text("utf-8"))]
    trusting = [block for block in blocks if "trust_remote_code" in block]
    assert len(trusting) >= 2
    assert all("revision" in block for block in trusting)


def test_every_test_named_in_the_readme_exists():
    sources = {path.name: path.read_text(encoding="utf-8") for path in TESTS}
    for name in set(re.findall(r"`(test_[a-z]\w+)(?:\.py)?`", README)):
        assert f"{name}.py" in sources or any(f"def {name}(" in it for it in sources.values()), name


def test_file_tree_lists_every_module():
    tree = README.split("\n## Files\n")[1].split("```")[1]
    names = Counter(path.name for path in (ROOT / "vanilla_transformer").rglob("*.py"))
    del names["__init__.py"]
    assert {name: len(re.findall(rf"(?<!\w){name}", tree)) for name in names} == names
