"""The paper in plain formulas, as an oracle: one sentence at a time, without padding or caches.

The forward pass needs only a model's weights and config; the search calls `model(...)`.
"""

import math

import torch
from wandering_model import END, PAD, START, UNKNOWN

from vanilla_transformer.ranges import EXTRA_TOKENS

NEVER = {PAD, START, UNKNOWN}

# ------------------------------------------------------------------------------ the forward pass

ACTIVATIONS = {
    "relu": lambda x: x.clamp(min=0),  # Eq. 2
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "gelu_new": lambda x: x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "swish": lambda x: x / (1 + torch.exp(-x)),
    "tanh": lambda x: 1 - 2 / (torch.exp(2 * x) + 1),
}


def position_encoding(weights, config, stack, length):
    """Return encodings (T, d): Section 3.5, learned, or in the layout of the authors' code."""
    d = config.d_model
    if config.position_encoding == "learned":
        return weights[f"{stack}.embed_positions.weight"][:length]
    table = torch.zeros(length, d, dtype=torch.float64)
    for row in range(length):
        position = row + config.position_offset
        for i in range(d // 2):
            if config.position_encoding == "sinusoidal":
                angle = position / 10000 ** (2 * i / d)
                table[row, 2 * i], table[row, 2 * i + 1] = math.sin(angle), math.cos(angle)
            else:
                angle = position / 10000 ** (i / max(d // 2 - 1, 1))
                table[row, i], table[row, d // 2 + i] = math.sin(angle), math.cos(angle)
    return table


def linear(weights, name, x):
    """x W + b."""
    return x @ weights[f"{name}.weight"].t() + weights[f"{name}.bias"]


def attention(weights, name, x, heads, *, memory=None, causal=False):
    """Eq. 1 and Section 3.2.2, head by head: x attends to the memory or to itself, (T, d)."""
    memory = x if memory is None else memory
    inputs = {"q": x, "k": memory, "v": memory}
    projected = (linear(weights, f"{name}.{part}_proj", at) for part, at in inputs.items())
    outputs = []
    for queries, keys, values in zip(*(x.chunk(heads, dim=-1) for x in projected), strict=True):
        exponentials = (queries @ keys.t() / math.sqrt(keys.size(1))).exp()
        if causal:
            exponentials = exponentials.tril()
        outputs.append(exponentials / exponentials.sum(-1, keepdim=True) @ values)
    return linear(weights, f"{name}.out_proj", torch.cat(outputs, -1))


def layer_norm(weights, name, x, eps):
    """Layer normalization (Ba et al., 2016)."""
    centred = x - x.mean(-1, keepdim=True)
    normal = centred / ((centred**2).mean(-1, keepdim=True) + eps).sqrt()
    return normal * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def forward(weights, config, source, target):
    """Return the logits (T, V) of Figure 1 for one pair of ids, (S,) and (T,).

    `weights` are float64 and named as in a checkpoint; tied tables may be missing.
    """

    def table(name):
        places = (name, "model.shared.weight", "model.decoder.embed_tokens.weight")
        return next(weights[place] for place in places if place in weights)

    def embed(stack, ids):  # Sections 3.4 and 3.5
        scaled = table(f"{stack}.embed_tokens.weight")[ids] * math.sqrt(config.d_model)
        return scaled + position_encoding(weights, config, stack, len(ids))

    def norm(name, x):
        return layer_norm(weights, name, x, config.layer_norm_eps)

    def sublayer(name, x, function):  # Section 3.1
        if config.norm_first:
            return x + function(norm(f"{name}_norm", x))
        return norm(f"{name}_norm", x + function(x))

    def attend(name, x, heads, **options):
        return sublayer(name, x, lambda x: attention(weights, name, x, heads, **options))

    def feed_forward(name, x):  # Eq. 2
        inner = ACTIVATIONS[config.activation_function]
        return sublayer(
            name,
            x,
            lambda x: linear(weights, f"{name}.fc2", inner(linear(weights, f"{name}.fc1", x))),
        )

    ends_with_norm = config.norm_first or config.final_norm
    x, heads = embed("model.encoder", source), config.encoder_attention_heads
    for layer in (f"model.encoder.layers.{i}" for i in range(config.encoder_layers)):
        x = attend(f"{layer}.self_attn", x, heads)
        x = feed_forward(f"{layer}.feed_forward", x)
    memory = norm("model.encoder.norm", x) if ends_with_norm else x
    y, heads = embed("model.decoder", target), config.decoder_attention_heads
    for layer in (f"model.decoder.layers.{i}" for i in range(config.decoder_layers)):
        y = attend(f"{layer}.self_attn", y, heads, causal=True)
        y = attend(f"{layer}.cross_attn", y, heads, memory=memory)
        y = feed_forward(f"{layer}.feed_forward", y)
    y = norm("model.decoder.norm", y) if ends_with_norm else y
    return y @ table("lm_head.weight").t() + weights.get("lm_head.bias", 0)


def label_smoothed_loss(logits, labels, epsilon):
    """Section 5.4: cross-entropy with (1 - eps) on the label and eps / V on every token."""
    losses = []
    for scores, label in zip(logits, labels, strict=True):
        log_probs = scores - scores.exp().sum().log()
        expected = torch.full_like(scores, epsilon / len(scores))
        expected[label] += 1 - epsilon
        losses.append(-(expected * log_probs).sum())
    return torch.stack(losses).mean()


# ------------------------------------------------------------------------------------ the search


def penalty(length, alpha=0.6):
    return ((5 + length) / 6) ** alpha


@torch.no_grad()
def next_log_probs(model, source, hypotheses):
    """Return log P(next token), (hypotheses, V), by full passes without cache or padding."""
    targets = torch.tensor([[START, *tokens] for tokens in hypotheses])
    sources = source.expand(len(hypotheses), -1)
    logits = model(sources, decoder_input_ids=targets, use_cache=False).logits[:, -1]
    return logits.log_softmax(-1).tolist()


def log_prob(model, source, tokens):
    """Return log P(tokens) of a whole sequence."""
    targets = torch.tensor([[START, *tokens[:-1]]])
    with torch.no_grad():
        log_probs = model(source, decoder_input_ids=targets).logits.log_softmax(-1)
    return log_probs[0].gather(1, torch.tensor(tokens)[:, None]).sum().item()


def authors_search(
    model, source, beam, *, alpha=0.6, limit=None, prefix=(), never=NEVER, early=False, ends=(END,)
):
    """Search for one sentence with the loop of the authors' utils/beam_search.py.

    Return pairs of a penalized score and a sequence: those that ended, best first, then those that
    the limit cut off. `early` adds fairseq's rule: only the best `beam` extensions can end a
    hypothesis, and the search stops once `beam` have ended. The authors have one end; so that
    `beam` extensions go on whatever ends, each further one adds `beam` to their 2 * beam.
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
        grown = sorted(grown, reverse=True)[: 1 if beam == 1 else (1 + len(ends)) * beam]
        # grow_finished and grow_alive
        divisor = penalty(step + 1, alpha)
        ending = grown[:beam] if early else grown
        finished += [(score / divisor, tokens) for score, tokens in ending if tokens[-1] in ends]
        finished = sorted(finished, reverse=True)[:beam]
        alive = [pair for pair in grown if pair[1][-1] not in ends][:beam]
        # _is_finished: the worst finished score beats any that the best alive can still reach
        if not alive or (early and len(finished) == beam):
            break
        if len(finished) == beam and finished[-1][0] > alive[0][0] / penalty(limit, alpha):
            break
    return finished + [(score / penalty(limit, alpha), tokens) for score, tokens in alive]
