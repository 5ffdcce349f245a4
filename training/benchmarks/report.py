"""Write the results of the benchmarks into README.md, as tables and bar charts.

python training/benchmarks/report.py
"""

import json
from datetime import UTC, datetime
from pathlib import Path

from vanilla_transformer.storage.atomic import write_text
from vanilla_transformer.storage.environment import git_commit, hardware, versions
from vanilla_transformer.storage.reading import read_json

FOLDER = Path(__file__).parent
BEGIN, END = "<!-- results: written by report.py -->", "<!-- end of results -->"
ORDER = ("training_small", "training_base", "memory_base", "scaling", "decoding", "engines")
PACKAGES = ("torch", "transformers", "ctranslate2", "onnxruntime")  # of which versions are told


def write_results(path: Path, title: str, **measured: object) -> None:
    """Write what a script has measured, with where and when, and print its tables."""
    results = {
        "title": title,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": git_commit("training/benchmarks/results"),  # one script after the other
        "hardware": hardware(),
        "versions": versions(),
        **measured,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(results, indent=1) + "\n")
    for table in results["tables"]:
        print(*markdown_table(table), "", sep="\n")


def provenance(results: dict[str, object]) -> str:
    """What was measured, on what, with what, and when."""
    hardware, versions = results.get("hardware", {}), results.get("versions", {})
    parts = [str(hardware.get("cpu", "unknown processor"))]
    parts += [f"{hardware['threads']} threads"] if "threads" in hardware else []
    parts += [", ".join(hardware["instructions"])] if hardware.get("instructions") else []
    parts += [hardware["gpu"]] if "gpu" in hardware else []
    parts += [f"{name} {versions[name]}" for name in PACKAGES if name in versions]
    parts.append(f"commit {str(results.get('commit'))[:12]}")
    parts.append(str(results.get("date"))[:10])
    parts += [f"data {results['data']}"] if "data" in results else []
    settings = results.get("settings", {})
    parts += [f"{name.replace('_', ' ')} {value}" for name, value in settings.items()]
    return "; ".join(parts) + "."


def markdown_table(table: dict[str, object]) -> list[str]:
    """The lines of a table, numbers with commas."""

    def cell(value: object) -> str:
        return f"{value:,}" if isinstance(value, int) and value > 9999 else str(value)

    columns = table["columns"]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(map(cell, row)) + " |" for row in table["rows"]]
    return lines


def chart(results: dict[str, object]) -> str | None:
    """Bars of the first table's first column of numbers, as SVG, if it compares contenders."""
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


def section(name: str, results: dict[str, object]) -> list[str]:
    """Title, provenance, tables and chart of one results file."""
    lines = [f"### {results.get('title', name)}", ""]
    if "tables" not in results:
        return [*lines, f"See [results/{name}.json](results/{name}.json).", ""]
    for table in results["tables"]:
        lines += [f"{table['title']}:", ""] if table.get("title") else []
        lines += [*markdown_table(table), ""]
    if chart(results) is not None:
        lines += [f"![{results['title']}](results/{name}.svg)", ""]
    return [*lines, f"[{name}.json](results/{name}.json): {provenance(results)}", ""]


def render(readme: str, all_results: dict[str, dict[str, object]]) -> str:
    """The README with the results between its two marks."""
    before, _, rest = readme.partition(BEGIN)
    after = rest.partition(END)[2]
    names = [name for name in ORDER if name in all_results]
    names += sorted(set(all_results) - set(ORDER))
    lines = [line for name in names for line in section(name, all_results[name])]
    return f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"{END}{after}"


def main() -> None:
    """Read all results; write the charts and the README."""
    found = sorted((FOLDER / "results").glob("*.json"))
    results = {path.stem: read_json(path) for path in found}
    for name, svg in ((name, chart(result)) for name, result in results.items()):
        if svg is not None:
            (FOLDER / "results" / f"{name}.svg").write_text(svg, encoding="utf-8")
    path = FOLDER / "README.md"
    path.write_text(render(path.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
