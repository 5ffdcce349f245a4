"""Files that come with the package: models, recipes, card templates, the demo page."""

import re
from pathlib import Path

from ..errors import RequestError

_PACKAGE = Path(__file__).resolve().parents[1]


def shipped_folder(in_wheel: str, in_clone: str) -> Path:
    """Return a folder of package data: inside the package if it is a wheel, else in the clone.

    Args:
        in_wheel: Name of the folder inside the package, as `pyproject.toml` sets it.
        in_clone: Path of the folder in a clone of the repository.

    Raises:
        ValueError: There is neither.
    """
    for folder in (_PACKAGE / in_wheel, _PACKAGE.parent / in_clone):
        if folder.is_dir():
            return folder
    raise RequestError(f"the folder {_PACKAGE / in_wheel} is missing; install the package again.")


def pretrained_models() -> dict[str, Path]:
    """Return the folders of the models that come with the package, by name."""
    return {folder.name: folder for folder in sorted((_PACKAGE / "pretrained").glob("*-*"))}


def local_model(name: str) -> Path | None:
    """Return the folder of a model on this machine or in the package; None for one on the Hub.

    A name that begins with a local folder is local: `runs/demo` is never looked up on the Hub.

    Raises:
        ValueError: There is no such folder, and the name is not of the form of names on the Hub.
    """
    folder = Path(name)
    if folder.exists():
        return folder
    begins_here = len(folder.parts) > 1 and Path(folder.parts[0]).is_dir()
    if not begins_here and re.fullmatch(r"[\w-][\w.-]*/[\w.-]*\w", name):
        return None
    models = pretrained_models()
    if name not in models:
        advice = f"give a run directory, or a model of the package: {', '.join(models)}"
        raise RequestError(f"There is no folder {folder}; {advice}.")
    return models[name]


def pretrained(name: str) -> str:
    """Return the folder of a model that comes with the package, for `from_pretrained`.

    Args:
        name: `everyday-en-de`, `everyday-de-en`, `everyday-en-zh` or `english-phonemes`.

    Raises:
        ValueError: There is no such model.
    """
    models = pretrained_models()
    if name not in models:
        raise RequestError(f"No model {name!r} is in the package; allowed: {', '.join(models)}.")
    return str(models[name])
