"""Data sets of pairs: loading, caching, tokenising, padding and selection."""

import errno
import itertools
import json
import logging
import multiprocessing
import os
import random
import threading
import time
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import DataCollatorForSeq2Seq

from vanilla_transformer.convert.importers.vocabulary import word_tokenizer
from vanilla_transformer.data import clean_pairs, hold_out, pair_report
from vanilla_transformer.data import dataset as data
from vanilla_transformer.data.dataset import PairCollator, load_pairs, pair_lengths, tokenize_pairs
from vanilla_transformer.data.selection import shared_pairs
from vanilla_transformer.data.tokenizer import train_tokenizer
from vanilla_transformer.errors import RequestError

LANGUAGES = {"source_language": "en", "target_language": "de"}
PAIRS = [(f"the number {n} " * (n % 7 + 1), f"die Zahl {n} " * (n % 5 + 1)) for n in range(2500)]


@pytest.fixture(scope="module")
def tokenizer():
    texts = [side for pair in PAIRS for side in pair]
    return train_tokenizer(texts, vocab_size=320, show_progress=False)


@pytest.fixture
def load(tmp_path):
    def load(source, **kwargs):
        options = {**LANGUAGES, "cache_dir": tmp_path / "cache", "show_progress": False}
        return load_pairs(source, **{**options, **kwargs})

    return load


@pytest.fixture
def tokenize(tmp_path, tokenizer):
    def tokenize(dataset, tokenizer=tokenizer, **kwargs):
        return tokenize_pairs(
            dataset, tokenizer, cache_dir=tmp_path / "cache", show_progress=False, **kwargs
        )

    return tokenize


def write_json_lines(path, pairs):
    rows = ({"translation": {"en": source, "de": target}} for source, target in pairs)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def pairs_of(dataset):
    return list(zip(dataset["source"], dataset["target"], strict=True))


def cached_folders(tmp_path):
    return sorted(path.name for path in (tmp_path / "cache").iterdir() if path.is_dir())


def refuse_to_read(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("read or written again")
        yield

    monkeypatch.setattr("vanilla_transformer.data.dataset._text_tables", refuse)
    monkeypatch.setattr("vanilla_transformer.data.dataset._token_tables", refuse)


# ------------------------------------------------------------------------------------- loading


def test_a_second_load_uses_the_cache(load, tmp_path, monkeypatch):
    path = write_json_lines(tmp_path / "a.jsonl", PAIRS)
    first = load(path)
    refuse_to_read(monkeypatch)
    assert pairs_of(load(str(path))) == PAIRS
    assert load(path)._fingerprint == first._fingerprint


def test_a_changed_file_is_read_again(load, tmp_path):
    path = write_json_lines(tmp_path / "a.jsonl", PAIRS)
    load(path)
    write_json_lines(path, PAIRS[:-1])
    assert len(load(path)) == len(PAIRS) - 1
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    write_json_lines(path, [(source.upper(), target) for source, target in PAIRS[:-1]])
    os.utime(path, ns=times)  # same size and time
    assert load(path)["source"][0] == PAIRS[0][0].upper()


def test_other_languages_and_columns_use_another_cache(load, tmp_path):
    path = write_json_lines(tmp_path / "a.jsonl", PAIRS)
    back = load(path, source_language="de", target_language="en")
    assert load(path)["source"][:] == back["target"][:]
    path = tmp_path / "a.tsv"
    path.write_text("a\tb\tc\n")
    assert pairs_of(load(path, source_column=1, target_column=2)) == [("a", "b")]
    assert pairs_of(load(path, source_column=3, target_column="1")) == [("c", "a")]
    assert pairs_of(load(path, source_column=2, target_column=3)) == [("b", "c")]


def test_a_generator_without_a_key_is_recognised_by_its_text(load, tmp_path):
    first = load(iter(PAIRS))
    again = load(iter(PAIRS))
    other = load(iter(PAIRS[1:]))
    assert pairs_of(again) == PAIRS
    assert first._fingerprint == again._fingerprint != other._fingerprint
    assert len(cached_folders(tmp_path)) == 2


def test_a_hub_data_set_is_fetched_once_even_when_streamed(load, monkeypatch):
    fetched = []

    def load_dataset(name, config, *, split, revision, streaming):
        fetched.append((name, config, split, revision))
        rows = [{"translation": {"en": s, "de": t}} for s, t in PAIRS]
        return datasets.Dataset.from_list(rows).to_iterable_dataset()

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for _ in range(2):
        assert pairs_of(load("someone/pairs", streaming=True)) == PAIRS
    load("someone/pairs", split="test")
    load("someone/pairs", config="big")
    load("someone/pairs", revision="v1")
    assert len(fetched) == len(set(fetched)) == 4


def test_malformed_lines_are_reported_each_time(load, tmp_path, caplog):
    path = write_json_lines(tmp_path / "a.jsonl", PAIRS)
    path.write_text(path.read_text() + "x\ny\n")
    for _ in range(2):  # from the file, and from the cache
        caplog.clear()
        assert pairs_of(load(path)) == PAIRS
        assert f"Skipped malformed lines (2): {path}:{len(PAIRS) + 1}: not JSON" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "nothing in .*a.jsonl"),
        ("x\n" * 9, r"a.jsonl:1: not JSON [^;]*\(first malformed line of 9"),
    ],
)
def test_no_usable_pair_gives_an_error_with_the_reason(load, tmp_path, content, message):
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(ValueError, match=f"no usable pair: .*{message}"):
        load(tmp_path / "a.jsonl")
    with pytest.raises(ValueError, match="no usable pair: there is nothing in the pairs given"):
        load(iter([]))


# --------------------------------------------------------------------------------------- cache


def test_a_cache_of_another_user_is_read_or_named(load, tmp_path, monkeypatch):
    path = write_json_lines(tmp_path / "a.jsonl", PAIRS)
    load(path)

    def refused(self, *args, **options):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("filelock.FileLock.acquire", refused)
    assert pairs_of(load(path)) == PAIRS
    other = write_json_lines(tmp_path / "b.jsonl", PAIRS[:3])
    with pytest.raises(RequestError, match=r"another user; set HF_DATASETS_CACHE to a folder"):
        load(other)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_full_disk_leaves_no_cache(load, tmp_path, monkeypatch):
    path = write_json_lines(tmp_path / "a.jsonl", PAIRS)
    new_stream = pa.ipc.new_stream
    monkeypatch.setattr(pa.ipc, "new_stream", lambda file, schema: new_stream("/dev/full", schema))
    with pytest.raises(OSError, match="No space left on device"):
        load(path)
    assert cached_folders(tmp_path) == []


def _load_and_count(path, cache, counter):
    def pairs():
        with counter.get_lock():
            counter.value += 1
        time.sleep(0.3)
        yield from PAIRS

    dataset = load_pairs(
        pairs(), **LANGUAGES, cache_key="shared", cache_dir=cache, show_progress=False
    )
    assert pairs_of(dataset) == PAIRS


def test_one_process_writes_the_cache_while_others_wait(tmp_path):
    context = multiprocessing.get_context("fork")
    counter = context.Value("i", 0)
    processes = [
        context.Process(target=_load_and_count, args=(tmp_path, tmp_path / "cache", counter))
        for _ in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert counter.value == 1


# ----------------------------------------------------------------------------------- tokenising


def test_ids_and_lengths_equal_the_tokenizers(load, tokenize, tokenizer):
    tokens = tokenize(load(PAIRS))
    sources, targets = map(list, zip(*PAIRS, strict=True))
    expected = tokenizer(sources, text_target=targets)
    assert tokens["input_ids"][:] == expected["input_ids"]
    assert tokens["labels"][:] == expected["labels"]
    source_lengths, target_lengths = pair_lengths(tokens)
    assert source_lengths.tolist() == [len(ids) for ids in expected["input_ids"]]
    assert target_lengths.tolist() == [len(ids) for ids in expected["labels"]]
    assert isinstance(source_lengths, np.ndarray)
    assert tokens.column_names == ["input_ids", "labels", "source_length", "target_length"]
    assert tokens.features["input_ids"].feature.dtype == "int32"


def test_long_pairs_are_taken_in_smaller_blocks(load, tokenize, tokenizer, monkeypatch, tmp_path):
    pairs = load([*PAIRS[:500], PAIRS[3]])
    cleaned = pairs_of(clean_pairs(pairs))
    monkeypatch.setattr(data, "_BLOCK_BYTES", 10_000)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path))
    blocks = [table.to_pylist() for table in data.text_blocks(pairs)]
    assert len(blocks) > 1
    assert list(itertools.chain(*blocks)) == pairs.to_list()
    for block in blocks:
        assert sum(len(side) for row in block for side in row.values()) < 10_000
    assert pairs_of(clean_pairs(pairs)) == cleaned
    assert tokenize(pairs)["input_ids"][:] == tokenizer(pairs["source"][:])["input_ids"]
    monkeypatch.setattr(data, "_BLOCK_BYTES", 1)
    assert all(len(table) == 1 for table in data.text_blocks(pairs))


def test_other_tokenizers_are_called_by_one_thread_at_once(load, tokenize, tokenizer, monkeypatch):
    class Stateful:
        free = threading.Lock()

        def __call__(self, texts=None, *, text_target=None):
            assert self.free.acquire(blocking=False), "called by two threads at once"
            try:
                time.sleep(0.001)
                ids = tokenizer(texts or text_target)["input_ids"]
                return {"input_ids": ids if texts else [[7, *row] for row in ids]}
            finally:
                self.free.release()

    monkeypatch.setattr(data, "BLOCK", 100)
    fast, slow = tokenize(load(PAIRS)), tokenize(load(PAIRS), Stateful())
    assert slow["input_ids"][:] == fast["input_ids"][:]
    assert slow["labels"][:] == [[7, *row] for row in fast["labels"]]


def test_tokenising_ignores_truncation_and_padding_of_earlier_calls(load, tokenize, tokenizer):
    expected = tokenizer(PAIRS[6][0])["input_ids"]
    tokenizer(["a b c d e f", "a"], truncation=True, max_length=3, padding="max_length")
    assert tokenize(load(PAIRS))["input_ids"][6] == expected


def test_special_tokens_in_the_data_stay_text(load, tokenize):
    tokens = tokenize(load([("a </s> <pad>", "<s> b")]))
    assert tokens["input_ids"][0].count(2) == tokens["labels"][0].count(2) == 1
    assert min(tokens["input_ids"][0][:-1] + tokens["labels"][0][:-1]) > 3


@pytest.mark.parametrize(
    ("template", "start", "expected"),
    [
        ("bos $A eos", "<s>", [4, 5, 2]),
        ("bos $A eos", "</s>", [4, 5, 2]),  # one symbol for both
        ("$A eos", "</s>", [4, 5, 2]),
        ("$A eos", "<s>", [4, 5, 2]),
    ],
)
def test_labels_begin_without_a_start_symbol(load, tokenize, template, start, expected):
    tokens = ["<pad>", "<s>", "</s>", "<unk>", "ein", "Hund"]
    special = {"pad": "<pad>", "bos": start, "eos": "</s>", "unk": "<unk>"}
    words = word_tokenizer(tokens, special, template, origin="a test")
    (row,) = tokenize(load([("ein", "ein Hund")]), words)
    assert row["labels"] == expected
    assert row["target_length"] == 3
    assert row["input_ids"] == words("ein")["input_ids"]


def test_only_pairs_beyond_a_length_limit_are_left_out_and_counted(load, tokenize, caplog):
    dataset = load(PAIRS)
    whole = tokenize(dataset)
    source_lengths, target_lengths = pair_lengths(whole)
    limits = (int(np.median(source_lengths)), int(np.median(target_lengths)))
    short = (source_lengths <= limits[0], target_lengths <= limits[1])
    fits = short[0] & short[1]
    assert all((side & ~fits).any() for side in short)
    with caplog.at_level(logging.INFO):
        kept = tokenize(dataset, max_source_length=limits[0], max_target_length=limits[1])
    assert kept["input_ids"][:] == [*itertools.compress(whole["input_ids"], fits)]
    assert f"left out: {(~fits).sum()} too long, 0 empty" in caplog.text
    assert f"{fits.sum()} pairs tokenised" in caplog.text


def test_empty_pairs_of_a_users_data_set_are_left_out(tokenize, caplog):
    dataset = datasets.Dataset.from_dict(
        {"source": ["a", "", None, "d"], "target": ["b", "c", "d", " "]}
    )
    with caplog.at_level(logging.INFO):
        assert len(tokenize(dataset)) == 1
    assert "1 pair tokenised; left out: 0 too long, 3 empty." in caplog.text


def test_no_pair_within_the_limits_is_an_error(load, tokenize, tmp_path):
    dataset = load(PAIRS)
    with pytest.raises(ValueError, match=r"2500 too long, 0 empty\); raise"):
        tokenize(dataset, max_source_length=1)
    empty = datasets.Dataset.from_dict({"source": ["", "a"], "target": ["b", " "]})
    with pytest.raises(ValueError, match=r"were left out \(0 too long, 2 empty\); give"):
        tokenize(empty)
    assert len(cached_folders(tmp_path)) == 1


def test_tokens_are_cached_by_text_tokenizer_and_limits(load, tokenize, tmp_path, monkeypatch):
    dataset = load(PAIRS)
    first = tokenize(dataset)
    other = train_tokenizer(["x y z"], vocab_size=262, show_progress=False)
    assert tokenize(dataset, other)["input_ids"][:] != first["input_ids"][:]
    assert len(tokenize(dataset, max_source_length=9)) < len(first)
    assert len(tokenize(dataset.select(range(10)))) == 10
    refuse_to_read(monkeypatch)
    assert tokenize(dataset)["labels"][:] == first["labels"][:]
    assert len(tokenize(dataset, max_source_length=9)) < len(first)
    assert len(tokenize(dataset.select(range(10)))) == 10


# ------------------------------------------------------------------------------------- tensors


def random_features(count, *, seed=0):
    rng = np.random.default_rng(seed)
    return [
        {
            "input_ids": rng.integers(3, 90, rng.integers(1, 30)).tolist(),
            "labels": rng.integers(3, 90, rng.integers(1, 30)).tolist(),
        }
        for _ in range(count)
    ]


@pytest.mark.parametrize("as_type", [list, tuple, np.array, torch.tensor])
def test_batches_equal_those_of_the_stock_collator(tokenizer, as_type):
    features = random_features(17)
    stock = DataCollatorForSeq2Seq(tokenizer, return_tensors="pt")
    expected = stock([dict(feature) for feature in features])
    batch = PairCollator()([{name: as_type(ids) for name, ids in row.items()} for row in features])
    assert set(batch) == set(expected)
    for name, tensor in batch.items():
        assert tensor.dtype == torch.int64
        assert torch.equal(tensor, expected[name])


def test_the_padding_id_does_not_decide_the_mask():
    batch = PairCollator(pad_token_id=9)(
        [{"input_ids": [9, 9], "labels": [7]}, {"input_ids": [1], "labels": [2, 3]}]
    )
    assert batch["input_ids"].tolist() == [[9, 9], [1, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1], [1, 0]]
    assert batch["labels"].tolist() == [[7, -100], [2, 3]]


@pytest.mark.parametrize(
    ("name", "token", "sizes", "last"),
    [
        ("input_ids", 90, (90, None), 89),
        ("labels", 95, (90, None), 89),
        ("input_ids", -1, (90, None), 89),
        ("labels", 50, (90, 50), 49),
        ("input_ids", 50, (50, 90), 49),
    ],
)
def test_ids_outside_the_vocabulary_of_their_side_are_refused(name, token, sizes, last):
    collate = PairCollator(vocab_size=sizes[0], target_vocab_size=sizes[1])
    most = {"input_ids": [sizes[0] - 1], "labels": [(sizes[1] or sizes[0]) - 1]}
    assert collate([most])["labels"].tolist() == [most["labels"]]
    wrong = [most, {**most, name: [4, token, 5]}]
    with pytest.raises(ValueError, match=rf"token id {token} in {name}; allowed are 0 to {last}"):
        collate(wrong)
    PairCollator()(wrong)


# ----------------------------------------------------------------------------------- selection


def held_out(load, pairs, count=None):
    parts = hold_out(load(pairs), count)
    return [pairs_of(part) for part in parts]


# One in three has a text that occurs elsewhere: as a pair, as a source, as a target, across sides.
REPEATED = [(f"s{n}", f"t{n}") for n in range(600)]
REPEATED += [REPEATED[n] for n in range(60)] + [(f"s{n}", f"x{n}") for n in range(60, 120)]
REPEATED += [(f"y{n}", f" t{n} ") for n in range(120, 160)] + [(f"t{n}", "z") for n in range(200)]


def test_held_out_pairs_share_no_text_with_the_others(load):
    parts = held_out(load, REPEATED)
    assert [len(part) for part in parts] == [len(REPEATED) - 96, 48, 48]
    assert sorted(itertools.chain(*parts)) == sorted(REPEATED)  # nothing is lost
    texts = [{side.strip() for pair in part for side in pair} for part in parts]
    assert all(a.isdisjoint(b) for a, b in itertools.combinations(texts, 2))
    in_training = set(parts[0])
    assert parts[0] == [pair for pair in REPEATED if pair in in_training]  # in their order


def test_held_out_pairs_depend_only_on_the_texts(load):
    _, validation, test = held_out(load, REPEATED, 20)
    shuffled = random.Random(1).sample(REPEATED, len(REPEATED))
    assert held_out(load, shuffled, 20)[1:] == [validation, test]
    more = held_out(load, [*REPEATED, ("new", "neu")], 30)
    assert len(set(test) - set(more[2])) <= 1


def test_pairs_too_long_to_translate_are_not_held_out(load):
    long = [
        (f"{n}" + "ä" * 2000, f"l{n}") if n % 2 else (f"l{n}", "b" * 4001 + str(n))
        for n in range(20)
    ]
    fits = [("c" * 4000, "d" * 4000), ("e", "f"), ("g", "h"), ("i", "j")]
    train, validation, test = held_out(load, [*long, *fits], 2)
    assert train == long
    assert sorted([*validation, *test]) == sorted(fits)
    with pytest.raises(RequestError, match=r"only 2 of 24 with .* at most 4000 bytes"):
        held_out(load, [*long, *fits], 3)


GOOD = [(f"a good sentence, the {n}th", f"ein guter Satz, der {n}te") for n in range(40)]
FAULTY = {
    "duplicates": [GOOD[3], GOOD[3], (f" {GOOD[4][0]}", GOOD[4][1])],
    "copies": [("the same", "the same"), ("as is", "as is ")],
    "odd_ratios": [("short", "x" * 80), ("y" * 80, "kurz"), ("z" * 80, "zu kurz " * 3)],
}
FINE = [(GOOD[5][0], "anders gesagt, fünf"), ("no", "x" * 30), ("y" * 90, "nicht kurz " * 3)]


@pytest.mark.parametrize("stretch", [1, 4])
def test_faulty_pairs_are_counted_and_left_out_by_one_rule(load, stretch):
    """Also if one language takes many more characters than the other."""
    pairs = [*GOOD, *FAULTY["duplicates"], *FAULTY["copies"], *FAULTY["odd_ratios"], *FINE]
    if stretch > 1:
        pairs = [(source, "".join(c * stretch for c in target)) for source, target in GOOD]
        pairs += [("y" * 80, "kurz"), ("a good sentence", "x" * 400)]
    dataset = load([*pairs, ("", "empty"), ("no pair",)])
    report = pair_report(dataset)
    expected = {name: len(rows) for name, rows in FAULTY.items()}
    if stretch > 1:
        expected = {"duplicates": 0, "copies": 0, "odd_ratios": 2}
    assert report == {"read": len(pairs), "malformed": 2, "empty": 1, **expected}
    clean = clean_pairs(dataset)
    assert pairs_of(clean) == (pairs[:40] if stretch > 1 else [*GOOD, *FINE])
    after = pair_report(clean)
    assert after == report | dict.fromkeys(("placeholders", "swapped", "foreign"), 0)


def test_cleaning_that_leaves_no_pair_is_refused_with_the_reasons(load):
    dataset = load([("a", "a"), ("b", "b"), ("a", "a")])
    with pytest.raises(RequestError, match=r"no pair is left.* 1 duplicate, 2 with two equal"):
        clean_pairs(dataset)


def test_only_pairs_with_unique_texts_are_held_out(load):
    few = [("It is a test.", f"b{n}") for n in range(200)] + [(f"c{n}", f"d{n}") for n in range(7)]
    train, validation, test = held_out(load, few)
    assert (len(train), len(validation), len(test)) == (201, 3, 3)
    with pytest.raises(RequestError, match=r"got 4 pairs.* only 3 of 207 with"):
        held_out(load, few, 4)
    assert held_out(load, few[:200]) == [few[:200], [], []]
    for count in (0, 2.0):
        with pytest.raises(RequestError, match=f"Got count={count!r}; it must be a whole number"):
            held_out(load, few, count)
    assert [len(part) for part in held_out(load, few[-3:], 1)] == [1, 1, 1]


def test_test_pairs_shared_with_training_are_counted(load):
    training = load([("one", "eins"), ("two", "zwei"), ("two", "zwo"), ("three", "drei")])
    test = load([("two", "zwo"), (" one", "eins "), ("one", "zwei"), ("eins", "one")])
    typed = load([("a  gr\u00fcn", "x\u00a0y")]), load([("a gru\u0308n", "x y")])
    assert shared_pairs(*typed) == 1  # spaces and composition aside
    for _ in range(2):  # the second time from the cache
        assert shared_pairs(test, training) == 2
    assert shared_pairs(training, training) == 4
