"""Check that a model may take the fast path: that nobody modified its decoder.

The fast path repeats the formulas of the decoder. They hold if every module is of a class of this
package or of torch, every function is the one that was imported, and there are no hooks. If a user
has changed anything, one of these checks fails, and the model's own modules decode instead. The
encoder may be modified: it is called as a module, and only its plain linear layers compute with
packed weights.
"""

import functools
import logging
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import TypeGuard

from torch import nn
from torch.nn.modules import module as torch_module
from transformers import PreTrainedModel
from transformers.utils import output_capturing

from ..beam_search import EAGER, SDPA, attention_of
from ..modeling_vanilla_transformer import (
    MultiHeadAttention,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
)

logger = logging.getLogger(__name__)

_MODELING = sys.modules[VanillaTransformerModel.__module__]
_OURS = [
    kind
    for kind in vars(_MODELING).values()
    if isinstance(kind, type) and kind.__module__ == _MODELING.__name__
]
_TORCH = [nn.Dropout, nn.Embedding, nn.Identity, nn.LayerNorm, nn.Linear, nn.ModuleList, nn.ReLU]


# transformers' hooks change no output: they record attention and hidden states once these were
# requested, and let gradient checkpointing begin at the embeddings.
_HARMLESS = {output_capturing.__name__, PreTrainedModel.__module__}


def _functions(owner: object) -> dict[str, object]:
    """Return the functions, properties and classes that a module or class defines or imports."""
    return {
        name: value
        for name, value in vars(owner).items()
        if callable(value) or isinstance(value, (property, classmethod, staticmethod))
    }


# Recorded at import: a function that is patched later changes the model.
_OWNERS: list[type | ModuleType] = [_MODELING, *_OURS, *_TORCH]
_AS_IMPORTED = {owner: _functions(owner) for owner in _OWNERS}
_AS_IMPORTED[nn.Module] = {name: vars(nn.Module)[name] for name in ("__call__", "_call_impl")}
_CALLED = ("dropout", "embedding", "layer_norm", "linear", "relu", "scaled_dot_product_attention")
_AS_IMPORTED[nn.functional] = {name: vars(nn.functional)[name] for name in _CALLED}


def is_unmodified(model: PreTrainedModel) -> TypeGuard[VanillaTransformerForConditionalGeneration]:
    """Return whether the fast path may decode with this model; if not, log the reason once."""
    change = next(changes(model), None)
    if change is not None:
        _log(change)
    return change is None


@functools.cache
def _log(change: str) -> None:
    logger.warning("Decoding with the model's own modules, which is slower: %s.", change)


def changes(model: PreTrainedModel, *, whole: bool = False) -> Iterator[str]:
    """Yield what was modified in a model's decoder and softmax, and with `whole` in its encoder."""
    if type(model) is not VanillaTransformerForConditionalGeneration:
        yield f"{type(model).__name__} is not this package's own class"
        return
    for owner, functions in _AS_IMPORTED.items():
        if not functions.items() <= vars(owner).items():
            yield f"a function of {owner.__name__} was replaced"
    for owner in _OURS:
        if _functions(owner).keys() != _AS_IMPORTED[owner].keys():
            yield f"functions were added to {owner.__name__}"
    if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
        yield "hooks act on all modules of the program"
    decoder, encoder = model.model.decoder, model.model.encoder
    for name, module in (
        ("the model", model),
        ("model", model.model),
        ("lm_head", model.lm_head),
        *decoder.named_modules(prefix="model.decoder"),
        *(encoder.named_modules(prefix="model.encoder") if whole else ()),
    ):
        if change := change_of(module):
            yield f"{name}{change}"


class TemporaryForward:
    """Base class of `forward` replacements that the fast path sets during a search."""


def change_of(module: nn.Module) -> str | None:
    """Describe a module's change as a phrase to put after its name; None if unchanged."""
    kind = type(module)
    if kind not in _AS_IMPORTED and not _is_activation(module):
        return f" is a {kind.__name__}"
    if module._forward_hooks or module._forward_pre_hooks:
        hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
        if any(getattr(hook, "__module__", None) not in _HARMLESS for hook in hooks):
            return " has hooks"
    for name in module.__dict__.keys() & _method_names(kind.__mro__):
        own = module.__dict__[name]
        # A program that wraps `forward` may later restore it by assigning the method itself.
        is_method = getattr(own, "__func__", None) is getattr(kind, name)
        if not is_method and not isinstance(own, TemporaryForward):
            return f" has a {name} of its own"
    for name, parameter in module._parameters.items():
        if parameter is not None and type(parameter) is not nn.Parameter:
            return f" holds its {name} as a {type(parameter).__name__}"
    if isinstance(module, nn.Linear) and module._parameters.keys() != {"weight", "bias"}:
        return " computes its weight"
    if isinstance(module, MultiHeadAttention):
        chosen = module.config._attn_implementation
        if attention_of(chosen) not in (EAGER, SDPA):
            return f" computes its attention by {chosen!r}"
    return None


def _is_activation(module: nn.Module) -> bool:
    """Return whether a module is an activation function of transformers or torch."""
    return type(module).__module__ in ("transformers.activations", "torch.nn.modules.activation")


@functools.cache
def _method_names(classes: tuple[type, ...]) -> frozenset[str]:
    """Return the names of methods that an attribute of a module could override."""
    ours = [owner for owner in classes if owner in _AS_IMPORTED]
    return frozenset(name for owner in ours for name in vars(owner) if callable(vars(owner)[name]))
