"""Find a model by name: in a local folder, in the package, or on the Hub."""

import re
from pathlib import Path
from typing import Any

from huggingface_hub import errors, snapshot_download

from ..errors import RequestError
from .reading import reason_of
from .run_files import METRICS
from .saved_model import CONFIG, SETTINGS, nothing_trained
from .shipped import pretrained_models

# No code, and no weights in formats that can run code. SentencePiece's files end in .model too.
# The metrics say which languages the model was trained for.
_FILES = [*SETTINGS, "*.safetensors*", "*.model", METRICS]


def model_folder(name: str, revision: str | None = None) -> Path:
    """Return the folder of a model, and download the model from the Hub if necessary.

    A local folder of that name comes first, then a model that comes with the package. A name that
    begins with a local folder is local: `runs/demo` is never asked of the Hub. Code on the Hub is
    neither downloaded nor run.

    Args:
        name: Path of a folder, or name in the package or on the Hub.
        revision: Branch, tag or commit on the Hub. None takes the main branch.

    Raises:
        ValueError: There is no such model, or it cannot be downloaded.
    """
    folder = Path(name)
    is_local = folder.exists() or (len(folder.parts) > 1 and Path(folder.parts[0]).is_dir())
    if is_local or not re.fullmatch(r"[\w-][\w.-]*/[\w.-]*\w", name):
        if revision is not None:
            kind = "a local folder" if is_local else "no name of a model on the Hub"
            raise RequestError(f"{name} is {kind}; leave out --revision.")
        if not is_local:
            folder = pretrained_models().get(name, folder)
        if not (folder / CONFIG).is_file():
            raise nothing_trained(folder, CONFIG)
        return folder
    try:
        # Not those of checkpoints or exports, which are in folders.
        chosen: Any = {"allow_patterns": _FILES, "ignore_patterns": "*/*"}
        found = Path(snapshot_download(name, revision=revision, **chosen))
    except (errors.HFValidationError, errors.HTTPError, OSError) as error:
        raise RequestError(
            f"There is no folder {name}, and no model of that name could be loaded from the Hub: "
            f"{reason_of(error)}; check name, revision and connection, or log in: hf auth login."
        ) from error
    if not (found / CONFIG).is_file():
        raise RequestError(f"{name} on the Hub holds no model (no config.json).")
    return found
