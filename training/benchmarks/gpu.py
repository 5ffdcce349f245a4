"""Measure one GPU: training, decoding and where the time goes, in some ten minutes.

    make benchmarks-gpu

Rows that exist are not measured again, so that a stopped suite can continue. In size tiny, which
says nothing about speed, everything runs on a CPU too.
"""

import contextlib
import dataclasses
import functools
import gc
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from training import CONTENDERS, SIZES, Contender, Size, make_trainer
from transformers import TrainerCallback, TrainerState

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.beam_search import beam_search
from vanilla_transformer.convert.exporters.stock import to_stock
from vanilla_transformer.data.tokenizer import train_tokenizer
from vanilla_transformer.visualization.figure import new_figure, tidy

sys.path.append(str(Path(__file__).parents[1] / "paper"))  # has `Experiment`, the base class
from experiment import Experiment, Rows, Settings, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FAIREST = "Marian tuned"  # Marian with our batches, without cuDNN's attention
OURS = CONTENDERS["ours_bf16"]
TRAINED = {
    "ours": OURS,
    "ours compiled": dataclasses.replace(OURS, compiled="default"),
    "ours graphs": dataclasses.replace(OURS, compiled="reduce-overhead"),
    FAIREST: CONTENDERS["marian_bf16"],
    "Marian stock": Contender("Marian", "marian", "random", bf16=True),
}
SPECIAL = [0, 1, 2, 3]
# Parts of a training update, by words in the names of kernels; the first match counts.
PARTS = {
    "attention": ("flash", "fmha", "attention", "sdpa"),
    "matrix products": (
        *("gemm", "gemv", "nvjet", "cutlass", "cublas", "matmul", "addmm", "::mm", "::bmm"),
    ),
    "optimizer": ("multi_tensor", "adam", "foreach"),
    "copies and casts": ("memcpy", "copy_", "memset"),
}


class Gpu(Experiment):
    """Speed of a GPU: matrix products, training, decoding, and where an update's time goes."""

    name = "gpu"
    title = "One GPU: training and decoding"
    sizes = {
        "tiny": {
            "product": 64,
            "sizes": ["tiny"],
            "batch_tokens": {"tiny": 256},
            "sentences": 200,
            "warmup": {"plain": 1, "compiled": 1},
            "updates": {"tiny": 2},
            "decode": "tiny",
            "batches": [1, 4],
            "new_tokens": 4,
            "rounds": 1,
        },
        "gpu": {
            "product": 8192,
            "sizes": ["base", "small", "big"],
            "batch_tokens": {"base": 25_000, "small": 1_024, "big": 25_000},
            "sentences": 60_000,
            "warmup": {"plain": 5, "compiled": 40},
            "updates": {"base": 20, "small": 200, "big": 15},
            "decode": "base",
            "batches": [1, 32, 256],
            "new_tokens": 30,
            "rounds": 3,
        },
    }

    def about(self, settings: Settings) -> str:
        """Return how training and decoding are compared, and how to read the tables."""
        return (
            "Training is in bf16, through the trainer of each system, with workers, pinned memory "
            "and no wait between updates, as the command line does it. The tokens are random, "
            "with lengths like those of WMT 2014; an update has at most 25,000 source and 25,000 "
            "target tokens, padding included, and with the small model 1,024, as in the recipe "
            "few_pairs. Compiled means `--trainer torch_compile=true`, and graphs also "
            "`torch_compile_mode=reduce-overhead`; both pad to few shapes. Marian stock trains "
            "under Seq2SeqTrainer on random batches; tuned, it has our batches and leaves out "
            "cuDNN's attention, which builds a plan for each new shape; ours always leaves it "
            "out. The first updates, which are not timed, include compiling. The share is "
            "relative to the GPU's own rate of bf16 matrix products, measured here; it counts "
            "the products that real tokens need, but not those of padding or attention scores. "
            "Decoding, after "
            "a first round with the same shapes, uses a beam of 4 and "
            "the same random weights in both systems; the end symbol is suppressed, so that all "
            "write equally many tokens."
        )

    def rows(self, settings: Settings) -> Iterable[str]:
        """Yield the rows' names: the GPU's own rate, then without torch.compile, then with it."""
        yield "matrix product"
        for compiles in (False, True):
            systems = [name for name in TRAINED if bool(TRAINED[name].compiled) is compiles]
            for size in settings["sizes"]:
                yield from (f"train {size} {system}" for system in systems)
            yield f"profile {settings['sizes'][0]} {systems[0]}"
            for batch in () if compiles else settings["batches"]:
                yield from (f"decode {batch} {system}" for system in ("ours", "generate"))

    def measure(self, row: str, settings: Settings) -> dict[str, object]:
        """Measure one row, and free the GPU's memory after it."""
        task, _, rest = row.partition(" ")
        try:
            if row == "matrix product":
                return {"tflops": product_rate(settings["product"])}
            subject, _, system = rest.partition(" ")
            if task == "profile":
                return profile(subject, system, settings)
            if task == "train":
                torch.backends.cuda.enable_cudnn_sdp(system != FAIREST)
                return training(subject, system, settings)
            return decoding(int(subject), system, settings)
        finally:
            gc.collect()
            torch.cuda.empty_cache()
            torch.backends.cuda.enable_cudnn_sdp(True)

    def tables(self, rows: Rows, settings: Settings) -> dict[str, Table]:
        """Return the tables of training, decoding, and the parts of an update."""
        rate = rows.get("matrix product", {}).get("tflops")
        trained, decoded = [], []
        for row, facts in rows.items():
            task, _, rest = row.partition(" ")
            if task == "train":
                size, _, system = rest.partition(" ")
                other = rows.get(f"train {size} {FAIREST}", {}).get("target_tokens_per_second")
                speed = facts["target_tokens_per_second"]
                trained.append(
                    [
                        *(size, system, round(speed), ratio(speed, other)),
                        f"{100 * facts['tflops'] / rate:.0f} %" if rate else "",
                        *(facts["padding"], round(1000 / facts["milliseconds"], 1)),
                        *(facts["milliseconds"], facts["first_seconds"], facts["gib"]),
                    ]
                )
            elif task == "decode":
                batch, system = rest.split()
                other = rows.get(f"decode {batch} generate", {}).get("sentences_per_second")
                speed = facts["sentences_per_second"]
                decoded.append([batch, system, speed, ratio(speed, other), facts["gib"]])
        columns = ("Model", "System", "Target tokens/s", f"To {FAIREST}", "Share of the GPU's rate")
        tables = {
            f"Training; the GPU does {rate} TFLOP/s": (
                (
                    *(*columns, "Padding", "Updates/s", "ms an update"),
                    *("First updates, s", "Memory, GiB"),
                ),
                trained,
            ),
            f"Decoding {settings['new_tokens']} tokens with the model {settings['decode']}": (
                ("Batch", "System", "Sentences/s", "To generate", "Memory, GiB"),
                decoded,
            ),
        }
        profiled = {row[8:]: facts for row, facts in rows.items() if row.startswith("profile ")}
        if profiled:
            tables["Where the time of our training update goes, %"] = (
                ("", *next(iter(profiled.values()))["parts"], "Launches an update"),
                [
                    [row, *facts["parts"].values(), facts["launches"]]
                    for row, facts in profiled.items()
                ],
            )
        return tables

    def draw(self, rows: Rows, settings: Settings) -> "Figure":
        """Draw the speeds as bars, those of training next to those of decoding."""
        figure = new_figure(9, 3)
        measures = {
            "train": ("target_tokens_per_second", "training, target tokens/s"),
            "decode": ("sentences_per_second", "decoding by batch size, sentences/s"),
        }
        for axis, (task, (key, title)) in zip(figure.subplots(1, 2), measures.items(), strict=True):
            bars = {row[len(task) + 1 :]: facts[key] for row, facts in rows.items() if key in facts}
            colours = ["C0" if "ours" in name else "0.7" for name in bars]
            axis.barh(list(bars), list(bars.values()), color=colours)
            axis.invert_yaxis()
            axis.set(title=title, xscale="log" if task == "decode" and bars else "linear")
            if task == "train":
                axis.locator_params(axis="x", nbins=4)
                axis.xaxis.set_major_formatter("{x:,.0f}")
            tidy(axis)
        return figure


def ratio(speed: float, other: float | None) -> str:
    """Format a speed as a multiple of another, or return nothing if that was not measured."""
    return f"{speed / other:.2f}" if other else ""


def now() -> float:
    """Wait until the device has finished, and return the time in seconds."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def peak_gib() -> float:
    """Return the peak memory of the GPU in GiB since `forget_peak`; 0 on a CPU."""
    return round(torch.cuda.max_memory_allocated() / 2**30, 2) if DEVICE == "cuda" else 0.0


def forget_peak() -> None:
    """Reset `peak_gib`."""
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()


def product_rate(size: int) -> float:
    """Measure the TFLOP/s of a bf16 product of square matrices."""
    a, b = (torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    seconds = []
    for _ in range(8):
        started = now()
        a @ b
        seconds.append(now() - started)
    return round(2 * size**3 / statistics.median(seconds[2:]) / 1e12, 3)


@functools.cache
def sentences_like_wmt(count: int, vocab_size: int) -> object:
    """Return pairs of random tokens, with a mean length of 28 and at most 250."""
    from datasets import Dataset

    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(3.2, 0.5, (count, 1)) * rng.normal(1, 0.1, (count, 2)), 4, 250)
    lengths = lengths.astype(int)
    sides = [
        [rng.integers(4, vocab_size, length).tolist() for length in side] for side in lengths.T
    ]
    columns = {"input_ids": sides[0], "labels": sides[1]}
    named = dict(zip(("source_length", "target_length"), lengths.T.tolist(), strict=True))
    return Dataset.from_dict({**columns, **named})


@contextlib.contextmanager
def trainer_of(size: str, system: str, settings: Settings, updates: int) -> Iterator[tuple]:
    """Yield a trainer that makes `updates` updates after the warm-up, its `Watch` and `Size`."""
    sizes: Size = SIZES[size]
    contender, budget = TRAINED[system], settings["batch_tokens"][size]
    warmup = settings["warmup"]["compiled" if contender.compiled else "plain"]
    padder = train_tokenizer(["a"], vocab_size=260, show_progress=False)
    # At 28 tokens a sentence on average, a random batch has about half the tokens of one of ours.
    options = Namespace(steps=updates, warmup=warmup, batch_tokens=budget, sentences=budget // 64)
    data = sentences_like_wmt(settings["sentences"], sizes.vocab_size)
    trainer, watch = make_trainer(contender, sizes, data, padder, options)
    with tempfile.TemporaryDirectory() as folder:
        trainer.args.output_dir = folder
        yield trainer, watch, sizes


def training(size: str, system: str, settings: Settings) -> dict[str, object]:
    """Measure training by one system of `TRAINED`: tokens per second, TFLOP/s and memory."""
    updates = settings["updates"][size]
    with trainer_of(size, system, settings, updates) as (trainer, watch, sizes):
        forget_peak()
        trainer.train()
        seconds, source, target = watch.figures()
    return {
        "target_tokens_per_second": round(target / seconds, 1),
        "milliseconds": round(1000 * seconds / updates, 2),
        "first_seconds": round(watch.ends[-1] - watch.started - seconds, 1),
        "tflops": round(sizes.flops(source, target) / seconds / 1e12, 4),
        "padding": f"{100 * watch.padding():.0f} %",
        "gib": peak_gib(),
    }


def decoding(batch: int, system: str, settings: Settings) -> dict[str, object]:
    """Measure sentences per second of our search or `generate`, after a batch to warm up."""
    sizes = SIZES[settings["decode"]]
    torch.manual_seed(0)
    model = VanillaTransformerForConditionalGeneration(config_of(sizes)).eval()
    if system == "generate":
        model = to_stock(model)
    model = model.to(DEVICE, torch.bfloat16)
    generator = torch.Generator().manual_seed(batch)
    lengths = torch.randint(8, 41, (batch, 1), generator=generator)
    mask = (torch.arange(int(lengths.max())) < lengths).long()
    ids = torch.randint(4, sizes.vocab_size, mask.shape, generator=generator) * mask
    ids, mask = ids.to(DEVICE), mask.to(DEVICE)
    options = {"num_beams": 4, "length_penalty": 0.6, "max_new_tokens": settings["new_tokens"]}
    seconds = []
    forget_peak()
    for _ in range(settings["rounds"] + 1):
        started = now()
        if system == "ours":
            beam_search(model, ids, mask, suppress_tokens=SPECIAL, **options)
        else:
            model.generate(ids, attention_mask=mask, suppress_tokens=SPECIAL, **options)
        seconds.append(now() - started)
    speed = batch / statistics.median(seconds[1:])
    return {"sentences_per_second": round(speed, 2), "gib": peak_gib()}


def config_of(size: Size) -> VanillaTransformerConfig:
    """Return our model's config for a size."""
    return VanillaTransformerConfig(
        vocab_size=size.vocab_size,
        d_model=size.d_model,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        encoder_ffn_dim=size.ffn_dim,
        decoder_ffn_dim=size.ffn_dim,
        encoder_layers=size.layers,
        decoder_layers=size.layers,
    )


class AfterWarmup(TrainerCallback):
    """Callback that profiles the updates after the warm-up."""

    def __init__(self, profiler: object, warmup: int) -> None:
        self.profiler, self.warmup = profiler, warmup

    def on_step_end(self, args: object, state: TrainerState, *rest: object, **more: object) -> None:
        """Start the profiler after the warm-up, and stop it after the last update."""
        if state.global_step == self.warmup:
            self.profiler.start()
        elif state.global_step == state.max_steps:
            now()
            self.profiler.stop()


def profile(size: str, system: str, settings: Settings) -> dict[str, object]:
    """Measure the percentage of device time in each of `PARTS`, and kernel launches per update."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    on_gpu, updates = DEVICE == "cuda", 3
    profiler = torch_profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU])
    with trainer_of(size, system, settings, updates) as (trainer, watch, _):
        trainer.add_callback(AfterWarmup(profiler, watch.warmup))
        trainer.train()
    parts, launches = dict.fromkeys((*PARTS, "other"), 0.0), 0
    for event in profiler.key_averages():
        name = event.key.lower()
        part = next((p for p, words in PARTS.items() if any(w in name for w in words)), "other")
        spent = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        parts[part] += spent
        launches += event.count if spent else 0
    total = sum(parts.values()) or 1.0
    shares = {part: round(100 * spent / total, 1) for part, spent in parts.items()}
    return {"parts": shares, "launches": round(launches / updates)}


if __name__ == "__main__":
    Gpu().main()
