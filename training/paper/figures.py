"""Figures 3 to 5: what the attention heads of a trained model look at.

    python training/paper/figures.py --results runs/paper
    python training/paper/figures.py --results runs/paper --run runs/mine

The first command takes the model `everyday-en-de`, which comes with the package.
Figures 3 to 5 of the paper show a few heads on one sentence each. Here rules choose the sentences,
so that nobody picks the most striking ones, and every head is measured on many sentences.
"""

import argparse
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import combinations, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from attention_lines import plot_attention_lines
from experiment import ROOT, Experiment, Rows, Settings, Table

from vanilla_transformer import pretrained
from vanilla_transformer.recipes.data import named_files
from vanilla_transformer.recipes.testing import plan_test
from vanilla_transformer.storage.reading import read_json
from vanilla_transformer.storage.run_files import METRICS, RECIPE
from vanilla_transformer.storage.saved_model import WEIGHTS, load_saved_model, load_saved_tokenizer
from vanilla_transformer.visualization import Attention, attention_weights
from vanilla_transformer.visualization.figure import new_figure, set_title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = {"encoder": "self-attention", "decoder": "masked self-attention", "cross": "to the source"}
POSSESSIVES = {"his", "her", "its", "their"}
SPECIAL = {"<s>", "</s>"}
# A hundred sentences, and the translations of the model that comes with the package.
SENTENCES = {
    "test_file": str(ROOT / "training/pretrained/sentences.tsv"),
    "source_column": "en",
    "target_column": "everyday-en-de",
}


class Figures(Experiment):
    """Three figures of single sentences, and measures of all heads over many sentences."""

    name = "figures"
    title = "Figures 3 to 5: what attention heads look at"
    arguments = "--run RUN --test-file FILE"
    sizes = {
        "tiny": {"sentences": 4, "longest": 30},
        "cpu": {"sentences": 500, "longest": 16},  # for a GPU too: no model is trained here
    }

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add --run and --test-file; half of the default sentences are from the training pairs."""
        text = "a run directory (default: the model everyday-en-de)"
        parser.add_argument("--run", type=Path, default=pretrained("everyday-en-de"), help=text)
        parser.add_argument("--test-file", help="pairs to use instead of the run's own test set")

    def about(self, settings: Settings) -> str:
        """Return how the sentences are chosen, and what is measured."""
        return (
            "Figures 3 to 5 of the paper show a few heads of encoder self-attention on one "
            "sentence each, chosen by its authors. Here rules choose them among the first "
            f"{settings['sentences']} test sentences, of at most {settings['longest']} words with "
            "the end symbol. The paper shows layer 5 of 6; here, too, it is the last layer but "
            "one. In the figures, pieces are joined to words.\n"
            "\n"
            "The table and the first picture measure every head on the first "
            f"{settings['sentences']} sentences, in pieces: the entropy of its weights in nats, "
            "the mean distance in positions, and the share of weight on the previous position, the "
            "position itself, the next one, and the symbol that ends the source or starts the "
            "target. In attention to the source, distances are between target and source "
            "positions, which correspond only roughly in translation. In the picture, a share is "
            "as dark as it is large; "
            "entropy and distance are as dark as they are large within their column. The rules "
            "know no grammar: whether a word is the one that another refers to is not measured."
        )

    def findings(self, rows: Rows, settings: Settings) -> Iterator[str]:
        """Name, for each kind of attention, the heads with most weight on one thing (`SHARES`)."""
        for kind in KINDS:
            heads = np.array(rows.get(kind, {}).get("heads", []))
            if not heads.size:
                continue
            most = []
            for measure, text in SHARES.items():
                shares = heads[..., MEASURES.index(measure)]
                layer, head = np.unravel_index(shares.argmax(), shares.shape)
                if shares.max():
                    place = f"layer {layer + 1}, head {head + 1}"
                    most.append(f"{shares.max():.2f} {text} ({place})")
            entropy = heads[..., MEASURES.index("Entropy")].mean(axis=1)
            layers = ", ".join(f"{value:.2f}" for value in entropy)
            yield (
                f"**{kind.capitalize()}, {KINDS[kind]}**: the largest shares of a head's weight "
                f"are {', '.join(most)}. Mean entropy by layer: {layers}."
            )

    def rows(self, settings: Settings) -> Iterable[str]:
        """Return the names of Figures 3 to 5, then the three kinds of attention."""
        return ("Figure 3", "Figure 4", "Figure 5", *KINDS)

    def files(self) -> dict[str, Path | None]:
        """Return the file of the weights, and those of the test pairs if --test-file is given."""
        files = {"model": self.options.run / WEIGHTS, "test": None}
        if self.options.test_file is not None:  # one file, or one for each language
            files |= zip(("test", "test target"), named_files(self.options.test_file), strict=False)
        return files

    @cached_property
    def _pairs(self) -> list[tuple[str, str]]:
        given = {} if (self.options.run / RECIPE).is_file() else {"pair": "en-de", **SENTENCES}
        if self.options.test_file is not None:
            given = {name: given[name] for name in given if name == "pair"}
            given["test_file"] = self.options.test_file
        texts = next(iter(plan_test(self.options.run, given).sets.values()))
        return [*zip(texts.sources, texts.targets, strict=True)]

    @cached_property
    def _model(self) -> tuple[object, object]:
        run = self.options.run
        return load_saved_model(run, device="auto"), load_saved_tokenizer(run)

    def _attention(self, settings: Settings, *, merge_words: bool) -> Iterator[Attention]:
        for source, target in islice(self._pairs, settings["sentences"]):
            yield attention_weights(*self._model, source, target, merge_words=merge_words)

    def measure(self, row: str, settings: Settings) -> dict[str, object]:
        """Choose a sentence for a figure, or measure all heads of one kind of attention."""
        updates = read_json(self.options.run / METRICS)["updates"]
        model = {"model": f"{self.options.run.name} after {updates:,} updates"}
        if row in KINDS:
            return {**model, **what_heads_do(row, self._attention(settings, merge_words=False))}
        candidates = (
            (score, attention, facts)
            for attention in self._attention(settings, merge_words=True)
            if len(attention.source_words) <= settings["longest"]
            for score, facts in [CHOICES[row](attention)]
            if facts
        )
        score, attention, facts = max(candidates, key=lambda found: found[0], default=(0, None, {}))
        if attention is None:
            return {**model, "sentence": None}
        return {
            **model,
            **facts,
            "score": round(score, 3),
            "sentence": attention.source,
            "words": attention.source_words,
            "weights": np.round(_weights(attention), 3).tolist(),
        }

    def tables(self, rows: Rows, settings: Settings) -> dict[str, Table]:
        """Return what the figures show, then the measures of every head."""
        shown = [
            [row, paper, facts["sentence"] or "no sentence fits", rule, facts.get("what", "")]
            for row, facts in rows.items()
            if row not in KINDS
            for paper, rule in [SHOWN[row]]
        ]
        heads = [
            [f"{kind}: {KINDS[kind]}", layer + 1, head + 1, *values]
            for kind in KINDS
            for layer, heads in enumerate(rows.get(kind, {}).get("heads", []))
            for head, values in enumerate(heads)
        ]
        models = " and ".join(sorted({facts["model"] for facts in rows.values()}))
        return {
            f"The sentences; the model is {models}": (
                ("Figure", "The paper shows", "Sentence here", "Chosen by", "What it shows here"),
                shown,
            ),
            "All heads": (("Attention", "Layer", "Head", *MEASURES), heads),
        }

    def draw(self, rows: Rows, settings: Settings) -> "Figure":
        """Draw the measures of all heads."""
        return draw_heads(rows)

    def pictures(self, rows: Rows, settings: Settings) -> "dict[str, Figure]":
        """Return the picture of all heads, and each figure for which a sentence was found."""
        found = {"Measures of every head": self.draw(rows, settings)}
        for row, facts in rows.items():
            if facts.get("sentence"):
                weights = np.array(facts["weights"])[None]
                attention = Attention(facts["words"], [], [], weights, weights, weights)
                caption = f"{row}: {facts['what']}"
                figure = plot_attention_lines(attention, heads=facts["heads"], words=facts["from"])
                set_title(figure, caption)
                found[caption] = figure
        return found


# ------------------------------------------ scoring sentences, and choosing words and heads to show


def _weights(attention: Attention) -> np.ndarray:
    """Return the weights of the encoder's last layer but one, (h, S, S)."""
    return attention.encoder[-2 if len(attention.encoder) > 1 else -1]


def is_long(word: str) -> bool:
    """Return whether a word is probably a content word: letters only, and more than three."""
    return word.isalpha() and len(word) > 3


def long_distance(attention: Attention) -> tuple[float, dict[str, object]]:
    """Score a sentence for Figure 3 by the largest weight, summed over heads, on a distant word."""
    words, together = attention.source_words, _weights(attention).sum(axis=0)
    far = [
        (together[query, key], query, key)
        for query, key in np.ndindex(*together.shape)
        if abs(query - key) >= 5 and is_long(words[query]) and is_long(words[key])
    ]
    if not far:
        return 0.0, {}
    score, query, key = max(far)
    what = f"from “{words[query]}” to “{words[key]}”, {abs(query - key)} words away"
    return float(score), {"from": [query], "heads": None, "what": what}


def possessive(attention: Attention) -> tuple[float, dict[str, object]]:
    """Score a sentence for Figure 4 by the largest weight from a possessive to an earlier word."""
    words, weights = attention.source_words, _weights(attention)
    places = [place for place, word in enumerate(words) if word in POSSESSIVES and place > 1]
    if not places or len(weights) < 2:
        return 0.0, {}
    score, query, key = max(
        (float(weights[:, place, key].max()), place, key)
        for place in places
        for key in range(place - 1)  # the word right before cannot be an antecedent
    )
    heads = sorted(np.argsort(-weights[:, query, key])[:2].tolist())
    first, second = (f"{weights[head, query, key]:.2f}" for head in heads)
    what = (
        f"the two heads in which “{words[query]}” attends most to “{words[key]}”, "
        f"{first} and {second}"
    )
    return score, {"from": [query], "heads": heads, "what": what}


def structure(attention: Attention) -> tuple[float, dict[str, object]]:
    """Score a sentence for Figure 5 by the difference of its two most different heads."""
    weights = _weights(attention)
    if len(weights) < 2:
        return 0.0, {}
    score, *heads = max(
        (float(np.abs(weights[one] - weights[other]).sum(-1).mean() / 2), one, other)
        for one, other in combinations(range(len(weights)), 2)
    )
    what = f"heads {heads[0] + 1} and {heads[1] + 1}, which differ most"
    return score, {"from": None, "heads": heads, "what": what}


SHOWN = {  # what the paper shows, and the rule for what is shown here
    "Figure 3": (
        "heads that complete “making ... more difficult”, a dependency over a long distance",
        "the word of more than three letters whose heads together attend most to another such "
        "word at least five words away",
    ),
    "Figure 4": (
        "two heads in which “its” attends sharply to “Law” and “application”: anaphora",
        "the possessive that attends most to a word before the one right before it",
    ),
    "Figure 5": (
        "two heads that do different things related to the structure of the sentence",
        "the two heads of one sentence that differ most",
    ),
}
CHOICES = {"Figure 3": long_distance, "Figure 4": possessive, "Figure 5": structure}

# ----------------------------------------------------------------------------- what all heads do

MEASURES = ("Entropy", "Distance", "Previous", "Itself", "Next", "Start or end")
SHARES = {
    "Previous": "on the previous position",
    "Itself": "on the position itself",
    "Next": "on the next one",
    "Start or end": "on the symbol of the start or end",
}


def measures(weights: np.ndarray, special: np.ndarray) -> np.ndarray:
    """Return the sums of `MEASURES` over the queries of one sentence: (N, h, Q, K) -> (N, h, 6).

    Args:
        weights: Rows that sum to one.
        special: (K,), whether a key is the start or the end symbol.
    """
    queries, keys = (np.arange(size) for size in weights.shape[2:])
    step = keys - queries[:, None]  # (Q, K)
    entropy = -(weights * np.log(np.maximum(weights, 1e-30))).sum(axis=-1)
    shares = [weights * mask for mask in (step == -1, step == 0, step == 1, special)]
    parts = [entropy, (weights * np.abs(step)).sum(-1), *(share.sum(-1) for share in shares)]
    return np.stack([part.sum(-1) for part in parts], axis=-1)


def what_heads_do(kind: str, sentences: Iterable[Attention]) -> dict[str, object]:
    """Return the means of `MEASURES` over all queries of the sentences, by layer and head."""
    total, queries = 0.0, 0
    for attention in sentences:
        attended = attention.words(kind)[1]
        weights = getattr(attention, kind)
        total = total + measures(weights, np.array([word in SPECIAL for word in attended]))
        queries += weights.shape[2]
    return {"heads": np.round(total / queries, 3).tolist(), "queries": queries}


def draw_heads(rows: Rows) -> "Figure":
    """Draw a panel for each kind of attention, with a row per head and a column per measure."""
    kinds = {kind: np.array(rows[kind]["heads"]) for kind in KINDS if kind in rows}
    count = max((heads.shape[0] * heads.shape[1] for heads in kinds.values()), default=1)
    figure = new_figure(8.5, 0.3 * count + 1.6)
    axes = figure.subplots(1, max(len(kinds), 1), squeeze=False)[0]
    for axis, (kind, heads) in zip(axes, kinds.items(), strict=False):
        cells = heads.reshape(-1, len(MEASURES))
        # Show shares as they are; divide entropy and distance by the largest in the column.
        shades = np.concatenate([cells[:, :2] / cells[:, :2].max(axis=0), cells[:, 2:]], axis=1)
        axis.imshow(shades, cmap="Blues", vmin=0, vmax=1.3, aspect="auto")
        for (row, column), value in np.ndenumerate(cells):
            axis.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8)
        names = [f"{n + 1}.{h + 1}" for n, h in np.ndindex(heads.shape[:2])]
        axis.set_yticks(range(len(names)), names, fontsize=9)
        axis.set_ylabel("layer.head", fontsize=9)
        axis.set_xticks(range(len(MEASURES)), MEASURES, fontsize=9, rotation=45, ha="right")
        axis.tick_params(length=0)
        axis.set_title(f"{kind}:\n{KINDS[kind]}", fontsize=10)
    return figure


if __name__ == "__main__":
    Figures().main()
