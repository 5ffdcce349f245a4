"""The experiments of training/paper: their base class, and each of them at its tiny size."""

import json
import math
import re
from pathlib import Path

import architecture
import attention
import figures
import numpy as np
import positions
import pytest
import table_3
import torch
from experiment import Experiment
from pages import BLOCK
from tiny_models import tiny_config

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.batch_translation import generate_ids
from vanilla_transformer.beam_search import beam_search
from vanilla_transformer.modeling_vanilla_transformer import eager_attention_forward
from vanilla_transformer.visualization.figure import new_figure

pytestmark = pytest.mark.usefixtures("own_cache")

ROOT = Path(__file__).parents[2]


class Squares(Experiment):
    """Squares of two numbers; the second one fails at first."""

    name, title = "squares", "Squares"
    sizes = {"tiny": {"numbers": (2, 3)}}
    measured = []
    broken = False

    def about(self, settings):
        return f"Squares of {len(settings['numbers'])} numbers."

    def findings(self, rows, settings):
        yield f"The largest is {max(facts['square'] for facts in rows.values())}."

    def rows(self, settings):
        return [str(number) for number in settings["numbers"]]

    def measure(self, row, settings):
        if self.broken:
            raise KeyboardInterrupt
        self.measured.append(row)
        return {"square": int(row) ** 2}

    def tables(self, rows, settings):
        cells = [[name, facts["square"]] for name, facts in rows.items()]
        return {"All of them": (["Number", "Square"], cells)}

    def draw(self, rows, settings):
        figure = new_figure(2, 2)
        figure.subplots().plot([facts["square"] for facts in rows.values()])
        return figure


@pytest.fixture
def squares(tmp_path, monkeypatch):
    monkeypatch.setattr(Squares, "measured", [])
    return lambda *arguments: Squares().main(
        ["--size", "tiny", "--results", str(tmp_path), *arguments]
    )


@pytest.fixture
def refusal(squares, capsys):
    """Return a function that runs the command and returns the error that it ended with."""

    def refused(*arguments):
        with pytest.raises(SystemExit):
            squares(*arguments)
        return capsys.readouterr().err

    return refused


def test_measured_rows_are_saved_at_once_and_not_measured_again(squares, tmp_path, monkeypatch):
    squares("--rows", "3")
    assert (tmp_path / "squares.tiny.png").is_file()
    monkeypatch.setattr(Squares, "broken", True)
    with pytest.raises(KeyboardInterrupt):
        squares()
    results = json.loads((tmp_path / "squares.tiny.json").read_text(encoding="utf-8"))
    assert list(results["rows"]) == ["3"]
    monkeypatch.setattr(Squares, "broken", False)
    squares()
    results = json.loads((tmp_path / "squares.tiny.json").read_text(encoding="utf-8"))
    assert list(results["rows"]) == ["2", "3"]
    assert Squares.measured == ["3", "2"]
    assert {"commit", "date", "hardware", "seconds"} <= results["rows"]["2"]["provenance"].keys()
    page = (tmp_path / "squares.tiny.md").read_text(encoding="utf-8")
    assert "|---:|---:|\n| 2 | 4 |\n| 3 | 9 |" in page
    assert "\n\nSquares of 2 numbers.\n\nThis is a trial of the script" in page
    assert "\n\n- The largest is 9.\n\n" in page
    assert "python training/tests/test_experiments.py --size tiny" in page


def test_changed_settings_and_unknown_rows_are_refused(squares, refusal, monkeypatch):
    squares()
    assert "got 5; there are 2, 3" in refusal("--rows", "2,5")
    monkeypatch.setattr(Squares, "sizes", {"tiny": {"numbers": (2, 3, 4)}})
    assert "was measured with other settings" in refusal()


def test_rows_measured_on_other_files_are_refused(squares, refusal, tmp_path, monkeypatch):
    path = tmp_path / "pairs.tsv"
    path.write_text("a\tb")
    monkeypatch.setattr(Squares, "files", lambda self: {"train": path, "validation": None})
    squares("--rows", "3")
    path.write_text("a\tc")
    squares("--rows", "")  # draws the rows that were measured
    assert "was measured with another train file; give that one" in refusal()
    assert "another train file" in refusal("--rows", "3")  # also if nothing is left to measure
    path.unlink()
    assert f"there is no train file {path}" in refusal("--rows", "3")
    monkeypatch.setattr(Squares, "files", lambda self: {"train": None, "validation": None})
    squares("--rows", "3")  # no file is given, and none is needed


# --------------------------------------------------------------------------- variants of the model


def tiny_model(**config):
    torch.manual_seed(0)
    config = tiny_config(50, **{"encoder_layers": 2, "decoder_layers": 2, **config})
    return VanillaTransformerForConditionalGeneration(config)


def run_tiny(experiment, tmp_path, *arguments):
    """Run an experiment at its tiny size; return the rows of its results, and its page."""
    places = ["--results", str(tmp_path / "results")]
    if arguments[:1] != ("--run",):
        places += ["--runs", str(tmp_path / "runs")]
        for part in ("train", "validation"):
            places += [f"--{part}-file", str(ROOT / f"tests/fixtures/tiny_pairs/{part}.jsonl")]
    experiment.main(["--size", "tiny", *places, *arguments])
    path = tmp_path / "results" / f"{experiment.name}.tiny.json"
    assert path.with_suffix(".png").is_file()
    results = json.loads(path.read_text(encoding="utf-8"))
    return results["rows"], path.with_suffix(".md").read_text(encoding="utf-8")


def test_attention_formulas_follow_the_paper():
    """Compare dot-product attention with eager attention at scale 1, and additive with a loop."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 3, 5, 4, generator=generator) for _ in range(3))
    mask = torch.zeros(2, 1, 5, 5).masked_fill(torch.ones(5, 5).triu(1) == 1, -1e9)
    module = torch.nn.Module().eval()
    module.v = torch.randn(3, 4, generator=generator)
    inputs = (module, query, key, value, mask)
    assert attention.KINDS["scaled dot-product"] is eager_attention_forward
    unscaled = attention.dot_product(*inputs, scaling=0.5)
    assert torch.equal(unscaled[1], eager_attention_forward(*inputs, scaling=1.0)[1])
    heads, weights = attention.additive(*inputs, scaling=0.5)
    for b, h, t in np.ndindex(2, 3, 5):
        scores = [
            sum(module.v[h, i] * math.tanh(query[b, h, t, i] + key[b, h, j, i]) for i in range(4))
            for j in range(t + 1)
        ]
        expected = torch.stack(scores).softmax(0)
        assert torch.allclose(weights[b, h, t, : t + 1], expected, atol=1e-6)
        assert torch.allclose(heads[b, t, h], expected @ value[b, h, : t + 1], atol=1e-5)


def run_block(wanted, names, replaced=()):
    """Run a code block of training/paper/README.md, given the names that earlier ones define."""
    page = (ROOT / "training/paper/README.md").read_text(encoding="utf-8")
    (block,) = [text for name, _, _, text in BLOCK.findall(page) if name == wanted]
    for text in replaced:
        assert text in block
        block = block.replace(text, replaced[text])
    exec(block, names)
    return names


@pytest.fixture(scope="module")
def changed():
    """Return the names that the first two code blocks of training/paper/README.md define."""
    return run_block("subclass", run_block("change_one_formula", {}))


def test_block_subclass(changed):
    config = tiny_model().config
    layer = changed["SwiGLU"](config, 24)
    x = torch.randn(2, 3, config.d_model)
    gated = torch.nn.functional.silu(x @ layer.fc1.weight.T + layer.fc1.bias)
    gated = gated * (x @ layer.gate.weight.T + layer.gate.bias)
    assert torch.allclose(layer(x), gated @ layer.fc2.weight.T + layer.fc2.bias, atol=1e-6)
    # Products of rotated vectors depend on distances alone.
    query, key = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    rotated = changed["rotated"]
    near, far = ((rotated(query, at) * rotated(key, at - 3)).sum() for at in (4, 40))
    assert torch.allclose(near, far)
    assert not torch.allclose(near, (query * key).sum())


def test_block_compare_a_change(changed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"a {n} b\tB {n} A\n" for n in range(300))
    Path("pairs.tsv").write_text(f"en\tde\n{rows}", encoding="utf-8")
    smaller = {"20_000": "2", "8000": "300", "256": "16", '_layers": 3': '_layers": 1'}
    with pytest.warns(UserWarning, match="The attention 'rotary' is not saved") as told:
        found = run_block("compare_a_change", changed, smaller)
    assert not any("'sdpa'" in str(each.message) for each in told)
    printed = capsys.readouterr().out
    assert all(re.search(rf"^{name} [\d.]+ [\d.]+$", printed, re.M) for name in ("plain", "modern"))
    assert found["scores"][1].keys() == {"bleu", "chrf", "exact_match"}
    model = found["model"].eval()  # as loaded from its saved files
    assert model.config._attn_implementation == "rotary"
    trained = found["trainer"].model.eval()
    ids = torch.tensor([[5, 6, 2]])
    inputs = {"input_ids": ids, "decoder_input_ids": ids}
    assert torch.allclose(model(**inputs).logits, trained(**inputs).logits, atol=1e-5)
    # Without a cache, each step sees all target positions at once.
    searched = beam_search(model, ids, max_new_tokens=4)
    found = generate_ids(model, ids, torch.ones_like(ids), max_new_tokens=4, use_cache=False)
    assert torch.equal(searched.sequences, found.sequences)


def test_block_change_one_formula():
    """Compare the code block's attention without 1 / sqrt(d_k) with ours at scaling = 1."""
    found = run_block("change_one_formula", {})
    model = found["model"].eval()
    inputs = {"input_ids": torch.tensor([[5, 6, 2]]), "labels": torch.tensor([[7, 8, 9, 2]])}
    logits = model(**inputs).logits
    model.set_attn_implementation("eager")
    assert not torch.allclose(model(**inputs).logits, logits, atol=1e-3)
    for module in model.modules():
        if hasattr(module, "scaling"):
            module.scaling = 1.0
    assert torch.allclose(model(**inputs).logits, logits, atol=1e-5)


@pytest.mark.slow
def test_attention_experiment_trains_other_formulas(tmp_path):
    rows, page = run_tiny(attention.AttentionKinds(), tmp_path, "--rows", "trained additive d_k=4")
    assert rows["trained additive d_k=4"]["perplexity"] > 1
    assert "| additive | 4 |" in page
    run_tiny(attention.AttentionKinds(), tmp_path, "--rows", "additive d_k=4,dot-product d_k=4")


def test_table_3_sizes_are_the_papers_scaled_down():
    assert set(table_3.PAPER) == set(table_3.PRESETS)
    base = table_3.scaled("base", 4, 2)
    assert (base["d_model"], base["encoder_ffn_dim"], base["decoder_layers"]) == (128, 512, 3)
    assert table_3.scaled("B_dk16", 4, 2) == {**base, "d_k": 4}
    assert table_3.scaled("C_N8", 4, 2)["encoder_layers"] == 4
    big = table_3.scaled("big", 4, 2)
    assert (big["d_model"], big["decoder_ffn_dim"], big["dropout"]) == (256, 1024, 0.3)
    settings = {"width": 4, "depth": 2}
    assert table_3.changed("C_ff4096", settings) == "d_ff 1024"
    assert table_3.changed("big", settings) == "d 256, d_ff 1024, h 16, P_drop 0.3"


@pytest.mark.parametrize("row", table_3.NOT_IN_PAPER)
def test_table_3_variants_change_what_their_names_say(row):
    change = table_3.NOT_IN_PAPER[row]
    model = tiny_model(**(change if isinstance(change, dict) else {}))
    if callable(change):
        change(model)
    model.eval()
    generator = torch.Generator().manual_seed(1)
    source, target = torch.randint(4, 50, (2, 2, 6), generator=generator)
    loss = model.train()(input_ids=source, labels=target).loss
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.eval()
    states = model(input_ids=source, labels=target).logits
    ours = tiny_model().eval()(input_ids=source, labels=target).logits
    assert row == "no scale" or not torch.allclose(states, ours, atol=1e-3)

    reverse = model(input_ids=source.flip(1), labels=target).logits
    assert torch.allclose(states, reverse, atol=1e-5) == (row == "no positions")
    other = target.clone()
    other[:, -2] = 7  # read by the last position alone
    seen = model(input_ids=source, labels=other).logits[:, :-1]
    assert torch.allclose(states[:, :-1], seen, atol=1e-5) == (row != "no causal mask")
    names = " ".join(name for name, _ in model.named_parameters())
    assert ("feed_forward" in names) == (row != "no feed-forward network")
    norms = sum(isinstance(module, torch.nn.LayerNorm) for module in model.modules())
    expected = {"no norm": 0, "BatchNorm": 0, "no feed-forward network": 6, "norm first": 12}
    assert norms == expected.get(row, 10)
    if row == "no scale":
        assert model.config._attn_implementation == "dot-product"
    if row == "no residual":
        layer = model.model.encoder.layers[0]
        x = torch.randn(1, 3, 16)
        assert torch.equal(layer.residual(x, torch.zeros_like, torch.nn.Identity()), x * 0)


def test_verdicts_of_table_3():
    """A row counts as different from base beyond two standard deviations of base's seeds."""
    perplexities = {f"base {number}": 9.8 + number / 5 for number in range(3)}
    rows = {
        name: {"perplexity": found, "bleu": 30.0, "parameters": 1}
        for name, found in perplexities.items()
    }
    base = table_3.base_of(rows)
    assert base["spread"] == pytest.approx(np.std(np.log([9.8, 10, 10.2]), ddof=1))
    for row, perplexity, verdict in (
        ("A_h1", 15, "as in the paper"),
        ("A_h1", 10.3, "not distinguishable in ours"),
        ("D_dropout0.2", 15, "not distinguishable in the paper"),
        ("A_h1", 7, "differs from the paper"),
        ("C_d1024", 7, "as in the paper"),
        ("E_learned", 10, "not distinguishable in either"),
        ("E_learned", 15, "not distinguishable in the paper"),
    ):
        distance = table_3.distance({"perplexity": perplexity}, base)
        assert table_3.compared(row, distance, base)[-1] == verdict
    failed = {"parameters": 1, "failed": "the loss became nan", "seed": 0}
    assert table_3.distance(failed, base) == 1
    assert table_3.base_of({**rows, "base 3": failed}) == base


def test_table_3_trains_a_row_of_each_kind(tmp_path):
    rows, page = run_tiny(table_3.Table3(), tmp_path, "--rows", "base 0,base 1,BatchNorm")
    assert rows["base 0"]["perplexity"] != rows["base 1"]["perplexity"]
    assert "| BatchNorm | " in page
    assert not list((tmp_path / "runs").glob("*/*"))


def test_positions_experiment_compares_both_kinds(tmp_path):
    experiment = positions.Positions()
    experiment.main(["--size", "tiny", "--results", str(tmp_path)])
    page = (tmp_path / "positions.tiny.md").read_text(encoding="utf-8")
    assert "| learned, symbols | " in page
    config = tiny_config(50)
    batch = positions.reversal(torch.tensor([3, 1]), 8, config)
    source, labels = batch["input_ids"], batch["labels"]
    assert labels[0].tolist() == [*source[0, :3].flip(0).tolist(), config.eos_token_id]
    assert labels[1].tolist() == [source[1, 0].item(), config.eos_token_id, -100, -100]
    assert source[1, 1:].tolist() == [config.eos_token_id, config.pad_token_id, config.pad_token_id]
    assert positions.verdict([50, 60, 70], [40, 50, 60]) == "not distinguishable"
    assert positions.verdict([50, 51, 52], [40, 41, 42]) == "sinusoidal positions better"


def test_figures_1_and_2_name_the_modules():
    """Every name of a module that the figures show is one of the model's."""
    texts = [
        text.get_text().partition("(")[0].split()
        for figure in (architecture.draw_figure_1(), architecture.draw_figure_2())
        for text in figure.axes[0].texts
    ]
    shown = {word.strip(",") for words in texts for word in words if "_" in word}
    known = {part for name, _ in tiny_model().named_modules() for part in name.split(".")}
    known |= {"input_ids", "decoder_input_ids:", "attention_mask", "d_k", "√d_k"}
    assert shown - known == {"eager_attention_forward"}


def test_figures_need_no_training(tmp_path):
    arguments = ["--size", "tiny", "--results", str(tmp_path), "--rows", "Figure 5,cross"]
    figures.Figures().main(arguments)
    rows = json.loads((tmp_path / "figures.tiny.json").read_text(encoding="utf-8"))["rows"]
    assert rows["Figure 5"]["model"].startswith("everyday-en-de after ")
    assert all(sum(head[2:]) > 0 for layer in rows["cross"]["heads"] for head in layer)


def test_measures_of_attention_heads():
    """Measure heads that attend to the previous position, to the same one, and to all equally."""
    previous, itself, even = np.eye(4, k=-1), np.eye(4), np.full((4, 4), 0.25)
    previous[0, 0] = 1
    special = np.array([False, False, False, True])
    found = figures.measures(np.stack([previous, itself, even])[None], special)[0] / 4
    assert found[0] == pytest.approx([0, 0.75, 0.75, 0.25, 0, 0])
    assert found[1] == pytest.approx([0, 0, 0, 1, 0, 0.25])
    assert found[2] == pytest.approx([math.log(4), 1.25, 3 / 16, 0.25, 3 / 16, 0.25])
