"""`vanilla-transformer publish`: put a model or its demo page on the Hub."""

import argparse
import inspect
from collections.abc import Callable

from ..errors import RequestError
from .shared_options import add_overwrite


def add_publish(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command `publish` with its options."""
    command = add_command("publish", _publish)
    text = "any saved model: a run, an average, an export, an import, what a Trainer saved"
    command.add_argument("directory", metavar="DIR", help=text)
    command.add_argument("--repo", metavar="USER/NAME", required=True, help="repository on the Hub")
    command.add_argument("--push", action="store_true", help="push to the Hub (default: a dry run)")
    text = "licence of the model, such as cc-by-4.0; a model needs one"
    command.add_argument("--license", metavar="ID", help=text)
    command.add_argument("--private", action="store_true", help="create a private repository")
    text = "of the training pairs (default: the recipe's)"
    command.add_argument("--data-license", metavar="TEXT", help=f"licence {text}")
    command.add_argument("--data-source", metavar="TEXT", help=f"origin {text}")
    text = "publish the demo Space of the model USER/NAME instead of the model"
    command.add_argument("--space", action="store_true", help=text)
    text = "run directory that DIR was made from, if DIR is not one"
    command.add_argument("--run", dest="run_directory", metavar="RUN", help=text)
    forms = command.add_mutually_exclusive_group()  # forms of the model
    forms.add_argument("--with-code", action="store_true", help="push the model's code too")
    text = "publish the model as a stock class of transformers, for users without this package"
    forms.add_argument("--stock", action="store_true", help=text)
    text = "publish even a model that has not learned its task"
    command.add_argument("--force", action="store_true", help=text)
    text = "languages of both sides (default: the recipe's)"
    command.add_argument("--pair", metavar="S-T", help=text)
    command.add_argument("--revision", metavar="BRANCH", help="branch (default: main)")
    command.add_argument("--token", help="access token (default: HF_TOKEN or `hf auth login`)")
    text = "also write the card and all files into a folder, to use without the Hub"
    command.add_argument("--output", metavar="FOLDER", help=text)
    reads = ("directory", "run_directory")
    add_overwrite(command, reads=reads, folders=("output",))


def _publish(options: argparse.Namespace) -> int:
    """Put a trained model on the Hugging Face Hub.

    Example:
      vanilla-transformer publish runs/demo-en-de --repo user/demo-en-de --license apache-2.0 --push
      vanilla-transformer publish runs/demo-en-de --repo user/demo-en-de --space --push

    Without --push everything but the push happens: a clean process loads the model and translates,
    the card is rendered, and every file that would be pushed is listed.
    """
    from ..publish.card import WITH_CODE
    from ..publish.publishing import publish_folder
    from ..publish.space import publish_space

    # Each parameter of these functions is an option.
    call: Callable = publish_space if options.space else publish_folder
    values = {**vars(options), "repo_id": options.repo, "run": options.run_directory}
    taken = inspect.signature(call).parameters
    of_models = inspect.signature(publish_folder).parameters.keys() - taken.keys()
    if unused := sorted(f"--{name.replace('_', '-')}" for name in of_models if values.get(name)):
        raise RequestError(f"--space does not work with {', '.join(unused)}; leave one out.")
    publication = call(**{name: values[name] for name in taken if name in values})
    width = max(map(len, publication.files))
    for name, size in publication.files.items():
        print(f"{name:<{width}} {size:>13,}")
    total = sum(publication.files.values())
    print(f"{len(publication.files)} files, {total:,} bytes, for {options.repo}.")
    if options.output:
        print(f"The files are in {options.output}, with the card as README.md.")
    if publication.commit is None:
        first = "" if options.space or options.output else "read the card (--output FOLDER), then "
        print(f"Nothing was pushed; {first}give --push.")
        return 0
    print(f"Pushed: {publication.commit.commit_url}")
    if publication.form == WITH_CODE:
        print(f'Load it with trust_remote_code=True, revision="{publication.commit.oid}".')
    return 0
