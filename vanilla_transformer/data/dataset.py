"""Sentence pairs as data sets: read once, tokenised once, batched as tensors.

Text and tokens are cached in memory-mapped files (cache.py): memory hardly grows with the number of
pairs, and a second run reads and tokenises nothing again.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from ..errors import RequestError, quoted
from ..loss import IGNORED
from ..machine.progress import progress
from ..storage.reading import counted, read_json, sha256
from ..target_tokenizer import target_tokenizer
from ..texts.targets import writes_start
from ..texts.unknown import unknown_tokens
from .cache import Tables, cached
from .checked_pairs import EmptyError
from .columns import SAMPLE
from .doubts import doubts_of, refuse_doubtful
from .pair_files import PairReader, PairSource, files_below, kind_of, read_pairs

if TYPE_CHECKING:
    import pyarrow
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

# One mapping per pair, with `input_ids` and `labels`; other keys are allowed.
Features = Sequence[Mapping[str, Sequence[int] | np.ndarray]]

CORPUS = "corpus"  # column that numbers the joined data sets, from 0
MADE = "made"  # column that says how a pair was made from others: bits such as JOINED
_MARKS = (CORPUS, MADE)
BLOCK = 8000  # pairs taken at a time; each block has an overhead of about 15 ms
_BLOCK_BYTES = 2**22  # limit on a block's bytes of text; tokenizing takes 100 bytes for each token
_READ = 1000  # pairs read at a time, of at most 128 KiB each


def load_pairs(
    source: PairSource,
    *,
    source_language: str,
    target_language: str,
    cache_key: str | None = None,
    cache_dir: str | os.PathLike | None = None,
    show_progress: bool = True,
    **reading: Any,
) -> Dataset:
    """Load sentence pairs as a cached data set with the columns `source` and `target`.

    A cache is found by the name and SHA-256 digest of each file, or by the name of a Hub data set,
    and by the arguments. To follow a Hub data set that changes, give its `revision`.

    Args:
        source: See `read_pairs`.
        source_language: Language of the sources, or the name of their column.
        target_language: Language of the targets, or the name of their column.
        cache_key: Name for the content of an iterable of pairs, which is then read only once. None
            reads the pairs each time and recognises them by their text.
        cache_dir: Folder of the caches. None is the cache folder of `datasets`.
        show_progress: Draw a progress bar.
        **reading: Other arguments of `read_pairs`: columns, split, config, revision, streaming,
            strict.

    Raises:
        FileNotFoundError: No such file.
        ValueError: No usable pair, no such column, files of unequal length, a broken file, or,
            with `strict`, a malformed line.
    """
    reading |= {"source_language": source_language, "target_language": target_language}
    reader = read_pairs(source, **reading)
    identity = _identity(source, cache_key)
    key = None if identity is None else [identity, sorted(reading.items())]
    is_named = reader.given is not None or kind_of(source) == "pairs"
    tables = _text_tables(reader, is_named=is_named, show_progress=show_progress)
    dataset, report = cached("pairs", key, tables, cache_dir=cache_dir)
    for note in report["notes"][len(reader.notes) :]:  # notes of an earlier reading, from the cache
        logger.warning(note)
    if report["malformed"]:
        examples = "; ".join(map(str, report["examples"]))
        logger.warning("Skipped malformed lines (%d): %s.", report["malformed"], examples)
    if (doubts := report["doubts"])["text"]:
        logger.log(logging.WARNING if doubts["is_warning"] else logging.INFO, doubts["text"])
    if kind_of(source) != "pairs":  # pairs in memory were logged when they were read
        first = [quoted(dataset[0][side], 60) for side in ("source", "target")]
        read = (counted(len(dataset), "pair"), f"{source_language}-{target_language}", reader.name)
        logger.info("Read %s (%s) from %s; the first: %s -> %s.", *read, *first)
    return dataset


def reading_report(dataset: Dataset) -> dict[str, Any]:
    """Return the counts that `load_pairs`, `clean_pairs` or `tokenize_pairs` stored for a data set.

    Returns:
        `rows`; for texts the number of `malformed` lines, how many of these are `empty`, and
        `examples`; for tokens the numbers of pairs left out as `too_long` or `empty`, and warnings
        of `unknown` tokens. For a data set in memory, which has no report, the counts are 0.
    """
    folders = [Path(file["filename"]).parent for file in dataset.cache_files]
    reports = [read_json(path) for folder in folders if (path := folder / "report.json").is_file()]
    if len(reports) == 1:
        return reports[0]
    counts = ("rows", "malformed", "empty")  # summed over joined data sets, if any
    return {name: sum(report.get(name, 0) for report in reports) for name in counts}


def mark_corpus(dataset: Dataset, number: int) -> Dataset:
    """Add a column `corpus` that holds the same number for all pairs.

    `tokenize_pairs` keeps it. Several data sets, numbered from 0 and joined by
    `datasets.concatenate_datasets`, are drawn by the weights of a trainer's `train_weights`.
    """
    import pyarrow as pa
    from datasets import Dataset, concatenate_datasets

    table = pa.table({CORPUS: pa.repeat(pa.scalar(number, pa.int32()), len(dataset))})
    column = Dataset(table, fingerprint=f"{CORPUS}-{number}")  # part of cache keys
    return concatenate_datasets([dataset, column], axis=1)


def sentences(dataset: Dataset, *sides: str) -> Iterator[str]:
    """Yield all sources and targets of a data set, or one side, to train a tokenizer on."""
    for table in text_blocks(dataset):
        for column in table.select(sides or table.column_names).columns:
            yield from column.to_pylist()


def text_blocks(dataset: Dataset, *, with_marks: bool = False) -> Iterator[pyarrow.Table]:
    """Yield the columns `source` and `target` of a data set, as text, in blocks of rows.

    A block has 8,000 rows, or 4 MiB if they are long. `with_marks` adds the columns `corpus` and
    `made`, if there are any. Iterating over a column, one row at a time, takes 100 times longer.
    """
    import pyarrow as pa

    types = {"source": pa.string(), "target": pa.string()}
    if with_marks:
        types |= dict.fromkeys(_marks(dataset), pa.int32())
    columns = dataset.select_columns([*types]).with_format("arrow")
    for table in columns.iter(BLOCK):
        rows = max(1, len(table) * _BLOCK_BYTES // max(1, table.nbytes))
        for start in range(0, len(table), rows):
            yield table.slice(start, rows).cast(pa.schema(types))


def _marks(dataset: Dataset) -> list[str]:
    return [name for name in _MARKS if name in dataset.column_names]


def _identity(source: Any, cache_key: str | None) -> list | None:
    """Return digests or names that identify a source in the cache key; None if there are none."""
    if cache_key is not None:
        return ["named", cache_key]
    kind = kind_of(source)
    if kind in ("dataset", "pairs"):
        fingerprint = getattr(source, "_fingerprint", None)  # streams and iterables have none
        return None if fingerprint is None else ["dataset", fingerprint]
    paths = [Path(path) for path in (source if kind == "parallel" else [source])]
    if kind == "hub":
        if not paths[0].is_dir():
            return ["hub", os.fspath(source)]
        paths = [paths[0] / path for path in files_below(paths[0])]
    # With file names, because the cached report of malformed lines contains them.
    return [kind, [(str(path), sha256(path)) for path in paths]]


def _text_tables(reader: PairReader, *, is_named: bool, show_progress: bool) -> Tables:
    """Yield the pairs; refuse them if most are not translations, unless columns were named."""
    import pyarrow as pa

    pairs = iter(progress(reader, what=f"Reading {reader.name}", unit="pairs", shown=show_progress))
    rows, sample, step = 0, list[tuple[str, str]](), 1  # a sample, as `sampled` takes it
    while batch := list(islice(pairs, _READ)):
        sample += batch[-rows % step :: step]
        rows += len(batch)
        if len(sample) >= 2 * SAMPLE:
            sample, step = sample[::2], 2 * step
        columns = [pa.array(side, pa.string()) for side in zip(*batch, strict=True)]
        yield pa.table(columns, ["source", "target"])
    if not rows:
        problem = f"there is nothing in {reader.name}"
        if reader.examples:
            problem = f"{reader.examples[0]} (first malformed line of {reader.num_malformed})"
        remedy = "Check --pair and the format, or give --source-column and --target-column"
        raise RequestError(f"got no usable pair: {problem}. {remedy}.")
    sources, targets = zip(*sample, strict=True)
    doubts = doubts_of(sources, targets, reader.languages, reader.name)
    if not is_named:
        refuse_doubtful(doubts, reader.languages)
    return {
        "doubts": doubts,
        "malformed": reader.num_malformed,
        "empty": reader.faults[EmptyError],
        "examples": reader.examples,
        "notes": reader.notes,
    }


# ------------------------------------------------------------------------------------ tokenising


def tokenize_pairs(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_source_length: int | None = None,
    max_target_length: int | None = None,
    cache_dir: str | os.PathLike | None = None,
    show_progress: bool = True,
) -> Dataset:
    """Tokenize all pairs that are not too long, and cache the token ids.

    Pairs beyond a limit are left out, never cut: half a sentence has no translation.

    Args:
        dataset: Data set with the columns `source` and `target`, as from `load_pairs`.
        tokenizer: Tokenizer that appends `</s>` to both sides; targets are encoded by its
            `target_tokenizer`. A start symbol is removed from labels, since the model prepends its
            own. All cores are used, unless `RAYON_NUM_THREADS` or `TOKENIZERS_PARALLELISM` limits
            them.
        max_source_length: Most tokens of a source, `</s>` included. None for no limit.
        max_target_length: Most tokens of a target, `</s>` included. None for no limit.
        cache_dir: Folder of the caches. None is the cache folder of `datasets`.
        show_progress: Draw a progress bar.

    Returns:
        Data set with `input_ids` and `labels` (lists of int32), `source_length` and
        `target_length` (int32), and `corpus` and `made` if the pairs have them.

    Raises:
        ValueError: No pair within the limits.
    """
    encoders = [_Encoder(tokenizer), _Encoder(target_tokenizer(tokenizer), of_targets=True)]
    limits = [max_source_length, max_target_length]
    key = [dataset._fingerprint, *(encoder.digest for encoder in encoders), limits]
    tables = _token_tables(dataset, encoders, limits, show_progress)
    tokens, report = cached("tokens", key, tables, cache_dir=cache_dir)
    logger.info("%s tokenised; left out: %s.", counted(report["rows"], "pair"), _left_out(report))
    for unknown in report["unknown"]:
        logger.warning(unknown)
    return tokens


def _left_out(report: Mapping[str, Any]) -> str:
    return f"{report['too_long']} too long, {report['empty']} empty"


def pair_lengths(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return source and target lengths in tokens, without reading the tokens.

    Args:
        dataset: Data set with the columns `input_ids` and `labels`, as from `tokenize_pairs`. If it
            has a transform (`with_transform`), every row is read once, to count its tokens after
            the transform; their number must be the same whenever the row is read.
    """
    import pyarrow.compute as pc

    if dataset.format["type"] == "custom":
        rows = ((len(row["input_ids"]), len(row["labels"])) for row in dataset)
        sides = np.fromiter(rows, np.dtype((np.int64, 2)), len(dataset))
        return sides[:, 0], sides[:, 1]
    columns = dataset.select_columns(["input_ids", "labels"]).with_format("arrow")[:]
    ids, labels = (pc.list_value_length(columns[name]) for name in ("input_ids", "labels"))
    return ids.to_numpy(), labels.to_numpy()


def pair_corpora(dataset: Dataset) -> np.ndarray | None:
    """Return each pair's corpus number, (N,); None without the column of `mark_corpus`."""
    return dataset.with_format("numpy")[CORPUS][:] if CORPUS in dataset.column_names else None


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a digest of a tokenizer that is the same wherever it was loaded from.

    For a tokenizer written in Python, it covers the class and the id of each piece.
    """
    sides = []
    for side, of_targets in ((tokenizer, False), (target_tokenizer(tokenizer), True)):
        encoder = _Encoder(side, of_targets=of_targets)
        if encoder.is_fast:
            sides.append(encoder.digest)
        else:
            ids = getattr(side, "encoder", None) or side.get_vocab()
            sides.append(f"{type(side).__name__} {sorted(ids.items())}")
    return hashlib.sha256("".join(sides).encode()).hexdigest()


def has_tokens(dataset: object) -> bool:
    """Return whether a data set has token columns and a known number of rows."""
    columns = getattr(dataset, "column_names", None) or ()
    return {"input_ids", "labels"} <= set(columns) and isinstance(dataset, Sized)


def pairs_digest(dataset: Dataset) -> str:
    """Return a digest of the token ids of all pairs, in order, and of their corpora."""
    import pyarrow as pa
    import pyarrow.compute as pc

    digest = hashlib.sha256()
    corpora = pair_corpora(dataset)
    for numbers in (*pair_lengths(dataset), *([] if corpora is None else [corpora])):
        digest.update(np.ascontiguousarray(numbers, dtype=np.int64).data)
    for table in dataset.select_columns(["input_ids", "labels"]).with_format("arrow").iter(BLOCK):
        for column in table.columns:
            ids = pc.list_flatten(column).cast(pa.int32()).to_numpy()
            digest.update(np.ascontiguousarray(ids).data)
    return digest.hexdigest()


def texts_digest(dataset: Dataset) -> str:
    """Return a digest of the texts of all pairs, in order."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from xxhash import xxh3_128

    sides = xxh3_128(), xxh3_128()
    for table in text_blocks(dataset):
        for digest, column in zip(sides, table.columns, strict=True):
            texts = column.combine_chunks()
            joined = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\0")
            digest.update(f"{joined[0]}\0".encode())
    return "".join(digest.hexdigest() for digest in sides)


class _Encoder:
    """Encoder of the texts of one side, source or target, as token ids.

    Attributes:
        digest: Digest of the settings that decide the ids.
        is_fast: Whether two threads may call it at once.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, of_targets: bool = False) -> None:
        from datasets.fingerprint import Hasher
        from transformers import PreTrainedTokenizerFast

        self.tokenizer, self.of_targets = tokenizer, of_targets
        self.start = int(of_targets and writes_start(tokenizer))
        # A subclass may encode targets differently, and store which side it encodes now.
        self.is_fast = type(tokenizer) is PreTrainedTokenizerFast
        if not self.is_fast:
            self.digest = Hasher.hash(tokenizer)
            return
        self.backend = copy.deepcopy(tokenizer.backend_tokenizer)
        self.backend.no_truncation()  # an earlier call may have enabled it, or padding
        self.backend.no_padding()
        self.backend.encode_special_tokens = tokenizer.split_special_tokens
        marks = f"{self.backend.to_str()}{tokenizer.split_special_tokens}{self.start}"
        self.digest = hashlib.sha256(marks.encode()).hexdigest()

    def __call__(self, texts: list[str]) -> list[list[int]]:
        if self.is_fast:
            rows = [encoding.ids for encoding in self.backend.encode_batch_fast(texts)]
        else:
            call, of_targets = self.tokenizer, self.of_targets
            rows = (call(text_target=texts) if of_targets else call(texts))["input_ids"]
        return [row[self.start :] for row in rows] if self.start else rows


def _token_tables(
    dataset: Dataset, encoders: list[_Encoder], limits: list[int | None], show_progress: bool
) -> Tables:
    import pyarrow as pa
    import pyarrow.compute as pc

    sides = "source", "target"
    names = ["input_ids", "labels", "source_length", "target_length", *_marks(dataset)]
    bounds = [np.inf if limit is None else limit for limit in limits]
    rows = 0
    report: dict[str, Any] = {"too_long": 0, "empty": 0, "unknown": []}
    for head in islice(text_blocks(dataset), 1):
        for side, encode in zip(sides, encoders, strict=True):
            texts = [text for text in head[side].to_pylist() if (text or "").strip()]
            if unknown := unknown_tokens(encode.tokenizer, texts, encode(texts)):
                report["unknown"].append(f"On the {side} side {unknown}.")

    def encoded(block: pa.Table) -> tuple[int, int, pa.Table]:
        """Return the numbers of all and of non-empty pairs, and the tokens of those that fit."""
        bare = [pc.utf8_trim_whitespace(pc.fill_null(block[side], "")) for side in sides]
        filled = block.filter(pc.and_(*(pc.not_equal(text, "") for text in bare)))
        ids = [
            pa.array(encode(filled[side].to_pylist()), pa.list_(pa.int32()))
            for side, encode in zip(sides, encoders, strict=True)
        ]
        lengths = [pc.list_value_length(column) for column in ids]
        table = pa.table([*ids, *lengths, *filled.columns[2:]], names)
        fits = (bounds >= np.array(lengths).T).all(axis=1)
        return len(block), len(filled), table.filter(pa.array(fits))

    blocks = text_blocks(dataset, with_marks=True)
    # The tokenizer releases the GIL: blocks are encoded while others are written, and a second one
    # keeps all cores busy while the first one ends.
    workers = 2 if all(encoder.is_fast for encoder in encoders) else 1
    work: dict[str, Any] = {"what": "Tokenising", "unit": "pairs", "total": len(dataset)}
    with progress(**work, shown=show_progress) as bar:
        for size, filled, table in _computed_ahead(encoded, blocks, workers):
            yield table
            rows += len(table)
            report["too_long"] += filled - len(table)
            report["empty"] += size - filled
            bar.update(size)
    if not rows:
        remedy = "raise the limits" if report["too_long"] else "give pairs with two texts"
        raise RequestError(f"all pairs were left out ({_left_out(report)}); {remedy}.")
    return report


def _computed_ahead(
    function: Callable[[Any], Any], items: Iterable[Any], workers: int
) -> Iterator[Any]:
    """Yield a function's results in the order of the items, computed ahead in threads."""
    with ThreadPoolExecutor(workers) as pool:
        ahead: deque[Future] = deque()
        for item in items:
            ahead.append(pool.submit(function, item))
            if len(ahead) > workers:
                yield ahead.popleft().result()
        yield from (future.result() for future in ahead)


# ------------------------------------------------------------------------------------- tensors


@dataclass(kw_only=True, frozen=True)
class PairCollator:
    """Collator that makes a right-padded batch of tensors from tokenised pairs.

    Args:
        pad_token_id: Id that pads `input_ids`.
        vocab_size: Size of the model's vocabulary, to refuse other ids here: on a GPU they fail
            with an assertion that does not name them. None for no check.
        target_vocab_size: The same for `labels`, if targets have their own vocabulary.
        shift: The model's function from labels to `decoder_input_ids`, which losses other than the
            model's own need. None: these ids are not made.
        read: Names of the arguments that the model's `forward` reads, to refuse columns of these
            names that this collator cannot batch.
    """

    pad_token_id: int = 0
    vocab_size: int | None = None
    target_vocab_size: int | None = None
    shift: Callable[[torch.Tensor], torch.Tensor] | None = None
    read: frozenset[str] = frozenset()

    def __call__(self, features: Features) -> dict[str, torch.Tensor]:
        """Batch `input_ids`, `attention_mask` (B, S) and `labels` (B, T), if any, all int64.

        `decoder_input_ids` and `decoder_attention_mask` (B, T) are batched too, if there are any.

        Raises:
            ValueError: A token id that is not in the vocabulary, a side without tokens, or a column
                that the model reads but this collator cannot batch.
            TypeError: A side that has no integers.
        """
        pad = self.pad_token_id
        fillers = {"input_ids": pad, "attention_mask": 0, "labels": IGNORED}
        fillers |= {"decoder_input_ids": pad, "decoder_attention_mask": 0}
        if unread := features[0].keys() & self.read - {*fillers}:
            names = ", ".join(sorted(unread))
            raise RequestError(f"PairCollator cannot batch {names}; give another data_collator.")
        given = {name: [row[name] for row in features] for name in fillers if name in features[0]}
        given.setdefault("attention_mask", [np.ones(len(ids), int) for ids in given["input_ids"]])
        batch = {}
        for name, column in given.items():
            if not all(map(len, column)):
                raise RequestError(f"got a pair without any {name}; leave such pairs out.")
            rows = [np.asarray(row).astype(np.int64, casting="same_kind") for row in column]
            self._check(name, np.concatenate(rows))
            parts = [*map(torch.from_numpy, rows)]
            batch[name] = pad_sequence(parts, batch_first=True, padding_value=fillers[name])
        if self.shift is not None and "labels" in batch and "decoder_input_ids" not in batch:
            batch["decoder_input_ids"] = self.shift(batch["labels"])
        return batch

    def _check(self, name: str, ids: np.ndarray) -> None:
        size = (name != "input_ids" and self.target_vocab_size) or self.vocab_size
        if size is None:
            return
        known = (ids >= 0) & (ids < size)
        if name != "input_ids":  # labels and decoder ids may contain -100
            known |= ids == IGNORED
        if not known.all():
            wrong = f"token id {ids[~known][0]} in {name}; allowed are 0 to {size - 1}"
            raise RequestError(f"got {wrong}. Was another tokenizer used?")
