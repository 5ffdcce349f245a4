"""Make the demo Space of a published model: a web page to try it, with all files it needs.

The page itself is model_cards/space (vanilla_transformer/_space in a wheel). The Space holds this
package's source instead of requiring the package: a Space installs its requirements before its own
files are there, so it would not find a wheel among them, and there may be no release.
"""

import sys
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from ..errors import RequestError
from ..storage.atomic import copy_files, temporary_folder
from ..storage.reading import StrPath
from ..storage.saved_model import model_folder
from ..storage.shipped import shipped_folder
from .hub import check_repo_id, hub_errors, plan_files, push_folder
from .publishing import Publication, run_apart

FORM = "demo Space"
# Files of an earlier push to delete; the settings and secrets of a Space are not files.
_REPLACED = ("*.py", "*.txt", "model_id")
# Calls each function of the page once, in a process that finds the package only in the Space.
_TRIAL = """
import translation as t
translator = t.load_translator(t.model_name())
sentence = t.checked_sentence(translator, (t.task_of(t.model_name()).examples or ["A"])[0])
best = t.translations(translator, sentence)[0][0]
t.picture(t.attention_of(translator, sentence, best), "cross", "0", t.ALL_HEADS)
"""


def publish_space(
    directory: StrPath,
    repo_id: str,
    *,
    push: bool = False,
    private: bool = False,
    token: str | None = None,
) -> Publication:
    """Make a demo Space of a published model, test it locally, and push it in one commit.

    Args:
        directory: Run directory or Marian export that was published.
        repo_id: `user/name` of both the model and the Space.
        push: Whether to push. False does everything else.
        private: Make the Space private if it is created.
        token: Access token of the Hub. None takes HF_TOKEN or that of `hf auth login`.

    Returns:
        What was published; its `commit` is None without `push`.

    Raises:
        ValueError: The Space does not work here, the model is not on the Hub, or the Hub refuses.
    """
    check_repo_id(repo_id)
    with temporary_folder() as temporary:
        folder = temporary / "space"
        write_space(folder, repo_id)
        _try_out(folder, model_folder(str(directory)))
        commit = None
        if push:
            with hub_errors(repo_id):
                is_published = HfApi(token=token).repo_exists(repo_id)
            if not is_published:
                raise RequestError(f"there is no model {repo_id} on the Hub; publish it first.")
            space: dict[str, Any] = {"space_sdk": "gradio", "private": private, "token": token}
            message = f"Show {repo_id}"
            commit = push_folder(folder, repo_id, message=message, replaces=_REPLACED, **space)
        return Publication(plan_files(folder), FORM, commit)


def write_space(folder: StrPath, model_id: str) -> None:
    """Write the files of a Space into a new folder.

    Args:
        folder: Folder to create.
        model_id: Model of the Space, `user/name` on the Hub.
    """
    package, folder = Path(__file__).resolve().parents[1], Path(folder)
    copy_files(shipped_folder("_space", "model_cards/space"), folder)
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8").replace("{model_id}", model_id)
    readme.write_text(text, encoding="utf-8")
    (folder / "model_id").write_text(f"{model_id}\n", encoding="utf-8")
    copy_files(package, folder / package.name, "**/*.py")


def _try_out(folder: Path, directory: Path) -> None:
    """Test the page's functions with the model, in a separate process."""
    command = [sys.executable, "-B", "-c", _TRIAL]
    with temporary_folder() as home:
        problem, model = f"the Space of {directory} does not work", str(directory.resolve())
        run_apart(command, home, problem=problem, cwd=folder, MODEL_ID=model)
