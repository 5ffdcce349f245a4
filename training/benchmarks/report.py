"""Write what was measured into the pages that show it: tables, bar charts and model cards.

    python training/benchmarks/report.py

README.md of this folder has the benchmarks between two marks. In other pages, the figures of tables
below `<!-- figures: PATH -->` are read again from that file (see `filled`). A model card is
rendered from the metrics.json beside it.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from vanilla_transformer.machine.environment import cpu_cores, resolve_precision
from vanilla_transformer.storage.atomic import write_text
from vanilla_transformer.storage.reading import read_json

sys.path.append(str(Path(__file__).parents[1] / "paper"))  # shared with the experiments
from markdown_tables import markdown_table
from provenance import describe_provenance, provenance

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
PAGES = (
    *("README.md", "vanilla_transformer/README.md"),
    *("training/README.md", "training/serving.md"),
    "training/other_tasks.md",
    *("training/diagnosis.md", "training/diagnosis.zh-CN.md"),
    *("training/benchmarks/README.md", "vanilla_transformer/convert/README.md"),
)
CARDS, PRETRAINED = "model_cards", "vanilla_transformer/pretrained"
MARKED_TABLE = re.compile(r"<!-- figures: (\S+) -->\n+((?:\|.*\n)+)")
BEGIN, END = "<!-- results: written by report.py -->", "<!-- end of results -->"
BF16 = "_bf16"  # ends the names of results from a processor with bfloat16
OLD_MODEL = (
    "RUN is the model of seed 0 from an older `multi30k_en_de`, with 3,000 pieces (see "
    "[the log](../LOG.md#repeated-runs-and-earlier-recipes)), with length penalty "
    "0.6; today's recipe gives a different BLEU."
)
# For each results file, in the order of the page: the command that repeats it, and a note on it.
COMMANDS = {
    "training_small": ("training.py --size small --data train.jsonl.gz", ""),
    "training_base": (
        "training.py --size base --batch-tokens 1024 --steps 1 --data train.jsonl.gz",
        "",
    ),
    "memory_base": ("training.py --size base --memory --only ours,marian_buckets", ""),
    "scaling": ("scaling.py --pairs 30000 300000 5000000", ""),
    "decoding": (
        "decoding.py --rounds 7 --run-directory RUN --test-file test.jsonl.gz --pair en-de",
        OLD_MODEL,
    ),
    "decoding_bf16": (
        "decoding.py --rounds 5 --run-directory RUN --test-file test.jsonl.gz --pair en-de",
        "RUN is a model of `multi30k_en_de` after 6,800 updates on one thread, with length penalty "
        "1.5; it stops its searches early.",
    ),
    "engines": (
        "engines.py RUN --test-file test.jsonl.gz --pair en-de",
        f"{OLD_MODEL} The searches on ONNX Runtime, here and in the next table, and the batches of "
        "CTranslate2 were those of engines that this package no longer has.",
    ),
    "students": (
        "students.py TEACHER STUDENT_0 STUDENT_1 STUDENT_2 --test-file test.jsonl.gz --pair en-de "
        "--rounds 2",
        "TEACHER is a run of `multi30k_en_de`, 9,000 updates; the students, three seeds, were "
        "trained by `student` on the pairs and on the translations of two such teachers; see "
        "[the log](../LOG.md#students-of-captions).",
    ),
    "serving": (
        "serving.py RUN --sentences 160 --rounds 2",
        "RUN is a model of `multi30k_en_de` after 3,400 updates, with `early_stopping` in its "
        "generation config. Sentences per second are those of the faster round; ratios are means "
        "of both rounds, and that of `compile` contains the time to compile.",
    ),
    "server": (
        "server.py",
        "Other programs used the machine meanwhile: look at the ratios. All are medians of rounds.",
    ),
    "doors": ("doors.py --test-file test.jsonl.gz --pair en-de", ""),
    "bad_runs": ("bad_runs.py", ""),
    "neighbours_demo": (
        "neighbours.py --train-file runs/phrases-en-de/train.jsonl --seconds 24 --rounds 1",
        "",
    ),
}


def has_bf16() -> bool:
    """Return whether the hardware computes in bfloat16."""
    return resolve_precision("auto") == "bf16"


def file_and_title(name: str, title: str) -> tuple[Path, str]:
    """Return path and title of a results file; processors with bfloat16 have files of their own."""
    if has_bf16():
        name, title = f"{name}{BF16}", f"{title}, on a processor with bfloat16"
    return FOLDER / "results" / f"{name}.json", title


def write_results(path: Path, title: str, **measured: object) -> None:
    """Write what a script has measured, on which machine and when, and print its tables."""
    results = {
        "title": title,
        **provenance("training/benchmarks/results"),  # uncommitted results do not count as changes
        **measured,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(results, indent=1) + "\n")
    for table in results["tables"]:
        print(*markdown_table(table["columns"], table["rows"]), "", sep="\n")


def origin(results: dict[str, object]) -> str:
    """Return the machine, versions, date, data and settings of results in one line."""
    parts = describe_provenance(results)
    parts += [f"data {results['data']}"] if "data" in results else []
    settings = results.get("settings", {})
    parts += [f"{name.replace('_', ' ')} {value}" for name, value in settings.items()]
    return "; ".join(parts) + "."


def chart(results: dict[str, object]) -> str | None:
    """Draw the first table's first column of numbers as SVG bars, if it compares contenders."""
    table = results.get("tables", [{"columns": [""]}])[0]
    rows = table.get("rows", [])
    if table["columns"][0] != "Contender" or not all(isinstance(r[1], int | float) for r in rows):
        return None
    longest = max(row[1] for row in rows)
    height = 26 * len(rows) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="310" y="18" font-weight="bold">{table["columns"][1]}</text>',
    ]
    for place, row in enumerate(rows):
        y, width = 26 * place + 28, 360 * row[1] / longest
        color = "#2b6cb0" if row[0].startswith("ours") else "#a0aec0"
        lines += [
            f'<text x="300" y="{y + 15}" text-anchor="end">{row[0]}</text>',
            f'<rect x="310" y="{y}" width="{width:.1f}" height="20" fill="{color}"/>',
            f'<text x="{316 + width:.1f}" y="{y + 15}">{row[1]:,}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def command_of(name: str) -> str:
    """Return a results file's key in `COMMANDS`: its name, or its name without `BF16`."""
    return name if name in COMMANDS else name.removesuffix(BF16)


def section(name: str, results: dict[str, object]) -> list[str]:
    """Return title, tables, chart, provenance and command of one results file."""
    lines = [f"### {results.get('title', name)}", ""]
    if "tables" not in results:
        return [*lines, f"See [results/{name}.json](results/{name}.json).", ""]
    for table in results["tables"]:
        lines += [f"{table['title']}:", ""] if table.get("title") else []
        lines += [*markdown_table(table["columns"], table["rows"]), ""]
    if "picture" in results or chart(results) is not None:
        lines += [f"![{results['title']}](results/{name}.svg)", ""]
    lines += [f"[{name}.json](results/{name}.json): {origin(results)}", ""]
    if known_command := COMMANDS.get(command_of(name)):
        command, known = known_command
        lines += [f"`python training/benchmarks/{command}`{'. ' + known if known else ''}", ""]
    return lines


def render(readme: str, all_results: dict[str, dict[str, object]]) -> str:
    """Return the README with the results between its two markers."""
    before, _, rest = readme.partition(BEGIN)
    after = rest.partition(END)[2]
    names = [name for own in COMMANDS for name in sorted(all_results) if command_of(name) == own]
    names += sorted(set(all_results) - set(names))
    lines = [line for name in names for line in section(name, all_results[name])]
    return f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"{END}{after}"


Metrics = dict[str, object]  # of a run, as metrics.json holds them


def _sets(metrics: Metrics) -> dict[str, dict[str, object]]:
    """Return the scores of each test set, then those of the validation set."""
    scores = metrics["scores"]
    return {name: scores[name] for name in sorted(scores, key=lambda name: name == "validation")}


def _each_set(name: str, decimals: int) -> Callable[[Metrics], str]:
    return lambda metrics: " / ".join(
        f"{scores[name]:.{decimals}f}" for scores in _sets(metrics).values()
    )


def _training(metrics: Metrics) -> str:
    parts = [f"{metrics['training_minutes']:.1f} minutes"]
    parts.append(cpu_cores(metrics))
    return ", ".join(parts + ["bf16"] * (metrics["precision"] == "bf16"))


def _test(metrics: Metrics) -> str:
    if "test" in metrics["scores"]:
        return f"BLEU {metrics['scores']['test']['bleu']:.1f}"
    shares = [
        f"{metrics['scores'][f'test_{name}']['exact_match']:.1f} % of unseen {name}"
        for name in ("values", "combinations")
    ]
    return f"{', '.join(shares)} right"


# Columns of tables about runs, and what each shows of a run's metrics.json.
OF_RUNS: dict[str, Callable[[Metrics], str]] = {
    "Pairs": lambda metrics: f"{metrics['data']['train_pairs_kept']:,}",
    "Parameters": lambda metrics: f"{metrics['parameters'] / 1e6:.1f} M",
    "Training": _training,
    "Test": _test,
    "Updates": lambda metrics: f"{metrics['updates']:,}",
    "Epochs": lambda metrics: f"{metrics['epochs']:.1f}",
    "Target tokens/s": lambda metrics: f"{metrics['target_tokens_per_second']:,.0f}",
    "BLEU": _each_set("bleu", 1),
    "chrF": _each_set("chrf", 1),
    "Exact match, %": _each_set("exact_match", 1),
    "Token error rate, %": _each_set("wer", 1),
    "Perplexity": _each_set("perplexity", 2),
    "Seed": lambda metrics: str(metrics["seed"]),
    "Commit": lambda metrics: metrics["git_commit"][:7],
}
NO_FIGURES = ("Task", "Data", "Command", "Machine")


def filled(page: str) -> str:
    """Return a page with the numbers of its marked tables read again from their files.

    `<!-- figures: PATH -->` before a table names a results file, relative to the root of the
    repository. Its rows and columns fill those of the table with the same names. If PATH is
    `model_cards`, each row is about the run whose card its first cell links to; the columns are
    those of `OF_RUNS`, and those of `NO_FIGURES`, which are left as they are. So are rows without
    a link, about runs whose metrics.json is not in the repository. If PATH is
    `vanilla_transformer/pretrained`, the columns are models in that folder, and a row has their
    BLEU on texts typed in one way, such as "capitals".
    """

    def table(match: re.Match[str]) -> str:
        path, lines = match[1], match[2].splitlines()
        before = match[0][: -len(match[2])]
        columns, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
        of_folders = {CARDS: _cells_of_run, PRETRAINED: _cells_of_typed_text}
        cells_of = of_folders.get(path) or _cells_of_results(ROOT / path)
        new = [cells_of(columns, row) for row in rows]
        return before + "\n".join(markdown_table(columns, new)) + "\n"

    return MARKED_TABLE.sub(table, page)


def _cells_of_run(columns: list[str], row: list[str]) -> list[str]:
    card = re.search(rf"{CARDS}/\w+", row[0])
    if card is None:
        return row
    metrics = read_json(ROOT / card[0] / "metrics.json")
    return [
        cell if column in NO_FIGURES else OF_RUNS[column](metrics)
        for column, cell in zip(columns, row, strict=True)
    ]


def _cells_of_typed_text(columns: list[str], row: list[str]) -> list[str]:
    runs = [read_json(ROOT / PRETRAINED / model / "metrics.json") for model in columns[1:]]
    scores = [metrics["scores"]["test"]["robustness"][row[0]] for metrics in runs]
    return [row[0], *(f"{score['bleu']:.1f}" for score in scores)]


def _cells_of_results(path: Path) -> Callable[[list[str], list[str]], list[object]]:
    tables = read_json(path)["tables"]

    def cells(columns: list[str], row: list[str]) -> list[object]:
        found = [
            dict(zip(table["columns"], values, strict=True))
            for table in tables
            for values in table["rows"]
            if str(values[0]) == row[0] and set(columns) <= set(table["columns"])
        ]
        if len(found) != 1:
            raise ValueError(f"{path}: {len(found)} rows are named {row[0]!r}; there must be one.")
        return [found[0][column] for column in columns]

    return cells


def main() -> None:
    """Read all results; write the charts, the tables and the model cards."""
    # Imported here, so that measured processes do not import it.
    from vanilla_transformer.publish.card import render_card

    # Experiments, such as gpu.py, write pages of their own: gpu.SIZE.md.
    found = [p for p in sorted((FOLDER / "results").glob("*.json")) if "." not in p.stem]
    results = {path.stem: read_json(path) for path in found}
    for name, svg in ((name, chart(result)) for name, result in results.items()):
        if svg is not None:
            (FOLDER / "results" / f"{name}.svg").write_text(svg, encoding="utf-8")
    path = FOLDER / "README.md"
    path.write_text(render(path.read_text(encoding="utf-8"), results), encoding="utf-8")
    for page in (ROOT / name for name in PAGES):
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
    for metrics in (ROOT / CARDS).glob("*/metrics.json"):
        card = str(render_card(read_json(metrics)))
        (metrics.parent / "README.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
