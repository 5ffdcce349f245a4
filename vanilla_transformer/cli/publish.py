"""`vanilla-transformer publish`, and the options of `train` that end in it."""

import argparse
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import RequestError

if TYPE_CHECKING:
    from ..publish.publishing import Publication

_PUBLISH_EXAMPLE = """example:
  vanilla-transformer publish runs/demo-en-de --repo user/demo-en-de --license apache-2.0
  vanilla-transformer publish runs/demo-en-de --repo user/demo-en-de --license apache-2.0 --push
  vanilla-transformer publish runs/demo-en-de --repo user/demo-en-de --space --push

Without --push all is done but the push: the model is loaded in a clean process and translates,
the card is rendered, and every file that would be pushed is listed.
"""


def add_publish(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the command `publish`."""
    help = "put a trained model on the Hugging Face Hub"
    command = add_command("publish", help=help, epilog=_PUBLISH_EXAMPLE)
    command.add_argument("directory", metavar="DIR", help="run directory, average or stock form")
    command.add_argument("--repo", metavar="USER/NAME", required=True, help="name on the Hub")
    command.add_argument("--push", action="store_true", help="push; without it, a dry run")
    _add_facts(command)
    text = "instead of the model, the demo Space of the model USER/NAME"
    command.add_argument("--space", action="store_true", help=text)
    text = "run directory that DIR comes from, if it is none"
    command.add_argument("--run", dest="run_directory", metavar="RUN", help=text)
    command.add_argument("--with-code", action="store_true", help="for trust_remote_code=True")
    command.add_argument("--private", action="store_true", help="create a private repository")
    command.add_argument("--revision", metavar="BRANCH", help="branch (default: main)")
    command.add_argument("--token", help="access token (default: HF_TOKEN or `hf auth login`)")
    command.add_argument("--card-dir", metavar="OUT", help="write the card with its pictures too")
    command.set_defaults(run=_publish, command=command)


def add_push_to_hub(command: argparse.ArgumentParser) -> None:
    """Adds to `train` what publishes the trained model."""
    group = command.add_argument_group(
        "more options: publishing", "see vanilla-transformer publish --help"
    )
    group.add_argument("--push-to-hub", metavar="USER/NAME", help="publish the model at the end")
    _add_facts(group, with_data=False)
    group.add_argument("--private", action="store_true", help="create a private repository")


def check_push_to_hub(options: argparse.Namespace, data_license: str | None) -> None:
    """Raise ValueError, before anything is trained, for what would be refused afterwards."""
    if options.push_to_hub is None:
        return
    from huggingface_hub import get_token

    from ..publish.card import check_licenses
    from ..publish.hub import check_repo_id

    check_repo_id(options.push_to_hub)
    check_licenses(options.license, data_license)
    if get_token() is None:
        raise RequestError("no token for the Hub; log in with `hf auth login` or set HF_TOKEN.")


def push_trained(options: argparse.Namespace, directory: str) -> None:
    """Publish what `train` has trained, if it was to."""
    if options.push_to_hub is None:
        return
    from ..publish.publishing import publish

    publication = publish(
        directory, options.push_to_hub, license=options.license, push=True, private=options.private
    )
    assert publication.commit is not None  # it was to push
    print(f"Pushed {len(publication.files)} files: {publication.commit.url}")


def _add_facts(command: argparse._ActionsContainer, *, with_data: bool = True) -> None:
    command.add_argument(
        "--license", metavar="ID", help="of the model; demanded, such as cc-by-4.0"
    )
    if with_data:
        text = "of the training pairs (default: the recipe's)"
        command.add_argument("--data-license", metavar="TEXT", help=f"licence {text}")
        command.add_argument("--data-source", metavar="TEXT", help=f"origin {text}")


def _publish(options: argparse.Namespace) -> int:
    for library in ("httpx", "httpx2"):  # a line for every request
        logging.getLogger(library).setLevel(logging.WARNING)
    from ..publish.card import WITH_CODE

    publication = _publish_space(options) if options.space else _publish_model(options)
    width = max(map(len, publication.files))
    for name, size in publication.files.items():
        print(f"{name:<{width}} {size:>13,}")
    total = sum(publication.files.values())
    print(f"{len(publication.files)} files, {total:,} bytes, for {options.repo}.")
    if options.card_dir:
        print(f"The card is {Path(options.card_dir) / 'README.md'}.")
    if publication.commit is None:
        first = "" if options.space else "read the card, then "
        print(f"Nothing was pushed; {first}give --push.")
        return 0
    print(f"Pushed: {publication.commit.url}")
    if publication.form == WITH_CODE:
        print(f'Load it with trust_remote_code=True, revision="{publication.commit.oid}".')
    return 0


def _publish_model(options: argparse.Namespace) -> "Publication":
    from ..publish.publishing import publish

    return publish(
        options.directory,
        options.repo,
        license=options.license,
        data_license=options.data_license,
        data_source=options.data_source,
        run=options.run_directory,
        with_code=options.with_code,
        push=options.push,
        private=options.private,
        revision=options.revision,
        token=options.token,
        card_dir=options.card_dir,
    )


def _publish_space(options: argparse.Namespace) -> "Publication":
    from ..publish.space import publish_space

    for name in ("license", "data_license", "data_source", "revision", "card_dir"):
        if getattr(options, name) is not None:
            option = name.replace("_", "-")
            raise RequestError(f"got --{option} with --space; it is of the model, leave it out.")
    if options.with_code:
        raise RequestError(
            "got --with-code with --space, which always holds the code; leave it out."
        )
    return publish_space(
        options.directory,
        options.repo,
        run=options.run_directory,
        push=options.push,
        private=options.private,
        token=options.token,
    )
