"""Metrics that sacreBLEU lacks, derived from its metric classes.

They therefore support signatures, several references per sentence and the paired bootstrap.
"""

import re
import unicodedata
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU
from sacrebleu.metrics.base import Metric, Score, Signature

from ..storage.extras import require


class _Share(Metric):
    """Base class: a count summed over all sentences, as a percentage of a summed total."""

    def __init__(self, target_language: str) -> None:
        super().__init__()

    def _preprocess_segment(self, sent: str) -> str:
        # Tokenizers decode ids to text with single spaces, so other white space must not count.
        return " ".join(unicodedata.normalize("NFC", sent).split())

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"references": refs}

    def _aggregate_and_compute(self, stats: list[list[int]]) -> Score:
        return self._compute_score_from_stats(np.sum(stats, axis=0))

    def _compute_score_from_stats(self, stats: Sequence[float]) -> Score:
        count, total = map(float, stats)
        return Score(type(self).__name__, 100 * count / max(total, 1))


class ExactMatch(_Share):
    """Share of sentences that equal one of their references."""

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict) -> list[int]:
        return [int(hypothesis in ref_kwargs["references"]), 1]


class TokenErrorRate(_Share):
    """Insertions, deletions and substitutions per token of the references, as jiwer counts them.

    Tokens are what stands between spaces; if they are words, phonemes or symbols, the field says
    word, phoneme or symbol error rate. Of several references the one with the fewest edits counts.
    """

    unit = "token"

    def __init__(self, target_language: str) -> None:
        require("An error rate", "jiwer")
        import jiwer

        super().__init__(target_language)
        self._align = jiwer.process_words if self.unit == "token" else jiwer.process_characters

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict) -> list[int]:
        counts = []
        for reference in ref_kwargs["references"]:
            edits = self._align([reference], [hypothesis])
            wrong = edits.substitutions + edits.deletions
            counts.append([wrong + edits.insertions, wrong + edits.hits])
        return min(counts)

    def get_signature(self) -> Signature:
        """Return the signature with the unit and jiwer's version added."""
        return _with_facts(super().get_signature(), unit=self.unit, jiwer=version("jiwer"))


class CharacterErrorRate(TokenErrorRate):
    """`TokenErrorRate` on characters, including the spaces between words."""

    unit = "character"


class TokenizedBLEU(BLEU):
    """BLEU on lower-cased Moses tokens, as papers on Multi30k often report it.

    Compare it only with those papers, not with BLEU, which uses other tokens. Both sides are
    lower-cased and tokenized by sacremoses, without normalizing punctuation or escaping.
    """

    def __init__(self, target_language: str, **options: Any) -> None:
        require("BLEU on Moses tokens", "sacremoses")
        from sacremoses import MosesTokenizer

        super().__init__(**{"lowercase": True, "tokenize": "none", "force": True, **options})
        self._moses = MosesTokenizer(lang=target_language.replace("_", "-").split("-")[0].lower())

    def _preprocess_segment(self, sent: str) -> str:
        return super()._preprocess_segment(self._tokens(sent))

    def _tokens(self, text: str) -> str:
        return self._moses.tokenize(text.lower(), return_str=True, escape=False)

    def get_signature(self) -> Signature:
        """Return the signature with the tokenizer's version and language added."""
        moses = f"sacremoses-{version('sacremoses')}-{self._moses.lang}"
        return _with_facts(super().get_signature(), moses=moses)


class CompoundBLEU(TokenizedBLEU):
    """BLEU on Moses tokens with compounds split at hyphens, as the paper reports it.

    This follows the authors' get_ende_bleu.sh: replace Unicode punctuation, tokenize, write
    "rich-text" as "rich ##AT##-##AT## text", and compute cased BLEU without smoothing, as
    multi-bleu.perl does. That script reads references that are tokenized already; here both sides
    are processed alike. Splitting adds n-grams that match, so the score exceeds BLEU's.
    """

    def __init__(self, target_language: str) -> None:
        super().__init__(target_language, lowercase=False, smooth_method="none")
        from sacremoses import MosesPunctNormalizer

        self._punctuation = MosesPunctNormalizer()

    def _tokens(self, text: str) -> str:
        text = self._punctuation.replace_unicode_punct(text)
        text = self._moses.tokenize(text, return_str=True, escape=False)
        return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", text)

    def get_signature(self) -> Signature:
        """Return the signature with the handling of punctuation and compounds added."""
        return _with_facts(super().get_signature(), punct="ascii", compounds="split")


def _with_facts(signature: Signature, **facts: str) -> Signature:
    for name, value in facts.items():
        signature.update(name, value)
    return signature
