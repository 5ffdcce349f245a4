import json

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, GenerationConfig

from vanilla_transformer import PRESETS, VanillaTransformerConfig
from vanilla_transformer.errors import RequestError
from vanilla_transformer.ranges import FIELDS

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


REFUSED = [
    ({"d_model": 500}, "d_model=500 is not divisible by 8 encoder heads; try 504"),
    ({"decoder_attention_heads": 7}, "512 is not divisible by 7 decoder heads; try 518"),
    ({"d_model": 9, "d_k": 3, "d_v": 3}, "d_model=9 is odd.*try 10"),
    ({"layer_norm_eps": 0.0}, "Got layer_norm_eps=0.0; it must be a number, more than 0"),
    ({"vocab_size": 3}, "Got unk_token_id=3; it must be a whole number from 0 to 2"),
    ({"eos_token_id": [2, 40000]}, "Got eos_token_id=40000; it must be"),
    ({"decoder_vocab_size": 9}, "decoder_vocab_size=9 differs from vocab_size=37000"),
    (
        {"decoder_vocab_size": 3, "share_encoder_decoder_embeddings": False},
        "Got unk_token_id=3; it must be a whole number from 0 to 2",
    ),
    ({"position_encoding": "rotary"}, r"\('sinusoidal', 'learned', 'tensor2tensor'\), got rotary"),
    ({"activation_function": "relu6"}, "expected one of .'relu', 'gelu'.*, got relu6"),
    ({"is_encoder_decoder": False}, "VanillaTransformerConfig requires is_encoder_decoder=True"),
    ({"decoder_start_token_id": None}, "'decoder_start_token_id' expected int, got None"),
    *[({field: "4"}, field) for field in ("d_model", "dropout", "norm_first")],
    *[({field: -1}, f"Got {field}=-1; it must be a") for field in FIELDS],
    ({"d_model": 10**9}, "d_model=1000000000; it must be a whole number from 1 to 65536"),
    ({"dropout": 1}, "dropout=1; it must be a number, at least 0 and less than 1"),
    ({"dropout": float("nan")}, "must be a number"),
]


@pytest.mark.parametrize(
    ("fields", "message"),
    REFUSED,
    ids=lambda part: next(iter(part)) if isinstance(part, dict) else "",
)
def test_impossible_fields_are_refused(fields, message):
    with pytest.raises(StrictDataclassError, match=message):
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


def test_a_bad_change_is_refused_when_read_or_saved(tmp_path):
    config = VanillaTransformerConfig()
    config.save_pretrained(tmp_path)
    with pytest.raises(StrictDataclassError, match="not divisible"):
        AutoConfig.from_pretrained(tmp_path, d_model=500)
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

UNKNOWN = {
    **{"droput": "did you mean dropout", "n_layers": "encoder_layers and decoder_layers"},
    **{"h": "encoder_attention_heads and decoder_a", "d_ff": "encoder_ffn_dim and decoder_ffn_dim"},
    **{"num_heads": "encoder_attention_heads and", "eps_ls": "label_smoothing", "my_note": "help"},
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_name_is_refused_with_a_suggestion(name):
    for build in (
        lambda: VanillaTransformerConfig(**{name: 4}),
        lambda: VanillaTransformerConfig.from_dict({name: 4}),
        lambda: VanillaTransformerConfig.from_preset("big", **{name: 4}),
        lambda: AutoConfig.for_model("vanilla_transformer", **{name: 4}),
    ):
        with pytest.raises(RequestError, match=f"no field '{name}'; .*{UNKNOWN[name]}"):
            build()


def test_misspelt_name_is_refused_where_others_may_stand(tmp_path):
    """A loader's arguments may be the model's, and in a file tools store values of their own."""
    VanillaTransformerConfig().save_pretrained(tmp_path)
    with pytest.raises(RequestError, match="no field 'droput'; did you mean dropout"):
        AutoConfig.from_pretrained(tmp_path, droput=0.3)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "label_smothing": 0.3}))
    with pytest.raises(RequestError, match="no field 'label_smothing'; did you mean label_smoothi"):
        AutoConfig.from_pretrained(tmp_path)


def test_unknown_preset_names_the_known_ones():
    with pytest.raises(RequestError, match="no preset 'huge'; choose one of base, big, A_h1"):
        VanillaTransformerConfig.from_preset("huge")


def test_values_that_users_and_tools_store_in_a_config_are_restored(tmp_path):
    config = VanillaTransformerConfig(d_model=64)
    stored = {"my_note": "x", "norm_eps": 0.5, "sep_token_id": 7, "quantization_config": {"a": 1}}
    for name, value in stored.items():
        setattr(config, name, value)
    config.save_pretrained(tmp_path)
    for read in (VanillaTransformerConfig, AutoConfig):
        found = read.from_pretrained(tmp_path, dropout=0.3)
        assert {name: getattr(found, name) for name in stored} == stored
        assert (found.d_model, found.dropout) == (64, 0.3)
    found, unused = VanillaTransformerConfig.from_pretrained(
        tmp_path, return_unused_kwargs=True, device_map="cpu"
    )
    assert (found.my_note, unused) == ("x", {"device_map": "cpu"})


def test_names_of_transformers_are_accepted_as_it_accepts_them(tmp_path):
    theirs = {"attn_implementation": "eager", "dtype": "float16", "num_labels": 3, "num_beams": 4}
    theirs |= {"output_attentions": True, "architectures": ["X"], "name_or_path": "here"}
    for name, value in theirs.items():
        VanillaTransformerConfig(**{name: value})
    every = GenerationConfig().to_dict().keys() - {"transformers_version"}
    VanillaTransformerConfig(
        **dict.fromkeys(every - VanillaTransformerConfig.__annotations__.keys())
    )
    VanillaTransformerConfig().save_pretrained(tmp_path)
    for_files = {"trust_remote_code": False, "revision": "main", "local_files_only": True}
    found = AutoConfig.from_pretrained(tmp_path, **theirs, **for_files, cache_dir=tmp_path)
    assert (found._attn_implementation, found.num_labels) == ("eager", 3)
