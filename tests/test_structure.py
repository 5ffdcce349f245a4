"""The layout of the package: who may import whom, and what no file may do, read from its source."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "vanilla_transformer"
FILES = sorted(ROOT.rglob("*.py"))

# Files that travel alone to the Hub: torch, transformers with what it needs, and each other.
HUB = {
    "configuration_vanilla_transformer": set(),
    "loss": set(),
    "modeling_vanilla_transformer": {"configuration_vanilla_transformer", "loss"},
    "prepacking": set(),
    "layer_memory": {"modeling_vanilla_transformer"},
    "fused_layer": {"modeling_vanilla_transformer", "layer_memory", "prepacking"},
    "incremental": {"modeling_vanilla_transformer", "fused_layer", "layer_memory"},
    "search": {"incremental"},
    "decoding": {"modeling_vanilla_transformer", "incremental", "prepacking", "search"},
    "generation": {"configuration_vanilla_transformer", "decoding"},
    "pipeline": {"decoding", "generation", "prepacking", "sides"},
    "sides": set(),
}
HUB_LIBRARIES = {"torch", "transformers", "huggingface_hub", "tqdm"}
# Each of these knows nothing of the others; the parts of one subject may know each other.
SUBJECTS = {
    **{name: name for name in ("tokenization", "data", "batching", "optimization", "averaging")},
    **{"bpe_dropout": "batching", "reading": "data"},
    **{"cldr": "cldr", "cldr_language": "cldr"},
    **{name: name for name in ("checkpoints", "cpu_training", "interruption", "machine")},
    **{name: name for name in ("hub", "stranger", "words")},
}
# May import the Hub files, and beside them what they show.
READERS = {
    **{"evaluation": set(), "importers": set(), "exporters": set(), "engines": set()},
    "loading": set(),
    "visualization": {"optimization", "words"},
}
# May import all of the above.
RUNNERS = {"recipes", "runs", "run_directory", "trainer", "publishing", "cards", "metrics"}
RUNNERS |= {"remote_code", "space"}
# Import what a command runs, when it runs.
COMMANDS = {"cli", "cli_convert", "cli_publish", "cli_translate"}
# Come with an extra, or are slow to import.
HEAVY = {"babel", "datasets", "evaluate", "matplotlib", "sacrebleu"}


def module_name(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def nodes_at_import(tree):
    """Every node that runs on import: all but bodies of functions and imports for annotations."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from nodes_at_import(node)


def libraries(nodes):
    """Top-level names of absolute imports."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.split(".")[0]


def siblings(path):
    """Modules of the package that a file imports anywhere, by their top-level name."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            parts = module_name(path).split(".")[: -node.level]
            full = [*parts, *(node.module or "").split(".")]
            if any(full):
                yield next(part for part in full if part)
            else:
                yield from (alias.name for alias in node.names)


def public_symbols(tree):
    """Functions and classes without a leading underscore, and such methods of such classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public_symbols(node)


@pytest.fixture(params=FILES, ids=module_name)
def path(request):
    return request.param


def test_every_file_has_a_place_in_the_picture(path):
    known = {*HUB, *SUBJECTS, *READERS, *RUNNERS, *COMMANDS, "__init__", "__main__"}
    assert module_name(path).split(".")[0] in known


def test_imports_follow_the_picture(path):
    name = module_name(path).split(".")[0]
    imported = set(siblings(path)) - {name}
    if name in HUB:
        assert imported <= HUB[name]
    elif name in SUBJECTS:
        assert {SUBJECTS.get(other) for other in imported} <= {SUBJECTS[name]}
    elif name in READERS:
        assert imported <= {*HUB, *READERS} | READERS[name]
    elif name in RUNNERS:
        assert imported <= {*HUB, *SUBJECTS, *READERS, *RUNNERS}
    elif name == "__init__":
        assert imported <= set(HUB)


def test_hub_files_travel_alone(path):
    """The host copies them flat by a regular expression that finds only `from .x import y`."""
    if module_name(path) not in HUB:
        pytest.skip("stays at home")
    tree = parsed(path)
    assert set(libraries(ast.walk(tree))) <= HUB_LIBRARIES | set(sys.stdlib_module_names)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            assert node.level == 1
            assert node.module
            assert "." not in node.module


def test_nothing_imports_the_package_by_its_own_name_or_the_scripts(path):
    assert not {"vanilla_transformer", "training", "tests"} & set(libraries(ast.walk(parsed(path))))


def test_light_files_import_heavy_libraries_where_they_use_them(path):
    name = module_name(path).split(".")[0]
    if name in READERS or name in RUNNERS - {"recipes"}:  # recipes: for --help
        pytest.skip("imported by those who need it whole")
    assert not HEAVY & set(libraries(nodes_at_import(parsed(path))))


def test_files_are_short(path):
    """One sitting for the model file, less for every other."""
    limit = 600 if path.name.startswith("modeling_") else 500
    assert len(path.read_text(encoding="utf-8").splitlines()) <= limit


def test_functions_are_short(path):
    """At most 40 lines without the docstring and the signature."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            length = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            assert length <= 40, f"{node.name} has {length} lines"


def test_file_names_say_what_is_in_them(path):
    assert path.stem not in {"utils", "util", "common", "helpers", "helper", "misc"}


def test_only_the_command_line_prints(path):
    if module_name(path) in COMMANDS:
        pytest.skip("prints")
    calls = [node.func for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
    assert not [call for call in calls if isinstance(call, ast.Name) and call.id == "print"]


def test_source_is_ascii(path):
    assert path.read_bytes().isascii()


def test_public_symbols_have_docstrings(path):
    tree = parsed(path)
    assert ast.get_docstring(tree)
    for node in public_symbols(tree):
        assert ast.get_docstring(node), node.name


def test_the_package_is_typed():
    assert (ROOT / "py.typed").exists()
