"""Push a folder to a repository on the Hub, in one commit or not at all."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi, errors

from ..errors import RequestError
from ..storage.reading import StrPath

_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_TOKEN = re.compile(r"hf_\w{16,}|(?<=Bearer )[^\s'\"]+")


def plan_files(folder: StrPath) -> dict[str, int]:
    """List the files in a folder: names with forward slashes, and sizes in bytes."""
    root = Path(folder)
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.stat().st_size for path in paths}


def push_folder(
    folder: StrPath,
    repo_id: str,
    *,
    message: str,
    space_sdk: str | None = None,
    private: bool = False,
    revision: str | None = None,
    token: str | None = None,
    replaces: Sequence[str] = (),
) -> CommitInfo:
    """Push a folder to a repository, in one commit.

    The repository and the branch are created if missing. All files become visible at once or, if
    anything fails, none of them.

    Args:
        folder: Folder with the files to push.
        repo_id: `user/name`.
        message: Commit message.
        space_sdk: SDK of a Space, such as `gradio`. None pushes a model.
        private: Make the repository private if it is created.
        revision: Branch. None takes `main`.
        token: Access token of the Hub. None takes HF_TOKEN or that of `hf auth login`.
        replaces: Patterns of file names. Files that match are deleted from the repository if the
            folder does not have them.

    Returns:
        The new commit.

    Raises:
        ValueError: The Hub refuses or cannot be reached, or `private` is set and the repository
            exists and is public.
    """
    api, files = HfApi(token=token), plan_files(folder)
    place: dict[str, Any] = {"repo_id": repo_id, "repo_type": "space" if space_sdk else "model"}
    with hub_errors(repo_id):
        api.create_repo(**place, private=private or None, exist_ok=True, space_sdk=space_sdk)
        is_private = api.repo_info(**place).private
    if private and not is_private:
        raise RequestError(f"{repo_id} exists and is public; make it private first.")
    with hub_errors(repo_id):
        if revision is not None:
            api.create_branch(**place, branch=revision, exist_ok=True)
        before = api.repo_info(**place, revision=revision)
        there = [file.rfilename for file in before.siblings or ()]  # type: ignore[union-attr]  # KernelInfo lacks these
        patterns = [f"/{pattern}" for pattern in replaces]  # anchored: * matches no slash
        replaced = {name for name in there if any(map(PurePosixPath("/", name).match, patterns))}
        stale = sorted(replaced - files.keys())
        additions = [CommitOperationAdd(name, str(Path(folder) / name)) for name in files]
        # Not upload_folder, which since huggingface_hub 2 may push a folder in several commits.
        return api.create_commit(
            **place,
            operations=[*additions, *[CommitOperationDelete(name) for name in stale]],
            commit_message=message,
            revision=revision,
            parent_commit=before.sha,  # refuses if somebody else has pushed since
        )


def check_repo_id(repo_id: str) -> None:
    """Raise ValueError unless the name is `user/name`."""
    if not _NAME.fullmatch(repo_id):
        raise RequestError(f"got {repo_id!r} as repository on the Hub; give user/name.")


@contextlib.contextmanager
def hub_errors(repo_id: str) -> Iterator[None]:
    """Turn errors of the Hub and of the connection into one line without the token."""
    try:
        yield
    # The library raises ValueError for bad card metadata, RuntimeError for an interrupted upload.
    except (errors.HTTPError, OSError, RuntimeError, ValueError) as error:
        # Hide a token that a library may have put into its message.
        reason = _TOKEN.sub("***", " ".join(str(error).split()))
        what = f"the push to {repo_id} failed, and the repository is unchanged: {reason}"
        raise RequestError(f"{what} (Token: `hf auth login`, HF_TOKEN or --token.)") from error
