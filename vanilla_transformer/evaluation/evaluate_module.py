"""Our metrics as a module of `evaluate`, created by `vanilla_transformer.metric`."""

from typing import Any

import evaluate
from datasets import Features, Sequence, Value

from ..storage.metrics import MEASURES, check_measures
from .scores import corpus_scores


class Measure(evaluate.Metric):
    """A measure that `corpus_scores` computes, chosen by `config_name`."""

    def _info(self) -> evaluate.MetricInfo:
        check_measures([self.config_name])
        text = Value("string")
        several = {"predictions": text, "references": Sequence(text)}
        return evaluate.MetricInfo(
            description=f"{MEASURES[self.config_name].label}, in percent.",
            citation="",
            inputs_description=corpus_scores.__doc__ or "",
            features=[Features({**several, "references": text}), Features(several)],
        )

    def _compute(
        self, predictions: list[str], references: list[Any], *, target_language: str = ""
    ) -> dict[str, Any]:
        name = self.config_name
        scores: Any = corpus_scores(
            predictions, references, target_language=target_language, measures=[name]
        )
        return {key: scores[key] for key in (name, f"{name}_signature")}
