"""Table 2 of the paper: the cost of training, counted in two ways, and the time it takes here.

python training/paper/table_2.py --size cpu
"""

import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from experiment import Experiment, Rows, Settings, Table
from torch.nn.parallel import DistributedDataParallel
from torch.utils.flop_counter import FlopCounterMode

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.data.dataset import load_pairs, pair_lengths, sentences, tokenize_pairs
from vanilla_transformer.data.tokenizer import train_tokenizer
from vanilla_transformer.machine.environment import resolve_precision
from vanilla_transformer.train.cpu_settings import cpu_training_settings
from vanilla_transformer.visualization.figure import new_figure, tidy

sys.path.insert(0, str(Path(__file__).parents[1] / "demo"))

from phrases import generate_pairs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Sections 5.1 to 5.3, 6.1 and footnote 5 of the paper.
UPDATES, HOURS = {"base": 100_000, "big": 300_000}, {"base": 12, "big": 84}
GPUS, P100_FLOPS = 8, 9.5e12  # FLOP/s in single precision that the authors assume of a P100
TOKENS = 25_000  # source tokens of an update, and as many target tokens
PAIRS = 4.5e6  # EN-DE
CHECKPOINT_EVERY = 600  # seconds
NETWORK = 10e9 / 8  # bytes a second, in each direction
VOCABULARY = 37_000
COST = {"base": 3.3e18, "big": 2.3e19}  # as Table 2 prints it
PUBLISHED = [  # model, BLEU and cost EN-DE, BLEU and cost EN-FR
    ("ByteNet", 23.75, None, None, None),
    ("Deep-Att + PosUnk", None, None, 39.2, 1.0e20),
    ("GNMT + RL", 24.6, 2.3e19, 39.92, 1.4e20),
    ("ConvS2S", 25.16, 9.6e18, 40.46, 1.5e20),
    ("MoE", 26.03, 2.0e19, 40.56, 1.2e20),
    ("Deep-Att + PosUnk, ensemble", None, None, 40.4, 8.0e20),
    ("GNMT + RL, ensemble", 26.30, 1.8e20, 41.16, 1.1e21),
    ("ConvS2S, ensemble", 26.36, 7.7e19, 41.29, 1.2e21),
    ("Transformer base", 27.3, COST["base"], 38.1, COST["base"]),
    ("Transformer big", 28.4, COST["big"], 41.8, COST["big"]),
]
DEVICES = (1, 8, 64)
PARTS = ("computing", "all-reduce", "checkpoints", "preparation")


def paper_cost(run: str) -> float:
    """Return the FLOPs as the paper counts them: time x GPUs x assumed sustained FLOP/s."""
    return HOURS[run] * 3600 * GPUS * P100_FLOPS


def config_of(preset: str, settings: Settings) -> VanillaTransformerConfig:
    """Return the config of a preset with the paper's vocabulary, or shrunk for a test."""
    return VanillaTransformerConfig.from_preset(
        preset, **{"vocab_size": VOCABULARY, **settings["shrunk"]}
    )


def flops_of_a_token(config: VanillaTransformerConfig, length: int) -> tuple[int, float]:
    """Count parameters, and forward and backward FLOPs for one source and one target token.

    This uses the meta device, which tracks shapes and computes nothing. The gradient starts at the
    logits, because the package's loss writes its products into buffers that the counter misses.
    """
    with torch.device("meta"):
        model = VanillaTransformerForConditionalGeneration(config).train()
        model.set_attn_implementation("eager")  # the counter may not know a fused kernel
        ids = torch.zeros(1, length, dtype=torch.long)
        counter = FlopCounterMode(display=False)
        with counter:
            model(input_ids=ids, decoder_input_ids=ids).logits.sum().backward()
    return model.num_parameters(), counter.get_total_flops() / length


def median_seconds(
    work: Callable[[], object], repeats: int, ready: Callable = lambda: None
) -> float:
    """Return the median time of `work` after a warm-up, calling `ready` untimed before each run."""
    taken = []
    for _ in range(repeats + 1):
        ready()
        started = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken[1:])


class Training:
    """A model with the paper's Adam and one batch of sentences of equal length."""

    def __init__(
        self, config: VanillaTransformerConfig, settings: Settings, device: str = "cpu"
    ) -> None:
        self.model = VanillaTransformerForConditionalGeneration(config).to(device).train()
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True
        )
        shape = (settings["tokens"] // settings["length"], settings["length"])
        self.ids = torch.randint(4, config.vocab_size, shape, device=device)
        self.autocast = torch.autocast(
            device, torch.bfloat16, enabled=settings["precision"] == "bf16"
        )

    def gradient(self, sentences: int | None = None) -> None:
        """Run forward and backward on the first `sentences` sentences of the batch, or on all."""
        ids = self.ids[:sentences]
        with self.autocast:
            loss = self.model(input_ids=ids, labels=ids).loss
        loss.backward()

    def step(self) -> None:
        """Run Adam's part of an update."""
        self.optimizer.step()
        self.optimizer.zero_grad()

    def update(self) -> None:
        """Run a whole update: forward, backward and Adam's step."""
        self.gradient()
        self.step()


def work_of_two(rank: int, folder: str, settings: Settings, sizes: dict[str, int]) -> None:
    """Time updates and all-reduces in one of two processes; the first one writes the results."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    small = {**settings, "tokens": settings["twin_tokens"], "precision": "fp32"}
    training = Training(config_of(settings["twins"], settings), small)
    repeats = settings["twin_repeats"]
    found = {}
    with cpu_training_settings(training.model):
        if rank == 0:
            found["alone"] = median_seconds(training.update, repeats)
        found["twin"] = median_seconds(training.update, repeats, dist.barrier)
        found["all_reduce"] = {}
        for name, parameters in sizes.items():
            values = torch.zeros(parameters)
            found["all_reduce"][name] = median_seconds(
                lambda values=values: dist.all_reduce(values), 3, dist.barrier
            )
        training.model = DistributedDataParallel(training.model)
        found["together"] = median_seconds(training.update, repeats, dist.barrier)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        torch.save(found, Path(folder, "found"))


class Table2(Experiment):
    """Table 2, whose rows are measurements: two processes, preparing the data, base and big."""

    name = "table_2"
    title = "Table 2: what training cost, and how long it takes on this machine"
    sizes = {
        "tiny": {
            "shrunk": {"vocab_size": 400, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
                       "encoder_attention_heads": 2, "decoder_attention_heads": 2,
                       "encoder_ffn_dim": 64, "decoder_ffn_dim": 64},
            "lengths": [10, 25], "length": 25, "tokens": 100, "repeats": 1, "precision": "fp32",
            "twins": "base", "twin_tokens": 100, "twin_repeats": 2, "pairs": 200,
        },
        "cpu": {
            "shrunk": {}, "lengths": [10, 25, 50, 100, 200], "length": 25, "tokens": 1024,
            "repeats": 3, "precision": "auto",
            "twins": "C_d256", "twin_tokens": 500, "twin_repeats": 5, "pairs": 20_000,
        },
        "gpu": {
            "shrunk": {}, "lengths": [10, 25, 50, 100, 200], "length": 25, "tokens": 12_500,
            "repeats": 20, "precision": "auto",
            "twins": "C_d256", "twin_tokens": 500, "twin_repeats": 5, "pairs": 20_000,
        },
    }  # fmt: skip

    def about(self, settings: Settings) -> str:
        """Return how the paper and this script count the cost, and how the time is predicted."""
        return (
            "The cost of training, counted in two ways, and the time that the paper's runs would "
            "take on this machine.\n"
            "\n"
            "- **The paper** multiplies the hours of training by the number of GPUs and by the "
            "FLOP/s that a GPU is assumed to sustain. **Counted** are the matrix products that "
            "training needs, forward and backward, on sentences of 25 tokens, by torch's "
            "FlopCounterMode. The quotient is the share of the GPUs' FLOPs that did this work.\n"
            "- **Computing** = updates x (25,000 tokens / (target tokens a second x devices) + "
            "the optimizer's step). The speed is measured on a few batches of such sentences; the "
            "more devices share an update, the smaller the batches. Matrix products are in the "
            "format that training chooses on this machine (see the table). Each device is assumed "
            "to be as fast as this machine.\n"
            "- **All-reduce** = updates x 2 (W - 1) / W x bytes of the gradients / bandwidth, for "
            "W devices, assuming that it does not overlap with computing. The bandwidth is "
            "measured between two gloo processes over this machine's loopback, which is not a "
            "network. The time at 10 Gbit/s is given next to it and is not part of the sum.\n"
            "- **Checkpoints**: one every 10 minutes, of the model and Adam's moments, into the "
            "page cache. **Preparation**: reading and tokenising the 4.5 million pairs of EN-DE "
            "in one process, at the speed measured on generated pairs; EN-FR has 8 times as many.\n"
            "- **The check** trains one small model with DistributedDataParallel in two processes "
            "of one thread each, in float32. They share this machine's caches and memory, so "
            "there are two predictions: from one process on its own, and from one next to an "
            "equally busy twin."
        )

    def rows(self, settings: Settings) -> list[str]:
        """Return the names of the measurements."""
        return ["two processes", "preparation", *UPDATES]

    def measure(self, row: str, settings: Settings) -> dict[str, object]:
        """Measure two processes, preparing the data, or the updates of base or big."""
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder:
            if row == "two processes":
                return self._two_processes(folder, settings)
            if row == "preparation":
                return self._preparation(folder, settings)
            return self._run(row, folder, settings)

    def _two_processes(self, folder: str, settings: Settings) -> dict[str, object]:
        sizes = {
            name: flops_of_a_token(config_of(name, settings), 1)[0]
            for name in {settings["twins"]: None, **UPDATES}
        }
        torch.multiprocessing.spawn(work_of_two, (folder, settings, sizes), nprocs=2)
        return {**torch.load(Path(folder, "found")), "parameters": sizes}

    def _preparation(self, folder: str, settings: Settings) -> dict[str, object]:
        generated = generate_pairs("en", "de", count=settings["pairs"])
        texts = [(pair.source, pair.target) for pair in generated]
        where = {"cache_dir": folder, "show_progress": False}
        started = time.perf_counter()
        pairs = load_pairs(texts, source_language="en", target_language="de", **where)
        reading = time.perf_counter() - started
        tokenizer = train_tokenizer(sentences(pairs), vocab_size=4000, show_progress=False)
        started = time.perf_counter()
        data = tokenize_pairs(pairs, tokenizer, **where)
        seconds = reading + time.perf_counter() - started
        tokens = int(sum(lengths.sum() for lengths in pair_lengths(data)))
        return {"pairs": len(data), "tokens": tokens, "seconds": seconds}

    def _run(self, row: str, folder: str, settings: Settings) -> dict[str, object]:
        settings = {**settings, "precision": resolve_precision(settings["precision"])}
        config = config_of(row, settings)
        counted = [flops_of_a_token(config, length) for length in settings["lengths"]]
        training = Training(config, settings, "cuda" if torch.cuda.is_available() else "cpu")
        model, repeats = training.model, settings["repeats"]
        # Each device has its share of an update, in batches of at most `tokens`.
        shares = {devices: min(settings["tokens"], TOKENS // devices) for devices in DEVICES}
        speeds = {}
        with cpu_training_settings(model):
            for share in sorted(set(shares.values()), reverse=True):
                rows = share // settings["length"]
                seconds = median_seconds(
                    lambda rows=rows: training.gradient(rows), repeats, training.optimizer.zero_grad
                )
                speeds[share] = rows * settings["length"] / seconds
            step = median_seconds(training.optimizer.step, repeats)
        path = Path(folder, "checkpoint.pt")
        states = [model.state_dict(), training.optimizer.state_dict()]
        return {
            "precision": settings["precision"],
            "parameters": counted[0][0],
            "flops_of_a_token": [flops for _, flops in counted],
            "tokens_per_second": {str(w): speeds[share] for w, share in shares.items()},
            "step": step,
            "checkpoint": median_seconds(lambda: torch.save(states, path), 1),
            "checkpoint_bytes": path.stat().st_size,
        }

    def tables(self, rows: Rows, settings: Settings) -> dict[str, Table]:
        """Return costs by the paper's count and ours, this machine's speed, and predicted times."""
        runs = {run: rows[run] for run in UPDATES if run in rows}
        found: dict[str, Table] = {
            "What training cost, in FLOPs": _costs(runs, settings),
            "FLOPs of one source and one target token, by sentence length; in brackets, divided by "
            "6 times the parameters": _by_length(runs, settings),
            "Table 2 as published: BLEU on newstest2014, and cost": (
                ["Model", "EN-DE", "cost", "EN-FR", "cost"],
                [[name, *(_shown(value) for value in values)] for name, *values in PUBLISHED],
            ),
            "This machine": _machine(runs, settings),
        }
        if {"two processes", "preparation"} <= rows.keys():
            title = "How long the paper's runs would take on such machines"
            found[title] = _forecast(rows, settings)
        if "two processes" in rows:
            found |= _check(rows["two processes"], settings)
        return found

    def draw(self, rows: Rows, settings: Settings) -> "Figure":
        """Draw BLEU against cost, and how long each run takes."""
        figure = new_figure(8.5, 8)
        left, right = figure.subplots(2, 1)
        _draw_costs(left, rows, settings)
        _draw_days(right, rows, settings)
        tidy(left)
        tidy(right)
        right.set_axisbelow(True)
        right.grid(visible=False, axis="y")
        return figure


def _costs(runs: Rows, settings: Settings) -> Table:
    """Return each run's FLOPs: as Table 2 prints them, by the paper's formula, and counted here."""
    columns = ["Run", "the paper prints", "time x GPUs x FLOP/s", "counted"]
    columns += ["counted / paper's", "TFLOP/s needed of each P100"]
    cells = []
    for run, facts in runs.items():
        flops = UPDATES[run] * _flops_of_an_update(facts, settings)
        paper, seconds = paper_cost(run), HOURS[run] * 3600 * GPUS
        shares = [f"{flops / paper:.0%}", f"{flops / seconds / 1e12:.1f}"]
        cells.append([run, f"{COST[run]:.1e}", f"{paper:.2e}", f"{flops:.2e}", *shares])
    return columns, cells


def _by_length(runs: Rows, settings: Settings) -> Table:
    """Return the FLOPs of a source and a target token in sentences of each length."""
    cells = []
    for run, facts in runs.items():
        size = facts["parameters"]
        flops = facts["flops_of_a_token"]
        cells.append([run, size, *(f"{each:.2e} ({each / 6 / size:.3f})" for each in flops)])
    return ["Run", "parameters", *map(str, settings["lengths"])], cells


def _machine(runs: Rows, settings: Settings) -> Table:
    """Return the speed of each run on this machine, and the size of its checkpoints."""
    columns = ["Run", "format"]
    columns += [f"target tokens/s a device, of {devices}" for devices in DEVICES]
    columns += ["optimizer's step, s", "TFLOP/s of one device", "checkpoint, s", "checkpoint, MiB"]
    cells = []
    for run, facts in runs.items():
        rate = _flops_of_an_update(facts, settings) / _update_seconds(facts, 1)
        cells.append(
            [
                run,
                facts["precision"],
                *(f"{speed:,.0f}" for speed in facts["tokens_per_second"].values()),
                f"{facts['step']:.3f}",
                f"{rate / 1e12:.3f}",
                f"{facts['checkpoint']:.2f}",
                f"{facts['checkpoint_bytes'] / 2**20:,.0f}",
            ]
        )
    return columns, cells


def _forecast(rows: Rows, settings: Settings) -> Table:
    """Return the predicted time of each run by number of devices, in total and by part."""
    cells = []
    for run, devices in itertools.product((run for run in UPDATES if run in rows), DEVICES):
        parts = outlook(run, rows, settings, devices)
        network = all_reduce_seconds(run, rows[run]["parameters"], devices, NETWORK)
        cells.append(
            [
                run,
                devices,
                *(_duration(parts[part]) for part in PARTS),
                _duration(sum(parts.values())),
                _duration(network),
                _duration(3600 * HOURS[run]) if devices == GPUS else "",
            ]
        )
    return ["Run", "devices", *PARTS, "total", "all-reduce at 10 Gbit/s", "paper, 8 P100"], cells


def _draw_costs(axes: "Axes", rows: Rows, settings: Settings) -> None:
    for name, bleu, cost, *_ in PUBLISHED:
        if bleu and cost:
            ours = name.startswith("Transformer")
            axes.plot(cost, bleu, "o", color="k" if ours else "0.6")
            sides = {  # of the labels: the points of two ensembles are close
                "ha": "right" if name.endswith("ensemble") else "left",
                "va": "top" if name.startswith("GNMT") else "bottom",
            }
            axes.annotate(f" {name} ", (cost, bleu), fontsize=9, **sides)
    for run, bleu in (("base", 27.3), ("big", 28.4)):
        if run in rows:
            counted = UPDATES[run] * _flops_of_an_update(rows[run], settings)
            axes.plot(counted, bleu, "o", color="k", fillstyle="none")
            axes.annotate("counted ", (counted, bleu), fontsize=9, va="top", ha="right")
    axes.set(
        xscale="log", xlabel="training cost, FLOPs", ylabel="BLEU", title="BLEU by cost, EN-DE"
    )
    axes.margins(x=0.2, y=0.12)


def _draw_days(axes: "Axes", rows: Rows, settings: Settings) -> None:
    bars = [
        (f"{run}, {devices}", outlook(run, rows, settings, devices))
        for run in UPDATES
        for devices in DEVICES
        if {run, "two processes", "preparation"} <= rows.keys()
    ]
    for place, (_, parts) in enumerate(bars):
        total, start = sum(parts.values()) / 86_400, 0.0
        for index, part in enumerate(PARTS):
            days = parts[part] / 86_400
            label = part if place == 0 else None
            axes.barh(place, days, left=start, color=f"C{index}", label=label)
            start += days
        axes.annotate(f" {_duration(total * 86_400)}", (total, place), va="center", fontsize=9)
    axes.set_yticks(range(len(bars)), [name for name, _ in bars])
    axes.invert_yaxis()
    axes.set(xlabel="days", title="The paper's runs here, by devices")
    axes.margins(x=0.18)
    if bars:
        axes.legend(loc="upper right", frameon=False, fontsize=9)


def _shown(value: float | None) -> object:
    """Format a BLEU score or a cost; return an empty text for None."""
    return "" if value is None else value if value < 100 else f"{value:.1e}"


def _flops_of_an_update(facts: dict, settings: Settings) -> float:
    """Return the FLOPs for 25,000 source and target tokens each, in sentences of typical length."""
    return TOKENS * facts["flops_of_a_token"][settings["lengths"].index(settings["length"])]


def _update_seconds(facts: dict, devices: int) -> float:
    return TOKENS / (facts["tokens_per_second"][str(devices)] * devices) + facts["step"]


def all_reduce_seconds(run: str, parameters: int, devices: int, bandwidth: float) -> float:
    """Return the time of all all-reduces of a run, for a bandwidth in bytes a second.

    A ring of W devices sends and receives 2 (W - 1) / W times the float32 gradients.
    """
    return UPDATES[run] * 2 * (devices - 1) / devices * 4 * parameters / bandwidth


def outlook(run: str, rows: Rows, settings: Settings, devices: int) -> dict[str, float]:
    """Return the predicted seconds of each part of a run on a number of devices."""
    facts, two, prepared = rows[run], rows["two processes"], rows["preparation"]
    # With two processes, each sends and receives all the bytes exactly once.
    bandwidth = 4 * two["parameters"][run] / two["all_reduce"][run]
    computing = UPDATES[run] * _update_seconds(facts, devices)
    all_reduce = all_reduce_seconds(run, facts["parameters"], devices, bandwidth)
    return {
        "computing": computing,
        "all-reduce": all_reduce,
        "checkpoints": (computing + all_reduce) / CHECKPOINT_EVERY * facts["checkpoint"],
        "preparation": PAIRS * 2 * settings["length"] * prepared["seconds"] / prepared["tokens"],
    }


def _duration(seconds: float) -> str:
    """Format a duration in the largest unit of which it has at least one."""
    units = (("days", 86_400), ("h", 3600), ("min", 60))
    unit, length = next((unit for unit in units if seconds >= unit[1]), ("s", 1))
    return f"{seconds / length:,.1f} {unit}" if seconds else "0"


def _check(two: dict, settings: Settings) -> dict[str, Table]:
    """Return the measured time of an update in two processes next to the predicted times."""
    all_reduce = two["all_reduce"][settings["twins"]]
    cells = []
    for name, computing in (("alone", two["alone"]), ("next to a busy twin", two["twin"])):
        predicted = computing + all_reduce
        cells.append(
            [
                name,
                *(f"{1000 * value:,.1f}" for value in (computing, all_reduce, predicted)),
                f"{1000 * two['together']:,.1f}",
                f"{predicted / two['together'] - 1:+.0%}",
            ]
        )
    tokens = settings["twin_tokens"]
    heading = (
        f"Milliseconds of an update in two processes of one thread each, which train "
        f"{two['parameters'][settings['twins']]:,} parameters on {tokens:,} target tokens each; "
        f"together they are "
        f"{2 * two['alone'] / two['together']:.2f} times as fast as one alone"
    )
    columns = ["One process", "computing", "all-reduce", "predicted", "measured", "error"]
    return {heading: (columns, cells)}


if __name__ == "__main__":
    Table2().main()
