"""`vanilla-transformer serve`: a server for clients of LibreTranslate."""

import argparse
import functools
import logging
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from ..errors import RequestError
from ..recipes.recipe import languages_of_model
from ..storage.extras import require
from .shared_options import count, load_for_translation

_MOST_TOKENS = 512  # per sentence; this many take a small model some two seconds
_GRACE = 60  # seconds that running requests get after a signal to stop


def add_serve(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command `serve` with its options."""
    command = add_command("serve", _serve)
    text = "run directory, other saved model, or user/name on the Hub; one for each direction"
    command.add_argument("directories", metavar="MODEL", nargs="+", help=text)
    text = "languages of each model, such as en-de, if the models do not say them"
    command.add_argument("--pair", metavar="S-T", nargs="+", help=text)
    text = "address (default: 127.0.0.1, for this machine alone; 0.0.0.0 for all)"
    command.add_argument("--host", default="127.0.0.1", help=text)
    command.add_argument("--port", type=int, default=5000, help="default: 5000")
    text = "maximum number of characters of a request (default: 10000)"
    command.add_argument("--char-limit", type=count, default=10_000, help=text)
    command.add_argument("--cors", action="store_true", help="let any web page send requests")
    command.add_argument("--no-shortlist", action="store_true", help="search the whole vocabulary")


def _serve(options: argparse.Namespace) -> int:
    """Serve models to clients of LibreTranslate.

    Example:
      vanilla-transformer serve everyday-en-de everyday-en-zh

    To ask it:
      curl http://127.0.0.1:5000/translate -d q="Good morning." -d source=en -d target=de

    The routes are those of LibreTranslate: /translate, /detect, /languages and /health. Requests
    that arrive while a model is busy are translated together. There is no password.
    """
    require("A server", "fastapi", "uvicorn", "python_multipart", "babel", "py3langid")
    import uvicorn

    from ..data.languages import language_of
    from ..serving.app import create_app
    from ..serving.shared_batches import SharedBatches
    from ..storage.saved_model import model_folder
    from ..translation.many_texts import Translation, translate_nbest
    from ..written_forms import written_forms

    def translate(model: Any, tokenizer: Any, texts: list[str]) -> list[Translation]:
        found = translate_nbest(model, tokenizer, texts, most_tokens=_MOST_TOKENS)
        return [best for best, *_ in found]

    pairs = options.pair or [None] * len(options.directories)
    if len(pairs) != len(options.directories):
        raise RequestError(f"--pair: give one for each model; got {len(pairs)}.")
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:  # fail before the models are loaded
        listening = socket.create_server((options.host, options.port), family=family)
    except (OSError, OverflowError) as error:
        address = f"--host {options.host} --port {options.port}"
        raise RequestError(f"{address} cannot be used ({error}); choose another.") from error
    # Switch off warnings about translations, which quote users' texts.
    logging.getLogger("vanilla_transformer.translation").setLevel(logging.ERROR)
    models: dict[tuple[str, str], SharedBatches] = {}
    executor = ThreadPoolExecutor(1)  # one thread, so that models take turns
    for name, pair in zip(options.directories, pairs, strict=True):
        folder = model_folder(name)
        model, tokenizer = load_for_translation(options, folder)
        languages = written_forms(tokenizer).languages
        if pair or not all(languages):
            languages = languages_of_model(folder, pair)
        source, target = (language_of(each) or each for each in languages)
        if (source, target) in models:
            raise RequestError(f"{name} is a second model for {source}-{target}; serve only one.")
        run = functools.partial(translate, model, tokenizer)
        models[source, target] = SharedBatches(run, executor)
    app = create_app(models, char_limit=options.char_limit, cors=options.cors)
    directions = ", ".join(map("-".join, models))
    print(f"Serving {directions} at http://{options.host}:{options.port}", flush=True)
    config = uvicorn.Config(app, access_log=False, timeout_graceful_shutdown=_GRACE)
    with suppress(KeyboardInterrupt):  # uvicorn repeats the signal that stopped it
        uvicorn.Server(config).run([listening])
    return 0
