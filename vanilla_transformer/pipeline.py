# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""`pipeline("translate", model=...)`, since transformers 5 has no translation pipeline.

B batch, S source length, T target length, n sequences per source.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import AutoModelForSeq2SeqLM, Pipeline, PreTrainedTokenizerBase
from transformers.pipelines import PIPELINE_REGISTRY

from .batch_translation import (
    beyond_paper_search,
    check_texts,
    decode,
    encode,
    generate_ids,
    generation_option,
    prefix_ids,
)
from .errors import RequestError
from .word_alignment import word_alignment

TASK = "translate"  # the library refuses the name "translation"
# Names that `generate` would take for mistyped ones of its own.
_OF_TRANSFORMERS_4 = (
    *("truncation", "clean_up_tokenization_spaces", "return_tensors", "return_text"),
    *("src_lang", "tgt_lang", "generate_kwargs"),
)


class VanillaTransformerTranslationPipeline(Pipeline):
    """`pipeline("translate", model=...)`: text in, `[{"translation_text": ...}]` out.

    Takes a string, a list, a generator or a data set of strings, `batch_size`, and the arguments of
    `generate`. Each input gives a list of `num_return_sequences` dicts, the best first, so a list
    of strings gives a list of lists. `return_scores=True` adds a `score` to each dict, and
    `return_alignments=True` an `alignment`: pairs (source word, target word), both counted from 0,
    with words separated by white space. `prefix` is a text that translations begin with. Blank text
    gives an empty translation without a call of the model.
    """

    tokenizer: PreTrainedTokenizerBase  # type: ignore[assignment]  # may be None in transformers

    _load_tokenizer = True  # type: ignore[assignment]  # declared as None in transformers
    _load_processor = _load_image_processor = False  # type: ignore[assignment]  # text needs none
    _load_video_processor = _load_feature_extractor = False  # type: ignore[assignment]  # text needs none

    def __call__(self, inputs: object, **kwargs: Any) -> Any:  # type: ignore[override]
        """Translate; see the class.

        Args:
            inputs: A string, a sequence or data set of strings, or any iterator over strings.
            **kwargs: `batch_size`, `num_workers`, `return_scores`, `return_alignments`, `prefix`,
                and the arguments of `generate`.

        Returns:
            A list for a string or a sequence; an iterator for a data set or an iterator.

        Raises:
            ValueError: An input is not a string or is too long, or scores or alignments are asked
                for together with arguments that only `generate` supports.
        """
        one = isinstance(inputs, (str, bytes, bytearray, Mapping))
        if one or isinstance(inputs, Dataset) or not isinstance(inputs, Iterable):
            return super().__call__(inputs, **kwargs)
        if not isinstance(inputs, Sequence):
            return super().__call__((text for text in inputs), **kwargs)
        if len(inputs) == 0:  # transformers would raise an IndexError
            return []
        check_texts(inputs)  # here, where an error can number the input
        return super().__call__(list(inputs), **kwargs)

    def save_pretrained(self, save_directory: str | os.PathLike[str], **kwargs: Any) -> None:
        """Save model and tokenizer, without the pipeline's code, which transformers would add.

        Without the model's code, it would be of no use; `publish --with-code` copies all of it.
        """
        self.model.save_pretrained(save_directory, **kwargs)
        self.tokenizer.save_pretrained(save_directory, **kwargs)

    def _sanitize_parameters(
        self,
        return_scores: bool | None = None,
        return_alignments: bool | None = None,
        **generation_kwargs: Any,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        if old := [name for name in _OF_TRANSFORMERS_4 if generation_kwargs.get(name) is not None]:
            raise RequestError(
                f"Got {', '.join(old)}, which the translation pipeline of transformers 4 had; this "
                "one takes batch_size, return_scores, return_alignments, prefix and the arguments "
                "of generate. It refuses texts that are too long, and cuts none."
            )
        asked = {"return_scores": return_scores, "return_alignments": return_alignments}
        asked = {name: value for name, value in asked.items() if value is not None}
        if generation_kwargs.get("prefix") is not None:
            generation_kwargs["prefix"] = prefix_ids(self.tokenizer, generation_kwargs["prefix"])
        return {}, {**asked, **generation_kwargs}, asked

    def preprocess(self, text: str) -> dict[str, torch.Tensor]:  # type: ignore[override]
        """Tokenize one text: ids and mask, (1, S), and whether there is anything to translate."""
        (ids,) = encode(self.model, self.tokenizer, [text], first=None)
        row = torch.tensor([ids or [self.tokenizer.pad_token_id]])
        return {
            "input_ids": row,
            "attention_mask": torch.ones_like(row),
            "has_text": torch.tensor([bool(ids)]),
        }

    def _forward(  # type: ignore[override]  # named arguments
        self,
        inputs: dict[str, torch.Tensor],
        *,
        return_scores: bool = False,
        **generation_kwargs: Any,
    ) -> dict[str, torch.Tensor]:
        ids, mask, has_text = inputs["input_ids"], inputs["attention_mask"], inputs["has_text"]
        rows = has_text.nonzero().squeeze(1)
        places = rows.cpu()
        count = generation_option(self.model, generation_kwargs, "num_return_sequences")
        output = ids.new_full((len(ids), count, 1), self.tokenizer.pad_token_id)
        # On the CPU, since Apple's GPUs have no float64.
        scores = torch.zeros(len(ids), count, dtype=torch.float64)
        alignments = scores.new_zeros(len(ids), count, 1, ids.size(1))
        if rows.numel():
            found = generate_ids(self.model, ids[rows], mask[rows], **generation_kwargs)
            if return_scores and found.scores is None:
                beside = ", ".join(beyond_paper_search(self.model, generation_kwargs))
                raise RequestError(
                    f"Got return_scores with what the paper's search does not support ({beside}); "
                    "leave one of them out, or ask generate for its own scores: num_beams=N, "
                    "return_dict_in_generate=True, output_scores=True."
                )
            shape = found.sequences.shape[1:]  # (n, T + 1)
            output = found.sequences.new_full((len(ids), *shape), self.tokenizer.pad_token_id)
            output[rows] = found.sequences
            if found.scores is not None:
                scores[places] = found.scores.cpu().double()
            if found.alignments is not None:
                alignments = scores.new_zeros(len(ids), *found.alignments.shape[1:])
                alignments[places] = found.alignments.cpu().double()
        return {
            "input_ids": ids,
            "output_ids": output,  # (B, n, T + 1)
            "scores": scores,  # (B, n)
            "alignments": alignments,  # (B, n, T, S)
        }

    def postprocess(  # type: ignore[override]  # named arguments
        self,
        outputs: dict[str, torch.Tensor],
        *,
        return_scores: bool = False,
        return_alignments: bool = False,
    ) -> list[dict[str, object]]:
        """Make a dict of each translation of one input; `output_ids` is (1, n, T + 1).

        A short limit on the length may leave fewer than n.
        """
        found = outputs["output_ids"][0]
        results: list[dict[str, object]] = [
            {"translation_text": text} for text in decode(self.tokenizer, found)
        ]
        source = outputs["input_ids"][0].tolist()
        for result, ids, score, weights in zip(
            results, found, outputs["scores"][0], outputs["alignments"][0], strict=True
        ):
            if return_scores:
                result["score"] = score.item()
            if return_alignments:
                target = ids[1:].tolist()  # without the start symbol
                result["alignment"] = word_alignment(self.tokenizer, source, target, weights)
        scores = outputs["scores"][0].tolist()  # -inf marks a missing translation
        return [
            result
            for place, (result, score) in enumerate(zip(results, scores, strict=True))
            if score != -math.inf or place == 0
        ]


def register_pipeline() -> None:
    """Register `pipeline("translate", ...)` with transformers; a second call changes nothing."""
    if TASK not in PIPELINE_REGISTRY.get_supported_tasks():
        PIPELINE_REGISTRY.register_pipeline(
            TASK,
            pipeline_class=VanillaTransformerTranslationPipeline,
            pt_model=AutoModelForSeq2SeqLM,
            type="text",
        )


__all__ = ["VanillaTransformerTranslationPipeline", "register_pipeline"]
