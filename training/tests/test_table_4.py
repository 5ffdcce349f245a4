"""training/paper/table_4.py and trees.py: trees as sequences, EVALB's counts, a tiny run."""

import gzip
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_4 import (
    BASELINE,
    LENGTHS,
    MORE,
    WHOLE,
    Parser,
    Parsing,
    by_length,
    commonest_labels,
    difference,
    invented_trees,
    right_branching,
    stages,
    total,
)
from trees import Tree, attach, clean, compare, f1, linearise, parse, phrases, read_trees

CAT = "(S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (DT a) (NN dog))) (. .))"
NAMES = st.text("ABC$.,`'-", min_size=1, max_size=4)


@st.composite
def trees(draw, depth=4):
    if depth and draw(st.booleans()):
        parts = st.lists(trees(depth=depth - 1), min_size=1, max_size=3)
        return Tree(draw(NAMES), draw(parts))
    return Tree(draw(NAMES), word=draw(st.text("abcäß'", min_size=1, max_size=3)))


def tree(text):
    (found,) = parse(text)
    return found


# ---------------------------------------------------------------------- text, trees and sequences


@given(trees())
@settings(max_examples=50, deadline=None)
def test_trees_survive_conversion_to_text_and_to_sequence(made):
    assert tree(str(made)) == made
    assert attach(linearise(made), made.words()) == (Tree("TOP", [made]), True)
    counts = compare(made, made)
    assert counts["gold"] == counts["found"] == counts["matched"]


@given(
    st.lists(st.sampled_from(["(A", ")A", "(B", ")B", "T"]), max_size=12),
    st.lists(st.sampled_from("xyz"), min_size=1, max_size=4),
)
@settings(max_examples=100, deadline=None)
def test_any_sequence_gives_a_tree_over_all_words(symbols, words):
    found, whole = attach(symbols, words)
    assert found.words() == words
    assert all(part.children or part.word for part in parse(str(found)))
    mended = [symbol for part in found.children for symbol in linearise(part)]
    assert whole == (mended == symbols and len(found.children) == 1 and "XX" not in mended)
    if len(found.children) == 1:
        assert attach(mended, words) == (found, True)


def test_linearised_tree_matches_the_literature():
    text = "(S (NP NNP )NP (VP VBZ (NP DT NN )NP )VP . )S"  # Vinyals et al., Figure 2
    john = "(S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))"
    assert linearise(tree(john)) == text.split()
    assert attach(text.split(), tree(john).words()) == (Tree("TOP", [tree(john)]), True)


@pytest.mark.parametrize(
    ("symbols", "expected"),
    [
        ("(S (NP N )NP (VP V", "(TOP (S (NP (N a)) (VP (V b)) (XX c)))"),  # no closing brackets
        ("(S (NP N )S (VP V", "(TOP (S (NP (N a))) (VP (V b) (XX c)))"),  # )S closes both
        ("(S (NP N )S V", "(TOP (S (NP (N a))) (V b) (XX c))"),
        ("(S N )NP V N )S", "(TOP (S (N a) (V b) (N c)))"),  # no NP to close
        ("(S N V N N N )S", "(TOP (S (N a) (V b) (N c)))"),  # two words too many
        ("(S (NP )NP N V N )S", "(TOP (S (N a) (V b) (N c)))"),  # an empty NP
        ("", "(TOP (XX a) (XX b) (XX c))"),
    ],
)
def test_malformed_sequences_are_repaired(symbols, expected):
    assert attach(symbols.split(), ["a", "b", "c"]) == (tree(expected), False)


def test_clean_removes_function_tags_traces_and_outer_bracket():
    raw = "( (S (NP-SBJ-1 (PRP it) (-LRB- -LRB-)) (VP (VBZ is) (NP=2 (-NONE- *)) (NP|X (NN so)))))"
    assert str(clean(tree(raw))) == "(S (NP (PRP it) (-LRB- -LRB-)) (VP (VBZ is) (NP (NN so))))"
    assert clean(tree("( (NP (-NONE- *)))")) is None


def test_both_tree_file_formats_are_read_and_broken_ones_rejected(tmp_path):
    (tmp_path / "some.mrg").write_text(f"( {CAT.replace(' (VP', chr(10) + '  (VP')} )\n\n{CAT}\n")
    lines = "".join(json.dumps({"tree": CAT}) + "\n" for _ in range(2))
    (tmp_path / "some.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    assert read_trees(tmp_path / "some.mrg") == read_trees(tmp_path / "some.jsonl.gz")
    for text, message in [
        ("(S (NP (N a))", "1 closing brackets are missing"),
        ("(S (N a)))", "more closing brackets"),
        ("word (S (N a))", "'word' where a tree should begin"),
        ("(NP the dog)", "'dog' without a tag"),
        ("(NP the (NN dog))", "a bracket after the word 'the'"),
    ]:
        (tmp_path / "broken.mrg").write_text(text)
        with pytest.raises(ValueError, match=rf"broken\.mrg: .*{message}"):
            read_trees(tmp_path / "broken.mrg")


# ------------------------------------------------------------------------------- EVALB's counts


@pytest.mark.parametrize(
    ("gold", "found", "expected"),
    [
        # The words are numbered the 0, cat 1, sees 2, a 3, dog 4.
        # Gold: S 0-5, NP 0-2, VP 2-5, NP 3-5. Found: S 0-5, NP 0-2, VP 2-3, NP 3-5.
        (CAT, "(S (NP (DT the) (NN cat)) (VP (VBZ sees)) (NP (DT a) (NN dog)) (. .))", (4, 4, 3)),
        # Tags and TOP do not count as brackets.
        (CAT, CAT.replace("NN ", "VB ").replace("(S", "(TOP (S") + ")", (4, 4, 4)),
        # A full stop within the VP does not make it longer.
        (CAT, "(S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (DT a) (NN dog)) (. .)))", (4, 4, 4)),
        # The gold tree defines punctuation: a full stop tagged NN shifts nothing.
        (CAT, CAT.replace("(. .)", "(NN .)"), (4, 4, 4)),
        # Gold: NP 0-1 twice. Found: NP 0-1 once, and an S 0-1 that the gold tree lacks.
        ("(NP (NP (NN x)))", "(S (NP (NN x)))", (2, 2, 1)),
        # The found tree has one more NP: two of its three are correct.
        ("(NP (NP (NN x)))", "(NP (NP (NP (NN x))))", (2, 3, 2)),
        # PRT and ADVP are the same to EVALB: VP 0-2 and PRT 1-2, VP 0-2 and ADVP 1-2.
        ("(VP (VB go) (PRT (RP on)))", "(VP (VB go) (ADVP (RB on)))", (2, 2, 2)),
        # A PRN that holds only a dash is not a bracket: only S 0-1 counts.
        ("(S (NN x) (PRN (: --)))", "(S (NN x) (: --))", (1, 1, 1)),
        # Quotation marks, a comma: x 0, y 1. Gold: S 0-2, NP 0-1. Found: S 0-2, NP 0-2.
        (
            "(S (`` ``) (NP (NN x)) ('' '') (, ,) (NN y))",
            "(S (NP (`` ``) (NN x) ('' '') (, ,) (NN y)))",
            (2, 2, 1),
        ),
    ],
)
def test_bracket_counts_match_manual_counts(gold, found, expected):
    counts = compare(tree(gold), tree(found))
    assert (counts["gold"], counts["found"], counts["matched"]) == expected


def test_f1_is_computed_from_total_counts():
    # Precision 3 / 4 and recall 3 / 6: 2 * 0.75 * 0.5 / 1.25 = 0.6.
    assert f1({"gold": 6, "found": 4, "matched": 3}) == pytest.approx(60)
    assert f1({"gold": 0, "found": 0, "matched": 0}) == 0


def test_verdict_on_a_parser_is_withheld_inside_the_margin():
    """`mixed` has F1 20 on the validation set and 24 on the test set; the baseline has 20 twice."""

    def row(validation, test):
        parts = {"validation": validation, "test": test}
        count = {"gold": 500, "found": 500, "sentences": 9, "well_formed": 9}
        return {
            name: {length: {**count, "matched": found} for length in LENGTHS}
            for name, found in parts.items()
        }

    base, mixed = row(100, 100), row(100, 120)
    apart, margin = difference(mixed, base)
    # In each of five groups the difference is 0 or 4 at random: its standard deviation is 2, or
    # 2 * sqrt(2) for the test set alone. That of the mean over the groups is 1 / sqrt(5) of it.
    assert (apart, margin) == pytest.approx((4, 2 * 4 / math.sqrt(2) / math.sqrt(5)))
    for facts, verdict in (
        (mixed, "better than"),
        (row(120, 80), "not distinguishable from"),
        (row(80, 80), "worse than"),
        (row(100, 100), "not distinguishable from"),
    ):
        text, _ = Parsing().findings({BASELINE: base, "1": facts}, {})
        assert f", {verdict} the baseline's 20.0" in text


def test_counts_are_grouped_by_sentence_length():
    long = right_branching(["x"] * 41, "S", "VP")
    counts = by_length([tree(CAT), long], [(tree(CAT), True), (Tree("TOP"), False)])
    names = ("sentences", "well_formed", "gold", "found", "matched")
    assert counts["1-10"] == dict(zip(names, (1, 1, 4, 4, 4), strict=True))
    # (S x (VP x (VP ... x))): one S, and a VP starting at each of the words 2 to 40.
    assert counts["over 40"] == dict(zip(names, (1, 0, 40, 0, 0), strict=True))
    assert counts["11-20"]["sentences"] == 0
    assert total(counts.values())["gold"] == 44


def test_baseline_branches_right_with_the_most_common_labels():
    # Constituents that end with the sentence: VP and NP in the first, VP in the second.
    gold = [tree(CAT), tree("(S (NP (PRP it)) (VP (VBZ barks)))")]
    assert commonest_labels(gold) == ("S", "VP")
    assert str(right_branching(["it", "barks", "."], "S", "VP")) == (
        "(S (XX it) (VP (XX barks) (XX .)))"
    )
    assert str(right_branching(["No"], "S", "VP")) == "(S (XX No))"


# ---------------------------------------------------------------------------------------- a run


def test_stages_train_on_all_phrases_up_to_their_length():
    found = [str(phrase) for phrase in phrases(tree(CAT))]
    assert found == [
        CAT,
        "(NP (DT the) (NN cat))",
        "(VP (VBZ sees) (NP (DT a) (NN dog)))",
        "(NP (DT a) (NN dog))",
    ]
    made = [
        (list(map(str, part)), updates) for part, updates in stages([tree(CAT)], [[2, 7], [9, 8]])
    ]
    assert made == [([found[1], found[3]], 7), (found, 8)]
    assert list(phrases(tree("(S (NP (PRP it)))"))) == []


@pytest.mark.slow
def test_parser_fits_its_training_trees():
    made = [each for each in invented_trees(40, seed=0) if len(each.words()) <= 9][:12]
    sizes = Parsing.sizes["tiny"] | {"d_model": 32, "dropout": 0.0, "warmup": 300}
    sizes |= {"save_every": 5}
    parser = Parser(made, sizes)
    facts = parser.train([(made, 150)], made)
    assert facts["updates"] == 150
    counts = total(by_length(made, parser.parse([each.words() for each in made])).values())
    assert f1(counts) > 80
    assert counts["well_formed"] > 8


@pytest.mark.slow
def test_tiny_size_writes_all_rows(tmp_path):
    Parsing().main(["--size", "tiny", "--results", str(tmp_path)])
    rows = json.loads((tmp_path / "table_4.tiny.json").read_text(encoding="utf-8"))["rows"]
    assert list(rows) == [BASELINE, "1/2", "1", WHOLE, MORE]
    assert [facts["trees"] for facts in rows.values()] == [16, 8, 16, 16, 32]
    assert {facts["updates"] for row, facts in rows.items() if row != BASELINE} == {3}
    page = (tmp_path / "table_4.tiny.md").read_text(encoding="utf-8")
    assert f"{f1(total(rows[BASELINE]['test'].values())):.1f}" in page
    assert "| Transformer (4 layers) | WSJ only, discriminative | 91.3 |" in page
    assert (tmp_path / "table_4.tiny.png").is_file()
