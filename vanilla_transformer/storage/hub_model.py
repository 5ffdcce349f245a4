"""A model by its name: a local folder, or what of the Hub is a model and nothing else."""

import re
from pathlib import Path

from huggingface_hub import errors, snapshot_download

from ..errors import RequestError
from .saved_model import TOKENIZER_FILES

# No code, and no weights that run code when they are opened.
_FILES = ("config.json", "generation_config.json", "*.safetensors*", *TOKENIZER_FILES)


def model_folder(name: str, revision: str | None = None) -> Path:
    """The folder of a model; one of the Hub, `user/name`, is downloaded unless it is at hand.

    A local folder of that name comes first. Code of the Hub is neither downloaded nor run.

    Args:
        name: path of a folder, or name on the Hub.
        revision: branch, tag or commit of the Hub; None for its main branch.

    Raises:
        ValueError: there is no such model, or the Hub does not give it.
    """
    folder = Path(name)
    if folder.exists() or not re.fullmatch(r"[\w-][\w.-]*/[\w.-]*\w", name):
        if revision is not None:
            raise RequestError(f"{name} is no name on the Hub, user/name; leave out --revision.")
        if not (folder / "config.json").is_file():
            raise RequestError(
                f"{name} holds no trained model (no config.json); give a run directory."
            )
        return folder
    try:
        found = Path(snapshot_download(name, revision=revision, allow_patterns=list(_FILES)))
    except errors.RevisionNotFoundError as error:
        raise RequestError(f"The model {name} of the Hub has no revision {revision}.") from error
    except errors.GatedRepoError as error:
        raise RequestError(
            f"The Hub gives {name} to those who have asked for it; ask on its page, and log in "
            "with `hf auth login`."
        ) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise RequestError(
            f"There is no folder {name}, and no model of that name on the Hub that you may read; "
            "for a private one log in with `hf auth login`."
        ) from error
    except (errors.HfHubHTTPError, errors.HTTPError, OSError) as error:
        # LocalEntryNotFoundError among them: offline, and not downloaded before.
        reason = type(error.__cause__ or error).__name__
        raise RequestError(
            f"There is no folder {name}, and the Hub cannot be asked for a model of that name "
            f"({reason}); look at the connection, or name a folder."
        ) from error
    if not (found / "config.json").is_file():
        raise RequestError(f"{name} on the Hub holds no model (no config.json).")
    return found
