"""Texts in another form than the training's: words that show as `<unk>`, or unknown characters."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from ..errors import quoted
from ..written_forms import written_forms


def unknown_tokens(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], rows: Sequence[Sequence[int]]
) -> str | None:
    """Describe the share of `<unk>` in the ids of texts, with an example, if it is above a tenth.

    A model of pieces (`@@`, lower case, another script) cannot read raw text, and says nothing.
    """
    unknown = getattr(tokenizer, "unk_token_id", None)
    counts = [row.count(unknown) for row in rows]
    what = f"tokens are {getattr(tokenizer, 'unk_token', None)}"
    return _told(what, texts, counts, sum(map(len, rows)))


def unknown_characters(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> str | None:
    """Describe the share of characters that no source of the training has, as `unknown_tokens`."""
    signs = written_forms(tokenizer).signs
    counts = [sum(sign not in signs for sign in text) if signs else 0 for text in texts]
    what = "characters are in no source of the training"
    return _told(what, texts, counts, sum(map(len, texts)))


def _told(what: str, texts: Sequence[str], counts: Sequence[int], total: int) -> str | None:
    if 10 * sum(counts) <= total:
        return None
    return (
        f"{sum(counts) / total:.0%} of the {what}, as in "
        f"{quoted(texts[counts.index(max(counts))])}: give texts in the form that the model was "
        "made for (language, script, case, pieces)"
    )
