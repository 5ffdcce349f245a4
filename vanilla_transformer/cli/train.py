"""`vanilla-transformer train`: the options of a recipe, and the summary at the end of a run."""

import argparse
import dataclasses
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from ..recipes.options import OPTIONS, SECTIONS, option_type, takes_several
from ..recipes.recipe import load_recipe, shipped_recipes
from ..storage.extras import TRAIN, require
from .evaluate import print_scores


def add_train(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command `train` with its options."""
    command = add_command("train", _train)
    names = ", ".join(shipped_recipes())
    text = f"path to a YAML file, or one of {names} (default: by the size of the training data)"
    command.add_argument("recipe", metavar="RECIPE", nargs="?", help=text)
    text = "run directory (default: runs/RECIPE or runs/own; --pair S-T adds -S-T)"
    command.add_argument("--output-dir", metavar="DIR", help=text)
    command.add_argument("--pair", metavar="S-T", help="source and target language, such as en-de")
    command.usage = "%(prog)s [RECIPE] [options]"
    for section in SECTIONS:
        heading = (section.__doc__ or "").removesuffix(".")
        group = command.add_argument_group(f"more options: {heading[0].lower()}{heading[1:]}")
        for option in dataclasses.fields(section):
            _add_recipe_option(command if option.metadata["common"] else group, option)


def _add_recipe_option(group: argparse._ActionsContainer, field: dataclasses.Field[object]) -> None:
    flag = f"--{field.name.replace('_', '-')}"
    default = "" if field.default is None else f" (default: {field.default})"
    help = (field.metadata["help"] + default).replace("%", "%%")
    kind, _ = option_type(field.name)
    if kind is bool:
        # A flag without a value: otherwise `--strict demo` would take the recipe for its value.
        group.add_argument(flag, action=argparse.BooleanOptionalAction, help=help)
    else:
        names = {"str": "TEXT", "Mapping": "NAME=VALUE"}
        metavar = names.get(kind.__name__, kind.__name__.upper())
        several = takes_several(field.name) or "=" in metavar
        action, nargs = ("extend", "+") if several else ("store", None)
        group.add_argument(flag, metavar=metavar, help=help, action=action, nargs=nargs)


def _train(options: argparse.Namespace) -> int:
    r"""Train a model from a recipe and write it to a run directory.

    Options override the recipe; `none` unsets a value. A default applies if the recipe does not set
    the option; it is the paper's value if the paper has one.

    Example:
      vanilla-transformer train multi30k_en_de
      vanilla-transformer train multi30k_en_de --max-steps 6000 --seed 1 --output-dir runs/longer
      vanilla-transformer train --pair en-de --train-file train.en,train.de \
          --validation-file valid.en,valid.de --test-file test.en,test.de --output-dir runs/mine
      vanilla-transformer train my/recipe.yaml --max-steps 20000 --max-minutes none
      vanilla-transformer train multi30k_en_de --init-from runs/mine --learning-rate 2e-4 \
          --train-file new.en,new.de --warmup-steps 100 --max-steps 2000 --output-dir runs/tuned

    With --init-from the model provides shape, vocabulary and tokenizer. The schedule starts afresh,
    so give a learning rate no higher than the last one of the model's own training (history.tsv).

    To resume a run that was stopped, repeat the command. To train on several devices:
      accelerate launch training/train.py RECIPE [overrides]
    """
    require("Training", *TRAIN)
    from ..recipes.planning import plan_stages, recipe_by_size

    given = {name: value for name, value in vars(options).items() if value is not None}
    typed = {name: given[name] for name in ("pair", *OPTIONS) if name in given}
    names = (Path(options.recipe or "own").stem, options.pair)
    output_dir = options.output_dir or str(Path("runs", "-".join(filter(None, names))))
    if options.recipe is None:
        recipe = recipe_by_size(typed, Path(output_dir))
    else:
        recipe = load_recipe(options.recipe, typed)
    from ..train.finishing import sample_text
    from ..train.run import run_plan

    for plan, run in plan_stages(recipe, Path(output_dir), typed):
        metrics = run_plan(plan, run)
    if is_first_process():
        print_scores(metrics["scores"])
        samples = [each for chosen in metrics.get("samples", {}).values() for each in chosen]
        if samples:
            print("\n\n".join(["", *map(sample_text, samples[:3]), ""]))
        warnings = metrics.get("warnings", [])
        print("".join(f"Warning: {warning['text']}\n" for warning in warnings), end="")
        print(f"The model and its metrics are in {run}. ", end="")
        if any(warning["kind"] == "outputs" for warning in warnings):
            print("It has not learned its task; to find out why: training/diagnosis.md.")
        else:
            print(f"Next:\n  {_program()} translate {shlex.quote(str(run))} FILE")
    return 0


def _program() -> str:
    """Return the command that runs this program: its name if it is on PATH, else a path."""
    name = "vanilla-transformer"
    called = Path(sys.argv[0])
    return str(called) if called.name == name and shutil.which(name) != str(called) else name


def is_first_process() -> bool:
    """Return whether this process has rank 0, the only one that writes and prints."""
    return os.environ.get("RANK", "0") == "0"
