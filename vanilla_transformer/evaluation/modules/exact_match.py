"""`evaluate.load(vanilla_transformer.metric("exact_match"))` loads this file; see `MEASURES`."""

from vanilla_transformer.evaluation.modules import module


class Measure(module.Module):
    """The measure `exact_match`."""

    measure = "exact_match"
