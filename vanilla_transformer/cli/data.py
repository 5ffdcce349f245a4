"""`vanilla-transformer data`: inspect a parallel corpus without training on it."""

import argparse
from collections.abc import Callable

from ..recipes.recipe import make_recipe
from ..storage.extras import TRAIN, require
from ..storage.reading import printable
from .shared_options import add_pair_options


def add_data(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command `data` with its options."""
    command = add_command("data", _data)
    text = "file with pairs, or two text files, SOURCE,TARGET"
    command.add_argument("file", metavar="FILE", help=text)
    add_pair_options(command)


def _data(options: argparse.Namespace) -> int:
    """Look at a file of pairs: its columns, counts, odd texts and longest lines.

    Example:
      vanilla-transformer data corpus.tsv --pair en-cs
      vanilla-transformer data corpus.en,corpus.cs --pair en-cs
      vanilla-transformer data export.csv --pair en-cs --source-column 3 --target-column 4

    Prints the first rows of a table, its source and target columns, counts of odd pairs and texts,
    and what `train --clean` would leave out. Only the cache of `datasets` is written.
    """
    require("Reading pairs", *TRAIN)
    from ..data.examination import examine
    from ..data.pair_files import draw_rows
    from ..recipes.data import named_files, training_pairs

    values = {name: getattr(options, name) for name in ("pair", "source_column", "target_column")}
    given = {name: value for name, value in values.items() if value is not None}
    recipe = make_recipe({**given, "train_file": options.file})
    pairs = training_pairs(recipe)
    files = named_files(options.file)
    if rows := draw_rows(files[0] if len(files) == 1 else tuple(files)):
        print(f"{rows}\n")
    for row in pairs.select(range(min(3, len(pairs)))):
        for language, side in zip(recipe.languages, ("source", "target"), strict=True):
            print(f"{language}: {printable(row[side])}")
        print()
    for line in examine(pairs):
        print(line)
    return 0
