"""What `metrics.json` of a run holds: the facts that cards, comparisons and reports are made of.

No key is sure to be there: earlier versions wrote fewer, and a trainer without a recipe knows less.
"""

from typing import Any, TypedDict


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
    """Scores of a model on a test set, and what it was searched with."""

    copy_baseline: Scores  # of the untranslated sources
    by_kind: dict[str, KindScores]
    num_beams: int


class TestTexts(TestScores, total=False):
    """The same with the texts, which `metrics.json` leaves out."""

    sources: list[str]
    references: list[str]
    hypotheses: list[str]


class Sample(TypedDict):
    """One translation."""

    source: str
    reference: str
    translation: str


class Metrics(TypedDict, total=False):
    """`metrics.json`; what is no measurement is as its writer describes it."""

    scores: dict[str, TestScores]  # by test set, "validation" among them
    samples: dict[str, list[Sample]]
    recipe: dict[str, Any]  # values of `Recipe`
    data: dict[str, Any]
    updates: int
    epochs: float
    parameters: int
    target_tokens: int
    target_tokens_per_second: float
    training_minutes: float
    averaged_checkpoints: list[str]
    hardware: dict[str, Any]
    versions: dict[str, str]
    git_commit: str | None
