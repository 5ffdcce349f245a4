"""`vanilla-transformer COMMAND`: the parser, the log, and one-line errors.

Nothing heavy is imported before a command runs, and no command computes anything itself.
"""

import argparse
import difflib
import errno
import functools
import inspect
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from .. import __version__, register
from ..errors import RequestError
from ..machine.signals import interruption
from ..recipes.options import listed
from ..storage.extras import how_to_install
from ..storage.reading import is_utf8, printable, shortened
from .average import add_average
from .compare import add_compare, add_score
from .convert import add_export, add_import
from .data import add_data
from .evaluate import add_evaluate
from .publish import add_publish
from .serve import add_serve
from .shared_options import check_models_of, count, outputs_held
from .train import add_train, is_first_process
from .translate import add_translate

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk has no room for redirected output
_LONGEST = 300  # maximum characters of a value quoted in an error

_EXAMPLE = """Example:
  echo "Where can I buy a ticket?" | vanilla-transformer translate everyday-en-de
  vanilla-transformer train --pair en-de --train-file train.en,train.de --output-dir runs/mine
  vanilla-transformer evaluate runs/mine
  vanilla-transformer publish runs/mine --repo user/mine --license apache-2.0

`vanilla-transformer COMMAND --help` shows the options of a command and examples.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name, and print errors in one line.

    Args:
        arguments: Words of the command line; None takes those of this process.

    Returns:
        The exit code: 0, 2 for a mistake in the request, 128 + n after signal n.
    """
    for stream in (sys.stdout, sys.stderr):  # print any language, whatever the locale
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
    try:
        with interruption.handled():
            return _run(arguments)
    except BrokenPipeError:  # the program that reads the output has stopped, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt as interrupt:
        if is_first_process():
            message = "Interrupted." if type(interrupt) is KeyboardInterrupt else interrupt
            print(message, file=sys.stderr)
        return 128 + (interrupt.args or (signal.SIGINT,))[0]
    except (RequestError, OSError, ImportError) as error:
        if (line := _line_for(error)) is None:  # a bug: show its traceback
            raise
        if isinstance(error, OSError) and error.errno in _FULL:  # the rest cannot be written either
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        for note in getattr(error, "__notes__", ()):  # such as a table of a file's first rows
            print(note, file=sys.stderr)
        print(f"vanilla-transformer: {printable(line)}", file=sys.stderr)
        return 2


def _run(arguments: Sequence[str] | None) -> int:
    parser = build_parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        # Only names: a misplaced value may be a secret, such as an access token.
        names = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        surplus = f"{len(unknown)} {'argument' if len(unknown) == 1 else 'arguments'} too many"
        options.command.error(f"unknown option {' '.join(names)}" if names else f"got {surplus}")
    for name, value in vars(options).items():
        if value == "" and name != "prefix":
            raise RequestError(f"--{name.replace('_', '-')} is empty; give a value or omit it.")
        # Libraries in Rust open files by names in UTF-8, whatever the locale.
        for text in filter(lambda it: isinstance(it, str), listed(value)):
            if not is_utf8(text):
                remedy = "rename the file, or set PYTHONUTF8=1"
                raise RequestError(f"{name}: {text!a} is not UTF-8 in this locale; {remedy}.")
    check_models_of(options)
    with outputs_held(options):
        _configure_logging()
        # Imported here so that --help and errors in mistyped commands are printed at once.
        from transformers.utils.logging import disable_progress_bar

        from ..machine.cpu_threads import use_threads

        register()
        disable_progress_bar()  # progress bars would break up the log
        if options.threads is not None:
            use_threads(options.threads)
        return options.run(options)


class _Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line, without listing all options first."""

    _parsing = False

    def __init__(self, **options: Any) -> None:
        """Keep the line breaks of examples, and refuse abbreviated options."""
        options["formatter_class"] = argparse.RawDescriptionHelpFormatter
        super().__init__(**options, allow_abbrev=False)

    def parse_known_args(
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse options before, between and after positional arguments; return unknown ones."""
        # parse_known_intermixed_args calls this method again for each of its two passes.
        if self._parsing or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        self._parsing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._parsing = False

    def error(self, message: str) -> NoReturn:
        for word in message.replace(":", " ").split():
            known = [option for action in self._actions for option in action.option_strings]
            near = difflib.get_close_matches(word, known, n=1)
            if word.startswith("--") and word not in known and near:
                message += f" (did you mean {near[0]}?)"
        self.exit(2, f"{self.prog}: {shortened(message, _LONGEST)}; see {self.prog} --help\n")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line, with all commands."""
    about = "Train, evaluate and use the original Transformer."
    parser = _Parser(prog="vanilla-transformer", description=about, epilog=_EXAMPLE)
    version = f"%(prog)s {__version__}"
    parser.add_argument("-V", "--version", action="version", version=version)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for add in (
        *(add_train, add_evaluate, add_compare, add_translate, add_score, add_average),
        *(add_data, add_import, add_export, add_publish, add_serve),
    ):
        add(functools.partial(_add_command, commands))
    return parser


def _add_command(
    commands: argparse._SubParsersAction, name: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Add a command, whose help is the docstring of the function that runs it."""
    description, begin, examples = inspect.cleandoc(run.__doc__ or "").partition("Example:\n")
    summary = description.partition("\n")[0].removesuffix(".")
    help, epilog = f"{summary[:1].lower()}{summary[1:]}", f"{begin}{examples}"
    command = commands.add_parser(name, help=help, description=description, epilog=epilog)
    command.set_defaults(run=run, command=command)
    text = "threads on the CPU (default: one per core, fewer while other programs compute)"
    command.add_argument("--threads", type=count, metavar="N", help=text)
    return command


class _Printable(logging.Formatter):
    """Formatter that escapes control characters in log lines, such as those of file names."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record, with control characters escaped."""
        return "\n".join(map(printable, super().format(record).splitlines()))


def _configure_logging() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Printable("%(asctime)s %(message)s", "%H:%M:%S"))
    package = logging.getLogger(__name__.partition(".")[0])
    package.handlers = [handler]
    package.propagate = False
    package.setLevel(logging.INFO if is_first_process() else logging.WARNING)


def _line_for(error: Exception) -> str | None:
    """Return a one-line message if the error is the user's mistake, else None."""
    is_ours = isinstance(error, FileNotFoundError) and error.filename is None
    if isinstance(error, RequestError) or is_ours:
        return " ".join(str(error).split())
    if isinstance(error, OSError) and error.filename is not None:
        path = error.filename2 or error.filename  # name the target of a failed copy or move
        return f"{shortened(str(path), _LONGEST)}: {error.strerror}"
    if isinstance(error, OSError) and error.errno in _FULL:
        return f"the output could not be written: {error.strerror}; make room, and run it again."
    if isinstance(error, ImportError) and error.name is not None:
        hint = how_to_install(error.name.partition(".")[0])
        if hint is not None:
            line = " ".join(str(error).split())
            return line if "pip install" in line else f"{line}; {hint}"
    return None
