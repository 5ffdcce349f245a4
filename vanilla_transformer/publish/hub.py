"""A folder becomes the content of a repository on the Hub: in one commit, or not at all."""

import contextlib
import fnmatch
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, errors, get_token
from huggingface_hub.utils import HFValidationError, validate_repo_id

from ..errors import RequestError

_TOKEN = re.compile(r"hf_\w{16,}|(?<=Bearer )[^\s'\"]+")


@dataclass(frozen=True)
class Commit:
    """What a push has made of the Hub: the hash of the new revision, and where people see it."""

    oid: str
    url: str


def plan_files(folder: str | os.PathLike[str]) -> dict[str, int]:
    """The files of a folder that would be pushed: names with forward slashes, sizes in bytes."""
    root = Path(folder)
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.stat().st_size for path in paths}


def push_folder(
    folder: str | os.PathLike[str],
    repo_id: str,
    *,
    message: str,
    repo_type: str = "model",
    space_sdk: str | None = None,
    private: bool = False,
    revision: str | None = None,
    token: str | None = None,
    replaces: Sequence[str] = (),
) -> Commit:
    """Make a folder the content of a repository, in one commit.

    The repository and the branch are created if missing. All files become visible at once or, if
    anything fails, none of them.

    Args:
        folder: all its files are pushed.
        repo_id: `user/name`.
        message: of the commit.
        repo_type: `model` or `space`.
        space_sdk: of a Space, such as `gradio`.
        private: make the repository private if it is created.
        revision: branch; `main` if None.
        token: see `publish`.
        replaces: patterns of file names; what the repository holds of them and the folder does not
            is deleted.

    Returns:
        The new commit.

    Raises:
        ValueError: the Hub refuses or cannot be reached, or an existing repository is public and
            was to be private.
    """
    check_repo_id(repo_id)
    api, files = hub_api(token), plan_files(folder)
    place: dict[str, Any] = {"repo_id": repo_id, "repo_type": repo_type}
    with hub_errors(repo_id):
        api.create_repo(**place, private=private or None, exist_ok=True, space_sdk=space_sdk)
        if revision is not None:
            api.create_branch(**place, branch=revision, exist_ok=True)
        before = api.repo_info(**place, revision=revision)
    if private and not before.private:
        raise RequestError(
            f"{repo_id} exists and is public; make it private in its settings first, or leave "
            "--private out."
        )
    with hub_errors(repo_id):
        stale = [
            file.rfilename
            for file in before.siblings or ()  # type: ignore[union-attr]  # it is no kernel
            if file.rfilename not in files
            and any(fnmatch.fnmatch(file.rfilename, pattern) for pattern in replaces)
        ]
        additions = [CommitOperationAdd(name, str(Path(folder) / name)) for name in files]
        # Not upload_folder, which since huggingface_hub 2 may push a folder in several commits.
        info = api.create_commit(
            **place,
            operations=[*additions, *[CommitOperationDelete(name) for name in stale]],
            commit_message=message,
            revision=revision,
            parent_commit=before.sha,  # nobody else's push is lost in between
        )
    return Commit(info.oid, info.commit_url)


def check_repo_id(repo_id: str) -> None:
    """Raise ValueError unless the name is `user/name` and one that the Hub allows."""
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise RequestError(f"got {repo_id!r} as name on the Hub: {error}") from error
    if repo_id.count("/") != 1:
        raise RequestError(f"got {repo_id!r} as name on the Hub; give user/name.")


def hub_api(token: str | None) -> HfApi:
    """The Hub for the owner of a token; for whoever is logged in if None.

    Raises:
        ValueError: no header can carry the token; the error of the library would show it.
    """
    token = get_token() if token is None else token
    token = token.strip() if token else None  # of a file: with the end of its line
    if token and not (token.isascii() and token.isprintable() and len(token.split()) == 1):
        raise RequestError("the token holds white space or other signs that no token has; copy it.")
    return HfApi(token=token)


@contextlib.contextmanager
def hub_errors(repo_id: str) -> Iterator[None]:
    """One line for what the Hub or the way to it has against a push; the token is in none."""
    try:
        yield
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        said = _told((error.server_message or "").strip() or error)
        if status in (401, 403) or isinstance(error, errors.RepositoryNotFoundError):
            raise RequestError(
                f"the Hub refuses access to {repo_id} (HTTP {status}); log in with `hf auth "
                "login`, or give a token that may write there with HF_TOKEN or --token."
            ) from error
        raise RequestError(
            f"the Hub refuses the push to {repo_id} (HTTP {status}: {said}); it holds what it held "
            "before."
        ) from error
    except (errors.OfflineModeIsEnabled, errors.LocalTokenNotFoundError) as error:
        raise RequestError(f"nothing was pushed to {repo_id}: {_told(error)}") from error
    except ValueError as error:  # of the library: metadata of the card, for one
        raise RequestError(f"the Hub refuses the push to {repo_id}: {_told(error)}") from error
    except (errors.HTTPError, ConnectionError, RuntimeError) as error:
        # RuntimeError: what the library makes of an upload that broke off.
        reason = error.__cause__ or error
        raise RequestError(
            f"the push to {repo_id} broke off ({type(reason).__name__}: {_told(reason)}); the "
            "repository holds what it held before. Push again."
        ) from error


def _told(error: BaseException | str) -> str:
    """What an error says, on one line and without a token that a library may have put into it."""
    return _TOKEN.sub("***", " ".join(str(error).split()))
