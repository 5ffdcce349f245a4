# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Configuration of the Transformer of "Attention Is All You Need" (Vaswani et al., 2017).

The defaults are the paper's base model; `PRESETS` names it, the big model and every row of Table 3.
"""

import copy
import difflib
from collections.abc import Iterable
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import GenerationConfig, PreTrainedConfig

from .errors import RequestError, quoted
from .ranges import FIELDS, Range

# Eq. 2 has "relu"; models of other systems may have any of these.
Activation = Literal["relu", "gelu", "gelu_new", "swish", "tanh"]

# What each row of Table 3 changes in the base model. With d_k = d_v = None, the default, rows (A)
# and the rows (C) with another d_model keep h * d_k = d_model.
PRESETS: dict[str, dict[str, Any]] = {
    "base": {},
    "big": {
        "d_model": 1024,
        "encoder_ffn_dim": 4096,
        "decoder_ffn_dim": 4096,
        "encoder_attention_heads": 16,
        "decoder_attention_heads": 16,
        "dropout": 0.3,
    },
    "A_h1": {"encoder_attention_heads": 1, "decoder_attention_heads": 1},
    "A_h4": {"encoder_attention_heads": 4, "decoder_attention_heads": 4},
    "A_h16": {"encoder_attention_heads": 16, "decoder_attention_heads": 16},
    "A_h32": {"encoder_attention_heads": 32, "decoder_attention_heads": 32},
    "B_dk16": {"d_k": 16},
    "B_dk32": {"d_k": 32},
    "C_N2": {"encoder_layers": 2, "decoder_layers": 2},
    "C_N4": {"encoder_layers": 4, "decoder_layers": 4},
    "C_N8": {"encoder_layers": 8, "decoder_layers": 8},
    "C_d256": {"d_model": 256},
    "C_d1024": {"d_model": 1024},
    "C_ff1024": {"encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024},
    "C_ff4096": {"encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096},
    "D_dropout0.0": {"dropout": 0.0},
    "D_dropout0.2": {"dropout": 0.2},
    "D_smoothing0.0": {"label_smoothing": 0.0},
    "D_smoothing0.2": {"label_smoothing": 0.2},
    "E_learned": {"position_encoding": "learned"},
}

# Fields that the paper's symbols and other libraries' names stand for.
_both = "encoder_{0} and decoder_{0}".format
_MEANT = dict.fromkeys(("N", "n_layers", "num_layers"), _both("layers"))
_MEANT |= dict.fromkeys(("h", "heads", "n_heads", "nhead", "num_heads"), _both("attention_heads"))
_MEANT |= dict.fromkeys(("d_ff", "dim_feedforward", "intermediate_size"), _both("ffn_dim"))
_MEANT["eps_ls"] = "label_smoothing"

# Fields of a config that name code files, and the entries that `publish --with-code` writes.
_COPIED_CODE = {
    "auto_map": ("AutoConfig", "AutoModel", "AutoModelForSeq2SeqLM"),
    "custom_pipelines": ("translate",),
}


@strict
class VanillaTransformerConfig(PreTrainedConfig):
    """Configuration of a `VanillaTransformerModel`; the defaults give the paper's base model.

    The comment on each field gives the paper's symbol and section.

    Raises:
        StrictDataclassError: A field has the wrong type or value; the message says what is allowed.
        ValueError: A field's name is unknown.
    """

    model_type = "vanilla_transformer"
    keys_to_ignore_at_inference = ["cache", "past_key_values"]
    attribute_map = {  # BART's names; the numbers of layers and heads are the encoder's
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    }

    vocab_size: int = 37000  # V, shared by source and target; 37000 EN-DE, 32000 EN-FR (5.1)
    decoder_vocab_size: int | None = None  # V of a target with a vocabulary of its own
    d_model: int = 512  # width of sub-layers and embeddings (3.1); 512 base, 1024 big (Table 3)
    encoder_layers: int = 6  # N (3.1)
    decoder_layers: int = 6  # N (3.1)
    encoder_attention_heads: int = 8  # h, parallel heads (3.2.2); 8 base, 16 big
    decoder_attention_heads: int = 8  # h
    encoder_ffn_dim: int = 2048  # d_ff, inner width of feed-forward networks (3.3); 4096 big
    decoder_ffn_dim: int = 2048  # d_ff
    d_k: int | None = None  # width of a head's queries and keys; None: d_model / h (Table 3 B)
    d_v: int | None = None  # width of a head's values; None: d_model / h
    dropout: float | int = 0.1  # P_drop, on sub-layer outputs and embedding sums (5.4); 0.3 big
    attention_dropout: float | int = 0.0  # on attention weights; the parsing models (6.3) have some
    activation_dropout: float | int = 0.0  # after the ReLU; the paper has none
    activation_function: Activation = "relu"  # Eq. 2; others for models of other systems
    # Section 3.5; "learned" is Table 3 E; "tensor2tensor" are the sinusoids of the authors' code:
    # all sines, then all cosines, and the last wavelength exactly 10000 * 2 pi.
    position_encoding: Literal["sinusoidal", "learned", "tensor2tensor"] = "sinusoidal"
    position_offset: int = 0  # position that sinusoids give to the first token; 2 in fairseq
    # Rows of a learned table (sinusoids have no limit). It also limits the tokens that `generate`
    # produces by default, if it is smaller than the source's length + 50.
    max_position_embeddings: int = 1024
    norm_first: bool = False  # True: x + Sublayer(LayerNorm(x)), and one more norm after each stack
    final_norm: bool = False  # a norm after each stack of post-norm layers too, as in torch
    layer_norm_eps: float | int = 1e-5  # added to the variance; 1e-6 in the authors' code
    label_smoothing: float | int = 0.1  # eps_ls, in the training loss only (5.4)
    tie_word_embeddings: bool = True  # the pre-softmax weight is the target embedding (3.4)
    share_encoder_decoder_embeddings: bool = True  # source and target share one embedding (3.4)
    lm_head_bias: bool = False  # in the pre-softmax transformation; the paper has none
    use_cache: bool = True  # keep keys and values while generating
    is_encoder_decoder: bool = True  # a decoder-only subclass may declare False
    pad_token_id: int = 0  # fills short rows of ids; labels are filled with -100 instead
    # <s> and <unk>, never generated; None if there is none. The default, -1, means 1 and 3 if
    # padding is 0 and </s> is 2, else None: in another vocabulary 1 and 3 may be words.
    bos_token_id: int | None = -1
    eos_token_id: int | list[int] | None = 2  # </s>, ends source and target
    unk_token_id: int | None = -1
    decoder_start_token_id: int = 1  # first input of the decoder: <s>

    def __post_init__(self, **others: Any) -> None:
        """Refuse unknown fields; in saved configs only misspelt ones, as tools may add fields."""
        self._check_known(others, misspelt_only=self.transformers_version is not None)
        ours = self.pad_token_id == 0 and 2 in self._ends()
        if self.bos_token_id == -1:
            self.bos_token_id = 1 if ours else None
        if self.unk_token_id == -1:
            self.unk_token_id = 3 if ours else None
        super().__post_init__(**others)

    @classmethod
    def from_preset(cls, name: str, **overrides: Any) -> "VanillaTransformerConfig":
        """Return the config of one of the paper's models, by its name in `PRESETS`."""
        if name not in PRESETS:
            known = ", ".join(PRESETS)
            raise RequestError(f"There is no preset {quoted(name)}; choose one of {known}.")
        return cls(**{**PRESETS[name], **overrides})

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Read a saved config; arguments override its fields.

        The copy of this package's code that came with a model is ignored: the package has its own,
        and does not copy the files again when it saves the model.
        """
        config_dict = dict(config_dict)
        is_copy = __name__.startswith("transformers_modules.")
        for field, own in () if is_copy else _COPIED_CODE.items():
            entries = config_dict.pop(field, None) or {}
            if entries := {name: entries[name] for name in entries if name not in own}:
                config_dict[field] = entries
        return_unused = kwargs.pop("return_unused_kwargs", False)
        config, unused = super().from_dict(config_dict, return_unused_kwargs=True, **kwargs)
        config.validate()
        config._check_known(unused, misspelt_only=True)  # others may be the model's arguments
        return (config, unused) if return_unused else config

    def _check_known(self, names: Iterable[str], *, misspelt_only: bool) -> None:
        """Refuse names of fields that neither this class nor transformers knows."""
        fields = [*VanillaTransformerConfig.__annotations__, *self.attribute_map]
        known = {*self.attribute_map, *dir(type(self)), *dir(GenerationConfig())}
        for name in names:
            if name in known or f"_{name}" in known:  # transformers sets _attn_implementation
                continue
            cutoff = 0.9 if misspelt_only else 0.6
            near = difflib.get_close_matches(name.lower(), fields, cutoff=cutoff)
            if near or not misspelt_only:
                meant = _MEANT.get(name) or " or ".join(near)
                remedy = f"did you mean {meant}?" if meant else "help() lists the fields."
                raise RequestError(f"A config has no field {quoted(name)}; {remedy}")

    def head_dims(self, num_heads: int) -> tuple[int, int]:
        """Return d_k and d_v of each of `num_heads` heads (Section 3.2.2)."""
        default = self.d_model // num_heads
        return self.d_k or default, self.d_v or default

    @property
    def target_vocab_size(self) -> int:
        """Size of the target's vocabulary, by default the one shared with the source."""
        return self.decoder_vocab_size or self.vocab_size

    def ids_outside_of_text(self) -> list[int]:
        """Return the ids of padding, start and unknown tokens, except those that end a sentence."""
        starts = (self.bos_token_id, self.decoder_start_token_id)
        ids = {self.pad_token_id, *starts, self.unk_token_id}
        return sorted(number for number in ids if number is not None and number not in self._ends())

    def _ends(self) -> list[int]:
        ends = self.eos_token_id
        return ends if isinstance(ends, list) else [] if ends is None else [ends]

    def get_text_config(
        self, decoder: bool | None = None, encoder: bool | None = None
    ) -> PreTrainedConfig:
        """Return this config or, for one stack, a copy with that stack's `vocab_size` etc."""
        config = self
        if decoder != encoder:  # transformers copies decoder_vocab_size to vocab_size
            config = copy.copy(self)
            config.decoder_vocab_size = self.target_vocab_size
        return super(VanillaTransformerConfig, config).get_text_config(decoder, encoder)

    def validate_kind(self) -> None:
        """Refuse an `is_encoder_decoder` that differs from the class attribute."""
        kind = type(self).is_encoder_decoder
        if self.is_encoder_decoder != kind:
            raise RequestError(f"{type(self).__name__} requires is_encoder_decoder={kind}.")

    def validate_sizes(self) -> None:
        """Refuse sizes and rates out of range, or a d_model that does not fit the heads."""
        for field, allowed in FIELDS.items():
            if (value := getattr(self, field)) is not None:
                allowed.check(**{field: value})
        for side in ("encoder", "decoder"):
            heads = getattr(self, f"{side}_attention_heads")
            if self.d_model % heads and (self.d_k is None or self.d_v is None):
                what = f"d_model={self.d_model} is not divisible by {heads} {side} heads"
                more = (self.d_model // heads + 1) * heads
                raise RequestError(f"{what}; try {more}, or give both d_k and d_v.")
        if self.position_encoding == "sinusoidal" and self.d_model % 2:
            odd = self.d_model
            raise RequestError(f"d_model={odd} is odd; sinusoids need even widths; try {odd + 1}.")

    def validate_vocabularies(self) -> None:
        """Refuse shared embeddings if the vocabulary sizes differ, and special ids out of range."""
        size = self.target_vocab_size
        if self.share_encoder_decoder_embeddings and size != self.vocab_size:
            what = f"decoder_vocab_size={size} differs from vocab_size={self.vocab_size}"
            raise RequestError(f"{what}; give one size, or share_encoder_decoder_embeddings=False.")
        for name in ("pad", "bos", "eos", "unk", "decoder_start"):
            ids = self._ends() if name == "eos" else [getattr(self, f"{name}_token_id")]
            for value in set(ids) - {None}:
                Range(0, size - 1).check(**{f"{name}_token_id": value})
