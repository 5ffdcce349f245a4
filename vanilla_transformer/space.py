"""The demo Space of a published model: a page to try it on, with all that the page needs.

The page itself is model_cards/space (vanilla_transformer/_space in a wheel). It travels with this
package's source rather than with a requirement: a Space installs its requirements before its own
files are there, so that a wheel among them is not found, and a release may not exist.
"""

import os
import shutil
from pathlib import Path

_PLACEHOLDER = "{model_id}"
_SOURCE_LABEL = "    source "  # as in samples.md
_NUM_EXAMPLES = 6


def write_space(
    folder: str | os.PathLike[str], model_id: str, *, run: str | os.PathLike[str] | None = None
) -> None:
    """Write the files of a Space into a new folder.

    Args:
        folder: to be created.
        model_id: the model on show: `user/name` on the Hub.
        run: run directory, whose samples become the examples; None for a page without examples.
    """
    package, folder = Path(__file__).resolve().parent, Path(folder)
    shutil.copytree(_page(package), folder, ignore=shutil.ignore_patterns("__pycache__"))
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8").replace(_PLACEHOLDER, model_id)
    readme.write_text(text, encoding="utf-8")
    (folder / "model_id").write_text(f"{model_id}\n", encoding="utf-8")
    examples = [] if run is None else _examples(Path(run))
    if examples:
        (folder / "examples.txt").write_text("\n".join(examples) + "\n", encoding="utf-8")
    for source in package.rglob("*.py"):
        name = source.relative_to(package.parent)
        if not any(part.startswith("_") for part in name.parts[:-1]):  # such as _space itself
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / name)


def _page(package: Path) -> Path:
    """Where the page is: inside the package in a wheel, in model_cards in a clone."""
    folders = (package / "_space", package.parent / "model_cards" / "space")
    return next(folder for folder in folders if folder.is_dir())


def _examples(run: Path) -> list[str]:
    """Source sentences among the run's samples, from all of its test sets."""
    samples = run / "samples.md"
    if not samples.is_file():
        return []
    lines = samples.read_text(encoding="utf-8").splitlines()
    found = [line[len(_SOURCE_LABEL) :] for line in lines if line.startswith(_SOURCE_LABEL)]
    sources = [text.strip() for text in found if text.strip()]
    return sources[:: max(1, len(sources) // _NUM_EXAMPLES)][:_NUM_EXAMPLES]
