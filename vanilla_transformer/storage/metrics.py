"""Schema of `metrics.json`, from which cards and reports are made, and the list of measures."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

from ..errors import RequestError, quoted
from .atomic import write_json
from .reading import checked, own_file, read_json

_DIGEST = "digest"  # key in metrics.json: digest of everything else
NUM_SAMPLES = 3  # samples on a model card and on its demo page; a run saves at least as many


class Measure(NamedTuple):
    """Label of a measure, and whether lower values are better."""

    label: str
    lower_is_better: bool = False

    @property
    def best(self) -> Callable[..., Any]:
        """Return the function that picks the best score: `max` or `min`."""
        return min if self.lower_is_better else max


# All are in percent; evaluation/scores.py computes them.
MEASURES = {
    "bleu": Measure("BLEU"),
    "chrf": Measure("chrF"),
    "exact_match": Measure("exact match"),
    "wer": Measure("token error rate", lower_is_better=True),
    "cer": Measure("character error rate", lower_is_better=True),
    "tokenized_bleu": Measure("tokenized BLEU"),
    "compound_bleu": Measure("compound BLEU"),
}
TRANSLATION_MEASURES = ("bleu", "chrf", "exact_match")


def check_measures(names: Sequence[str]) -> None:
    """Refuse unknown measures.

    Raises:
        ValueError: There is no such metric.
    """
    for name in names:
        if name not in MEASURES:
            raise RequestError(f"metric: got {quoted(name)}; choose from {', '.join(MEASURES)}.")


class Scores(TypedDict, total=False):
    """Scores on a test set: each of `MEASURES`, with its sacreBLEU signature, and these fields."""

    num_sentences: int
    perplexity: float
    negative_log_likelihood: float  # nats per target token
    target_tokens: int
    copy_baseline: "Scores"  # scores of the untranslated sources
    robustness: dict[str, Any]  # `Scores` on informal sources (capitals, typos), by form
    num_beams: int


class TestTexts(Scores, total=False):
    """`Scores` with the texts, which are not written to `metrics.json`."""

    sources: list[str]
    references: Sequence[str] | Sequence[Sequence[str]]
    hypotheses: list[str]


class Sample(TypedDict):
    """A source with its reference and, on a model card, the model's translation."""

    source: str
    reference: str
    # Added to the samples of a model card when the model is tried out:
    translation: NotRequired[str]
    is_undrawn: NotRequired[bool]  # whether its attention could not be drawn


class Chosen(TypedDict):
    """Number of averaged checkpoints, length penalty and shortlist, chosen on validation pairs."""

    pairs: int
    averaged: int  # number of averaged checkpoints
    measure: NotRequired[str]  # one of `MEASURES`
    greedy: NotRequired[dict[str, float]]  # greedy search's score by number of checkpoints
    length_penalty: NotRequired[float]
    beam: NotRequired[dict[str, float]]  # beam search's score by length penalty
    usual_pieces: NotRequired[int]  # in the shortlist; missing if no shortlist was good enough
    shortlist: NotRequired[dict[str, float]]  # score by number of usual pieces


class RunWarning(TypedDict):
    """A warning for users of a run's model."""

    kind: str  # subject: "outputs" (useless ones), "schedule", "pairs" or "test"
    text: str


class Published(TypedDict, total=False):
    """Facts that publishing adds to the metrics."""

    model: str  # name on the Hub, or the folder if the model was not pushed
    pushed: bool
    revision: str | None  # branch on the Hub, other than main
    form: str
    license: str | None
    data_license: str | None
    data_source: str | None
    languages: Sequence[str]  # of source and target, if no recipe has them
    tokenizer_package: str | None  # package that the tokenizer needs beside transformers
    base_model: str | None  # name on the Hub, if no recipe has it
    length_penalty: float | None  # as in the model's search settings
    curves: bool


class Metrics(TypedDict, total=False):
    """Content of metrics.json; the file of a published model or of `evaluate` has fewer keys."""

    scores: dict[str, Scores]  # by test set, including "validation"
    samples: dict[str, list[Sample]]  # by test set; a published model has those of its model card
    recipe: dict[str, Any]
    data: dict[str, Any]  # counts of the pairs; digests of their files and of the initial model
    updates: int
    epochs: float  # passes over the pairs; with `train_weights`, an epoch is not one pass
    last_evaluation: dict[str, float]  # a Trainer's own metrics, by its names
    averaged_checkpoints: list[str]
    chosen_on_validation: Chosen
    warnings: list[RunWarning]  # those that still hold at the end
    model: dict[str, Any]  # config fields that no recipe has
    validation_sureness: dict[str, float]  # percentiles; see doubt_threshold.py
    model_files: dict[str, str]  # SHA-256 by file
    published: Published
    # Sizes, time, speed, machine and software of the run.
    parameters: int
    target_tokens: int
    target_tokens_per_second: float
    training_minutes: float
    of_which_evaluation_minutes: float
    precision: str
    matmul_precision: str
    seed: int
    vocabulary: int  # the source's, if there are two
    target_vocabulary: int
    devices: int
    hardware: dict[str, Any]
    threads: list[int]  # numbers of torch threads, ascending; several if other programs ran
    versions: dict[str, str]
    git_commit: str | None


def write_metrics(path: Path, metrics: Mapping[str, Any]) -> None:
    """Write a metrics.json, or another record, with a digest of its content."""
    write_json(path, {**metrics, _DIGEST: _digest(metrics)})


def read_record(path: Path) -> dict[str, Any]:
    """Return the content of a file that `write_metrics` wrote.

    Raises:
        ValueError: It is damaged, or was changed after it was written.
    """
    content = read_json(path)
    digest = content.pop(_DIGEST, None)
    if digest not in (None, _digest(content)):
        raise RequestError(f"{path} was changed; restore it, or delete its key {_DIGEST}.")
    return content


def _digest(metrics: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(metrics, sort_keys=True).encode()).hexdigest()


def all_metrics(path: Path) -> Metrics:
    """Return the content of a metrics.json from a run or `evaluate`; {} if there is no file.

    Raises:
        ValueError: It is damaged, or was changed after it was written.
    """
    if not path.is_file():
        return Metrics()
    return checked(read_record(own_file(path)), Metrics, path)


def read_metrics(path: Path) -> Metrics | None:
    """Return the metrics of a run; None if there is no file, or only scores from `evaluate`."""
    metrics = all_metrics(path)
    return metrics if "recipe" in metrics else None


def example_sources(metrics: Metrics | None) -> list[str]:
    """Choose a few source texts from the test sets as examples; none without metrics."""
    sets = metrics.get("samples", {}).values() if metrics else ()
    texts = [sample["source"].strip() for of_one_set in sets for sample in of_one_set]
    texts = [text for text in dict.fromkeys(texts) if text]
    return texts[:: max(1, len(texts) // NUM_SAMPLES)][:NUM_SAMPLES]
