"""Engines that decode with exported models instead of PyTorch: CTranslate2 and ONNX Runtime.

`translate(load_engine("ctranslate2", DIR), tokenizer, sentences)` tokenizes, batches and orders as
it does for the model itself.

B batch, S source length, n hypotheses per source, T target length.
"""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TypedDict

import torch
from torch import Tensor
from transformers import GenerationConfig, MarianConfig
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from ..batch_translation import SourceLengthLimit
from ..configuration_vanilla_transformer import VanillaTransformerConfig
from ..errors import RequestError
from ..generation_limits import CACHE, LimitedGenerationMixin
from ..modeling_vanilla_transformer import VanillaTransformerPreTrainedModel
from ..ranges import Range
from ..search_settings import search_settings, settings_of_other_searches
from ..storage.cpu_threads import usable_cores
from ..storage.reading import read_json
from ..storage.saved_model import CONFIG, GENERATION_CONFIG, read_config, read_generation_config
from ..translation.many_texts import pad_ids
from .marian_names import shared_fields

ENCODER, DECODER = "onnx/encoder_model.onnx", "onnx/decoder_model_merged.onnx"  # as Optimum
ENGINES = {"ctranslate2": "model.bin", "onnx": DECODER}  # and a file that identifies an export


def load_engine(name: str, directory: str | Path) -> "CTranslate2Engine | OnnxEngine":
    """Load an exported model, which `translate` accepts instead of a model.

    Beams and length penalty that the export does not set are the paper's, as in `translate`;
    `generate` of a model has transformers' instead, 1 and 1.0.

    Args:
        name: One of `ENGINES`.
        directory: A directory that `export` wrote.

    Raises:
        KeyError: There is no such engine.
        ValueError: The directory lacks a file of its export.
        ImportError: The engine's own package is not installed.
    """
    directory = Path(directory)
    for file in (ENGINES[name], *((ENCODER,) if name == "onnx" else ()), CONFIG, GENERATION_CONFIG):
        if not (directory / file).is_file():
            raise RequestError(
                f"{directory} holds no {file}; export the model into a new folder, and give that: "
                f"vanilla-transformer export {name} RUN OUT."
            )
    return {"ctranslate2": CTranslate2Engine, "onnx": OnnxEngine}[name](directory)


class _Config(TypedDict):
    max_position_embeddings: int


class CTranslate2Engine(torch.nn.Module):
    """A model in CTranslate2's format, with the interface that `translate` needs."""

    device = torch.device("cpu")  # of the ids; the translator may use another one

    def __init__(
        self, directory: str | Path, *, device: str = "cpu", compute_type: str = "default"
    ) -> None:
        """Load the export.

        Args:
            directory: A directory that `export ctranslate2` wrote.
            device: "cpu", "cuda" or "auto".
            compute_type: One of CTranslate2's; "default" computes in the stored weights' type.
        """
        import ctranslate2

        super().__init__()
        directory = Path(directory)
        try:
            self.translator = ctranslate2.Translator(
                str(directory),
                device=device,
                compute_type=compute_type,
                intra_threads=min(torch.get_num_threads(), usable_cores()),
            )
        except RuntimeError as error:
            raise RequestError(f"CTranslate2 does not load {directory}: {error}") from error
        self.source_tokens = read_json(_vocabulary(directory, "source"), list[str])
        self.target_tokens = read_json(_vocabulary(directory, "target"), list[str])
        self.ids = {token: number for number, token in enumerate(self.target_tokens)}
        self.generation_config = _search_settings(directory)
        if unsupported := unsupported_settings(self.generation_config):
            names = ", ".join(unsupported)
            raise RequestError(f"{directory / GENERATION_CONFIG} has {names}; leave them out.")
        self.longest = read_json(directory / CONFIG, _Config)["max_position_embeddings"]
        # The export has a table of positions, whatever encoding the model has.
        self.config = SimpleNamespace(
            position_encoding="learned", max_position_embeddings=self.longest
        )

    def generate(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        *,
        num_beams: int | None = None,
        length_penalty: float | None = None,
        early_stopping: bool | None = None,
        num_return_sequences: int | None = None,
        max_new_tokens: int | None = None,
        max_length: int | None = None,
        stopping_criteria: Sequence[SourceLengthLimit] = (),
    ) -> Tensor:
        """Decode one batch, with arguments of the model's own `generate`.

        CTranslate2 takes one length limit per batch. Translations that exceed their own limit are
        decoded again, together with others of the same limit.

        Args:
            input_ids: Source ids, (B, S).
            attention_mask: 1 at tokens and 0 at padding, (B, S).
            num_beams: Beam size. None means the generation config's.
            length_penalty: Alpha in the score log P / L^alpha. None means the generation config's.
            early_stopping: None or True. CTranslate2 always searches as with True, its only rule.
            num_return_sequences: n. None means 1.
            max_new_tokens: Maximum number of tokens in a translation, including the end symbol.
                None means the generation config's.
            max_length: The same, but counting the start symbol too.
            stopping_criteria: Length limits per source; other criteria are not supported.

        Returns:
            Target ids with the start symbol, padded on the right, (B * n, T).
        """
        if early_stopping in (False, "never"):  # transformers' name for the same
            raise RequestError(
                f"Got early_stopping={early_stopping}, a rule that CTranslate2 does not have; "
                "leave it out, or translate with the model itself."
            )
        config = self.generation_config
        if max_new_tokens is None:
            bound = config.max_new_tokens or self.longest
            max_new_tokens = bound if max_length is None else max_length - 1
        Range(1).check(max_new_tokens=max_new_tokens)
        limits = torch.full((len(input_ids),), min(max_new_tokens, self.longest))
        for criterion in stopping_criteria:
            limits = limits.minimum(criterion.limits)
        rows = self._tokens(input_ids, attention_mask)
        search = search_settings(
            config,
            num_beams=num_beams,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            num_return_sequences=num_return_sequences,
        )
        options = {
            "beam_size": search.num_beams,
            "length_penalty": search.length_penalty,
            "num_hypotheses": search.num_return_sequences,
            "suppress_sequences": [
                [self.target_tokens[number] for number in ids] for ids in never_produced(config)
            ],
        }
        found = self._within(rows, limits.tolist(), options)
        start = [config.decoder_start_token_id]
        flat = [start + hypothesis for hypotheses in found for hypothesis in hypotheses]
        return pad_ids(flat, config.pad_token_id)[0]

    def _within(
        self, rows: list[list[str]], limits: list[int], options: dict[str, object]
    ) -> list[list[list[int]]]:
        """Return the hypotheses of each source, none longer than its own limit."""
        found = self._decode(rows, max(limits), options)
        for limit in sorted(set(limits)):
            over = [
                index
                for index, hypotheses in enumerate(found)
                if limits[index] == limit and max(map(len, hypotheses)) > limit
            ]
            again = self._decode([rows[index] for index in over], limit, options)
            for index, hypotheses in zip(over, again, strict=True):
                found[index] = hypotheses
        return found

    def score_ids(self, input_ids: Tensor, attention_mask: Tensor, target: Tensor) -> Tensor:
        """Return the log-probabilities of the targets' tokens after the start symbol.

        Args:
            input_ids: Source ids, (B, S).
            attention_mask: 1 at tokens and 0 at padding, (B, S).
            target: Target ids with the start symbol, all of one length, (B, T).

        Returns:
            Log-probabilities of every token but the first, (B, T - 1), in nats.
        """
        scored = self.translator.score_batch(
            self._tokens(input_ids, attention_mask),
            [[self.target_tokens[number] for number in row] for row in target[:, 1:].tolist()],
            max_input_length=0,  # the default silently truncates long sentences
        )
        # CTranslate2 adds the end symbol, so the last score of each row is dropped.
        return torch.tensor([result.log_probs[:-1] for result in scored])

    def _tokens(self, input_ids: Tensor, attention_mask: Tensor) -> list[list[str]]:
        """Return the rows without padding, as tokens of CTranslate2's source vocabulary."""
        pairs = zip(input_ids.tolist(), attention_mask.tolist(), strict=True)
        return [
            [self.source_tokens[number] for number, token in zip(row, mask, strict=True) if token]
            for row, mask in pairs
        ]

    def _decode(
        self, rows: list[list[str]], limit: int, options: dict[str, object]
    ) -> list[list[list[int]]]:
        """Return the hypotheses of each source, with the end symbol if one was produced."""
        if not rows:
            return []
        results = self.translator.translate_batch(
            rows,
            max_decoding_length=limit,
            min_decoding_length=0,  # the default excludes empty translations
            max_input_length=0,  # the default silently truncates long sentences
            return_end_token=True,
            **options,
        )
        return [
            [[self.ids[token] for token in hypothesis] for hypothesis in result.hypotheses]
            for result in results
        ]


def unsupported_settings(config: GenerationConfig) -> list[str]:
    """Return the names of a generation config's settings that CTranslate2's search lacks."""
    return [name for name in settings_of_other_searches(config) if name != "bad_words_ids"]


def never_produced(config: GenerationConfig) -> list[list[int]]:
    """Return the sequences of ids that decoding excludes; most consist of one id."""
    single = [[number] for number in config.suppress_tokens or ()]
    return [*single, *(ids for ids in config.bad_words_ids or () if ids not in single)]


def _search_settings(directory: Path) -> GenerationConfig:
    """Read the generation config of an export; what it leaves open is as in the paper's search."""
    config = read_generation_config(directory)
    search = search_settings(config)
    config.num_beams, config.length_penalty = search.num_beams, search.length_penalty
    return config


def _vocabulary(directory: Path, side: str) -> Path:
    """Return the path of a side's vocabulary, which may be one file for both sides."""
    shared = directory / "shared_vocabulary.json"
    return shared if shared.is_file() else directory / f"{side}_vocabulary.json"


def tensor_names(num_layers: int, prefix: str) -> list[str]:
    """Name the tensors with each layer's keys and values in the ONNX decoder, four a layer.

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


class OnnxEngine(VanillaTransformerPreTrainedModel, LimitedGenerationMixin):
    """A model that ONNX Runtime computes; `generate` can use all of its search methods on it."""

    device, dtype = torch.device("cpu"), torch.float32  # of the ids and logits

    def __init__(self, directory: str | Path) -> None:
        """Load an ONNX export. It runs on the CPU with as many threads as torch uses."""
        import onnxruntime

        directory = Path(directory)
        config = read_config(directory)
        if isinstance(config, MarianConfig):  # as other tools know it; the field is our exporter's
            fields = shared_fields(config)
            fields["position_encoding"] = getattr(config, "position_encoding", "sinusoidal")
            config = VanillaTransformerConfig(**fields)
        super().__init__(config)
        self.generation_config = _search_settings(directory)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = min(torch.get_num_threads(), usable_cores())
        self.sessions = {}
        for name in (ENCODER, DECODER):
            try:
                self.sessions[name] = onnxruntime.InferenceSession(
                    str(directory / name), options, providers=["CPUExecutionProvider"]
                )
            except Exception as error:  # its errors share no narrower class
                raise RequestError(f"ONNX Runtime does not load {directory}: {error}") from error
        self.encoder = _OnnxEncoder(self)

    def encode(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Map source ids and their mask, (B, S), to states, (B, S, d)."""
        return self._run(ENCODER, {"input_ids": input_ids, "attention_mask": attention_mask})[0]

    def decode(
        self, input_ids: Tensor, attention_mask: Tensor, states: Tensor, past: list[Tensor] | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Map target ids to logits, (B, T, V), and the past keys and values with the new ones.

        Args:
            input_ids: Target ids that follow the past, (B, T).
            attention_mask: The source's mask, (B, S).
            states: The source's states, (B, S, d).
            past: Keys and values as `tensor_names` orders them. None means no earlier tokens.
        """
        config, heads = self.config, self.config.decoder_attention_heads
        if past is None:
            widths = config.head_dims(heads) * 2 * config.decoder_layers
            past = [states.new_zeros(len(input_ids), heads, 0, width) for width in widths]
        feeds = {"input_ids": input_ids, "encoder_attention_mask": attention_mask}
        feeds["encoder_hidden_states"] = states
        names = tensor_names(config.decoder_layers, "past_key_values")
        logits, *present = self._run(DECODER, feeds | dict(zip(names, past, strict=True)))
        return logits, present

    def _run(self, name: str, feeds: dict[str, Tensor]) -> list[Tensor]:
        arrays = {key: tensor.contiguous().numpy() for key, tensor in feeds.items()}
        return [torch.from_numpy(array) for array in self.sessions[name].run(None, arrays)]

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        attention_mask: Tensor,
        decoder_input_ids: Tensor,
        encoder_outputs: BaseModelOutput | None = None,
        cache: object = None,
        use_cache: bool | None = None,
        past_key_values: object = None,
        return_dict: bool | None = None,
    ) -> Seq2SeqLMOutput:
        """Return next-token logits, (B, T, V), as the model does; `generate` calls this."""
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask)
        cache = past_key_values if cache is None else cache
        if not isinstance(cache, _OnnxCache):
            cache = _OnnxCache()
        logits, cache.past = self.decode(
            decoder_input_ids, attention_mask, encoder_outputs[0], cache.past
        )
        if use_cache is False:  # then `generate` gives the whole prefix each time
            return Seq2SeqLMOutput(logits=logits)
        return Seq2SeqLMOutput(logits=logits, **{CACHE: cache})  # type: ignore[arg-type]  # ours, not a Cache


class _OnnxEncoder(torch.nn.Module):
    """The encoder as `generate` calls it."""

    main_input_name = "input_ids"

    def __init__(self, engine: OnnxEngine) -> None:
        super().__init__()
        self.engine = [engine]  # in a list, or each would be a submodule of the other

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, **outputs: bool | None
    ) -> BaseModelOutput:
        """Return the states; `generate` always says which other outputs it wants."""
        return BaseModelOutput(self.engine[0].encode(input_ids, attention_mask))


class _OnnxCache:
    """Keys and values between two decoding steps."""

    past: list[Tensor] | None = None

    def get_seq_length(self) -> int:
        """Return the number of target tokens so far."""
        return 0 if self.past is None else self.past[0].size(2)

    def reorder_cache(self, beams: Tensor) -> None:
        """Make each row continue from row `beams[row]`, a hypothesis of the same source, (B,)."""
        if self.past is not None:  # two of a layer's four are the source's, equal in those rows
            self.past = [
                part.index_select(0, beams) if number % 4 < 2 else part
                for number, part in enumerate(self.past)
            ]
