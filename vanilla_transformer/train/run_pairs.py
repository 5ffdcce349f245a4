"""The pairs of a run: read, held out, made into more pairs, and tokenised."""

import dataclasses
import logging
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..batch_translation import encode
from ..data.augmentation import JOINED, OPPOSITE, augmented_pairs
from ..data.batches import TokenBatchSampler
from ..data.dataset import (
    MADE,
    load_pairs,
    mark_corpus,
    pair_corpora,
    pair_lengths,
    reading_report,
    tokenize_pairs,
)
from ..data.examination import few_sources, odd_texts
from ..data.selection import compared, describe_report, pair_report
from ..errors import RequestError
from ..evaluation import measure_metric
from ..recipes.data import (
    TextPairs,
    check_files,
    evaluation_sets,
    held_out,
    training_pairs,
    validation_pairs,
)
from ..recipes.options import listed
from ..recipes.plan import DataPlan
from ..recipes.testing import shared_with_training, texts_as_dataset
from ..target_tokenizer import target_ids, target_tokenizer

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class RunPairs:
    """Training, validation and test pairs as texts, and what is known of them."""

    train: "Dataset"
    given: "Dataset"  # those of `train` that were not made of the others
    validation: TextPairs
    test_sets: dict[str, TextPairs]
    facts: dict[str, Any]  # for metrics.json

    @property
    def scored(self) -> dict[str, TextPairs]:
        """The sets that the final model is scored on, by name."""
        sets = {"validation": self.validation, **self.test_sets}
        return {name: pairs for name, pairs in sets.items() if len(pairs)}


def read_run_pairs(data: DataPlan) -> RunPairs:
    """Return the pairs of a run; without validation and test pairs, some are held out."""
    check_files(data)
    train = training_pairs(data)
    validation, test_sets = validation_pairs(data), evaluation_sets(data)
    given = {"validation": validation, **test_sets}
    report = pair_report(train)
    kinds = "duplicates, copies, odd ratios and doubtful pairs"
    hint = f"{kinds} are left out" if data.clean else f"--clean leaves out {kinds}"
    logger.info("Training pairs: %s; %s.", describe_report(report), hint)
    for warning in odd_texts(train):
        logger.warning(warning)
    facts: dict[str, Any] = {f"train_{name}": count for name, count in report.items()}
    facts["train_pairs"] = facts.pop("train_read")
    if shared := shared_with_training(data, train, given):
        facts["shared_with_training"] = shared
    facts["held_out_pairs"] = 0
    if not len(validation) and not test_sets:
        train, validation, test = held_out(data, train)
        test_sets = {"test": test} if len(test) else {}
        facts["held_out_pairs"] = len(test)
    opposite = data.languages[0] if data.both_directions else None
    made = augmented_pairs(train, join=data.join_pairs, opposite=opposite)
    return RunPairs(made, train, validation, test_sets, facts)


def with_translations(data: DataPlan, pairs: RunPairs, added: Path) -> RunPairs:
    """Return the pairs of a run, and those of a file that `back_translated` made of them."""
    from datasets import concatenate_datasets

    source, target = data.languages
    new = load_pairs(
        added, source_language=source, target_language=target, show_progress=sys.stderr.isatty()
    )
    for doubt in few_sources(new["source"], "translated pairs"):
        logger.warning(doubt)
    scored = {compared(target) for texts in pairs.scored.values() for _, target in texts.pairs()}
    kept = [number for number, text in enumerate(new["target"]) if compared(text) not in scored]
    if others := len(new) - len(kept):
        logger.info("%d sentences of the text are to be scored, and are left out.", others)
    new = new.select(kept)
    pairs.facts["train_back_translated"] = len(new)
    pairs.facts["train_pairs"] += len(new)
    if data.train_weights is not None:
        new = mark_corpus(new, len(listed(data.train_file)))
    train = concatenate_datasets([pairs.train, new])
    return dataclasses.replace(pairs, train=train, given=train)


def tokenized_run_pairs(
    data: DataPlan, pairs: RunPairs, tokenizer: PreTrainedTokenizerBase, *, batch_tokens: int
) -> tuple["Dataset", "Dataset | None"]:
    """Return the training pairs, and the validation pairs if any, as ids; count the pairs.

    Raises:
        ValueError: Both directions are requested, and each side has a tokenizer of its own.
    """
    if data.both_directions and target_tokenizer(tokenizer) is not tokenizer:
        raise RequestError(
            "both_directions: each side has a tokenizer of its own; train one for both."
        )
    tokenize = partial(
        tokenize_pairs,
        tokenizer=tokenizer,
        max_source_length=data.max_source_length,
        max_target_length=data.max_target_length,
        show_progress=sys.stderr.isatty(),
    )
    given = tokenize(pairs.given)
    train = given if pairs.train is pairs.given else tokenize(pairs.train)
    validation = None
    if len(pairs.validation):
        # Of any length: leaving out long sentences would improve the perplexity unfairly.
        texts = zip(pairs.validation.sources, pairs.validation.targets, strict=True)
        validation = tokenize_pairs(texts_as_dataset(data, texts), tokenizer, show_progress=False)
    pairs.facts["train_pairs_kept"] = len(given)
    pairs.facts["train_too_long"] = reading_report(given)["too_long"]
    if made := len(train) - len(given):
        pairs.facts["train_made"] = made
    pairs.facts["validation_pairs"] = len(pairs.validation)
    logger.info("%d training pairs (%d left out).", len(train), len(pairs.train) - len(train))
    if shares := _shares(data, train, batch_tokens):
        pairs.facts["shares"] = shares
    return train, validation


def _shares(data: DataPlan, train: "Dataset", batch_tokens: int) -> dict[str, dict[str, float]]:
    """Return the planned shares in the training as they are reached; log them."""
    weights, corpora = listed(data.train_weights), pair_corpora(train)
    planned: dict[str, tuple[np.ndarray, str, float]] = {}  # pairs, unit, share
    if corpora is not None:
        for number, weight in enumerate(weights):
            share = weight / sum(weights)
            planned[f"corpus {number + 1}"] = (corpora == number, "target_tokens", share)
    if MADE in train.column_names:
        made = train.with_format("numpy")[MADE][:]
        if data.join_pairs:
            planned["joined pairs"] = (made & JOINED > 0, "target_tokens", 1 / 2)
        if data.both_directions:
            planned["opposite direction"] = (made & OPPOSITE > 0, "pairs", 1 / 3)
    if not planned:
        return {}
    sampler = TokenBatchSampler(
        *pair_lengths(train), max_tokens=batch_tokens, corpora=corpora, weights=weights or None
    )
    shares = {}
    for name, (chosen, unit, share) in planned.items():
        tokens, pairs = map(float, sampler.share(chosen))
        shares[name] = {"target_tokens": tokens, "pairs": pairs}
        logger.info(
            "The share of %s is %.1f%% of the target tokens and %.1f%% of the pairs.",
            *(name, 100 * tokens, 100 * pairs),
        )
        if abs(shares[name][unit] - share) > share / 10:
            logger.warning(
                "The share of %s is %.1f%% of the %s instead of %.1f%%. Pairs longer than "
                "max_source_length=%s or max_target_length=%s are left out.",
                *(name, 100 * shares[name][unit], unit.replace("_", " "), 100 * share),
                *(data.max_source_length, data.max_target_length),
            )
    return shares


def try_scored_pairs(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: RunPairs,
    measures: Iterable[str],
    language: str,
) -> None:
    """Encode what will be scored, so that it fails before the training instead of after it.

    Symbols that the vocabulary lacks are counted: no model can read or write them.
    """
    for measure in measures if pairs.scored else ():
        measure_metric(measure, language)
    for name, texts in pairs.scored.items():
        sources = encode(model, tokenizer, texts.sources)
        targets = target_ids(model, tokenizer, texts.targets)
        for side, rows in (("source", sources), ("target", targets)):
            if unknown := sum(row.count(tokenizer.unk_token_id) for row in rows):
                logger.warning(
                    "Of the %d %s tokens of the %s set %d are %s: the vocabulary lacks them.",
                    *(sum(map(len, rows)), side, name, unknown, tokenizer.unk_token),
                )
