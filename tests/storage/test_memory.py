"""Small files that unpack to gigabytes are refused in one line, in at most 1 GB of memory."""

import gzip
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
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
        columns = {"de": column(), "en": column()}
        if nested:
            sides = pa.StructArray.from_arrays([*columns.values()], [*columns])
            columns = {"translation": sides}
        parquet.write_table(pa.table(columns), path, compression="zstd", write_statistics=False)

    return write


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


def model(path, name="config.json", change=str):
    tiny_model().save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    (path / name).write_text(change((path / name).read_text()))


def changed(name, **fields):
    return lambda path: model(path, name, lambda text: json.dumps(json.loads(text) | fields))


def aliases(path):
    lines = [f"b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    path.write_text("\n".join(["a: &a0 [x, x, x]", *lines]))


def text(content):
    return lambda path: path.write_text(content)


BOMBS = {
    "line": ("pairs", folder(packed(b'{"de": "', b"a" * MIB), "a.json.gz"), "longer than 1 MiB"),
    "nested.parquet": ("pairs", table(lambda: pa.array(["a" * MIB] * 50), True), "than 64 KiB"),
    "lists.parquet": ("pairs", table(lambda: pa.array([["a"]])), "not two of them hold text"),
    "line.jsonl.gz": ("pairs", packed(b'{"de": "', b"a" * MIB), "longer than 1 MiB"),
    "wide.zip": ("pairs", wide_zip, "unpack it"),
    "attribute.tmx.gz": ("pairs", packed(b'<tmx a="', b"a" * MIB), "more than 16 MiB of XML"),
    "variants.tmx.gz": ("pairs", packed(b"<tmx><tu>", b"<tuv/>" * 2**16), "too large for a unit"),
    "entities.tmx": ("pairs", text(f"<!DOCTYPE tmx [{ENTITIES}]><tmx>&a9;</tmx>"), "amplification"),
    "set.xml.gz": ("pairs", packed(b"<dataset>", b"<a/>" * MIB), "too large for a test set"),
    "lists.json": ("json", text(f"[{'[],' * 5 * MIB}[]]"), "the content in"),
    "aliases.yaml": ("yaml", aliases, "it has an alias"),
    "panic": ("tokenizer", changed("tokenizer.json", pre_tokenizer=PANIC), "must be non-zero"),
    "picture": ("picture", model, "more than a picture can show"),
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
