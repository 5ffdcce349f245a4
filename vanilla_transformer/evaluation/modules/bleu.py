"""`evaluate.load(vanilla_transformer.metric("bleu"))` loads this file; see `MEASURES`."""

from vanilla_transformer.evaluation.modules import module


class Measure(module.Module):
    """The measure `bleu`."""

    measure = "bleu"
