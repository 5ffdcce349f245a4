"""Inputs of a run: tokenised pairs, the tokenizer, and a new or trained model."""

import dataclasses
import hashlib
import json
import logging
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..batch_translation import encode
from ..configuration_vanilla_transformer import VanillaTransformerConfig
from ..data.augmentation import JOINED, NOISY, OPPOSITE
from ..data.batches import TokenBatchSampler
from ..data.dataset import (
    MADE,
    pair_corpora,
    pair_lengths,
    reading_report,
    sentences,
    texts_digest,
    tokenize_pairs,
)
from ..data.examination import odd_texts
from ..data.form_counts import count_forms
from ..data.selection import describe_report, pair_report
from ..data.tokenizer import make_tokenizer, vocabulary_fields
from ..errors import RequestError
from ..evaluation import measure_metric
from ..modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ..recipes.data import TextPairs, evaluation_sets, held_out, training_pairs, validation_pairs
from ..recipes.options import Model, Tokenizer, listed
from ..recipes.plan import DataPlan, Plan
from ..recipes.testing import as_dataset, shared_with_training, warn_of_other_languages
from ..storage.atomic import files_written_aside
from ..storage.reading import read_json
from ..storage.run_files import digests, warn_of_changed_model
from ..storage.saved_model import (
    CONFIG,
    TOKENIZER_FILES,
    TOKENIZER_SETTINGS,
    copy_own_files,
    load_saved_model,
    load_saved_tokenizer,
    model_folder,
    weight_files,
)
from ..target_tokenizer import target_tokenizer
from ..texts.targets import hold_target_tokenizer, target_ids
from ..written_forms import WrittenForms
from .arguments import VanillaTransformerTrainingArguments
from .optimization import peak_rate

if TYPE_CHECKING:
    from datasets import Dataset


logger = logging.getLogger(__name__)

_COUNTED = 100_000  # pairs to sample, at most, to count letter case and punctuation


@dataclasses.dataclass(frozen=True)
class RunPairs:
    """Training, validation and test pairs as texts, with counts and other facts."""

    train: "Dataset"
    given: "Dataset"  # the pairs in `train` that are not augmented
    sets: dict[str, TextPairs]  # "validation" and test sets, by name; any may be empty
    facts: dict[str, Any]  # for metrics.json
    encoded: "Dataset | None" = None  # the training pairs as ids

    @property
    def validation(self) -> TextPairs:
        """The validation pairs, if any."""
        return self.sets["validation"]

    @property
    def scored(self) -> dict[str, TextPairs]:
        """The sets that the final model is scored on, by name."""
        return {name: pairs for name, pairs in self.sets.items() if len(pairs)}

    def digests(self) -> dict[str, str]:
        """Return a digest of the texts of each set, as they were read."""
        texts = {name: json.dumps([*pairs.pairs()]) for name, pairs in self.scored.items()}
        found = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
        return {"train": texts_digest(self.given), **found}


def read_run_pairs(data: DataPlan) -> RunPairs:
    """Return the pairs of a run; hold some out if there are no validation and test pairs.

    If teachers make all training pairs, from a text, there are none yet.
    """
    train = training_pairs(data)
    sets = {"validation": validation_pairs(data), **evaluation_sets(data)}
    facts: dict[str, Any] = {"train_pairs": 0, "held_out_pairs": 0}
    if not len(train):
        return RunPairs(train, train, sets, facts)
    report = pair_report(train)
    hint = "such pairs are left out" if data.clean else "--clean leaves out such pairs"
    logger.info("Training pairs: %s; %s.", describe_report(report), hint)
    for warning in odd_texts(train):
        logger.warning(warning)
    facts |= {f"train_{name}": count for name, count in report.items()}
    facts["train_pairs"] = facts.pop("train_read")
    if shared := shared_with_training(data, train, sets):
        facts["shared_with_training"] = shared
    if not any(map(len, sets.values())):
        train, sets["validation"], sets["test"] = held_out(data, train)
        facts["held_out_pairs"] = len(sets["test"])
    return RunPairs(train, train, sets, facts)


def tokenized_run_pairs(
    data: DataPlan, pairs: RunPairs, tokenizer: PreTrainedTokenizerBase, *, batch_tokens: int
) -> tuple["Dataset", "Dataset | None"]:
    """Tokenize the training pairs and any validation pairs, and record how many there are.

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
        show_progress=True,
    )
    given = tokenize(pairs.given)
    train = given if pairs.train is pairs.given else tokenize(pairs.train)
    validation = None
    if len(pairs.validation):
        # Without length limits: leaving out long sentences would improve the perplexity unfairly.
        texts = [*zip(pairs.validation.sources, pairs.validation.targets, strict=True)]
        validation = tokenize_pairs(as_dataset(data, texts), tokenizer, show_progress=False)
    pairs.facts["train_pairs_kept"] = len(given)
    pairs.facts["train_too_long"] = reading_report(given)["too_long"]
    if made := len(train) - len(given):
        pairs.facts["train_made"] = made
    pairs.facts["validation_pairs"] = len(pairs.validation)
    logger.info("Training pairs: %d (%d left out).", len(train), len(pairs.train) - len(train))
    if shares := _shares(data, train, batch_tokens):
        pairs.facts["shares"] = shares
    return train, validation


def _shares(data: DataPlan, train: "Dataset", batch_tokens: int) -> dict[str, dict[str, float]]:
    """Return and log the actual shares of corpora and augmented pairs in training."""
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
        if data.noise:
            planned["noisy sources"] = (made & NOISY > 0, "pairs", data.noise)
    if not planned:
        return {}
    sampler = TokenBatchSampler(
        *pair_lengths(train), max_tokens=batch_tokens, corpora=corpora, weights=weights or None
    )
    shares = {}
    for name, (chosen, unit, share) in planned.items():
        tokens, pairs = map(float, sampler.share(chosen))
        shares[name] = {"target_tokens": tokens, "pairs": pairs}
        misses = abs(shares[name][unit] - share) > share / 10  # as when long pairs are left out
        logger.log(
            logging.WARNING if misses else logging.INFO,
            "The share of %s is %.1f%% of the target tokens and %.1f%% of the pairs; planned were "
            "%.1f%% of the %s.",
            *(name, 100 * tokens, 100 * pairs, 100 * share, unit.replace("_", " ")),
        )
    return shares


def try_scored_pairs(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, pairs: RunPairs, plan: Plan
) -> None:
    """Encode the validation and test pairs, so that an invalid one fails before training.

    Warns of symbols outside of the vocabulary, which no model can read or write.
    """
    for measure in plan.evaluation.measures if pairs.scored else ():
        measure_metric(measure, plan.data.languages[1])
    for name, texts in pairs.scored.items():
        sources = encode(model, tokenizer, texts.sources)
        targets = target_ids(model, tokenizer, texts.targets)
        for side, rows in (("source", sources), ("target", targets)):
            if unknown := sum(row.count(tokenizer.unk_token_id) for row in rows):
                logger.warning(
                    "The vocabulary lacks %d of %d %s tokens of the %s set, which become %s.",
                    *(unknown, sum(map(len, rows)), side, name, tokenizer.unk_token),
                )


def identify_model(name: str) -> dict[str, Any]:
    """Return the digests and the revision that identify a model exactly.

    Args:
        name: A folder, or a name on the Hub.

    Returns:
        `revision`, the commit on the Hub or None, and `files`, the SHA-256 of each file of weights
        or of the tokenizer by name.

    Raises:
        ValueError: If there is no such model, or a run cannot train it.
    """
    folder = model_folder(name)
    kind = read_json(folder / CONFIG).get("model_type")
    if kind != VanillaTransformerConfig.model_type:
        raise RequestError(
            f"init_from: {name} is of model_type {kind!r}; `vanilla-transformer import` it first."
        )
    load_saved_tokenizer(folder)  # refuses an invalid one
    warn_of_changed_model(folder)
    # The cache names the folder of a Hub snapshot after its commit. A folder given by its path has
    # no commit, wherever it lies.
    of_hub = folder != Path(name) and folder.parent.name == "snapshots"
    names = (*(path.name for path in weight_files(folder)), *TOKENIZER_FILES)
    revision = folder.name if of_hub else None
    return {"revision": revision, "files": digests(folder, names)}


def run_tokenizer(
    plan: Tokenizer,
    run: Path,
    pairs: RunPairs,
    languages: tuple[str, str],
    *,
    last: Path | None,
    initial: Path | None,
) -> PreTrainedTokenizerBase:
    """Return the run's tokenizer; a new run trains one, or copies the `init_from` model's.

    Args:
        plan: The plan of the tokenizer.
        run: The run directory.
        pairs: The pairs of the run.
        languages: Codes of source and target.
        last: The last whole checkpoint, which holds the tokenizer that it was trained with.
        initial: Folder of the model that the run starts from, if any.
    """
    if last is not None:
        return load_saved_tokenizer(last)
    if not (run / TOKENIZER_SETTINGS).is_file():
        with files_written_aside(run, last=TOKENIZER_SETTINGS) as aside:
            if initial is not None:
                copy_own_files(initial, aside)
            else:
                tokenizer = _new_tokenizer(plan, pairs.train)
                _count_forms(pairs.given, languages).to_tokenizer(tokenizer)
                tokenizer.save_pretrained(aside)
    return load_saved_tokenizer(run)


def _new_tokenizer(plan: Tokenizer, pairs: "Dataset") -> PreTrainedTokenizerBase:
    """Train a tokenizer: a shared one, or one for each side."""
    options: dict[str, Any] = {**vars(plan), "num_texts": len(pairs)}
    kinds = options.pop("tokenizer").split(",")
    if len(kinds) == 1:
        options["num_texts"] *= 2
        return make_tokenizer(kinds[0], sentences(pairs), **options)
    source, target = (
        make_tokenizer(kind, sentences(pairs, side), **options)
        for kind, side in zip(kinds, ("source", "target"), strict=True)
    )
    hold_target_tokenizer(source, target)
    return source


def _count_forms(pairs: "Dataset", languages: tuple[str, str]) -> WrittenForms:
    """Count letter case and punctuation in sources that do not begin with a tag like `<2de>`."""
    step = -(-len(pairs) // _COUNTED) or 1
    sources, targets = (
        [*islice(sentences(pairs, side), 0, None, step)] for side in ("source", "target")
    )
    typed = [text for text in sources if not text.startswith("<")]
    return count_forms(typed, targets, languages)


def run_model(
    plan: Model, data: DataPlan, tokenizer: PreTrainedTokenizerBase, start: Path | None
) -> VanillaTransformerForConditionalGeneration:
    """Return a new model or, if `init_from` is set, a copy of the model in the folder `start`.

    Args:
        plan: The plan of the model.
        data: The plan of the pairs, whose longest sentences need positions.
        tokenizer: The tokenizer.
        start: Folder of the initial model, or of the last whole checkpoint, if any.

    Raises:
        ValueError: If the initial model does not load, or has too few positions.
    """
    if plan.init_from is None or start is None:
        return VanillaTransformerForConditionalGeneration(
            plan.config(**vocabulary_fields(tokenizer))
        )
    # In float32, with the plan's rates of dropout and label smoothing.
    saved = load_saved_model(start, dtype=torch.float32)
    for name, value in plan.fields().items():
        setattr(saved.config, name, value)
    assert isinstance(saved.config, VanillaTransformerConfig)  # checked by `identify_model`
    data.check_positions(saved.config)
    # A new model, because modules keep the rates that they were created with.
    model = VanillaTransformerForConditionalGeneration(saved.config)
    model.load_state_dict(saved.state_dict())
    model.generation_config = saved.generation_config
    return model


def warn_of_start(
    initial: Path, data: DataPlan, args: VanillaTransformerTrainingArguments, d_model: int
) -> None:
    """Warn if the training settings may damage the initial model.

    Args:
        initial: Folder of the initial model.
        data: The plan of the pairs.
        args: The training arguments.
        d_model: Width of the model.
    """
    warn_of_other_languages(initial, data.languages)
    if args.learning_rate is None:
        warmup = int(args.warmup_steps)
        rate = peak_rate(d_model=d_model, warmup_steps=warmup, factor=args.learning_rate_factor)
        logger.warning(
            "The learning rate rises to %.1e, as when training from scratch; give --learning-rate, "
            "no higher than the last one in the model's history.tsv.",
            rate,
        )
