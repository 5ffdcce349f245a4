"""Tiny models for the exports, one of which has learned to reverse sequences."""

import pytest
import torch
from tiny_models import byte_tokenizer, tiny_config
from written_out import perturb

from vanilla_transformer import VanillaTransformerForConditionalGeneration

VOCAB_SIZE = 60
BYTES = 260  # tokens of the tokenizer


def make_model(seed=0, **overrides):
    """Return a tiny model with biases and norms away from their initial values."""
    fields = {
        **{"vocab_size": VOCAB_SIZE, "d_model": 24, "encoder_layers": 2, "decoder_layers": 3},
        **{"encoder_attention_heads": 3, "encoder_ffn_dim": 40, "max_position_embeddings": 50},
    }
    torch.manual_seed(seed)
    return perturb(VanillaTransformerForConditionalGeneration(tiny_config(**fields | overrides)))


def make_batch(seed=1):
    torch.manual_seed(seed)
    source = torch.randint(4, VOCAB_SIZE, (4, 11))
    mask = torch.ones_like(source)
    for row, length in enumerate((11, 7, 3, 9)):
        source[row, length:] = 0
        mask[row, length:] = 0
    return source, mask, torch.randint(4, VOCAB_SIZE, (4, 8))


SENTENCES = ["a dog", "", "two men run on the beach", "x", "a dog and a cat and a dog"]


def taught(model):
    """Train the model until it nearly reverses sequences, so that its outputs end."""
    torch.manual_seed(0)  # for dropout, whatever ran before
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(150):
        source = torch.randint(10, 50, (32, 7), generator=generator)
        source[:, -1] = 2
        loss = model(source, labels=source.flip(1).roll(-1, 1)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def save(folder, *, teach=False, **overrides):
    """Write a run directory; return it, its model and its tokenizer."""
    tokenizer = byte_tokenizer()
    model = make_model(**{"vocab_size": BYTES, **overrides})
    if teach:
        taught(model)
    model.save_pretrained(folder / "run")
    tokenizer.save_pretrained(folder / "run")
    return folder / "run", model, tokenizer


def sequences(count=24):
    """Return sources like those trained on, of two lengths, and their mask."""
    torch.manual_seed(3)
    source = torch.randint(10, 50, (count, 7))
    source[:, -1] = 2
    mask = torch.ones_like(source)
    source[::2, -2], source[::2, -1], mask[::2, -1] = 2, 0, 0
    return source, mask


def batch_of(model):
    source, mask, target = make_batch()
    target[:, 0] = model.config.decoder_start_token_id
    return source, mask, target


def require(name):
    """Skip the test if the packages of an engine are not installed."""
    onnx = ["onnxruntime", "onnxscript"]
    packages = {"ctranslate2": ["ctranslate2"], "onnx": onnx, "web": onnx}
    for package in packages.get(name, []):
        pytest.importorskip(package, reason="comes with an extra")


def in_ctranslate2(output, source, mask, **options):
    """Return a translator of CTranslate2, its tokens of the sources, and all of the targets."""
    import ctranslate2

    from vanilla_transformer.convert.exporters.ctranslate2 import source_rows, written_vocabularies
    from vanilla_transformer.convert.verification import Probe

    sources, targets = written_vocabularies(output)
    rows = source_rows(Probe(source, mask, source), sources)
    return ctranslate2.Translator(str(output), **options), rows, targets


def decoded_by_ctranslate2(output, source, mask, **options):
    """Return CTranslate2's translations as ids, up to the end symbol, without the start symbol."""
    translator, rows, targets = in_ctranslate2(output, source, mask)
    options |= {"min_decoding_length": 0, "max_input_length": 0, "return_end_token": True}
    results = translator.translate_batch(rows, **options)
    return [[targets.index(token) for token in result.hypotheses[0]] for result in results]


def scored_by_ctranslate2(output, source, mask, target):
    """Return CTranslate2's log-probabilities of the targets' tokens after the start symbol."""
    # In float32, so that only the rounding of weights counts: on processors without VNNI, oneDNN's
    # int8 sums overflow 16 bits, whatever was exported.
    translator, rows, targets = in_ctranslate2(output, source, mask, compute_type="float32")
    expected = [[targets[number] for number in row] for row in target[:, 1:]]
    scored = translator.score_batch(rows, expected)
    return torch.tensor([result.log_probs[:-1] for result in scored])
