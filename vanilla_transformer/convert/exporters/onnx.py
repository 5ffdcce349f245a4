"""Export to ONNX, for ONNX Runtime and many other engines: an encoder and a decoder graph.

Files, names and configuration are those that Optimum and Transformers.js read. The decoder is one
graph for the first step and for all others: it projects the source's states that have no keys and
values yet, which are all of them in the first step and none later.

Shapes: B sources, S source length, K positions of the source with keys and values, P earlier and T
new target tokens, h heads, d_k and d_v widths of a head's keys and values, V vocabulary. All
lengths are dynamic.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx_ir
import onnxruntime
import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache

from ...modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration as Model
from ...storage.reading import StrPath
from ..marian_names import marian_config, other_head_widths
from ..verification import check_equal, check_exportable, log_probabilities, probe
from .source import bounded_generation_config, export_tokenizer, load_source, write_export

ENCODER, DECODER = "onnx/encoder_model.onnx", "onnx/decoder_model_merged.onnx"  # as in Optimum
OPSET = 18
# Bytes. The limit of protobuf is 2 GiB; larger weights go into a second file.
LARGEST_FILE = 1_500_000_000
FORBIDDEN = torch.finfo(torch.float32).min  # -inf would give NaN if a source is all padding


class EncoderGraph(nn.Module):
    """The encoder, as the graph of `encoder_model.onnx`."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.encoder = model.model.encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Map source ids and mask, (B, S), to the encoder's output, (B, S, d)."""
        x = self.encoder.embed(input_ids, None, attention_mask)
        mask = _additive(attention_mask)
        for layer in self.encoder.layers:
            x = layer(x, mask)
        return cast("Tensor", self.encoder.norm(x))


class DecoderGraph(nn.Module):
    """The decoder with its output projection, as the graph of `decoder_model_merged.onnx`."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.decoder, self.lm_head = model.model.decoder, model.lm_head

    def forward(
        self,
        input_ids: Tensor,
        encoder_attention_mask: Tensor,
        encoder_hidden_states: Tensor,
        past: list[Tensor],
    ) -> tuple[Tensor, ...]:
        """Map target ids, (B, T), to logits, (B, T, V), and the extended keys and values.

        `past` has four tensors a layer: keys and values of the target, (B, h, P, .), then those of
        the source, (B, h, K, .), where K is 0 or S.
        """
        past_length, length = past[0].size(2), input_ids.size(1)
        x = self.decoder.embed(input_ids, None, None, past_length)
        positions = torch.arange(past_length + length, device=x.device)
        later = positions[None, :] > positions[past_length:, None]  # (T, P + T)
        mask = _additive(~later[None])
        memory_mask = _additive(encoder_attention_mask)
        new_states = encoder_hidden_states[:, past[2].size(2) :]
        pairs = [*zip(past[::2], past[1::2], strict=True)]
        own, cross = DynamicCache(pairs[::2]), DynamicCache(pairs[1::2])
        cache = EncoderDecoderCache(own, cross)
        for index, layer in enumerate(self.decoder.layers):
            cross.update(*layer.cross_attn.keys_and_values(new_states, None), index)
            x = layer(x, mask, None, memory_mask, past=(cache, index))
        both = zip(own.layers, cross.layers, strict=True)
        grown: list[Any] = [side for sides in both for side in sides]
        # With a 2-D input the exporter reuses the tied embedding; with a 3-D input it would store a
        # transposed copy as well.
        logits = self.lm_head(self.decoder.norm(x).flatten(0, 1)).unflatten(0, input_ids.shape)
        return (logits, *(part for side in grown for part in (side.keys, side.values)))


def _additive(allowed: Tensor) -> Tensor:
    """Convert a mask, True to attend, (B, L) or (1, T, L), to an additive one, (., 1, ., L)."""
    allowed = allowed[:, None, None, :] if allowed.dim() == 2 else allowed[:, None]
    return torch.where(allowed.bool(), 0.0, FORBIDDEN)


def export_onnx(model_dir: StrPath, output_dir: StrPath) -> Path:
    """Write a saved model as the graphs of an encoder and a decoder, in float32.

    Before their folder appears, ONNX Runtime runs the graphs, and their log-probabilities are
    compared with the model's: for half a target at once, and then token by token, as in a search.

    Arguments and result are as for `write_export`.

    Raises:
        ValueError: A directory is unsuitable, the model has tensors of other modules (such as
            adapters) or heads of other widths than d_model / h, or the export differs from it.
    """

    def write(source: Path, folder: Path) -> str:
        return write_onnx(load_source(source, dtype=torch.float32), source, folder)

    return write_export(model_dir, output_dir, "ONNX", write)


def write_onnx(model: Model, source: Path, folder: Path, *, half: bool = False) -> str:
    """Write a model in float32 and its tokenizer, and compare the written graphs with the model.

    Args:
        model: The model.
        source: Directory with its tokenizer.
        folder: Directory to create.
        half: Whether to store weights in float16 where that is exact.

    Returns:
        The largest difference of log-probabilities, for the log.

    Raises:
        ValueError: The model has tensors of other modules, or the export differs from it.
    """
    # Optimum and Transformers.js take the sizes of keys and values from Marian's configuration.
    check_exportable(model, name="ONNX", obstacles=other_head_widths(model.config))
    model.set_attn_implementation("eager")
    (folder / ENCODER).parent.mkdir(parents=True)
    write_graphs(model, folder, half=half)
    marian = marian_config(model.config)  # the graphs alone define the computation
    marian.architectures = ["MarianMTModel"]
    marian.save_pretrained(folder)
    bounded_generation_config(model).save_pretrained(folder)
    export_tokenizer(source, folder)
    return f"at most {_verify(model, folder):.1e}"


def write_graphs(model: Model, folder: Path, *, half: bool = False) -> None:
    """Trace the encoder and the decoder with dynamic lengths, and write their graphs."""
    batch, past, new, length, kept = (
        torch.export.Dim(name) for name in ("batch", "past", "new", "source", "kept")
    )
    layers, heads = model.config.decoder_layers, model.config.decoder_attention_heads
    d_k, d_v = model.config.head_dims(heads)
    # All sizes differ, and none is 0 or 1, which tracing would take for constants.
    sizes = ((5, d_k), (5, d_v), (3, d_k), (3, d_v)) * layers
    earlier = [torch.randn(2, heads, *size) for size in sizes]
    grown = ({0: batch, 2: past}, {0: batch, 2: past}, {0: batch, 2: kept}, {0: batch, 2: kept})
    ids, mask = torch.zeros(2, 7, dtype=torch.long), torch.ones(2, 7, dtype=torch.long)
    rows = {0: batch, 1: length}
    _write_graph(
        EncoderGraph(model),
        {"input_ids": (ids, rows), "attention_mask": (mask, rows)},
        folder / ENCODER,
        half=half,
        outputs=["last_hidden_state"],
    )
    _write_graph(
        DecoderGraph(model),
        {
            "input_ids": (torch.zeros(2, 4, dtype=torch.long), {0: batch, 1: new}),
            "encoder_attention_mask": (mask, rows),
            "encoder_hidden_states": (torch.randn(2, 7, model.config.d_model), rows),
            "past": (earlier, [*grown * layers]),
        },
        folder / DECODER,
        half=half,
        past=tensor_names(layers, "past_key_values"),
        outputs=["logits", *tensor_names(layers, "present")],
    )


def _write_graph(
    graph: nn.Module,
    inputs: dict[str, tuple[object, object]],
    path: Path,
    *,
    half: bool,
    past: Sequence[str] = (),
    outputs: list[str],
) -> None:
    """Trace and write a graph; `inputs` maps names to example tensors and dynamic sizes."""
    size = sum(weight.numel() * weight.element_size() for weight in graph.parameters())
    # Ignore warnings about names of axes and the exporter's own deprecated calls.
    with torch.inference_mode(), warnings.catch_warnings(action="ignore"):
        program = torch.onnx.export(
            graph.eval(),
            kwargs={name: example for name, (example, _) in inputs.items()},
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            dynamic_shapes={name: sizes for name, (_, sizes) in inputs.items()},
            input_names=[*(name for name in inputs if name != "past"), *past],
            output_names=outputs,
        )
    assert program is not None  # None only without `dynamo`
    _read_batch_from_ids(program.model)
    if half:
        _store_in_half(program.model.graph)
    # The source locations of the nodes take more bytes than the weights of a small model.
    ClearMetadataAndDocStringPass()(program.model)
    program.save(path, external_data=size > LARGEST_FILE)


def _read_batch_from_ids(graph: onnx_ir.Model) -> None:
    """Make a graph read the batch size from the ids: Transformers.js's empty cache has 0 rows."""
    inputs = graph.graph.inputs
    for node in graph.graph:
        start = node.attributes.get("start")
        if node.op_type == "Shape" and (start is None or start.as_int() == 0):
            assert node.attributes["end"].as_int() == 1, "the size of the batch"
            node.replace_input_with(0, inputs[0])


def _store_in_half(graph: onnx_ir.Graph) -> None:
    """Store weights in float16 if that loses nothing; the graph casts them to float32."""
    for name, weight in list(graph.initializers.items()):
        assert weight.const_value is not None
        values = weight.const_value.numpy()
        with np.errstate(over="ignore"):
            stored = values.astype(np.float16)
        if values.ndim == 0 or values.dtype != np.float32 or (stored != values).any():
            continue
        del graph.initializers[name]
        half = onnx_ir.val(f"{name}_half", const_value=onnx_ir.tensor(stored))
        graph.register_initializer(half)
        cast = onnx_ir.node("Cast", [half], {"to": onnx_ir.DataType.FLOAT})
        weight.replace_all_uses_with(cast.outputs[0])
        graph.insert_before(graph[0], cast)


def tensor_names(num_layers: int, prefix: str) -> list[str]:
    """Return the names of the decoder's cached keys and values, four for each layer.

    Args:
        num_layers: Layers of the decoder.
        prefix: "past_key_values" for inputs, "present" for outputs.
    """
    return [
        f"{prefix}.{layer}.{stack}.{part}"
        for layer in range(num_layers)
        for stack in ("decoder", "encoder")
        for part in ("key", "value")
    ]


class WrittenGraphs:
    """The graphs of an export, run by ONNX Runtime on the CPU."""

    def __init__(self, folder: Path) -> None:
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(str(folder / name), providers=["CPUExecutionProvider"])
            for name in (ENCODER, DECODER)
        )
        shapes = {each.name: each.shape for each in self.decoder.get_inputs()}
        self.past = {name: size for name, size in shapes.items() if name.startswith("past")}

    def encode(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Map source ids and their mask, (B, S), to the encoder's output, (B, S, d)."""
        feeds = {"input_ids": input_ids.numpy(), "attention_mask": attention_mask.numpy()}
        return torch.from_numpy(self.encoder.run(None, feeds)[0])

    def decode(
        self, input_ids: Tensor, attention_mask: Tensor, states: Tensor, past: list[Any] | None
    ) -> tuple[Tensor, list[Any]]:
        """Map target ids to logits, (B, T, V), and the extended keys and values.

        Args:
            input_ids: Target ids that follow the past, (B, T).
            attention_mask: The source's mask, (B, S).
            states: The encoder's output, (B, S, d).
            past: Keys and values as `tensor_names` orders them. None means no earlier tokens.
        """
        if past is None:
            sizes = [(len(input_ids), heads, 0, width) for _, heads, _, width in self.past.values()]
            past = [np.zeros(size, np.float32) for size in sizes]
        feeds = {
            "input_ids": input_ids.numpy(),
            "encoder_attention_mask": attention_mask.numpy(),
            "encoder_hidden_states": states.numpy(),
        }
        logits, *present = self.decoder.run(None, feeds | dict(zip(self.past, past, strict=True)))
        return torch.from_numpy(logits), present


def _verify(model: Model, written: Path) -> float:
    """Return the largest difference between the log-probabilities of the graphs and the model."""
    graphs, sentences = WrittenGraphs(written), probe(model.config)
    expected = log_probabilities(model, sentences)
    states = graphs.encode(sentences.source, sentences.mask)
    past, found = None, []
    # Decode the first half at once, as with a prefix, and then token by token.
    length = sentences.target.size(1)
    for piece in sentences.target.tensor_split([*range(1 + length // 2, length)], dim=1):
        logits, past = graphs.decode(piece.contiguous(), sentences.mask, states, past)
        found.append(logits.log_softmax(-1))
    return check_equal(torch.cat(found, dim=1) - expected, name="ONNX")
