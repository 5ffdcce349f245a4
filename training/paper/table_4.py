"""Table 4 at a size for a small machine: constituency trees, written as sequences.

    python training/paper/table_4.py --train-file train.jsonl.gz \
        --validation-file validation.jsonl.gz --test-file test.jsonl.gz --more-file other.jsonl.gz

trains a model on half and on all of the trees in --train-file, and on all of them together with
trees of another kind. It scores the parses of --test-file, and those of a baseline that ignores the
words. `read_trees` in trees.py describes the file format; `--size tiny` generates its own trees.

A symbol of a tree does not say which word it belongs to; the decoder has to count. To teach it
that, the models are trained on phrases first, from short ones to long ones: each constituent of a
tree is a tree over its own words.
"""

import argparse
import itertools
import math
import random
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from datasets import Dataset
from experiment import Experiment, Rows, Settings, Table
from transformers import set_seed
from trees import Tree, attach, brackets, compare, f1, linearise, phrases, punctuation, read_trees

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.beam_search import beam_search
from vanilla_transformer.data import train_tokenizer
from vanilla_transformer.data.tokenizer import symbol_tokenizer, vocabulary_fields
from vanilla_transformer.errors import RequestError
from vanilla_transformer.machine.environment import resolve_precision
from vanilla_transformer.texts.targets import hold_target_tokenizer
from vanilla_transformer.train import VanillaTransformerTrainer, VanillaTransformerTrainingArguments
from vanilla_transformer.train.averaging import mean_of_weights
from vanilla_transformer.train.checkpoints import checkpoints
from vanilla_transformer.train.cpu_settings import without_training_changes
from vanilla_transformer.translation.many_texts import length_sorted_batches, pad_ids
from vanilla_transformer.visualization.figure import new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCH_TOKENS = 8192  # of a batch of the search: sentences x beams x longest source
FILES = {
    "train": "trees to train on",
    "more": "trees of another kind to train on, for the last row",
    "validation": "trees to choose settings by",
    "test": "trees to report F1 on",
}
LENGTHS = {"1-10": 10, "11-20": 20, "21-30": 30, "31-40": 40, "over 40": 10_000}  # words
# Trees that the results in this folder were measured on, by sha256: one JSON object per line, with
# the tree as published but without function tags, traces and the outer bracket.
_WSJ = "Penn Treebank sample (Marcus et al., 1993) that NLTK distributes, files wsj_"
KNOWN_FILES = {
    "32c9630e87752f6c211e8e9a4177442926c2629bfe7832395bdea48f8f338554": f"{_WSJ}0001 to wsj_0149",
    "4f518c82b38402536870c87f016c942d57ffc005558ee7df892330413ef34c2e": f"{_WSJ}0150 to wsj_0164",
    "06fa1759bda8d5c01973206decaec0ec020bf8702ec39bb79ab116a9fe85e16f": f"{_WSJ}0165 to wsj_0179",
    "d62a12a6491e8725459755aa72e3fb8e1f32701f48443d6a8b787b61b7ae6519": (
        "CRAFT corpus (Verspoor et al., 2012, CC BY 3.0), its 60 training articles"
    ),
}
BASELINE, MORE, WHOLE = "right-branching", "1+more", "1 whole"
# The paper's Table 4: F1 on section 23 of the WSJ.
PAPER = [
    ["Vinyals & Kaiser et al. (2014)", "WSJ only, discriminative", 88.3],
    ["Petrov et al. (2006)", "WSJ only, discriminative", 90.4],
    ["Zhu et al. (2013)", "WSJ only, discriminative", 90.4],
    ["Dyer et al. (2016)", "WSJ only, discriminative", 91.7],
    ["Transformer (4 layers)", "WSJ only, discriminative", 91.3],
    ["Zhu et al. (2013)", "semi-supervised", 91.3],
    ["Huang & Harper (2009)", "semi-supervised", 91.3],
    ["McClosky et al. (2006)", "semi-supervised", 92.1],
    ["Vinyals & Kaiser et al. (2014)", "semi-supervised", 92.1],
    ["Transformer (4 layers)", "semi-supervised", 92.7],
    ["Luong et al. (2015)", "multi-task", 93.0],
    ["Dyer et al. (2016)", "generative", 93.3],
]


class Parsing(Experiment):
    """Table 4, whose rows are training sets: shares of one file, and that file plus another."""

    name = "table_4"
    title = "Table 4: constituency parsing"
    arguments = "--train-file ... --more-file ... --validation-file ... --test-file ..."
    sizes = {
        "tiny": {
            "shares": ["1/2", "1"],
            "invented": 16,  # trees to generate instead of each file
            "stages": [[4, 2], [60, 1]],  # longest phrase in words, updates
            "pieces": 300,
            "d_model": 16,
            "layers": 1,
            "heads": 2,
            "d_ff": 32,
            "dropout": 0.1,
            "batch_tokens": 512,
            "warmup": 2,  # of each stage
            "save_every": 1,  # updates
            "averaged": 2,  # last checkpoints
            "rate_factor": 1.0,  # of the learning rate of Eq. 3
            "beams": 3,
            "extra": 20,  # symbols that the output may have more than the input has tokens
        },
        "cpu": {
            "shares": ["1/2", "1"],
            "stages": [[6, 500], [12, 600], [25, 900], [60, 2000]],
            "pieces": 8000,
            "d_model": 128,
            "layers": 4,
            "heads": 4,
            "d_ff": 512,
            "dropout": 0.1,
            "batch_tokens": 1536,
            "warmup": 250,
            "save_every": 100,
            "averaged": 5,
            "rate_factor": 0.5,
            "beams": 21,
            "extra": 300,
        },
        "gpu": {
            "shares": ["1/4", "1/2", "1"],
            "stages": [[6, 1000], [12, 1000], [25, 2000], [100, 6000]],
            "pieces": 16000,
            "d_model": 1024,
            "layers": 4,
            "heads": 16,
            "d_ff": 4096,
            "dropout": 0.3,
            "batch_tokens": 4096,
            "warmup": 1000,
            "save_every": 200,
            "averaged": 5,
            "rate_factor": 0.5,
            "beams": 21,
            "extra": 300,
        },
    }

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add an option for each file of trees."""
        for name, use in FILES.items():
            parser.add_argument(f"--{name}-file", type=Path, help=use)

    def about(self, settings: Settings) -> str:
        """Return how the paper's experiment was repeated, and what differs."""
        longest = max(words for words, _ in settings["stages"])
        return (
            "A Transformer reads the words of a sentence and writes its tree as symbols "
            "(Section 6.3). The paper used 40,000 trees of the Wall Street Journal and a model of "
            "width 1024. With so few trees and minutes, expect a modest F1. Figures for different "
            "test sets cannot be compared. The experiment asks whether a model beats a baseline "
            "that ignores the words and only knows that English branches to the right.\n"
            "\n"
            f"- **Here**: {settings['layers']} layers (the paper: 4), width {settings['d_model']} "
            f"(1024), beam {settings['beams']} (21), alpha 0.3 (0.3), at most {settings['extra']} "
            "symbols more than the input has "
            "tokens (300). The paper does not give the dropout on residuals and attention weights "
            f"({settings['dropout']} here), nor the number of checkpoints that are averaged "
            f"({settings['averaged']} here). Each side has a vocabulary of its own, "
            "as in the authors' code.\n"
            "- **The rows** are shares of one set of trees, and the whole set plus trees of "
            "another kind. Each model is trained once, with one seed, for the same number of "
            f"updates. Trees of more than {longest} words are left out of training.\n"
            "- **Unlike in the paper**, training begins with short phrases. A phrase is a "
            "constituent of two words or more; it is a tree over its own words, so this needs no "
            "other data. The output does not name the words, so the decoder must keep count of "
            "them; short phrases are meant to teach it that. The row 'whole trees only' has as "
            "many updates without them.\n"
            "- **F1** is that of labelled brackets by EVALB's rules, over all sentences. An "
            "output that is not a tree over the words is repaired, and the repaired tree is "
            "scored: open brackets are closed, closing ones without a partner and surplus tags are "
            "dropped, and words without a tag join the last constituent. The share of outputs that "
            "need no repair is given as 'well-formed'.\n"
            "- **Better or worse** than the baseline is a model whose F1 on the test set differs "
            "from the baseline's by more than the margin: two standard deviations of this "
            "difference between sets of sentences. If each of the five groups of lengths is taken "
            "from either the validation or the test set, there are 32 such sets; the margin is "
            "estimated from them. It knows nothing of the seed.\n"
            "- **Not reproduced** from Section 6.3: the 40,000 trees and section 23 of the Wall "
            "Street Journal, which are not free; the 17 million sentences of semi-supervised "
            "training (the last row adds trees of another kind instead); the "
            "choice of dropout, learning rate and beam on section 22. So nothing here supports or "
            "contradicts the paper's scores of 91.3 and 92.7, or its comparison with other parsers."
        )

    def findings(self, rows: Rows, settings: Settings) -> Iterator[str]:
        """Compare each model with the baseline."""
        if BASELINE not in rows:
            return
        base = rows[BASELINE]
        other = f1(total(base["test"].values()))
        for row, facts in rows.items():
            if row == BASELINE:
                continue
            test = total(facts["test"].values())
            apart, margin = difference(facts, base)
            word = "better than" if apart > 0 else "worse than"
            word = word if abs(apart) > margin else "not distinguishable from"
            yield (
                f"**{label(row)}**: {f1(test):.1f}, {word} the baseline's {other:.1f} "
                f"({apart:+.1f}, margin {margin:.1f}); "
                f"{test['well_formed']} of {test['sentences']} outputs well-formed."
            )
        yield (
            "No verdict says whether more trees help: each row was trained only once, and with the "
            "same number of updates, more trees mean fewer passes over each."
        )

    def rows(self, settings: Settings) -> Iterable[str]:
        """Return the names of the rows; see `about` for what the models are trained on."""
        return [BASELINE, *settings["shares"], WHOLE, MORE]

    def measure(self, row: str, settings: Settings) -> dict[str, object]:
        """Train on the row's trees, and score the parses of the validation and test sentences."""
        files = {name: self._trees(name, settings) for name in ("train", "validation", "test")}
        trees = files["train"]
        if row in settings["shares"]:
            trees = trees[: round(len(trees) * Fraction(row))]
        if row == MORE:
            trees = trees + self._trees("more", settings)
        longest = max(words for words, _ in settings["stages"])
        trees = [tree for tree in trees if len(tree.words()) <= longest]
        facts: dict[str, object] = {"trees": len(trees)}
        if row == BASELINE:
            labels = commonest_labels(trees)
            facts["labels"] = labels

            def parse(sentences: list[list[str]]) -> list[tuple[Tree, bool]]:
                return [(right_branching(words, *labels), True) for words in sentences]
        else:
            parser = Parser(trees, settings)
            if row == WHOLE:
                updates = sum(updates for _, updates in settings["stages"])
                facts |= parser.train([(trees, updates)], files["validation"])
            else:
                facts |= parser.train(stages(trees, settings["stages"]), files["validation"])
            parse = parser.parse
        for name in ("validation", "test"):
            found = parse([tree.words() for tree in files[name]])
            facts[name] = by_length(files[name], found)
        return facts

    def _trees(self, name: str, settings: Settings) -> list[Tree]:
        """Read a file of trees; if none is given and the size is tiny, generate trees."""
        path = getattr(self.options, f"{name}_file")
        if path is not None:
            return read_trees(path)
        if "invented" not in settings:
            raise RequestError(f"--{name}-file is missing; give a file of trees, or --size tiny.")
        return invented_trees(settings["invented"], seed=list(FILES).index(name))

    def files(self) -> dict[str, Path | None]:
        """Return the files of trees."""
        return {name: getattr(self.options, f"{name}_file") for name in FILES}

    def tables(self, rows: Rows, settings: Settings) -> dict[str, Table]:
        """Return F1 of all rows, the sizes, and the paper's F1."""
        columns = ["Trained on", "Trees", "Updates", "Parameters", "Validation F1"]
        columns += ["Test F1", "up to 40 words", "Precision", "Recall", "Well-formed"]
        cells = []
        for row, facts in rows.items():
            test = total(facts["test"].values())
            scores = [
                f1(total(facts["validation"].values())),
                f1(test),
                f1(total(facts["test"][length] for length in LENGTHS if LENGTHS[length] <= 40)),
                percent(test, "matched", "found"),
                percent(test, "matched", "gold"),
                percent(test, "well_formed", "sentences"),
            ]
            training = [facts.get(name, "") for name in ("updates", "parameters")]
            scores = [f"{score:.1f}" for score in scores]
            cells.append([label(row), facts["trees"], *training, *scores])
        sizes = {name: value for name, value in settings.items() if name != "shares"}
        sizes["stages"] = ", ".join(
            f"{updates:,} updates up to {words} words" for words, updates in settings["stages"]
        )
        lengths = [
            [
                label(row),
                *(
                    f"{f1(group):.1f} ({percent(group, 'well_formed', 'sentences'):.0f})"
                    for group in facts["test"].values()
                ),
            ]
            for row, facts in rows.items()
        ]
        marks = next((facts["files"] for facts in rows.values() if "files" in facts), {})
        files = [
            [FILES[part], KNOWN_FILES.get(mark, f"a file with sha256 {mark[:12]}")]
            for part, mark in marks.items()
            if mark is not None
        ]
        first = next(iter(rows.values()), {"test": {}})
        groups = [f"{length} ({group['sentences']})" for length, group in first["test"].items()]
        return {
            "Measured here, scores in percent": (columns, cells),
            "F1 on the test set by number of words (with the number of sentences), and in brackets "
            "the percentage of well-formed outputs": (["Trained on", *groups], lengths),
            "The trees": (["Use", "Source"], files or [["all", "generated from a small grammar"]]),
            "Sizes": (list(sizes), [list(sizes.values())]),
            "The paper's results, on section 23 of the Wall Street Journal": (
                ["Parser", "Training", "F1"],
                PAPER,
            ),
        }

    def draw(self, rows: Rows, settings: Settings) -> "Figure":
        """Draw F1 on the test set against the number of trees and the length of the sentence."""
        figure = new_figure(8.5, 3.8)
        by_trees, by_words = figure.subplots(1, 2, sharey=True)
        scores = {row: f1(total(facts["test"].values())) for row, facts in rows.items()}
        trained = [row for row in rows if row != BASELINE]
        counts = sorted({rows[row]["trees"] for row in trained})
        for row, facts in rows.items():
            line = {"label": label(row), "color": "0.4", "linestyle": "--"}
            if row == BASELINE:
                by_trees.axhline(scores[row], **line)
            else:
                line = {"label": label(row), "color": f"C{trained.index(row)}", "marker": "o"}
                by_trees.plot(facts["trees"], scores[row], **line)
            groups = [group for group in facts["test"].values() if group["sentences"]]
            by_words.plot([f1(group) for group in groups], **line)
        by_trees.set_xscale("log")
        by_trees.set_xticks(counts, [f"{count:,}" for count in counts])
        by_trees.minorticks_off()
        by_trees.set(xlabel="trees to train on", ylabel="bracket F1 on the test set, %", ylim=0)
        by_words.set_xticks(range(len(LENGTHS)), LENGTHS)
        by_words.set_xlabel("words of the sentence")
        by_words.legend(frameon=False, fontsize=9)
        for axis in (by_trees, by_words):
            tidy(axis)
        return figure


def label(row: str) -> str:
    """Return the name of a row for the tables and the picture."""
    names = {BASELINE: "right-branching baseline", "1": "all trees", MORE: "all and others"}
    return {**names, WHOLE: "all, whole trees only"}.get(row, f"{row} of the trees")


def stages(
    trees: Sequence[Tree], lengths: Iterable[tuple[int, int]]
) -> Iterator[tuple[list[Tree], int]]:
    """Yield the phrases to train on and the number of updates, for each limit on their length."""
    found = [phrase for tree in trees for phrase in phrases(tree)]
    for longest, updates in lengths:
        yield [phrase for phrase in found if len(phrase.words()) <= longest], updates


# ------------------------------------------------------------------------------------ the model


class Parser:
    """A Transformer with one vocabulary of word pieces and one of tree symbols."""

    def __init__(self, trees: Sequence[Tree], settings: Settings) -> None:
        """Build both vocabularies and a new model."""
        self.settings = settings
        texts = (" ".join(tree.words()) for tree in trees)
        self.tokenizer = train_tokenizer(texts, vocab_size=settings["pieces"], show_progress=False)
        self.symbols = symbol_tokenizer(
            sorted({symbol for tree in trees for symbol in linearise(tree)})
        )
        hold_target_tokenizer(self.tokenizer, self.symbols)
        set_seed(0)
        config = VanillaTransformerConfig(
            **vocabulary_fields(self.tokenizer),  # words and symbols have separate vocabularies
            d_model=settings["d_model"],
            encoder_layers=settings["layers"],
            decoder_layers=settings["layers"],
            encoder_attention_heads=settings["heads"],
            decoder_attention_heads=settings["heads"],
            encoder_ffn_dim=settings["d_ff"],
            decoder_ffn_dim=settings["d_ff"],
            dropout=settings["dropout"],
            attention_dropout=settings["dropout"],
        )
        self.model = VanillaTransformerForConditionalGeneration(config)

    def encode(self, sentences: Sequence[Sequence[str]]) -> list[list[int]]:
        """Return the ids of the words of each sentence, with the end symbol."""
        return self.tokenizer([" ".join(words) for words in sentences])["input_ids"]

    def pairs(self, trees: Sequence[Tree]) -> Dataset:
        """Return the trees as a data set for the trainer."""
        sources = self.encode([tree.words() for tree in trees])
        targets = self.symbols([" ".join(linearise(tree)) for tree in trees])["input_ids"]
        return Dataset.from_dict(
            {
                "input_ids": sources,
                "labels": targets,
                "source_length": [len(row) for row in sources],
                "target_length": [len(row) for row in targets],
            }
        )

    def train(
        self, stages: Iterable[tuple[Sequence[Tree], int]], validation: Sequence[Tree]
    ) -> dict[str, object]:
        """Train in stages, each with its own trees, updates and warm-up; return the row's facts.

        At its end a stage averages the weights of its last checkpoints.
        """
        updates = 0
        for trees, steps in stages:
            with tempfile.TemporaryDirectory() as directory:
                arguments = VanillaTransformerTrainingArguments(
                    directory,
                    max_steps=steps,
                    batch_tokens=self.settings["batch_tokens"],
                    warmup_steps=self.settings["warmup"],
                    learning_rate_factor=self.settings["rate_factor"],
                    bf16=resolve_precision("auto") == "bf16",
                    use_cpu=not torch.cuda.is_available(),
                    seed=0,
                    save_steps=self.settings["save_every"],
                    checkpoints_to_keep=self.settings["averaged"],
                    report_to="none",
                )
                trainer = VanillaTransformerTrainer(
                    self.model,
                    arguments,
                    train_dataset=self.pairs(trees),
                    eval_dataset=self.pairs(validation),
                )
                trainer.train()
                last = [*checkpoints(directory).values()][-self.settings["averaged"] :]
                # Not strict, because tied weights are saved only once.
                self.model.load_state_dict(mean_of_weights(last), strict=False)
            updates += trainer.state.global_step
        return {
            "updates": updates,
            "parameters": self.model.num_parameters(),
            "validation_perplexity": round(trainer.evaluate()["eval_perplexity"], 4),
        }

    def parse(self, sentences: Sequence[Sequence[str]]) -> list[tuple[Tree, bool]]:
        """Return a tree for each sentence, and whether the model's output was well-formed."""
        sources = self.encode(sentences)
        found: dict[int, tuple[Tree, bool]] = {}
        budget = BATCH_TOKENS // self.settings["beams"]
        for batch in length_sorted_batches([len(row) for row in sources], budget, BATCH_TOKENS):
            ids, mask = pad_ids([sources[place] for place in batch], self.tokenizer.pad_token_id)
            device = self.model.device
            with without_training_changes(self.model):
                output = beam_search(
                    self.model,
                    ids.to(device),
                    mask.to(device),
                    num_beams=self.settings["beams"],
                    length_penalty=0.3,
                    max_extra_tokens=self.settings["extra"],
                )
            for place, row in zip(batch, output.sequences[:, 0].tolist(), strict=True):
                text = self.symbols.decode(row, skip_special_tokens=True)
                found[place] = attach(text.split(), sentences[place])
        return [found[place] for place in range(len(sentences))]


# --------------------------------------------------------------------------------- the baseline


def commonest_labels(trees: Iterable[Tree]) -> tuple[str, str]:
    """Return the commonest label of whole sentences, and of parts that end with the sentence."""
    whole, rest = Counter(), Counter()
    for tree in trees:
        ignored = punctuation(tree)
        for (name, start, end), count in brackets(tree, ignored).items():
            if end == ignored.count(False):
                (rest if start else whole)[name] += count
    return whole.most_common(1)[0][0], rest.most_common(1)[0][0]


def right_branching(words: Sequence[str], whole: str, rest: str) -> Tree:
    """Return the tree in which each word is followed by one constituent of all later words."""
    tree = Tree("XX", word=words[-1])
    for word in reversed(words[:-1]):
        tree = Tree(rest, [Tree("XX", word=word), tree])
    return Tree(whole, tree.children or [tree])


# --------------------------------------------------------------------------------------- counts


def by_length(
    gold: Sequence[Tree], found: Sequence[tuple[Tree, bool]]
) -> dict[str, dict[str, int]]:
    """Sum the counts of `compare`, the sentences and the well-formed trees, by sentence length."""
    names = ("sentences", "well_formed", "gold", "found", "matched")
    counts = {length: dict.fromkeys(names, 0) for length in LENGTHS}
    for tree, (guess, whole) in zip(gold, found, strict=True):
        words = len(tree.words())
        length = next(length for length, most in LENGTHS.items() if words <= most)
        counts[length] = total(
            [counts[length], {"sentences": 1, "well_formed": int(whole), **compare(tree, guess)}]
        )
    return counts


def total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sum the counts that have the same name."""
    sums: Counter[str] = Counter()
    for each in counts:
        sums.update(each)
    return dict(sums)


def difference(facts: Mapping, base: Mapping) -> tuple[float, float]:
    """Return a row's F1 on the test set minus the baseline's, and the margin that a verdict needs.

    The margin is twice the standard deviation of the difference. Single sentences are not stored,
    so it is estimated from half-samples (McCarthy, 1969): each group of lengths comes from the
    validation set or from the test set. The variance between half-samples is that of both sets
    together, which is half of the test set's.
    """
    picked = [
        f1(total(facts[name][length] for name, length in zip(names, LENGTHS, strict=True)))
        - f1(total(base[name][length] for name, length in zip(names, LENGTHS, strict=True)))
        for names in itertools.product(("validation", "test"), repeat=len(LENGTHS))
    ]
    return picked[-1], 2 * math.sqrt(2) * statistics.pstdev(picked)


def percent(counts: Mapping[str, int], part: str, whole: str) -> float:
    """Return one count as a percentage of another."""
    return 100 * counts[part] / max(1, counts[whole])


# ------------------------------------------------------------------------------- invented trees

GRAMMAR = {
    "S": ["NP VP ."],
    "NP": ["DT NN", "DT JJ NN", "NP PP", "PRP"],
    "VP": ["VBZ NP", "VBZ NP PP", "VBZ SBAR", "VBZ"],
    "PP": ["IN NP"],
    "SBAR": ["IN S"],
}
WORDS = {
    "DT": ["a", "the", "this"],
    "NN": ["cat", "dog", "garden", "tree", "letter"],
    "JJ": ["big", "old", "green"],
    "PRP": ["it", "she"],
    "VBZ": ["sees", "says", "finds", "likes"],
    "IN": ["in", "near", "that", "with"],
    ".": ["."],
}


def invented_trees(count: int, *, seed: int) -> list[Tree]:
    """Generate random trees from a small grammar, to try the script without a treebank."""
    draw = random.Random(seed)

    def grow(name: str, depth: int) -> Tree:
        if name in WORDS:
            return Tree(name, word=draw.choice(WORDS[name]))
        choices = GRAMMAR[name][:1] if depth > 5 else GRAMMAR[name]
        return Tree(name, [grow(part, depth + 1) for part in draw.choice(choices).split()])

    return [grow("S", 0) for _ in range(count)]


if __name__ == "__main__":
    Parsing().main()
