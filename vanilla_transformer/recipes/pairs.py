"""The pairs that a recipe names: for training, validation and tests, and which they exactly are."""

import dataclasses
import hashlib
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RequestError
from ..storage.reading import sha256
from .recipe import Recipe

if TYPE_CHECKING:
    from datasets import Dataset

    from ..data.cldr.pairs import Pair


_SPLITS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True)
class TextPairs:
    """Sentences and their translations, and what kinds of expressions each holds, if known."""

    sources: list[str]
    targets: list[str]
    kinds: list[tuple[str, ...]] | None = None

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.sources)


def training_pairs(recipe: Recipe) -> "Dataset":
    """The training pairs of a recipe, as `load_pairs` gives them, or `clean_pairs` with `clean`.

    Raises:
        ValueError: if the recipe names no training pairs or no languages.
    """
    _ = recipe.languages  # refused now if there are none
    if recipe.train_file is None and recipe.generated is None and recipe.dataset is None:
        raise RequestError("The recipe names no training pairs; give --train-file or --dataset.")
    from ..data.selection import clean_pairs

    for split in _SPLITS:  # reading the first may take long
        _files(recipe, split)
    pairs = _load_split(recipe, "train")
    return clean_pairs(pairs) if recipe.clean else pairs


def validation_pairs(recipe: Recipe) -> TextPairs:
    """The validation pairs of a recipe; none where it names none."""
    if recipe.generated and recipe.train_file is None and recipe.validation_file is None:
        return _generated_texts(recipe, "validation")
    return _texts(_load_split(recipe, "validation"))


def evaluation_sets(recipe: Recipe) -> dict[str, TextPairs]:
    """The test sets of a recipe by name."""
    if recipe.generated and recipe.train_file is None and recipe.test_file is None:
        names = ("test_values", "test_combinations")
        return {name: _generated_texts(recipe, name) for name in names}
    found = _texts(_load_split(recipe, "test"))
    return {"test": found} if len(found) else {}


def held_out(recipe: Recipe, pairs: "Dataset") -> tuple["Dataset", TextPairs, TextPairs]:
    """Training, validation and test pairs of a recipe that names pairs for training alone.

    Args:
        recipe: its `held_out_pairs` says how many; not given, `hold_out` decides.
        pairs: what `training_pairs` gives for it.

    Raises:
        ValueError: if so many pairs cannot be held out.
    """
    from ..data.selection import hold_out

    if recipe.held_out_pairs == 0:
        return pairs, _texts(None), _texts(None)
    train, validation, test = hold_out(pairs, recipe.held_out_pairs)
    return train, _texts(validation), _texts(test)


def data_identity(recipe: Recipe, *, revision: str | None = None) -> dict[str, Any]:
    """What says exactly which pairs a recipe takes: content of files, and revision on the Hub.

    Args:
        recipe: from `load_recipe`; a file of it that is missing is left out.
        revision: that an earlier start of the run has loaded; the Hub is not asked again.

    Returns:
        `files`, for each split a list of `name` and `sha256`, and `revision`, of those there are.

    Raises:
        ValueError: if a file is of a kind that holds no pairs.
    """
    identity: dict[str, Any] = {}
    files = {}
    for split in _SPLITS:
        paths = [Path(name) for name in (getattr(recipe, f"{split}_file") or "").split(",")]
        if all(path.is_file() for path in paths):
            _files(recipe, split)  # of the right kind: a device may have no end
            files[split] = [{"name": path.name, "sha256": sha256(path)} for path in paths]
    if files:
        identity["files"] = files
    if recipe.dataset is not None and not Path(recipe.dataset).exists():
        asked = recipe.dataset_revision
        identity["revision"] = revision or _hub_revision(recipe.dataset, asked) or asked
    return identity


def _hub_revision(dataset: str, revision: str | None) -> str | None:
    """Commit of the data set; None where the Hub cannot be asked, as with everything in a cache."""
    from huggingface_hub import HfApi, errors

    try:
        return HfApi().dataset_info(dataset, revision=revision).sha
    except (errors.HTTPError, OSError):
        return None


def _load_split(recipe: Recipe, split: str) -> "Dataset | None":
    """Pairs of a split: from its file or, where no training file is given, from elsewhere."""
    from ..data.dataset import load_pairs

    source, target = recipe.languages
    options: dict[str, Any] = {
        "source_language": source,
        "target_language": target,
        "source_column": recipe.source_column,
        "target_column": recipe.target_column,
        "strict": recipe.strict,
        "show_progress": sys.stderr.isatty(),
    }
    if (files := _files(recipe, split)) is not None:
        return load_pairs(files, **options)
    if recipe.train_file is not None or (recipe.generated is None and recipe.dataset is None):
        return None
    if recipe.generated is not None:
        return load_pairs(_generate(recipe, split), cache_key=_cldr_key(recipe, split), **options)
    try:
        return load_pairs(
            recipe.dataset,
            split=split,
            config=recipe.dataset_config,
            revision=recipe.dataset_revision,
            streaming=recipe.streaming,
            **options,
        )
    except (OSError, ValueError) as error:
        if split != "train" and "Unknown split" in str(error):
            return None
        raise RequestError(
            f"The data set {recipe.dataset} cannot be loaded ({error}); give files with "
            "--train-file, --validation-file and --test-file."
        ) from error


def _files(recipe: Recipe, split: str) -> Path | tuple[str, ...] | None:
    """The file or files of a split, which are there and of a kind that may hold pairs."""
    from ..data.readers import kind_of

    name = getattr(recipe, f"{split}_file")
    if name is None:
        return None
    files = tuple(name.split(",")) if "," in name else Path(name)
    try:
        kind_of(files)
    except (FileNotFoundError, RequestError) as error:
        raise RequestError(f"{split}_file: {error}") from error
    return files


def _cldr_key(recipe: Recipe, split: str) -> str:
    """Names what `_generate` gives: the same code, data and settings give the same pairs."""
    digest = hashlib.sha256()
    folder = Path(__file__).parents[1] / "data" / "cldr"
    for name in ("pairs.py", "language.py"):
        digest.update((folder / name).read_bytes())
    languages = f"{recipe.source_language} {recipe.target_language}"
    parts = (languages, split, _generated_count(recipe, split), metadata.version("babel"))
    return f"{parts} {digest.hexdigest()}"


def _generated_count(recipe: Recipe, split: str) -> int:
    return recipe.generated_pairs if split == "train" else recipe.generated_test_pairs


def _generate(recipe: Recipe, split: str) -> "Iterator[Pair]":
    from ..data.cldr.pairs import generate_pairs

    count = _generated_count(recipe, split)
    # The same pairs for every seed of the training: runs differ in one thing at a time.
    return generate_pairs(*recipe.languages, split=split, count=count, seed=0)


def _generated_texts(recipe: Recipe, split: str) -> TextPairs:
    pairs = list(_generate(recipe, split))
    return TextPairs(
        [pair.source for pair in pairs],
        [pair.target for pair in pairs],
        [pair.kinds for pair in pairs],
    )


def _texts(dataset: "Dataset | None") -> TextPairs:
    if dataset is None:
        return TextPairs([], [])
    return TextPairs(list(dataset["source"]), list(dataset["target"]))
