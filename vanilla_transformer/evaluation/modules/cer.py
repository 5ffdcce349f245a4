"""`evaluate.load(vanilla_transformer.metric("cer"))` loads this file; see `MEASURES`."""

from vanilla_transformer.evaluation.modules import module


class Measure(module.Module):
    """The measure `cer`."""

    measure = "cer"
