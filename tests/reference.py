"""The paper's beam search in plain Python, over `model(...)` without a cache, as an oracle."""

import torch
from wandering_model import END, PAD, START, UNKNOWN

from vanilla_transformer.beam_search import EXTRA_TOKENS

NEVER = {PAD, START, UNKNOWN}


def penalty(length, alpha=0.6):
    return ((5 + length) / 6) ** alpha


@torch.no_grad()
def next_log_probs(model, source, hypotheses):
    """log P(next token), (hypotheses, V), by the whole model, without cache or padding."""
    targets = torch.tensor([[START, *tokens] for tokens in hypotheses])
    logits = model(source.expand(len(hypotheses), -1), decoder_input_ids=targets).logits[:, -1]
    return logits.log_softmax(-1).tolist()


def log_prob(model, source, tokens):
    """log P(tokens), of the whole sequence."""
    targets = torch.tensor([[START, *tokens[:-1]]])
    with torch.no_grad():
        log_probs = model(source, decoder_input_ids=targets).logits.log_softmax(-1)
    return log_probs[0].gather(1, torch.tensor(tokens)[:, None]).sum().item()


def authors_search(
    model, source, beam, *, alpha=0.6, limit=None, prefix=(), never=NEVER, early=False
):
    """The loop of the authors' utils/beam_search.py for one sentence, in plain Python.

    Pairs of a penalized score and a sequence, the best first. With `early`, fairseq's rule as well:
    only the best `beam` extensions can end a hypothesis, and `beam` ended ones are enough.
    """
    limit = source.size(1) + EXTRA_TOKENS if limit is None else limit
    alive, finished = [(0.0, ())], []
    for step in range(limit):
        # grow_topk: the best 2 * beam of all extensions
        log_probs = next_log_probs(model, source, [tokens for _, tokens in alive])
        allowed = set(range(len(log_probs[0]))) - never
        if step < len(prefix):
            allowed = {prefix[step]}
        grown = [
            (score + row[token], (*tokens, token))
            for (score, tokens), row in zip(alive, log_probs, strict=True)
            for token in allowed
        ]
        grown = sorted(grown, reverse=True)[: 1 if beam == 1 else 2 * beam]
        # grow_finished and grow_alive
        divisor = penalty(step + 1, alpha)
        ending = grown[:beam] if early else grown
        finished += [(score / divisor, tokens) for score, tokens in ending if tokens[-1] == END]
        finished = sorted(finished, reverse=True)[:beam]
        alive = [pair for pair in grown if pair[1][-1] != END][:beam]
        # _is_finished: the worst finished beats what the best alive can still become
        if not alive or (early and len(finished) == beam):
            break
        if finished and finished[-1][0] > alive[0][0] / penalty(limit, alpha):
            break
    return finished or [(score / penalty(limit, alpha), tokens) for score, tokens in alive]
