"""`vanilla-transformer train | evaluate | translate | ...`: arguments in, calls out, text printed.

Nothing heavy is imported before a command runs, and no command computes anything itself.
"""

import argparse
import dataclasses
import difflib
import functools
import logging
import os
import shutil
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from .. import __version__
from ..recipes.recipe import Recipe, field_type, load_recipe, shipped_recipes
from .convert import add_export, add_import
from .publish import add_publish, add_push_to_hub, check_push_to_hub, push_trained
from .translate import add_translate, whole_number

_PACKAGE = Path(__file__).parents[1]
_TRAIN_EXAMPLE = """example:
  vanilla-transformer train demo
  vanilla-transformer train demo --pair en-zh --max-minutes 10 --output-dir runs/chinese
  vanilla-transformer train multi30k_en_de --train-file train.jsonl.gz \\
      --validation-file validation.jsonl.gz --test-file test.jsonl.gz

The same command again resumes a run that was stopped. On several devices:
  accelerate launch training/train.py RECIPE [overrides]
"""
_EVALUATE_EXAMPLE = """example:
  vanilla-transformer evaluate runs/demo-en-de
  vanilla-transformer evaluate runs/multi30k_en_de --test-file test.jsonl.gz --output scores.json
"""
# Packages that come with an extra, and the extra.
EXTRAS = {
    **dict.fromkeys(("datasets", "babel", "sacrebleu", "matplotlib", "accelerate", "yaml"), "demo"),
    **dict.fromkeys(("ctranslate2", "onnx", "onnx_ir", "onnxruntime", "onnxscript"), "export"),
    **dict.fromkeys(("sacremoses", "sentencepiece"), "import"),
}
# What follows the demo: the same with data of one's own.
_NEXT = """  {program} train multi30k_en_de
  {program} train multi30k_en_de --pair S-T --train-file TRAIN.jsonl \\
      --validation-file VALIDATION.jsonl --test-file TEST.jsonl --output-dir runs/mine"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: Words of the command line; those of this process if None.

    Returns:
        The exit code: 0, 2 for a mistake in the request, 128 + n after signal n.
    """
    for stream in (sys.stdout, sys.stderr):  # whatever the locale: text in any language goes out
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        # Names alone: a value that went astray may be a token.
        names = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        surplus = f"{len(unknown)} more {'word' if len(unknown) == 1 else 'words'} than it takes"
        options.command.error(f"unknown option {' '.join(names)}" if names else f"got {surplus}")
    _configure_logging()
    try:
        return options.run(options)
    except BrokenPipeError:  # the reader of our output has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError) as error:
        if not _is_request_error(error):
            raise
        print(f"vanilla-transformer: {_one_line(error)}", file=sys.stderr)
        return 2


def _train(options: argparse.Namespace) -> int:
    overrides = {
        name: value
        for name, value in vars(options).items()
        if name in (*_field_names(), "pair") and value is not None
    }
    recipe = load_recipe(options.recipe, overrides)
    output_dir = options.output_dir or _default_output_dir(options.recipe, options.pair)
    check_push_to_hub(options, recipe.data_license)
    _hide_progress_of_transformers()
    from ..train.run import run_recipe
    from ..train.trainer import TrainingInterrupted

    try:
        metrics = run_recipe(recipe, output_dir)
    except TrainingInterrupted as interruption:
        if _is_first_process():
            print(interruption, file=sys.stderr)
        return 128 + interruption.signum
    if _is_first_process():
        _print_scores(metrics["scores"])
        _print_samples(metrics.get("samples", {}))
        print(f"Model, curves, samples and metrics are in {output_dir}. Next:")
        print(f"  {_program()} translate {output_dir} FILE")
        if recipe.generated:
            print(_NEXT.format(program=_program()))
        push_trained(options, output_dir)
    return 0


def _program() -> str:
    """This program as its user has called it: it need not be on the path."""
    name = "vanilla-transformer"
    called = Path(sys.argv[0])
    return str(called) if called.name == name and shutil.which(name) != str(called) else name


def _evaluate(options: argparse.Namespace) -> int:
    _hide_progress_of_transformers()
    from ..storage.atomic import write_json
    from ..train.run import evaluate_run

    scores = evaluate_run(
        options.directory,
        test_file=options.test_file,
        pair=options.pair,
        num_beams=options.num_beams,
        batch_tokens=options.batch_tokens,
    )
    _print_scores(scores)
    if options.output:
        write_json(Path(options.output), scores)
    return 0


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, instead of printing all options before it."""

    def error(self, message: str) -> NoReturn:
        for word in message.replace(":", " ").split():
            known = [option for action in self._actions for option in action.option_strings]
            near = difflib.get_close_matches(word, known, n=1)
            if word.startswith("--") and word not in known and near:
                message += f" (did you mean {near[0]}?)"
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="vanilla-transformer",
        description="Train, evaluate and use the original Transformer.",
        epilog="example: vanilla-transformer train demo; COMMAND --help shows those of a command",
    )
    version = f"%(prog)s {__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_train(commands)
    _add_evaluate(commands)
    add_translate(functools.partial(_add_command, commands))
    add_import(functools.partial(_add_command, commands))
    add_export(functools.partial(_add_command, commands))
    add_publish(functools.partial(_add_command, commands))
    return parser


def _add_command(
    commands: argparse._SubParsersAction, name: str, *, help: str, epilog: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=help,
        description=f"{help[0].upper()}{help[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _add_train(commands: argparse._SubParsersAction) -> None:
    help = "train a model as a recipe says, into a run directory"
    command = _add_command(commands, "train", help=help, epilog=_TRAIN_EXAMPLE)
    names = ", ".join(shipped_recipes())
    command.add_argument("recipe", metavar="RECIPE", help=f"a path to a YAML file, or {names}")
    command.add_argument("--output-dir", metavar="DIR", help="run directory (default: runs/RECIPE)")
    command.add_argument("--pair", metavar="S-T", help="both languages at once, such as en-de")
    command.usage = "%(prog)s RECIPE [options]"
    command.description += "\nThe options below override the recipe; `none` unsets a value."
    groups: dict[str, argparse._ArgumentGroup] = {}
    for field in dataclasses.fields(Recipe):
        title = field.metadata["group"]
        if title not in groups:
            groups[title] = command.add_argument_group(title)
        _add_recipe_option(groups[title], field)
    add_push_to_hub(command)
    command.set_defaults(run=_train, command=command)


def _add_recipe_option(group: argparse._ArgumentGroup, field: dataclasses.Field[object]) -> None:
    flag = f"--{field.name.replace('_', '-')}"
    default = "" if field.default is None else f" (default: {field.default})"
    help = (field.metadata["help"] + default).replace("%", "%%")
    kind, _ = field_type(field.name)
    if kind is bool:
        # Without a value of its own, or `--strict demo` would take the recipe for it.
        group.add_argument(flag, action=argparse.BooleanOptionalAction, help=help)
    else:
        metavar = "TEXT" if kind is str else kind.__name__.upper()
        group.add_argument(flag, metavar=metavar, help=help)


def _add_evaluate(commands: argparse._SubParsersAction) -> None:
    help = "score a trained model on test pairs"
    command = _add_command(commands, "evaluate", help=help, epilog=_EVALUATE_EXAMPLE)
    command.add_argument("directory", metavar="DIR", help="run directory")
    command.add_argument("--test-file", help="test pairs (default: those of the run's recipe)")
    command.add_argument("--pair", metavar="S-T", help="languages (default: the recipe's)")
    command.add_argument("--num-beams", type=whole_number, help="beams (default: the recipe's)")
    command.add_argument(
        "--batch-tokens", type=whole_number, default=4096, help="tokens in a batch"
    )
    command.add_argument("--output", metavar="FILE", help="write the scores as JSON too")
    command.set_defaults(run=_evaluate, command=command)


def _print_scores(scores: dict[str, dict[str, object]]) -> None:
    """One line for each test set."""
    if not scores:
        print("There is no test set, hence no scores.")
        return
    rows = {}
    for name, result in scores.items():
        copied = result.get("copy_baseline", {}).get("exact_match")
        rows[name] = {**result, "copied": copied, "sentences": result.get("num_sentences")}
    _print_table(rows, ("bleu", "chrf", "exact_match", "copied", "perplexity", "sentences"))
    if any("by_kind" in result for result in scores.values()):
        print("\nexact match by kind of phrase")
        kinds = sorted({kind for result in scores.values() for kind in result.get("by_kind", ())})
        names = [name for name, result in scores.items() if "by_kind" in result]
        _print_table(
            {
                kind: {
                    name: scores[name]["by_kind"].get(kind, {}).get("exact_match") for name in names
                }
                for kind in kinds
            },
            names,
        )
        print()
    for signature in dict.fromkeys(result.get("bleu_signature") for result in scores.values()):
        print(f"BLEU: {signature}")


def _print_table(rows: dict[str, dict[str, object]], columns: Sequence[str]) -> None:
    width = max(len(name) for name in rows)
    print(" ".join([" " * width, *(f"{column:>12}" for column in columns)]))
    for name, row in rows.items():
        cells = [_cell(row.get(column)) for column in columns]
        numbers = (
            f"{cell:>{max(12, len(column))}}" for cell, column in zip(cells, columns, strict=True)
        )
        print(" ".join([f"{name:<{width}}", *numbers]))


def _print_samples(samples: dict[str, list[dict[str, str]]], count: int = 3) -> None:
    """Print the first samples; a run of an earlier version has none in its metrics."""
    from ..train.report import sample_text

    chosen = [sample for of_one_set in samples.values() for sample in of_one_set][:count]
    if chosen:
        print("\n\n".join(["", *map(sample_text, chosen), ""]))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return "-" if value is None else str(value)


def _default_output_dir(recipe: str, pair: str | None) -> str:
    name = Path(recipe).stem
    return str(Path("runs") / (f"{name}-{pair}" if pair else name))


def _field_names() -> list[str]:
    return [field.name for field in dataclasses.fields(Recipe)]


def _is_first_process() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _configure_logging() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    package = logging.getLogger(_PACKAGE.name)
    package.handlers = [handler]
    package.propagate = False
    package.setLevel(logging.INFO if _is_first_process() else logging.WARNING)


def _hide_progress_of_transformers() -> None:
    """Bars for loading and saving a small file would stand between the lines of the log."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()


def _is_request_error(error: Exception) -> bool:
    """Whether the request is at fault: a file that cannot be used, or a ValueError of our own.

    A ValueError that comes from inside a library is a defect and keeps its traceback.
    """
    if isinstance(error, OSError) and error.filename is not None:
        return True
    if isinstance(error, ImportError) and error.name is not None:
        return error.name.partition(".")[0] in EXTRAS
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and _PACKAGE in Path(frames[-1].filename).parents


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    foreign = isinstance(error, ImportError) and error.name is not None
    extra = EXTRAS[error.name.partition(".")[0]] if foreign else None
    hint = f"; pip install 'vanilla-transformer[{extra}]'" if extra else ""
    return " ".join(str(error).split()) + hint
