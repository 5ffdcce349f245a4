"""Measure how costs grow with the number of pairs: preparation, restart, plan, memory, training.

Each number of pairs is measured in its own process. Pairs are generated from CLDR; beyond
`--distinct` they repeat, because generating millions would take too long. Planning an epoch needs
only lengths, so it is measured on many more pairs (`--lengths`), whose lengths are random.

    python training/benchmarks/scaling.py --pairs 30000 300000 5000000 --lengths 10000000 100000000
"""

import argparse
import itertools
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from interleave import peak_mib
from report import write_results
from transformers import PreTrainedTokenizerFast

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.data.batches import TokenBatchSampler
from vanilla_transformer.data.dataset import (
    PairCollator,
    load_pairs,
    pair_lengths,
    sentences,
    tokenize_pairs,
)
from vanilla_transformer.data.tokenizer import train_tokenizer
from vanilla_transformer.recipes.recipe import Recipe
from vanilla_transformer.train.cpu_settings import cpu_training_settings

sys.path.insert(0, str(Path(__file__).parents[1] / "demo"))

from phrases import generate_pairs

RESULTS = Path(__file__).with_name("results")
BATCH_TOKENS = 2048
BARE_BLOCK = 10_000  # pairs that the bare tokenizer encodes at once


def load(count: int, cache: str, distinct: int) -> object:
    """Load the pairs, from the cache if they are there."""

    def pairs() -> Iterator[tuple[str, str]]:
        generated = list(generate_pairs("en", "de", count=min(count, distinct)))
        texts = [(pair.source, pair.target) for pair in generated]
        return itertools.islice(itertools.cycle(texts), count)

    return load_pairs(
        LazyPairs(pairs),
        source_language="en",
        target_language="de",
        cache_key=f"{count} {distinct}",
        cache_dir=cache,
        show_progress=False,
    )


class LazyPairs:
    """Pairs that are made only when read, which never happens in a cached run."""

    def __init__(self, make: Callable[[], Iterator[tuple[str, str]]]) -> None:
        self.make = make

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return self.make()


def prepare(count: int, cache: str, distinct: int) -> dict[str, float]:
    """Measure pairs per second: first reading, first tokenising, and the tokenizer alone."""
    started = time.perf_counter()
    pairs = load(count, cache, distinct)
    reading = time.perf_counter() - started
    folder = Path(cache, "tokenizer")
    if not folder.exists():
        train_tokenizer(
            itertools.islice(sentences(pairs), 40_000), vocab_size=4000, show_progress=False
        ).save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    texts = list(itertools.islice(sentences(pairs), 2 * min(count, distinct)))

    def bare_speed() -> float:
        started = time.perf_counter()
        for start in range(0, len(texts), BARE_BLOCK):
            tokenizer.backend_tokenizer.encode_batch_fast(texts[start : start + BARE_BLOCK])
        return len(texts) / 2 / (time.perf_counter() - started)

    before = bare_speed()
    started = time.perf_counter()
    tokenize_pairs(pairs, tokenizer, cache_dir=cache, show_progress=False)
    ours = count / (time.perf_counter() - started)
    bare = (before + bare_speed()) / 2  # before and after, because the machine's speed varies
    return {"reading": count / reading, "tokenising": ours, "bare": bare}


def start(count: int, cache: str, distinct: int) -> dict[str, float]:
    """Start a run with prepared pairs, and make its first 200 batches."""
    started = time.perf_counter()
    data, batches = open_cached(count, cache, distinct)
    collate = PairCollator()
    first, *others = itertools.islice(batches, 200)
    columns = data.select_columns(["input_ids", "labels"])
    collate(columns.__getitems__(first))
    seconds = time.perf_counter() - started
    started = time.perf_counter()
    for batch in others:
        collate(columns.__getitems__(batch))
    collating = (time.perf_counter() - started) / len(others)
    own = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8")
    anonymous = next(line for line in own.splitlines() if line.startswith("Anonymous"))
    return {"seconds": seconds, "collating": collating, "own_mib": int(anonymous.split()[1]) / 1024}


def open_cached(count: int, cache: str, distinct: int) -> tuple[object, TokenBatchSampler]:
    """Return the tokenised pairs and their batches."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(Path(cache, "tokenizer"))
    pairs = load(count, cache, distinct)
    data = tokenize_pairs(pairs, tokenizer, cache_dir=cache, show_progress=False)
    return data, TokenBatchSampler(*pair_lengths(data), max_tokens=BATCH_TOKENS)


def plan(count: int) -> dict[str, float]:
    """Plan an epoch of this many pairs of random lengths, with the paper's batches."""
    rng = np.random.default_rng(0)
    source, target = np.empty(count, np.int32), np.empty(count, np.int32)
    for start in range(0, count, 10**6):  # all at once would need more memory than the plan
        size = min(10**6, count - start)
        lengths = np.clip(rng.lognormal(3.2, 0.5, size), 2, 250)
        source[start : start + size] = lengths
        target[start : start + size] = np.clip(lengths * rng.normal(1.05, 0.15, size), 2, 250)
    before = peak_mib()
    started = time.perf_counter()
    batches = TokenBatchSampler(source, target, max_tokens=Recipe.batch_tokens)
    first = time.perf_counter()
    next(iter(batches))
    return {
        "counting": first - started,
        "planning": time.perf_counter() - first,
        "bytes": 2**20 * (peak_mib() - before) / count,
        "batches": len(batches),
    }


def plans(counts: list[int]) -> dict[str, object]:
    """Return a table of `plan`, with an estimate for a thousand million pairs as the last row."""
    columns = ("pairs", "counting the batches once, s", "planning an epoch, s")
    columns += ("memory beside the lengths, bytes a pair", "batches")
    rows = []
    for count in counts:
        facts = in_its_own_process("plan", count, "", 0)
        figures = [round(facts[key], 1) for key in ("counting", "planning", "bytes")]
        rows.append([count, *figures, facts["batches"]])
        print(*rows[-1], sep=" | ", flush=True)
    largest, counting, planning, size, batches = rows[-1]
    more = 10**9 / largest
    sorting = more * math.log(10**9) / math.log(largest)  # sorting grows as n log n
    rows.append(
        [
            *("10^9, computed", round(counting * sorting), round(planning * sorting), size),
            round(batches * more),
        ]
    )
    return {"title": "Planning an epoch", "columns": columns, "rows": rows}


def endless(batches: TokenBatchSampler) -> Iterator[list[int]]:
    """Yield batches of one epoch after the other."""
    for epoch in itertools.count():
        batches.set_epoch(epoch)
        yield from batches


def train(counts: list[int], cache: str, distinct: int, rounds: int) -> dict[int, list[float]]:
    """Measure one model's target tokens per second on each number of pairs, in turns."""
    torch.manual_seed(0)
    config = VanillaTransformerConfig(vocab_size=4000, d_model=128, encoder_layers=2)
    config.decoder_layers, config.encoder_ffn_dim, config.decoder_ffn_dim = 2, 512, 512
    model = VanillaTransformerForConditionalGeneration(config).train()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True
    )
    streams, speeds = {}, {count: [] for count in counts}
    for count in counts:
        data, batches = open_cached(count, cache, distinct)
        streams[count] = (data.select_columns(["input_ids", "labels"]), endless(batches))
    collate = PairCollator()
    with cpu_training_settings(model):
        for turn in range(rounds + 1):
            for count in counts[turn % len(counts) :] + counts[: turn % len(counts)]:
                data, batches = streams[count]
                started, tokens = time.perf_counter(), 0
                for batch in itertools.islice(batches, 5):
                    inputs = collate(data.__getitems__(batch))
                    tokens += int((inputs["labels"] != -100).sum())
                    model(**inputs).loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                speeds[count].append(tokens / (time.perf_counter() - started))
    return {count: values[1:] for count, values in speeds.items()}


def in_its_own_process(task: str, count: int, cache: str, distinct: int) -> dict[str, float]:
    """Run a task of this script in a new process, and return its result."""
    command = [sys.executable, __file__, "--task", task, "--pairs", str(count), "--cache", cache]
    command += ["--distinct", str(distinct)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def measure(options: argparse.Namespace, cache: str) -> dict[str, object]:
    """Run all tasks for all numbers of pairs."""
    rows = []
    for count in options.pairs:
        prepared = in_its_own_process("prepare", count, cache, options.distinct)
        started = in_its_own_process("start", count, cache, options.distinct)
        rows.append(
            [
                count,
                *(round(prepared[name]) for name in ("reading", "tokenising", "bare")),
                round(prepared["tokenising"] / prepared["bare"], 2),
                round(started["seconds"], 2),
                round(1000 * started["collating"], 2),
                round(started["own_mib"]),
            ]
        )
        print(*rows[-1], sep=" | ", flush=True)
    speeds = train(options.pairs, cache, options.distinct, options.rounds)
    first = speeds[options.pairs[0]]
    for row in rows:
        mine = speeds[row[0]]
        ratio = statistics.median(a / b for a, b in zip(mine, first, strict=True))
        row += [round(statistics.median(mine)), round(ratio, 3)]
    columns = [
        "pairs",
        "made, read and written, pairs/s",
        "tokenised, pairs/s",
        "bare tokenizer, pairs/s",
    ]
    columns += ["share", "cached start, s", "collation, ms a batch", "own memory, MiB"]
    columns += ["training, target tokens/s", "against the first row"]
    tables = [{"title": "", "columns": columns, "rows": rows}]
    return {"tables": tables + ([plans(options.lengths)] if options.lengths else [])}


def main() -> None:
    """Measure the costs for each number of pairs; print the table, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, nargs="+", default=[30_000, 300_000])
    parser.add_argument("--lengths", type=int, nargs="*", default=[10**7])
    parser.add_argument("--distinct", type=int, default=100_000, help="pairs to generate at most")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cache", help="folder for the prepared pairs (default: temporary)")
    parser.add_argument("--task", choices=("prepare", "start", "plan"), help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=RESULTS / "scaling.json")
    options = parser.parse_args()
    if options.task:
        arguments = (options.pairs[0], options.cache, options.distinct)
        task = {"prepare": prepare, "start": start, "plan": lambda count, *_: plan(count)}
        print(json.dumps(task[options.task](*arguments)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        measured = measure(options, options.cache or temporary)
    settings = {"distinct": options.distinct, "batch_tokens": BATCH_TOKENS}
    write_results(
        options.output, "Cost by the number of pairs", settings=settings, data="CLDR", **measured
    )


if __name__ == "__main__":
    main()
