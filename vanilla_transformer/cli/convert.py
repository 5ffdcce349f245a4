"""`vanilla-transformer import | export`: other systems' models in, ours out in others' formats."""

import argparse
import importlib
from collections.abc import Callable
from typing import Any

from ..errors import RequestError

_IMPORT_EXAMPLE = """example:
  vanilla-transformer import marian opus-mt-en-de runs/opus-mt-en-de
  vanilla-transformer import fairseq wmt16/checkpoint_best.pt runs/wmt16 --dictionaries wmt16
  vanilla-transformer import torch model.pt runs/mine --heads 8 \\
      --pad-token-id 1 --bos-token-id 2 --eos-token-id 3

`vanilla-transformer import SYSTEM --help` shows the options of a system. A checkpoint comes in
whole or not at all: what this package cannot hold exactly is refused with the reason.
"""
# For each system what PATH is, the options that its importer takes, and an example of them.
SYSTEMS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "marian": (
        "directory of transformers with a MarianMTModel, as OPUS-MT's",
        (),
        "opus-mt-en-de runs/opus-mt-en-de",
    ),
    "fsmt": (
        "directory of transformers with an FSMTForConditionalGeneration",
        (),
        "wmt19-en-ru runs/wmt19-en-ru",
    ),
    "fairseq": (
        "checkpoint .pt of a transformer* of fairseq's",
        ("dictionaries", "bpe_codes"),
        "wmt16/checkpoint_best.pt runs/wmt16 --dictionaries wmt16 --bpe-codes wmt16/bpecodes",
    ),
    "torch": (
        "state dict .pt with a torch.nn.Transformer in it",
        (
            "heads",
            "pad_token_id",
            "bos_token_id",
            "eos_token_id",
            "unk_token_id",
            "source_embedding",
            "target_embedding",
            "generator",
            "norm_first",
            "activation",
            "layer_norm_eps",
            "unscaled",
            "source_vocab",
            "target_vocab",
        ),
        "model.pt runs/mine --heads 8 --pad-token-id 1 --bos-token-id 2 --eos-token-id 3",
    ),
    "annotated": (
        "state dict .pt of The Annotated Transformer",
        ("heads", "source_vocab", "target_vocab"),
        "multi30k_model_final.pt runs/annotated --source-vocab de.txt --target-vocab en.txt",
    ),
    "joeynmt": (
        "model directory of Joey NMT with config.yaml",
        ("checkpoint",),
        "models/iwslt14 runs/iwslt14 --checkpoint best.ckpt",
    ),
    "opennmt": ("checkpoint .pt of OpenNMT-py 3", (), "model_step_100000.pt runs/opennmt"),
}
_NUMBER, _FILE = {"type": int, "metavar": "N"}, {"metavar": "FILE"}
_NAME = {"metavar": "NAME"}
_OPTIONS: dict[str, dict[str, Any]] = {
    "dictionaries": {"metavar": "DIR", "help": "has dict.SOURCE.txt and dict.TARGET.txt"},
    "bpe_codes": {**_FILE, "help": "codes of BPE, for a tokenizer of text (Moses, then these)"},
    "checkpoint": {**_NAME, "help": "file in the directory (default: the best)"},
    "heads": {**_NUMBER, "help": "attention heads"},
    "pad_token_id": {**_NUMBER, "help": "id of padding"},
    "bos_token_id": {**_NUMBER, "help": "id from which the decoder starts"},
    "eos_token_id": {**_NUMBER, "help": "id that ends a target"},
    "unk_token_id": {**_NUMBER, "help": "id of unknown words, if there is one"},
    "source_embedding": {**_NAME, "help": "tensor of the encoder's embedding"},
    "target_embedding": {**_NAME, "help": "tensor of the decoder's embedding"},
    "generator": {**_NAME, "help": "tensor of the weight before the softmax"},
    "norm_first": {"action": "store_true", "help": "norm_first=True in torch.nn.Transformer"},
    "activation": {"choices": ("relu", "gelu"), "help": "default: relu"},
    "layer_norm_eps": {"type": float, "metavar": "X", "help": "default: 1e-5"},
    "unscaled": {"action": "store_true", "help": "embeddings were not multiplied by sqrt(d_model)"},
    "source_vocab": {**_FILE, "help": "the source's tokens, one a line"},
    "target_vocab": {**_FILE, "help": "the target's tokens, one a line"},
}
# Without these a state dict says too little.
_REQUIRED = {"torch": ("heads", "pad_token_id", "bos_token_id", "eos_token_id")}

FORMATS = ("marian", "ctranslate2", "onnx")
QUANTIZATIONS = ("float32", "bfloat16", "int8", "int8_float32")
_EXPORT_EXAMPLE = """example:
  vanilla-transformer export marian runs/multi30k_en_de exports/marian
  vanilla-transformer export ctranslate2 runs/multi30k_en_de exports/int8 --quantization int8
  vanilla-transformer export onnx runs/multi30k_en_de exports/onnx

marian       a stock MarianMTModel, for transformers without this package and all that knows Marian
ctranslate2  for CTranslate2, fast on CPU and GPU: translate --engine ctranslate2
onnx         an encoder and a decoder for ONNX Runtime: translate --engine onnx

The export is loaded again and compared with the model before OUT appears.
"""


def add_import(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the command `import`."""
    help = "make a model of this package from another system's checkpoint"
    command = add_command("import", help=help, epilog=_IMPORT_EXAMPLE)
    systems = command.add_subparsers(required=True, metavar="SYSTEM")
    for system, (path_help, options, example) in SYSTEMS.items():
        parser = systems.add_parser(
            system,
            help=path_help,
            epilog=f"example:\n  vanilla-transformer import {system} {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        parser.add_argument("path", metavar="PATH", help=path_help)
        parser.add_argument("output", metavar="OUT", help="new directory")
        for name in options:
            flag, required = f"--{name.replace('_', '-')}", name in _REQUIRED.get(system, ())
            parser.add_argument(flag, **_OPTIONS[name], required=required)
        parser.set_defaults(run=_import, command=parser, system=system, names=options)


def _import(options: argparse.Namespace) -> int:
    module = importlib.import_module(f"..convert.importers.{options.system}", __package__)
    given = {name: getattr(options, name) for name in options.names}
    imported = getattr(module, f"import_{options.system}")(
        options.path,
        options.output,
        **{name: value for name, value in given.items() if value is not None},
    )
    for note in imported.notes:
        print(note)
    print(options.output)
    return 0


def add_export(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the command `export`."""
    help = "write a trained model in another format"
    command = add_command("export", help=help, epilog=_EXPORT_EXAMPLE)
    command.add_argument("format", metavar="FORMAT", choices=FORMATS, help=", ".join(FORMATS))
    command.add_argument("directory", metavar="DIR", help="run directory, or any saved model")
    command.add_argument("output", metavar="OUT", help="new directory")
    command.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        help="how ctranslate2 stores weights (default: float32)",
    )
    command.set_defaults(run=_export, command=command)


def _export(options: argparse.Namespace) -> int:
    if options.quantization and options.format != "ctranslate2":
        raise RequestError(f"--quantization is for ctranslate2; {options.format} has none.")
    folders = (options.directory, options.output)
    if options.format == "marian":
        from ..convert.exporters.marian import export_marian

        print(export_marian(*folders))
    elif options.format == "ctranslate2":
        from ..convert.exporters.ctranslate2 import export_ctranslate2

        print(export_ctranslate2(*folders, quantization=options.quantization or "float32"))
    else:
        from ..convert.exporters.onnx import export_onnx

        print(export_onnx(*folders))
    return 0
