"""Test the decoding benchmark: equal tokens from both searches, and turns in processes."""

import os
import runpy
from pathlib import Path

import interleave as turns
import pytest
from noted_turns import noting

from vanilla_transformer.convert.exporters.stock import to_stock

SCRIPT = Path(__file__).parents[2] / "training/benchmarks/decoding.py"


def test_both_implementations_give_the_same_tokens():
    """Both searches do the same work (equal hypotheses of full length), so times are comparable."""
    script = runpy.run_path(str(SCRIPT))
    model = script["random_model"]("tiny").double()
    mine = script["ours"](model)(5)
    assert mine == script["host"](to_stock(model))(5)
    assert {len(tokens) for tokens in mine} == {script["NEW_TOKENS"]}


def test_contenders_take_turns_in_separate_processes(tmp_path):
    log = tmp_path / "log"
    builders = {name: (noting, (log, name)) for name in "abc"}
    with turns.processes(builders) as running:
        answers = turns.take_turns(running, 1, rounds=2)
        assert log.read_text().split() == ["a1", "b1", "c1", "b1", "c1", "a1"]
        workers = [{turn.output for turn in answers[name]} for name in "abc"]
        assert [len(of_one) for of_one in workers] == [1, 1, 1]
        assert len(set.union(*workers) | {os.getpid()}) == 4
        for answer in answers["a"]:
            assert 0 <= answer.seconds < 60
            assert 0 <= answer.own_mib < answer.peak_mib
        with pytest.raises(RuntimeError, match="The process of b ended"):
            running["b"]("end")
        assert running["c"](2).output in workers[2]
    for worker in set.union(*workers):
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)
