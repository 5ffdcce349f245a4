"""Figures in the pages equal those in the result files, and each has a command to repeat it."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from pages import README, in_clone

from vanilla_transformer.recipes.recipe import Recipe, load_recipe

ROOT = Path(__file__).parents[2]
RUFF = shutil.which("ruff", path=str(Path(sys.executable).parent))
RESULTS = "training/benchmarks/results"
# An experiment, such as gpu.py, writes a page of its own beside gpu.SIZE.json.
RESULT_FILES = [path for path in in_clone(f"{RESULTS}/*.json") if "." not in path.stem]
PAGES = in_clone("*.md", "training/**/*.md", "vanilla_transformer/**/*.md", "model_cards/**/*.md")


def load_report():
    path = ROOT / "training" / "benchmarks" / "report.py"
    spec = importlib.util.spec_from_file_location("benchmark_report", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


report = load_report()


def read(path):
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


def results(name):
    return read(f"{RESULTS}/{name}.json")


def row(name, first_cell, table=0):
    """Return a row of a result file, as a dict by column."""
    found = results(name)["tables"][table]
    (values,) = [row for row in found["rows"] if row[0] == first_cell]
    return dict(zip(found["columns"], values, strict=True))


def cells(line):
    return [cell.strip() for cell in line.split("|")[1:-1]]


def marked_tables():
    """Yield page, text before the table, result file and lines of each marked table."""
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        for match in report.MARKED_TABLE.finditer(page):
            yield path, page[: match.start()], match[1], match[2].splitlines()


def test_marked_tables_equal_their_result_files():
    marked = {str(path.relative_to(ROOT)) for path, *_ in marked_tables()}
    assert marked == set(report.PAGES)
    assert sum(page.read_text("utf-8").count("<!-- figures:") for page in PAGES) == len(
        list(marked_tables())
    )
    for name in report.PAGES:
        page = (ROOT / name).read_text(encoding="utf-8")
        assert report.filled(page) == page, f"{name}: python training/benchmarks/report.py mends it"


def test_benchmark_page_and_charts_equal_the_result_files():
    found = {path.stem: read(path) for path in RESULT_FILES}
    page = (ROOT / "training/benchmarks/README.md").read_text(encoding="utf-8")
    assert report.render(page, found) == page
    for name, measured in found.items():
        if "picture" in measured:  # drawn by its script
            assert (ROOT / RESULTS / measured["picture"]).is_file()
            continue
        drawn = report.chart(measured)
        path = ROOT / RESULTS / f"{name}.svg"
        assert (path.read_text("utf-8") if path.exists() else None) == drawn, name


def test_every_marked_table_has_its_command():
    """The command is in a column of the table, or in its section above the table."""
    for path, before, file, lines in marked_tables():
        if file == report.CARDS:
            column = cells(lines[0]).index("Command")
            assert all(re.fullmatch("`.+`", cells(line)[column]) for line in lines[2:]), path
        elif file == report.PRETRAINED:
            assert before.rstrip().endswith("(`evaluate --robustness`):"), path
        else:
            command, _ = report.COMMANDS[Path(file).stem]
            assert f"`python training/benchmarks/{command}`" in before.split("\n## ")[-1], path


def test_benchmark_commands_use_options_that_the_scripts_have():
    stems = {report.command_of(path.stem) for path in RESULT_FILES}
    assert set(report.COMMANDS) == stems
    for command, _ in report.COMMANDS.values():
        script, *words = command.split()
        source = (ROOT / "training" / "benchmarks" / script).read_text(encoding="utf-8")
        for option in (word for word in words if word.startswith("--")):
            assert f'"{option}"' in source, command


def test_training_commands_still_give_the_recipe_of_the_run():
    # Paths and origins of the pairs differ from user to user.
    of_files = {"dataset", "train_file", "validation_file", "test_file", "data_source"}
    of_files |= {"data_license"}
    checked = 0
    for _, _, file, lines in marked_tables():
        if file != report.CARDS:
            continue
        for line in (line for line in lines[2:] if "model_cards/" in line):
            card = re.search(r"model_cards/\w+", line)[0]
            name, *words = re.search("`train (.+?)`", line)[1].split()
            words = re.sub(r"--no-(\S+)", r"--\1 false", " ".join(words)).split()
            options = dict(zip(words[::2], words[1::2], strict=True))
            values = {k.removeprefix("--").replace("-", "_"): v for k, v in options.items()}
            asked, ran = vars(load_recipe(name, values)), read(f"{card}/metrics.json")["recipe"]
            # An option that is newer than the run must have its default.
            defaults = vars(Recipe())
            differing = {
                key for key in asked if asked[key] != ran.get(key, defaults[key])
            } - of_files
            assert not differing, line
            checked += 1
    assert checked == 11


def close(told, value):
    """Return whether rounding a value to the decimals of a printed number gives that number."""
    return round(value, len(told.partition(".")[2])) == float(told)


def sentences_on_speed():
    small, base = row("training_small", "ours"), row("training_base", "ours")
    best = [max(r[1] for r in results(f"training_{size}")["tables"][1]["rows"]) for size in SIZES]
    one = row("decoding", "ours"), row("decoding", "CTranslate2 float32")
    real = row("decoding", "ours: translate", 1)
    engines = [row("engines", name)["sentences/s"] for name in ENGINES]
    scaling = row("scaling", 5_000_000)
    (bf16, *peers), (base_bf16, *base_peers) = (
        [row(f"training_{size}_bf16", name)["target tokens/s"] for name in BF16] for size in SIZES
    )
    share = row("training_base_bf16", "ours, bf16")["of a bare product"]
    decoded, marian = (
        row("decoding_bf16", f"{name}, bf16") for name in ("ours", "MarianMTModel.generate")
    )
    return {
        r"Our step makes (\d+) % of": 100 * small["useful GFLOP/s"] / best[0],
        r"or (\d+) % of the one measured": 100 * base["useful GFLOP/s"] / max(best),
        r"At base size it makes (\d+) % of the product": 100 * base["useful GFLOP/s"] / best[1],
        r"takes ([\d.]+) of Marian's memory": row("memory_base", "ours")["share of Marian's"],
        r"takes ([\d.]+) of the time of a `Marian": 1 / real["ratio"],
        r"([\d.]+) times as fast as ours in float32": engines[1] / engines[0],
        r"([\d.]+) of Marian's time, as much as": 1 / one[0]["ratio, batch 1"],
        r"training runs at ([\d.]+) times the speed": scaling["against the first row"],
        r"training makes ([\d.]+) times as many tokens a second as Marian in": bf16 / peers[0],
        r"and ([\d.]+) times as many as Marian as it is": bf16 / peers[1],
        r"at base size it makes ([\d.]+) and": base_bf16 / base_peers[0],
        r"it makes [\d.]+ and ([\d.]+) times as many": base_bf16 / base_peers[1],
        r"(\d+) % of the FLOP/s of a bare product in bf16": float(share.removesuffix(" %")),
        r"decodes 32 sentences ([\d.]+) times": decoded[LARGE] / marian[LARGE],
        r"a single one ([\d.]+) times": decoded[SINGLE] / marian[SINGLE],
        r"run starts in ([\d.]+) seconds": scaling["cached start, s"],
        r"preparing runs at ([\d.]+) of": scaling["share"],
    }


SIZES = ("small", "base")
BF16 = ("ours, bf16", "Marian, our buckets, bf16", "Marian")
SINGLE, LARGE = "sentences/s, batch 1", "sentences/s, batch 32"
ENGINES = ("ours: beam_search", "CTranslate2 float32")


def test_sentences_on_speed_agree_with_the_result_files():
    section = " ".join(README.split("## Speed\n")[1].split("\n## ")[0].split())
    for pattern, value in sentences_on_speed().items():
        (told,) = re.findall(pattern, section)
        assert close(told, value), (pattern, told, value)
    first = (ROOT / "README.md").read_text(encoding="utf-8")
    (told,) = re.findall(r"our training gets through ([\d.]+) times as many tokens per", first)
    assert close(told, row("training_small", "Marian")["ours / it"])
    (told,) = re.findall(r"([\d.]+) times as many if both train on our batches", first)
    assert close(told, row("training_small", "Marian, our buckets")["ours / it"])
    (told,) = re.findall(r"takes (\d+) % of the time of Marian's `generate`", first)
    assert close(f"0.{told}", sentences_on_speed()[r"takes ([\d.]+) of the time of a `Marian"])
    # The README says "differs by less than 0.1" and "as much as CTranslate2".
    bleu = [r[-1] for r in results("decoding")["tables"][1]["rows"]]
    assert max(bleu) - min(bleu) < 0.1
    ours, theirs = (row("decoding", n)["ratio, batch 1"] for n in ("ours", "CTranslate2 float32"))
    assert ours == pytest.approx(theirs, rel=0.02)


def test_demo_output_in_the_readme_is_what_its_run_measured():
    metrics = read("model_cards/demo_en_de/metrics.json")
    updates, minutes = metrics["updates"], f"{metrics['training_minutes']:.1f}"
    assert f"update {updates} of {updates}: loss" in README
    assert f"{minutes} of ~{minutes} min\n" in README
    for name in ("test_values", "test_combinations"):
        scores = metrics["scores"][name]
        told = re.search(rf"^{name} +(.*)$", README, re.MULTILINE)[1].split()
        copied = scores["copy_baseline"]["exact_match"]
        values = [scores[key] for key in ("bleu", "chrf", "exact_match")]
        assert told[:5] == [f"{v:.2f}" for v in (*values, copied, scores["perplexity"])]
    sample = metrics["samples"]["card"][0]
    for key, text in sample.items():
        assert re.search(rf"^ +{key} +{re.escape(text)}$", README, re.MULTILINE)


def test_readme_states_the_length_penalty_of_each_headline_score():
    # A length penalty that was chosen on the validation pairs is in "published".
    runs = {p.parent.name: read(p) for p in in_clone(f"{report.CARDS}/*/metrics.json")}
    alphas = {
        name: (metrics["recipe"] | metrics["published"])["length_penalty"] or 0.6
        for name, metrics in runs.items()
    }
    bundled = {"everyday_en_de", "everyday_de_en", "everyday_en_zh"}
    assert {name for name, alpha in alphas.items() if alpha != 0.6} == {"multi30k_en_de", *bundled}
    told = " ".join(README.split())
    assert f"penalty is the paper's 0.6, or {alphas['multi30k_en_de']:g} for the captions." in told
    assert f"its row in the results, {alphas['multi30k_en_de']:g}. With" in told
    chinese = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
    for name in bundled:
        bleu = f"{runs[name]['scores']['test']['bleu']:.1f}"
        model = f"`{name.replace('_', '-')}`"
        assert re.search(rf"{model}[^`]* {bleu}[^`;]* \(length penalty {alphas[name]:g}\)", told)
        assert re.search(rf"{model}[^`]* {bleu}.长度惩罚 {alphas[name]:g}\b", chinese)


def test_all_recipes_but_the_papers_choose_the_average():
    fixed = {name for name in RECIPES if not load_recipe(name).choose_on_validation}
    assert fixed == {name for name in RECIPES if name.startswith("wmt14_")}


# ------------------------------------------------------------------ comments of the recipes

RECIPES = {path.stem: path for path in (ROOT / "training" / "recipes").glob("*.yaml")}
# Counted with each recipe's tokenizer and batches, over its training pairs.
UPDATES_OF_AN_EPOCH = {
    "multi30k_en_de": 470,
    "tatoeba_zh_en": 506,
    "tatoeba_en_zh": 506,
    "everyday_en_de": 931,
}


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_calculations_in_recipe_comments_are_right(name):
    text, recipe = RECIPES[name].read_text(encoding="utf-8"), load_recipe(name)
    epoch, every = UPDATES_OF_AN_EPOCH.get(name), recipe.trainer["save_steps"]
    for factor, width, steps, peak in re.findall(
        r"peak ([\d.]+) / sqrt\((\d+) \* (\d+)\) = ([\d.e-]+)", text
    ):
        assert (float(factor), int(width), int(steps)) == (
            recipe.learning_rate_factor,
            recipe.d_model,
            recipe.warmup_steps,
        )
        assert float(f"{float(factor) / (int(width) * int(steps)) ** 0.5:.1e}") == float(peak)
    for told, updates in re.findall(r"# ([\d.]+) epochs of (\d+) updates", text):
        assert int(updates) == epoch
        assert close(told, recipe.warmup_steps / epoch)
    for told in re.findall(r"# ([\d.]+) epochs apart", text):
        assert close(told, every / epoch)
    # The run's end writes the last checkpoint, at most one interval after the one before it.
    longest = (recipe.checkpoints_to_average - 1) * every
    for told, epochs in re.findall(r"span at most ([\d,]+) updates, ([\d.]+) epochs", text):
        assert int(told.replace(",", "")) == longest
        assert close(epochs, longest / epoch)
    for count, least, most in re.findall(r"the (\d+) averaged span (\d+) to (\d+) updates", text):
        assert int(count) == recipe.checkpoints_to_average
        assert (int(least), int(most)) == (longest - every + 1, longest)
    for told in re.findall(r"d_k = (\d+)", text):
        assert int(told) == recipe.d_model // recipe.attention_heads
    for minutes, seconds in re.findall(r"(\d+) minutes of ([\d.]+) s updates", text):
        assert int(minutes) * 60 == pytest.approx(every * float(seconds))
    assert not re.search(r"\b(some|about|less than|half) an? \w* ?epochs?\b", text)


@pytest.mark.parametrize("name", ["multi30k_en_de", "tatoeba_zh_en", "tatoeba_en_zh"])
def test_updates_per_epoch_equal_those_of_the_run(name):
    metrics = read(f"model_cards/{name}/metrics.json")
    assert round(metrics["updates"] / metrics["epochs"]) == UPDATES_OF_AN_EPOCH[name]


def test_phrases_per_batch_of_the_demo_equal_those_of_its_run():
    metrics = read("model_cards/demo_en_de/metrics.json")
    pairs = metrics["epochs"] * metrics["data"]["train_pairs_kept"] / metrics["updates"]
    assert f"{pairs:.0f} phrases on average" in RECIPES["demo"].read_text(encoding="utf-8")


# ------------------------------------------------------------------ how the package is installed


def test_no_text_installs_the_package_by_its_bare_name():
    """The package is on no index, so anybody could register its name there."""
    name = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
    folders = ("vanilla_transformer", "model_cards", "training")
    texts = [*PAGES, ROOT / "Makefile"]
    texts += [p for f in folders for end in ("py", "j2") for p in (ROOT / f).rglob(f"*.{end}")]
    for path in texts:
        text = path.read_text(encoding="utf-8")
        pattern = rf"pip install[^`\n]*[\s'\"]{name}\b|{name}\[\w+\]"
        assert not re.search(pattern, text), path


def test_transformers_is_allowed_up_to_the_minor_release_of_the_tests_and_no_further():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (allowed,) = (SpecifierSet(r[12:]) for r in project["dependencies"] if r[:12] == "transformers")
    tested = (ROOT / "constraints.txt").read_text("utf-8")
    major, minor = map(
        int, re.search(r"^transformers==(\d+)\.(\d+)", tested, re.MULTILINE).groups()
    )
    assert f"{major}.{minor}.99" in allowed
    assert f"{major}.{minor + 1}.0" not in allowed
    assert f"{major + 1}.0.0" not in allowed


@pytest.mark.skipif(RUFF is None, reason="needs ruff")
def test_lint_does_not_see_what_a_users_work_leaves(tmp_path):
    for folder in ("tests/hostile", "training/benchmarks"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name in ("runs", "processes", "report"):  # scripts of the repository have these names
        (tmp_path / name).mkdir()
    for name in ("data", "utils", "decoding", "runs/untidy"):
        (tmp_path / f"{name}.py").write_text("import os,sys\n", encoding="utf-8")
    for words in (("check", "--no-cache"), ("format", "--check", "--no-cache")):
        found = subprocess.run([RUFF, *words, "."], cwd=tmp_path, capture_output=True, text=True)
        assert found.returncode == 0, found.stdout
