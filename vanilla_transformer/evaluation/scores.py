"""Scores of translations against references: BLEU, chrF and exact match; no network is needed.

BLEU and chrF come with sacreBLEU's signature; compare only scores with the same signature.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Collection, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, cast

from ..errors import RequestError, quoted
from ..storage.extras import require
from ..storage.metrics import KindScores, Scores

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU, CHRF
    from sacremoses import MosesTokenizer

logger = logging.getLogger(__name__)

# By ISO 639-1 and 639-3 code. Other languages have 13a, the default of sacreBLEU and WMT, which
# takes a whole clause for one word in scripts without spaces. For four of these (Thai, Lao, Khmer,
# Burmese) sacreBLEU has no words, only characters.
BLEU_TOKENIZERS = {
    **dict.fromkeys(("zh", "zho", "chi", "cmn", "yue"), "zh"),
    **dict.fromkeys(("ja", "jpn"), "ja-mecab"),
    **dict.fromkeys(("ko", "kor"), "ko-mecab"),
    **dict.fromkeys(("th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur"), "char"),
}


def bleu_tokenizer(language: str) -> str:
    """Name sacreBLEU's tokenizer for a language: "de" or "de_AT" -> "13a", "zh-Hans" -> "zh"."""
    return BLEU_TOKENIZERS.get(language.replace("_", "-").split("-")[0].lower(), "13a")


@functools.cache
def installed_bleu_tokenizer(language: str) -> str:
    """Return `bleu_tokenizer(language)`; if it is not installed, warn once and return "char"."""
    name = bleu_tokenizer(language)
    try:
        bleu_metric(language, tokenize=name)
    except ValueError as error:
        logger.warning("%s Until then, BLEU is computed on characters.", error)
        return "char"
    return name


def bleu_score(
    hypotheses: Sequence[str], references: Sequence[str], *, target_language: str
) -> Scores:
    """Compute corpus BLEU in percent, `bleu`, and its signature, `bleu_signature`.

    Warns if all hypotheses are the same or empty, and the references are not.

    Args:
        hypotheses: Translations, detokenized.
        references: One reference each.
        target_language: Language code, which selects the tokenizer; see `installed_bleu_tokenizer`.

    Raises:
        ValueError: The lists are empty or differ in length.
    """
    score = _corpus_score("bleu", bleu_metric(target_language), hypotheses, references)
    if len({*hypotheses} - {""}) <= 1 < len({*references}):
        logger.warning(
            "All %d translations are %s: usual only at the start of a training. Else look at the "
            "pairs (sides, order, tokenizer) and at the learning rate.",
            len(hypotheses),
            f"the same or empty: {quoted(max(hypotheses))}" if any(hypotheses) else "empty",
        )
    return score


def chrf_score(hypotheses: Sequence[str], references: Sequence[str]) -> Scores:
    """Compute corpus chrF2 in percent, `chrf`, and its signature, `chrf_signature`."""
    return _corpus_score("chrf", chrf_metric(), hypotheses, references)


def _corpus_score(
    name: str,
    metric: BLEU | CHRF,
    hypotheses: Sequence[str],
    references: Sequence[str],
    *preprocessing: str,
) -> Scores:
    """Return the score of a metric and its signature, to which the preprocessing is added."""
    check_pairs(hypotheses, references)
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    signature = "|".join([str(metric.get_signature()), *preprocessing])
    return cast("Scores", {name: score, f"{name}_signature": signature})


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return the percentage of translations that equal their reference exactly."""
    check_pairs(hypotheses, references)
    equal = sum(ours == theirs for ours, theirs in zip(hypotheses, references, strict=True))
    return 100.0 * equal / len(references)


def tokenized_bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, target_language: str
) -> Scores:
    """Compute BLEU on lower-cased Moses tokens, as papers on Multi30k often report it.

    Compare it only with those papers, not with `bleu_score`, which uses other tokens. Both sides
    are lower-cased and tokenized by sacremoses, without normalizing punctuation or escaping.

    Returns:
        `tokenized_bleu` in percent and `tokenized_bleu_signature`.

    Raises:
        ValueError: The lists are empty or differ in length.
    """
    moses = _moses_tokenizer(target_language)
    ours, theirs = (
        [moses.tokenize(text.lower(), return_str=True, escape=False) for text in side]
        for side in (hypotheses, references)
    )
    metric = bleu_metric(target_language, lowercase=True, tokenize="none", force=True)
    return _corpus_score("tokenized_bleu", metric, ours, theirs, _moses_signature(moses))


def compound_bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, target_language: str
) -> Scores:
    """Compute BLEU on Moses tokens with compounds split at hyphens, as the paper reports it.

    This follows the authors' get_ende_bleu.sh: replace Unicode punctuation, tokenize, write
    "rich-text" as "rich ##AT##-##AT## text", and compute cased BLEU without smoothing, as
    multi-bleu.perl does. That script reads references that are tokenized already; here both sides
    are processed alike. Splitting adds n-grams that match, so the score exceeds `bleu_score`.

    Returns:
        `compound_bleu` in percent and `compound_bleu_signature`.

    Raises:
        ValueError: The lists are empty or differ in length.
    """
    moses = _moses_tokenizer(target_language)
    from sacremoses import MosesPunctNormalizer

    punctuation = MosesPunctNormalizer()

    def tokens(text: str) -> str:
        text = moses.tokenize(
            punctuation.replace_unicode_punct(text), return_str=True, escape=False
        )
        return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", text)

    ours, theirs = ([tokens(text) for text in side] for side in (hypotheses, references))
    metric = bleu_metric(target_language, tokenize="none", force=True, smooth_method="none")
    preprocessing = (_moses_signature(moses), "punct:ascii", "compounds:split")
    return _corpus_score("compound_bleu", metric, ours, theirs, *preprocessing)


OTHER_BLEU = {"moses": tokenized_bleu, "compound": compound_bleu}


def other_bleu(kind: str) -> Callable[..., Scores]:
    """Return the function with a name in `OTHER_BLEU`.

    Raises:
        ValueError: There is no such name.
    """
    if kind not in OTHER_BLEU:
        raise RequestError(f"Got the BLEU kind {kind!r}; choose one of {', '.join(OTHER_BLEU)}.")
    return OTHER_BLEU[kind]


def corpus_scores(
    hypotheses: Sequence[str], references: Sequence[str], *, target_language: str
) -> Scores:
    """Compute all scores of a set of translations; arguments and errors as for `bleu_score`.

    Returns:
        `bleu`, `chrf`, `exact_match` in percent, `bleu_signature`, `chrf_signature`, and the number
        of sentences, `num_sentences`.
    """
    return {
        **bleu_score(hypotheses, references, target_language=target_language),
        **chrf_score(hypotheses, references),
        "exact_match": exact_match(hypotheses, references),
        "num_sentences": len(references),
    }


def scores_by_kind(
    hypotheses: Sequence[str], references: Sequence[str], kinds: Sequence[Collection[str]]
) -> dict[str, KindScores]:
    """Return exact match in percent and the number of sentences of each kind, sorted by kind.

    A sentence of several kinds counts towards each.
    """
    check_pairs(hypotheses, references)
    members: dict[str, list[int]] = {}
    for index, (_, labels) in enumerate(zip(references, kinds, strict=True)):
        for kind in set(labels):
            members.setdefault(kind, []).append(index)
    return {
        kind: {
            "exact_match": exact_match(
                *([side[index] for index in members[kind]] for side in (hypotheses, references))
            ),
            "num_sentences": len(members[kind]),
        }
        for kind in sorted(members)
    }


def check_pairs(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raise ValueError unless there is something to score and one reference for each text."""
    if len(hypotheses) != len(references):
        raise RequestError(
            f"Got {len(hypotheses)} translations (or sources) and {len(references)} references; "
            "give one reference for each."
        )
    if len(references) == 0:
        raise RequestError("Got no sentences; there is nothing to score.")


def _moses_tokenizer(target_language: str) -> MosesTokenizer:
    require("BLEU on Moses tokens", "sacremoses")
    from sacremoses import MosesTokenizer

    return MosesTokenizer(lang=target_language.replace("_", "-").split("-")[0].lower())


def _moses_signature(moses: MosesTokenizer) -> str:
    return f"moses:sacremoses-{version('sacremoses')}-{moses.lang}"


def bleu_metric(
    target_language: str,
    *,
    tokenize: str | None = None,
    lowercase: bool = False,
    force: bool = False,
    smooth_method: str = "exp",
) -> BLEU:
    """Make sacreBLEU's metric for a target language.

    Raises:
        ValueError: The tokenizer is not installed.
    """
    require("Evaluation", "sacrebleu")
    from sacrebleu.metrics import BLEU

    name = tokenize or installed_bleu_tokenizer(target_language)
    try:
        return BLEU(tokenize=name, lowercase=lowercase, force=force, smooth_method=smooth_method)
    except RuntimeError as error:  # MeCab and its dictionaries are extras of sacreBLEU
        raise RequestError(
            f"BLEU's tokenizer {name!r} is not installed: pip install 'sacrebleu[{name[:2]}]'."
        ) from error


def chrf_metric() -> CHRF:
    """Make sacreBLEU's chrF2."""
    require("Evaluation", "sacrebleu")
    from sacrebleu.metrics import CHRF

    return CHRF()
