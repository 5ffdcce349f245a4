"""`vanilla-transformer compare` and `score`: compare models, and score given pairs with one."""

import argparse
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import RequestError
from .evaluate import (
    add_pair_options,
    add_test_options,
    check_scores_file,
    table_lines,
    test_options,
)
from .translate import count

if TYPE_CHECKING:
    from ..data.pair_files import PairReader

_COMPARE_EXAMPLE = """example:
  vanilla-transformer compare runs/first runs/second
  vanilla-transformer compare runs/first runs/second --output comparison.md
  vanilla-transformer compare runs/first downloads/opus-mt-en-de --test-file test.en,test.de

Every other run is tested against the first. A model without a recipe uses the first one's recipe.
"""
_SCORE_EXAMPLE = """example:
  vanilla-transformer score runs/demo-en-de pairs.jsonl.gz
  vanilla-transformer score runs/demo-en-de pairs.en,pairs.de --per-token

To keep the pairs that the model finds likely (from two text files, into kept.en and kept.de):
  vanilla-transformer score runs/demo-en-de pairs.en,pairs.de --per-token | \\
      paste - pairs.en pairs.de | \\
      awk -F '\\t' '$1 > -3 { print $2 > "kept.en"; print $3 > "kept.de" }'

An invalid pair, such as one with an empty side, gets an empty line, which `awk` leaves out.
"""
_SHOWN = 3  # differing sentences to print; the page of --output has more


def add_compare(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command `compare`."""
    help = "compare trained models on the same test pairs, with significance tests"
    command = add_command("compare", help=help, epilog=_COMPARE_EXAMPLE)
    text = "two or more run directories or saved models"
    command.add_argument("directories", metavar="RUN", nargs="+", help=text)
    add_test_options(command)
    command.add_argument("--output", metavar="PAGE", help="also write a Markdown page")
    command.set_defaults(run=_compare, command=command)


def _compare(options: argparse.Namespace) -> int:
    from ..storage.atomic import write_text
    from ..train.comparing import compare_runs, comparison_page

    check_scores_file(options, options.directories)
    comparison = compare_runs(
        options.directories,
        batch_tokens=options.batch_tokens,
        progress=sys.stderr.isatty(),
        **test_options(options),
    )
    if options.output:
        write_text(Path(options.output), comparison_page(comparison))
    print(comparison_page(comparison, table=_aligned, shown=_SHOWN), end="")
    return 0


def _aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return table_lines([columns, *rows])


def add_score(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command `score`."""
    help = "print log P(translation | source) of given pairs, one line each"
    command = add_command("score", help=help, epilog=_SCORE_EXAMPLE)
    command.add_argument("directory", metavar="DIR", help="run directory, or any saved model")
    text = "JSON Lines, a table (.tsv, .csv, .parquet), or two text files as SOURCE,TARGET"
    command.add_argument("pairs", metavar="PAIRS", help=text)
    text = "print the mean over each pair's target tokens instead of the sum"
    command.add_argument("--per-token", action="store_true", help=text)
    add_pair_options(command)
    text = "size of a batch: pairs x tokens of the longest side (default: 4096)"
    command.add_argument("--batch-tokens", type=count, default=4096, help=text)
    command.set_defaults(run=_score, command=command)


def _score(options: argparse.Namespace) -> int:
    from ..batch_translation import longest_source
    from ..data.pair_files import read_pairs
    from ..evaluation import check_pair, log_probabilities
    from ..recipes.data import named_files
    from ..storage.saved_model import load_saved_model, load_saved_tokenizer

    files = named_files(options.pairs)
    source, target = _languages(options.directory, options.pair, files)
    place = files[0] if len(files) == 1 else tuple(files)
    try:
        reader = read_pairs(
            place,
            source_language=source,
            target_language=target,
            source_column=options.source_column,
            target_column=options.target_column,
            split="all",  # of a folder, every file
        )
    except FileNotFoundError as error:
        raise RequestError(str(error)) from error
    model = load_saved_model(options.directory, device="auto")
    tokenizer = load_saved_tokenizer(options.directory)
    # Short texts cannot have too many tokens, so only long ones are tokenized a second time.
    short = longest_source(model) // 8

    def check(number: int, pair: tuple[str, str]) -> None:
        if max(map(len, pair)) > short:
            check_pair(model, tokenizer, pair, number=number)

    pairs = _Pairs(reader, check)
    progress = sys.stderr.isatty() and not sys.stdout.isatty()
    sizes = {"batch_tokens": options.batch_tokens, "progress": progress}
    for found in log_probabilities(model, tokenizer, pairs, **sizes):
        print("\n" * pairs.before.popleft(), end="")
        tokens = found.target_tokens if options.per_token else 1
        print(f"{found.log_probability / tokens:.6f}")
    print("\n" * pairs.before.popleft(), end="", flush=True)
    if pairs.complaints:
        print(f"Invalid pairs: {pairs.complaints}; first {pairs.first}", file=sys.stderr)
    return 0


class _Pairs:
    """Pairs of a reader, with the count of invalid ones before each pair and at the end.

    `check` gets the number and the texts of a pair, and raises ValueError if it is invalid.
    """

    def __init__(self, reader: "PairReader", check: Callable[[int, tuple[str, str]], None]) -> None:
        self.reader, self.check = reader, check
        self.before: deque[int] = deque()
        self.rows, self.complaints = 0, 0
        self.first = ""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        complaints = 0
        for pair in self.reader.read(self._skip):
            self.rows += 1
            try:
                self.check(self.rows, pair)
            except RequestError as error:
                self._complain(f"pair {self.rows}", error)
                continue
            self.before.append(self.complaints - complaints)
            complaints = self.complaints
            yield pair
        self.before.append(self.complaints - complaints)

    def _skip(self, place: str, error: Exception) -> None:
        self.rows += 1
        self._complain(place, error)

    def _complain(self, place: str, error: Exception) -> None:
        self.first = self.first or f"{place}: {error}"
        self.complaints += 1


def _languages(directory: str, pair: str | None, files: Sequence[Path]) -> tuple[str, str]:
    """Return the language codes, which are the keys in JSON Lines; text files need none."""
    from ..recipes.recipe import load_recipe, make_recipe
    from ..storage.run_files import RECIPE

    if len(files) > 1:
        return "source", "target"
    path = Path(directory, RECIPE)
    if pair is not None:
        recipe = make_recipe({"pair": pair})
    elif path.is_file():
        recipe = load_recipe(str(path))
    else:
        raise RequestError(f"{directory} has no {RECIPE}; give --pair, such as en-de.")
    return recipe.languages
