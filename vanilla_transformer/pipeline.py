# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""`pipeline("translate", model=...)`: version 5 of transformers has no translation pipeline.

B batch, S source length, T target length, n sequences per source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch.utils.data import Dataset
from transformers import AutoModelForSeq2SeqLM, Pipeline
from transformers.pipelines import PIPELINE_REGISTRY

from .batch_translation import check_texts, decode, encode, generate_ids, generation_option
from .errors import RequestError

TASK = "translate"  # the library refuses the name "translation"


class VanillaTransformerTranslationPipeline(Pipeline):
    """`pipeline("translate", model=...)`: text in, `[{"translation_text": ...}]` out.

    Takes a string, a list, a generator or a data set of strings, `batch_size`, and the arguments of
    `generate`. A list of strings with one translation each gives a list of dicts; otherwise every
    input gives a list of its `num_return_sequences` dicts, the best first. With
    `return_scores=True` each dict has a `score` too. Blank text is not shown to the model.
    """

    _load_tokenizer = True
    _load_processor = False
    _load_image_processor = False
    _load_video_processor = False
    _load_feature_extractor = False

    def __call__(self, inputs: object, **kwargs: object) -> object:
        """Translates; see the class.

        Args:
            inputs: A string, a sequence or data set of strings, or any iterator over strings.
            **kwargs: `batch_size`, `num_workers`, `return_scores`, and the arguments of `generate`.

        Returns:
            A list for a string or a sequence; an iterator for a data set or an iterator.

        Raises:
            ValueError: An input is not a string, or is longer than the positions' table; or there
                are no scores, since the arguments need `generate`.
        """
        one = isinstance(inputs, (str, bytes, bytearray, Mapping))
        if one or isinstance(inputs, Dataset) or not isinstance(inputs, Iterable):
            return super().__call__(inputs, **kwargs)
        if not isinstance(inputs, Sequence):
            return super().__call__((text for text in inputs), **kwargs)
        if len(inputs) == 0:  # on which the library fails with an IndexError
            return []
        check_texts(inputs)  # while the number of each is known
        results = super().__call__(list(inputs), **kwargs)
        return [result[0] for result in results] if all(len(r) == 1 for r in results) else results

    def _sanitize_parameters(
        self, return_scores: bool | None = None, **generation_kwargs: object
    ) -> tuple[dict, dict, dict]:
        scores = {} if return_scores is None else {"return_scores": return_scores}
        return {}, {**scores, **generation_kwargs}, scores

    def preprocess(self, text: str) -> dict[str, torch.Tensor]:
        """Tokenizes one text: ids and mask, (1, S), and whether there is anything to translate."""
        (ids,) = encode(self.model, self.tokenizer, [text])
        row = torch.tensor([ids or [self.tokenizer.pad_token_id]])
        return {
            "input_ids": row,
            "attention_mask": torch.ones_like(row),
            "has_text": torch.tensor([bool(ids)]),
        }

    def _forward(
        self,
        inputs: dict[str, torch.Tensor],
        *,
        return_scores: bool = False,
        **generation_kwargs: object,
    ) -> dict[str, torch.Tensor]:
        ids, mask, has_text = inputs["input_ids"], inputs["attention_mask"], inputs["has_text"]
        rows = has_text.nonzero().squeeze(1)
        count = generation_option(self.model, generation_kwargs, "num_return_sequences")
        output = ids.new_full((len(ids), count, 1), self.tokenizer.pad_token_id)
        scores = torch.zeros(len(ids), count, dtype=torch.float64, device=ids.device)
        if rows.numel():
            found, found_scores = generate_ids(
                self.model, ids[rows], mask[rows], **generation_kwargs
            )
            if return_scores and found_scores is None:
                raise RequestError(
                    "Got return_scores with a model or arguments that the paper's search does not "
                    f"have ({', '.join(generation_kwargs) or type(self.model).__name__}); leave "
                    "one of them out, or ask generate for its own: num_beams=N, "
                    "return_dict_in_generate=True, output_scores=True."
                )
            output = found.new_full((len(ids), *found.shape[1:]), self.tokenizer.pad_token_id)
            output[rows] = found
            if found_scores is not None:
                scores[rows] = found_scores.double()
        return {"output_ids": output, "scores": scores}  # (B, n, T), (B, n)

    def postprocess(
        self, outputs: dict[str, torch.Tensor], *, return_scores: bool = False
    ) -> list[dict[str, str | float]]:
        """Makes text of the ids of one input, (1, n, T), and numbers of its scores, (1, n)."""
        texts = decode(self.tokenizer, outputs["output_ids"][0])
        results: list[dict[str, str | float]] = [{"translation_text": text} for text in texts]
        if return_scores:
            for result, score in zip(results, outputs["scores"][0].tolist(), strict=True):
                result["score"] = score
        return results


def register_pipeline() -> None:
    """Makes `pipeline("translate", ...)` known to transformers; a second call changes nothing."""
    if TASK not in PIPELINE_REGISTRY.get_supported_tasks():
        PIPELINE_REGISTRY.register_pipeline(
            TASK,
            pipeline_class=VanillaTransformerTranslationPipeline,
            pt_model=AutoModelForSeq2SeqLM,
            type="text",
        )


__all__ = ["VanillaTransformerTranslationPipeline", "register_pipeline"]
