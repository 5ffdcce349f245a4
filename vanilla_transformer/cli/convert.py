"""`vanilla-transformer import | export`: convert models from and to other systems."""

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import RequestError
from ..storage.foreign_models import foreign_model
from .shared_options import add_overwrite

_NUMBER, _FILE, _NAME = {"type": int, "metavar": "N"}, {"metavar": "FILE"}, {"metavar": "NAME"}
_FLAG = {"action": "store_true"}
_MISSING = {**_NUMBER, "required": True}  # numbers that state dicts lack, so users must give them
_VOCABULARIES: dict[str, dict[str, Any]] = {
    f"{it}_vocab": {**_FILE, "help": f"{it} tokens, one per line"} for it in ("source", "target")
}
# For each system: what PATH is, the options of its importer, and an example.
SYSTEMS: dict[str, tuple[str, dict[str, dict[str, Any]], str]] = {
    "marian": (
        "transformers directory with a MarianMTModel, or OPUS-MT's folder or zip file",
        {"like_transformers": {**_FLAG, "help": "compute as transformers' conversion does"}},
        "opus-mt-en-de runs/opus-mt-en-de",
    ),
    "fsmt": ("transformers directory with an FSMT model", {}, "wmt19-en-ru runs/wmt19-en-ru"),
    "fairseq": (
        "fairseq checkpoint (.pt) of a Transformer",
        {"dictionaries": {"metavar": "DIR", "help": "holds dict.SOURCE.txt and dict.TARGET.txt"}},
        "wmt16/checkpoint_best.pt runs/wmt16 --dictionaries wmt16",
    ),
    "torch": (
        "state dict (.pt) that contains a torch.nn.Transformer",
        {
            "heads": {**_MISSING, "help": "attention heads"},
            "pad_token_id": {**_MISSING, "help": "padding id"},
            "bos_token_id": {**_MISSING, "help": "id that the decoder starts from"},
            "eos_token_id": {**_MISSING, "help": "id that ends a target"},
            "unk_token_id": {**_NUMBER, "help": "id of unknown words, if there is one"},
            "source_embedding": {**_NAME, "help": "name of the encoder embedding tensor"},
            "target_embedding": {**_NAME, "help": "name of the decoder embedding tensor"},
            "generator": {**_NAME, "help": "name of the pre-softmax weight tensor"},
            "norm_first": {**_FLAG, "help": "norm_first=True in torch.nn.Transformer"},
            "activation": {"choices": ("relu", "gelu"), "help": "default: relu"},
            "layer_norm_eps": {"type": float, "metavar": "X", "help": "default: 1e-5"},
            "unscaled": {**_FLAG, "help": "embeddings were not multiplied by sqrt(d_model)"},
            **_VOCABULARIES,
        },
        "model.pt runs/mine --heads 8 --pad-token-id 1 --bos-token-id 2 --eos-token-id 3",
    ),
    "annotated": (
        "state dict (.pt) of The Annotated Transformer",
        {"heads": {**_NUMBER, "help": "attention heads"}, **_VOCABULARIES},
        "multi30k_model_final.pt runs/annotated --source-vocab de.txt --target-vocab en.txt",
    ),
    "joeynmt": (
        "Joey NMT model directory with config.yaml",
        {"checkpoint": {**_NAME, "help": "checkpoint file in the directory (default: the best)"}},
        "models/iwslt14 runs/iwslt14 --checkpoint best.ckpt",
    ),
    "opennmt": ("OpenNMT-py 3 checkpoint (.pt)", {}, "model_step_100000.pt runs/opennmt"),
}
FORMATS = ("stock", "ctranslate2", "onnx", "web")
QUANTIZATIONS = ("float32", "bfloat16", "int8", "int8_float32")


def add_import(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command `import` with its options."""
    command = add_command("import", _import)
    systems = command.add_subparsers(required=True, metavar="SYSTEM")
    for system, (path_help, options, example) in SYSTEMS.items():
        example = f"Example:\n  vanilla-transformer import {system} {example}"
        parser = systems.add_parser(system, help=path_help, epilog=example)
        parser.add_argument("path", metavar="PATH", help=path_help)
        parser.add_argument("output", metavar="OUT", help="new directory")
        for name, option in options.items():
            parser.add_argument(f"--{name.replace('_', '-')}", **option)
        add_overwrite(parser, reads=("path", *options), folders=("output",))
        parser.set_defaults(command=parser, system=system, names=options)


def _import(options: argparse.Namespace) -> int:
    r"""Convert another system's checkpoint into a model of this package.

    Example:
      vanilla-transformer import marian opus-mt-en-de runs/opus-mt-en-de
      vanilla-transformer import fairseq wmt16/checkpoint_best.pt runs/wmt16 --dictionaries wmt16
      vanilla-transformer import torch model.pt runs/mine --heads 8 \
          --pad-token-id 1 --bos-token-id 2 --eos-token-id 3

    `vanilla-transformer import SYSTEM --help` shows the options of a system. A checkpoint is
    imported exactly or not at all: if this package cannot represent a part of it, an error says
    which part.
    """
    module = importlib.import_module(f"..convert.importers.{options.system}", __package__)
    convert = getattr(module, f"import_{options.system}")
    values = {name: getattr(options, name) for name in options.names}
    given = {name: value for name, value in values.items() if value is not None}
    try:
        imported = convert(options.path, options.output, **given)
    except RequestError as error:
        foreign = foreign_model(Path(options.path))
        if foreign is None or f"import {options.system} " in foreign or foreign in str(error):
            raise
        raise RequestError(f"{error} {options.path} is {foreign}.") from error
    for note in imported.notes:
        print(note)
    print(options.output)
    return 0


def add_export(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command `export` with its options."""
    command = add_command("export", _export)
    command.add_argument("format", metavar="FORMAT", choices=FORMATS, help=", ".join(FORMATS))
    command.add_argument("directory", metavar="DIR", help="run directory, or any model")
    command.add_argument("output", metavar="OUT", help="new directory")
    text = "how ctranslate2 stores weights (default: float32)"
    command.add_argument("--quantization", choices=QUANTIZATIONS, help=text)
    add_overwrite(command, reads=("directory",), folders=("output",))


def _export(options: argparse.Namespace) -> int:
    """Write a trained model in another format.

    Example:
      vanilla-transformer export stock everyday-en-de exports/stock
      vanilla-transformer export ctranslate2 everyday-en-de exports/int8 --quantization int8

    stock        a model that transformers 4 and 5 load without this package, for Optimum too
    ctranslate2  for CTranslate2, fast on a CPU
    onnx         for ONNX Runtime, Optimum and Transformers.js
    web          a page that translates in the browser: npm install in OUT, python -m http.server

    OUT appears only after the export was loaded and its outputs were compared with the model's.
    """
    given = {"quantization": options.quantization} if options.quantization else {}
    if given and options.format != "ctranslate2":
        raise RequestError(f"--quantization works only with ctranslate2, not {options.format}.")
    from ..storage.run_files import warn_of_changed_model
    from ..storage.saved_model import model_folder

    module = importlib.import_module(f"..convert.exporters.{options.format}", __package__)
    convert = getattr(module, f"export_{options.format}")
    directory = model_folder(options.directory)
    warn_of_changed_model(directory)
    print(convert(directory, options.output, **given))
    return 0
