"""Import of fairseq's `transformer*` checkpoints with their dictionaries.

fairseq's layers are post-norm as in the paper, or pre-norm; its sinusoids are those of the authors'
code, with positions from 2; its decoder starts from `</s>`. Early versions had other names for some
tensors, which are mapped as fairseq maps them today.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ...errors import RequestError
from ...storage.reading import StrPath
from ..layer_names import STACKS
from ..marian_names import MARIAN_LAYERS
from .options import check_options, options_in, shared_option
from .safe_files import PLAIN_CLASSES, read_checkpoint, state_dict, unwrapped
from .state_dict import Imported, Source, finish, setting, special_ids, split_projections
from .vocabulary import both_tokenizers, read_tokens

SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")  # in order of id
_FIRST_POSITION = 2  # the id of <pad>, 1, plus 1


class _Meter:
    """A placeholder for fairseq's classes of training statistics, which are not needed."""


# Classes in checkpoints besides tensors: options and, in old ones, training statistics.
_MODULES = ("fairseq.meters", "fairseq.logging.meters")
_METERS = ("AverageMeter", "TimeMeter", "StopwatchMeter")
_ALLOWED = [*PLAIN_CLASSES, *((_Meter, f"{it}.{name}") for it in _MODULES for name in _METERS)]
_LAYERS = dataclasses.replace(
    MARIAN_LAYERS, layers={stack: f"{stack}.layers" for stack in STACKS}, last_norm="{}.layer_norm"
)
_POSITIONS = tuple(f"{stack}.embed_positions.weights" for stack in STACKS)  # names until 2018
_SOFTMAX = ("decoder.output_projection.weight", "decoder.embed_out")  # names now and in 2018
_UNUSED = ("version", "embed_positions._float_tensor")
_IGNORED = tuple(f"{stack}.{name}" for stack in STACKS for name in _UNUSED)


def import_fairseq(
    path: StrPath, output: StrPath | None = None, *, dictionaries: StrPath | None = None
) -> Imported:
    """Import a checkpoint of fairseq; build its tokenizer from the dictionaries, if found.

    Exact: logits differ by rounding alone. The tokenizer expects the words or pieces of fairseq's
    dictionaries, separated by spaces, and gives their ids.

    Args:
        path: The .pt file.
        output: A new or empty directory. None means nothing is written.
        dictionaries: Directory with dict.SOURCE.txt and dict.TARGET.txt. None means the
            checkpoint's directory.

    Raises:
        ValueError: The file is damaged, could run code, holds another architecture or features
            that this package does not support, or `output` is not empty.
    """
    file = Path(path)
    checkpoint = read_checkpoint(file, "fairseq", ("model",), allowed=_ALLOWED)
    options = _options(checkpoint)
    notes = check_options(options, "fairseq", origin=file)
    norm_first, learned = (
        shared_option(
            name, {stack: bool(options.get(f"{stack}_{name}")) for stack in STACKS}, origin=file
        )
        for name in ("normalize_before", "learned_pos")
    )
    tensors = _upgraded(unwrapped(state_dict(checkpoint["model"], f"{file}: model")))
    source = Source(file, tensors, notes)
    target = "decoder.embed_tokens.weight"
    tied = ("share_decoder_input_output_embed", "share_all_embeddings")
    softmax = (*_SOFTMAX, target) if any(map(options.get, tied)) else _SOFTMAX
    tables = ("encoder.embed_tokens.weight", target, softmax)
    source.find_tables(tables, scaled=not options.get("no_scale_embedding"))
    source.find_layers(_LAYERS)
    source.fields |= _settings(options)
    if learned:
        # Skip the rows of <s>, which is never looked up, and of <pad>.
        names = {stack: f"{stack}.embed_positions.weight" for stack in STACKS}
        source.find_learned_positions(names, first=_FIRST_POSITION)
    else:
        source.fields |= {"position_encoding": "tensor2tensor", "position_offset": _FIRST_POSITION}
    config = source.make_config(
        norm_first=norm_first,
        activation_function=options.get("activation_fn"),
        layer_norm_eps=1e-5,
        **special_ids("eos", bos=0, pad=1, eos=2, unk=3),
    )
    source.place_layers(_LAYERS, config)
    model = source.build_model(config, positions=_POSITIONS, ignored=_IGNORED)
    folder = file.parent if dictionaries is None else Path(dictionaries)
    paths = [folder / f"dict.{options.get(f'{side}_lang')}.txt" for side in ("source", "target")]
    if dictionaries is None and not all(path.is_file() for path in paths):
        return finish(Imported(model, notes=source.notes), output)
    vocabularies = [*map(read_dictionary, paths)]
    tokenizer = both_tokenizers(vocabularies, config, ("$A eos", "$A eos"), origins=paths)
    return finish(Imported(model, tokenizer, notes=source.notes), output)


def _options(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of model and task in one flat dict, for any version of fairseq."""
    config = checkpoint.get("cfg") or {}
    parts = (checkpoint.get("args"), config.get("task"), config.get("model"))
    options: dict[str, Any] = {"arch": ""}
    for kind, part in zip(("", "task", "arch"), parts, strict=True):
        for name, value in options_in(part).items():
            if name in ("encoder", "decoder", "quant_noise") and isinstance(value, Mapping):
                options |= {f"{name}_{key}": inner for key, inner in value.items()}
            elif value is not None:
                options[kind if name == "_name" else name] = value
    # Until 2018 this rate was called relu_dropout.
    options["activation_dropout"] = options.get("activation_dropout") or options.get("relu_dropout")
    return options


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that tensors do not reveal: dropout, numbers of heads and positions."""
    longest = setting(options, "max_positions", 1024)  # until 2018 one option for both sides
    names = ("max_source_positions", "max_target_positions")
    longest = min(setting(options, name, longest) for name in names)
    rates = {"dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0}
    return {
        "max_position_embeddings": longest,
        **{name: setting(options, name, rate) for name, rate in rates.items()},
        **{f"{it}_attention_heads": setting(options, f"{it}_attention_heads", 8) for it in STACKS},
    }


def _upgraded(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors of early versions, which numbered the norms and fused Q, K and V."""
    upgraded = {}
    for name, tensor in split_projections(tensors).items():
        for number, norm in enumerate(MARIAN_LAYERS.norms.get(name.partition(".")[0], ())):
            name = name.replace(f".layer_norms.{number}.", f".{norm}.")
        upgraded[name] = tensor
    return upgraded


def read_dictionary(path: Path) -> list[str]:
    """Read the tokens of a dict.LANGUAGE.txt in order of id, special ones included.

    A token that a later line replaces (`#fairseq:overwrite`) is put in angle brackets, as fairseq
    does to write <unk> out: its id stays in use, but no text is encoded to it.

    Raises:
        ValueError: The file is damaged.
    """
    numbers = {token: number for number, token in enumerate(SPECIAL_TOKENS)}
    tokens = list(SPECIAL_TOKENS)
    for number, line in enumerate(read_tokens(path), start=1):
        line = line.rstrip()
        overwrites = line.endswith(" #fairseq:overwrite")
        token, _, count = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
        if not token or not count.isdecimal():
            raise RequestError(f"{path}, line {number}, is not a token and count: {line[:60]!r}.")
        if overwrites and token in numbers:
            tokens[numbers[token]] = f"<{token}>"
        numbers[token] = len(tokens)
        tokens.append(token)
    return tokens
