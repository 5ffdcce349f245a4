"""Measure how sure a model usually is, to doubt translations of which it is far less sure."""

from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..batch_translation import DOUBTFUL_BELOW, encode, sureness
from ..written_forms import written_forms
from .many_texts import translate_nbest

MOST = 1_000  # sentences to translate, at most; evenly spread over the sources
# Translations below the first are doubtful. It and the weight in `sureness` were chosen on
# validation sentences: few of these are below it, and nearly all French ones (LOG.md).
PERCENTILES = (2.25, 5, 50)


def set_doubt_threshold(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sources: Sequence[str]
) -> dict[str, float]:
    """Store in a model's generation config the `sureness` below which a translation is doubtful.

    Args:
        model: A model of this package; its generation config is changed, not saved.
        tokenizer: Its tokenizer.
        sources: Sentences of the kind that the model is made for, but was not trained on.

    Returns:
        Percentiles of `sureness`, {} if there are no sentences.
    """
    setattr(model.generation_config, DOUBTFUL_BELOW, None)
    chosen = [text for text in sources[:: -(-len(sources) // MOST) or 1] if text.strip()]
    found = [best for best, *_ in translate_nbest(model, tokenizer, chosen)]
    read, ids = map(written_forms(tokenizer).source_of, chosen), encode(model, tokenizer, chosen)
    values = [
        sureness(text, row, best.token_score)
        for text, row, best in zip(read, ids, found, strict=True)
        if best.token_score is not None
    ]
    if not values:
        return {}
    rounded = np.percentile(values, PERCENTILES).round(3).tolist()
    setattr(model.generation_config, DOUBTFUL_BELOW, rounded[0])
    return dict(zip(map(str, PERCENTILES), rounded, strict=True))
