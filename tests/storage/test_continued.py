"""Rows of hours of work: a killed command goes on, and nothing damaged is believed."""

import random

import pytest
from damages import DAMAGES

from vanilla_transformer.storage.continued import continued, kept_rows

SOURCES = [f"line {number}\u2028 \u00fc" for number in range(40)]
MADE_FROM = {"model": "a", "beams": 4}


def rows(path, sources=SOURCES, made_from=MADE_FROM, *, stop=None):
    """Return the rows, and the sources that rows were made of now."""
    made = []

    def make(left, known):
        for source in left:
            if len(made) == stop:
                raise KeyboardInterrupt
            made.append(source)
            yield [source.upper(), None]

    return list(continued(path, made_from, sources, make)), made


WHOLE = [[source.upper(), None] for source in SOURCES]


@pytest.fixture
def stopped(tmp_path):
    """Return the file of kept rows of a command that was stopped after 25."""
    with pytest.raises(KeyboardInterrupt), kept_rows(tmp_path / "out.txt") as path:
        rows(path, stop=25)
    return path


def test_rows_are_made_once(stopped):
    found, made = rows(stopped)
    assert found == WHOLE
    assert made == SOURCES[25:]
    assert rows(stopped) == (WHOLE, [])
    with kept_rows(stopped.with_name("out.txt")) as path:
        assert path == stopped
    assert not stopped.exists()


def test_rows_of_something_else_are_made_anew(stopped):
    kept = stopped.read_bytes()
    assert rows(stopped, made_from={**MADE_FROM, "beams": 1}) == (WHOLE, SOURCES)
    stopped.write_bytes(kept)
    changed = [*SOURCES[:10], "another", *SOURCES[11:]]
    assert rows(stopped, changed)[1] == changed[10:]
    stopped.write_bytes(kept)
    longer = [*SOURCES, "more"]  # a text that has grown
    assert rows(stopped, longer)[1] == longer[25:]
    assert rows(stopped, SOURCES[:5]) == (WHOLE[:5], [])


@pytest.mark.parametrize("damage", sorted(DAMAGES.keys() - {"a folder"}))
@pytest.mark.parametrize("seed", range(4))
def test_damaged_rows_are_made_anew(stopped, damage, seed):
    DAMAGES[damage](random.Random(seed), stopped)
    found, made = rows(stopped)
    assert found == WHOLE
    assert made == SOURCES[-len(made) :]
    assert rows(stopped) == (WHOLE, [])
