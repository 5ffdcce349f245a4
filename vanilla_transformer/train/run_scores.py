"""Score the model of a run directory on its test sets."""

import os
import sys
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..evaluation import score_model
from ..recipes.data import TextPairs
from ..recipes.testing import plan_test
from ..storage.hub_model import model_folder
from ..storage.metrics import TestTexts
from ..storage.saved_model import load_saved_model, load_saved_tokenizer
from .report import without_texts


def score_run(
    directory: str | os.PathLike[str],
    *,
    tokens_at_once: int = 4096,
    with_texts: bool = False,
    **test_options: object,
) -> dict[str, TestTexts]:
    """Score the model of a run directory on its test pairs, or else on its validation pairs.

    Args:
        directory: Run directory, or any folder or name of a model if `pair` and `test_file` are
            given.
        tokens_at_once: Tokens in a batch.
        with_texts: Whether to return the `sources`, `hypotheses` and `references` too.
        **test_options: `TEST_OPTIONS`, which override the recipe. None: the recipe's value, and the
            beams that the model's generation config sets.

    Returns:
        The scores of each test set.

    Raises:
        ValueError: If there is no model, no test or validation pairs, or an unknown option.
    """
    run = model_folder(str(directory))
    test = plan_test(run, test_options)
    model, tokenizer = load_saved_model(run, device="auto"), load_saved_tokenizer(run)
    results = {
        name: score_set(
            model,
            tokenizer,
            pairs,
            tokens_at_once=tokens_at_once,
            num_beams=test.num_beams,
            **test.scoring,
        )
        for name, pairs in test.sets.items()
    }
    if with_texts:
        return results
    return {name: without_texts(result) for name, result in results.items()}


def score_set(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, pairs: TextPairs, **options: Any
) -> TestTexts:
    """Return the scores of a model on a set of pairs.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        pairs: The pairs.
        **options: Other arguments of `score_model`.
    """
    return score_model(
        model, tokenizer, pairs.sources, pairs.references, progress=sys.stderr.isatty(), **options
    )
