"""Compare every engine that runs a model on the same sentences: speed, memory and BLEU.

python training/benchmarks/engines.py runs/multi30k_en_de --test-file test.jsonl.gz --pair en-de

Every engine translates in its own process, with beam search, the batches of `translate` and as many
threads as torch uses. Processes take turns (interleave.py), and each translates some sentences
before the clock starts. Speed is that of the fastest round; a ratio is the median over rounds of
the ratio within a round. Memory is the peak of the process, and the part of it since the packages
were imported: the model, its packed copies and all that decoding needs. Run nothing else meanwhile.

On a processor without VNNI, set CT2_USE_MKL=1, so that CTranslate2's int8 does not overflow.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from interleave import Answer, processes, take_turns
from report import write_results
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerBase,
)

from vanilla_transformer import translate
from vanilla_transformer.data.pair_files import read_pairs
from vanilla_transformer.evaluation import corpus_scores
from vanilla_transformer.storage.reading import sha256
from vanilla_transformer.storage.saved_model import weight_files

RESULTS = Path(__file__).parent / "results" / "engines.json"
WARM_UP = 64  # sentences before the clock starts
EARLY = {"early_stopping": True}
# An argument that changes nothing, but makes `translate` use the search of transformers.
HOST = {"output_scores": False}
BASELINE = "CTranslate2 float32"


class Contender(NamedTuple):
    """An engine with its quantization and search options; without an engine, the model itself."""

    engine: str | None = None
    quantization: str | None = None
    search: Mapping[str, object] = {}


# CTranslate2 always stops a search early.
CONTENDERS = {
    "generate": Contender(search={**HOST, "early_stopping": False}),
    "generate, early stopping": Contender(search=HOST | EARLY),
    "ours: beam_search": Contender(search={"early_stopping": False}),
    "ours, early stopping": Contender(search=EARLY),
    BASELINE: Contender("ctranslate2", "float32"),
    "CTranslate2 int8": Contender("ctranslate2", "int8"),
}


def exported(contender: Contender, run: Path, folder: Path) -> Path:
    """Return the folder that a contender loads; make the export if it is missing."""
    engine, quantization, _ = contender
    if engine is None:
        return run
    weights = "".join(map(sha256, weight_files(run)))  # other weights need another export
    output = folder / f"{engine}-{quantization}-{weights[:8]}"
    if not output.exists():
        command = [sys.executable, "-m", "vanilla_transformer.cli", "export", engine, run, output]
        command += ["--quantization", quantization] if quantization else []
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return output


def translator(
    contender: Contender, folder: Path, *, num_beams: int = 4
) -> Callable[[Sequence[str]], list[str]]:
    """Return a function that translates sentences with a contender's engine."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if contender.engine == "ctranslate2":
        return _by_ctranslate2(folder, tokenizer, num_beams)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    settings = {"num_beams": num_beams, **contender.search}
    return lambda sentences: list(translate(model, tokenizer, sentences, **settings))


def _by_ctranslate2(
    folder: Path, tokenizer: PreTrainedTokenizerBase, num_beams: int
) -> Callable[[Sequence[str]], list[str]]:
    """Return a function that translates with CTranslate2, as `training/serving.md` shows."""
    import ctranslate2

    engine = ctranslate2.Translator(str(folder), intra_threads=torch.get_num_threads())
    search = {
        "beam_size": num_beams,
        "length_penalty": GenerationConfig.from_pretrained(folder).length_penalty or 0.6,
        "min_decoding_length": 0,
        "max_batch_size": 16_384 // num_beams,
        "batch_type": "tokens",
    }

    def run(sentences: Sequence[str]) -> list[str]:
        rows = [tokenizer.convert_ids_to_tokens(ids) for ids in tokenizer(sentences)["input_ids"]]
        results = engine.translate_batch(rows, **search)
        ids = [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in results]
        return tokenizer.batch_decode(ids)

    return run


def table(
    answers: dict[str, list[Answer]],
    references: Sequence[str],
    language: str,
    baseline: str = BASELINE,
) -> dict[str, object]:
    """Return a table with one row per contender."""
    first = next(iter(answers.values()))[0].output
    rows = []
    for name, rounds in answers.items():
        translations = rounds[0].output
        same = sum(a == b for a, b in zip(first, translations, strict=True))
        rows.append(
            [
                name,
                round(len(references) / min(answer.seconds for answer in rounds), 1),
                ratio(answers, name, baseline),
                round(corpus_scores(translations, references, target_language=language)["bleu"], 2),
                f"{100 * same / len(references):.1f} %",
                round(rounds[-1].peak_mib),
                round(rounds[-1].own_mib),
            ]
        )
    columns = ["Contender", "sentences/s", f"speed / {baseline}", "BLEU", "same as the first"]
    columns += ["peak RSS, MiB", "own, MiB"]
    title = "Text to text, beam 4, a process each"
    return {"title": title, "columns": columns, "rows": rows}


def ratio(answers: dict[str, list[Answer]], name: str, baseline: str) -> float | None:
    """Return a contender's speed relative to the baseline's: the median of each round's ratio."""
    if baseline not in answers:
        return None
    pairs = zip(answers[baseline], answers[name], strict=True)
    return round(statistics.median(base.seconds / own.seconds for base, own in pairs), 2)


def main() -> None:
    """Measure speed, memory and BLEU of every engine, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("--test-file", required=True)
    parser.add_argument("--pair", required=True, help="such as en-de")
    parser.add_argument("--exports", type=Path, help="folder for the exports (default: temporary)")
    parser.add_argument("--sentences", type=int, help="how many to use (default: all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    source, target = options.pair.split("-")
    pairs = read_pairs(options.test_file, source_language=source, target_language=target)
    pairs = list(pairs)[: options.sentences]
    sentences, references = ([pair[side] for pair in pairs] for side in (0, 1))
    with tempfile.TemporaryDirectory() as temporary:
        exports = options.exports or Path(temporary)
        folders = {name: exported(CONTENDERS[name], options.run, exports) for name in options.only}
        builders = {name: (translator, (CONTENDERS[name], folders[name])) for name in options.only}
        with processes(builders) as running:
            take_turns(running, sentences[:WARM_UP], rounds=1)
            answers = take_turns(running, sentences, options.rounds)
    write_results(
        options.output,
        "Engines: one model, every way to decode it",
        data=f"{Path(options.test_file).name}, {len(sentences)} sentences",
        settings={"beams": 4, "rounds": options.rounds, "threads": torch.get_num_threads()},
        tables=[table(answers, references, target)],
        seconds={name: [turn.seconds for turn in turns] for name, turns in answers.items()},
    )


if __name__ == "__main__":
    main()
