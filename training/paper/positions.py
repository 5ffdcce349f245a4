"""Section 3.5: sinusoidal and learned positions beyond the lengths that training has shown.

    python training/paper/positions.py --size cpu

The task is to reverse a sequence of random symbols, which needs nothing but positions. A sequence
counts as right if every symbol and the end are predicted rightly, given the right symbols before
them; greedy search would then write just that sequence.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from experiment import Experiment, Rows, Settings, Table
from torch import Tensor
from transformers import set_seed

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.train.optimization import noam_schedule
from vanilla_transformer.visualization.figure import new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("sinusoidal", "learned")
SIDES = ("encoder", "decoder")
FIRST = 4  # the ids below it are special


def reversal(lengths: Tensor, symbols: int, config: VanillaTransformerConfig) -> dict[str, Tensor]:
    """Draw a sequence of each length, and return them with their reversals as a batch."""
    count, longest = len(lengths), int(lengths.max())
    drawn = torch.randint(FIRST, FIRST + symbols, (count, longest))
    at = torch.arange(longest + 1)
    source, target = (
        torch.nn.functional.pad(ids, (0, 1)).masked_fill(
            at >= lengths[:, None], config.pad_token_id
        )
        for ids in (drawn, drawn.gather(1, (lengths[:, None] - 1 - at[:-1]).clamp(min=0)))
    )
    for ids in (source, target):
        ids[torch.arange(count), lengths] = config.eos_token_id
    mask = (at <= lengths[:, None]).long()
    return {
        "input_ids": source,
        "attention_mask": mask,
        "labels": target.masked_fill(mask == 0, -100),
    }


class Positions(Experiment):
    """Sinusoidal and learned positions with several seeds, up to twice the training length."""

    name = "positions"
    title = "Section 3.5: positions beyond the training length"
    sizes = {
        "tiny": {
            "seeds": 2, "d_model": 16, "layers": 1, "heads": 2, "ffn_dim": 32, "symbols": 8,
            "trained": 4, "tested": [2, 4, 5, 8], "updates": 3, "batch": 8, "warmup": 2,
            "sequences": 8,
        },
        "cpu": {
            "seeds": 3, "d_model": 64, "layers": 2, "heads": 4, "ffn_dim": 256, "symbols": 16,
            "trained": 16, "tested": [4, 8, 12, 16, 17, 18, 20, 24, 32], "updates": 2000,
            "batch": 32, "warmup": 500, "sequences": 500,
        },
    }  # fmt: skip

    def about(self, settings: Settings) -> str:
        """Return what the paper expects beyond the training lengths, and how it is tested."""
        return (
            'The paper says of its sinusoids: "it may allow the model to extrapolate to sequence '
            'lengths longer than the ones encountered during training" (Section 3.5). It measures '
            "no such lengths. In its Table 3 (E), learned positions do as well at usual lengths.\n"
            "\n"
            f"- **Task**: reverse a sequence of random symbols, {settings['symbols']} kinds of "
            f"them. Training sequences have 1 to {settings['trained']} symbols; there are "
            f"{settings['updates']:,} updates of {settings['batch']} sequences, with the paper's "
            f"dropout, label smoothing and schedule. The models have {settings['layers']} layers "
            f"of width {settings['d_model']}.\n"
            "- A sequence is **right** if every symbol and the end are predicted rightly; "
            f"{settings['sequences']} new sequences of each length are tested. **Symbols** is the "
            "share of single symbols that are right. Each is predicted from the right symbols "
            "before it.\n"
            "- The table of learned positions is long enough for all tests; its rows beyond the "
            "training length are never trained, and stay as they were initialised.\n"
            f"- The two differ at a length if their means over {settings['seeds']} seeds are more "
            "than a point and two standard deviations of their difference apart."
        )

    def findings(self, rows: Rows, settings: Settings) -> Iterator[str]:
        """Compare the two kinds of positions at the training lengths and beyond them."""
        seeds = [_seeds(rows, kind, "symbols") for kind in KINDS]
        if min(map(len, seeds)) < 2:
            return
        verdicts: dict[tuple[bool, str], list[str]] = {}
        for length, *shares in zip(
            settings["tested"], *(zip(*each, strict=True) for each in seeds), strict=True
        ):
            beyond = length > settings["trained"]
            verdicts.setdefault((beyond, verdict(*shares)), []).append(str(length))
        for (beyond, word), lengths in verdicts.items():
            part = "beyond the training length" if beyond else "at lengths of training"
            yield f"**{word.capitalize()}** {part}, by right symbols: at {', '.join(lengths)}."

    def rows(self, settings: Settings) -> list[str]:
        """Return a row for each kind of position encoding and each seed, as "learned 0"."""
        return [f"{kind} {seed}" for seed in range(settings["seeds"]) for kind in KINDS]

    def measure(self, row: str, settings: Settings) -> dict[str, object]:
        """Train one model and test it at all lengths."""
        kind, seed = row.split()
        set_seed(int(seed))
        sizes = (("layers", "layers"), ("attention_heads", "heads"), ("ffn_dim", "ffn_dim"))
        config = VanillaTransformerConfig(
            vocab_size=FIRST + settings["symbols"],
            d_model=settings["d_model"],
            position_encoding=kind,
            **{f"{side}_{field}": settings[key] for side in SIDES for field, key in sizes},
        )
        model = VanillaTransformerForConditionalGeneration(config).train()
        optimizer = torch.optim.Adam(
            model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=True
        )
        schedule = noam_schedule(optimizer, d_model=config.d_model, warmup_steps=settings["warmup"])
        for _ in range(settings["updates"]):
            lengths = torch.randint(1, settings["trained"] + 1, (settings["batch"],))
            model(**reversal(lengths, settings["symbols"], config)).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        found: dict[str, list[float]] = {"right": [], "symbols": []}
        set_seed(settings["seeds"])  # the same test sequences for all models
        for length in settings["tested"]:
            lengths = torch.full((settings["sequences"],), length)
            batch = reversal(lengths, settings["symbols"], config)
            with torch.no_grad():
                hits = model.eval()(**batch).logits.argmax(-1) == batch["labels"]
            found["right"].append(100 * hits.all(dim=1).float().mean().item())
            found["symbols"].append(100 * hits.float().mean().item())
        return found

    def tables(self, rows: Rows, settings: Settings) -> dict[str, Table]:
        """Return mean and standard deviation over the seeds, by length."""
        cells = [
            [f"{kind}, {key}", *map(_spread, zip(*seeds, strict=True))]
            for key in ("right", "symbols")
            for kind in KINDS
            if (seeds := _seeds(rows, kind, key))
        ]
        heading = f"Percent by number of symbols; training ends at {settings['trained']}"
        return {heading: (["Positions", *map(str, settings["tested"])], cells)}

    def draw(self, rows: Rows, settings: Settings) -> "Figure":
        """Draw the share of right symbols of each model by length."""
        figure = new_figure(8.5, 3.6)
        axis = figure.subplots()
        for place, kind in enumerate(KINDS):
            for number, shares in enumerate(_seeds(rows, kind, "symbols")):
                name = kind if number == 0 else None
                axis.plot(settings["tested"], shares, f"C{place}o-", markersize=4, label=name)
        axis.axvline(settings["trained"], color="0.5", linestyle=":", label="end of training")
        axis.set(xlabel="symbols in the sequence", ylabel="right symbols, %", ylim=(0, 103))
        axis.legend(frameon=False)
        tidy(axis)
        return figure


def verdict(sinusoidal: Sequence[float], learned: Sequence[float]) -> str:
    """Say which kind of positions has the larger mean, if the means are far enough apart."""
    apart = statistics.mean(sinusoidal) - statistics.mean(learned)
    variances = (statistics.variance(found) / len(found) for found in (sinusoidal, learned))
    if abs(apart) <= max(1, 2 * math.sqrt(sum(variances))):
        return "not distinguishable"
    return f"{KINDS[apart < 0]} positions better"


def _seeds(rows: Rows, kind: str, key: str) -> list[list[float]]:
    """Return the percentages of right answers at each length, in one list for each seed."""
    return [facts[key] for row, facts in rows.items() if row.startswith(kind)]


def _spread(found: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(found):.1f}" if len(found) > 1 else ""
    return f"{statistics.mean(found):.1f}{spread}"


if __name__ == "__main__":
    Positions().main()
