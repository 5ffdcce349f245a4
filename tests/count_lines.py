"""Count the lines of the project: code, refusals, what travels with a model, tests, floors.

Code is what `ruff format` laid out, without docstrings, comments and blank lines. Refusing are the
lines of functions named check... or refuse... and every other `raise` with the `if` that guards it.
A room is a folder of the package or a file beside it; the floors are the longest chain of imports
between rooms.

    python tests/count_lines.py [ROOT]
"""

import ast
import io
import sys
import tokenize
from pathlib import Path

NO_CODE = {tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT}


def code_lines(source: str) -> set[int]:
    """Return the numbers of the lines that hold code."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE and token.type != tokenize.ENDMARKER:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            lines.difference_update(span(node.body[0]))
    return lines


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


def table(root: Path) -> list[tuple[str, str]]:
    """Return the names and values of the counts."""
    package = root / "vanilla_transformer"
    code = refusing = 0
    for path in package.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        lines = code_lines(source)
        code += len(lines)
        refusing += len(lines & refusing_lines(ast.parse(source)))
    remote = sum(
        len(path.read_text(encoding="utf-8").splitlines())
        for path in package.glob("*.py")
        if path.name != "__init__.py"
    )
    tests = sum(
        len(code_lines(path.read_text(encoding="utf-8"))) for path in root.glob("tests/**/*.py")
    )
    return [
        ("package, code", f"{code:,}"),
        ("of it refusing", f"{refusing:,} ({refusing / code:.0%})"),
        ("travels with a model, full lines", f"{remote:,}"),
        ("tests, code", f"{tests:,}"),
        ("floors of imports", str(len(floors(rooms(package))))),
    ]


def main() -> None:
    """Print the table for a tree."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    for name, value in table(root):
        print(f"| {name:33} | {value:>12} |")


if __name__ == "__main__":
    main()
