"""Types of `metrics.json`, the source of cards, comparisons and reports.

Any key may be missing: earlier versions wrote fewer, and a trainer without a recipe writes fewer.
"""

from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from .reading import read_json


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


class Chosen(TypedDict, total=False):
    """What validation pairs chose at the end of a run: checkpoints and length penalty."""

    pairs: int
    averaged: int  # checkpoints
    greedy_bleu: dict[str, float]  # by number of checkpoints
    length_penalty: float
    beam_bleu: dict[str, float]  # by length penalty


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


class Metrics(TypedDict, total=False):
    """The whole file; the functions that write `recipe`, `data` and `hardware` describe them."""

    scores: dict[str, TestScores]  # by test set, including "validation"
    samples: dict[str, list[Sample]]
    recipe: dict[str, Any]  # values of `Recipe`
    data: dict[str, Any]
    updates: int
    epochs: float
    parameters: int
    target_tokens: int
    target_tokens_per_second: float
    training_minutes: float
    of_which_evaluation_minutes: float
    precision: str
    matmul_precision: str
    seed: int
    vocabulary: int
    devices: int
    averaged_checkpoints: list[str]
    chosen_on_validation: Chosen
    model: dict[str, Any]  # config fields that no recipe has
    arguments: dict[str, Any]  # training arguments that no recipe has
    hardware: dict[str, Any]
    versions: dict[str, str]
    git_commit: str | None
    hypotheses: dict[str, str]  # file names by test set
    model_files: dict[str, dict[str, Any]]
    published: Published


def read_metrics(path: Path) -> Metrics:
    """Read `metrics.json` without checking its content."""
    return cast(Metrics, read_json(path))
