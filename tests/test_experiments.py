"""The experiments of training/paper: what they share, and each of them in its tiny size."""

import json

import pytest

from experiment import Experiment
from vanilla_transformer.visualization.figure import new_figure


class Squares(Experiment):
    """Squares of two numbers; the second one fails at first."""

    name, title, about = "squares", "Squares", "Squares of small numbers."
    sizes = {"tiny": {"numbers": (2, 3)}}
    measured = []
    broken = False

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


def test_a_row_is_written_when_measured_and_never_measured_again(squares, tmp_path, monkeypatch):
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
    assert "| 2 | 4 |\n| 3 | 9 |" in page
    assert "training/paper/squares.py --size tiny" in page


def test_other_settings_and_unknown_rows_are_refused(squares, capsys, monkeypatch):
    squares()
    with pytest.raises(SystemExit):
        squares("--rows", "2,5")
    assert "got 5; there are 2, 3" in capsys.readouterr().err
    monkeypatch.setattr(Squares, "sizes", {"tiny": {"numbers": (2, 3, 4)}})
    with pytest.raises(SystemExit):
        squares()
    assert "other settings" in capsys.readouterr().err
