"""Conversion of Marian's tensors back to ours, for tests of the export."""

from vanilla_transformer.convert.marian_names import marian_columns, tensor_map


def from_marian_tensors(state_dict, config):
    """Invert `to_marian_tensors` bit by bit; return copies."""
    columns = marian_columns(config.d_model).argsort()
    tensors = {}
    for key, place in tensor_map(config).items():
        tensor = state_dict[place.key]
        if place.axis is None:
            tensors[key] = tensor.clone()
        else:
            tensors[key] = tensor.index_select(place.axis, columns)
    if config.lm_head_bias:
        tensors["lm_head.bias"] = tensors["lm_head.bias"][0]
    return tensors
