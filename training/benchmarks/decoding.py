r"""Decoding speed: the paper's search against MarianMTModel.generate with the same weights.

Two workloads. Random weights of a given size, 20 tokens out of every sentence (the end is
suppressed on all sides), for several batch sizes; and, with --run-directory, the sentences of a
test file from text to text: `translate` against a loop over `generate` in batches of 32 in the
file's order, with BLEU of both. CTranslate2 joins where it is installed.

All contenders live in one process and take turns, in rotated order, so that whatever else the
machine does meets all of them. A ratio is the median over rounds of the ratio within a round.

    python training/benchmarks/decoding.py
    python training/benchmarks/decoding.py --run-directory runs/multi30k_en_de \
        --test-file test.jsonl.gz --pair en-de
"""

import argparse
import contextlib
import copy
import functools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    beam_search,
    translate,
)
from vanilla_transformer.exporters.marian import to_marian
from vanilla_transformer.machine import git_commit, hardware, resolve_precision, versions

RESULTS = Path(__file__).with_name("results") / "decoding.json"
SIZES = {
    "base": {"vocab_size": 37_000},
    "small": {"vocab_size": 10_000, "d_model": 256, "encoder_layers": 3, "decoder_layers": 3}
    | {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    | {"encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024},
    "tiny": {"vocab_size": 50, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1}
    | {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    | {"encoder_ffn_dim": 32, "decoder_ffn_dim": 32},  # to try the script
}
SPECIAL = [0, 1, 2, 3]
NEW_TOKENS, BEAM, ALPHA = 20, 4, 0.6
MARIAN = "MarianMTModel.generate"

Batch = tuple[torch.Tensor, torch.Tensor]
Contender = Callable[[Batch], object]


@contextlib.contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Sets torch's precision of float32 products, within the block."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def with_precision(contender: Contender, precision: str) -> Contender:
    """The contender at that precision."""

    def run(batch: Batch) -> object:
        with matmul_precision(precision):
            return contender(batch)

    return run


def random_model(size: str) -> VanillaTransformerForConditionalGeneration:
    """A model with random weights in evaluation mode."""
    torch.manual_seed(0)
    config = VanillaTransformerConfig(**SIZES[size])
    return VanillaTransformerForConditionalGeneration(config).eval()


def random_batch(batch_size: int, vocab_size: int) -> Batch:
    """Sources of 8 to 20 tokens."""
    generator = torch.Generator().manual_seed(batch_size)
    lengths = torch.randint(8, 21, (batch_size, 1), generator=generator)
    mask = (torch.arange(int(lengths.max())) < lengths).long()
    ids = torch.randint(4, vocab_size, mask.shape, generator=generator)
    return ids.masked_fill(mask == 0, 0), mask


def ours(model: VanillaTransformerForConditionalGeneration, **options: object) -> Contender:
    """The paper's search."""

    def run(batch: Batch) -> list[list[int]]:
        found = beam_search(
            model,
            *batch,
            num_beams=BEAM,
            length_penalty=ALPHA,
            max_new_tokens=NEW_TOKENS,
            suppress_tokens=SPECIAL,
            **options,
        )
        return found.sequences[:, 0].tolist()

    return run


def host(model: torch.nn.Module) -> Contender:
    """The host library's search; without min_new_tokens, which would slow it down."""

    def run(batch: Batch) -> list[list[int]]:
        ids = model.generate(
            batch[0],
            attention_mask=batch[1],
            num_beams=BEAM,
            length_penalty=ALPHA,
            max_new_tokens=NEW_TOKENS,
            suppress_tokens=SPECIAL,
        )
        return ids[:, 1:].tolist()

    return run


def engine(
    model: VanillaTransformerForConditionalGeneration, quantization: str, folder: Path
) -> Contender | None:
    """CTranslate2 with the model's weights; None where it is not installed."""
    try:
        import ctranslate2

        from vanilla_transformer.exporters.ctranslate2 import VanillaTransformerLoader
    except ImportError:
        return None
    tokens = ["<pad>", "<s>", "</s>", "<unk>"]
    tokens += [f"t{number}" for number in range(4, model.config.vocab_size)]
    spec = VanillaTransformerLoader().get_model_spec(copy.deepcopy(model))
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.decoder_start_token, spec.config.eos_token = "<s>", "</s>"
    spec.config.bos_token, spec.config.unk_token = "<s>", "<unk>"
    spec.config.layer_norm_epsilon = model.config.layer_norm_eps
    spec.validate()
    spec.optimize(quantization=quantization)
    path = folder / quantization
    path.mkdir()
    spec.save(str(path))
    translator = ctranslate2.Translator(
        str(path), compute_type=quantization, inter_threads=1, intra_threads=torch.get_num_threads()
    )
    never = [[tokens[number]] for number in SPECIAL]

    def run(batch: Batch) -> list[list[int]]:
        rows = [ids[mask.bool()].tolist() for ids, mask in zip(*batch, strict=True)]
        found = translator.translate_batch(
            [[tokens[number] for number in row] for row in rows],
            beam_size=BEAM,
            length_penalty=ALPHA,
            max_decoding_length=NEW_TOKENS,
            suppress_sequences=never,
        )
        return [[int(token[1:]) for token in result.hypotheses[0]] for result in found]

    return run


def contenders(size: str, folder: Path) -> dict[str, Contender]:
    """Everything that decodes the same weights."""
    model = random_model(size)
    marian = to_marian(model)
    found: dict[str, Contender | None] = {
        "ours": ours(model),
        "ours, one copy of the weights": ours(model, prepack=False),
        MARIAN: host(marian),
        f"{MARIAN}, precision medium": with_precision(host(marian), "medium"),
        "CTranslate2 float32": engine(model, "float32", folder),
        "CTranslate2 int8": engine(model, "int8", folder),
    }
    if resolve_precision("auto") == "bf16":
        found["ours, bf16"] = ours(copy.deepcopy(model).bfloat16())
    return {name: contender for name, contender in found.items() if contender is not None}


def measure(
    runs: dict[str, Callable[[], object]], rounds: int, *, warm: bool = True
) -> tuple[dict[str, list[float]], dict[str, object]]:
    """Seconds of each run in each round, and what each gave in the last."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    outputs: dict[str, object] = {}
    names = list(runs)
    for name in names if warm else []:
        runs[name]()
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            start = time.perf_counter()
            outputs[name] = runs[name]()
            seconds[name].append(time.perf_counter() - start)
    return seconds, outputs


def ratio(seconds: dict[str, list[float]], name: str, baseline: str) -> float:
    """How many times as fast as the baseline: the median of the ratios within a round."""
    pairs = zip(seconds[baseline], seconds[name], strict=True)
    return statistics.median(base / own for base, own in pairs)


def fixed_length(size: str, batch_sizes: Sequence[int], rounds: int) -> dict[str, object]:
    """Sentences per second for exactly 20 tokens each, and the share of equal translations."""
    measured: dict[int, tuple[dict[str, list[float]], dict[str, object]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        found = contenders(size, Path(folder))
        for batch_size in batch_sizes:
            batch = random_batch(batch_size, SIZES[size]["vocab_size"])
            runs = {name: functools.partial(run, batch) for name, run in found.items()}
            measured[batch_size] = measure(runs, rounds)
    rows = []
    for name in found:
        row: list[object] = [name]
        for batch_size, (seconds, _) in measured.items():
            speed = batch_size / statistics.median(seconds[name])
            row += [round(speed, 2), round(ratio(seconds, name, MARIAN), 2)]
        same = [
            mine == theirs
            for _, outputs in measured.values()
            for mine, theirs in zip(outputs[name], outputs[MARIAN], strict=True)
        ]
        rows.append([*row, f"{100 * statistics.mean(same):.0f} %"])
    columns = ["Contender"]
    for batch_size in batch_sizes:
        columns += [f"sentences/s, batch {batch_size}", f"ratio, batch {batch_size}"]
    return {
        "title": f"{size} model, random weights, beam {BEAM}, {NEW_TOKENS} tokens out",
        "columns": [*columns, "same tokens as Marian"],
        "rows": rows,
        "seconds": {batch_size: seconds for batch_size, (seconds, _) in measured.items()},
    }


def marian_loop(model: torch.nn.Module, tokenizer: object, sentences: Sequence[str]) -> list[str]:
    """What a user of generate writes: batches of 32 in the order of the file."""
    texts: list[str] = []
    for start in range(0, len(sentences), 32):
        batch = list(sentences[start : start + 32])
        inputs = tokenizer(batch, return_tensors="pt", padding=True, return_token_type_ids=False)
        longest = inputs["input_ids"].size(1)
        ids = model.generate(**inputs, max_new_tokens=longest + 50)  # beam 4, by its own config
        texts += tokenizer.batch_decode(ids, skip_special_tokens=True)
    return texts


def real_workload(
    run_directory: Path, pairs: Sequence[tuple[str, str]], language: str, rounds: int
) -> dict[str, object]:
    """Sentences per second from text to text, and BLEU."""
    from vanilla_transformer.evaluation import corpus_scores

    sources, references = (list(column) for column in zip(*pairs, strict=True))
    model = AutoModelForSeq2SeqLM.from_pretrained(run_directory).eval()
    tokenizer = AutoTokenizer.from_pretrained(run_directory)
    marian = to_marian(model)
    runs = {
        "ours: translate": lambda: list(translate(model, tokenizer, sources)),
        MARIAN: lambda: marian_loop(marian, tokenizer, sources),
    }
    list(translate(model, tokenizer, sources[:32]))  # to warm up
    marian_loop(marian, tokenizer, sources[:32])
    seconds, outputs = measure(runs, rounds, warm=False)
    rows = []
    for name in runs:
        scores = corpus_scores(outputs[name], references, target_language=language)
        speed = len(sources) / statistics.median(seconds[name])
        rows.append(
            [
                name,
                round(speed, 1),
                round(ratio(seconds, name, MARIAN), 2),
                round(scores["bleu"], 2),
            ]
        )
    return {
        "title": f"{len(sources)} sentences of a test set, text to text, beam {BEAM}",
        "columns": ["Contender", "sentences/s", "ratio", "BLEU"],
        "rows": rows,
        "signature": scores["bleu_signature"],
        "seconds": seconds,
    }


def markdown(table: dict[str, object]) -> str:
    """A table for people."""
    lines = [table["columns"], ["---"] * len(table["columns"]), *table["rows"]]
    body = "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
    return f"{table['title']}\n\n{body}\n"


def main() -> None:
    """Measure, print tables, write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--batch-sizes", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--run-directory", type=Path, help="trained model of the real workload")
    parser.add_argument("--test-file", help="its test pairs")
    parser.add_argument("--pair", default="en-de", help="its languages")
    parser.add_argument("--sentences", type=int, help="only the first of the test pairs")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    tables = []
    if options.batch_sizes:
        tables.append(fixed_length(options.size, options.batch_sizes, options.rounds))
    if options.run_directory:
        from vanilla_transformer.reading import read_pairs

        source, target = options.pair.split("-")
        pairs = list(read_pairs(options.test_file, source_language=source, target_language=target))[
            : options.sentences
        ]
        tables.append(real_workload(options.run_directory, pairs, target, options.rounds))
    results = {
        "title": "Decoding",
        "tables": tables,
        "settings": {"rounds": options.rounds, "beam": BEAM, "length_penalty": ALPHA},
        "hardware": hardware(),
        "versions": versions(),
        "commit": git_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    aside = options.output.with_name(f"{options.output.name}.partial")
    aside.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    aside.replace(options.output)
    for table in tables:
        print(markdown(table))


if __name__ == "__main__":
    main()
