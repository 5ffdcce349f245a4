"""Texts in another form than the tokenizer's, which show as `<unk>`."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from ..errors import quoted


def unknown_tokens(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], rows: Sequence[Sequence[int]]
) -> str | None:
    """Describe the share of `<unk>` in the ids of texts, with an example, if it is above a tenth.

    A model of pieces (`@@`, lower case, another script) cannot read raw text, and says nothing.
    """
    unknown = getattr(tokenizer, "unk_token_id", None)
    counts = [row.count(unknown) for row in rows]
    total = sum(map(len, rows))
    if 10 * sum(counts) <= total:
        return None
    example = texts[counts.index(max(counts))]
    return (
        f"{sum(counts) / total:.0%} of the tokens are {tokenizer.unk_token}, as in "
        f"{quoted(example)}: give texts in the form that the tokenizer was made for (script, case, "
        "pieces)"
    )
