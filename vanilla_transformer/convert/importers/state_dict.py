"""Shared code of the importers: account for every tensor, and write all or nothing.

An importer gives a `Piece` for each of our tensors, which says where it is in the source. Missing,
surplus and wrongly shaped tensors are refused by name, before anything is written.
"""

import functools
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from ...configuration_vanilla_transformer import VanillaTransformerConfig
from ...errors import RequestError
from ...modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration as Model
from ...modeling_vanilla_transformer import sinusoids
from ...storage.atomic import folder_written_aside
from ...storage.reading import StrPath
from ...storage.saved_model import check_finite, load_saved_tokenizer
from ..layer_names import LayerNames
from .safe_files import listed

# Other systems' names of our activations.
_ACTIVATIONS = {
    "silu": "swish",
    **dict.fromkeys(("gelu_accurate", "gelu_fast", "gelu_pytorch_tanh"), "gelu_new"),
}
Names = str | tuple[str, ...]  # a tensor's name, or all names that it may have


class Piece(NamedTuple):
    """The origin of one of our tensors in the source checkpoint.

    Attributes:
        keys: Names of the tensor in the source. If the source ties several, all that are present
            must be equal. No names means zeros, for a bias that the source lacks.
        change: Computes our tensor from the source's. None means they are the same.
    """

    keys: tuple[str, ...]
    change: Callable[[Tensor], Tensor] | None = None


class Imported(NamedTuple):
    """An imported model with its tokenizer or tokenizer files, and notes for the user.

    Attributes:
        model: The model in evaluation mode, in a dtype that holds all of its tensors exactly.
        tokenizer: The tokenizer, which also stores the target's if there are two vocabularies. None
            means none was built.
        files: Tokenizer files to write as they are, by name.
        notes: What a user should know, one sentence each.
    """

    model: Model
    tokenizer: PreTrainedTokenizerFast | None = None
    files: Mapping[str, bytes] = MappingProxyType({})
    notes: tuple[str, ...] = ()


class Source:
    """A model of another system while it is imported: its tensors, and the facts found so far.

    Attributes:
        origin: The model's name in errors.
        tensors: The model's tensors by name.
        notes: What a user should know, one sentence each.
        fields: The fields of our configuration that were found so far.
        pieces: Where each tensor of our state dict comes from; tied tensors are listed once.
    """

    def __init__(
        self, origin: object, tensors: Mapping[str, Tensor], notes: tuple[str, ...] = ()
    ) -> None:
        """Store the tensors; the configuration is inferred from them later."""
        self.origin, self.tensors, self.notes = origin, dict(tensors), notes
        self.fields: dict[str, Any] = {}
        self.pieces: dict[str, Piece] = {}

    def find_tables(self, tables: tuple[Names, Names, Names], *, scaled: bool = True) -> None:
        """Infer vocabulary sizes and tied tables from embeddings and softmax; tie equal tables.

        Args:
            tables: Names of the encoder's embedding, the decoder's embedding and the pre-softmax
                table, each (V, d); a tuple has all names that a table may be stored under.
            scaled: Whether the source multiplies embeddings by sqrt(d_model). If not, they are
                divided by it here, and then cannot be tied to the pre-softmax table.

        Raises:
            ValueError: A table is missing.
        """
        names = [(it,) if isinstance(it, str) else it for it in tables]
        present = [next(filter(self.tensors.__contains__, those), those[0]) for those in names]
        encoding, decoding, writing = self.matrices(*present)
        tied, shared = scaled and torch.equal(decoding, writing), torch.equal(encoding, decoding)
        self.fields |= {
            "d_model": encoding.size(1),
            "vocab_size": len(encoding),
            "decoder_vocab_size": len(decoding) if len(decoding) != len(encoding) else None,
            "tie_word_embeddings": tied,
            "share_encoder_decoder_embeddings": shared,
        }
        encoder, decoder = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
        if shared:
            encoder = decoder = "model.shared.weight"
        head = decoder if tied else "lm_head.weight"
        for ours, those in zip((encoder, decoder, head), names, strict=True):
            others = self.pieces[ours].keys if ours in self.pieces else ()
            change = None if scaled or ours == "lm_head.weight" else _divided
            self.pieces[ours] = Piece((*others, *those), change)

    def find_layers(self, names: LayerNames) -> None:
        """Infer the number and the widths of the layers from their tensors.

        Raises:
            ValueError: The first layer of a stack is missing.
        """
        for stack, prefix in names.layers.items():
            (inner,) = self.matrices(f"{prefix}.0.{names.feed_forward[0]}.weight")
            self.fields[f"{stack}_ffn_dim"], self.fields["d_model"] = inner.shape
            numbers = [re.match(re.escape(prefix) + r"\.(\d+)\.", name) for name in self.tensors]
            layers = max(int(number[1]) + 1 for number in numbers if number)
            self.fields[f"{stack}_layers"] = layers

    def sinusoid_style(self, tables: Collection[Tensor]) -> str | None:
        """Return the style of the sinusoids in all tables, (positions, d); None if none fits."""
        width = self.fields["d_model"]
        odd = tables and width % 2  # sinusoids need an even width
        for style in () if odd else ("sinusoidal", "tensor2tensor"):
            if all(_is_sinusoids(table, width, style=style) for table in tables):
                return style
        return None

    def find_learned_positions(self, names: Mapping[str, str], *, first: int = 0) -> None:
        """Set the config for learned positions, and record the tables that they come from.

        Args:
            names: The name of each stack's table, (positions, d) and any dimensions of size 1.
            first: Row of the first position.
        """
        tables = [self.tensors[name].squeeze() for name in names.values() if name in self.tensors]
        rows = [len(table) - first for table in tables]
        kept = min(rows, default=1)
        self.fields |= {"position_encoding": "learned", "max_position_embeddings": kept}
        for stack, name in names.items():
            self.pieces[f"model.{stack}.embed_positions.weight"] = Piece(
                (name,), lambda table: table.squeeze()[first : first + kept]
            )
        if len(set(rows)) > 1:
            lengths = " and ".join(map(str, rows))
            note = f"The stacks have {lengths} learned positions; only the first {kept} are used."
            self.notes += (note,)

    def make_config(self, **fields: Any) -> VanillaTransformerConfig:
        """Return the configuration with the fields found so far, and the given ones.

        Raises:
            ValueError: The fields are not a valid configuration.
        """
        fields = self.fields | fields
        activation = str(fields.get("activation_function") or "relu")
        fields["activation_function"] = _ACTIVATIONS.get(activation, activation)
        try:
            return VanillaTransformerConfig(**fields)
        except StrictDataclassError as error:
            raise RequestError(f"{self.origin}: {error.__cause__ or error}") from error

    def place_layers(self, names: LayerNames, config: VanillaTransformerConfig) -> None:
        """Record where the tensors of layers and final norms are in the source."""
        self.pieces |= {key: Piece((name,)) for key, name in names.tensors(config).items()}

    def fill_missing_biases(self) -> None:
        """Use zeros for biases that the source lacks in every layer.

        Norms may lack biases only if all modules do: otherwise they are another function.
        """
        biases = {key: piece.keys[0] for key, piece in self.pieces.items() if key.endswith(".bias")}
        stored = {_kind(name) for name in biases.values() if name in self.tensors}
        for key, name in biases.items():
            if _kind(name) not in stored and not (stored and "norm" in key):
                self.pieces[key] = Piece(())

    def build_model(
        self,
        config: VanillaTransformerConfig,
        *,
        positions: Iterable[str] = (),
        ignored: Iterable[str] = (),
    ) -> Model:
        """Build a model with all of its tensors from the source.

        Args:
            config: The model's configuration.
            positions: Names of tables that must hold the sinusoids that the model computes.
            ignored: Other names in the source that the model does not need.

        Raises:
            ValueError: Tensors are missing, surplus, wrongly shaped, hold NaN, infinity or other
                sinusoids, or differ although the source ties them; the message names them.
        """
        style, first = config.position_encoding, config.position_offset
        for name in filter(self.tensors.__contains__, positions):
            if not _is_sinusoids(self.tensors[name], config.d_model, style=style, first=first):
                raise RequestError(f"{self.origin}: {name} does not hold the expected sinusoids.")
        with torch.device("meta"):  # allocate no memory, draw no random numbers
            model = Model(config)
        shapes = {key: parameter.shape for key, parameter in model.named_parameters()}
        found = self._tensors(shapes, ignored=[*positions, *ignored])
        # The smallest dtype that holds every tensor exactly.
        dtype = functools.reduce(torch.promote_types, (made.dtype for made in found.values()))
        # Copies, because views of one source tensor would be taken for ties.
        contiguous = {"memory_format": torch.contiguous_format}
        found = {key: made.to(dtype).clone(**contiguous) for key, made in found.items()}
        model.load_state_dict(found, strict=False, assign=True)
        model.tie_weights()
        return model.eval()

    def _tensors(
        self, shapes: Mapping[str, torch.Size], *, ignored: Iterable[str]
    ) -> dict[str, Tensor]:
        """Return all tensors of our state dict, tied ones once; refuse those that do not fit.

        Args:
            shapes: Their shapes by name.
            ignored: Names in the source that are not needed.
        """
        problems: dict[str, list[str]] = {"missing": [], "wrongly shaped": []}
        found = {}
        for key, piece in self.pieces.items():
            there = {name: self.tensors[name] for name in piece.keys if name in self.tensors}
            if not there:
                problems["missing"] += piece.keys[:1]
                found[key] = torch.zeros(shapes[key], dtype=torch.bool)  # ignored by promote_types
                continue
            (name, first), *others = there.items()
            check_finite(name, first, Path(str(self.origin)))
            if any(not torch.equal(tensor, first) for _, tensor in others):
                raise RequestError(f"{self.origin}: {listed([*there])} must be equal, but differ.")
            found[key] = _made(first, piece.change)
            if found[key].shape != shapes[key] or not first.is_floating_point():
                got = f"{name} {tuple(first.shape)} {first.dtype}"
                problems["wrongly shaped"].append(f"{got} for {key} {tuple(shapes[key])}")
        known = {name for piece in self.pieces.values() for name in piece.keys} | {*ignored}
        problems["surplus"] = [name for name in self.tensors if name not in known]
        if any(problems.values()):
            named = [f"{kind}: {listed(names)}" for kind, names in problems.items() if names]
            raise RequestError(f"{self.origin} does not fit the model; {'; '.join(named)}.")
        return found

    def matrices(self, *names: str) -> list[Tensor]:
        """Return the named tensors, which must be matrices, to read sizes from.

        Raises:
            ValueError: Some are missing, or are not matrices.
        """
        tensors = self.tensors
        missing = [name for name in names if name not in tensors or tensors[name].dim() != 2]
        if missing:
            raise RequestError(f"{self.origin} does not fit the model; missing: {listed(missing)}.")
        return [tensors[name] for name in names]


def _made(tensor: Tensor, change: Callable[[Tensor], Tensor] | None) -> Tensor:
    """Convert a source tensor to ours; leave a tensor of a wrong type or shape unchanged."""
    if change is None or not tensor.is_floating_point():
        return tensor.detach()
    try:
        made = change(tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32)))
    except (RuntimeError, IndexError):
        return tensor
    narrow = made.to(tensor.dtype)  # rescaling may not be exact in half precision
    return narrow if torch.equal(narrow.to(made.dtype), made) else made


def _divided(table: Tensor) -> Tensor:
    return table / math.sqrt(table.size(1))


def split_projections(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Split fused projections of query, key and value, as torch saves them."""
    found = {}
    for name, tensor in tensors.items():
        prefix, fused, part = name.rpartition("in_proj_")
        if fused and tensor.dim() and tensor.size(0) % 3 == 0:
            for letter, rows in zip("qkv", tensor.chunk(3), strict=True):
                found[f"{prefix}{letter}_proj.{part}"] = rows
        else:
            found[name] = tensor
    return found


def _is_sinusoids(table: Tensor, width: int, *, style: str, first: int = 0) -> bool:
    """Return True if a position table holds the sinusoids that we compute.

    The tolerance admits tables computed in single precision, inexact at large positions.

    Args:
        table: The source's table, (positions, width), possibly with further dimensions of size 1.
        width: d_model.
        style: Kind of sinusoids, as in `position_encoding`.
        first: Row of the first position.
    """
    table = table.squeeze()
    if table.dim() != 2 or table.size(1) != width or not table.is_floating_point():
        return False
    found = table[first:][:512].double()
    if not len(found):
        return False
    expected = sinusoids(torch.arange(first, first + len(found)), width, style=style)
    return bool((found - expected).abs().max() < max(1e-3, torch.finfo(table.dtype).eps))


def _kind(name: str) -> str:
    """Return the last two parts of a tensor's name, which are the same in all layers."""
    return ".".join(name.split(".")[-2:])


def setting(settings: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return a setting of another system's model, or the default if it is not set.

    For a list (OpenNMT's rates may change during training), return the first value.
    """
    value = settings.get(name)
    if isinstance(value, list) and value:
        value = value[0]
    return default if value is None else value


def special_ids(start: str, **ids: int | None) -> dict[str, int | None]:
    """Return the config fields of special ids; `start` names the one that decoding starts with."""
    fields = {f"{role}_token_id": number for role, number in ids.items()}
    return {**fields, "decoder_start_token_id": ids[start]}


def finish(imported: Imported, output: StrPath | None) -> Imported:
    """Write an imported model to `output`, if given, completely or not at all.

    Returns:
        `imported`, with a note if it has no tokenizer.

    Raises:
        ValueError: `output` is not empty, or the tokenizer does not load.
    """
    if imported.tokenizer is None and not imported.files:
        note = "There is no tokenizer; the model takes ids only."
        imported = imported._replace(notes=(*imported.notes, note))
    if output is None:
        return imported
    with folder_written_aside(Path(output)) as aside:
        imported.model.save_pretrained(aside)
        if imported.tokenizer is not None:
            imported.tokenizer.save_pretrained(aside)
        for name, content in imported.files.items():
            (aside / name).write_bytes(content)
        if imported.files:  # another system's: fail now if one is missing or damaged
            try:
                load_saved_tokenizer(aside)
            except RequestError as error:
                reason = str(error).replace(str(aside), "the source")
                raise RequestError(f"The import needs all files of the source: {reason}") from error
    return imported
