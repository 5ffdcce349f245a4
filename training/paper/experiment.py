"""Base class of the experiments in this folder, which write results, a page and pictures.

    python training/paper/table_1.py --size cpu

measures the rows that are missing from results/table_1.cpu.json, and writes that file after each
row, so that the same command continues after a stop at any time. The page table_1.cpu.md and the
picture table_1.cpu.png next to that file are made from it and nothing else.
"""

import argparse
import inspect
import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from markdown_tables import markdown_table
from provenance import describe_provenance, provenance

from vanilla_transformer.errors import RequestError
from vanilla_transformer.storage.atomic import write_json, write_text
from vanilla_transformer.storage.reading import read_json, sha256
from vanilla_transformer.visualization import save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[2]
Settings = dict[str, object]
Rows = dict[str, dict[str, object]]  # what was measured, by the name of the row
Table = tuple[Sequence[str], Sequence[Sequence[object]]]  # columns, rows


class Experiment(ABC):
    """An experiment: the names of its rows, how to measure a row, and how to show all rows.

    A subclass sets the class variables and defines `about`, `rows`, `measure`, `tables` and
    `draw`. If it needs more than its sizes, it adds options in `add_options` and reads them from
    `self.options`.
    """

    name: ClassVar[str]  # of the files, such as table_1
    title: ClassVar[str]  # heading of the page, and caption of the picture
    sizes: ClassVar[dict[str, Settings]]  # tiny: seconds, for a test; cpu: two cores; gpu
    arguments: ClassVar[str] = ""  # what the page shows after the command and its --size
    options: argparse.Namespace

    @abstractmethod
    def about(self, settings: Settings) -> str:
        """Return what was measured, and how to read it, in Markdown."""

    def findings(self, rows: Rows, settings: Settings) -> Iterable[str]:
        """Return the findings, in a sentence or two each, for the rows measured so far."""
        return ()

    @abstractmethod
    def rows(self, settings: Settings) -> Iterable[str]:
        """Return the names of all rows, in the order of measuring and showing them."""

    @abstractmethod
    def measure(self, row: str, settings: Settings) -> dict[str, object]:
        """Measure one row and return facts that can be written as JSON."""

    @abstractmethod
    def tables(self, rows: Rows, settings: Settings) -> dict[str, Table]:
        """Return the tables of the Markdown page by heading, for the rows measured so far."""

    @abstractmethod
    def draw(self, rows: Rows, settings: Settings) -> "Figure":
        """Draw the picture for the rows measured so far."""

    def pictures(self, rows: Rows, settings: Settings) -> "dict[str, Figure]":
        """Return the Markdown page's pictures by caption; override it for more than one."""
        return {self.title: self.draw(rows, settings)}

    def files(self) -> dict[str, Path | None]:
        """Return the data files that the command line names; `train` is that of --train-file."""
        return {}

    def add_options(self, parser: argparse.ArgumentParser) -> None:  # noqa: B027, most need none
        """Add the experiment's own options to the command line."""

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """Measure the missing rows, and write the results, the page and the pictures.

        Raises:
            SystemExit: The results were measured with other settings or files, --rows has an
                unknown row, or a row cannot be measured with these options.
        """
        logging.basicConfig(
            level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S"
        )
        parser = argparse.ArgumentParser(description=self.title)
        parser.add_argument("--size", choices=self.sizes, default="cpu")
        parser.add_argument("--rows", help="rows to measure, separated by commas; '' only draws")
        results = self._script().parent / "results"
        parser.add_argument("--results", type=Path, default=results, help="folder of the results")
        self.add_options(parser)
        self.options = parser.parse_args(arguments)
        path = self.options.results / f"{self.name}.{self.options.size}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        settings = json.loads(json.dumps(self.sizes[self.options.size]))
        results = read_json(path) if path.is_file() else {"settings": settings, "rows": {}}
        if results["settings"] != settings:
            parser.error(
                f"{path} was measured with other settings; move it away to measure all rows again."
            )
        done: Rows = results["rows"]
        names = list(self.rows(settings))
        wanted = names if self.options.rows is None else self.options.rows.split(",")
        wanted = [name for name in wanted if name]
        if unknown := [name for name in wanted if name not in names]:
            parser.error(f"--rows: got {', '.join(unknown)}; there are {', '.join(names)}.")
        missing = [name for name in wanted if name not in done]
        given = self.files() if wanted else {}
        for part, file in given.items():
            if file is not None and not file.is_file():
                parser.error(f"there is no {part} file {file}.")
        files = {part: file and sha256(file) for part, file in given.items()}
        for name in done if wanted else ():
            for part, mark in done[name].get("files", {}).items():
                got = files.get(part)
                if mark not in (None, got) and (missing or got is not None):
                    parser.error(
                        f"{name} in {path} was measured with another {part} file; give that one, "
                        "or another folder as --results."
                    )
        for name in missing:
            origin = provenance("training/*/results")
            started = time.perf_counter()
            try:
                facts = self.measure(name, settings)
            except RequestError as error:
                parser.error(str(error))
            origin["seconds"] = round(time.perf_counter() - started, 1)
            used = {"files": files} if files else {}
            done[name] = {**facts, **used, "provenance": origin}
            done = {name: done[name] for name in names if name in done}
            write_json(path, {"title": self.title, "settings": settings, "rows": done})
            self._show(path, done, settings)
            left = sum(name not in done for name in wanted)
            logger.info("%s: %.0f s; rows left: %d.", name, origin["seconds"], left)
        self._show(path, done, settings)
        if wanted and not missing:
            logger.info("All rows were measured before; --results FOLDER measures them again.")
        logger.info("%s", path.with_suffix(".md"))

    def _script(self) -> Path:
        return Path(inspect.getfile(type(self))).resolve()

    def _show(self, path: Path, rows: Rows, settings: Settings) -> None:
        """Write the Markdown page that shows the results, and its pictures."""
        lines = [f"# {self.title}", "", self.about(settings), ""]
        if self.options.size == "tiny":
            lines += ["This is a trial of the script: at this size the figures mean nothing.", ""]
        if findings := list(self.findings(rows, settings)):
            lines += ["Findings:", "", *(f"- {finding}" for finding in findings), ""]
        for heading, (columns, cells) in self.tables(rows, settings).items():
            lines += [f"{heading}:", "", *markdown_table(columns, cells, right=True), ""]
        for number, (caption, figure) in enumerate(self.pictures(rows, settings).items(), 1):
            picture = path.with_suffix(".png" if number == 1 else f".{number}.png")
            save_figure(figure, picture)
            lines += [f"![{caption}]({picture.name})", ""]
        script = self._script()
        script = script.relative_to(ROOT) if script.is_relative_to(ROOT) else script.name
        command = f"python {script} --size {self.options.size} {self.arguments}".strip()
        lines += [
            f"`{command}`; measured on:",
            "",
            *(f"- {origin}" for origin in _origins(rows, [*self.rows(settings)])),
        ]
        write_text(path.with_suffix(".md"), "\n".join([*lines, ""]))


def _origins(rows: Rows, order: list[str]) -> list[str]:
    """Return a line for each machine, set of versions and commit, with its rows and their time."""
    found: dict[str, list[str]] = {}
    minutes: dict[str, float] = {}
    for name, facts in rows.items():
        origin = "; ".join(describe_provenance(facts["provenance"]))
        found.setdefault(origin, []).append(name)
        minutes[origin] = minutes.get(origin, 0) + facts["provenance"]["seconds"] / 60
    if len(found) == 1:
        return [f"{origin}; {minutes[origin]:.1f} minutes." for origin in found]
    return [
        f"{_listed(names, order)}: {origin}; {minutes[origin]:.1f} minutes."
        for origin, names in found.items()
    ]


def _listed(names: list[str], order: list[str]) -> str:
    """List names; of more than three that follow each other in `order`, only the first and last."""
    series: list[list[str]] = []
    for name in names:
        if series and order.index(name) == order.index(series[-1][-1]) + 1:
            series[-1].append(name)
        else:
            series.append([name])
    return ", ".join(
        f"{part[0]} to {part[-1]}" if len(part) > 3 else ", ".join(part) for part in series
    )
