"""`vanilla-transformer compare` and `score`: compare models, and score given pairs with a model."""

import argparse
import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RequestError
from .shared_options import add_overwrite, add_pair_options, add_test_options, count, test_options

if TYPE_CHECKING:
    from ..data.pair_files import PairReader

_SHOWN = 3  # sentences to print, those that differ most; the file of --output has more


def add_compare(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command `compare` with its options."""
    command = add_command("compare", _compare)
    text = "two or more run directories or other models"
    command.add_argument("directories", metavar="RUN", nargs="+", help=text)
    add_test_options(command)
    command.add_argument("--output", metavar="PAGE", help="also write the comparison as Markdown")
    add_overwrite(command, reads=("directories", "test_file"), files=("output",))


def _compare(options: argparse.Namespace) -> int:
    """Compare trained models on the same test pairs, with significance tests.

    Example:
      vanilla-transformer compare runs/first runs/second
      vanilla-transformer compare runs/first runs/second --output comparison.md
      vanilla-transformer compare runs/first everyday-en-de --test-file test.en,test.de

    Every other run is tested against the first. A model without a recipe uses the first one's.
    """
    from ..storage.atomic import write_text
    from ..train.scoring import compare_runs, comparison_page

    asked = {**test_options(options), "with_robustness": options.robustness}
    runs = compare_runs(options.directories, **asked)
    if options.output:
        write_text(Path(options.output), comparison_page(runs))
    print(comparison_page(runs, shown=_SHOWN), end="")
    return 0


def add_score(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command `score` with its options."""
    command = add_command("score", _score)
    command.add_argument("directory", metavar="DIR", help="run directory, or any model")
    text = "JSON Lines, a table (.tsv, .csv, .parquet), or two text files as SOURCE,TARGET"
    command.add_argument("pairs", metavar="PAIRS", help=text)
    text = "print log-probabilities per target token, not of the whole target"
    command.add_argument("--per-token", action="store_true", help=text)
    add_pair_options(command)
    text = "size of a batch: pairs x tokens of the longest side (default: 4096)"
    command.add_argument("--tokens-at-once", type=count, default=4096, help=text)


def _score(options: argparse.Namespace) -> int:
    r"""Print log P(translation | source) of given pairs, one line each.

    Example:
      vanilla-transformer score everyday-en-de pairs.jsonl.gz
      vanilla-transformer score everyday-en-de pairs.en,pairs.de --per-token

    To keep the pairs that the model finds likely (from two text files, into kept.en and kept.de):
      vanilla-transformer score everyday-en-de pairs.en,pairs.de --per-token | \
          paste - pairs.en pairs.de | \
          awk -F '\t' '$1 > -3 { print $2 > "kept.en"; print $3 > "kept.de" }'

    An invalid pair, such as one with an empty side, gets an empty line, which `awk` leaves out.
    """
    from ..data.pair_files import read_pairs
    from ..evaluation import log_probabilities, pair_ids
    from ..machine.progress import progress
    from ..recipes.data import named_files
    from ..recipes.recipe import languages_of_model
    from ..recipes.testing import warn_of_other_languages
    from ..storage.run_files import warn_of_changed_model
    from ..storage.saved_model import load_saved_model, load_saved_tokenizer, model_folder
    from ..translation.many_texts import WINDOW

    folder, files = model_folder(options.directory), named_files(options.pairs)
    source, target = "source", "target"  # columns of two text files
    if len(files) == 1 or options.pair:  # JSON Lines needs the languages: they are its keys
        source, target = languages_of_model(folder, options.pair)
        warn_of_other_languages(folder, (source, target))
    place = files[0] if len(files) == 1 else tuple(files)
    names: dict[str, Any] = {"source_language": source, "target_language": target}
    names |= {name: getattr(options, name) for name in ("source_column", "target_column")}
    reader = read_pairs(place, split="all", **names)  # for a folder, read every file
    warn_of_changed_model(folder)
    model = load_saved_model(folder, device="auto")
    tokenizer = load_saved_tokenizer(folder)
    budget, invalid = options.tokens_at_once, list[str]()
    rows = _pairs_or_none(reader, functools.partial(pair_ids, model, tokenizer), invalid)
    with progress(what="Scoring", unit="pairs", stream=sys.stdout) as bar:
        while window := list(itertools.islice(rows, WINDOW)):
            valid = [pair for pair in window if pair is not None]
            scores = log_probabilities(model, tokenizer, valid, tokens_at_once=budget)
            for pair in window:
                if pair is None:
                    print()
                    continue
                score = next(scores)
                length = score.target_tokens if options.per_token else 1
                print(f"{score.log_probability / length:.6f}")
            bar.update(len(window))
    sys.stdout.flush()
    if invalid:
        print(f"Invalid pairs: {len(invalid)}; first {invalid[0]}", file=sys.stderr)
    return 0


def _pairs_or_none(
    reader: "PairReader", check: Callable[..., object], invalid: list[str]
) -> Iterator[tuple[str, str] | None]:
    """Yield the pairs of a reader, with None for each invalid one.

    Args:
        reader: The reader, which skips malformed rows.
        check: Function of pairs and the number of the `first`; raises ValueError for invalid pairs.
        invalid: List to which the error of each invalid pair is added.
    """
    rows: list[tuple[str, str] | None] = []

    def skip(place: str, error: Exception) -> None:
        invalid.append(f"{place}: {error}")
        rows.append(None)

    count = 0  # rows read so far
    reader.skip = skip  # type: ignore[method-assign]
    for pair in reader.read(reader):
        number = count + len(rows) + 1
        try:
            check([pair], first=number)
            rows.append(pair)
        except RequestError as error:
            skip(f"pair {number}", error)
        yield from rows
        count, rows[:] = number, []
    yield from rows
