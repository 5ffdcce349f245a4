"""Import of state dicts that contain a `torch.nn.Transformer`.

`torch.nn.Transformer` is the paper's two stacks with a norm after each, without embeddings,
positions and pre-softmax transformation. These are found by the names in PyTorch's tutorials;
other names must be given.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from ...errors import RequestError
from ...storage.reading import StrPath
from ..layer_names import STACKS, LayerNames
from .options import check_options
from .safe_files import listed, read_state_dict
from .state_dict import Imported, Piece, Source, finish, special_ids, split_projections
from .vocabulary import vocabulary_tokenizer

# Patterns that find tables by name if the user does not name them.
_SOURCE = re.compile(r"(src|source|encoder|enc).*(emb|tok).*weight$", re.IGNORECASE)
_TARGET = re.compile(r"(tgt|trg|target|decoder|dec).*(emb|tok).*weight$", re.IGNORECASE)
_SOFTMAX = re.compile(r"(generator|lm_head|fc_out|output|out|proj|classifier).*weight$", re.I)
_POSITIONS = re.compile(r"(pos|pe$|\.pe\b)", re.IGNORECASE)
_OF_TARGET = re.compile(r"(tgt|trg|target|dec)", re.IGNORECASE)


def import_torch(
    path: StrPath,
    output: StrPath | None = None,
    *,
    heads: int,
    pad_token_id: int,
    bos_token_id: int,
    eos_token_id: int,
    unk_token_id: int | None = None,
    source_embedding: str | None = None,
    target_embedding: str | None = None,
    generator: str | None = None,
    norm_first: bool = False,
    activation: str = "relu",
    layer_norm_eps: float = 1e-5,
    unscaled: bool = False,
    source_vocab: StrPath | None = None,
    target_vocab: StrPath | None = None,
) -> Imported:
    """Import a state dict of `torch.nn.Transformer` with embeddings and an output projection.

    Exact: logits differ by rounding alone. The arguments give what a state dict does not contain.

    Args:
        path: A file that `torch.save(model.state_dict(), ...)` wrote, a safetensors file, or a
            training checkpoint.
        output: A new or empty directory. None means nothing is written.
        heads: Attention heads (`nhead`).
        pad_token_id: Id of padding.
        bos_token_id: Id from which the decoder starts.
        eos_token_id: Id that ends a target.
        unk_token_id: Id of unknown words, never produced. None means there is none.
        source_embedding: Name of the encoder's embedding, (V, d). None: search for it by name.
        target_embedding: Name of the decoder's embedding, (V, d). None: search for it by name.
        generator: Name of the pre-softmax table, (V, d). None: search for it by name.
        norm_first: The value given to `torch.nn.Transformer`.
        activation: "relu" or "gelu", as given to `torch.nn.Transformer`.
        layer_norm_eps: The value given to `torch.nn.Transformer`.
        unscaled: Whether embeddings were used without the factor sqrt(d_model).
        source_vocab: File with the source's tokens, one per line, for a word tokenizer that puts
            `bos` and `eos` around a text, as in PyTorch's tutorial. None means no tokenizer.
        target_vocab: Such a file with the target's tokens. None means the source's file.

    Raises:
        ValueError: The file is damaged or could run code, a table was not found, tensors are
            missing, surplus or wrongly shaped, or `output` is not empty.
    """
    file = Path(path)
    tensors, settings = read_state_dict(file)
    given = {"nhead": heads, "norm_first": norm_first, "activation": activation}
    given["layer_norm_eps"] = layer_norm_eps
    notes = check_options(settings, "torch", origin=file, given=given)
    prefix, tensors = _prefix(tensors, file), split_projections(tensors)
    source = Source(file, tensors, notes)
    names = _layer_names(prefix)
    inside = tuple(f"{layers}." for layers in names.layers.values())
    outside = {name: tensor for name, tensor in tensors.items() if not name.startswith(inside)}
    chosen = (
        source_embedding or _find(outside, _SOURCE, "source-embedding", file),
        target_embedding or _find(outside, _TARGET, "target-embedding", file),
        generator or _find(outside, _SOFTMAX, "generator", file),
    )
    source.find_tables(chosen, scaled=not unscaled)
    source.find_layers(names)
    bias = chosen[2].removesuffix("weight") + "bias"
    final_norm = any(name.startswith(f"{prefix}encoder.norm.") for name in tensors)
    positions = {
        name: tensor
        for name, tensor in outside.items()
        if _POSITIONS.search(name) and tensor.squeeze().dim() == 2 and name not in chosen
    }
    style = source.sinusoid_style(positions.values())
    if style is None:
        source.find_learned_positions(_by_stack([*positions], file))
    else:
        source.fields["position_encoding"] = style
    ids = special_ids("bos", pad=pad_token_id, bos=bos_token_id, eos=eos_token_id, unk=unk_token_id)
    config = source.make_config(
        **{f"{stack}_attention_heads": heads for stack in STACKS},
        norm_first=norm_first,
        final_norm=final_norm and not norm_first,
        activation_function=activation,
        layer_norm_eps=layer_norm_eps,
        lm_head_bias=bias in tensors,
        **ids,
    )
    source.place_layers(names, config)
    source.fill_missing_biases()
    if config.lm_head_bias:
        source.pieces["lm_head.bias"] = Piece((bias,))
    model = source.build_model(config, ignored=positions)
    tokenizer = vocabulary_tokenizer((source_vocab, target_vocab), config, "bos $A eos")
    if not positions:
        source.notes += ("No positions are stored; the paper's sinusoids are assumed.",)
    return finish(Imported(model, tokenizer, notes=source.notes), output)


def _layer_names(prefix: str) -> LayerNames:
    """Return the layers' names in torch, after `split_projections`."""
    return LayerNames(
        layers={stack: f"{prefix}{stack}.layers" for stack in STACKS},
        attentions={"encoder": ("self_attn",), "decoder": ("self_attn", "multihead_attn")},
        norms={"encoder": ("norm1", "norm2"), "decoder": ("norm1", "norm2", "norm3")},
        projections=("q_proj", "k_proj", "v_proj", "out_proj"),
        feed_forward=("linear1", "linear2"),
        last_norm=f"{prefix}{{}}.norm",
    )


def _prefix(tensors: Mapping[str, Tensor], file: Path) -> str:
    """Return the prefix in the names of torch.nn.Transformer's tensors; refuse several models."""
    ending = "encoder.layers.0.self_attn.in_proj_weight"
    found = [name.removesuffix(ending) for name in tensors if name.endswith(ending)]
    if len(found) != 1:
        got = listed(found) if found else "none"
        raise RequestError(f"{file} holds {got}; expected one torch.nn.Transformer.")
    return found[0]


def _find(tensors: Mapping[str, Tensor], pattern: re.Pattern[str], option: str, file: Path) -> str:
    matrices = [
        name for name, it in tensors.items() if it.dim() == 2 and not _POSITIONS.search(name)
    ]
    found = [name for name in matrices if pattern.search(name)]
    if len(found) != 1:
        problem = "matches several tables" if found else "was not found"
        names = listed(found or matrices)
        raise RequestError(f"{file}: the {option} {problem}; give --{option}, one of {names}.")
    return found[0]


def _by_stack(names: list[str], file: Path) -> dict[str, str]:
    """Assign the tables of learned positions to encoder and decoder; both may share one."""
    of_target = [name for name in names if _OF_TARGET.search(name)]
    if len(names) == 1:
        return dict.fromkeys(STACKS, names[0])
    if len(names) == 2 and len(of_target) == 1:
        (of_source,) = set(names) - set(of_target)
        return {"encoder": of_source, "decoder": of_target[0]}
    raise RequestError(f"{file} has position embeddings {listed(names)}; at most one per stack.")
