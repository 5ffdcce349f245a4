"""The import from Joey NMT, compared with a forward pass written here, and Joey if installed."""

import math

import numpy as np
import pytest
import torch
import yaml
from torch import nn
from transformers import AutoTokenizer, pipeline

from vanilla_transformer import VanillaTransformerForConditionalGeneration, translate
from vanilla_transformer.convert.importers.joeynmt import import_joeynmt
from vanilla_transformer.target_tokenizer import target_tokenizer

SOURCE = ["<unk>", "<pad>", "<s>", "</s>", "the", "do@@", "gs", "run", "."]
TARGET = ["<unk>", "<pad>", "<s>", "</s>", "die", "Hun@@", "de", "laufen", ".", "und"]
WIDTH, INNER, LAYERS, HEADS = 16, 24, {"encoder": 2, "decoder": 3}, {"encoder": 4, "decoder": 2}


def settings(*, layer_norm="post", tied=False, scale=True, activation="relu", **stack):
    def one(name):
        return {
            **{"type": "transformer", "num_layers": LAYERS[name], "num_heads": HEADS[name]},
            "embeddings": {"embedding_dim": WIDTH, "scale": scale},
            **{"hidden_size": WIDTH, "ff_size": INNER, "dropout": 0.1, "layer_norm": layer_norm},
            **{"activation": activation, **stack},
        }

    symbols = {"unk": 0, "pad": 1, "bos": 2, "eos": 3}
    return {
        "name": "tiny",
        "data": {"special_symbols": {f"{role}_id": value for role, value in symbols.items()}},
        "model": {
            **{"tied_embeddings": tied, "tied_softmax": tied},
            **{name: one(name) for name in LAYERS},
        },
    }


def make_state(*, layer_norm="post", tied=False):
    """Return tensors under Joey NMT's names."""
    torch.manual_seed(0)
    state = {}

    def linear(name, rows, columns):
        state[f"{name}.weight"] = nn.init.xavier_uniform_(torch.empty(rows, columns))
        state[f"{name}.bias"] = torch.randn(rows) * 0.3

    def norm(name):
        state[f"{name}.weight"] = 1 + torch.randn(WIDTH) * 0.3
        state[f"{name}.bias"] = torch.randn(WIDTH) * 0.3

    for stack, attentions, norms in (
        ("encoder", ("src_src_att",), ("layer_norm",)),
        ("decoder", ("trg_trg_att", "src_trg_att"), ("x_layer_norm", "dec_layer_norm")),
    ):
        for layer in (f"{stack}.layers.{i}" for i in range(LAYERS[stack])):
            for attention in attentions:
                for part in ("k_layer", "v_layer", "q_layer", "output_layer"):
                    linear(f"{layer}.{attention}.{part}", WIDTH, WIDTH)
            linear(f"{layer}.feed_forward.pwff_layer.0", INNER, WIDTH)
            linear(f"{layer}.feed_forward.pwff_layer.3", WIDTH, INNER)
            for name in (*norms, "feed_forward.layer_norm"):
                norm(f"{layer}.{name}")
        if layer_norm == "pre":
            norm(f"{stack}.layer_norm")
        state[f"{stack}.pe.pe"] = positions(50)[None]
    sizes = {"src": len(SOURCE), "trg": len(SOURCE if tied else TARGET)}
    for side, size in sizes.items():
        state[f"{side}_embed.lut.weight"] = torch.randn(size, WIDTH)
    state["decoder.output_layer.weight"] = torch.randn(sizes["trg"], WIDTH)
    if tied:
        state["trg_embed.lut.weight"] = state["src_embed.lut.weight"]
        state["decoder.output_layer.weight"] = state["src_embed.lut.weight"]
    return state


def positions(length):
    table = torch.zeros(length, WIDTH)
    rates = torch.exp(torch.arange(0, WIDTH, 2).float() * -(math.log(10000.0) / WIDTH))
    angles = torch.arange(length)[:, None].float() * rates
    table[:, 0::2], table[:, 1::2] = torch.sin(angles), torch.cos(angles)
    return table


def save_directory(folder, state, config, *, tied=False):
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    for side, tokens in (("src", SOURCE), ("trg", SOURCE if tied else TARGET)):
        (folder / f"{side}_vocab.txt").write_text("\n".join(tokens) + "\n")
    # What Joey NMT stores besides the weights.
    extra = {"steps": 7, "best_ckpt_score": np.float64(3.5), "optimizer_state": {"state": {}}}
    torch.save({"model_state": state, **extra}, folder / "best.ckpt")
    return folder


def joey_logits(state, source, mask, target, *, layer_norm, scale, activation):
    function = {"relu": torch.relu, "gelu": nn.functional.gelu, "swish": nn.functional.silu}

    def norm(name, x):
        weights = (state[f"{name}.weight"], state[f"{name}.bias"])
        return nn.functional.layer_norm(x, (WIDTH,), *weights, eps=1e-6)

    def linear(name, x):
        return nn.functional.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])

    def attend(name, x, memory, allowed, heads):
        query, key, value = (
            linear(f"{name}.{part}_layer", states).unflatten(-1, (heads, -1)).transpose(1, 2)
            for part, states in (("q", x), ("k", memory), ("v", memory))
        )
        scores = (query / math.sqrt(WIDTH // heads)) @ key.transpose(2, 3)
        weights = scores.masked_fill(~allowed[:, None], -math.inf).softmax(-1)
        return linear(f"{name}.output_layer", (weights @ value).transpose(1, 2).flatten(2))

    def sublayer(name, x, compute):
        if layer_norm == "pre":
            return x + compute(norm(name, x))
        return norm(name, x + compute(x))

    def feed_forward(layer, x):
        inner = f"{layer}.feed_forward.pwff_layer"
        return sublayer(
            f"{layer}.feed_forward.layer_norm",
            x,
            lambda x: linear(f"{inner}.3", function[activation](linear(f"{inner}.0", x))),
        )

    def embed(side, ids):
        table = state[f"{side}_embed.lut.weight"] * (math.sqrt(WIDTH) if scale else 1.0)
        return table[ids] + positions(ids.size(1))

    real, x = mask.bool()[:, None], embed("src", source)
    for layer in (f"encoder.layers.{i}" for i in range(LAYERS["encoder"])):
        name = f"{layer}.src_src_att"
        x = sublayer(
            f"{layer}.layer_norm",
            x,
            lambda x, name=name: attend(name, x, x, real, HEADS["encoder"]),
        )
        x = feed_forward(layer, x)
    memory = norm("encoder.layer_norm", x) if layer_norm == "pre" else x
    causal = torch.ones(1, target.size(1), target.size(1), dtype=torch.bool).tril()
    x = embed("trg", target)
    for layer in (f"decoder.layers.{i}" for i in range(LAYERS["decoder"])):
        x = sublayer(
            f"{layer}.x_layer_norm",
            x,
            lambda x, layer=layer: attend(f"{layer}.trg_trg_att", x, x, causal, HEADS["decoder"]),
        )
        x = sublayer(
            f"{layer}.dec_layer_norm",
            x,
            lambda x, layer=layer: attend(
                f"{layer}.src_trg_att", x, memory, real, HEADS["decoder"]
            ),
        )
        x = feed_forward(layer, x)
    x = norm("decoder.layer_norm", x) if layer_norm == "pre" else x
    return x @ state["decoder.output_layer.weight"].T


def make_batch():
    torch.manual_seed(1)
    source = torch.randint(4, len(SOURCE), (3, 9))
    mask = (torch.arange(9) < torch.tensor([[9], [5], [2]])).long()
    target = torch.randint(4, len(SOURCE), (3, 7))
    target[:, 0] = 2
    return source.masked_fill(mask == 0, 1), mask, target


DIALECTS = [
    {"layer_norm": "post", "scale": True, "activation": "relu", "tied": False},
    {"layer_norm": "pre", "scale": True, "activation": "swish", "tied": True},
    {"layer_norm": "pre", "scale": False, "activation": "gelu", "tied": True},
]


@pytest.mark.parametrize("dialect", DIALECTS, ids=str)
def test_imported_logits_equal_the_equations_of_joeynmt(tmp_path, dialect):
    options = dict(dialect)
    tied = options.pop("tied")
    state = make_state(layer_norm=options["layer_norm"], tied=tied)
    config = settings(tied=tied, **options)
    folder = save_directory(tmp_path / "joey", state, config, tied=tied)
    import_joeynmt(folder, tmp_path / "ours")
    ours = VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path / "ours")
    batch = make_batch()
    with torch.no_grad():
        expected = joey_logits(state, *batch, **options)
        torch.testing.assert_close(ours(*batch).logits, expected, atol=1e-5, rtol=0)
    target = ours.model.decoder.embed_tokens.weight
    assert (ours.lm_head.weight is target) == (tied and options["scale"])


@pytest.mark.parametrize("dialect", DIALECTS, ids=str)
def test_imported_logits_equal_those_of_joeynmt(tmp_path, dialect):
    pytest.importorskip("joeynmt", reason="no dependency of ours")
    from types import SimpleNamespace

    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    options = dict(dialect)
    tied = options.pop("tied")
    config = settings(tied=tied, **options)
    symbols = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    symbols |= {"sep_token": None, "lang_tags": [], **config["data"]["special_symbols"]}
    vocabularies = [
        Vocabulary(tokens[4:], SimpleNamespace(**symbols))
        for tokens in (SOURCE, SOURCE if tied else TARGET)
    ]
    torch.manual_seed(0)
    joey = build_model(config["model"], *vocabularies).eval()
    with torch.no_grad():
        for parameter in joey.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    folder = save_directory(tmp_path / "joey", joey.state_dict(), config, tied=tied)
    ours = import_joeynmt(folder).model
    source, mask, target = make_batch()
    with torch.no_grad():
        memory, _ = joey.encoder(joey.src_embed(source), None, mask.bool()[:, None])
        expected, *_ = joey.decoder(
            trg_embed=joey.trg_embed(target),
            encoder_output=memory,
            encoder_hidden=None,
            src_mask=mask.bool()[:, None],
            unroll_steps=None,
            hidden=None,
            trg_mask=(target != 1)[:, None],
        )
        found = ours(source, mask, target).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_vocabularies_give_tokenizers_and_the_start_symbol(tmp_path):
    folder = save_directory(tmp_path / "joey", make_state(), settings())
    import_joeynmt(folder, tmp_path / "ours")
    source = AutoTokenizer.from_pretrained(tmp_path / "ours")
    target = target_tokenizer(source)
    batch = source(["the do@@ gs run fast .", "run"], padding=True, return_tensors="pt")
    assert batch.input_ids.tolist() == [[4, 5, 6, 7, 0, 8, 3], [7, 3, 1, 1, 1, 1, 1]]
    ours = VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path / "ours")
    ids = ours.generate(**batch, max_new_tokens=6)
    assert (ids[:, 0] == 2).all()
    assert not set(ids[:, 1:].flatten().tolist()) & {0, 2}
    assert target.decode([2, 4, 5, 6, 7, 3], skip_special_tokens=True) == "die Hunde laufen"


def test_translations_use_the_target_vocabulary(tmp_path):
    state = make_state()
    state["decoder.layers.2.feed_forward.layer_norm.weight"].zero_()  # the output is always "und"
    state["decoder.output_layer.weight"].zero_()
    direction = state["decoder.layers.2.feed_forward.layer_norm.bias"]
    state["decoder.output_layer.weight"][TARGET.index("und")] = 9 * direction / direction.norm()
    folder = save_directory(tmp_path / "joey", state, settings())
    imported = import_joeynmt(folder, tmp_path / "ours")
    sentences, options = ["the do@@ gs run .", "run"], {"max_new_tokens": 3}
    expected = list(translate(imported.model, imported.tokenizer, sentences, **options))
    assert [set(text.split()) for text in expected] == [{"und"}, {"und"}]
    translator = pipeline("translate", model=str(tmp_path / "ours"))
    results = translator(sentences, **options)
    assert [result["translation_text"] for (result,) in results] == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 0.5}, "encoder: alpha=0.5 scales residuals"),
        ({"type": "recurrent"}, "type is 'recurrent'; allowed is 'transformer'"),
        ({"layer_norm": None}, "layer_norm=None; allowed: pre, post"),
        ({"activation": "relu6"}, "got relu6"),
        ({"hidden_size": "wide"}, "encoder: hidden_size is 'wide'; it must be a number"),
        ({"num_layers": {}}, "encoder: num_layers is a dict; it must be a number"),
        ({"dropout": True}, "dropout is True; it must be a number"),
        ({"num_heads": 2.5}, "encoder_attention_heads"),
        ({"embeddings": 3}, "needs a section 'embeddings' with settings; it has 3"),
    ],
)
def test_unsupported_settings_are_refused_with_the_reason(tmp_path, change, message):
    folder = save_directory(tmp_path / "joey", make_state(), settings(**change))
    with pytest.raises(ValueError, match=message):
        import_joeynmt(folder, tmp_path / "ours")
    assert [entry.name for entry in tmp_path.iterdir()] == ["joey"]


def test_sizes_may_be_whole_floats(tmp_path):
    changed = settings(hidden_size=float(WIDTH), ff_size=float(INNER), dropout=0)
    folder = save_directory(tmp_path / "joey", make_state(), changed)
    config = import_joeynmt(folder, tmp_path / "ours").model.config
    assert (config.d_model, config.encoder_ffn_dim, config.dropout) == (WIDTH, INNER, 0)


def test_default_layer_norm_is_refused_where_it_differs_by_stack(tmp_path):
    """Joey then builds a pre-norm encoder without a last norm, and a post-norm decoder."""
    config = settings()
    for name in LAYERS:
        del config["model"][name]["layer_norm"]
    folder = save_directory(tmp_path / "joey", make_state(), config)
    with pytest.raises(ValueError, match="the encoder is pre-norm without a norm after its layers"):
        import_joeynmt(folder)


def test_default_layer_norm_with_last_norms_is_pre_norm(tmp_path):
    config = settings()
    for name in LAYERS:
        del config["model"][name]["layer_norm"]
    folder = save_directory(tmp_path / "joey", make_state(layer_norm="pre"), config)
    assert import_joeynmt(folder).model.config.norm_first


def test_the_best_checkpoint_of_a_folder_is_taken(tmp_path):
    state = make_state()
    folder = save_directory(tmp_path / "joey", state, settings())
    bias = state["encoder.layers.0.src_src_att.q_layer.bias"]
    (folder / "best.ckpt").unlink()
    for rank, name in enumerate(("latest.ckpt", "avg_best.ckpt", "best.ckpt")):
        bias.fill_(rank)
        torch.save({"model_state": state}, folder / name)
        model = import_joeynmt(folder).model
        assert (model.model.encoder.layers[0].self_attn.q_proj.bias == rank).all()


def test_missing_files_are_refused_by_name(tmp_path):
    folder = save_directory(tmp_path / "joey", make_state(), settings())
    with pytest.raises(ValueError, match=r"holds no other\.ckpt"):
        import_joeynmt(folder, checkpoint="other.ckpt")
    with pytest.raises(ValueError, match=r"config\.yaml; name a model directory"):
        import_joeynmt(tmp_path)
    (folder / "trg_vocab.txt").unlink()
    with pytest.raises(ValueError, match=r"trg_vocab\.txt"):
        import_joeynmt(folder)
    assert [entry.name for entry in tmp_path.iterdir()] == ["joey"]


def test_block_import_joeynmt(documented_command, tmp_path):
    (tmp_path / "models").mkdir()
    save_directory(tmp_path / "models" / "iwslt14", make_state(), settings())
    documented_command("import_joeynmt")
    VanillaTransformerForConditionalGeneration.from_pretrained("runs/iwslt14")
