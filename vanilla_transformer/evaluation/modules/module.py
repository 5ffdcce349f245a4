"""The class of all our modules of `evaluate`; each module names its measure."""

from typing import Any, ClassVar

import evaluate
from datasets import Features, Sequence, Value

from vanilla_transformer.evaluation.scores import corpus_scores
from vanilla_transformer.storage.metrics import MEASURES


class Module(evaluate.Metric):
    """One measure of `corpus_scores`, which computes it."""

    measure: ClassVar[str]

    def _info(self) -> evaluate.MetricInfo:
        text = Value("string")
        several = {"predictions": text, "references": Sequence(text)}
        return evaluate.MetricInfo(
            description=f"{MEASURES[self.measure].label}, in percent.",
            citation="",
            inputs_description=corpus_scores.__doc__ or "",
            features=[Features({**several, "references": text}), Features(several)],
        )

    def _compute(
        self, predictions: list[str], references: list[Any], *, target_language: str = ""
    ) -> dict[str, Any]:
        scores: Any = corpus_scores(
            predictions, references, target_language=target_language, measures=[self.measure]
        )
        return {name: scores[name] for name in (self.measure, f"{self.measure}_signature")}
