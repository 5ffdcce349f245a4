"""Models under the names of marian-dev, and its forward pass in NumPy, one sentence at a time.

Written from marian-dev's source at c9f287d alone: src/models/transformer.h and decoder.h,
src/layers/generic.h and output.cpp, SinusoidalPositionEmbeddings of src/tensors/cpu.
"""

import functools
import json
import re
import shutil
from pathlib import Path

import numpy as np
import yaml
from opus_models import trained_pieces

OPTIONS_KEY = "special:model.yml"
OPTIONS = {
    **{"type": "transformer", "dim-emb": 16, "enc-depth": 2, "dec-depth": 3, "dim-rnn": 1024},
    **{"transformer-heads": 4, "transformer-dim-ffn": 20, "transformer-decoder-dim-ffn": 0},
    **{"transformer-ffn-activation": "swish", "transformer-decoder-autoreg": "self-attention"},
    **{"transformer-preprocess": "", "transformer-postprocess": "dan"},
    **{"transformer-postprocess-emb": "d", "transformer-postprocess-top": ""},
    **{"tied-embeddings": False, "tied-embeddings-src": False, "tied-embeddings-all": True},
}
SENTENCES = ["the dog runs", "a cat sleeps", "dogs and cats", "the cats run"]
PRENORM = {"transformer-preprocess": "n", "transformer-postprocess": "da"}
PRENORM |= {"transformer-postprocess-top": "n"}
UNTIED = {"tied-embeddings-all": False}


def parameters(options, sizes):
    """Return random parameters under marian-dev's names, for vocabularies of two sizes."""
    shapes, norms, width = {}, [], options["dim-emb"]
    kinds = {"preprocess": "_pre", "postprocess": ""}
    kinds = [end for kind, end in kinds.items() if "n" in options[f"transformer-{kind}"]]
    for stack, size in zip(("encoder", "decoder"), sizes, strict=True):
        shapes["Wemb" if _shares(options) else f"{stack}_Wemb"] = (size, width)
        inner = options["transformer-dim-ffn"]
        if stack == "decoder":
            inner = options["transformer-decoder-dim-ffn"] or inner
        for number in range(1, options[f"{stack[:3]}-depth"] + 1):
            layer = f"{stack}_l{number}"
            for part in ("self", "context")[: 1 + (stack == "decoder")]:
                shapes |= {f"{layer}_{part}_W{letter}": (width, width) for letter in "qkvo"}
                norms += [f"{layer}_{part}_Wo_ln_{{}}{end}" for end in kinds]
            shapes |= {f"{layer}_ffn_W1": (width, inner), f"{layer}_ffn_W2": (inner, width)}
            norms += [f"{layer}_ffn_ffn_ln_{{}}{end}" for end in kinds]
        if "n" in options["transformer-postprocess-top"]:
            norms.append(f"{stack}_top_ln_{{}}")
    matrices = [name for name in shapes if "emb" not in name]
    biases = {re.sub("_W(.)$", r"_b\1", name): (1, shapes[name][1]) for name in matrices}
    shapes |= biases | {name.format(end): (1, width) for name in norms for end in ("scale", "bias")}
    if not (options["tied-embeddings"] or options["tied-embeddings-all"]):
        shapes["decoder_ff_logit_out_Wt"] = (sizes[1], width)
    if not options.get("output-omit-bias"):
        shapes["decoder_ff_logit_out_b"] = (1, sizes[1])
    random, found = np.random.default_rng(0), {}
    for name, shape in shapes.items():
        deviation = 0.3 if shape[0] == 1 else 1.5 * shape[-1 if "emb" in name else 0] ** -0.5
        values = deviation * random.standard_normal(shape) + ("scale" in name)
        found[name] = values.astype(np.float32)
    return found


def _shares(options):
    return options["tied-embeddings-src"] or options["tied-embeddings-all"]


def sinusoids(length, width):
    """All sines, then all cosines; the divisor is width / 2 - 1."""
    rates = np.exp(np.arange(width // 2) * -(np.log(10000.0) / (width / 2 - 1)))
    angles = np.arange(length)[:, None] * rates
    return np.concatenate((np.sin(angles), np.cos(angles)), axis=1)


def logits(tensors, options, source, target, *, positions=sinusoids, epsilon=1e-6):
    """Return the logits of each target token, (T, V), after those before it.

    Args:
        tensors: Parameters by name.
        options: The model's options.
        source: Ids of a sentence, with its end.
        target: Ids of its translation.
        positions: Function of length and width; epsilon: what layer norms add to the variance.
    """
    width, heads = options["dim-emb"], options["transformer-heads"]

    def affine(x, name, suffix):
        return x @ tensors[f"{name}_W{suffix}"] + tensors[f"{name}_b{suffix}"]

    def processed(ops, name, x, before=None, suffix=""):
        for op in ops:
            if op == "a":
                x = x + before
            elif op == "n":
                centred = x - x.mean(-1, keepdims=True)
                x = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
                x = x * tensors[f"{name}_ln_scale{suffix}"] + tensors[f"{name}_ln_bias{suffix}"]
        return x

    def attention(x, name, memory=None, causal=False):
        inner = processed(options["transformer-preprocess"], f"{name}_Wo", x, suffix="_pre")
        memory = inner if memory is None else memory
        q, k, v = (
            affine(states, name, letter).reshape(len(states), heads, -1).swapaxes(0, 1)
            for letter, states in zip("qkv", (inner, memory, memory), strict=True)
        )
        z = q @ k.swapaxes(1, 2) / np.sqrt(width / heads)
        if causal:
            z = np.where(np.tri(len(x), dtype=bool), z, -99999999.0)
        weights = np.exp(z - z.max(-1, keepdims=True))
        found = (weights / weights.sum(-1, keepdims=True)) @ v
        found = affine(found.swapaxes(0, 1).reshape(len(x), -1), name, "o")
        return processed(options["transformer-postprocess"], f"{name}_Wo", found, x)

    def feed_forward(x, name):
        inner = processed(options["transformer-preprocess"], f"{name}_ffn", x, suffix="_pre")
        inner = affine(inner, name, "1")
        relu = options["transformer-ffn-activation"] == "relu"
        inner = np.maximum(inner, 0) if relu else inner / (1 + np.exp(-inner))
        return processed(
            options["transformer-postprocess"], f"{name}_ffn", affine(inner, name, "2"), x
        )

    def embedded(rows):
        return np.sqrt(width) * rows + positions(len(rows), width)

    tensors = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    source_table, target_table = (
        tensors["Wemb" if _shares(options) else f"{stack}_Wemb"] for stack in ("encoder", "decoder")
    )
    bottom = memory = embedded(source_table[source])
    for number in range(1, options["enc-depth"] + 1):
        memory = attention(memory, f"encoder_l{number}_self")
        memory = feed_forward(memory, f"encoder_l{number}_ffn")
    memory = processed(options["transformer-postprocess-top"], "encoder_top", memory, bottom)
    shifted = np.vstack((np.zeros((1, width)), target_table[target[:-1]]))
    bottom = x = embedded(shifted)
    for number in range(1, options["dec-depth"] + 1):
        x = attention(x, f"decoder_l{number}_self", causal=True)
        x = attention(x, f"decoder_l{number}_context", memory)
        x = feed_forward(x, f"decoder_l{number}_ffn")
    x = processed(options["transformer-postprocess-top"], "decoder_top", x, bottom)
    tied = options["tied-embeddings"] or options["tied-embeddings-all"]
    table = target_table if tied else tensors["decoder_ff_logit_out_Wt"]
    bias = 0 if options.get("output-omit-bias") else tensors["decoder_ff_logit_out_b"]
    return x @ table.T + bias


@functools.cache
def pieces():
    return trained_pieces(SENTENCES, 24)


def vocabulary(size):
    """Return tokens with their ids, which are in another order, as vocabulary files have them."""
    more = [f"\u2581w{number}" for number in range(size)]
    tokens = ["null", "</s>", ">>deu<<", "<unk>", *pieces()[1][::-1], *more]
    return dict(sorted((token, number) for number, token in enumerate(tokens[:size])))


def options_text(options):
    return np.frombuffer(yaml.safe_dump(options).encode() + b"\0", dtype=np.int8)


def save_archive(folder, options=None, sizes=(40, 40)):
    """Write an archive as OPUS-MT's; return its parameters."""
    options = OPTIONS | {"dim-vocabs": list(sizes)} | (options or {})
    tensors = parameters(options, sizes)
    folder.mkdir(parents=True)
    np.savez(folder / "opus.npz", **tensors, **{OPTIONS_KEY: options_text(options)})
    names = ["opus.src.vocab.yml", "opus.trg.vocab.yml"]
    names = [names[0]] * 2 if _shares(options) else names
    for name, size in zip(names, sizes, strict=True):
        lines = [f"{json.dumps(token)}: {number}\n" for token, number in vocabulary(size).items()]
        (folder / name).write_text("".join(lines))
    settings = {"relative-paths": True, "models": ["opus.npz"], "vocabs": names, "beam-size": 6}
    (folder / "decoder.yml").write_text(yaml.safe_dump({**settings, "normalize": 1}))
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(pieces()[0])
    return tensors


def zipped(folder):
    """Return the same archive as a zip file."""
    return Path(shutil.make_archive(str(folder), "zip", folder))
