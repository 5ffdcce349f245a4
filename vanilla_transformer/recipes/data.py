"""Load the training, validation and test pairs of a recipe, and record exactly which they are."""

import dataclasses
import logging
import math
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..errors import RequestError, quoted
from ..storage.metrics import Data as DataFacts
from ..storage.metrics import read_metrics
from ..storage.reading import read_json, sha256
from ..storage.run_files import DATA, METRICS, recipe_values
from .options import LANGUAGES, Data, Text, listed, names_of
from .recipe import Recipe, load_recipe, make_recipe

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

_SPLITS = ("train", "validation", "test")
# The options that name files, by what `data_identity` calls them.
FILES = {**{split: f"{split}_file" for split in _SPLITS}, "monolingual": "monolingual_target"}
# Shipped recipes for pairs of one's own, by the most pairs that each is for.
_BY_SIZE = {
    10_000: "fewest_pairs",
    70_000: "few_pairs",
    1_000_000: "many_pairs",
    math.inf: "wmt14_ende_base",
}
# Names in `data_identity` of what the model learns from, and its tokenizer too.
TRAINING_FILES = frozenset({"train", "dataset"})


@dataclasses.dataclass(frozen=True)
class TextPairs:
    """Sentences and their translations.

    Of several references of one source, `targets` has the first.
    """

    sources: list[str]
    targets: list[str]
    several: list[list[str]] | None = None  # references of each source

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.sources)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield each source with each of its references."""
        for number, source in enumerate(self.sources):
            for target in self.several[number] if self.several else [self.targets[number]]:
                yield source, target

    @property
    def references(self) -> list[str] | list[list[str]]:
        """What translations are scored against: one text, or several, for each source."""
        return self.targets if self.several is None else self.several


def recipe_by_size(typed: Mapping[str, object], run: Path) -> Recipe:
    """Return the shipped recipe whose model suits the number of training pairs.

    Args:
        typed: Values as on the command line; languages come from these alone.
        run: The run directory.

    Raises:
        ValueError: If no pairs are named.
    """
    if not typed.keys() & {"train_file", "dataset"}:
        raise RequestError(
            "Name a recipe, such as demo, or give --train-file: the number of pairs chooses one."
        )
    of_pairs = names_of(Text, Data) | {"pair", "init_from", "tokenizer"}
    recipe = inherit(make_recipe({name: typed[name] for name in typed if name in of_pairs}), run)
    check_files(recipe)
    if _is_on_hub(recipe):  # count the pairs that the run will read
        revision = _revision(recipe, recorded_data(run).get("revision"))
        recipe = dataclasses.replace(recipe, dataset_revision=revision)
    number = len(training_pairs(recipe))
    names = (name for most, name in _BY_SIZE.items() if number <= most)
    name = next(name for name in names if name != "fewest_pairs" or _can_be_turned(recipe))
    logger.info("%d training pairs: model and schedule are those of the recipe %s.", number, name)
    return load_recipe(name, {**dict.fromkeys(LANGUAGES), **typed})


def _can_be_turned(recipe: Recipe) -> bool:
    """Return whether the pairs are translations, in the default tokens, and nothing is beside them.

    From a summary no model can learn to write the text, and a list of symbols has no tag. Pairs
    beside text in one language, or beside what an initial model knows, were not tried.
    """
    from ..data.language_names import language_of

    languages = {language_of(side) for side in recipe.languages} - {None}
    further = recipe.init_from or recipe.monolingual_target
    return len(languages) == 2 and not further and recipe.tokenizer == Recipe.tokenizer


def inherit(recipe: Recipe, run: Path) -> Recipe:
    """Return a recipe with languages and BPE-dropout of its initial model where it has none.

    A run that began keeps those that it began with, so that it resumes without that model.

    Raises:
        ValueError: There is no such model.
    """
    missing = [name for name in (*LANGUAGES, "bpe_dropout") if getattr(recipe, name) is None]
    if recipe.init_from is None or not missing:
        return recipe
    from ..storage.hub_model import model_folder

    values = recipe_values(run)
    if values.get("init_from") != recipe.init_from:
        values = recipe_values(model_folder(recipe.init_from))
    return make_recipe({**vars(recipe), **{name: values.get(name) for name in missing}})


def check_files(recipe: Recipe) -> None:
    """Refuse missing files, and those that hold no pairs by their kind: reading may take long."""
    for split in _SPLITS:
        _files(recipe, split)
    if recipe.monolingual_target is not None and not Path(recipe.monolingual_target).is_file():
        raise RequestError(
            f"monolingual_target: got {quoted(recipe.monolingual_target)}; give one text file."
        )


def training_pairs(recipe: Recipe) -> "Dataset":
    """Return the training pairs of a recipe, after `clean_pairs` if it says `clean`.

    Raises:
        ValueError: If the recipe names no training pairs.
    """
    if recipe.train_file is None and recipe.dataset is None:
        raise RequestError("The recipe names no training pairs; give --train-file or --dataset.")
    from ..data.selection import clean_pairs

    pairs = _load_split(recipe, "train")
    return clean_pairs(pairs) if recipe.clean else pairs


def validation_pairs(recipe: Recipe) -> TextPairs:
    """Return the validation pairs of a recipe; empty if it names none."""
    return _grouped(recipe, _texts(_load_split(recipe, "validation")))


def evaluation_sets(recipe: Recipe) -> dict[str, TextPairs]:
    """Return the test sets of a recipe by name: of several files, each is named as its file."""
    files = listed(recipe.test_file)
    one_each = {
        _set_name(file) if len(files) > 1 else "test": dataclasses.replace(recipe, test_file=file)
        for file in files or [None]
    }
    if len(one_each) < len(files) or "validation" in one_each:
        raise RequestError(
            f"test_file: got {', '.join(files)}; each names its scores, so give files of "
            "different names, none of them validation."
        )
    sets = {name: _grouped(one, _texts(_load_split(one, "test"))) for name, one in one_each.items()}
    return {name: pairs for name, pairs in sets.items() if len(pairs)}


def _set_name(file: str) -> str:
    """Return the name of a test set: newstest2014 for newstest2014.en,newstest2014.de."""
    return named_files(file)[0].name.partition(".")[0]


def held_out(recipe: Recipe, pairs: "Dataset") -> tuple["Dataset", TextPairs, TextPairs]:
    """Return training, validation and test pairs of a recipe that names only training pairs.

    Args:
        recipe: Recipe with the number `held_out_pairs`. If that is None, `hold_out` decides.
        pairs: Its pairs from `training_pairs`.

    Raises:
        ValueError: If that many pairs cannot be held out.
    """
    from ..data.selection import hold_out

    if recipe.held_out_pairs == 0:
        return pairs, _texts(None), _texts(None)
    train, validation, test = hold_out(pairs, recipe.held_out_pairs)
    return train, _texts(validation), _texts(test)


def data_identity(recipe: Recipe, *, revision: str | None = None) -> dict[str, Any]:
    """Return what identifies a recipe's pairs: digests of files, and the revision on the Hub.

    Args:
        recipe: Recipe from `load_recipe`; missing files are left out.
        revision: Revision that an earlier start of the run loaded. None asks the Hub.

    Returns:
        `files`, for each split, and for a `dataset` that is a folder, a list of `name` and
        `sha256`; and `revision`, as far as they exist.
    """
    names = {split: listed(getattr(recipe, option)) for split, option in FILES.items()}
    places = {split: named_files(name) for split, name in names.items() if name}
    if recipe.dataset is not None:
        places["dataset"] = [Path(recipe.dataset)]
    files = {
        name: [file for path in paths for file in _digests(path)]
        for name, paths in places.items()
        if all(path.is_file() or path.is_dir() for path in paths)
    }
    identity: dict[str, Any] = {"files": files} if files else {}
    if _is_on_hub(recipe):
        identity["revision"] = _revision(recipe, revision)
    return identity


def recorded_data(run: Path) -> DataFacts:
    """Return what identified a run's pairs at its first start; empty before it or if it is lost."""
    if (run / DATA).is_file():
        return read_json(run / DATA, DataFacts)
    metrics = read_metrics(run / METRICS)
    return cast(DataFacts, metrics["data"]) if metrics else DataFacts()


def _is_on_hub(recipe: Recipe) -> bool:
    return recipe.dataset is not None and not Path(recipe.dataset).exists()


def _revision(recipe: Recipe, known: str | None) -> str | None:
    """Return the revision of a data set on the Hub: the one known, or else what the Hub says."""
    asked = recipe.dataset_revision
    return known or _hub_revision(str(recipe.dataset), asked) or asked


def _digests(path: Path) -> list[dict[str, str]]:
    """Return name and SHA-256 of a file, or of each file of a folder."""
    from ..data.pair_files import files_below

    folder, files = (path, files_below(path)) if path.is_dir() else (path.parent, [Path(path.name)])
    return [{"name": file.as_posix(), "sha256": sha256(folder / file)} for file in files]


def _hub_revision(dataset: str, revision: str | None) -> str | None:
    """Return the commit of the data set; None if the Hub has no such name or is out of reach."""
    from huggingface_hub import HfApi, errors

    try:
        return HfApi().dataset_info(dataset, revision=revision).sha
    except (errors.HFValidationError, errors.HTTPError, OSError):
        return None


def _load_split(recipe: Recipe, split: str) -> "Dataset | None":
    """Load the pairs of a split: from its file or, without a training file, from the Hub."""
    from datasets import concatenate_datasets
    from datasets.exceptions import DatasetGenerationError

    from ..data.dataset import load_pairs, mark_corpus
    from ..data.pair_files import kind_of

    source, target = recipe.languages
    options: dict[str, Any] = {
        "source_language": source,
        "target_language": target,
        "source_column": recipe.source_column,
        "target_column": recipe.target_column,
        "strict": recipe.strict,
        "show_progress": sys.stderr.isatty(),
    }
    if corpora := _files(recipe, split):
        parts = [load_pairs(files, split="all", **options) for files in corpora]  # of a folder, all
        if split == "train" and recipe.train_weights is not None:
            parts = [mark_corpus(part, number) for number, part in enumerate(parts)]
        return parts[0] if len(parts) == 1 else concatenate_datasets(parts)
    if recipe.dataset is None:
        return None
    try:
        if kind_of(recipe.dataset) != "hub":
            raise RequestError(
                f"dataset: got the file {recipe.dataset}, which has no splits; give files with "
                "--train-file, --validation-file and --test-file."
            )
        return load_pairs(
            recipe.dataset,
            split=split,
            config=recipe.dataset_config,
            revision=recipe.dataset_revision,
            streaming=recipe.streaming,
            **options,
        )
    except (OSError, ValueError, DatasetGenerationError) as error:
        # Downloaded and streamed data sets say this differently.
        if split != "train" and re.match("Unknown split|Bad split", str(error)):
            logger.info("There are no %s pairs: %s", split, error)  # it names the others
            return None
        if isinstance(error, RequestError):  # it says what to do
            raise
        told = error.__cause__ if isinstance(error, DatasetGenerationError) else error
        raise RequestError(
            f"The data set {recipe.dataset} cannot be loaded ({told}); give files with "
            "--train-file, --validation-file and --test-file."
        ) from error


def named_files(names: object) -> list[Path]:
    """Return the file of each name, or if there is none, the files between its commas.

    `~/` is the home directory: of two files a shell replaces only the first one's.

    Args:
        names: A name, or a list of them.
    """
    paths = []
    for name in listed(names):
        parts = [name] if Path(name).is_file() else name.split(",")
        parts = [part if Path(part).exists() else part.strip() for part in parts]
        paths += [
            Path(part).expanduser() if part.startswith("~/") else Path(part) for part in parts
        ]
    return paths


def _files(recipe: Recipe, split: str) -> list[Path | tuple[str, ...]]:
    """Return the file or files of each corpus of a split; check that they may hold pairs."""
    from ..data.pair_files import kind_of

    corpora = []
    for name in listed(getattr(recipe, f"{split}_file")):
        paths = named_files(name)
        files = paths[0] if len(paths) == 1 else tuple(map(str, paths))
        try:
            kind_of(files)
        except (FileNotFoundError, RequestError) as error:
            raise RequestError(f"{split}_file: {error}") from error
        corpora.append(files)
    return corpora


def _grouped(recipe: Recipe, pairs: TextPairs) -> TextPairs:
    """Return each source once, with all its targets, if the recipe has several references."""
    if not recipe.several_references or not len(pairs):
        return pairs
    rows: dict[str, list[str]] = {}
    for source, target in zip(pairs.sources, pairs.targets, strict=True):
        rows.setdefault(source, []).append(target)
    several = [list(dict.fromkeys(targets)) for targets in rows.values()]
    return TextPairs([*rows], [targets[0] for targets in several], several=several)


def _texts(dataset: "Dataset | None") -> TextPairs:
    if dataset is None:
        return TextPairs([], [])
    return TextPairs(list(dataset["source"]), list(dataset["target"]))
