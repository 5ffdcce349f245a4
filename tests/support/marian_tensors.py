"""Conversion of Marian's tensors back to ours, for tests of the export."""

from vanilla_transformer.convert.marian_names import reordered, tensor_names


def from_marian_tensors(state_dict, config):
    """Invert `to_stock_tensors` bit by bit."""
    found = reordered(state_dict, config.d_model, from_marian=True)
    tensors = {key: found[name] for key, name in tensor_names(config).items()}
    if config.lm_head_bias:
        tensors["lm_head.bias"] = tensors["lm_head.bias"][0]
    return tensors
