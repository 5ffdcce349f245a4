"""Recognize models of other systems by the names of their files and by words in the files.

foreign_models.toml lists the systems.
"""

import fnmatch
import re
import tomllib
import zipfile
from contextlib import suppress
from pathlib import Path

_READ = 2**20  # bytes of a file that are searched
_WORD, _TYPE = re.compile(rb"[A-Za-z_][\w.:]{2,99}"), re.compile(rb'"model_type": *"(\w+)"')


def foreign_model(path: Path) -> str | None:
    """Describe another system's model in a file or folder, and what to do; None if unknown.

    Only names of files and their beginnings are read, and nothing in them is run.
    """
    found: set[str] = set()
    with suppress(Exception):  # damaged files raise many types of errors; they are not recognized
        if path.is_dir():
            found = {each.name for each in path.iterdir()}
            settings = _start(path / "config.json") if (path / "config.json").is_file() else b""
            found |= {f"type={name.decode()}" for name in _TYPE.findall(settings)}
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
                for name in names:
                    if name.endswith("data.pkl"):  # written by torch.save
                        found |= _words(archive.open(name).read(_READ))
            found |= {Path(name).name for name in names}
        elif path.is_file():
            found = {path.name} | _words(_start(path))
    table = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    for model in tomllib.loads(table)["model"]:
        if all(fnmatch.filter(found, sign) for sign in model["signs"]):
            return f"{model['name']}; {model['advice']}"
    return None


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_READ)


def _words(content: bytes) -> set[str]:
    """Return all words; those that end in q or r also without it, which may be a pickle opcode."""
    words = {word.decode() for word in _WORD.findall(content)}
    return words | {word[:-1] for word in words if word.endswith(("q", "r"))}
