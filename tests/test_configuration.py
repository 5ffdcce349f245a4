import copy
import inspect
import json
import pickle

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoConfig,
    AutoModel,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    pipeline,
)

from vanilla_transformer import PRESETS, VanillaTransformerConfig

# Table 3 as printed: N, d_model, d_ff, h, d_k, d_v, P_drop, eps_ls, learned positions.
BASE = (6, 512, 2048, 8, 64, 64, 0.1, 0.1, False)
TABLE_3 = {
    "base": BASE,
    "A_h1": (6, 512, 2048, 1, 512, 512, 0.1, 0.1, False),
    "A_h4": (6, 512, 2048, 4, 128, 128, 0.1, 0.1, False),
    "A_h16": (6, 512, 2048, 16, 32, 32, 0.1, 0.1, False),
    "A_h32": (6, 512, 2048, 32, 16, 16, 0.1, 0.1, False),
    "B_dk16": (6, 512, 2048, 8, 16, 64, 0.1, 0.1, False),
    "B_dk32": (6, 512, 2048, 8, 32, 64, 0.1, 0.1, False),
    "C_N2": (2, 512, 2048, 8, 64, 64, 0.1, 0.1, False),
    "C_N4": (4, 512, 2048, 8, 64, 64, 0.1, 0.1, False),
    "C_N8": (8, 512, 2048, 8, 64, 64, 0.1, 0.1, False),
    "C_d256": (6, 256, 2048, 8, 32, 32, 0.1, 0.1, False),
    "C_d1024": (6, 1024, 2048, 8, 128, 128, 0.1, 0.1, False),
    "C_ff1024": (6, 512, 1024, 8, 64, 64, 0.1, 0.1, False),
    "C_ff4096": (6, 512, 4096, 8, 64, 64, 0.1, 0.1, False),
    "D_dropout0.0": (6, 512, 2048, 8, 64, 64, 0.0, 0.1, False),
    "D_dropout0.2": (6, 512, 2048, 8, 64, 64, 0.2, 0.1, False),
    "D_smoothing0.0": (6, 512, 2048, 8, 64, 64, 0.1, 0.0, False),
    "D_smoothing0.2": (6, 512, 2048, 8, 64, 64, 0.1, 0.2, False),
    "E_learned": (6, 512, 2048, 8, 64, 64, 0.1, 0.1, True),
    "big": (6, 1024, 4096, 16, 64, 64, 0.3, 0.1, False),
}


def test_every_row_of_table_3_has_a_preset():
    assert set(PRESETS) == set(TABLE_3)


@pytest.mark.parametrize("name", TABLE_3)
def test_preset_is_the_row_of_table_3(name):
    config = VanillaTransformerConfig.from_preset(name)
    for layers, ffn_dim, heads in (
        (config.encoder_layers, config.encoder_ffn_dim, config.encoder_attention_heads),
        (config.decoder_layers, config.decoder_ffn_dim, config.decoder_attention_heads),
    ):
        row = (
            *(layers, config.d_model, ffn_dim, heads, *config.head_dims(heads)),
            *(config.dropout, config.label_smoothing, config.position_encoding == "learned"),
        )
        assert row == TABLE_3[name]
    assert (config.attention_dropout, config.activation_dropout) == (0, 0)
    assert not config.norm_first
    assert config.tie_word_embeddings


def test_defaults_are_the_base_model():
    assert VanillaTransformerConfig() == VanillaTransformerConfig.from_preset("base")


def test_overrides_win_over_the_preset_without_changing_it():
    config = VanillaTransformerConfig.from_preset("big", vocab_size=100, dropout=0.1)
    assert (config.vocab_size, config.dropout, config.d_model) == (100, 0.1, 1024)
    assert VanillaTransformerConfig.from_preset("big").dropout == 0.3


def test_unknown_preset_names_the_known_ones():
    with pytest.raises(ValueError, match="no preset 'huge'; choose one of base, big, A_h1"):
        VanillaTransformerConfig.from_preset("huge")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_model": 500}, "d_model=500 is not divisible by 8 encoder heads; try 496 or 504"),
        ({"d_model": 6}, "try 8, or give the config both d_k and d_v"),
        ({"decoder_attention_heads": 7}, "512 is not divisible by 7 decoder heads; try 511 or 518"),
        ({"d_model": 500, "d_k": 64}, "not divisible by 8 encoder heads"),
        ({"vocab_size": 0}, "Got vocab_size=0; it must be a whole number from 1 to \\d+\\."),
        ({"d_model": -8}, "Got d_model=-8; it must be a whole number from 1 to \\d+\\."),
        (
            {"encoder_layers": 0},
            "Got encoder_layers=0; it must be a whole number from 1 to \\d+\\.",
        ),
        (
            {"decoder_layers": 0},
            "Got decoder_layers=0; it must be a whole number from 1 to \\d+\\.",
        ),
        (
            {"encoder_attention_heads": 0},
            "Got encoder_attention_heads=0; it must be a whole number from 1 to \\d+\\.",
        ),
        (
            {"decoder_attention_heads": -1},
            "Got decoder_attention_heads=-1; it must be a whole number from 1 to \\d+\\.",
        ),
        (
            {"encoder_ffn_dim": 0},
            "Got encoder_ffn_dim=0; it must be a whole number from 1 to \\d+\\.",
        ),
        (
            {"decoder_ffn_dim": 0},
            "Got decoder_ffn_dim=0; it must be a whole number from 1 to \\d+\\.",
        ),
        ({"d_k": 0}, "Got d_k=0; it must be a whole number from 1 to \\d+\\."),
        ({"d_v": -1}, "Got d_v=-1; it must be a whole number from 1 to \\d+\\."),
        (
            {"max_position_embeddings": 0},
            "Got max_position_embeddings=0; it must be a whole number from 1 to \\d+\\.",
        ),
        (
            {"position_encoding": "rotary"},
            "'rotary' is unknown; choose one of sinusoidal, learned, tensor2tensor",
        ),
        ({"d_model": 9, "d_k": 3, "d_v": 3}, "d_model=9 is odd.*try 10"),
        ({"dropout": 1.0}, "Got dropout=1.0; it must be a number, at least 0 and less than 1"),
        ({"dropout": -0.1}, "dropout=-0.1; it must be"),
        ({"attention_dropout": 2}, "attention_dropout=2; it must be"),
        ({"activation_dropout": float("nan")}, "activation_dropout=nan; it must be"),
        ({"label_smoothing": 1}, "label_smoothing=1; it must be"),
        (
            {"layer_norm_eps": 0.0},
            "Got layer_norm_eps=0.0; it must be a number, more than 0 and at most 1",
        ),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps=nan; it must be"),
        ({"decoder_start_token_id": None}, "decoder_start_token_id=None .* must both be given"),
        ({"pad_token_id": None}, "pad_token_id=None must both be given; this package uses 1 and 0"),
        ({"vocab_size": 3}, "unk_token_id=3 is not an id .* vocab_size=3; give one from 0 to 2"),
        ({"pad_token_id": -1}, "pad_token_id=-1 is not an id"),
        ({"bos_token_id": 37000}, "bos_token_id=37000 is not an id"),
        ({"decoder_start_token_id": 40000}, "decoder_start_token_id=40000 is not an id"),
        ({"eos_token_id": 37000}, "eos_token_id=37000 is not an id"),
        ({"eos_token_id": [2, 40000]}, "eos_token_id=40000 is not an id"),
        (
            {"decoder_vocab_size": 0},
            "Got decoder_vocab_size=0; it must be a whole number from 1 to \\d+\\.",
        ),
        (
            {"decoder_vocab_size": 9},
            "decoder_vocab_size=9 differs from vocab_size=37000.*share_encoder_decoder_embeddings",
        ),
        (
            {"decoder_vocab_size": 3, "share_encoder_decoder_embeddings": False},
            "unk_token_id=3 is not an id .* decoder_vocab_size=3",
        ),
        ({"is_encoder_decoder": False}, "the model always has both stacks; leave it out"),
        ({"activation_function": "relu6"}, "'relu6' is unknown; choose one of relu, gelu"),
        ({"d_model": 10**9}, "d_model=1000000000; it must be a whole number from 1 to 65536"),
        ({"encoder_layers": 10**7}, "encoder_layers=10000000; it must be .* from 1 to 1000"),
        ({"encoder_layers": 10**23}, "encoder_layers=1000+; it must be"),
        (
            {"decoder_layers": 10**5000},
            "decoder_layers=a number of thousands of digits; it must be",
        ),
        ({"vocab_size": 10**8}, "vocab_size=100000000; it must be"),
        ({"position_encoding": "x" * 10**5}, "position_encoding='x{50,60} ... is unknown"),
        ({"layer_norm_eps": float("inf")}, "layer_norm_eps=inf; it must be"),
        ({"dropout": float("inf")}, "dropout=inf; it must be"),
        (
            {"position_offset": -1},
            "Got position_offset=-1; it must be a whole number from 0 to \\d+\\.",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_impossible_fields_are_refused_with_a_remedy(fields, message):
    with pytest.raises(StrictDataclassError, match=message):
        VanillaTransformerConfig(**fields)


@pytest.mark.parametrize(
    "fields", [{"d_model": "512"}, {"d_model": 512.0}, {"dropout": "0.1"}, {"norm_first": "yes"}]
)
def test_wrong_types_are_refused(fields):
    with pytest.raises(StrictDataclassError, match=next(iter(fields))):
        VanillaTransformerConfig(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"d_model": 9, "d_k": 3, "d_v": 3, "position_encoding": "learned"},
        {"d_model": 9, "d_k": 3, "d_v": 3, "position_encoding": "tensor2tensor"},
        {"d_model": 500, "d_k": 64, "d_v": 64},
        {"decoder_vocab_size": 9, "share_encoder_decoder_embeddings": False},
        {"decoder_vocab_size": 37000, "tie_word_embeddings": False},
        {"dropout": 0, "layer_norm_eps": 1, "eos_token_id": [2, 5], "unk_token_id": None},
    ],
    ids=str,
)
def test_unusual_but_possible_fields_are_accepted(fields):
    config = VanillaTransformerConfig(**fields)
    assert all(getattr(config, name) == value for name, value in fields.items())


@pytest.mark.parametrize(
    ("ids", "found", "never"),
    [
        ({}, (1, 3), [0, 1, 3]),
        ({"decoder_start_token_id": 2}, (1, 3), [0, 1, 3]),  # padding and end are ours
        ({"eos_token_id": 1, "decoder_start_token_id": 0}, (None, None), [0]),  # as in T5
        ({"pad_token_id": 9, "eos_token_id": 0, "decoder_start_token_id": 9}, (None, None), [9]),
        ({"eos_token_id": 1, "unk_token_id": 3}, (None, 3), [0, 3]),
        ({"bos_token_id": None, "unk_token_id": None}, (None, None), [0, 1]),
    ],
)
def test_ids_of_another_vocabulary_are_not_guessed(tmp_path, ids, found, never):
    """There 1 and 3 may be words, which would never be produced."""
    config = VanillaTransformerConfig(vocab_size=10, **ids)
    config.save_pretrained(tmp_path)
    for same in (config, VanillaTransformerConfig.from_pretrained(tmp_path)):
        assert (same.bos_token_id, same.unk_token_id) == found
        assert same.ids_outside_of_text() == never


def test_a_bad_assignment_is_refused_when_saved(tmp_path):
    config = VanillaTransformerConfig()
    config.d_model = 500
    with pytest.raises(StrictDataclassError, match="not divisible"):
        config.save_pretrained(tmp_path)


@pytest.mark.parametrize("name", PRESETS)
def test_save_and_load_give_the_same_configuration(tmp_path, name):
    config = VanillaTransformerConfig.from_preset(name, vocab_size=123)
    config.save_pretrained(tmp_path)
    for config_class in (VanillaTransformerConfig, AutoConfig):
        loaded = config_class.from_pretrained(tmp_path)
        assert type(loaded) is VanillaTransformerConfig
        assert loaded.to_diff_dict() == config.to_diff_dict()
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["model_type"] == "vanilla_transformer"
    assert {field: saved[field] for field in PRESETS[name]} == PRESETS[name]


def test_transformers_field_names_are_aliases():
    config = VanillaTransformerConfig(hidden_size=64, num_hidden_layers=3, num_attention_heads=4)
    assert (config.d_model, config.encoder_layers, config.encoder_attention_heads) == (64, 3, 4)
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (64, 3, 4)


# ------------------------------------------------------------------------ names that are not fields


@pytest.mark.parametrize("name", ["attention_heads", "ffn_dim"])
def test_one_name_sets_encoder_and_decoder(name, tmp_path):
    def sides(config):
        return getattr(config, f"encoder_{name}"), getattr(config, f"decoder_{name}")

    config = VanillaTransformerConfig(**{name: 4})
    assert sides(config) == (4, 4)
    assert getattr(config, name) == 4
    assert name not in config.to_dict()
    assert copy.deepcopy(config) == pickle.loads(pickle.dumps(config)) == config
    config.save_pretrained(tmp_path)
    for config_class in (VanillaTransformerConfig, AutoConfig):
        assert sides(config_class.from_pretrained(tmp_path)) == (4, 4)
        assert sides(config_class.from_pretrained(tmp_path, **{name: 16})) == (16, 16)
    assert sides(VanillaTransformerConfig.from_preset("big", **{name: 32})) == (32, 32)
    assert sides(VanillaTransformerConfig.from_dict({name: 2})) == (2, 2)
    setattr(config, name, 64)
    assert sides(config) == (64, 64)
    setattr(config, f"decoder_{name}", 32)
    assert getattr(config, name) is None
    with pytest.raises(StrictDataclassError):
        setattr(config, name, "4")


@pytest.mark.parametrize("side", ["encoder_attention_heads", "decoder_attention_heads"])
def test_name_for_both_sides_may_not_contradict_that_of_one_side(side, tmp_path):
    fields = {"attention_heads": 4, side: 8}  # 8 is the default too
    VanillaTransformerConfig().save_pretrained(tmp_path)
    for build in (
        lambda: VanillaTransformerConfig(**fields),
        lambda: VanillaTransformerConfig.from_dict(fields),
        lambda: VanillaTransformerConfig.from_preset("base", **fields),
        lambda: VanillaTransformerConfig.from_pretrained(tmp_path, **fields),
    ):
        with pytest.raises(ValueError, match=f"attention_heads=4, which is .* and {side}=8"):
            build()
    assert VanillaTransformerConfig(**{**fields, side: 4}).attention_heads == 4


NEAR_MISSES = {
    **{"droput": "dropout", "d_modle": "d_model", "norm_frist": "norm_first"},
    **{"vocab": "vocab_size", "d-model": "d_model", "Dropout": "dropout"},
    **{"encoder_layer": "encoder_layers", "label_smothing": "label_smoothing"},
    **{"num_heads": "attention_heads", "nhead": "attention_heads", "attention_head": "attention"},
    **{"n_layers": "encoder_layers and decoder_layers", "num_layers": "encoder_layers and"},
    **{"dim_feedforward": "ffn_dim", "fnn_dim": "ffn_dim", "num_encoder_layers": "encoder_layers"},
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_misspelled_field_is_refused_with_a_suggestion(name, tmp_path):
    VanillaTransformerConfig().save_pretrained(tmp_path)
    message = f"no '{name}'; did you mean {NEAR_MISSES[name]}"
    for build in (
        lambda: VanillaTransformerConfig(**{name: 4}),
        lambda: VanillaTransformerConfig.from_dict({name: 4}),
        lambda: VanillaTransformerConfig.from_preset("big", **{name: 4}),
        lambda: AutoConfig.from_pretrained(tmp_path, **{name: 4}),
    ):
        with pytest.raises(ValueError, match=message):
            build()


@pytest.mark.parametrize("name", ["layer_norm_epsilon", "norm_eps", "droput"])
def test_extra_saved_values_are_restored(name, tmp_path):
    """Users and tools store values of their own in a config, under any name."""
    config = VanillaTransformerConfig(d_model=64)
    setattr(config, name, 0.5)
    config.save_pretrained(tmp_path)
    for read in (VanillaTransformerConfig, AutoConfig):
        found = read.from_pretrained(tmp_path, dropout=0.3)
        assert (getattr(found, name), found.d_model, found.dropout) == (0.5, 64, 0.3)
    found, unused = VanillaTransformerConfig.from_pretrained(tmp_path, return_unused_kwargs=True)
    assert (getattr(found, name), unused) == (0.5, {})


def test_misspelled_field_in_a_saved_config_is_logged(tmp_path, caplog):
    config = VanillaTransformerConfig()
    config.droput = 0.5
    config.save_pretrained(tmp_path)
    VanillaTransformerConfig.from_pretrained(tmp_path)
    assert "holds droput, which" in caplog.text


def names_of_transformers():
    """Return the names that transformers may store in a config or pass to one."""
    config, generation = PreTrainedConfig(), GenerationConfig()
    names = {*dir(config), *vars(config), *vars(generation)}
    for function in (
        PreTrainedConfig.from_pretrained,
        PreTrainedModel.from_pretrained,
        AutoModel.from_pretrained,
        pipeline,
    ):
        names |= inspect.signature(function).parameters.keys()
    # Names of its earlier versions, and of other loaders and tools.
    names |= {"torch_dtype", "tie_encoder_decoder", "cross_attention_hidden_size", "torchscript"}
    names |= {"task_specific_params", "sep_token_id", "cls_token_id", "mask_token_id", "prefix"}
    names |= {"add_cross_attention", "is_decoder", "pruned_heads", "finetuning_task", "device_map"}
    names |= {"tokenizer_class", "use_bfloat16", "custom_pipelines", "quantization_config"}
    return names - VanillaTransformerConfig.__annotations__.keys()


def test_extra_names_of_users_and_transformers_are_kept(tmp_path):
    theirs = names_of_transformers()
    assert len(theirs) > 200
    not_fields = {name: None for name in theirs if not hasattr(PreTrainedConfig, name)}
    VanillaTransformerConfig(**not_fields)
    beside = {"my_note": "x", "dropout_note": "y", "encoder_name": "z", "num_gpus": 3}
    config = VanillaTransformerConfig(**beside, task_specific_params={"a": 1}, sep_token_id=7)
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path, output_hidden_states=True)
    assert {name: getattr(loaded, name) for name in beside} == beside
    assert (loaded.task_specific_params, loaded.sep_token_id) == ({"a": 1}, 7)
    options = dict.fromkeys(theirs - {"return_unused_kwargs", "self", "config_dict"})
    _, unused = VanillaTransformerConfig.from_dict({}, return_unused_kwargs=True, device_map="cpu")
    assert unused == {"device_map": "cpu"}
    from_pretrained = inspect.signature(PreTrainedModel.from_pretrained).parameters
    VanillaTransformerConfig.from_dict({}, **{n: None for n in options if n in from_pretrained})


def test_fields_of_a_later_version_are_kept(tmp_path):
    VanillaTransformerConfig().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    later = {"decoder_cross_attention_heads": 2, "encoder_norm_first": True, "rope_theta": 1e4}
    later |= {"d_q": 8, "layer_dropout": 0.1, "source_position_offset": 3}
    path.write_text(json.dumps({**json.loads(path.read_text()), **later}))
    for config in (AutoConfig.from_pretrained(tmp_path), VanillaTransformerConfig(**later)):
        assert {name: getattr(config, name) for name in later} == later
