"""`evaluate.load(vanilla_transformer.metric("ter"))` loads this file; see `MEASURES`."""

from vanilla_transformer.evaluation.modules import module


class Measure(module.Module):
    """The measure `ter`."""

    measure = "ter"
