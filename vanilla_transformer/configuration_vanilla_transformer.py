# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Configuration of the Transformer of "Attention Is All You Need" (Vaswani et al., 2017).

The defaults are the paper's base model; `PRESETS` names it, the big model and every row of Table 3.
"""

import copy
import difflib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .errors import RequestError, quoted
from .ranges import FIELDS

logger = logging.getLogger(__name__)

POSITION_ENCODINGS = ("sinusoidal", "learned", "tensor2tensor")
# Activations of the feed-forward networks: Eq. 2 has "relu", imported models any of these.
ACTIVATIONS = ("relu", "gelu", "gelu_new", "swish", "tanh")

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

_SIDES = ("encoder", "decoder")
# Names that set a field of both sides.
_OF_BOTH_SIDES = ("attention_heads", "ffn_dim")
# Other systems' names of the fields, which would otherwise be stored without any effect.
_ELSEWHERE = {
    **dict.fromkeys(("num_heads", "n_heads", "n_head", "nhead", "heads"), "attention_heads"),
    **dict.fromkeys(("dim_feedforward", "intermediate_size", "d_ff", "ffn_size"), "ffn_dim"),
    **dict.fromkeys(
        ("num_layers", "n_layers", "n_layer", "layers"), "encoder_layers and decoder_layers"
    ),
    "num_encoder_layers": "encoder_layers",
    "num_decoder_layers": "decoder_layers",
    **dict.fromkeys(("dim", "hidden_dim", "embed_dim", "n_embd", "dim_model"), "d_model"),
    **dict.fromkeys(("vocab", "n_vocab", "vocabulary_size"), "vocab_size"),
    **dict.fromkeys(("dropout_rate", "hidden_dropout_prob", "resid_pdrop"), "dropout"),
    **dict.fromkeys(("label_smoothing_factor", "smoothing"), "label_smoothing"),
    **dict.fromkeys(("normalize_before", "pre_norm", "prenorm"), "norm_first"),
    "activation": "activation_function",
    "layer_norm_epsilon": "layer_norm_eps",
    "tie_embeddings": "tie_word_embeddings",
}
# Fields that name code beside a config, and their entries that `publish --with-code` writes.
_COPIED_CODE = {
    "auto_map": ("AutoConfig", "AutoModel", "AutoModelForSeq2SeqLM"),
    "custom_pipelines": ("translate",),
}
_NOT_GIVEN = -1  # no id; replaced in __post_init__


@strict
class VanillaTransformerConfig(PreTrainedConfig):
    """Configuration of a `VanillaTransformerModel`; every default is the paper's base model.

    Args:
        vocab_size: V, size of the vocabulary that source and target share (Section 5.1).
        decoder_vocab_size: Size of a separate target vocabulary. None: one vocabulary, as in the
            paper.
        d_model: Width of every sub-layer output and of the embeddings (Section 3.1).
        encoder_layers: N, identical layers in the encoder (Section 3.1).
        decoder_layers: N, identical layers in the decoder (Section 3.1).
        encoder_attention_heads: h, parallel attention heads in the encoder (Section 3.2.2).
        decoder_attention_heads: h, parallel attention heads in the decoder (Section 3.2.2).
        encoder_ffn_dim: d_ff, inner width of the encoder's feed-forward networks (Section 3.3).
        decoder_ffn_dim: d_ff, inner width of the decoder's feed-forward networks (Section 3.3).
        d_k: Width of the queries and keys of one head; None is d_model / h (Table 3 B varies it).
        d_v: Width of the values of one head; None is d_model / h.
        dropout: P_drop, on each sub-layer's output and on the sums of embeddings and positional
            encodings (Section 5.4).
        attention_dropout: Dropout on the attention weights; the base model has none (but the
            authors' parsing models of Section 6.3 do).
        activation_dropout: Dropout after the ReLU; the paper has none.
        activation_function: "relu" (Eq. 2); for imports also "gelu", "gelu_new", "swish", "tanh".
        position_encoding: "sinusoidal" (Section 3.5), "learned" (Table 3 E), or "tensor2tensor",
            the sinusoids of the authors' code: all sines, then all cosines, and the last
            wavelength exactly 10000 * 2 pi.
        position_offset: Position of the first token for the sinusoids; 0 in the paper, 2 in
            fairseq. A learned table starts at its first row.
        max_position_embeddings: Rows of a learned table, and the most tokens that `generate`
            produces by default, if the source's length + 50 is not less. Sinusoids are computed for
            any length.
        norm_first: False is the paper, LayerNorm(x + Sublayer(x)); True is
            x + Sublayer(LayerNorm(x)) with one more norm after each stack.
        final_norm: Whether each stack ends with one more norm even if norm_first is False, as in
            `torch.nn.Transformer`.
        layer_norm_eps: Added to the variance in LayerNorm. The paper does not give it; the
            authors' code has 1e-6.
        label_smoothing: eps_ls, used by the training loss only (Section 5.4).
        tie_word_embeddings: One table for both embeddings and the pre-softmax transformation
            (Section 3.4). False unties all three.
        share_encoder_decoder_embeddings: Whether the encoder's embedding is the same table; False
            if source and target have separate vocabularies.
        lm_head_bias: Whether the pre-softmax transformation has a bias; the paper has none.
        use_cache: Whether the decoder keeps its keys and values while generating.
        is_encoder_decoder: Always true; transformers requires it.
        pad_token_id: Fills short rows of ids; masks hide it. Labels are filled with -100 instead.
        bos_token_id: `<s>`, from which the decoder starts, never produced. If it is not given: 1
            with this package's padding and end, 0 and 2, and None with another vocabulary's.
        eos_token_id: `</s>`, which ends source and target.
        unk_token_id: `<unk>`, never produced. If it is not given: 3 or None, likewise.
        decoder_start_token_id: First input of the decoder; `<s>`.
        attention_heads: Sets both encoder_attention_heads and decoder_attention_heads.
        ffn_dim: Sets both encoder_ffn_dim and decoder_ffn_dim.
        hidden_size: Another name for d_model.
        num_hidden_layers: Another name for encoder_layers, as in BART; the decoder keeps its own.
        num_attention_heads: Another name for encoder_attention_heads, likewise.

    Other names are stored too, as in transformers, unless they look like a misspelt field.

    Raises:
        StrictDataclassError: A field has the wrong type or value; the message says what is allowed.
        ValueError: A name is misspelt, or a value for both sides contradicts the one for a side.
    """

    model_type = "vanilla_transformer"
    keys_to_ignore_at_inference = ["cache", "past_key_values"]
    attribute_map = {
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    }

    vocab_size: int = 37000  # V; 37000 EN-DE, 32000 EN-FR (Section 5.1)
    decoder_vocab_size: int | None = None  # one vocabulary (Section 5.1)
    d_model: int = 512  # d_model; 512 base, 1024 big (Table 3)
    encoder_layers: int = 6  # N
    decoder_layers: int = 6  # N
    encoder_attention_heads: int = 8  # h; 8 base, 16 big
    decoder_attention_heads: int = 8  # h
    encoder_ffn_dim: int = 2048  # d_ff; 2048 base, 4096 big
    decoder_ffn_dim: int = 2048  # d_ff
    d_k: int | None = None  # d_k; d_model / h unless given (Table 3 B)
    d_v: int | None = None  # d_v; d_model / h unless given
    dropout: float | int = 0.1  # P_drop; 0.1 base, 0.3 big
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    activation_function: str = "relu"  # Eq. 2
    position_encoding: str = "sinusoidal"
    position_offset: int = 0
    max_position_embeddings: int = 1024
    norm_first: bool = False
    final_norm: bool = False
    layer_norm_eps: float | int = 1e-5
    label_smoothing: float | int = 0.1  # eps_ls
    tie_word_embeddings: bool = True
    share_encoder_decoder_embeddings: bool = True
    lm_head_bias: bool = False
    use_cache: bool = True
    is_encoder_decoder: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = _NOT_GIVEN
    eos_token_id: int | list[int] | None = 2
    unk_token_id: int | None = _NOT_GIVEN
    decoder_start_token_id: int | None = 1

    def __new__(cls, *args: Any, **fields: Any) -> "VanillaTransformerConfig":
        """Refuse contradictory fields here; later it is unknown which values were given."""
        _for_each_side(fields)
        return super().__new__(cls)

    def __post_init__(self, **others: Any) -> None:
        """Store names that are no fields, as transformers does, unless they look misspelt."""
        _check_names(others)
        # In another vocabulary, 1 and 3 may be words, which must not be suppressed.
        own = self.pad_token_id == 0 and 2 in self._ends()
        for name, value in {"bos_token_id": 1, "unk_token_id": 3}.items():
            if getattr(self, name) == _NOT_GIVEN:
                setattr(self, name, value if own else None)
        super().__post_init__(**others)

    @classmethod
    def from_preset(cls, name: str, **overrides: Any) -> "VanillaTransformerConfig":
        """Return the configuration of a model of the paper.

        Args:
            name: "base", "big" or a row of Table 3, such as "A_h1" or "E_learned"; see `PRESETS`.
            **overrides: Fields that differ from the preset, most often `vocab_size`.

        Returns:
            The configuration.

        Raises:
            ValueError: No preset has this name, or an override is misspelt or contradicts another.
        """
        if name not in PRESETS:
            raise RequestError(
                f"There is no preset {quoted(name)}; choose one of {', '.join(PRESETS)}."
            )
        return cls(**{**PRESETS[name], **_for_each_side(overrides)})

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> "VanillaTransformerConfig":
        """Read a config, ignoring the copy of this package's code that came with a model.

        The package has its own, and does not copy the files again when it saves the model. A saved
        name that looks like a misspelt field is kept with a warning; in arguments it is refused.
        """
        if not __name__.startswith("transformers_modules."):
            config_dict = dict(config_dict)
            for field, own in _COPIED_CODE.items():
                copied = config_dict.pop(field, None) or {}
                if foreign := {name: copied[name] for name in copied if name not in own}:
                    config_dict[field] = foreign
        _check_names(kwargs)
        was_saved = "transformers_version" in config_dict
        others = {name: config_dict[name] for name in _meant(config_dict)} if was_saved else {}
        config_dict = {name: config_dict[name] for name in config_dict if name not in others}
        config = super().from_dict(config_dict, **_for_each_side(kwargs))
        for name, value in others.items():
            logger.warning("The config holds %s, which is not one of its fields.", name)
            setattr(config[0] if isinstance(config, tuple) else config, name, value)
        return config

    @property
    def attention_heads(self) -> int | None:
        """Heads of every attention; None if encoder and decoder differ."""
        return self._of_both_sides("attention_heads")

    @attention_heads.setter
    def attention_heads(self, value: int) -> None:
        """Set both sides."""
        self.encoder_attention_heads = self.decoder_attention_heads = value

    @property
    def ffn_dim(self) -> int | None:
        """Inner width of every feed-forward network; None if encoder and decoder differ."""
        return self._of_both_sides("ffn_dim")

    @ffn_dim.setter
    def ffn_dim(self, value: int) -> None:
        """Set both sides."""
        self.encoder_ffn_dim = self.decoder_ffn_dim = value

    def _of_both_sides(self, name: str) -> int | None:
        encoder, decoder = (getattr(self, f"{side}_{name}") for side in _SIDES)
        return encoder if encoder == decoder else None

    def head_dims(self, num_heads: int) -> tuple[int, int]:
        """Return d_k and d_v of each of `num_heads` heads (Section 3.2.2)."""
        default = self.d_model // num_heads
        return self.d_k or default, self.d_v or default

    @property
    def target_vocab_size(self) -> int:
        """Size of the target's vocabulary, which may be the source's too."""
        return self.decoder_vocab_size or self.vocab_size

    def start_and_pad_ids(self) -> tuple[int, int]:
        """Return `decoder_start_token_id` and `pad_token_id`, which every decoder needs."""
        if self.decoder_start_token_id is None or self.pad_token_id is None:
            raise RequestError(
                f"decoder_start_token_id={self.decoder_start_token_id} and pad_token_id="
                f"{self.pad_token_id} must both be given; this package uses 1 and 0."
            )
        return self.decoder_start_token_id, self.pad_token_id

    def ids_outside_of_text(self) -> list[int]:
        """Return the ids of padding, start and unknown tokens, but none that ends a sentence."""
        starts = (self.bos_token_id, self.decoder_start_token_id)
        ids = (self.pad_token_id, *starts, self.unk_token_id)
        ends = self._ends()
        return sorted({number for number in ids if number is not None and number not in ends})

    def _ends(self) -> list[int]:
        ends = self.eos_token_id
        return ends if isinstance(ends, list) else [] if ends is None else [ends]

    def get_text_config(
        self, decoder: bool | None = None, encoder: bool | None = None
    ) -> PreTrainedConfig:
        """Return this configuration, or a copy with one stack's values in the general fields."""
        if decoder == encoder or self.decoder_vocab_size is not None:
            return super().get_text_config(decoder=decoder, encoder=encoder)
        # transformers would set the decoder's vocab_size to None.
        explicit = copy.deepcopy(self)
        explicit.decoder_vocab_size = self.vocab_size
        return explicit.get_text_config(decoder=decoder, encoder=encoder)

    def validate_numbers(self) -> None:
        """Refuse sizes and rates that no model can have."""
        for field, allowed in FIELDS.items():
            value = getattr(self, field)
            if value is not None:
                allowed.check(**{field: value})
        for side in _SIDES:
            heads = getattr(self, f"{side}_attention_heads")
            if self.d_model % heads and (self.d_k is None or self.d_v is None):
                below = self.d_model // heads * heads
                fitting = f"{f'{below} or ' if below else ''}{below + heads}"
                raise RequestError(
                    f"d_model={self.d_model} is not divisible by {heads} {side} heads; try "
                    f"{fitting}, or give the config both d_k and d_v."
                )

    def validate_stacks(self) -> None:
        """Refuse a model without one of its two stacks."""
        if not self.is_encoder_decoder:
            raise RequestError(
                f"is_encoder_decoder={quoted(self.is_encoder_decoder)}: the model always has both "
                "stacks; leave it out."
            )

    def validate_vocabularies(self) -> None:
        """Refuse one table for two vocabularies of different sizes."""
        if self.share_encoder_decoder_embeddings and self.target_vocab_size != self.vocab_size:
            raise RequestError(
                f"decoder_vocab_size={self.decoder_vocab_size} differs from vocab_size="
                f"{self.vocab_size}; give one size, or share_encoder_decoder_embeddings=False."
            )

    def validate_activation(self) -> None:
        """Refuse an activation that does not exist."""
        if self.activation_function not in ACTIVATIONS:
            raise RequestError(
                f"activation_function={quoted(self.activation_function)} is unknown; choose one of "
                f"{', '.join(ACTIVATIONS)}."
            )

    def validate_positions(self) -> None:
        """Refuse a positional encoding that does not exist or does not fit."""
        if self.position_encoding not in POSITION_ENCODINGS:
            raise RequestError(
                f"position_encoding={quoted(self.position_encoding)} is unknown; choose one of "
                f"{', '.join(POSITION_ENCODINGS)}."
            )
        if self.position_encoding == "sinusoidal" and self.d_model % 2:
            raise RequestError(
                f"d_model={self.d_model} is odd, but sinusoidal positions pair a sine with a "
                f"cosine (Section 3.5); try {self.d_model + 1}, or position_encoding='learned'."
            )

    def validate_special_ids(self) -> None:
        """Refuse special ids outside the vocabulary, and a missing start or padding id."""
        self.start_and_pad_ids()
        size = self.target_vocab_size
        field = "vocab_size" if self.decoder_vocab_size is None else "decoder_vocab_size"
        for name in ("pad", "bos", "eos", "unk", "decoder_start"):
            ids = getattr(self, f"{name}_token_id")
            for value in ids if isinstance(ids, list) else [ids]:
                if value is not None and not 0 <= value < size:
                    raise RequestError(
                        f"{name}_token_id={quoted(value)} is not an id of a vocabulary of "
                        f"{field}={size}; give one from 0 to {size - 1}."
                    )


def _for_each_side(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Replace each name for both sides by the fields of the two sides."""
    aliases = VanillaTransformerConfig.attribute_map
    found = {aliases.get(name, name): value for name, value in fields.items()}
    for name in _OF_BOTH_SIDES:
        if name not in found:
            continue
        value = found.pop(name)
        for side in _SIDES:
            own = found.setdefault(f"{side}_{name}", value)
            if own != value:
                raise RequestError(
                    f"Got {name}={quoted(value)}, which is for both sides, and {side}_{name}="
                    f"{quoted(own)}; give one of them."
                )
    return found


def _check_names(names: Iterable[str]) -> None:
    """Refuse names that look like misspelt fields."""
    for name, meant in _meant(names).items():
        raise RequestError(f"A config has no {quoted(name)}; did you mean {meant}?")


def _meant(names: Iterable[str]) -> dict[str, str]:
    """Map names that look like misspelt fields to the fields that were meant."""
    own = VanillaTransformerConfig.__annotations__.keys() - PreTrainedConfig.__dataclass_fields__
    known = {*own, *_OF_BOTH_SIDES, *VanillaTransformerConfig.attribute_map}
    meant = {**{name: name for name in known}, **_ELSEWHERE}
    found = {}
    for name in sorted(set(names) - known):
        plain = name.lower().replace("-", "_")
        # Their lengths may differ by two letters. Ids of other special tokens are no misspellings.
        for near in difflib.get_close_matches(plain, meant, n=1, cutoff=0.85):
            if abs(len(near) - len(name)) <= 2 and not name.endswith("_token_id"):
                found[name] = meant[near]
    return found


__all__ = ["PRESETS", "VanillaTransformerConfig"]
