"""Robustness: scores on sources in capitals, without final punctuation, with a typo, ..."""

from collections.abc import Sequence
from random import Random
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..data.informal_variants import MARKS, VARIANTS, without_mark
from ..storage.metrics import Scores
from ..translation.many_texts import translate
from .scores import References, corpus_scores

MOST = 1_000  # limit on sources, evenly spread; each is translated in every form


def robustness(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    references: References,
    *,
    languages: tuple[str, str],
    measures: Sequence[str],
    **options: Any,
) -> dict[str, Scores]:
    """Return a model's scores on the sources changed into each informal form of `VARIANTS`.

    Case and the final mark of translations and references do not count, because a translation
    follows its source in both.

    Args:
        model: A sequence-to-sequence model.
        tokenizer: Its tokenizer.
        sources: Sentences to translate; if there are more than `MOST`, a sample of that size.
        references: One reference for each sentence, or several.
        languages: Codes of source and target.
        measures: Names from `MEASURES`.
        **options: Options of `translate`.
    """
    step, random = -(-len(sources) // MOST) or 1, Random(0)
    rows = ([row] if isinstance(row, str) else row for row in references[::step])
    wanted = [[_plain(text) for text in row] for row in rows]
    scores = {}
    for name, form in VARIANTS.items():
        texts = [form(text, languages[0], random) for text in sources[::step]]
        found = [_plain(text) for text in translate(model, tokenizer, texts, **options)]
        scores[name] = corpus_scores(found, wanted, target_language=languages[1], measures=measures)
    return scores


def _plain(text: str) -> str:
    return without_mark(text).lower().lstrip(MARKS)
