"""Whatever happened to a file that commands wrote: the next one that reads it is right, or says so.

The files are found by walking folders, and who reads them by what each command opens, so that a
new file or option needs no test of its own here.
"""

import itertools
import json
import os
import random
import shutil
import sys
import traceback
from collections import deque
from pathlib import Path

import datasets
import pytest
from damages import DAMAGES, remove
from published_runs import draw_nothing, load_here
from tiny_runs import WORDS, tiny_recipe

from vanilla_transformer.cli import main
from vanilla_transformer.publish import publishing
from vanilla_transformer.train import synthetic_pairs
from vanilla_transformer.translation import many_texts

TRAIN = ["train", "tiny.yaml", "--output-dir", "run"]
AVERAGE = ["average", "run", "--last", "2", "--output"]
EXPORT = ["export", "stock", "run"]
PUBLISH = ["publish", "run", "--run", "run", "--repo", "user/de-en", "--license", "mit", "--force"]
PUBLISH += ["--output"]
PUBLISH_STUDENT = ["student" if word == "run" else word for word in PUBLISH]
TRANSLATE = ["translate", "run", "text.txt", "--num-beams", "2", "--output"]
TEACH = ["train", "tiny.yaml", "--monolingual-target", "none", "--monolingual-source", "text.txt"]
TEACH += ["--teachers", "run", "--train-file", "none", "--output-dir", "student"]
MAKE = [TRAIN, [*AVERAGE, "average"], [*EXPORT, "exported"], [*PUBLISH, "published"]]
MODELS = ["average", "published", "exported", "run/checkpoints/checkpoint-6"]


def of(words, model):
    return [model if word == "run" and number < 3 else word for number, word in enumerate(words)]


# What may come next, by the state of the folder; the last word is what a command writes.
NEXT = {
    "translating": [TRAIN],
    "translated": [TRAIN],
    "unfinished": [TRAIN],
    "finished": [
        [*TRAIN[:2], "--max-steps", "8", *TRAIN[2:]],
        ["evaluate", "run", "--output", "out.json"],
        [*AVERAGE, "out"],
        [*TRANSLATE, "out.txt"],
        [*PUBLISH, "out"],
        [*EXPORT, "out"],
        TRAIN,
        [*TRANSLATE, "rows.txt"],  # which was interrupted
        *([*of(TRANSLATE, model), "out.txt"] for model in MODELS),
        *([*of(PUBLISH, model), "out"] for model in MODELS[:3]),
        TEACH,
        [*TEACH[:2], "--max-steps", "8", *TEACH[2:]],
        ["evaluate", "student", "--output", "out.json"],
        [*PUBLISH_STUDENT, "out"],
    ],
    "teaching": [TEACH],
    "taught": [TEACH],
}
CASES = [(state, words) for state in NEXT for words in NEXT[state]]
# What of a run's metrics does not depend on the clock.
LASTING = ("scores", "recipe", "averaged_checkpoints", "data", "updates", "samples", "model_files")
OPENED = deque(maxlen=10_000)  # names of files
sys.addaudithook(lambda event, given: event == "open" and OPENED.append(given[0]))


def prepare(patch, place):
    """Work in a folder with a cache of its own; publish without a second process."""
    place.mkdir(exist_ok=True)
    patch.chdir(place)
    patch.setattr(datasets.config, "HF_DATASETS_CACHE", place / "cache")
    patch.setattr(synthetic_pairs, "FEWEST_PAIRS", 100)
    patch.setattr(publishing, "load_in_clean_process", load_here)
    patch.setattr(publishing, "_draw", draw_nothing)


def interrupted(words, module, call=1):
    """Run a command that is interrupted after two translations in a call of `translate_nbest`."""
    translate, calls = module.translate_nbest, itertools.count(1)

    def stopped(model, tokenizer, texts, **options):
        is_last = next(calls) == call
        texts = list(texts)[: 2 if is_last else None]
        yield from list(translate(model, tokenizer, texts, **options))
        if is_last:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "translate_nbest", stopped)
        assert main(words) == 130


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """Return the folder to work in, a folder with copies of it by state, and the given files."""
    place, kept = tmp_path_factory.mktemp("place") / "work", tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        prepare(patch, place)
        tiny_recipe(Path(), monolingual_target="mono.en", max_steps=6, d_model=8)
        for name, words in (("mono.en", WORDS.values()), ("text.txt", WORDS)):
            lines = [" ".join([*words][start : start + 4]) for start in range(3)]
            Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        given = {*Path().iterdir()}
        interrupted(TRAIN, synthetic_pairs)
        shutil.copytree(place, kept / "translating")
        assert [main(words) for words in MAKE] == [0] * len(MAKE)
        interrupted([*TRANSLATE, "rows.txt"], many_texts)
        interrupted(TEACH, synthetic_pairs, call=2)  # the first one tries the teacher
        shutil.copytree(place, kept / "teaching")
        assert main(TEACH) == 0
        shutil.copytree(place, kept / "finished")
        remove(Path("student"))
        shutil.copytree(place, kept / "taught")
        for name in ("metrics.json", "model.safetensors", "checkpoints/checkpoint-6"):
            remove(Path("run", name))
        shutil.copytree(place, kept / "unfinished")
        remove(Path("run"))
        shutil.copytree(place, kept / "translated")
    return place, kept, given


def ended(states, state, words, capsys, path=None, damage=None):
    """Damage a file, and return how a command ends: code, lines of log, and what it wrote."""
    place, kept, _ = states
    remove(place)
    shutil.copytree(kept / state, place)
    os.chdir(place)
    damaged = None
    if path is not None:
        DAMAGES[damage](random.Random(f"{words} {path} {damage}"), path)
        damaged = path.read_bytes() if path.is_file() else None
    capsys.readouterr()
    OPENED.clear()
    try:
        code = main(words)
    except BaseException:
        code = traceback.format_exc()[-800:]
    output = Path(words[-1])
    files = [file for file in (output, *output.rglob("*")) if code == 0 and file.is_file()]
    files = [file for file in files if "checkpoints" not in file.parts[:-1] or file == output]
    found = {file: file.read_bytes() for file in files}
    if words[0] == "train" and code == 0:
        del found[output / "history.tsv"]  # has times, and so have the metrics
        metrics = json.loads(found[output / "metrics.json"])
        found[output / "metrics.json"] = {name: metrics.get(name) for name in LASTING}
        found[output / "metrics.json"]["model_files"].pop("history.tsv")
    if path is not None and found.get(path) == damaged:
        found.pop(path, None)  # the command does not write it
    return code, capsys.readouterr().err.splitlines(), found


def problem(path, undamaged, code, lines, found):
    """Return what is wrong with the end of a command after the damage of a file, or None."""
    _, known, expected = undamaged
    names = (path.name, path.parent.name)
    new = {line[9:] for line in lines} - {line[9:] for line in known}  # without the time
    is_named = any(name in line for line in new for name in names)
    if code not in (0, 2) or any("Traceback" in line for line in lines):
        return f"{code} {lines[-20:]}"
    if code == 2:
        is_clear = is_named and lines[-1].startswith("vanilla-transformer")
        return None if is_clear else f"is refused: {lines[-1]}"
    differing = {file for file in {*expected, *found} if found.get(file) != expected.get(file)}
    differing -= {path} - {*found}
    return f"silently gives another {differing}" if differing and not is_named else None


@pytest.mark.parametrize(
    ("state", "words", "count"),
    [
        *((*case, 3) for case in CASES[:9]),
        ("teaching", TEACH, 2),
        *(pytest.param(*case, None, marks=pytest.mark.slow) for case in CASES),
    ],
)
def test_damage_has_no_effect_or_is_named(states, monkeypatch, capsys, state, words, count):
    place, kept, given = states
    prepare(monkeypatch, place)
    undamaged = ended(states, state, words, capsys)
    assert undamaged[0] == 0, undamaged
    names = {os.path.relpath(os.fsdecode(name), place) for name in OPENED if type(name) is not int}
    folders = {os.path.dirname(name) for name in names}
    files = [path for path in sorted((kept / state).rglob("*")) if path.is_file()]
    paths = {path.relative_to(kept / state) for path in files} - given
    read = sorted(path for path in paths if os.path.relpath(path.parent) in folders | {"."})
    cases = [(path, damage) for path in read for damage in DAMAGES]
    if count is not None:
        cases = random.Random(str(words)).sample(cases, count)
    problems = []
    for path, damage in cases:
        end = ended(states, state, words, capsys, path, damage)
        if found := problem(path, undamaged, *end):
            problems.append(f"{path}, {damage}: {found}")
    assert problems == [], "\n".join(problems)
