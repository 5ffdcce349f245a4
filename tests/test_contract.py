"""What 0.2.0 freezes: later versions need a migration to change it.

State-dict keys and shapes, configuration fields and defaults, special ids, generation defaults,
and public names are written down here a second time, by hand.
"""

import json

import pytest
import torch
from safetensors.torch import load_file

import vanilla_transformer
from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration

CONFIG_FIELDS = {
    "vocab_size": 37000,
    "d_model": 512,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
    "d_k": None,
    "d_v": None,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "position_encoding": "sinusoidal",
    "max_position_embeddings": 1024,
    "norm_first": False,
    "layer_norm_eps": 1e-5,
    "label_smoothing": 0.1,
    "tie_word_embeddings": True,
    "use_cache": True,
    "is_encoder_decoder": True,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "unk_token_id": 3,
    "decoder_start_token_id": 1,
    # For models of other systems:
    "decoder_vocab_size": None,
    "share_encoder_decoder_embeddings": True,
    "activation_function": "relu",
    "position_offset": 0,
    "final_norm": False,
    "lm_head_bias": False,
}

GENERATION_FIELDS = {
    "suppress_tokens": [0, 1, 3],
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}

SIZES = {
    **{"vocab_size": 11, "d_model": 8, "encoder_layers": 2, "decoder_layers": 1},
    **{"encoder_attention_heads": 2, "decoder_attention_heads": 4, "d_k": 3, "d_v": 5},
    **{"encoder_ffn_dim": 6, "decoder_ffn_dim": 7, "max_position_embeddings": 9},
}


def contract_state(*, norm_first=False, learned=False, tables=None, bias=0):
    """Return the keys and shapes of a checkpoint with these sizes."""
    state = {f"{name}.weight": (rows, 8) for name, rows in (tables or {"model.shared": 11}).items()}
    if bias:
        state["lm_head.bias"] = (bias,)

    def add(name, *shape, bias):
        state[f"{name}.weight"] = shape
        if bias:
            state[f"{name}.bias"] = shape[:1]

    for stack, layers, heads, ffn_dim, attentions in (
        ("model.encoder", 2, 2, 6, ("self_attn",)),
        ("model.decoder", 1, 4, 7, ("self_attn", "cross_attn")),
    ):
        for layer in (f"{stack}.layers.{i}" for i in range(layers)):
            for attention in attentions:
                add(f"{layer}.{attention}.q_proj", heads * 3, 8, bias=True)
                add(f"{layer}.{attention}.k_proj", heads * 3, 8, bias=True)
                add(f"{layer}.{attention}.v_proj", heads * 5, 8, bias=True)
                add(f"{layer}.{attention}.out_proj", 8, heads * 5, bias=True)
            add(f"{layer}.feed_forward.fc1", ffn_dim, 8, bias=True)
            add(f"{layer}.feed_forward.fc2", 8, ffn_dim, bias=True)
            for sublayer in (*attentions, "feed_forward"):
                add(f"{layer}.{sublayer}_norm", 8, bias=True)
        if norm_first:
            add(f"{stack}.norm", 8, bias=True)
        if learned:
            add(f"{stack}.embed_positions", 9, 8, bias=False)
    return state


def saved_shapes(folder):
    return {
        name: tuple(tensor.shape)
        for name, tensor in load_file(folder / "model.safetensors").items()
    }


TIED = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("learned", [False, True])
def test_state_dict_keys_and_shapes(tmp_path, norm_first, learned):
    config = VanillaTransformerConfig(
        **SIZES, norm_first=norm_first, position_encoding="learned" if learned else "sinusoidal"
    )
    model = VanillaTransformerForConditionalGeneration(config)
    expected = contract_state(norm_first=norm_first, learned=learned)
    in_memory = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert in_memory == {**expected, **dict.fromkeys(TIED, (11, 8))}
    model.save_pretrained(tmp_path)
    assert saved_shapes(tmp_path) == expected


SOURCE, TARGET = "model.encoder.embed_tokens", "model.decoder.embed_tokens"


@pytest.mark.parametrize(
    ("fields", "tables"),
    [
        ({"tie_word_embeddings": False}, {"model.shared": 11, "lm_head": 11}),
        ({"share_encoder_decoder_embeddings": False}, {SOURCE: 11, TARGET: 11}),
        (
            {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 13},
            {SOURCE: 11, TARGET: 13},
        ),
        (
            {
                **{"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 13},
                "tie_word_embeddings": False,
            },
            {SOURCE: 11, TARGET: 13, "lm_head": 13},
        ),
    ],
    ids=str,
)
def test_tables_of_models_that_do_not_tie_all_three(tmp_path, fields, tables):
    config = VanillaTransformerConfig(**SIZES, **fields, lm_head_bias=True)
    VanillaTransformerForConditionalGeneration(config).save_pretrained(tmp_path)
    bias = fields.get("decoder_vocab_size", 11)
    assert saved_shapes(tmp_path) == contract_state(tables=tables, bias=bias)


def test_a_checkpoint_built_from_the_contract_loads_completely(tmp_path):
    torch.manual_seed(0)
    tensors = {name: torch.randn(shape) for name, shape in contract_state().items()}
    VanillaTransformerConfig(**SIZES).save_pretrained(tmp_path)
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    model, report = VanillaTransformerForConditionalGeneration.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    state = model.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in tensors.items())
    assert all(torch.equal(state[name], tensors["model.shared.weight"]) for name in TIED)


def test_configuration_fields_and_defaults(tmp_path):
    config = VanillaTransformerConfig()
    own = set(VanillaTransformerConfig.__annotations__)
    assert own - {"model_type", "attribute_map", "keys_to_ignore_at_inference"} == set(
        CONFIG_FIELDS
    )
    assert {name: getattr(config, name) for name in CONFIG_FIELDS} == CONFIG_FIELDS
    config.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert {name: saved[name] for name in CONFIG_FIELDS} == CONFIG_FIELDS
    assert saved["model_type"] == "vanilla_transformer"


def test_generation_defaults(tmp_path):
    sizes = {**SIZES, "max_position_embeddings": 1024}
    model = VanillaTransformerForConditionalGeneration(VanillaTransformerConfig(**sizes))
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "generation_config.json").read_text())
    for fields in (model.generation_config.to_dict(), saved):
        assert {name: fields[name] for name in GENERATION_FIELDS} == GENERATION_FIELDS
        for name in ("num_beams", "length_penalty", "max_length", "max_new_tokens"):  # left open
            assert fields.get(name) is None


def test_public_names():
    assert set(vanilla_transformer.__all__) >= {
        "PRESETS",
        "VanillaTransformerConfig",
        "VanillaTransformerForConditionalGeneration",
        "VanillaTransformerModel",
        "VanillaTransformerPreTrainedModel",
    }
    assert all(hasattr(vanilla_transformer, name) for name in vanilla_transformer.__all__)
