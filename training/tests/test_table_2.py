"""Table 2 measured: both counts of training cost, and the time of the paper's runs here."""

import json

import pytest
import table_2
from test_table_1 import run_tiny

TWO_PROCESSES = {  # stand-in for the measurement by two gloo processes, which the slow test runs
    "alone": 0.1,
    "twin": 0.15,
    "together": 0.2,
    "all_reduce": {"base": 0.05, "big": 0.05},
    "parameters": {"base": 34_176, "big": 34_176},
}


@pytest.mark.pictures
def test_table_2_adds_up(tmp_path, monkeypatch):
    experiment = table_2.Table2()
    monkeypatch.setattr(table_2.Table2, "_two_processes", lambda *arguments: TWO_PROCESSES)
    rows, page = run_tiny(experiment, tmp_path)
    settings = experiment.sizes["tiny"]
    assert "| base | 3.3e+18 | 3.28e+18 |" in page
    assert "| alone | 100.0 | 50.0 | 150.0 | 200.0 | -25% |" in page
    assert "| next to a busy twin | 150.0 | 50.0 | 200.0 | 200.0 | +0% |" in page
    facts = rows["base"]
    assert facts["parameters"] == 34_176
    alone, eight = (table_2.outlook("base", rows, settings, devices) for devices in (1, 8))
    speed = facts["tokens_per_second"]["8"]
    assert eight["computing"] == pytest.approx(1e5 * (25_000 / 8 / speed + facts["step"]))
    assert alone["all-reduce"] == 0
    assert eight["all-reduce"] == pytest.approx(
        1e5 * 0.05 * 2 * 7 / 8
    )  # measured with two processes, where the factor is 2 * 1 / 2


def test_costs_match_the_paper_and_flops_are_six_per_parameter():
    for run, printed in table_2.COST.items():
        assert f"{table_2.paper_cost(run):.1e}" == f"{printed:.1e}"
    config = table_2.config_of("base", {"shrunk": {}})
    parameters, flops = table_2.flops_of_a_token(config, 25)
    assert parameters == 63_082_496
    # 0.6 % more: attention's products, 12 n d per layer and token, minus non-matrix parameters.
    assert flops / (6 * parameters) == pytest.approx(1.0057, abs=5e-4)


@pytest.mark.slow
def test_two_processes_are_measured(tmp_path):
    table_2.Table2().main(["--size", "tiny", "--rows", "two processes", "--results", str(tmp_path)])
    rows = json.loads((tmp_path / "table_2.tiny.json").read_text(encoding="utf-8"))["rows"]
    assert rows["two processes"].keys() - {"provenance"} == TWO_PROCESSES.keys()
