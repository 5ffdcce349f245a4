"""`vanilla-transformer export`: what was trained here, in the formats that others run."""

import argparse
from collections.abc import Callable

FORMATS = ("marian",)
_EXPORT_EXAMPLE = """example:
  vanilla-transformer export marian runs/multi30k_en_de exports/marian

marian       a stock MarianMTModel, for transformers without this package and all that knows Marian

The export is loaded again and compared with the model before OUT appears.
"""


def add_export(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the command `export`."""
    help = "write a trained model in another format"
    command = add_command("export", help=help, epilog=_EXPORT_EXAMPLE)
    command.add_argument("format", metavar="FORMAT", choices=FORMATS, help=", ".join(FORMATS))
    command.add_argument("directory", metavar="DIR", help="run directory, or any saved model")
    command.add_argument("output", metavar="OUT", help="new directory")
    command.set_defaults(run=_export, command=command)


def _export(options: argparse.Namespace) -> int:
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    from .exporters.marian import export_marian

    print(export_marian(options.directory, options.output))
    return 0
