"""Measure the scores below which a model's translations may be wrong."""

from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..batch_translation import DOUBTFUL_BELOW, encode
from ..written_forms import written_forms
from .many_texts import translate_nbest

MOST = 1_000  # sentences to translate, at most; evenly spread over the sources
PERCENTILES = (1, 2, 5, 50)


def set_doubt_thresholds(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sources: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Store in a model's generation config the thresholds below which a translation is doubtful.

    Args:
        model: A model of this package; its generation config is changed, not saved.
        tokenizer: Its tokenizer.
        sources: Sentences of the kind that the model is made for, but was not trained on.

    Returns:
        Percentiles of `token_score`, the translation's mean log-probability per token, and of
        `characters`, the characters per token of the source; {} if there are no sentences.
    """
    setattr(model.generation_config, DOUBTFUL_BELOW, None)
    chosen = [text for text in sources[:: -(-len(sources) // MOST) or 1] if text.strip()]
    found = [best for best, *_ in translate_nbest(model, tokenizer, chosen)]
    scores = [each.token_score for each in found if each.token_score is not None]
    if not scores:
        return {}
    read, ids = map(written_forms(tokenizer).source_of, chosen), encode(model, tokenizer, chosen)
    characters = [len(text) / max(1, len(row) - 1) for text, row in zip(read, ids, strict=True)]
    percentiles = {}
    for name, values in (("token_score", scores), ("characters", characters)):
        rounded = np.percentile(values, PERCENTILES).round(3).tolist()
        percentiles[name] = dict(zip(map(str, PERCENTILES), rounded, strict=True))
    # 1 % of these sentences have lower scores, and 2 % have fewer characters per token.
    least = [percentiles["token_score"]["1"], percentiles["characters"]["2"]]
    setattr(model.generation_config, DOUBTFUL_BELOW, least)
    return percentiles
