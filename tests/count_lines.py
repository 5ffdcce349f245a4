"""Count the lines of the project: code, refusals, what travels with a model, tests, floors.

`ceilings.toml` says how many there may be; `make test` compares.

Code is what `ruff format` laid out, without docstrings, comments and blank lines. Refusing are the
lines of functions named check... or refuse... and every other `raise` with the `if` that guards it.
A room is a folder of the package or a file beside it; the floors are the longest chain of imports
between rooms.

    python tests/count_lines.py [ROOT]
"""

import ast
import functools
import io
import sys
import tokenize
import tomllib
from pathlib import Path

NO_CODE = {tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT}


@functools.cache
def code_lines(source: str) -> frozenset[int]:
    """Return the numbers of the lines that hold code."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE and token.type != tokenize.ENDMARKER:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            lines.difference_update(span(node.body[0]))
    return frozenset(lines)


def span(node: ast.AST) -> range:
    return range(node.lineno, node.end_lineno + 1)


def refusing_lines(tree: ast.AST) -> set[int]:
    """Return the lines of checking functions, and of a raise with the `if` that leads to it."""
    lines = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.lstrip("_").startswith(("check", "refuse")):
                lines.update(span(node))
        elif isinstance(node, ast.If):
            for branch in (node.body, node.orelse):
                if branch and isinstance(branch[-1], ast.Raise):
                    lines.update(range(node.lineno, node.test.end_lineno + 1))
                    lines.update(line for part in branch for line in span(part))
        elif isinstance(node, ast.Raise):
            lines.update(span(node))
    return lines


def rooms(package: Path) -> dict[str, set[str]]:
    """Return which other rooms each room imports, also inside functions."""
    files = {
        path.relative_to(package).with_suffix("").parts: path
        for path in sorted(package.rglob("*.py"))
        if path != package / "__init__.py"
    }
    room = {name: "/".join(name[:-1]) or name[0] for name in files}
    room |= {name[:-1]: room[name] for name in files if name[-1] == "__init__"}
    imports: dict[str, set[str]] = {room[name]: set() for name in files}
    for name, path in files.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = (*name[: -node.level], *filter(None, (node.module or "").split(".")))
                for alias in node.names:
                    imports[room[name]].add(room.get((*base, alias.name)) or room.get(base) or "")
    return {room: others & imports.keys() - {room} for room, others in imports.items()}


def floors(imports: dict[str, set[str]]) -> list[set[str]]:
    """Return the rooms floor by floor; each imports only from the floors below."""
    storeys, rest = [], dict(imports)
    while rest:
        storey = {room for room, others in rest.items() if not others & rest.keys()}
        if not storey:
            raise SystemExit(f"Imports in a circle: {', '.join(sorted(rest))}")
        storeys.append(storey)
        rest = {room: others for room, others in rest.items() if room not in storey}
    return storeys


def longest_function(package: Path) -> int:
    """Return the most lines of code that a function has, without its docstring."""
    most = 0
    for path in package.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        lines = code_lines(source)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                most = max(most, len(lines.intersection(span(node))))
    return most


def counts(root: Path) -> dict[str, float]:
    """Return the counts of a tree by their names in ceilings.toml."""
    package = root / "vanilla_transformer"
    code = refusing = 0
    for path in package.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        lines = code_lines(source)
        code += len(lines)
        refusing += len(lines & refusing_lines(ast.parse(source)))
    return {
        "package": code,
        "refusing_percent": round(100 * refusing / code, 1),
        "travelling": sum(
            len(path.read_text(encoding="utf-8").splitlines())
            for path in package.glob("*.py")
            if path.name != "__init__.py"
        ),
        "tests": sum(
            len(code_lines(path.read_text(encoding="utf-8"))) for path in root.glob("tests/**/*.py")
        ),
        "floors": len(floors(rooms(package))),
        "longest_function": longest_function(package),
    }


def ceilings(root: Path) -> dict[str, float]:
    """Return the highest value that each count may have."""
    return tomllib.loads((root / "tests/ceilings.toml").read_text(encoding="utf-8"))


def main() -> None:
    """Print the counts of a tree beside their ceilings."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    highest = ceilings(root)
    print("| | now | ceiling |\n|---|---|---|")
    for name, value in counts(root).items():
        print(f"| {name} | {value:,} | {highest[name]:,} |")


if __name__ == "__main__":
    main()
