"""Measure how fast a training or a translation is beside other busy processes.

python training/benchmarks/neighbours.py --train-file runs/phrases-en-de/train.jsonl
python training/benchmarks/neighbours.py --recipe multi30k_en_de --train-file train.jsonl.gz
python training/benchmarks/neighbours.py --translate RUN sentences.txt

Each turn runs the command line in a process, whose log shows its updates; the clock runs from its
fiftieth update, and the neighbours start then, so that the time to notice them counts. Contenders
take turns: our default number of threads, two threads whatever others do, and one thread. A
neighbour is an endless loop, or another training of ours. Run nothing else meanwhile.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from report import write_results

RESULTS = Path(__file__).parent / "results"
BUSY_LOOP = [sys.executable, "-c", "while True: pass"]
COMMAND = [sys.executable, "-m", "vanilla_transformer.cli"]
# Busy neighbours, by their name in the table and the number of our threads (None: the default).
SETTINGS = {
    **{("alone", threads): () for threads in (None, 2, 1)},
    **{("one busy loop", threads): ("loop",) for threads in (None, 2, 1)},
    **{("two busy loops", threads): ("loop",) * 2 for threads in (None, 2, 1)},
    **{("another training", threads): ("training",) for threads in (None, 2)},
}
FIRST = 50  # updates before the clock starts


def environment(threads: int | None) -> dict[str, str]:
    """Return the environment of a process with this number of threads."""
    others = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    return others if threads is None else {**others, "OMP_NUM_THREADS": str(threads)}


@contextmanager
def running(
    command: Sequence[str], threads: int | None = None, *, log: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen]:
    """Run a process until the block ends."""
    process = subprocess.Popen(
        command, env=environment(threads), stderr=log, stdout=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@contextmanager
def neighbours(kinds: Sequence[str], train: Sequence[str], threads: int | None) -> Iterator[None]:
    """Keep other processes busy until the block ends."""
    if not kinds:
        yield
        return
    kind, *others = kinds
    with tempfile.TemporaryDirectory() as folder:
        command = BUSY_LOOP if kind == "loop" else [*train, "--output-dir", folder]
        with running(command, threads), neighbours(others, train, threads):
            yield


def updates_in(
    seconds: float, train: Sequence[str], kinds: Sequence[str], threads: int | None
) -> float:
    """Return the updates that a training makes in some seconds beside its neighbours."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running([*train, "--output-dir", folder], threads, log=subprocess.PIPE) as process,
    ):
        counted = arrivals(process)
        first, begin = next(pair for pair in counted if pair[0] >= FIRST)
        with neighbours(kinds, train, threads):
            *_, (last, end) = until(begin + seconds, counted)
    return (last - first) / (end - begin) * seconds


def arrivals(process: subprocess.Popen) -> Iterator[tuple[int, float]]:
    """Yield the number of each update that a training logs, and the time."""
    for line in process.stderr:
        if found := re.search(rb"update (\d+).*: loss", line):
            yield int(found[1]), time.monotonic()


def until(end: float, counted: Iterator[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    """Yield updates up to and including the first one after the time `end`."""
    for update, now in counted:
        yield update, now
        if now > end:
            return


def translation_seconds(command: Sequence[str], kinds: Sequence[str], threads: int | None) -> float:
    """Return the seconds that a process takes to load the model and translate."""
    with neighbours(kinds, (), None):
        begin = time.monotonic()
        subprocess.run(command, env=environment(threads), check=True, capture_output=True)
        return time.monotonic() - begin


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the speeds of all contenders, which take turns, and write them to a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", default="demo")
    parser.add_argument("--train-file")
    parser.add_argument("--translate", nargs=2, metavar=("RUN", "FILE"))
    parser.add_argument("--seconds", type=float, default=36.0)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args(arguments)
    settings = dict(SETTINGS)
    if options.translate:
        name, unit = "neighbours_translate", "speed"
        command = [*COMMAND, "translate", *options.translate]
        settings = {key: kinds for key, kinds in settings.items() if "training" not in kinds}
    else:
        name, unit = f"neighbours_{options.recipe}", f"updates in {options.seconds:g} s"
        train = [*COMMAND, "train", options.recipe, "--max-steps", "1000000", "--max-minutes"]
        train += ["none", "--trainer", "logging_steps=5", "eval_strategy=no"]
        train += ["--train-file", options.train_file] if options.train_file else []
    measured: dict[tuple[str, int | None], list[float]] = {key: [] for key in settings}
    for number in range(options.rounds):
        for key in list(settings)[:: -1 if number % 2 else 1]:
            if options.translate:
                measured[key].append(1 / translation_seconds(command, settings[key], key[1]))
            else:
                measured[key].append(updates_in(options.seconds, train, settings[key], key[1]))
            print(*key, round(measured[key][-1], 4), file=sys.stderr, flush=True)
    alone = measured["alone", None]
    rows = []
    for (beside, threads), values in measured.items():
        shares = [value / whole for value, whole in zip(values, alone, strict=True)]
        contender = "ours" if threads is None else f"{threads} thread{'s' * (threads > 1)}"
        value = round(1 / median(values), 1) if options.translate else round(median(values))
        rows.append([f"{contender}, {beside}", round(median(shares), 2), value])
    columns = ["Contender", "share of ours alone", "seconds" if options.translate else unit]
    title = f"Beside other programs: {'translate' if options.translate else options.recipe}"
    write_results(
        RESULTS / f"{name}.json",
        title,
        settings={"rounds": options.rounds},
        tables=[{"columns": columns, "rows": rows}],
    )


if __name__ == "__main__":
    main()
