"""`evaluate.load(vanilla_transformer.metric("chrf"))` loads this file; see `MEASURES`."""

from vanilla_transformer.evaluation.modules import module


class Measure(module.Module):
    """The measure `chrf`."""

    measure = "chrf"
