import dataclasses

import numpy as np
import pytest
import torch
from tiny_models import tiny_config

from vanilla_transformer import VanillaTransformerForConditionalGeneration, translate
from vanilla_transformer.data.tokenizer import train_tokenizer
from vanilla_transformer.visualization import (
    Attention,
    attention_weights,
    plot_attention,
    save_figure,
    token_words,
)
from vanilla_transformer.visualization.subwords import whole_words

pytestmark = pytest.mark.pictures

SOURCE, TARGET = "A man in an orange hat.", "Ein Mann mit Hut kostet $5 und ist snake_case."
LAYERS, HEADS = 2, 4


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([SOURCE, TARGET] * 2, vocab_size=290, show_progress=False)


@pytest.fixture
def model(tokenizer):
    torch.manual_seed(0)
    config = tiny_config(
        len(tokenizer),
        **{"encoder_layers": LAYERS, "decoder_layers": LAYERS, "dropout": 0.5},
        **{"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS},
    )
    return VanillaTransformerForConditionalGeneration(config).eval()


def made_up(sources, targets):
    """Return random attention between words, without a model."""
    rng = np.random.default_rng(0)

    def weights(rows, columns):
        return rng.dirichlet(np.ones(columns), size=(LAYERS, HEADS, rows))

    S, T = len(sources), len(targets)
    parts = {"encoder": weights(S, S), "decoder": weights(T, T), "cross": weights(T, S)}
    return Attention(sources, targets, ["<s>", *targets[:-1]], **parts)


@pytest.fixture
def attention():
    return made_up(["a", "$5 and $6", "x_y", "</s>"], ["ein", "^2", "</s>"])


def panels(figure):
    """Return the axes with a heat map, without the colour bar."""
    return [axis for axis in figure.axes if axis.get_images()]


# ------------------------------------------------------------------------------ attention weights


def test_attention_words_are_those_of_the_sentences(model, tokenizer):
    a = attention_weights(model, tokenizer, SOURCE, TARGET)
    assert a.source_words == ["A", "man", "in", "an", "orange", "hat", ".", "</s>"]
    german = ["Ein", "Mann", "mit", "Hut", "kostet", "$", "5", "und", "ist", "snake_case", "."]
    assert a.target_words == [*german, "</s>"]
    assert a.decoder_words == ["<s>", *german]


def test_unmerged_weights_equal_the_models(model, tokenizer):
    a = attention_weights(model, tokenizer, SOURCE, TARGET, merge_words=False)
    ids = tokenizer(SOURCE, return_tensors="pt")["input_ids"]
    labels = tokenizer(text_target=TARGET, return_tensors="pt")["input_ids"]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        out = model(input_ids=ids, labels=labels, output_attentions=True)
    for found, expected in (
        (a.encoder, out.encoder_attentions),
        (a.decoder, out.decoder_attentions),
        (a.cross, out.cross_attentions),
    ):
        np.testing.assert_allclose(found, torch.cat(expected).numpy(), atol=1e-6)
    assert a.source_words == token_words(tokenizer, ids[0].tolist())


def test_merging_averages_over_queries_and_sums_over_keys(model, tokenizer):
    pieces = attention_weights(model, tokenizer, SOURCE, TARGET, merge_words=False)
    words = attention_weights(model, tokenizer, SOURCE, TARGET)
    sources = whole_words(tokenizer, tokenizer(SOURCE)["input_ids"])
    targets = whole_words(tokenizer, tokenizer(TARGET)["input_ids"])
    assert len(sources) < pieces.cross.shape[3]
    for row, target in enumerate(targets):
        for column, source in enumerate(sources):
            block = pieces.cross[:, :, target.start : target.end, source.start : source.end]
            expected = block.sum(axis=-1).mean(axis=-1)
            np.testing.assert_allclose(words.cross[:, :, row, column], expected)
    for weights in (words.encoder, words.decoder, words.cross):
        np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-6)
    assert np.triu(words.decoder, k=1).max() == 0.0


def test_without_a_target_the_source_is_translated(model, tokenizer):
    (translation,) = translate(model, tokenizer, [SOURCE], num_beams=3, max_new_tokens=7)
    expected = attention_weights(model, tokenizer, SOURCE, translation)
    for count in (1, 3):
        options = {"num_beams": 3, "max_new_tokens": 7, "num_return_sequences": count}
        found = attention_weights(model, tokenizer, SOURCE, **options)
        assert (found.target, found.target_words) == (translation, expected.target_words)
        np.testing.assert_array_equal(found.cross, expected.cross)


def state(model):
    modes = [module.training for module in model.modules()]
    return modes, model.config._attn_implementation, model.generation_config.to_dict()


def test_layers_that_users_added_are_drawn(model, tokenizer):
    layers = model.model.decoder.layers
    model.model.decoder.layers = torch.nn.ModuleList([*layers, layers[0]])
    a = attention_weights(model, tokenizer, SOURCE, TARGET)
    assert len(a.cross) == len(a.decoder) == len(layers) + 1 == len(a.encoder) + 1


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_attention_weights_restores_the_models_state(model, tokenizer, implementation, monkeypatch):
    model.set_attn_implementation(implementation)
    model.train()
    model.model.encoder.eval()  # as if frozen
    before = state(model)
    first = attention_weights(model, tokenizer, SOURCE, TARGET)
    second = attention_weights(model, tokenizer, SOURCE, TARGET)
    attention_weights(model, tokenizer, SOURCE, max_new_tokens=3)
    assert state(model) == before
    # No dropout, although the model was in training mode.
    np.testing.assert_array_equal(first.cross, second.cross)
    monkeypatch.setattr(model.model, "forward", None)  # an error in mid-computation
    with pytest.raises(TypeError):
        attention_weights(model, tokenizer, SOURCE, TARGET)
    assert state(model) == before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_are_supported(model, tokenizer, dtype):
    a = attention_weights(model.to(dtype), tokenizer, SOURCE, TARGET)
    np.testing.assert_allclose(a.cross.sum(axis=-1), 1.0, atol=2e-2)  # weights have 8 bits


# ------------------------------------------------------------------------------ attention pictures


def test_heat_maps_show_the_weights_with_words_on_the_axes(attention):
    figure = plot_attention(attention, kind="cross", layer=1)
    assert len(panels(figure)) == HEADS
    for head, axis in enumerate(panels(figure)):
        np.testing.assert_array_equal(axis.get_images()[0].get_array(), attention.cross[1, head])
        assert axis.get_title() == f"head {head + 1}"
    # Only the outer panels have labels; the inner ones share them.
    first, last = panels(figure)[0], panels(figure)[-1]
    assert [text.get_text() for text in first.get_yticklabels()] == attention.target_words
    assert [text.get_text() for text in last.get_xticklabels()] == attention.source_words
    assert (first.get_ylabel(), last.get_xlabel()) == ("target", "source")


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_self_attention_has_the_same_words_on_both_axes(attention, kind):
    (axis,) = panels(plot_attention(attention, kind=kind, heads=2))
    expected = attention.source_words if kind == "encoder" else attention.decoder_words
    assert [text.get_text() for text in axis.get_xticklabels()] == expected
    assert [text.get_text() for text in axis.get_yticklabels()] == expected
    assert axis.get_images()[0].get_array().shape == (len(expected), len(expected))


def test_heads_can_be_chosen_and_averaged(attention):
    assert len(panels(plot_attention(attention, heads=[0, -1]))) == 2
    assert len(panels(plot_attention(attention, heads=np.array([0, 1])))) == 2
    assert len(panels(plot_attention(attention, heads=np.int64(1)))) == 1  # as argmax gives it
    (axis,) = panels(plot_attention(attention, heads="mean", layer=0))
    expected = attention.cross[0].mean(axis=0)
    np.testing.assert_allclose(axis.get_images()[0].get_array(), expected)


@pytest.mark.parametrize(
    "words",
    [
        ["x", "</s>"],
        [f"{i}{'word' * (i % 4)}" for i in range(60)],
        ["$\\frac{", "a_b^c", "$", "$$", "%", "{", "\\"],
        ["你好", "😀", "👨‍👩‍👧", "\U0010fffd", "\x00", "w" * 300],
    ],
    ids=["two", "sixty", "formulas", "rare"],
)
def test_any_words_can_be_drawn_and_saved(words, tmp_path):
    figure = plot_attention(made_up(words, words), kind="cross", heads=1)
    path = save_figure(figure, tmp_path / "picture.png", dpi=40)
    assert path.read_bytes().startswith(b"\x89PNG")


def uniform(heads, rows, columns):
    """Return uniform cross-attention between many words; the other kinds are empty."""
    words = [[f"word{number}" for number in range(count)] for count in (columns, rows)]
    nothing = np.zeros((1, heads, 0, 0))
    cross = np.full((1, heads, rows, columns), 1 / columns, dtype=np.float32)
    return Attention(*words, [], nothing, nothing, cross)


@pytest.mark.parametrize("heads", [1, 4])
def test_picture_size_is_limited_for_very_long_sentences(heads):
    figure = plot_attention(uniform(heads, 1000, 800))
    assert max(figure.get_size_inches()) * 150 <= 4000
    words = [text.get_text() for text in panels(figure)[0].get_yticklabels()]
    assert words == [f"word{number}" for number in range(0, 1000, -(-1000 // len(words)))]
    assert 50 < len(words) < 300


# ------------------------------------------------------------------------------------ the figure


@pytest.mark.parametrize("name", ["picture.png", "picture.svg", "picture.PDF", "picture"])
def test_pictures_are_saved_in_the_format_of_the_suffix(attention, name, tmp_path):
    start = {".svg": b"<?xml", ".PDF": b"%PDF"}
    figure = plot_attention(attention, heads=1)
    path = save_figure(figure, tmp_path / name, dpi=40)
    assert path.read_bytes().startswith(start.get(path.suffix, b"\x89PNG"))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with pytest.raises(ValueError, match=r"picture\.docx.*png"):
        save_figure(figure, tmp_path / "picture.docx")


def test_the_source_stands_left_of_its_translation_in_every_script():
    """Isolated, in a line that runs from left to right, each text keeps its own direction."""
    source, target = "\u05e9\u05dc\u05d5\u05dd", "Hello"
    drawn = dataclasses.replace(made_up([source], [target]), source=source, target=target)
    figure = plot_attention(drawn, kind="cross")
    line = figure.get_suptitle().splitlines()[1]
    assert line == f"\u200e\u2068{source}\u2069 \u2192 \u2068{target}\u2069"
