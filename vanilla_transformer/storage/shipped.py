"""Files that come with the package: recipes, templates of model cards, the page of the Space."""

from pathlib import Path

from ..errors import RequestError


def shipped_folder(in_wheel: str, in_clone: str) -> Path:
    """Return a folder that a wheel has inside the package, and a clone beside it.

    Args:
        in_wheel: its name inside the package, as `pyproject.toml` sets it.
        in_clone: its path in a clone of the repository.

    Raises:
        ValueError: there is neither.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / in_wheel, package.parent / in_clone):
        if folder.is_dir():
            return folder
    raise RequestError(f"the folder {package / in_wheel} is missing; install the package again.")
