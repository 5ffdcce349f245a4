"""Table 1 measured: counts, paths and memory match the formulas, and the layers are correct."""

import json

import pytest
import table_1
import torch
from experiment import Experiment

from vanilla_transformer.modeling_vanilla_transformer import eager_attention_forward

pytestmark = pytest.mark.pictures


def run_tiny(experiment, folder):
    """Run an experiment at its tiny size, draw its figure at the end, and return rows and page."""
    command = ["--size", "tiny", "--results", str(folder)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Experiment, "_show", lambda *arguments: None)
        experiment.main(command)
    experiment.main([*command, "--rows", ""])
    path = folder / f"{experiment.name}.tiny.json"
    assert path.with_suffix(".png").stat().st_size > 10_000
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return rows, path.with_suffix(".md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def table_1_rows(tmp_path_factory):
    """Return the measured rows of Table 1."""
    rows, page = run_tiny(table_1.Table1(), tmp_path_factory.mktemp("table_1"))
    # 2 n² d = 3 n d² at n = 1.5 d; with projections a convolution of width 3 is always cheaper.
    assert "| self-attention, convolutional | 24 = 1.5 d |" in page
    assert "| projected self-attention, recurrent | 32 = 2.0 d |" in page
    assert "| projected self-attention, convolutional | never, from 16 on |" in page
    return rows


def test_multiply_adds_match_the_formulas_and_the_papers_exponents(table_1_rows):
    settings = table_1.Table1.sizes["tiny"]
    for name, facts in table_1_rows.items():
        costs = [*facts["by_n"], *facts["by_d"]]
        assert all(cost["multiply_adds"] == cost["formula"] for cost in costs), name
        if name not in ("projected self-attention", "separable convolutional"):  # sums of two terms
            powers = table_1.powers(facts, settings, "multiply_adds")
            assert powers == pytest.approx(table_1.KINDS[name].exponents, abs=1e-6), name
    assert table_1_rows["self-attention"]["by_n"][0]["multiply_adds"] == 2 * 16 * 16 * 16


def test_path_lengths_match_the_formulas(table_1_rows):
    for name, facts in table_1_rows.items():
        assert facts["path"] == facts["path_formula"], name
    paths = {name: facts["path"] for name, facts in table_1_rows.items()}
    assert paths["self-attention"] == [1, 1, 1]
    assert paths["recurrent"] == [4, 8, 16]
    assert paths["dilated convolutional"] == [2, 2, 3]  # log_3 n
    assert paths["restricted self-attention"] == [1, 2, 4]


def test_only_the_recurrent_layer_has_growing_sequential_depth(table_1_rows):
    for name, facts in table_1_rows.items():
        first, second, third = facts["depth"]
        assert third - second == 2 * (second - first), name  # linear in 4, 8, 16
        assert (third > first) == (name == "recurrent")


def test_only_full_self_attention_needs_quadratic_memory(table_1_rows):
    for name, facts in table_1_rows.items():
        first, *_, last = (cost["bytes"] for cost in facts["by_n"])  # n 16 and 64, d 16
        quadratic = name in ("self-attention", "projected self-attention")
        assert (last / first > 4) == quadratic, name
    # Queries and keys are the input. Scores before and after softmax take 2 n², the output n d.
    assert table_1_rows["self-attention"]["by_n"][-1]["bytes"] == 4 * (2 * 64 * 64 + 64 * 16)


def test_memory_of_freed_tensors_is_not_counted():
    class OneAfterTheOther(torch.nn.Module):
        def forward(self, x):
            for number in (2, 4, 8):
                torch.cat([x] * number)

    assert table_1.peak_bytes(OneAfterTheOther(), torch.randn(100)) == 8 * 400


@pytest.mark.parametrize("length", [1, 3, 8, 13])
def test_restricted_attention_equals_attention_with_a_band_mask(length):
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 2, length, 4, dtype=torch.float64, requires_grad=True)
    far = (torch.arange(length)[:, None] - torch.arange(length)).abs() > 3
    mask = torch.zeros(length, length, dtype=torch.float64).masked_fill(far, -torch.inf)
    expected, _ = eager_attention_forward(torch.nn.Module(), query, key, value, mask, 0.5)
    found, _ = table_1.restricted_attention(None, query, key, value, None, 0.5, radius=3)
    torch.testing.assert_close(found, expected)
    gradients = [
        torch.autograd.grad(output.square().sum(), (query, key, value), retain_graph=True)
        for output in (found, expected)
    ]
    torch.testing.assert_close(*gradients)


def test_step_by_step_lstm_equals_torchs():
    torch.manual_seed(0)
    layer, x = table_1.Recurrent(8), torch.randn(2, 5, 8)
    torch.testing.assert_close(layer.step_by_step(x), layer(x))


def test_exponents_and_crossings_of_power_laws():
    sizes = [1, 2, 4, 8]
    assert table_1.exponent(sizes, [3 * n**1.5 for n in sizes]) == pytest.approx(1.5)
    squares, line = [n * n for n in sizes], [3 * n for n in sizes]
    assert table_1.crossing(sizes, squares, line) == pytest.approx(3)
    assert table_1.crossing(sizes, line, [n / 2 for n in sizes]) == 0
    assert table_1.crossing(sizes, line, [n * 9 for n in sizes]) == float("inf")
