"""The export to ONNX, tested with ONNX Runtime itself: pip install '.[export]'."""

import numpy as np
import pytest
import torch
from tiny_exports import BYTES, batch_of, save
from transformers import AutoConfig

onnx = pytest.importorskip("onnx", reason="comes with the extra export")
pytest.importorskip("onnxruntime", reason="comes with the extra export")
pytest.importorskip("onnxscript", reason="comes with the extra export")

# After the checks above, which skip this file where these imports would fail.
from vanilla_transformer.convert.exporters.onnx import WrittenGraphs, export_onnx  # noqa: E402

VARIANTS = {
    "untied": {"tie_word_embeddings": False},
    "norm_first": {"norm_first": True},
    "learned": {"position_encoding": "learned"},
    "tensor2tensor": {"position_encoding": "tensor2tensor"},
    "others": {
        **{"final_norm": True, "position_offset": 2, "lm_head_bias": True},
        **{"share_encoder_decoder_embeddings": False, "activation_function": "gelu"},
    },
}


def logits_of(model, source, mask, target):
    with torch.no_grad():
        return model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits


def logits_of_graphs(graphs, source, mask, target):
    return graphs.decode(target, mask, graphs.encode(source, mask), None)[0]


def test_logits_are_equal_at_any_length_and_with_padding_on_either_side(reverser):
    """Use lengths of 1 and more, other than those that were traced."""
    _, model, _, output = reverser
    source, mask, target = batch_of(model)
    batches = [(source, mask, target), (source.flip(1), mask.flip(1), target)]
    torch.manual_seed(0)
    for count, source_length, target_length in ((1, 1, 1), (3, 40, 2), (2, 7, 30)):
        source = torch.randint(4, BYTES, (count, source_length))
        target = torch.randint(4, BYTES, (count, target_length))
        batches.append((source, torch.ones_like(source), target))
    graphs = WrittenGraphs(output)
    for batch in batches:
        found, expected = logits_of_graphs(graphs, *batch), logits_of(model, *batch)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)


def test_onnx_decoder_continues_from_any_past(reverser):
    _, model, _, output = reverser
    graphs = WrittenGraphs(output)
    source, mask, target = batch_of(model)
    whole = logits_of(model, source, mask, target)
    for cuts in ([1] * 8, [3, 1, 4], [8]):
        states = graphs.encode(source, mask)
        assert states.shape == (*source.shape, model.config.d_model)
        past, pieces = None, []
        for piece in target.split(cuts, dim=1):
            logits, past = graphs.decode(piece, mask, states, past)
            pieces.append(logits)
        torch.testing.assert_close(torch.cat(pieces, 1), whole, atol=1e-4, rtol=1e-5)
        assert past[0].shape[2] == target.size(1)


def test_other_tools_find_what_they_feed(reverser):
    """Optimum begins with a past of no positions, Transformers.js with one of no sentences too."""
    _, model, _, output = reverser
    config = AutoConfig.from_pretrained(output)  # of a model that they know
    assert config.model_type == "marian"
    size = config.d_model // config.decoder_attention_heads
    graphs = WrittenGraphs(output)
    source, mask, target = batch_of(model)
    states = graphs.encode(source, mask)
    for sentences in (len(source), 0):
        nothing = np.zeros((sentences, config.decoder_attention_heads, 0, size), np.float32)
        logits, past = graphs.decode(target, mask, states, [nothing] * 4 * config.decoder_layers)
        expected = logits_of(model, source, mask, target)
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-5)
        assert [part.shape[2] for part in past[:4]] == [target.size(1)] * 2 + [source.size(1)] * 2


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_onnx_exports_every_variant(tmp_path, variant):
    run, model, _ = save(tmp_path, encoder_layers=1, decoder_layers=2, **VARIANTS[variant])
    graphs = WrittenGraphs(export_onnx(run, tmp_path / "out"))
    inputs = batch_of(model)
    found, expected = logits_of_graphs(graphs, *inputs), logits_of(model, *inputs)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)
