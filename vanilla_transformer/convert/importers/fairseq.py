"""Import of fairseq's `transformer*` checkpoints with their dictionaries.

fairseq's layers are post-norm as in the paper, or pre-norm; its sinusoids are those of the authors'
code, with positions from 2; its decoder starts from `</s>`. Early versions had other names for some
tensors, which are mapped as fairseq maps them today.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedTokenizerFast

from ...configuration_vanilla_transformer import VanillaTransformerConfig
from ...errors import RequestError
from ...storage.pickles import read_pickle
from ..marian_names import tensor_map
from .options import check_options, options_in
from .safe_files import PLAIN_CLASSES, listed, state_dict, unwrapped
from .state_dict import (
    Imported,
    Piece,
    Tables,
    build_model,
    check_sinusoids,
    find_tables,
    finish,
    make_config,
    number_setting,
)
from .vocabulary import check_size, read_tokens, word_tokenizer

SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")  # in order of id
_ROLES = ("bos", "pad", "eos", "unk")  # of these
_FIRST_POSITION = 2  # the one after <pad>'s


class _Meter:
    """A placeholder for fairseq's classes of training statistics, which are not needed."""


# What checkpoints hold besides tensors: options and, in old ones, training statistics.
_ALLOWED = [
    *PLAIN_CLASSES,
    *(
        (_Meter, f"fairseq.{module}.{name}")
        for module in ("meters", "logging.meters")
        for name in ("AverageMeter", "TimeMeter", "StopwatchMeter")
    ),
]
_ACTIVATIONS = {"gelu_accurate": "gelu_new", "gelu_fast": "gelu_new"}
# Norms in the order in which early versions numbered them.
_OLD_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
_POSITIONS = tuple(f"{stack}.embed_positions.weights" for stack in _OLD_NORMS)  # until 2018
_IGNORED = tuple(
    f"{stack}.{name}"
    for stack in ("encoder", "decoder")
    for name in ("version", "embed_positions._float_tensor")
)


def import_fairseq(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    dictionaries: str | os.PathLike[str] | None = None,
    bpe_codes: str | os.PathLike[str] | None = None,
) -> Imported:
    """Import a checkpoint of fairseq.

    Exact: logits differ by rounding alone. The tokenizer expects the words or pieces of fairseq's
    dictionaries, separated by spaces, and gives their ids; with BPE codes it takes any text.

    Args:
        path: the .pt file.
        output: a new or empty directory. None means nothing is written.
        dictionaries: directory with dict.SOURCE.txt and dict.TARGET.txt. None means the
            checkpoint's.
        bpe_codes: file with codes of subword-nmt or fastBPE. transformers' FSMTTokenizer then
            applies Moses and BPE, as fairseq does with `--tokenizer moses --bpe fastbpe`.
            (`tokenizers` cannot: its merges need ids that the dictionary lacks.) None means no BPE.

    Raises:
        ValueError: the file is damaged, could run code, holds another architecture or features
            that this package does not support, or `output` is not empty.
    """
    file = Path(path)
    checkpoint = read_pickle(file, _ALLOWED)
    if not isinstance(checkpoint, Mapping) or "model" not in checkpoint:
        raise RequestError(f"{file} is not a fairseq checkpoint; it holds no `model`.")
    options = _options(checkpoint)
    notes = list(check_options(options, "fairseq", origin=file))
    _check_alike(options, file)
    tensors = _upgraded(unwrapped(state_dict(checkpoint["model"], f"{file}: model")))
    tables = _tables(options, tensors, file)
    learned = bool(options.get("encoder_learned_pos"))
    positions = _position_rows(tensors) if learned else []
    rows = min(positions, default=_longest(options, file))
    config = make_config(
        file,
        **tables.fields,
        **_sizes(options, tensors, file),
        position_encoding="learned" if learned else "tensor2tensor",
        position_offset=0 if learned else _FIRST_POSITION,
        max_position_embeddings=rows,
        norm_first=bool(options.get("encoder_normalize_before")),
        activation_function=_activation(options),
        layer_norm_eps=1e-5,
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
        unk_token_id=3,
        decoder_start_token_id=2,
    )
    check_sinusoids(tensors, _POSITIONS, config, origin=file)
    pieces = {**tables.pieces, **_pieces(config)}
    model = build_model(config, pieces, tensors, origin=file, ignored=_POSITIONS + _IGNORED)
    folder = file.parent if dictionaries is None else Path(dictionaries)
    sizes, required = (config.vocab_size, config.target_vocab_size), bool(dictionaries or bpe_codes)
    found = _dictionaries(options, folder, sizes, required=required)
    if not found:
        notes.append("There are no dictionaries; these are weights and ids only.")
    if len(set(positions)) > 1:
        lengths = " and ".join(map(str, positions))
        notes.append(f"The learned tables have {lengths} positions; the first {rows} are kept.")
    if bpe_codes is not None:
        files = _fsmt_tokenizer_files(options, found, Path(bpe_codes))
        return finish(Imported(model, files=files, notes=tuple(notes)), output)
    return finish(Imported(model, *_word_tokenizers(found, folder), notes=tuple(notes)), output)


def _pieces(config: VanillaTransformerConfig) -> dict[str, Piece]:
    """Map the layers, and final norms and learned positions if the model has them."""
    pieces = {
        key: Piece((place.key.removeprefix("model."),))
        for key, place in tensor_map(config).items()
        if ".layers." in key
    }
    # The rows before belong to <s>, which is never looked up, and <pad>.
    used = slice(_FIRST_POSITION, _FIRST_POSITION + config.max_position_embeddings)
    for stack in ("encoder", "decoder"):
        if config.norm_first:
            for part in ("weight", "bias"):
                pieces[f"model.{stack}.norm.{part}"] = Piece((f"{stack}.layer_norm.{part}",))
        if config.position_encoding == "learned":
            table = f"{stack}.embed_positions.weight"
            pieces[f"model.{table}"] = Piece((table,), lambda rows: rows[used])
    return pieces


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
    return options


def _check_alike(options: Mapping[str, Any], file: Path) -> None:
    """Refuse stacks of different kinds."""
    for option in ("normalize_before", "learned_pos"):
        values = [bool(options.get(f"{stack}_{option}")) for stack in ("encoder", "decoder")]
        if values[0] != values[1]:
            raise RequestError(
                f"{file} has encoder_{option}={values[0]} but decoder_{option}={values[1]}; this "
                "package has one value for both stacks."
            )


def _activation(options: Mapping[str, Any]) -> str:
    name = str(options.get("activation_fn") or "relu")
    return _ACTIVATIONS.get(name, name)


def _longest(options: Mapping[str, Any], file: Path) -> int:
    both = number_setting(options, "max_positions", 1024, origin=file)  # until 2018
    sides = ("source", "target")
    return min(
        number_setting(options, f"max_{side}_positions", both, origin=file) for side in sides
    )


def _position_rows(tensors: Mapping[str, Tensor]) -> list[int]:
    """Return the number of positions in the learned table of each stack that has one."""
    tables = [tensors.get(f"{stack}.embed_positions.weight") for stack in ("encoder", "decoder")]
    return [table.size(0) - _FIRST_POSITION for table in tables if table is not None]


def _sizes(options: Mapping[str, Any], tensors: Mapping[str, Tensor], file: Path) -> dict[str, Any]:
    """Return the sizes that the options give; `build_model` checks the tensors against them."""

    def of(name: str, default: float) -> Any:
        return number_setting(options, name, default, origin=file)

    sizes: dict[str, Any] = {
        "d_model": tensors["encoder.embed_tokens.weight"].size(1),
        "dropout": of("dropout", 0.1),
        "attention_dropout": of("attention_dropout", 0.0),
        "activation_dropout": of("activation_dropout", 0.0) or of("relu_dropout", 0.0),
    }
    for stack in ("encoder", "decoder"):
        sizes[f"{stack}_layers"] = of(f"{stack}_layers", 6)
        sizes[f"{stack}_attention_heads"] = of(f"{stack}_attention_heads", 8)
        sizes[f"{stack}_ffn_dim"] = of(f"{stack}_ffn_embed_dim", 2048)
    return sizes


def _tables(options: Mapping[str, Any], tensors: Mapping[str, Tensor], file: Path) -> Tables:
    target = "decoder.embed_tokens.weight"
    softmax = "decoder.output_projection.weight"
    if "decoder.embed_out" in tensors:
        softmax = "decoder.embed_out"
    elif softmax not in tensors and (
        options.get("share_decoder_input_output_embed") or options.get("share_all_embeddings")
    ):
        softmax = target
    return find_tables(
        tensors,
        source="encoder.embed_tokens.weight",
        target=target,
        softmax=softmax,
        origin=file,
        scaled=not options.get("no_scale_embedding"),
    )


def _upgraded(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors of early versions, which numbered the norms and fused Q, K and V."""
    upgraded = {}
    for name, tensor in tensors.items():
        norm = re.fullmatch(r"((encoder|decoder)\.layers\.\d+)\.layer_norms\.(\d)\.(\w+)", name)
        fused = re.fullmatch(r"(.*attn)\.in_proj_(weight|bias)", name)
        if norm and int(norm[3]) < len(_OLD_NORMS[norm[2]]):
            upgraded[f"{norm[1]}.{_OLD_NORMS[norm[2]][int(norm[3])]}.{norm[4]}"] = tensor
        elif fused and tensor.dim() and tensor.size(0) % 3 == 0:
            for part, rows in zip("qkv", tensor.chunk(3), strict=True):
                upgraded[f"{fused[1]}.{part}_proj.{fused[2]}"] = rows
        else:
            upgraded[name] = tensor
    return upgraded


def read_dictionary(path: Path) -> list[str]:
    """Read the tokens of a dict.LANGUAGE.txt in order of id, special ones included.

    A token that another one replaces (`#fairseq:overwrite`) is <token> here, as in fairseq's own
    text for unknown words: its id stays, and no text has it.

    Raises:
        ValueError: the file is damaged.
    """
    numbers = {token: number for number, token in enumerate(SPECIAL_TOKENS)}
    tokens = list(SPECIAL_TOKENS)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is not UTF-8 ({error.reason}).") from error
    for number, line in enumerate(text.rstrip("\n").split("\n"), start=1):
        line = line.rstrip()
        overwrites = line.endswith(" #fairseq:overwrite")
        token, _, count = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
        if not token or not count.isdecimal():
            raise RequestError(
                f"{path}, line {number}, is not a token and its count: {line[:60]!r}."
            )
        if token in numbers and not overwrites:
            raise RequestError(f"{path}, line {number}, holds {token!r} once more.")
        if token in numbers:
            tokens[numbers[token]] = f"<{token}>"
        numbers[token] = len(tokens)
        tokens.append(token)
    return tokens


def _dictionaries(
    options: Mapping[str, Any], folder: Path, sizes: tuple[int, int], *, required: bool
) -> list[list[str]]:
    """Return the tokens of source and target; empty if the folder lacks a dictionary.

    Raises:
        ValueError: they are required and missing, or do not fit the model.
    """
    languages = [options.get(f"{side}_lang") for side in ("source", "target")]
    paths = [folder / f"dict.{language}.txt" for language in languages]
    missing = [str(path) for path in paths if not path.is_file()]
    if missing and required:
        raise RequestError(f"There is no {listed(missing)}; name the directory that has them.")
    if missing:
        return []
    found = [read_dictionary(path) for path in paths]
    for tokens, path, size in zip(found, paths, sizes, strict=True):
        check_size(tokens, size, origin=path)
    return found


def _word_tokenizers(
    found: list[list[str]], folder: Path
) -> tuple[PreTrainedTokenizerFast | None, PreTrainedTokenizerFast | None]:
    """Return the source's tokenizer, and the target's if its dictionary differs."""
    if not found:
        return None, None
    source, target = (
        word_tokenizer(
            tokens,
            dict(zip(_ROLES, tokens, strict=False)),
            "$A eos",
            origin=f"a dictionary in {folder}",
        )
        for tokens in found
    )
    return source, None if found[0] == found[1] else target


def _fsmt_tokenizer_files(
    options: Mapping[str, Any], found: list[list[str]], codes: Path
) -> dict[str, bytes]:
    """Return files for transformers' FSMTTokenizer: Moses and BPE as in fairseq's hub."""
    languages = [str(options.get(f"{side}_lang")) for side in ("source", "target")]
    settings = {"tokenizer_class": "FSMTTokenizer", "langs": languages, "do_lower_case": False}
    files = {"tokenizer_config.json": settings}
    for name, tokens in zip(("vocab-src.json", "vocab-tgt.json"), found, strict=True):
        # FSMTTokenizer marks where words end; fairseq marks where they continue.
        marked = list(SPECIAL_TOKENS)
        for token in tokens[len(SPECIAL_TOKENS) :]:
            inside = token.endswith("@@")
            marked.append(token.removesuffix("@@") if inside else f"{token}</w>")
        files[name] = {token: number for number, token in enumerate(marked)}
    contents = {
        name: json.dumps(content, ensure_ascii=False).encode() for name, content in files.items()
    }
    return {**contents, "merges.txt": "".join(f"{merge}\n" for merge in _merges(codes)).encode()}


def _merges(path: Path) -> list[str]:
    """Read the merges of subword-nmt or fastBPE in the order in which they were learned.

    Raises:
        ValueError: the file has another format.
    """
    merges = []
    for number, line in enumerate(read_tokens(path), start=1):
        parts = line.split(" ")
        if number == 1 and parts[0] == "#version:":
            continue
        if len(parts) not in (2, 3) or parts[1] == "</w>":
            raise RequestError(
                f"{path}, line {number}, is not a merge of subword-nmt 0.2 or fastBPE: "
                f"{line[:60]!r}."
            )
        merges.append(" ".join(parts[:2]))
    return merges


__all__ = ["import_fairseq", "read_dictionary"]
