"""Table 1 of the paper, measured: cost of a layer, sequential operations, and path lengths.

    python training/paper/table_1.py --size cpu

There are four ways to map a sequence of n vectors of width d to another one: self-attention,
recurrence, convolution (also separable), and self-attention to a neighbourhood. Symbols: B
sequences, h heads, d_k width of a head, k width of a convolution's kernel, w radius of a
neighbourhood of r = 2 w + 1 positions.
"""

import itertools
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from experiment import Experiment, Rows, Settings, Table
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.benchmark import Timer
from torch.utils.flop_counter import FlopCounterMode
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.modeling_vanilla_transformer import MultiHeadAttention
from vanilla_transformer.visualization.figure import new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# ------------------------------------------------------------------------- the four kinds of layer


def restricted_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    scaling: float,
    radius: int,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """Compute Eq. 1 over the positions at most `radius` away, without any (n, n) matrix.

    A block of `radius` queries needs only the keys of its own block and of the two next to it.
    Shapes are as in `eager_attention_forward`; there is no mask.
    """
    length = query.size(2)
    padding = -length % radius
    query = nn.functional.pad(query, (0, 0, 0, padding)).unflatten(2, (-1, radius))
    key, value = (
        nn.functional.pad(x, (0, 0, radius, padding + radius)).unfold(2, 3 * radius, radius)
        for x in (key, value)
    )  # (B, h, blocks, d_k, 3 w)
    scores = query @ key * scaling  # (B, h, blocks, w, 3 w)
    at = torch.arange(length + padding, device=query.device).unflatten(0, (-1, radius, 1))
    others = at[:, :1] + torch.arange(-radius, 2 * radius, device=query.device)  # (blocks, 1, 3 w)
    seen = ((at - others).abs() <= radius) & (others >= 0) & (others < length)
    weights = scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1)
    return (weights @ value.mT).flatten(2, 3)[:, :, :length].transpose(1, 2), None  # (B, n, h, d_v)


ALL_ATTENTION_FUNCTIONS.register("restricted", restricted_attention)


class SelfAttention(nn.Module):
    """This package's multi-head attention; without projections, Q, K and V are slices of x."""

    def __init__(
        self, d: int, settings: Settings, implementation: str = "eager", projections: bool = False
    ) -> None:
        super().__init__()
        heads = max(1, d // settings["d_k"])  # the paper's heads have width 64
        config = VanillaTransformerConfig(
            d_model=d,
            encoder_attention_heads=heads,
            decoder_attention_heads=heads,
            attn_implementation=implementation,
        )
        self.attention = MultiHeadAttention(config, heads)
        self.options = {"radius": settings["radius"]} if implementation == "restricted" else {}
        if not projections:
            for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                setattr(self.attention, name, nn.Identity())

    def forward(self, x: Tensor) -> Tensor:
        """Apply multi-head attention: (B, n, d) -> (B, n, d)."""
        return self.attention(x, **self.options)[0]


class Recurrent(nn.Module):
    """An LSTM, from left to right."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(d, d, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the LSTM: (B, n, d) -> (B, n, d)."""
        return self.lstm(x)[0]

    def step_by_step(self, x: Tensor) -> Tensor:
        """Compute what `forward` does, but step by step, so that torch sees each product."""
        weights = [parameter for _, parameter in self.lstm.named_parameters()]
        state, outputs = (torch.zeros_like(x[:, 0]),) * 2, []
        for t in range(x.size(1)):
            state = torch.lstm_cell(x[:, t], state, *weights)
            outputs.append(state[0])
        return torch.stack(outputs, dim=1)


class Convolution(nn.Module):
    """A convolution that only looks back, as in a decoder, with dilation k^depth.

    For the table, a kernel that looks both ways would work too, but not with dilations: near the
    ends of a sequence, paths that leave the sequence and come back are cut, which leaves gaps.
    """

    def __init__(self, d: int, settings: Settings, depth: int = 0) -> None:
        super().__init__()
        dilation = settings["kernel"] ** depth
        self.conv = nn.Conv1d(d, d, settings["kernel"], dilation=dilation)
        self.before = dilation * (settings["kernel"] - 1)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the convolution: (B, n, d) -> (B, n, d)."""
        return self.conv(nn.functional.pad(x.mT, (self.before, 0))).mT


class SeparableConvolution(Convolution):
    """A depthwise convolution, of each feature on its own, then a linear layer per position."""

    def __init__(self, d: int, settings: Settings) -> None:
        super().__init__(d, settings)
        self.conv = nn.Conv1d(d, d, settings["kernel"], groups=d)
        self.mix = nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the depthwise convolution and the linear layer: (B, n, d) -> (B, n, d)."""
        return self.mix(super().forward(x))


@dataclass(frozen=True)
class Kind:
    """A kind of layer: the entries of the paper's Table 1, and the exact counts for our layer."""

    complexity: str  # as the paper gives it
    exponents: tuple[int, int]  # of n and d in the complexity
    sequential: str  # number of sequential operations, as the paper gives it
    path: str  # longest path, as the paper gives it
    make: Callable[[int, Settings, int], nn.Module]  # from d, settings, number of layers below
    formula: str  # of the multiply-adds of our layer, for the table
    multiply_adds: Callable[[int, int, Settings], int]  # of one sequence, from n, d and settings
    # From n and settings: layers, or steps of an LSTM, until the last output depends on all inputs.
    steps: Callable[[int, Settings], int]


def _attention(formula: str, each: int, implementation: str, projections: bool = False) -> Kind:
    return Kind(
        "O(n² d)",
        (2, 1),
        "O(1)",
        "O(1)",
        lambda d, settings, depth: SelfAttention(d, settings, implementation, projections),
        formula,
        lambda n, d, settings: 2 * n * n * d + each * n * d * d,
        lambda n, settings: 1,
    )


def _convolution(path: str, make: Callable, steps: Callable) -> Kind:
    return Kind(
        "O(k n d²)",
        (1, 2),
        "O(1)",
        path,
        make,
        "k n d²",
        lambda n, d, settings: settings["kernel"] * n * d * d,
        steps,
    )


KINDS = {
    "self-attention": _attention("2 n² d", 0, "eager"),
    "recurrent": Kind(
        "O(n d²)",
        (1, 2),
        "O(n)",
        "O(n)",
        lambda d, settings, depth: Recurrent(d),
        "8 n d²",
        lambda n, d, settings: 8 * n * d * d,
        lambda n, settings: n,
    ),
    "convolutional": _convolution(
        "O(n / k)",
        lambda d, settings, depth: Convolution(d, settings),
        lambda n, settings: math.ceil((n - 1) / (settings["kernel"] - 1)),
    ),
    "dilated convolutional": _convolution(
        "O(log_k n)",
        Convolution,
        lambda n, settings: next(  # L layers with dilations 1, k, k², ... see k^L positions
            layers for layers in itertools.count(1) if settings["kernel"] ** layers >= n
        ),
    ),
    "separable convolutional": Kind(
        "O(k n d + n d²)",
        (1, 2),
        "O(1)",
        "O(n / k)",
        lambda d, settings, depth: SeparableConvolution(d, settings),
        "k n d + n d²",
        lambda n, d, settings: settings["kernel"] * n * d + n * d * d,
        lambda n, settings: math.ceil((n - 1) / (settings["kernel"] - 1)),
    ),
    "restricted self-attention": Kind(
        "O(r n d)",
        (1, 1),
        "O(1)",
        "O(n / r)",
        lambda d, settings, depth: SelfAttention(d, settings, "restricted"),
        "6 w n d",
        lambda n, d, settings: 6 * settings["radius"] * n * d,
        lambda n, settings: math.ceil((n - 1) / settings["radius"]),
    ),
    "projected self-attention": _attention("2 n² d + 4 n d²", 4, "eager", projections=True),
    "fused self-attention": _attention("2 n² d", 0, "sdpa"),
}

# ------------------------------------------------------------------------------- what is measured


def count_multiply_adds(layer: nn.Module, x: Tensor) -> int:
    """Count the multiply-adds in all matrix products and convolutions of a forward pass."""
    counter = FlopCounterMode(display=False)
    # The counter does not see inside the LSTM or fused kernels: compute their products one by one.
    forward = getattr(layer, "step_by_step", layer)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        forward(x)
    return counter.get_total_flops() // 2


class LiveBytes(TorchDispatchMode):
    """A counter of the bytes in all tensors that operations have made and that are still alive."""

    def __init__(self, known: Sequence[Tensor]) -> None:
        super().__init__()
        self.live = {tensor.untyped_storage()._cdata: 0 for tensor in known}
        self.peak = 0

    def __torch_dispatch__(
        self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        """Run an operation and count the bytes of its results."""
        result = func(*args, **(kwargs or {}))
        for tensor in (leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)):
            storage = tensor.untyped_storage()  # which its views share
            if storage._cdata not in self.live:
                self.live[storage._cdata] = storage.nbytes()
                weakref.finalize(storage, self.live.pop, storage._cdata)
        self.peak = max(self.peak, sum(self.live.values()))
        return result


def peak_bytes(layer: nn.Module, x: Tensor) -> int:
    """Return the peak of bytes in use during a forward pass, without weights and x."""
    with torch.no_grad(), LiveBytes([*layer.parameters(), x]) as live:
        layer(x)
    return live.peak


def seconds(layer: nn.Module, x: Tensor, for_seconds: float) -> float:
    """Return the median time of repeated forward passes after a warm-up, synchronising a GPU."""
    timer = Timer("layer(x)", globals={"layer": layer, "x": x}, num_threads=torch.get_num_threads())
    with torch.no_grad():
        return timer.blocked_autorange(min_run_time=for_seconds).median


def graph_depth(output: Tensor) -> int:
    """Return the length of the longest chain of operations that depend on each other."""
    reached, depth = {output.grad_fn}, 0
    while reached:
        depth += 1
        reached = {before for node in reached for before, _ in node.next_functions if before}
    return depth


def path_length(kind: Kind, n: int, settings: Settings) -> int:
    """Count layers, or recurrent steps, until the last output depends on every input."""
    d = settings["d_k"]
    x = torch.randn(1, n, d, dtype=torch.float64, requires_grad=True)
    hidden = x
    for steps in itertools.count(1):
        layer = kind.make(d, settings, steps - 1).double()
        if isinstance(layer, Recurrent):
            hidden = layer.step_by_step(x[:, -steps:])
        else:
            hidden = layer(hidden)
        (gradient,) = torch.autograd.grad(hidden[0, -1].sum(), x, retain_graph=True)
        if gradient.abs().amax(-1).all():
            return steps


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Fit values = c * sizes^p by least squares on logarithms, and return p."""
    x, y = (torch.tensor(numbers, dtype=torch.float64).log() for numbers in (sizes, values))
    return ((x - x.mean()) @ (y - y.mean()) / (x - x.mean()).square().sum()).item()


def time_margin(rows: Rows, settings: Settings, sizes: Sequence[int] = ()) -> float:
    """Return the error margin of a ratio of times or, given `sizes`, of an exponent of times.

    Each layer is timed twice at one size, once in the sweep of n and once in that of d; the scatter
    of the two log times gives their standard deviation. Both margins are two standard deviations:
    of the difference of two log times, and of the slope of log times over log sizes.
    """
    place = settings["n"].index(settings["n_of_d"]), settings["d"].index(settings["d_of_n"])
    logs = [
        math.log(facts["by_n"][place[0]]["seconds"] / facts["by_d"][place[1]]["seconds"])
        for facts in rows.values()
    ]
    spread = math.sqrt(sum(log**2 for log in logs) / len(logs))  # of the difference of two logs
    if not sizes:
        return math.exp(2 * spread)
    x = torch.tensor(sizes, dtype=torch.float64).log()
    return 2 * spread / math.sqrt(2 * (x - x.mean()).square().sum().item())


def crossing(sizes: Sequence[int], mine: Sequence[float], other: Sequence[float]) -> float:
    """Return the size from which `mine` exceeds `other`: 0 if always, infinity if never."""
    ratios = [math.log(a / b) for a, b in zip(mine, other, strict=True)]
    if ratios[0] > 0:
        return 0.0
    for i, (low, high) in enumerate(itertools.pairwise(ratios)):
        if high > 0:
            return sizes[i] * (sizes[i + 1] / sizes[i]) ** (low / (low - high))
    return math.inf


# ---------------------------------------------------------------------------------- the experiment


class Table1(Experiment):
    """Table 1, with a row for each kind of layer."""

    name = "table_1"
    title = "Table 1: cost, sequential operations and path length of each kind of layer"
    sizes = {
        "tiny": {
            "n": [16, 32, 64], "d": [16, 32, 64], "n_of_d": 64, "d_of_n": 16,
            "d_k": 16, "kernel": 3, "radius": 4, "batch": 1, "seconds": 0.001,
            "path_n": [4, 8, 16],
        },
        "cpu": {
            "n": [128, 256, 512, 1024, 2048, 4096], "d": [128, 256, 512, 1024],
            "n_of_d": 512, "d_of_n": 256,
            "d_k": 64, "kernel": 3, "radius": 16, "batch": 1, "seconds": 1.0,
            "path_n": [8, 16, 32, 64, 128],
        },
        "gpu": {
            "n": [256, 512, 1024, 2048, 4096, 8192], "d": [256, 512, 1024, 2048],
            "n_of_d": 1024, "d_of_n": 512,
            "d_k": 64, "kernel": 3, "radius": 32, "batch": 2, "seconds": 1.0,
            "path_n": [8, 16, 32, 64, 128],
        },
    }  # fmt: skip

    def about(self, settings: Settings) -> str:
        """Return what the layers are, and what is measured."""
        return (
            "The cost of a layer that maps n vectors of width d to n other vectors.\n"
            "\n"
            "- **Self-attention** is this package's own module in eager mode, which computes the "
            f"n x n weights, with heads of width {settings['d_k']}. Table 1 counts the attention "
            "alone. A layer of the Transformer also projects queries, keys, values and outputs. "
            "The row 'projected' adds these 4 n d² products, which make up most of its cost if "
            "n < 2 d. The row 'fused' computes the same attention with a kernel (sdpa) that never "
            "stores the n x n weights.\n"
            "- **Restricted self-attention** sees w positions on either side, r = 2 w + 1 in all. "
            "It is computed in blocks: each query is multiplied with 3 w keys, so we count 6 w n d "
            "instead of 2 r n d.\n"
            "- The **recurrent** layer is an LSTM; the **convolutional** layer has kernel width k. "
            "Both look back only; attention looks both ways. A **separable** convolution convolves "
            "each feature on its own and then mixes them at each position (Section 4).\n"
            "- **Multiply-adds** are counted by torch's FlopCounterMode. The LSTM and the fused "
            "kernel are counted on the same layer written out as single products. **Time** is the "
            "time of a forward pass without gradients. **Memory** is the peak memory of the "
            "operations in a forward pass, without weights and input; memory used inside a kernel "
            "is not counted.\n"
            "- **Exponents** are least-squares fits on logarithms; the exponent between the two "
            "largest sizes is in brackets.\n"
            "- **Margins** come from the size that is timed twice for each layer, "
            f"n {settings['n_of_d']} at d {settings['d_of_n']}: two times differ if their ratio "
            "exceeds that of two standard deviations of such repetitions, and an exponent differs "
            "from the paper's if they are more than two of its standard deviations apart. Counts "
            "are exact."
        )

    def findings(self, rows: Rows, settings: Settings) -> Iterator[str]:
        """Say below which n self-attention is cheaper than an LSTM, and where its time jumps."""
        plain, projected, fused, other = (
            rows.get(name)
            for name in (
                "self-attention",
                "projected self-attention",
                "fused self-attention",
                "recurrent",
            )
        )
        sizes, d = settings["n"], settings["d_of_n"]
        if plain and projected and other:
            limits = {
                key: [
                    crossing(sizes, *([c[key] for c in facts["by_n"]] for facts in (mine, other)))
                    for mine in (plain, projected)
                ]
                for key in ("multiply_adds", "seconds")
            }
            margins = {"multiply_adds": 1.0, "seconds": time_margin(rows, settings)}
            below = [
                theirs[key] > mine[key] * margin
                for key, margin in margins.items()
                for facts in (plain, projected)
                for n, mine, theirs in zip(sizes, facts["by_n"], other["by_n"], strict=True)
                if n <= d
            ]
            if below and all(0 < n < math.inf for pair in limits.values() for n in pair):
                texts = [
                    f"below n = {alone / d:.1f} d ({layer / d:.1f} d with its projections)"
                    for alone, layer in limits.values()
                ]
                safe = all(below)
                yield (
                    f"Compared with an LSTM at d {d}, self-attention needs fewer multiply-adds "
                    f"{texts[0]}, and less time {texts[1]}. The paper's rule, n < d, "
                    f"{'holds' if safe else 'is not confirmed'} at all n measured up to d."
                )
        if plain and fused:
            for place, (low, high) in enumerate(itertools.pairwise(sizes)):
                growth, count, of_fused = (
                    facts["by_n"][place + 1][key] / facts["by_n"][place][key]
                    for facts, key in (
                        (plain, "seconds"),
                        (plain, "multiply_adds"),
                        (fused, "seconds"),
                    )
                )
                if growth > count * time_margin(rows, settings):
                    weights = settings["batch"] * max(1, d // settings["d_k"]) * 4 / 2**20  # MiB
                    yield (
                        f"From n {low} to {high} the time of self-attention grows {growth:.1f} "
                        f"times, and its multiply-adds {count:.0f} times. The n x n weights of all "
                        f"heads grow from {weights * low**2:.0f} to {weights * high**2:.0f} MiB "
                        "there. The fused kernel, which does not store them, takes "
                        f"{of_fused:.1f} times as long."
                    )

    def rows(self, settings: Settings) -> list[str]:
        """Return the kinds of layer."""
        return list(KINDS)

    def measure(self, row: str, settings: Settings) -> dict[str, object]:
        """Measure one kind at all sizes: counts and graphs on the CPU, time on a GPU if present."""
        torch.manual_seed(0)
        kind, device = KINDS[row], "cuda" if torch.cuda.is_available() else "cpu"

        def cost(n: int, d: int) -> dict[str, object]:
            layer = kind.make(d, settings, 0).eval()
            one = torch.randn(1, n, d)
            counted = count_multiply_adds(layer, one)
            x = torch.randn(settings["batch"], n, d, device=device)
            layer.to(device)
            return {
                "multiply_adds": counted,
                "formula": kind.multiply_adds(n, d, settings),
                "bytes": peak_bytes(layer, x) // settings["batch"],
                "seconds": seconds(layer, x, settings["seconds"]),
            }

        def depth(n: int) -> int:
            layer = kind.make(settings["d_k"], settings, 0)
            x = torch.randn(1, n, settings["d_k"], requires_grad=True)
            return graph_depth(getattr(layer, "step_by_step", layer)(x))

        return {
            "by_n": [cost(n, settings["d_of_n"]) for n in settings["n"]],
            "by_d": [cost(settings["n_of_d"], d) for d in settings["d"]],
            "depth": [depth(n) for n in settings["path_n"]],
            "path": [path_length(kind, n, settings) for n in settings["path_n"]],
            "path_formula": [kind.steps(n, settings) for n in settings["path_n"]],
        }

    def tables(self, rows: Rows, settings: Settings) -> dict[str, Table]:
        """Return costs, paths, where self-attention pays off, and deviations from the paper."""
        lengths = ", ".join(map(str, settings["path_n"]))
        return {
            f"Multiply-adds of a layer ({_sizes(settings)})": _count_table(rows, settings),
            "Time and memory of a forward pass (same sizes)": _cost_table(rows, settings),
            f"Sequential operations and path length, at n {lengths}": _order_table(rows),
            f"The n below which self-attention costs less than another layer, at d "
            f"{settings['d_of_n']} (the paper, against recurrent layers: n < d)": (
                ["Self-attention, other layer", "by multiply-adds", "by time"],
                _where_it_pays(rows, settings),
            ),
            "Exponents that differ from the paper's by more than the margin": (
                ["Layer", "what", "paper", "fitted", "between the two largest"],
                _otherwise(rows, settings) or [["nothing", "", "", "", ""]],
            ),
        }

    def draw(self, rows: Rows, settings: Settings) -> "Figure":
        """Draw time against n and d, and memory and paths against n."""
        figure = new_figure(8.5, 8)
        axes = [*figure.subplots(2, 2).flat]
        for (name, facts), marker in zip(rows.items(), "osv^<DPX", strict=False):
            style = {"marker": marker, "markersize": 4, "linewidth": 1.2, "label": name}
            lines = (
                (settings["n"], [1e3 * cost["seconds"] for cost in facts["by_n"]]),
                (settings["d"], [1e3 * cost["seconds"] for cost in facts["by_d"]]),
                (settings["n"], [cost["bytes"] / 2**20 for cost in facts["by_n"]]),
                (settings["path_n"], facts["path"]),
            )
            for axis, line in zip(axes, lines, strict=True):
                axis.plot(*line, **style)
        n, d = (f"{name} {settings[key]}" for name, key in (("n", "n_of_d"), ("d", "d_of_n")))
        for axis, symbol, sizes, title in zip(
            axes,
            "ndnn",
            ("n", "d", "n", "path_n"),
            (f"Time, ms, at {d}", f"Time, ms, at {n}", f"Memory, MiB, at {d}", "Longest path"),
            strict=True,
        ):
            axis.set(xscale="log", yscale="log", xlabel=symbol, title=title)
            axis.set_xticks(settings[sizes], map(str, settings[sizes]))
            axis.minorticks_off()
            tidy(axis)
        axes[3].set_ylabel("layers (LSTM: steps)")
        axes[0].axvline(settings["d_of_n"], color="0.5", linestyle=":")
        axes[0].annotate(
            " n = d", (settings["d_of_n"], 0.02), xycoords=("data", "axes fraction"), fontsize=9
        )
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        return figure


def _sizes(settings: Settings) -> str:
    """Describe the constants and the ranges of n and d, for the heading of a table."""
    known = {"k": settings["kernel"], "w": settings["radius"], "r": 2 * settings["radius"] + 1}
    known |= {"heads of": settings["d_k"], "sequences": settings["batch"]}
    constants = ", ".join(f"{name} {value}" for name, value in known.items())
    swept = f"n {settings['n'][0]} to {settings['n'][-1]} at d {settings['d_of_n']}, "
    swept += f"d {settings['d'][0]} to {settings['d'][-1]} at n {settings['n_of_d']}"
    return f"{constants}; {swept}"


_N_AND_D = ["n, fitted", "d, fitted"]


def _count_table(rows: Rows, settings: Settings) -> Table:
    counts = [
        [
            name,
            KINDS[name].complexity,
            KINDS[name].formula,
            f"{max(abs(c['multiply_adds'] / c['formula'] - 1) for c in _costs(facts)):.1%}",
            *_exponents(facts, settings, "multiply_adds"),
        ]
        for name, facts in rows.items()
    ]
    columns = ["Layer", "Paper", "Formula of our layer", "counter against formula", *_N_AND_D]
    return columns, counts


def _cost_table(rows: Rows, settings: Settings) -> Table:
    costs = [
        [
            name,
            "n{} d{}".format(*(("", "²")[power - 1] for power in KINDS[name].exponents)),
            *_exponents(facts, settings, "seconds"),
            f"{1000 * facts['by_n'][-1]['seconds']:,.1f}",
            *_exponents(facts, settings, "bytes"),
            f"{facts['by_n'][-1]['bytes'] / 2**20:,.1f}",
        ]
        for name, facts in rows.items()
    ]
    large = f"at n {settings['n'][-1]}, d {settings['d_of_n']}"
    time, memory = ([f"{what}: {each}" for each in _N_AND_D] for what in ("time", "memory"))
    return ["Layer", "Paper", *time, f"ms {large}", *memory, f"MiB {large}"], costs


def _order_table(rows: Rows) -> Table:
    order = [
        [
            name,
            KINDS[name].sequential,
            ", ".join(map(str, facts["depth"])),
            KINDS[name].path,
            ", ".join(map(str, facts["path"])),
            ", ".join(map(str, facts["path_formula"])),
        ]
        for name, facts in rows.items()
    ]
    columns = [
        *("Layer", "Sequential operations, paper", "longest chain of operations here"),
        *("Longest path, paper", "layers (LSTM: steps) until all inputs are seen", "by formula"),
    ]
    return columns, order


def _costs(facts: dict) -> list[dict]:
    return [*facts["by_n"], *facts["by_d"]]


def powers(facts: dict, settings: Settings, key: str) -> list[float]:
    """Return the fitted exponents of n and d."""
    return [
        exponent(settings[name], [cost[key] for cost in facts[f"by_{name}"]]) for name in ("n", "d")
    ]


def _end_powers(facts: dict, settings: Settings, key: str) -> list[float]:
    """Return the exponents of n and d between their two largest sizes."""
    last = {name: settings[name][-2:] for name in ("n", "d")}
    return powers({f"by_{name}": facts[f"by_{name}"][-2:] for name in ("n", "d")}, last, key)


def _exponents(facts: dict, settings: Settings, key: str) -> list[str]:
    """Format the fitted exponents of n and d, with those of the two largest sizes in brackets."""
    fitted, ends = powers(facts, settings, key), _end_powers(facts, settings, key)
    return [f"{power:.2f} ({end:.2f})" for power, end in zip(fitted, ends, strict=True)]


def _where_it_pays(rows: Rows, settings: Settings) -> list[list[str]]:
    """Return a row for each two layers: below which n, as "768 = 1.5 d", the first costs less."""
    sizes, d = settings["n"], settings["d_of_n"]

    def below(mine: str, other: str, key: str) -> str:
        values = ([cost[key] for cost in rows[name]["by_n"]] for name in (mine, other))
        n = crossing(sizes, *values)
        if n in (0, math.inf):
            return f"never, from {sizes[0]} on" if n == 0 else f"always, up to {sizes[-1]}"
        return f"{n:.0f} = {n / d:.1f} d"

    pairs = itertools.product(
        [name for name in rows if KINDS[name].complexity == "O(n² d)"],
        [name for name in ("recurrent", "convolutional") if name in rows],
    )
    return [
        [f"{mine}, {other}", below(mine, other, "multiply_adds"), below(mine, other, "seconds")]
        for mine, other in pairs
    ]


def _otherwise(rows: Rows, settings: Settings) -> list[list[object]]:
    """Return a row per exponent of multiply-adds or time that differs from the paper's."""
    found = []
    for name, facts in rows.items():
        for key, label in (("multiply_adds", "multiply-adds"), ("seconds", "time")):
            fitted, ends = powers(facts, settings, key), _end_powers(facts, settings, key)
            exact = key == "multiply_adds"
            for symbol, paper, *here in zip("nd", KINDS[name].exponents, fitted, ends, strict=True):
                known = (settings[symbol], settings[symbol][-2:])
                margins = [
                    0.005 if exact else time_margin(rows, settings, sizes) for sizes in known
                ]
                if any(
                    abs(paper - power) > margin for power, margin in zip(here, margins, strict=True)
                ):
                    texts = [f"{power:.2f}" for power in here]
                    found.append([name, f"{label} against {symbol}", paper, *texts])
    return found


if __name__ == "__main__":
    Table1().main()
