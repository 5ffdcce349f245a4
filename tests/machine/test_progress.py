"""Progress of long work: what is shown where."""

import logging
import sys

import pytest

from vanilla_transformer.machine.progress import progress


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that only the test moves, for tqdm to read."""
    now = [1000.0]
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    return now


@pytest.mark.parametrize("total", [8, None])
def test_a_log_says_what_begins_each_half_minute_and_the_end(clock, caplog, total):
    caplog.set_level(logging.INFO)
    for _ in progress(iter(range(8)), what="Reading", unit="pairs", total=total):
        clock[0] += 15
    told = [record.getMessage() for record in caplog.records]
    assert (told[0] == "Reading.") is (total is None)
    middle = "Reading: 4 pairs of 8, 0.1 a second, 1.0 minutes left."
    assert (middle if total else "Reading: 4 pairs, 0.1 a second.") in told
    assert len(told) == (4 if total else 5)
    if total:
        assert told[-1] == "Reading: 8 pairs in 2.0 minutes."


def test_short_work_has_one_line_and_hidden_work_none(clock, caplog):
    caplog.set_level(logging.INFO)
    assert list(progress("ab", what="Reading", unit="pairs", total=2)) == ["a", "b"]
    assert not caplog.records
    assert list(progress("ab", what="Reading", unit="pairs", total=2000)) == ["a", "b"]
    assert [record.getMessage() for record in caplog.records] == ["Reading 2,000 pairs."]
    assert list(progress("ab", what="Reading", unit="pairs", shown=False)) == ["a", "b"]
    assert len(caplog.records) == 1


def test_a_terminal_has_a_bar(monkeypatch, capsys, caplog):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert list(progress("ab", what="Reading", unit="pairs")) == ["a", "b"]
    assert "Reading" in capsys.readouterr().err
    assert not caplog.records
    with progress(what="Writing", unit="lines", stream=sys.stderr) as bar:
        bar.update(2)
    assert "Writing" not in capsys.readouterr().err
