"""Export to CTranslate2, a C++ engine that decodes fast on CPU and GPU.

Importing this module registers the model with CTranslate2's converter of Transformers models, which
`export_ctranslate2` calls; `TransformersConverter(DIR).convert(OUT)` then works too.

CTranslate2 can represent every configuration with one end-of-sentence id. Positions become a table
of `max_position_embeddings` rows. If d_k and d_v differ, heads are padded with zeros, which changes
no result. The model is copied, because the converter quantizes in place.
"""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import ctranslate2
import torch
from ctranslate2.converters import TransformersConverter
from ctranslate2.converters.transformers import ModelLoader, register_loader
from ctranslate2.specs import Activation, transformer_spec
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ...errors import RequestError
from ...fast.shortlist import Shortlist, read_shortlist
from ...modeling_vanilla_transformer import Decoder, Encoder, Layer, MultiHeadAttention
from ...modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration as Model
from ...search_settings import settings_of_other_searches
from ...storage.reading import StrPath
from ...storage.saved_model import SHORTLIST
from ...target_tokenizer import TARGET_TOKENIZER, target_tokenizer
from ..verification import Probe, check_equal, check_exportable, log_probabilities, probe
from .source import bounded_generation_config, export_tokenizer, load_source, write_export

ACTIVATIONS = {
    "relu": Activation.RELU,  # Eq. 2
    "gelu": Activation.GELU,
    "gelu_new": Activation.GELUTanh,
    "swish": Activation.SWISH,
    "tanh": Activation.Tanh,
}


@register_loader("VanillaTransformerConfig")
class VanillaTransformerLoader(ModelLoader):
    """The converter from our model to CTranslate2's specification."""

    architecture_name = "AutoModelForSeq2SeqLM"  # transformers' class that loads the model

    def get_model_spec(self, model: Model) -> transformer_spec.TransformerSpec:
        """Return CTranslate2's specification with every weight of the model.

        Raises:
            ValueError: CTranslate2 cannot represent the model.
        """
        check_exportable(model, name="CTranslate2", obstacles=_obstacles(model))
        model = cast("Any", copy.deepcopy(model)).to("cpu", torch.float32)
        config = model.config
        activation = ACTIVATIONS[config.activation_function]
        encoder = transformer_spec.TransformerEncoderSpec(
            config.encoder_layers, config.encoder_attention_heads, activation=activation
        )
        decoder = transformer_spec.TransformerDecoderSpec(
            config.decoder_layers, config.decoder_attention_heads, activation=activation
        )
        self._set_stack(encoder, encoder.embeddings[0], model.model.encoder)
        self._set_stack(decoder, decoder.embeddings, model.model.decoder)
        for layer_spec, layer in zip(decoder.layer, model.model.decoder.layers, strict=True):
            _set_attention(layer_spec.attention, layer.cross_attn)
            self.set_layer_norm(layer_spec.attention.layer_norm, layer.cross_attn_norm)
        self.set_linear(decoder.projection, model.lm_head)
        return transformer_spec.TransformerSpec(encoder, decoder)

    def _set_stack(self, spec: Any, embeddings: Any, stack: Encoder | Decoder) -> None:
        """Set the parts of either stack: embeddings, positions, layers, and a final norm if any.

        CTranslate2's pre_norm is our norm_first; either value allows a final norm.
        """
        config = stack.config
        spec.pre_norm = config.norm_first
        final_norm = getattr(stack, "norm", None)
        if isinstance(final_norm, nn.LayerNorm):
            self.set_layer_norm(spec.layer_norm, final_norm)
        else:
            del spec.layer_norm
        spec.scale_embeddings = True  # Section 3.4: by sqrt(d_model)
        embeddings.weight = stack.embed_tokens.weight
        spec.position_encodings.encodings = position_table(stack)
        for layer_spec, layer in zip(spec.layer, cast("list[Layer]", stack.layers), strict=True):
            _set_attention(layer_spec.self_attention, layer.self_attn)
            self.set_layer_norm(layer_spec.self_attention.layer_norm, layer.self_attn_norm)
            self.set_linear(layer_spec.ffn.linear_0, layer.feed_forward.fc1)
            self.set_linear(layer_spec.ffn.linear_1, layer.feed_forward.fc2)
            self.set_layer_norm(layer_spec.ffn.layer_norm, layer.feed_forward_norm)

    def get_vocabulary(
        self, model: Model, tokenizer: PreTrainedTokenizerBase
    ) -> tuple[list[str], list[str]]:
        """Return a token for each row of the source's and of the target's embeddings.

        A separate target vocabulary without a target tokenizer gets made-up tokens.
        """
        config = model.config
        source = vocabulary(tokenizer, config.vocab_size)
        if TARGET_TOKENIZER in tokenizer.init_kwargs:
            return source, vocabulary(target_tokenizer(tokenizer), config.target_vocab_size)
        if config.target_vocab_size == config.vocab_size:
            return source, source
        return source, [f"<target {number}>" for number in range(config.target_vocab_size)]

    def set_vocabulary(self, spec: Any, tokens: tuple[list[str], list[str]]) -> None:
        """Register both vocabularies; equal ones are saved as one (Section 5.1)."""
        spec.register_source_vocabulary(tokens[0])
        spec.register_target_vocabulary(tokens[1])

    def set_config(self, config: Any, model: Model, tokenizer: PreTrainedTokenizerBase) -> None:
        """Set the special tokens and other settings that CTranslate2 reads besides the weights."""
        _, tokens = self.get_vocabulary(model, tokenizer)
        ours, eos = model.config, model.config.eos_token_id
        config.decoder_start_token = tokens[_first(ours.decoder_start_token_id)]
        config.eos_token = tokens[_first(*(eos if isinstance(eos, list) else [eos]))]
        # If the model lacks one of these, use a token that occurs in no text.
        config.bos_token = tokens[_first(ours.bos_token_id, ours.decoder_start_token_id)]
        config.unk_token = tokens[_first(ours.unk_token_id, ours.pad_token_id)]
        config.layer_norm_epsilon = float(ours.layer_norm_eps)
        config.add_attribute("max_position_embeddings", ours.max_position_embeddings)


def position_table(stack: Encoder | Decoder) -> Tensor:
    """Return a stack's positional encodings, (max_position_embeddings, d), float32."""
    config = stack.config
    shape = (1, config.max_position_embeddings, config.d_model)
    with torch.inference_mode():
        table = stack.embed_positions(torch.empty(shape), None, 0)
    return table.view(shape[1:])


def _set_attention(spec: Any, attention: MultiHeadAttention) -> None:
    """Set an attention module's projections, with heads padded to max(d_k, d_v)."""
    heads, width = attention.num_heads, max(attention.d_k, attention.d_v)
    *inputs, output = spec.linear
    parts = [attention.q_proj, attention.k_proj, attention.v_proj]
    # CTranslate2 fuses Q, K and V of self-attention, and K and V of cross-attention.
    joined = [parts] if len(inputs) == 1 else [parts[:1], parts[1:]]
    for linear, projections in zip(inputs, joined, strict=True):
        linear.weight = torch.cat([_widen(part.weight, heads, width) for part in projections])
        linear.bias = torch.cat([_widen(part.bias, heads, width) for part in projections])
    output.weight = _widen(attention.out_proj.weight.T, heads, width).T.contiguous()
    output.bias = attention.out_proj.bias
    spec.queries_scale = attention.scaling  # from d_k, even if the heads were padded


def _widen(tensor: Tensor, num_heads: int, width: int) -> Tensor:
    """Append zeros to each head's rows: (h * d_head, ...) -> (h * width, ...)."""
    heads = tensor.view(num_heads, -1, *tensor.shape[1:])
    wide = heads.new_zeros(num_heads, width, *tensor.shape[1:])
    wide[:, : heads.size(1)] = heads
    return wide.flatten(0, 1)


def vocabulary(tokenizer: PreTrainedTokenizerBase, size: int) -> list[str]:
    """Return the tokens in order of id; ids without a token get a placeholder.

    Raises:
        ValueError: The tokenizer has ids that the model lacks.
    """
    tokens = [f"<unused {number}>" for number in range(size)]
    for token, number in tokenizer.get_vocab().items():
        if number >= size:
            raise RequestError(f"Token {token!r} has id {number}; the model has {size} embeddings.")
        tokens[number] = token
    return tokens


def export_ctranslate2(
    model_dir: StrPath, output_dir: StrPath, *, quantization: str = "float32"
) -> Path:
    """Write a saved model as a directory that `ctranslate2.Translator` loads.

    The export is loaded and compared with the model before its folder appears: in float32, to 1e-4
    in the log-probability of each token. Only then are the weights rounded to `quantization`.

    Args:
        model_dir: As for `write_export`.
        output_dir: As for `write_export`.
        quantization: Type of the stored weights, as `ctranslate2` names it.

    Returns:
        `output_dir` as a path.

    Raises:
        ValueError: A directory is unsuitable, CTranslate2 cannot represent the model, or the
            export differs from it.
    """

    def write(source: Path, folder: Path) -> str:
        model = load_source(source, dtype=torch.float32)
        converter = TransformersConverter(str(source))
        # Convert this model instead of loading the class that the config names.
        converter.load_model = lambda *_, **__: model
        converter.convert(str(folder), force=True)
        difference = f"at most {_largest_difference(model, folder):.1e}"
        if quantization != "float32":
            converter.convert(str(folder), quantization=quantization, force=True)
            difference += f" before CTranslate2 rounded the weights to {quantization}"
        if (source / SHORTLIST).is_file():
            _write_vmap(read_shortlist(source)[0], folder)
        bounded_generation_config(model).save_pretrained(folder)
        export_tokenizer(source, folder)
        return difference

    return write_export(model_dir, output_dir, "a CTranslate2 model", write)


def _write_vmap(shortlist: Shortlist, folder: Path) -> None:
    """Write a shortlist as CTranslate2's vmap.txt; a line is a source piece, a tab, target pieces.

    A line without a source piece has the usual pieces, which any translation may have. Id 0, <pad>,
    only fills the shortlist's rows and is left out: with it, CTranslate2 4.8.5 may miss the end of
    a sentence.
    """
    source, target = written_vocabularies(folder)
    rows = zip(["", *source], [shortlist.usual, *shortlist.likely], strict=True)
    lines = [f"{piece}\t{' '.join(target[n] for n in row if n)}\n" for piece, row in rows]
    (folder / "vmap.txt").write_text("".join(lines), encoding="utf-8")


def _largest_difference(model: Model, written: Path) -> float:
    """Return the largest difference between the log-probabilities of the export and the model."""
    translator = ctranslate2.Translator(str(written), compute_type="float32")
    source_tokens, target_tokens = written_vocabularies(written)
    sentences = probe(model.config)
    sources = source_rows(sentences, source_tokens)
    targets = [[target_tokens[number] for number in row] for row in sentences.target[:, 1:]]
    scored = translator.score_batch(sources, targets, max_input_length=0)
    # CTranslate2 adds the end symbol, so the last score of each row is dropped.
    found = torch.tensor([result.log_probs[:-1] for result in scored])
    following = sentences.target[:, 1:, None]
    expected = log_probabilities(model, sentences)[:, :-1].gather(2, following).squeeze(2)
    return check_equal(found - expected, name="CTranslate2 model")


def written_vocabularies(folder: Path) -> tuple[list[str], list[str]]:
    """Read the source and target vocabularies of an export; it may have one file for both."""
    shared = folder / "shared_vocabulary.json"
    paths = [folder / f"{side}_vocabulary.json" for side in ("source", "target")]
    found = [shared, shared] if shared.is_file() else paths
    source, target = (json.loads(path.read_text(encoding="utf-8")) for path in found)
    return source, target


def source_rows(sentences: Probe, tokens: list[str]) -> list[list[str]]:
    """Return the sources without padding, as tokens of CTranslate2's source vocabulary."""
    pairs = zip(sentences.source, sentences.mask, strict=True)
    return [[tokens[number] for number in row[mask == 1]] for row, mask in pairs]


def _obstacles(model: Model) -> Iterator[str]:
    """Yield the model's settings that CTranslate2 cannot represent."""
    search = model.generation_config
    for eos in (model.config.eos_token_id, search.eos_token_id or model.config.eos_token_id):
        if eos is None or (isinstance(eos, list) and len(eos) != 1):
            yield f"eos_token_id={eos}; give exactly one id"
            break
    for name in settings_of_other_searches(search):
        if name != "bad_words_ids":
            yield f"{name}={getattr(search, name)} in its generation config; leave it out"


def _first(*ids: int | None) -> int:
    return next(number for number in ids if number is not None)
