"""How much of a batch is padding."""

import numpy as np

from vanilla_transformer.data.batches import TokenBatchSampler


def real_token_shares(source, target, *, max_tokens):
    """Return real tokens / padded tokens of an epoch, for source and target."""
    shares = []
    for lengths in map(np.asarray, (source, target)):
        batches = list(TokenBatchSampler(source, target, max_tokens=max_tokens))
        padded = sum(len(batch) * lengths[batch].max() for batch in batches)
        shares.append(lengths.sum() / padded)
    return shares
