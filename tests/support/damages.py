"""What may happen to a file: each damage takes a random generator and the path."""

import shutil
from pathlib import Path


def _edited(edit):
    """Return a damage that replaces the content of a file by a function of it."""
    return lambda chance, path: path.write_bytes(edit(chance, path.read_bytes() or b"\n"))


def _flipped(start, stop):
    """Return a damage that flips a bit between two shares of a file."""

    def flip(chance, content):
        place = chance.randrange(int(start * len(content)), int(stop * len(content)) or 1)
        flipped = bytes([content[place] ^ 1 << chance.randrange(8)])
        return content[:place] + flipped + content[place + 1 :]

    return _edited(flip)


def _zeroed(chance, content):
    place = chance.randrange(len(content))
    return content[:place] + bytes(len(content[place : place + 50])) + content[place + 50 :]


def _without_a_line(chance, content):
    lines = content.splitlines(keepends=True)
    del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def _shuffled(chance, content):
    lines = content.splitlines(keepends=True)
    return b"".join(chance.sample(lines, len(lines)))


def _anothers(chance, path):
    """Put a file of the same name in its place: another run's, checkpoint's or cache's."""
    others = [other for other in sorted(Path().rglob(path.name)) if other.is_file()]
    others = [other for other in others if other.read_bytes() != path.read_bytes()]
    path.write_bytes(chance.choice(others).read_bytes() if others else b"another")


def _as_folder(chance, path):
    path.unlink()
    path.mkdir()


DAMAGES = {
    "a bit in the header": _flipped(0, 0.1),
    "a bit in the middle": _flipped(0.1, 0.9),
    "a bit in the footer": _flipped(0.9, 1),
    "zeros": _edited(_zeroed),
    "cut": _edited(lambda chance, content: content[: chance.randrange(len(content))]),
    "doubled": _edited(lambda chance, content: content * 2),
    "a line less": _edited(_without_a_line),
    "lines shuffled": _edited(_shuffled),
    "another's": _anothers,
    "gone": lambda chance, path: path.unlink(),
    "a folder": _as_folder,
    "{}": _edited(lambda chance, content: b"{}"),
    "[]": _edited(lambda chance, content: b"[]"),
    "deep": _edited(lambda chance, content: b"[" * 100_000),
    "noise": _edited(lambda chance, content: chance.randbytes(1000)),
}


def remove(path):
    """Remove a file or folder."""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
