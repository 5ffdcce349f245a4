"""Compare a teacher with its students in every engine, on one core: BLEU, speed and size.

python training/benchmarks/students.py runs/teacher runs/student-0 runs/student-1 runs/student-2 \
    --test-file test.jsonl.gz --pair en-de

The first run is the teacher; the others are trainings of one student with different seeds. Every
model decodes with the beams of its own generation config, stops a search early, and computes in its
own process with one thread. Speed is in source words per second, the median over rounds and seeds;
BLEU is the mean over seeds. Run nothing else meanwhile.

On a processor without VNNI, set CT2_USE_MKL=1, so that CTranslate2's int8 does not overflow.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from engines import EARLY, Contender, exported, translator
from interleave import Answer, processes, take_turns
from report import write_results
from transformers import GenerationConfig

from vanilla_transformer.data.pair_files import read_pairs
from vanilla_transformer.evaluation import corpus_scores
from vanilla_transformer.storage.reading import read_json
from vanilla_transformer.visualization import save_figure
from vanilla_transformer.visualization.figure import new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = Path(__file__).parent / "results" / "students.json"
WARM_UP = 64  # sentences before the clock starts
# CTranslate2 always stops a search early.
ENGINES = {
    "PyTorch": Contender(search=EARLY),
    "CTranslate2 float32": Contender("ctranslate2", "float32"),
    "CTranslate2 int8": Contender("ctranslate2", "int8"),
}
WEIGHTS = ("*.safetensors", "model.bin")
COLUMNS = ("Model", "Engine", "Parameters, M", "Weights, MB", "Beams", "words/s", "BLEU", "Seeds")


def on_one_core(contender: Contender, folder: Path, beams: int) -> Callable[[Sequence[str]], list]:
    """Return a function that translates sentences with one thread."""
    torch.set_num_threads(1)
    return translator(contender, folder, num_beams=beams)


def megabytes(folder: Path) -> float:
    """Return the size of the weights in a folder, in 10^6 bytes."""
    files = [file for pattern in WEIGHTS for file in folder.glob(pattern)]
    return sum(file.stat().st_size for file in files) / 1e6


def row(
    model: str,
    engine: str,
    runs: Sequence[Path],
    folders: Sequence[Path],
    answers: Sequence[Sequence[Answer]],
    pairs: Sequence[tuple[str, str]],
    language: str,
) -> list[object]:
    """Return the row of a model in an engine: mean BLEU over its seeds, and the median speed."""
    words = sum(len(source.split()) for source, _ in pairs)
    references = [target for _, target in pairs]
    scores = [
        corpus_scores(rounds[0].output, references, target_language=language)["bleu"]
        for rounds in answers
    ]
    speed = statistics.median(words / turn.seconds for rounds in answers for turn in rounds)
    return [
        *(model, engine, round(read_json(runs[0] / "metrics.json")["parameters"] / 1e6, 2)),
        *(round(megabytes(folders[0]), 1), beams_of(runs[0]), round(speed)),
        *(round(statistics.mean(scores), 2), ", ".join(f"{score:.2f}" for score in scores)),
    ]


def beams_of(run: Path) -> int:
    """Return the number of beams in the generation config of a run."""
    return GenerationConfig.from_pretrained(run).num_beams or 1


def draw(rows: Sequence[Sequence[object]]) -> "Figure":
    """Draw BLEU against speed; the area of a point is the size of the weights."""
    figure = new_figure(7, 4)
    axis = figure.subplots()
    colors = {model: f"C{number}" for number, model in enumerate(dict.fromkeys(r[0] for r in rows))}
    markers = dict(zip(ENGINES, "os^", strict=True))
    for model, engine, _, size, _, speed, bleu, _ in rows:
        style = {"color": colors[model], "marker": markers[engine], "alpha": 0.6}
        axis.scatter(speed, bleu, s=8 * size, label=f"{model}, {engine}: {size:.1f} MB", **style)
    axis.set_xscale("log")
    axis.margins(0.12)
    axis.set(xlabel="source words per second, one core", ylabel="BLEU")
    # All markers in the legend have one size; in the plot their area is the size of the weights.
    legend = axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=8)
    for handle in legend.legend_handles:
        handle.set_sizes([30])
    tidy(axis)
    return figure


def main() -> None:
    """Measure teacher and students in every engine; write the results and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("teacher", type=Path, help="run directory")
    parser.add_argument("students", type=Path, nargs="+", help="run directories, one for each seed")
    parser.add_argument("--test-file", required=True)
    parser.add_argument("--pair", required=True, help="such as en-de")
    parser.add_argument("--sentences", type=int, help="how many to use (default: all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    source, target = options.pair.split("-")
    pairs = list(read_pairs(options.test_file, source_language=source, target_language=target))
    pairs = [(pair[0], pair[1]) for pair in pairs[: options.sentences]]
    sentences = [sentence for sentence, _ in pairs]
    models = {"teacher": [options.teacher], "student": options.students}
    with tempfile.TemporaryDirectory() as temporary:
        folders = {
            (name, run): exported(ENGINES[name], run, Path(temporary) / str(number))
            for number, run in enumerate((options.teacher, *options.students))
            for name in options.only
        }
        builders = {
            (name, run): (on_one_core, (ENGINES[name], folder, beams_of(run)))
            for (name, run), folder in folders.items()
        }
        with processes(builders) as running:
            take_turns(running, sentences[:WARM_UP], rounds=1)
            answers = take_turns(running, sentences, options.rounds)
        rows = [
            row(
                *(model, name, runs, [folders[name, run] for run in runs]),
                *([answers[name, run] for run in runs], pairs, target),
            )
            for model, runs in models.items()
            for name in options.only
        ]
    picture = options.output.with_suffix(".svg")
    write_results(
        options.output,
        "A student: BLEU, speed and size in every engine",
        data=f"{Path(options.test_file).name}, {len(pairs)} sentences",
        settings={"rounds": options.rounds, "threads": 1, "stops searches": "early"},
        tables=[{"title": "Text to text, one thread", "columns": list(COLUMNS), "rows": rows}],
        picture=picture.name,
    )
    save_figure(draw(rows), picture)


if __name__ == "__main__":
    main()
