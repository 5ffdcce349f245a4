"""The layout of the package: who may import whom, and what no file may do, read from its source.

The top level is what travels to the Hub; around it lies one folder per job.
"""

import ast
import dataclasses
import sys
from pathlib import Path

import pytest
from mutations import MUTATIONS

from vanilla_transformer.publish.remote_code import code_files
from vanilla_transformer.recipes.recipe import Recipe

ROOT = Path(__file__).parents[1] / "vanilla_transformer"
FILES = sorted(ROOT.rglob("*.py"))

# Files that travel alone to the Hub: torch, transformers with what it needs, and each other.
HUB = {
    "errors": set(),
    "ranges": {"errors"},
    "configuration_vanilla_transformer": {"errors", "ranges"},
    "input_checks": {"errors"},
    "loss": {"errors"},
    "modeling_vanilla_transformer": {
        "configuration_vanilla_transformer",
        "errors",
        "input_checks",
        "loss",
        "ranges",
    },
    "target_tokenizer": set(),
    "beam_search": {"errors", "modeling_vanilla_transformer", "ranges"},
    "batch_translation": {
        "beam_search",
        "configuration_vanilla_transformer",
        "errors",
        "ranges",
        "target_tokenizer",
        "word_alignment",
    },
    "word_alignment": {"target_tokenizer"},
    "pipeline": {"batch_translation", "errors", "word_alignment"},
}
HUB_LIBRARIES = {"torch", "transformers", "huggingface_hub", "tqdm"}
# Which folders a folder may import, beside the top level and itself.
FOLDERS = {
    "fast": {"storage"},
    "storage": set(),
    "data": {"storage"},
    "evaluation": {"storage"},
    "visualization": {"storage"},
    "convert": {"storage"},
    "recipes": {"data", "storage"},
    "publish": {"fast", "recipes", "storage", "visualization"},
    "train": {"data", "evaluation", "fast", "publish", "recipes", "storage", "visualization"},
    "cli": {
        *("convert", "data", "evaluation", "publish", "recipes", "storage", "train"),
        "visualization",
    },
}
# Folders and files that list fields of a model's config, some of which are called as a recipe's.
NAMES_OF_CONFIG = {
    "configuration_vanilla_transformer": "defines them",
    "ranges": "says how large they may be",
    "convert": "translates them from and to the configs of other systems",
}
# Come with an extra, or are slow to import.
HEAVY = {"babel", "datasets", "evaluate", "matplotlib", "sacrebleu"}


def module_name(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def room(path):
    """The folder of a file, or the name of a file at the top level."""
    return module_name(path).split(".")[0]


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
    """Folders and files at the top level that a file imports anywhere."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            parts = module_name(path).split(".")[: -node.level]
            full = [part for part in (*parts, *(node.module or "").split(".")) if part]
            yield from full[:1] or [alias.name for alias in node.names]


def public_symbols(tree):
    """Functions and classes without a leading underscore, and such methods of such classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public_symbols(node)


def option_names(node):
    """Options of a recipe that a tuple, list, set or dict literal names."""
    entries = getattr(node, "elts", None) or getattr(node, "keys", None) or []
    found = {entry.value for entry in entries if isinstance(entry, ast.Constant)}
    return found & Recipe.__dataclass_fields__.keys()


@pytest.fixture(params=FILES, ids=module_name)
def path(request):
    return request.param


@pytest.fixture(params=[path for path in FILES if room(path) in HUB], ids=module_name)
def hub_path(request):
    return request.param


def test_the_top_level_is_what_travels_to_the_hub():
    assert {path.stem for path in ROOT.glob("*.py")} == {"__init__", *HUB}
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert folders == set(FOLDERS)


def test_mistakes_in_a_request_are_told_from_defects(path):
    """One line for the first, a traceback for the others: by the kind of error alone."""
    if path.name == "clean_process.py":  # which knows nothing of the package
        return
    raised = [node.exc for node in ast.walk(parsed(path)) if isinstance(node, ast.Raise)]
    called = [node.func for node in raised if isinstance(node, ast.Call)]
    assert "ValueError" not in [ast.unparse(function) for function in called]


def test_imports_follow_the_picture(path):
    imported = set(siblings(path)) - {room(path)}
    if room(path) in HUB:
        assert imported <= HUB[room(path)]
    elif room(path) in FOLDERS:
        assert imported - {"__version__", "register"} <= {*HUB, *FOLDERS[room(path)]}
    else:
        assert imported <= {*HUB, "fast"}


def test_importers_and_exporters_share_what_is_beside_them():
    for folder, other in (("importers", "exporters"), ("exporters", "importers")):
        for path in (ROOT / "convert" / folder).glob("*.py"):
            nodes = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.ImportFrom)]
            assert not [node for node in nodes if other in (node.module or "").split(".")]


def modules_imported(path):
    """Modules of the package that a file imports anywhere, as dotted names."""
    known = {module_name(file).removesuffix(".__init__") for file in FILES}
    here = module_name(path).split(".")
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*here[: -node.level], *(node.module or "").split(".")]
            names = [".".join(filter(None, (*base, alias.name))) for alias in node.names]
            for name in names:
                yield name if name in known else ".".join(filter(None, base))


def test_no_imports_run_in_a_circle():
    graph = {
        module_name(path).removesuffix(".__init__"): set(modules_imported(path)) for path in FILES
    }
    while free := [name for name, imported in graph.items() if not imported & graph.keys()]:
        for name in free:
            del graph[name]
    assert not graph, f"in a circle, or above one: {', '.join(graph)}"


def test_hub_files_travel_alone(hub_path):
    """The host copies them flat by a regular expression that finds only `from .x import y`."""
    tree = parsed(hub_path)
    assert set(libraries(ast.walk(tree))) <= HUB_LIBRARIES | set(sys.stdlib_module_names)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            assert node.level == 1
            assert node.module
            assert "." not in node.module


def test_code_that_travels_is_the_plain_path(hub_path):
    """No caches of weights, no threads, no operators private to torch, no forward replaced."""
    tree = parsed(hub_path)
    assert not {"weakref", "threading", "queue", "ctypes"} & set(libraries(ast.walk(tree)))
    assert "torch.ops" not in ast.unparse(tree)
    targets = [
        target
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
    ]
    assert not [target for target in targets if target.attr in ("forward", "__class__")]


def test_what_travels_is_written_down():
    assert {path.stem for path in code_files()} == set(HUB)


def test_nothing_imports_the_package_by_its_own_name_or_the_scripts(path):
    assert not {"vanilla_transformer", "training", "tests"} & set(libraries(ast.walk(parsed(path))))


def test_options_are_listed_in_the_table_alone(path):
    """Three names make a list; code that uses a value names one or two."""
    if room(path) in {"recipes", *NAMES_OF_CONFIG}:
        pytest.skip("has the table, or lists fields of a config that are called the same")
    lists = [names for node in ast.walk(parsed(path)) if len(names := option_names(node)) > 2]
    assert not lists


def test_names_that_options_have_in_the_table_alone_stay_there(path):
    """Where the config or the trainer calls it otherwise, only the table knows both names."""
    if room(path) in {"recipes", "configuration_vanilla_transformer"}:
        pytest.skip("has the table, or names for both sides that are called the same")
    renamed = {
        field.name
        for field in dataclasses.fields(Recipe)
        if {*field.metadata["config"], field.metadata["argument"]} - {field.name, None}
    }
    assert {"attention_heads", "gradient_accumulation", "save_every_steps"} <= renamed
    constants = {node.value for node in ast.walk(parsed(path)) if isinstance(node, ast.Constant)}
    assert not renamed & constants


def test_heavy_libraries_are_imported_where_they_are_used(path):
    assert not HEAVY & set(libraries(nodes_at_import(parsed(path))))


def test_the_model_file_is_one_sitting():
    (path,) = ROOT.glob("modeling_*.py")
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 650


def test_file_names_say_what_is_in_them(path):
    assert path.stem not in {"utils", "util", "common", "helpers", "helper", "misc"}


def test_only_the_command_line_prints(path):
    if room(path) == "cli":
        pytest.skip("prints")
    calls = [node.func for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
    assert not [call for call in calls if isinstance(call, ast.Name) and call.id == "print"]


def test_source_is_ascii(path):
    assert path.read_bytes().isascii()


def test_public_symbols_have_docstrings(path):
    tree = parsed(path)
    assert ast.get_docstring(tree)
    for node in public_symbols(tree):
        overloaded = "overload" in map(ast.unparse, node.decorator_list)  # says its types alone
        assert overloaded or ast.get_docstring(node), node.name


def test_the_package_is_typed():
    assert (ROOT / "py.typed").exists()


def test_rows_of_mutations_quote_code_and_name_tests_that_are_there():
    for row in MUTATIONS:
        text = (ROOT / row.file).read_text(encoding="utf-8")
        assert text.count(row.old) == 1, (row.file, row.old)
        for test in row.tests.split():
            file, _, name = test.partition("::")
            name = name.partition("[")[0]
            source = Path(__file__).with_name(file).read_text(encoding="utf-8")
            assert not name or f"def {name}(" in source, test


def test_ruff_is_the_same_before_a_commit_and_in_the_tests():
    hook = (ROOT.parent / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    constraints = (ROOT.parent / "constraints.txt").read_text(encoding="utf-8").splitlines()
    (version,) = [line.partition("==")[2] for line in constraints if line.startswith("ruff==")]
    assert f"rev: v{version}\n" in hook
