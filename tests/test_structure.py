"""The layout of the package, checked in its source: allowed imports and forbidden constructs.

The top level holds the files that are published with models; each other task has a folder.
"""

import ast
import re
import sys
from pathlib import Path

from mutations import MUTATIONS, places_of

from vanilla_transformer.publish.remote_code import code_files
from vanilla_transformer.recipes.recipe import Recipe

ROOT = Path(__file__).parents[1] / "vanilla_transformer"
FILES = sorted(ROOT.rglob("*.py"))

# Files that are published with models, and which of each other they may import.
HUB = {
    "errors": set(),
    "ranges": {"errors"},
    "configuration_vanilla_transformer": {"errors", "ranges"},
    "input_checks": {"errors"},
    "loss": {"errors"},
    "masks": {"loss"},
    "generation_limits": {"input_checks", "ranges"},
    "modeling_vanilla_transformer": {
        "configuration_vanilla_transformer",
        "errors",
        "generation_limits",
        "input_checks",
        "loss",
        "masks",
    },
    "search_settings": {"errors", "ranges"},
    "beam_search": {
        "errors",
        "generation_limits",
        "input_checks",
        "modeling_vanilla_transformer",
        "ranges",
        "search_settings",
    },
    "target_tokenizer": set(),
    "batch_translation": {
        "beam_search",
        "configuration_vanilla_transformer",
        "errors",
        "generation_limits",
        "ranges",
        "search_settings",
        "target_tokenizer",
        "word_alignment",
        "written_forms",
    },
    "word_alignment": {"target_tokenizer"},
    "written_forms": {"errors"},
    "pipeline": {"batch_translation", "beam_search", "errors", "written_forms"},
}
HUB_LIBRARIES = {"torch", "transformers", "huggingface_hub", "tqdm"}
# Which folders a folder may import besides the top level and itself.
FOLDERS = {
    "machine": set(),
    "fast": {"machine", "storage"},
    "texts": set(),
    "translation": {"machine", "storage", "texts"},
    "storage": set(),
    "serving": {"data", "storage", "texts"},
    "data": {"machine", "storage", "texts"},
    "evaluation": {"data", "machine", "storage", "texts", "translation"},
    "visualization": {"storage", "texts", "translation"},
    "convert": {"fast", "storage", "texts", "translation"},
    "recipes": {"data", "machine", "storage"},
    "publish": {
        *("convert", "data", "evaluation", "machine", "recipes", "storage", "visualization")
    },
    "train": {
        *("data", "evaluation", "fast", "machine", "publish", "recipes", "storage", "texts"),
        *("translation", "visualization"),
    },
    "cli": {
        *("convert", "data", "evaluation", "fast", "publish", "recipes", "serving", "storage"),
        *("machine", "texts", "train", "translation", "visualization"),
    },
}
# Folders and files that list fields of a model's config; some fields share names with options.
NAMES_OF_CONFIG = {
    "configuration_vanilla_transformer": "defines them",
    "ranges": "says how large they may be",
    "convert": "translates them from and to the configs of other systems",
}
# Installed by an extra or slow to import.
HEAVY = {"babel", "datasets", "evaluate", "jiwer", "matplotlib", "sacrebleu"}
# Files that only functions import, because their classes derive from those of such a library.
IMPORTED_LATE = {
    "evaluation/metrics.py": {"sacrebleu"},
    "evaluation/evaluate_module.py": {"datasets", "evaluate"},
}


def module_name(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def room(path):
    """Return the folder of a file, or the name of a file at the top level."""
    return module_name(path).split(".")[0]


TREES = {path: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in FILES}
HUB_TREES = {path: tree for path, tree in TREES.items() if room(path) in HUB}


def nodes(kind):
    """Yield each node of a kind in the package, with its file."""
    for path, tree in TREES.items():
        yield from ((path, node) for node in ast.walk(tree) if isinstance(node, kind))


def is_call(node, function):
    return isinstance(node, ast.Call) and ast.unparse(node.func) == function


def is_recipe(node):
    return getattr(node, "id", getattr(node, "attr", "")) == "recipe"


def nodes_at_import(tree):
    """Yield nodes that run on import: not function bodies or imports for annotations."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from nodes_at_import(node)


def libraries(nodes):
    """Yield the top-level names of absolute imports."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.split(".")[0]


def siblings(path):
    """Yield the top-level folders and files that a file imports anywhere."""
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.ImportFrom) and node.level:
            parts = module_name(path).split(".")[: -node.level]
            full = [part for part in (*parts, *(node.module or "").split(".")) if part]
            yield from full[:1] or [alias.name for alias in node.names]


def public_symbols(tree):
    """Yield functions, classes and their methods without a leading underscore."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public_symbols(node)


def option_names(node):
    """Return the recipe options named in a tuple, list, set or dict literal."""
    entries = getattr(node, "elts", None) or getattr(node, "keys", None) or []
    found = {entry.value for entry in entries if isinstance(entry, ast.Constant)}
    return found & Recipe.__dataclass_fields__.keys()


def test_top_level_files_are_those_published_with_models():
    assert {path.stem for path in ROOT.glob("*.py")} == {"__init__", *HUB}
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert folders == {*FOLDERS, "pretrained"}  # which holds models and no code


def test_invalid_requests_raise_request_error_not_value_error():
    """The command line prints one line for a RequestError and a traceback for other errors."""
    raising = {path.name for path, node in nodes(ast.Raise) if is_call(node.exc, "ValueError")}
    assert raising <= {"clean_process.py"}  # which does not import the package


def test_imports_follow_the_declared_layout():
    allowed = {name: {*HUB, *others, "__version__", "register"} for name, others in FOLDERS.items()}
    allowed |= HUB | {"__init__": {*HUB, "evaluation", "fast", "storage", "texts", "translation"}}
    imports = {(room(path), imported) for path in FILES for imported in siblings(path)}
    assert not [(own, other) for own, other in imports if other not in {own, *allowed[own]}]


def test_importers_and_exporters_do_not_import_each_other():
    imports = {
        (path.parent.name, *node.module.split("."))
        for path, node in nodes(ast.ImportFrom)
        if node.module
    }
    assert not [names for names in imports if {"importers", "exporters"} <= set(names)]


def test_published_files_import_only_siblings_and_allowed_libraries():
    """transformers copies the files to one folder and finds only `from .x import y`."""
    for path, tree in HUB_TREES.items():
        assert set(libraries(ast.walk(tree))) <= HUB_LIBRARIES | set(sys.stdlib_module_names), path
    relative = [(path, node) for path, node in nodes(ast.ImportFrom) if node.level]
    relative = [(path, node.level, node.module) for path, node in relative if path in HUB_TREES]
    assert not [each for each in relative if each[1] != 1 or "." in (each[2] or ".")]


def test_published_code_uses_no_optimization_tricks():
    """No weight caches, no threads, no private torch operators, no replaced forward."""
    for path, tree in HUB_TREES.items():
        assert not {"weakref", "queue", "ctypes"} & set(libraries(ast.walk(tree))), path
        threads = [node for node in ast.walk(tree) if "threading" in libraries([node])]
        assert {ast.unparse(node) for node in threads} <= {"from threading import Lock"}
        assert "torch.ops" not in ast.unparse(tree)
        assigned = [node.targets for node in ast.walk(tree) if isinstance(node, ast.Assign)]
        targets = {getattr(target, "attr", "") for targets in assigned for target in targets}
        assert not {"forward", "__class__"} & targets, path


def test_list_of_published_files_is_complete():
    assert {path.stem for path in code_files()} == set(HUB)


def test_package_files_import_neither_the_package_by_name_nor_scripts():
    for path, tree in TREES.items():
        imported = set(libraries(ast.walk(tree)))
        assert not {"vanilla_transformer", "training", "tests"} & imported, path


def test_only_the_recipe_table_lists_options():
    """Three or more names count as a list; code that uses values names one or two."""
    lists = {room(path) for path, node in nodes(ast.AST) if len(option_names(node)) > 2}
    assert lists <= {"recipes", *NAMES_OF_CONFIG}


def test_below_a_plan_nobody_asks_the_recipe():
    asking = {room(path) for path, node in nodes(ast.Attribute) if is_recipe(node.value)}
    assert asking <= {"recipes", "cli", "publish"}  # cards show the values of metrics.json
    run = [node for path, node in nodes(ast.ImportFrom) if module_name(path) == "train.run"]
    assert len([node for node in run if node.level]) <= 15


def test_heavy_libraries_are_imported_where_they_are_used():
    for path, tree in TREES.items():
        heavy = HEAVY & set(libraries(nodes_at_import(tree)))
        assert heavy <= IMPORTED_LATE.get(path.relative_to(ROOT).as_posix(), set()), path


def test_only_the_command_line_prints():
    assert {room(path) for path, node in nodes(ast.Call) if is_call(node, "print")} <= {"cli"}


def test_source_is_ascii():
    assert not [path for path in FILES if not path.read_bytes().isascii()]


def test_public_symbols_have_docstrings():
    for path, tree in TREES.items():
        assert ast.get_docstring(tree), path
        for node in public_symbols(tree):
            overloaded = "overload" in map(ast.unparse, node.decorator_list)  # only declares types
            assert overloaded or ast.get_docstring(node), (path, node.name)


def test_mutation_rows_quote_existing_code_and_name_existing_tests():
    for row in MUTATIONS:
        text = (ROOT / row.file).read_text(encoding="utf-8")
        assert text.count(row.old) == 1, (row.file, row.old)
        assert places_of(row)


def test_ruff_version_is_the_same_in_pre_commit_and_constraints():
    hook = (ROOT.parent / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    constraints = (ROOT.parent / "constraints.txt").read_text(encoding="utf-8").splitlines()
    (version,) = [line.partition("==")[2] for line in constraints if line.startswith("ruff==")]
    assert f"rev: v{version}\n" in hook


def test_entries_of_docstrings_begin_with_a_capital():
    entry = re.compile(r"^ {4,}(?:Args|Attributes|Raises):\n {8,}[\w*]+: [a-z][a-z' ].*", re.M)
    assert not [line for path in FILES for line in entry.findall(path.read_text(encoding="utf-8"))]
