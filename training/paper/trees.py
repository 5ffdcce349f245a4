"""Constituency trees: reading, writing as sequences of symbols, and comparing (Section 6.3).

    (S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))

In the notation of Vinyals et al. (2015, arXiv 1412.7449, Figure 2), a model reads the words

    John has a dog .

and writes symbols, with the tag of each word instead of the word,

    (S (NP NNP )NP (VP VBZ (NP DT NN )NP )VP . )S

The authors of the paper wrote "NP" and "/NP" for "(NP" and ")NP", with the tags as here.
"""

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vanilla_transformer.errors import RequestError

# What EVALB's usual settings (COLLINS.prm) exclude from spans, and which labels they equate.
PUNCTUATION = {",", ":", "``", "''", "."}
NO_BRACKET = {"TOP", "", *PUNCTUATION}
SAME_LABEL = {"PRT": "ADVP"}


@dataclass
class Tree:
    """A constituent with its parts, or a word whose label is its tag."""

    label: str
    children: list["Tree"] = field(default_factory=list)
    word: str | None = None

    def __str__(self) -> str:
        """Return the tree in the bracket notation of treebanks."""
        return f"({self.label} {self.word or ' '.join(map(str, self.children))})"

    def leaves(self) -> list["Tree"]:
        """Return the word nodes from left to right."""
        if self.word is not None:
            return [self]
        return [leaf for child in self.children for leaf in child.leaves()]

    def words(self) -> list[str]:
        """Return the words as text."""
        return [leaf.word for leaf in self.leaves()]


# ---------------------------------------------------------------------------------------- reading


def read_trees(path: Path) -> list[Tree]:
    """Read the trees of a file, compressed (.gz) or not.

    Args:
        path: A `.jsonl` file has one object per line, with the tree as text under "tree"; any other
            file is text with trees in the bracket notation of treebanks, on any number of lines.

    Raises:
        ValueError: A bracket is missing.
    """
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    if ".jsonl" in path.suffixes:
        # Not `splitlines`, which would also split at separators within a text.
        lines = enumerate(text.split("\n"), start=1)
        text = "\n".join(_tree_of(line, f"{path}:{n}") for n, line in lines if line.strip())
    try:
        found = [clean(tree) for tree in parse(text)]
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from error
    return [tree for tree in found if tree is not None]


def _tree_of(line: str, place: str) -> str:
    try:
        return str(json.loads(line)["tree"])
    except (ValueError, KeyError, TypeError) as error:
        raise RequestError(
            f'{place} is not a JSON object with a tree as text: {{"tree": "(S ...)"}}.'
        ) from error


def parse(text: str) -> Iterator[Tree]:
    """Yield the trees of a text, one after another.

    Raises:
        ValueError: A bracket is missing, or a word has no bracket of its own.
    """
    stack = [Tree("")]
    for label, word, close in re.findall(r"\(\s*([^\s()]*)|([^\s()]+)|(\))", text):
        if close:
            if len(stack) == 1:
                raise RequestError("a tree has more closing brackets than opening ones.")
            stack.pop()
            if len(stack) == 1:
                yield stack[0].children.pop()
        elif word:
            if len(stack) == 1:
                raise RequestError(f"got {word!r} where a tree should begin with a bracket.")
            if stack[-1].word is not None or stack[-1].children:
                raise RequestError(
                    f"got {word!r} without a tag; give each word its own bracket, (TAG word)."
                )
            stack[-1].word = word
        else:
            if stack[-1].word is not None:
                raise RequestError(
                    f"got a bracket after the word {stack[-1].word!r}; write words as (TAG word)."
                )
            stack[-1].children.append(Tree(label))
            stack.append(stack[-1].children[-1])
    if len(stack) > 1:
        raise RequestError(f"{len(stack) - 1} closing brackets are missing at the end.")


def clean(tree: Tree) -> Tree | None:
    """Return the tree in the form that parsers are trained on, or None if no word is left.

    This removes an outer bracket without a label, traces (-NONE-), constituents that are empty
    without traces, and everything after the category: NP-SBJ-1 becomes NP.
    """
    if tree.word is not None:
        return None if tree.label == "-NONE-" else tree
    parts = [part for part in map(clean, tree.children) if part is not None]
    if tree.label in ("", "TOP") and len(parts) == 1:
        return parts[0]
    return Tree(re.match(r"[^-=|]*", tree.label)[0], parts) if parts else None


def phrases(tree: Tree) -> Iterator[Tree]:
    """Yield the constituents of two words or more, beginning with the tree itself."""
    if len(tree.words()) > 1:
        yield tree
        for child in tree.children:
            yield from phrases(child)


# ------------------------------------------------------------------------ from and to sequences


def linearise(tree: Tree) -> list[str]:
    """Return the symbols of a tree, without the words."""
    if tree.word is not None:
        return [tree.label]
    inner = [symbol for child in tree.children for symbol in linearise(child)]
    return [f"({tree.label}", *inner, f"){tree.label}"]


def attach(symbols: Sequence[str], words: Sequence[str]) -> tuple[Tree, bool]:
    """Make a tree over the words from any sequence of symbols.

    A closing symbol closes the innermost open constituent with its label and everything inside it;
    it is ignored if there is none. Surplus tags are ignored too. Words without a tag join the last
    of the outermost constituents. Open constituents are closed, and empty ones are removed.

    Returns:
        The tree, below a root "TOP", and whether the sequence needed no repair: it was one tree
        with the right number of words.
    """
    root = Tree("TOP")
    stack, left = [root], list(words)
    for symbol in symbols:
        if symbol.startswith("("):
            stack[-1].children.append(Tree(symbol[1:]))
            stack.append(stack[-1].children[-1])
        elif symbol.startswith(")"):
            places = [place for place, tree in enumerate(stack) if tree.label == symbol[1:]]
            if places and places[-1]:  # the root stays open
                del stack[places[-1] :]
        elif left:
            stack[-1].children.append(Tree(symbol, word=left.pop(0)))
    prune(root)
    last = root.children[-1] if root.children and root.children[-1].word is None else root
    last.children += [Tree("XX", word=word) for word in left]
    whole = len(root.children) == 1 and linearise(root.children[0]) == list(symbols)
    return root, whole and not left


def prune(tree: Tree) -> None:
    """Remove constituents without a word."""
    for child in tree.children:
        prune(child)
    tree.children = [child for child in tree.children if child.children or child.word is not None]


# -------------------------------------------------------------------------------------- scoring


def punctuation(tree: Tree) -> list[bool]:
    """Return for each word whether its tag is punctuation."""
    return [leaf.label in PUNCTUATION for leaf in tree.leaves()]


def brackets(tree: Tree, ignored: Sequence[bool]) -> Counter[tuple[str, int, int]]:
    """Count the brackets of a tree as (label, first word, word after the last).

    Args:
        tree: Tree of a sentence.
        ignored: For each word, whether it is skipped when words are numbered.
    """
    found: Counter[tuple[str, int, int]] = Counter()
    words = iter(ignored)

    def walk(part: Tree, start: int) -> int:
        if part.word is not None:
            return start + (not next(words))
        end = start
        for child in part.children:
            end = walk(child, end)
        if end > start and part.label not in NO_BRACKET:
            found[SAME_LABEL.get(part.label, part.label), start, end] += 1
        return end

    walk(tree, 0)
    return found


def compare(gold: Tree, found: Tree) -> Counter[str]:
    """Count brackets as EVALB does: "gold", "found", and "matched", which are in both trees.

    Tags are not brackets, and punctuation does not count as words. The gold tree decides what is
    punctuation; EVALB uses the tags of each tree, and skips a sentence whose trees then differ in
    the number of words.
    """
    ignored = punctuation(gold)
    ours, theirs = brackets(found, ignored), brackets(gold, ignored)
    both = (ours & theirs).total()
    return Counter(gold=theirs.total(), found=ours.total(), matched=both)


def f1(counts: Mapping[str, int]) -> float:
    """Return the harmonic mean of precision and recall, in percent."""
    return 200 * counts["matched"] / max(1, counts["gold"] + counts["found"])
