"""`evaluate.load(vanilla_transformer.metric("tokenized_bleu"))` loads this file; see `MEASURES`."""

from vanilla_transformer.evaluation.modules import module


class Measure(module.Module):
    """The measure `tokenized_bleu`."""

    measure = "tokenized_bleu"
