"""Small files that unpack to gigabytes are refused in one line, in at most 1 GB of memory."""

import gzip
import json
import lzma
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from published_runs import tiny_model, tiny_tokenizer
from pyarrow import parquet

ROOT = Path(__file__).parents[2]
MIB = 2**20
PANIC = {"type": "FixedLength", "length": 0}  # of the tokenizer's library, in Rust
ENTITIES = '<!ENTITY a0 "aaaaaaaaaa">' + "".join(
    f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10)
)


def table(column, nested=False):
    """Return a function that writes the same column twice, perhaps within another."""

    def write(path):
        columns = dict.fromkeys(("de", "en"), column())
        if nested:
            sides = pa.StructArray.from_arrays([*columns.values()], [*columns])
            columns = {"translation": sides}
        parquet.write_table(pa.table(columns), path, compression="zstd", write_statistics=False)

    return write


def shared(count=64, size=20_000_000):
    """Return 64 times the same 20 MB."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count), pa.array(["a" * size]))


def prefixes(path):
    """Write 40 times the same 30 MB, each but the first as a prefix of the one before."""
    table = pa.table({"de": shared(40, 30 * MIB).dictionary_decode(), "en": ["b"] * 40})
    options = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
    options |= {"column_encoding": {"de": "DELTA_BYTE_ARRAY", "en": "PLAIN"}}
    parquet.write_table(table, path, **options)


def folder(write, name):
    """Return a function that writes a folder with one file."""

    def write_folder(path):
        path.mkdir()
        write(path / name)

    return write_folder


def packed(begin, unit, count=17 * MIB):
    def write(path):
        with gzip.open(path, "wb", 1) as file:
            file.write(begin)
            for _ in range(count // len(unit)):
                file.write(unit)

    return write


def wide_zip(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for language in ("de", "en"):
            archive.writestr(f"a.{language}", b"a\n")


def wide_xz(path):
    """Write an xz file that asks for a dictionary of 2 GiB."""
    content = bytearray(lzma.compress(b"a\tb\n", preset=0))
    end = 12 + 4 * content[12]  # of the first block's header, before its checksum
    content[16] = 38
    content[end : end + 4] = zlib.crc32(content[12:end]).to_bytes(4, "little")
    path.write_bytes(content)


def repacked(path):
    torch.save({"a": torch.zeros(3 * MIB)}, path)
    with zipfile.ZipFile(path) as whole:
        parts = {name: whole.read(name) for name in whole.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)


def stretched(path):
    torch.save([{"a": torch.zeros(1).expand(10**6, 10**6)}], path)


def model(path, name="config.json", change=str):
    tiny_model().save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    (path / name).write_text(change((path / name).read_text()))


def changed(name, **fields):
    return lambda path: model(path, name, lambda text: json.dumps(json.loads(text) | fields))


def padded(path):
    model(path, "tokenizer.json", lambda text: text + " " * 33 * MIB)


def long_header(path):
    model(path)
    with (path / "model.safetensors").open("r+b") as file:
        file.write((90 * MIB).to_bytes(8, "little"))
        file.truncate(100 * MIB)


def aliases(path):
    lines = [f"b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    path.write_text("\n".join(["a: &a0 [x, x, x]", *lines]))


def text(content):
    return lambda path: path.write_text(content)


BOMBS = {
    "shared.parquet": ("pairs", table(shared), " than "),  # 64 KiB, or 1 GB
    "long.parquet": ("pairs", table(lambda: pa.array(["a" * 300 * MIB])), "less than 1 GB"),
    "prefixes.parquet": ("pairs", prefixes, "less than 1 GB"),
    "line": ("pairs", folder(packed(b'{"de": "', b"a" * MIB), "a.json.gz"), "longer than 1 MiB"),
    "nested.parquet": ("pairs", table(lambda: pa.array(["a" * MIB] * 50), True), "than 64 KiB"),
    "lists.parquet": ("pairs", table(lambda: pa.array([["a"]])), "the source is list"),
    "line.jsonl.gz": ("pairs", packed(b'{"de": "', b"a" * MIB), "longer than 1 MiB"),
    "wide.tsv.xz": ("pairs", wide_xz, "Memory usage limit"),
    "wide.zip": ("pairs", wide_zip, "decompress it"),
    "attribute.tmx.gz": ("pairs", packed(b'<tmx a="', b"a" * MIB), "more than 16 MiB of XML"),
    "variants.tmx.gz": ("pairs", packed(b"<tmx><tu>", b"<tuv/>" * 2**16), "has a unit of more"),
    "entities.tmx": ("pairs", text(f"<!DOCTYPE tmx [{ENTITIES}]><tmx>&a9;</tmx>"), "amplification"),
    "set.xml.gz": ("pairs", packed(b"<dataset>", b"<a/>" * MIB), "test set of more than"),
    "lists.json": ("json", text(f"[{'[],' * 5 * MIB}[]]"), "the content in"),
    "aliases.yaml": ("yaml", aliases, "YAML aliases, as in"),
    "packed.pt": ("pickle", repacked, "it decompresses to"),
    "stretched.pt": ("pickle", stretched, "is not stored completely"),
    "header": ("model", long_header, "header too large: 94,371,840 bytes"),
    "wide": ("model", changed("config.json", vocab_size=10**7), "config.json needs"),
    "pieces": ("tokenizer", padded, "larger than 32 MiB"),
    "panic": ("tokenizer", changed("tokenizer.json", pre_tokenizer=PANIC), "must be non-zero"),
    "picture": ("picture", model, "draw at most 512"),
}


@pytest.fixture(scope="module")
def readings(tmp_path_factory):
    """Return, for each bomb, the bytes that reading it took, and the message."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("only Linux measures the memory of a part of a process")
    folder = tmp_path_factory.mktemp("bombs")
    words = [sys.executable, ROOT / "tests/support/measured_reads.py"]
    for name, (kind, write, _) in BOMBS.items():
        write(folder / name)
        words += [kind, folder / name]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    lines = map(json.loads, ended.stdout.splitlines())
    return dict(zip(BOMBS, lines, strict=False)), ended.stderr


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_one_line_and_little_memory(readings, name):
    measured, errors = readings
    assert name in measured, errors[-2000:]
    size, said = measured[name]
    assert BOMBS[name][2] in said
    assert "\n" not in said
    assert size < 2**30
