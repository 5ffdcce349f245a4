"""Compare training speed with peers of the same size, each with the trainer that its users run.

All contenders run in one process and take turns in rotated order, so that anything else that the
machine does affects all of them. Speed is target tokens per second, with `</s>` and without
padding. The time between the ends of updates counts: batches, collation, forward, backward and
optimizer. A ratio is the median over rounds of the ratio within a round.

    python training/benchmarks/training.py --size small
    python training/benchmarks/training.py --size base --batch-tokens 1024 --steps 1
    python training/benchmarks/training.py --memory
"""

import argparse
import contextlib
import dataclasses
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from interleave import peak_mib
from report import file_and_title, has_bf16, write_results
from torch import nn
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    DataCollatorForSeq2Seq,
    MarianConfig,
    MarianMTModel,
    PrinterCallback,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
    TrainerState,
)

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.data.batches import TokenBatchSampler
from vanilla_transformer.data.dataset import load_pairs, pair_lengths, sentences, tokenize_pairs
from vanilla_transformer.data.tokenizer import train_tokenizer
from vanilla_transformer.train.trainer import (
    VanillaTransformerTrainer,
    VanillaTransformerTrainingArguments,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "demo"))

from phrases import generate_pairs

SPEED_SETTINGS = ("rounds", "steps", "batch_tokens", "sentences", "pair", "pairs")


@dataclasses.dataclass(frozen=True)
class Size:
    """Sizes of all contenders; all have dropout 0.1, label smoothing 0.1 and tied embeddings."""

    d_model: int
    heads: int
    ffn_dim: int
    layers: int
    vocab_size: int

    def flops(self, source_tokens: int, target_tokens: int) -> float:
        """Return the FLOPs of the weights, forward and backward, without attention scores."""
        d, ffn = self.d_model, self.ffn_dim
        source = self.layers * (4 * d * d + 2 * d * ffn + 2 * d * d)  # with cross-attention's K, V
        target = self.layers * (6 * d * d + 2 * d * ffn) + d * self.vocab_size
        return 6 * (source_tokens * source + target_tokens * target)


SIZES = {
    "small": Size(256, 4, 1024, 3, 10_000),
    "base": Size(512, 8, 2048, 6, 37_000),
    "big": Size(1024, 16, 4096, 6, 37_000),
    "tiny": Size(32, 2, 64, 1, 400),  # to try the script
}


@dataclasses.dataclass(frozen=True)
class Contender:
    """A model with its trainer, its batches, and settings that change its speed."""

    label: str
    model: str
    batches: str  # "random", "grouped" by `Trainer`'s sampler, or our "buckets" of tokens
    ours: bool = False  # with our trainer, which chooses its own settings
    attention: str | None = None
    precision: str = "highest"  # of float32 matrix products
    bf16: bool = False
    compiled: str | None = None  # the mode of torch.compile, if it is used


CONTENDERS = {
    "ours": Contender("ours", "vanilla", "buckets", ours=True),
    "ours_bf16": Contender("ours, bf16", "vanilla", "buckets", ours=True, bf16=True),
    "ours_plain": Contender("ours under Seq2SeqTrainer, no switch", "vanilla", "random"),
    "ours_buckets": Contender("ours under Seq2SeqTrainer, our buckets", "vanilla", "buckets"),
    "marian": Contender("Marian", "marian", "random"),
    "marian_grouped": Contender("Marian, group_by_length", "marian", "grouped"),
    "marian_buckets": Contender("Marian, our buckets", "marian", "buckets"),
    "marian_tuned": Contender(
        "Marian, our buckets, eager, medium", "marian", "buckets", False, "eager", "medium"
    ),
    "marian_bf16": Contender("Marian, our buckets, bf16", "marian", "buckets", bf16=True),
    "bart": Contender("Bart, our buckets", "bart", "buckets"),
    "torch": Contender("torch.nn.Transformer, our buckets", "torch", "buckets"),
}


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with tied embeddings, sinusoids and torch's label-smoothed loss."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.table = nn.Embedding(size.vocab_size, size.d_model)
        nn.init.normal_(self.table.weight, std=size.d_model**-0.5)
        depths = {"num_encoder_layers": size.layers, "num_decoder_layers": size.layers}
        self.transformer = nn.Transformer(
            size.d_model,
            size.heads,
            **depths,
            dim_feedforward=size.ffn_dim,
            dropout=0.1,
            batch_first=True,
        )
        self.dropout = nn.Dropout(0.1)
        places = torch.arange(512)[:, None] * 10_000 ** (
            -torch.arange(0, size.d_model, 2) / size.d_model
        )
        self.register_buffer("places", torch.stack((places.sin(), places.cos()), -1).flatten(1))

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Return embeddings times sqrt(d_model) plus sinusoids, (B, T, d)."""
        scaled = self.table(ids) * math.sqrt(self.table.embedding_dim)
        return self.dropout(scaled + self.places[: ids.size(1)])

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return the loss and the logits."""
        inputs = labels.roll(1, 1).masked_fill(labels.roll(1, 1) == -100, 0)
        inputs[:, 0] = 1
        causal = nn.Transformer.generate_square_subsequent_mask(inputs.size(1), dtype=torch.bool)
        padding = attention_mask == 0
        states = self.transformer(
            self.embed(input_ids),
            self.embed(inputs),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        logits = states @ self.table.weight.T
        loss = nn.functional.cross_entropy(logits.mT, labels, label_smoothing=0.1)
        return {"loss": loss, "logits": logits}


def make_model(kind: str, size: Size) -> nn.Module:
    """Return the model of a contender, initialised by its own rules."""
    torch.manual_seed(0)
    if kind == "torch":
        return TorchTransformer(size)
    shared = {
        "vocab_size": size.vocab_size,
        "d_model": size.d_model,
        "encoder_layers": size.layers,
        "decoder_layers": size.layers,
        "encoder_attention_heads": size.heads,
        "decoder_attention_heads": size.heads,
        "encoder_ffn_dim": size.ffn_dim,
        "decoder_ffn_dim": size.ffn_dim,
        "dropout": 0.1,
    }
    if kind == "vanilla":
        config = VanillaTransformerConfig(**shared)
        return VanillaTransformerForConditionalGeneration(config)
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    shared |= {**ids, "activation_function": "relu", "scale_embedding": True}
    shared |= {"max_position_embeddings": 512, "forced_eos_token_id": None}
    if kind == "marian":
        return MarianMTModel(MarianConfig(**shared))
    return BartForConditionalGeneration(BartConfig(**shared))


class BucketTrainer(Seq2SeqTrainer):
    """`Seq2SeqTrainer` with our batches, each of at most `batch_tokens` tokens."""

    batch_tokens = 2048

    def get_train_dataloader(self) -> torch.utils.data.DataLoader:
        """Return the batches that our trainer would make."""
        batches = TokenBatchSampler(
            *pair_lengths(self.train_dataset), max_tokens=self.batch_tokens, seed=self.args.seed
        )
        loader = torch.utils.data.DataLoader(
            self.train_dataset.select_columns(["input_ids", "labels"]),
            batch_sampler=batches,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
        )
        return self.accelerator.prepare(loader)


class GroupedTrainer(Seq2SeqTrainer):
    """`Seq2SeqTrainer` with `group_by_length`, but not with the longest batches first."""

    def _get_train_sampler(self, train_dataset: object = None) -> list[int]:
        """Return the same batches in random order, since a round trains on only the first ones."""
        order, size = list(super()._get_train_sampler(train_dataset)), self.args.train_batch_size
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        random.Random(self.args.seed).shuffle(batches)
        return [index for batch in batches for index in batch]


class Watch(TrainerCallback):
    """Counts the real tokens of each batch of a trainer, and notes the time when each update ends.

    Counting tokens does not wait for a GPU. It is waited for only twice: when the timed updates
    begin, and when they end.
    """

    def __init__(self, trainer: Seq2SeqTrainer, warmup: int) -> None:
        self.tokens, self.padded, self.ends, self.warmup = [], [], [], warmup
        self.started = 0.0
        self.fetch = trainer.get_batch_samples
        trainer.get_batch_samples = self.get_batch_samples
        trainer.add_callback(self)

    def get_batch_samples(self, *args: object) -> tuple[list, object]:
        """Fetch the batches of an update, and count their source and target tokens."""
        batches, num_items = self.fetch(*args)
        for batch in batches:
            sides = batch["attention_mask"], batch["labels"] != -100
            self.tokens.append([side.sum() for side in sides])
            self.padded.append(sum(side.numel() for side in sides))
        return batches, num_items

    def on_train_begin(self, *args: object, **kwargs: object) -> None:
        """Note the time at which training begins."""
        self.started = time.perf_counter()

    def on_step_end(self, args: object, state: TrainerState, *rest: object, **more: object) -> None:
        """Note the time; where the timed updates begin and end, first wait for the GPU."""
        if torch.cuda.is_available() and state.global_step in (self.warmup, state.max_steps):
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())

    def figures(self) -> tuple[float, float, float]:
        """Return the seconds, source and target tokens of all updates after the warm-up."""
        timed = self.tokens[self.warmup : len(self.ends)]
        source, target = (sum(map(int, side)) for side in zip(*timed, strict=True))
        return self.ends[-1] - self.ends[self.warmup - 1], source, target

    def padding(self) -> float:
        """Return the share of padding in the batches."""
        return 1 - sum(int(side) for sides in self.tokens for side in sides) / sum(self.padded)


def make_trainer(
    contender: Contender, size: Size, data: object, tokenizer: object, options: argparse.Namespace
) -> tuple[Seq2SeqTrainer, Watch]:
    """Return the trainer of a contender, which trains for a few updates per call."""
    model = make_model(contender.model, size)
    if contender.attention is not None:
        model.set_attn_implementation(contender.attention)
    settings = {
        "output_dir": tempfile.mkdtemp(prefix="benchmark-"),
        "max_steps": options.steps + options.warmup,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": not torch.cuda.is_available(),
        "bf16": contender.bf16,
        "max_grad_norm": 0.0,  # no clipping, which would slow the peers down
        # The command line sets these too.
        "dataloader_pin_memory": torch.cuda.is_available(),
        "dataloader_num_workers": 2 if torch.cuda.is_available() else 0,
    }
    if contender.ours:
        arguments = VanillaTransformerTrainingArguments(
            **settings, batch_tokens=options.batch_tokens, torch_compile_mode=contender.compiled
        )
        trainer = VanillaTransformerTrainer(model, arguments, train_dataset=data)
    else:
        smoothed_by_trainer = contender.model in ("marian", "bart")
        grouping = "group_by_length" if contender.batches == "grouped" else "random"
        arguments = Seq2SeqTrainingArguments(
            **settings,
            per_device_train_batch_size=options.sentences,
            label_smoothing_factor=0.1 if smoothed_by_trainer else 0.0,
            train_sampling_strategy=grouping,
            length_column_name="source_length",
        )
        prepares = None if contender.model == "torch" else model
        collate = DataCollatorForSeq2Seq(tokenizer, model=prepares)
        kinds = {"buckets": BucketTrainer, "grouped": GroupedTrainer}
        kind = kinds.get(contender.batches, Seq2SeqTrainer)
        trainer = kind(model, arguments, train_dataset=data, data_collator=collate)
        trainer.batch_tokens = options.batch_tokens
    trainer.remove_callback(PrinterCallback)
    return trainer, Watch(trainer, options.warmup)


@contextlib.contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Set the precision of matrix products for the block."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def run_round(
    trainers: dict[str, tuple[Seq2SeqTrainer, Watch]], number: int
) -> dict[str, tuple[float, float, float]]:
    """Let each contender train, in an order that rotates by round; return their `Watch.figures`."""
    names = list(trainers)
    shift = number % len(names)
    figures = {}
    for name in names[shift:] + names[:shift]:
        trainer, watch = trainers[name]
        watch.tokens, watch.padded, watch.ends = [], [], []
        trainer.args.seed = number  # other buckets in each round, the same for all contenders
        torch.manual_seed(number)
        with matmul_precision(CONTENDERS[name].precision):
            trainer.train()
        figures[name] = watch.figures()
    return figures


def machine_limit() -> dict[str, float]:
    """Measure the GFLOP/s of a 1024 x 1024 matrix product, by precision."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    kinds = [("fp32, highest", "highest", a, b), ("fp32, medium", "medium", a, b)]
    if has_bf16():
        kinds.append(("bf16", "highest", a.bfloat16(), b.bfloat16()))
    limits = {}
    for label, precision, left, right in kinds:
        seconds = []
        with matmul_precision(precision):
            for _ in range(12):
                started = time.perf_counter()
                left @ right
                seconds.append(time.perf_counter() - started)
        limits[label] = round(2 * 1024**3 / statistics.median(seconds[2:]) / 1e9, 1)
    return limits


def load_data(options: argparse.Namespace, size: Size) -> tuple[object, object]:
    """Return tokenised pairs, from a file or generated from CLDR, and their tokenizer."""
    languages = dict(
        zip(("source_language", "target_language"), options.pair.split("-"), strict=True)
    )
    if options.data:
        source = Path(options.data)
    else:
        generated = generate_pairs(*languages.values(), count=options.pairs)
        source = [(pair.source, pair.target) for pair in generated]
    cache = tempfile.mkdtemp(prefix="benchmark-")
    pairs = load_pairs(source, **languages, cache_dir=cache, show_progress=False)
    tokenizer = train_tokenizer(sentences(pairs), vocab_size=size.vocab_size, show_progress=False)
    tokens = tokenize_pairs(pairs, tokenizer, cache_dir=cache, show_progress=False)
    return tokens, tokenizer


def fixed_data(size: Size, options: argparse.Namespace) -> object:
    """Return sentences of 16 tokens, so that all batches have one shape."""
    from datasets import Dataset

    ids = np.random.default_rng(0).integers(4, size.vocab_size, (options.batch_tokens // 4, 16))
    columns = {"input_ids": ids.tolist(), "labels": ids[:, ::-1].tolist()}
    lengths = [16] * len(ids)
    return Dataset.from_dict({**columns, "source_length": lengths, "target_length": lengths})


def measure_speed(size: Size, names: list[str], options: argparse.Namespace) -> dict[str, object]:
    """Measure the speed of all contenders in rounds; return the tables, and every speed."""
    limits = machine_limit()
    data, tokenizer = load_data(options, size)
    trainers = {
        name: make_trainer(CONTENDERS[name], size, data, tokenizer, options) for name in names
    }
    run_round(trainers, 0)  # warms up
    started, rounds = time.monotonic(), []
    while len(rounds) < options.rounds and time.monotonic() - started < 60 * options.minutes:
        rounds.append(run_round(trainers, len(rounds) + 1))
    speeds = {name: [figures[name][2] / figures[name][0] for figures in rounds] for name in names}
    fp32 = max(limit for label, limit in limits.items() if label.startswith("fp32"))
    rows = []
    for name in names:
        limit = limits["bf16"] if CONTENDERS[name].bf16 else fp32
        ratios = [mine / other for mine, other in zip(speeds["ours"], speeds[name], strict=True)]
        gflops = [size.flops(*f[name][1:]) / f[name][0] / 1e9 for f in rounds]
        rows.append(
            [
                CONTENDERS[name].label,
                round(statistics.median(speeds[name])),
                round(statistics.median(ratios), 2),
                f"{min(ratios):.2f} to {max(ratios):.2f}",
                round(statistics.median(gflops)),
                f"{100 * statistics.median(gflops) / limit:.0f} %",
            ]
        )
    columns = ["Contender", "target tokens/s", "ours / it", "range over rounds", "useful GFLOP/s"]
    columns.append("of a bare product")  # a product in bf16, or the faster float32 one
    limit_rows = [[label, value] for label, value in limits.items()]
    return {
        "tables": [
            {"title": "", "columns": columns, "rows": rows},
            {
                "title": "",
                "columns": ["Matrix product, 1024 x 1024", "GFLOP/s"],
                "rows": limit_rows,
            },
        ],
        "rounds": len(rounds),
        "target_tokens_per_second": speeds,
    }


def measure_memory(names: list[str]) -> dict[str, object]:
    """Measure each contender's peak memory in its own process, with three updates of one shape."""
    peaks = {}
    for name in names:
        command = [sys.executable, __file__, *sys.argv[1:], "--one", name]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        peaks[name] = json.loads(output.splitlines()[-1])
    rows = [
        [CONTENDERS[name].label, round(peak), round(peak / peaks["marian_buckets"], 3)]
        for name, peak in peaks.items()
    ]
    columns = ["Contender", "peak RSS, MiB", "share of Marian's"]
    return {"tables": [{"title": "", "columns": columns, "rows": rows}]}


def peak_memory(name: str, size: Size, options: argparse.Namespace) -> float:
    """Return the peak memory of this process after three updates, in MiB."""
    options.steps = 2
    data = fixed_data(size, options)
    tokenizer = train_tokenizer(["a"], vocab_size=260, show_progress=False)
    run_round({name: make_trainer(CONTENDERS[name], size, data, tokenizer, options)}, 0)
    return peak_mib()


def main() -> None:
    """Measure speed or peak memory of all contenders; print tables, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=30.0, help="start no round after these")
    parser.add_argument("--steps", type=int, default=3, help="timed updates in a round")
    parser.add_argument("--batch-tokens", type=int, default=2048, help="of a batch, with padding")
    parser.add_argument("--sentences", type=int, default=64, help="sentences of a random batch")
    parser.add_argument("--data", help="pairs as .jsonl[.gz] (default: from CLDR)")
    parser.add_argument("--pairs", type=int, default=20_000, help="number of pairs to generate")
    parser.add_argument("--pair", default="en-de", help="languages")
    parser.add_argument("--only", help="contenders, separated by commas: " + ", ".join(CONTENDERS))
    parser.add_argument("--memory", action="store_true", help="peak memory instead of speed")
    parser.add_argument("--one", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help="results file")
    options = parser.parse_args()
    options.warmup = 1
    size = SIZES[options.size]
    if options.one:
        print(peak_memory(options.one, size, options))
        return
    names = options.only.split(",") if options.only else list(CONTENDERS)
    needed = "marian_buckets" if options.memory else "ours"  # the others are compared with it
    if unknown := [name for name in names if name not in CONTENDERS]:
        parser.error(f"--only: there is no {unknown[0]}; choose from {', '.join(CONTENDERS)}")
    if needed not in names:
        parser.error(f"--only: the others are compared with {needed}; add it")
    names = [name for name in names if has_bf16() or not CONTENDERS[name].bf16]
    measure = measure_memory(names) if options.memory else measure_speed(size, names, options)
    data = "/".join(Path(options.data).parts[-2:]) if options.data else "CLDR"
    kind, what = ("memory", "Memory") if options.memory else ("training", "Speed")
    output, title = file_and_title(f"{kind}_{options.size}", f"{what} of training, {options.size}")
    write_results(
        options.output or output,
        title,
        size=dataclasses.asdict(size),
        settings={
            name: str(value) if isinstance(value, Path) else value
            for name, value in vars(options).items()
            if name in (("batch_tokens",) if options.memory else SPEED_SETTINGS)
        },
        data="random ids, 16 in a sentence" if options.memory else data,
        **measure,
    )


if __name__ == "__main__":
    main()
