"""`evaluate.load(vanilla_transformer.metric("compound_bleu"))` loads this file; see `MEASURES`."""

from vanilla_transformer.evaluation.modules import module


class Measure(module.Module):
    """The measure `compound_bleu`."""

    measure = "compound_bleu"
