"""Detect texts unlike the training texts: a high share of `<unk>` or of unknown characters."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from ..errors import quoted
from ..written_forms import written_forms


def unknown_tokens(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], rows: Sequence[Sequence[int]]
) -> str | None:
    """Describe the share of `<unk>` in texts, with an example; None if at most a tenth.

    A model made for preprocessed text (`@@`, lower case, another script) fails silently on other
    text.
    """
    unknown = getattr(tokenizer, "unk_token_id", None)
    counts = [row.count(unknown) for row in rows]
    what = f"tokens are {getattr(tokenizer, 'unk_token', None)}"
    return _warning(what, texts, counts, sum(map(len, rows)))


def unknown_characters(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> str | None:
    """Describe the share of characters that no training source has; None if at most a tenth.

    Characters are counted as the model reads them: in the sources' case, and normalised.
    """
    forms = written_forms(tokenizer)
    if not forms.signs:
        return None
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    read = [forms.source_of(text) for text in texts]
    read = read if normalizer is None else [*map(normalizer.normalize_str, read)]
    known = {*forms.signs}
    counts = [sum(sign not in known for sign in text) for text in read]
    what = "characters occur in no training source"
    return _warning(what, texts, counts, sum(map(len, read)))


def _warning(what: str, texts: Sequence[str], counts: Sequence[int], total: int) -> str | None:
    """Return "20% of the `what`, as in ..."; None if the counts are at most a tenth of `total`."""
    if 10 * sum(counts) <= total:
        return None
    example = quoted(texts[counts.index(max(counts))])
    remedy = "give texts in the form that the model was made for (language, script, case, pieces)"
    return f"{sum(counts) / total:.0%} of the {what}, as in {example}: {remedy}"
