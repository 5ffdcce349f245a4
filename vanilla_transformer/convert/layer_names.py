"""Map from the names of our layers' tensors to their names in another system."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..configuration_vanilla_transformer import VanillaTransformerConfig

_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")
_NORMS = {
    "encoder": ("self_attn_norm", "feed_forward_norm"),
    "decoder": ("self_attn_norm", "cross_attn_norm", "feed_forward_norm"),
}
STACKS = tuple(_NORMS)


@dataclass(frozen=True)
class LayerNames:
    """Names of the encoder's and decoder's modules in another system.

    Attributes:
        layers: Prefix before a layer's number, for each stack.
        attentions: Self-attention and cross-attention within a layer, for each stack.
        norms: Norms within a layer, in the order of the sub-layers, for each stack.
        projections: Query, key, value and output projections within an attention.
        feed_forward: Both linear layers of the feed-forward network within a layer.
        last_norm: The norm after a stack; {} stands for the stack's name.
    """

    layers: Mapping[str, str]
    attentions: Mapping[str, tuple[str, ...]]
    norms: Mapping[str, tuple[str, ...]]
    projections: tuple[str, str, str, str]
    feed_forward: tuple[str, str]
    last_norm: str = "{}.layer_norm"

    def tensors(self, config: VanillaTransformerConfig) -> dict[str, str]:
        """Map the keys of our state dict to the system's names, for all layers of both stacks."""
        names = {}
        for stack, layers in self.layers.items():
            modules = {
                f"layers.{number}.{ours}": f"{layers}.{number}.{theirs}"
                for number in range(getattr(config, f"{stack}_layers"))
                for ours, theirs in self._modules(stack)
            }
            if config.norm_first or config.final_norm:
                modules["norm"] = self.last_norm.format(stack)
            for ours, theirs in modules.items():
                for part in ("weight", "bias"):
                    names[f"model.{stack}.{ours}.{part}"] = f"{theirs}.{part}"
        return names

    def _modules(self, stack: str) -> Iterator[tuple[str, str]]:
        """Yield our name and the system's name of each module in a layer."""
        for ours, theirs in zip(("self_attn", "cross_attn"), self.attentions[stack], strict=False):
            for projection, name in zip(_PROJECTIONS, self.projections, strict=True):
                yield f"{ours}.{projection}", f"{theirs}.{name}"
        yield "feed_forward.fc1", self.feed_forward[0]
        yield "feed_forward.fc2", self.feed_forward[1]
        yield from zip(_NORMS[stack], self.norms[stack], strict=True)
