"""Load the training, validation and test pairs of a plan, and record their digests."""

import dataclasses
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RequestError, quoted
from ..storage.reading import sha256
from .options import LANGUAGES, listed
from .plan import DataPlan

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

_SPLITS = ("train", "validation", "test")
# The options that name files, by the keys of `data_identity`.
FILES = {split: f"{split}_file" for split in _SPLITS}
FILES |= {"monolingual": "monolingual_target", "monolingual source": "monolingual_source"}
_GIVE_FILES = "give files with --train-file, --validation-file and --test-file"
# Keys in `data_identity` of the pairs that model and tokenizer are trained on.
TRAINING_FILES = frozenset({"train", "dataset"})


@dataclasses.dataclass(frozen=True)
class TextPairs:
    """Source sentences, each with one or several reference translations."""

    sources: list[str]
    references: list[str] | list[list[str]]

    def __len__(self) -> int:
        """Return the number of sources."""
        return len(self.sources)

    @property
    def targets(self) -> list[str]:
        """The first reference of each source."""
        return [each if isinstance(each, str) else each[0] for each in self.references]

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield each source with each of its references."""
        for source, found in zip(self.sources, self.references, strict=True):
            for target in [found] if isinstance(found, str) else found:
                yield source, target


def check_files(data: DataPlan) -> None:
    """Refuse missing files, wrong file types, and texts in the wrong language."""
    from ..data.pair_files import check_text

    for split in _SPLITS:
        _files(data, split)
    for side, languages in (("source", data.languages), ("target", data.languages[::-1])):
        if (text := getattr(data, f"monolingual_{side}")) is None:
            continue
        if not Path(text).is_file():
            raise RequestError(f"monolingual_{side}: got {quoted(text)}; give one text file.")
        check_text(Path(text), *languages)


def training_pairs(data: DataPlan, run: Path | None = None) -> "Dataset":
    """Return the training pairs of a plan, cleaned if its option `clean` is set.

    Args:
        data: The plan. If it names only a text, teachers make the pairs from it.
        run: The run directory, to return the pairs that its first teacher made from the text. If
            None, there are no such pairs yet, and the data set is empty.

    Raises:
        ValueError: If the plan names neither training pairs nor a text for teachers.
    """
    from datasets import Dataset

    from ..data.selection import clean_pairs

    if not (data.train_file or data.dataset or data.monolingual_source):
        raise RequestError("The recipe names no training pairs; give --train-file or --dataset.")
    if not (data.train_file or data.dataset):
        if run is None:
            return Dataset.from_dict({"source": [], "target": []})
        data = dataclasses.replace(data, train_file=str(teacher_file(run, 1)), clean=True)
        data = dataclasses.replace(data, strict=False, source_column=None, target_column=None)
    pairs = _load_split(data, "train")
    return clean_pairs(pairs, data.languages, show_progress=True) if data.clean else pairs


def teacher_file(run: Path, number: int) -> Path:
    """Return the file of the pairs that a teacher of a run makes; the first has number 1."""
    return Path(f"{run.absolute()}-teacher-{number}", "translated.jsonl")


def validation_pairs(data: DataPlan) -> TextPairs:
    """Return the validation pairs of a plan; empty if it names none."""
    return _texts(_load_split(data, "validation"), data)


def evaluation_sets(data: DataPlan) -> dict[str, TextPairs]:
    """Return the test sets of a plan by name; several test sets are named after their files."""
    files = listed(data.test_file)
    names = ["test"]
    if len(files) > 1:  # such as newstest2014 for newstest2014.en,newstest2014.de
        names = [named_files(file)[0].name.partition(".")[0] for file in files]
    if len({*names}) < len(files) or "validation" in names:
        given = ", ".join(files)
        raise RequestError(f"test_file: {given}: file names must differ, and none be 'validation'.")
    sets = {}
    for name, file in zip(names, files or [None], strict=True):
        one = dataclasses.replace(data, test_file=file)
        if len(pairs := _texts(_load_split(one, "test"), data)):
            sets[name] = pairs
    return sets


def held_out(data: DataPlan, pairs: "Dataset") -> tuple["Dataset", TextPairs, TextPairs]:
    """Split off validation and test pairs if a plan names only training pairs.

    Args:
        data: Plan with the number `held_out_pairs`. If that is None, `hold_out` decides.
        pairs: The pairs of the plan, from `training_pairs`.

    Raises:
        ValueError: If that many pairs cannot be held out.
    """
    from ..data.selection import hold_out

    if data.held_out_pairs == 0:
        return pairs, TextPairs([], []), TextPairs([], [])
    train, validation, test = hold_out(pairs, data.held_out_pairs)
    return train, _texts(validation), _texts(test)


def data_identity(data: DataPlan) -> dict[str, Any]:
    """Return digests and revision that identify the pairs of a plan.

    Returns:
        `files`: for each split, and for a `dataset` that is a folder, a mapping from the names of
        the files that exist to their SHA-256; `revision`: commit or branch of a data set on the
        Hub.
    """
    places = {split: named_files(getattr(data, option)) for split, option in FILES.items()}
    places["dataset"] = [] if data.dataset is None else [Path(data.dataset)]
    files = {
        name: _digests(paths)
        for name, paths in places.items()
        if paths and all(path.is_file() or path.is_dir() for path in paths)
    }
    identity: dict[str, Any] = {"files": files} if files else {}
    if is_on_hub(data):
        identity["revision"] = data.dataset_revision
    return identity


def is_on_hub(data: DataPlan) -> bool:
    """Return whether pairs come from a data set on the Hub."""
    return data.dataset is not None and not Path(data.dataset).exists()


def hub_revision(data: DataPlan) -> str | None:
    """Return the current commit of the data set on the Hub, or offline the plan's revision."""
    from huggingface_hub import HfApi, errors

    try:
        found = HfApi().dataset_info(str(data.dataset), revision=data.dataset_revision).sha
    except (errors.HFValidationError, errors.HTTPError, OSError):  # no such name, or no network
        found = None
    return found or data.dataset_revision


def _digests(paths: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 of files, and of each file in a folder, by name."""
    from ..data.pair_files import files_below

    found: dict[str, str] = {}
    for path in paths:
        in_folder = path.is_dir()
        for file in files_below(path) if in_folder else [Path(path.name)]:
            name = file.as_posix()
            if name in found:  # files of two folders may share a name
                name = f"{name} ({len(found) + 1})"
            found[name] = sha256((path if in_folder else path.parent) / file)
    return found


def _load_split(data: DataPlan, split: str) -> "Dataset | None":
    """Load the pairs of a split: from its file or, without a training file, from the Hub."""
    from datasets import concatenate_datasets, get_dataset_split_names
    from datasets.exceptions import DatasetGenerationError

    from ..data.dataset import load_pairs, mark_corpus
    from ..data.pair_files import kind_of

    options: dict[str, Any] = dict(zip(LANGUAGES, data.languages, strict=True))
    options |= {name: getattr(data, name) for name in ("source_column", "target_column", "strict")}
    if corpora := _files(data, split):
        # For a folder, load all files.
        parts = [load_pairs(files, split="all", **options) for files in corpora]
        if split == "train" and data.train_weights is not None:
            parts = [mark_corpus(part, number) for number, part in enumerate(parts)]
        return parts[0] if len(parts) == 1 else concatenate_datasets(parts)
    if data.dataset is None:
        return None
    try:
        if kind_of(data.dataset) != "hub":
            raise RequestError(f"dataset: {data.dataset} is a file; {_GIVE_FILES}.")
        version: dict[str, Any] = {"revision": data.dataset_revision}
        if split != "train":
            splits = get_dataset_split_names(str(data.dataset), data.dataset_config, **version)
            if split not in splits:
                logger.info("%s has no %s pairs, only %s.", data.dataset, split, ", ".join(splits))
                return None
        version |= {"config": data.dataset_config, "streaming": data.streaming}
        pairs = load_pairs(data.dataset, split=split, **version, **options)
        is_weighted = split == "train" and data.train_weights is not None
        return mark_corpus(pairs, 0) if is_weighted else pairs
    except RequestError:  # its message says what to do
        raise
    except (OSError, ValueError, DatasetGenerationError) as error:
        cause = error.__cause__ if isinstance(error, DatasetGenerationError) else error
        raise RequestError(f"{data.dataset} cannot be loaded ({cause}); {_GIVE_FILES}.") from error


def named_files(names: object) -> list[Path]:
    """Return the files that a user named; "SOURCE,TARGET" means two files if none is called that.

    `~/` is the home directory: in "SOURCE,TARGET", a shell expands only the first.

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


def _files(data: DataPlan, split: str) -> list[Path | tuple[str, ...]]:
    """Return the file or files of each corpus in a split; refuse files that hold no pairs."""
    from ..data.pair_files import kind_of

    corpora = []
    for name in listed(getattr(data, f"{split}_file")):
        paths = named_files(name)
        files = paths[0] if len(paths) == 1 else tuple(map(str, paths))
        try:
            kind_of(files)
        except (FileNotFoundError, RequestError) as error:
            raise RequestError(f"{split}_file: {error}") from error
        corpora.append(files)
    return corpora


def _texts(dataset: "Dataset | None", data: DataPlan | None = None) -> TextPairs:
    """Return pairs as texts; with `several_references`, merge pairs with equal sources."""
    if dataset is None:
        return TextPairs([], [])
    sources, targets = list(dataset["source"]), list(dataset["target"])
    if data is None or not data.several_references:
        return TextPairs(sources, targets)
    rows: dict[str, dict[str, None]] = {}
    for source, target in zip(sources, targets, strict=True):
        rows.setdefault(source, {})[target] = None
    return TextPairs([*rows], [[*references] for references in rows.values()])
