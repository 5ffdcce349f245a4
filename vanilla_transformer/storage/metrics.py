"""Schema of `metrics.json`, the source of cards, comparisons and reports."""

import json
from pathlib import Path
from typing import Annotated, Any, NotRequired, Required, TypedDict

from ..errors import RequestError
from .reading import checked, read_json

_REMEDY = "measure the model again"


class KindScores(TypedDict, total=False):
    """Scores of the pairs of one kind, in percent."""

    exact_match: float
    copy_exact_match: float  # of the untranslated sources
    num_sentences: int


class Scores(TypedDict, total=False):
    """Scores of translations; BLEU, chrF and exact match in percent."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    exact_match: float
    num_sentences: int
    tokenized_bleu: float
    tokenized_bleu_signature: str
    compound_bleu: float
    compound_bleu_signature: str


class Perplexity(TypedDict, total=False):
    """How well a model predicts given translations."""

    perplexity: float
    negative_log_likelihood: float  # nats per target token
    target_tokens: int


class TestScores(Scores, Perplexity, total=False):
    """Scores of a model on a test set, and the beams that it searched with."""

    copy_baseline: Scores  # of the untranslated sources
    by_kind: dict[str, KindScores]
    num_beams: int


class TestTexts(TestScores, total=False):
    """`TestScores` with the texts, which `metrics.json` leaves out."""

    sources: list[str]
    references: list[str]
    hypotheses: list[str]


class Sample(TypedDict):
    """One translation."""

    source: str
    reference: str
    translation: NotRequired[str]  # added to a card's samples when the model is tried out


class Chosen(TypedDict):
    """What validation pairs chose at the end of a run: checkpoints and length penalty."""

    pairs: int
    averaged: int  # checkpoints
    greedy_bleu: NotRequired[dict[str, float]]  # by number of checkpoints
    length_penalty: NotRequired[float]
    beam_bleu: NotRequired[dict[str, float]]  # by length penalty


class Hardware(TypedDict):
    """The machine that trained, as far as a card shows it."""

    cpu: str
    cores: int
    threads: NotRequired[int]
    gpu: NotRequired[str]


class DataFile(TypedDict):
    """A file of training or test pairs, or of a model."""

    name: str
    sha256: str


class InitialModel(TypedDict):
    """The model that `init_from` names."""

    revision: str | None  # on the Hub
    files: list[DataFile]


class Data(TypedDict, total=False):
    """The pairs of a run, as far as a card shows them."""

    train_pairs: int
    train_pairs_kept: int
    train_malformed: int
    train_too_long: int
    train_duplicates: int
    train_copies: int
    train_odd_ratios: int
    held_out_pairs: int | None
    revision: str | None  # of the data set on the Hub
    files: dict[str, list[DataFile]]  # by split
    shared_with_training: dict[str, int]  # by test set
    init_from: InitialModel | None


class RecipeValues(TypedDict, total=False):
    """The values of a recipe that a card shows, apart from differences from the paper."""

    source_language: str | None
    target_language: str | None
    preset: str | None
    dataset: str | None
    train_file: str | None
    validation_file: str | None
    test_file: str | None
    data_license: str | None
    data_source: str | None
    init_from: str | None
    save_every_steps: int | None
    max_source_length: int | None


class Published(TypedDict, total=False):
    """What publishing adds to the metrics."""

    repo_id: str  # the name alone, if the model was not pushed
    directory: str  # where the model is, if it was not pushed
    run: str  # run directory that it comes from, if it was not pushed
    form: str
    license: str
    data_license: str
    data_source: str | None
    samples: list[Sample]
    scores_of_run: bool  # false for another mean of its checkpoints
    curves: bool


class TrainingFacts(TypedDict):
    """Sizes, time, speed, machine and software of a training."""

    parameters: int
    target_tokens: int
    target_tokens_per_second: float
    training_minutes: float
    of_which_evaluation_minutes: NotRequired[float]
    precision: str
    matmul_precision: NotRequired[str]
    seed: int
    vocabulary: int  # of the source, if there are two
    target_vocabulary: NotRequired[int]
    devices: int
    hardware: Annotated[dict[str, Any], Hardware]
    threads: NotRequired[list[int]]  # of torch, in ascending order; several beside other programs
    versions: dict[str, str]
    git_commit: str | None


class Metrics(TrainingFacts, total=False):
    """The whole file."""

    scores: Required[dict[str, TestScores]]  # by test set, including "validation"
    samples: dict[str, list[Sample]]
    recipe: Required[Annotated[dict[str, Any], RecipeValues]]
    data: Required[Annotated[dict[str, Any], Data]]
    updates: Required[int]
    epochs: Required[float]
    averaged_checkpoints: Required[list[str]]
    chosen_on_validation: Chosen
    model: dict[str, Any]  # config fields that no recipe has
    hypotheses: dict[str, str]  # file names by test set
    model_files: dict[str, str]  # SHA-256 by file
    published: Published


def read_metrics(path: Path) -> Metrics | None:
    """Return the metrics of a run; None if the file holds only the scores of `evaluate`."""
    metrics = read_json(path, remedy=_REMEDY)
    return check_metrics(metrics, path) if "recipe" in metrics else None


def check_metrics(metrics: object, path: Path) -> Metrics:
    """Return the content of a `metrics.json`; refuse what no run writes, and what no card can show.

    Raises:
        ValueError: a value is missing, of another type, NaN, or half of a surrogate pair.
    """
    known = checked(metrics, Metrics, path, remedy=_REMEDY)
    try:
        json.dumps(metrics, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        raise RequestError(
            f"{path} holds a value that no card can show ({error}); measure the model again."
        ) from None
    return known
