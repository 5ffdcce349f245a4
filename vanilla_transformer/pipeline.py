# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""`pipeline("translate", model=...)`, since transformers 5 has no translation pipeline."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerBase
from transformers.pipelines import PIPELINE_REGISTRY
from transformers.pipelines.base import ChunkPipeline

from .batch_translation import (
    Translation,
    encode,
    generate_ids,
    generation_option,
    only_paper_search_has,
    prefix_ids,
    translations_of,
)
from .beam_search import BeamSearchOutput
from .errors import RequestError
from .written_forms import written_forms

TASK = "translate"  # the library refuses the name "translation"
# Functions that split a text of a language into sentences, and join them. The package registers its
# own; a model loaded from the Hub without the package has none.
SPLITTERS: list[tuple[Callable[[str, str], list[str]], Callable[[Iterable[str], str], str]]] = []
_FOUND = ("sequences", "scores", "token_scores", "alignments")  # what a `Translation` needs
# Arguments of `preprocess`, of `postprocess`, and of both `_forward` and `postprocess`.
_STEPS: tuple[tuple[str, ...], ...] = (
    ("split_sentences", "truncation"),
    ("return_tensors", "clean_up_tokenization_spaces"),
    ("return_scores", "return_alignments"),
)


class VanillaTransformerTranslationPipeline(ChunkPipeline):
    """`pipeline("translate", model=...)`: text in, `[{"translation_text": ...}]` out.

    Takes a string, a list, a generator or a data set of strings, and the arguments of `generate`.
    Each input gives a list of `num_return_sequences` dicts, the best first; as in transformers 4, a
    list gives one dict for each text if each has one translation. Blank text gives an empty
    translation without a call of the model.

    A text of several sentences is translated sentence by sentence if the model was trained on
    single ones, unless several translations, alignments or a prefix are requested. Its score is
    that of its worst sentence.
    """

    tokenizer: PreTrainedTokenizerBase  # type: ignore[assignment]  # may be None in transformers

    _load_tokenizer = True  # type: ignore[assignment]  # declared as None in transformers
    _load_processor = _load_image_processor = False  # type: ignore[assignment]  # text needs none
    _load_video_processor = _load_feature_extractor = False  # type: ignore[assignment]  # text needs none

    def __call__(self, inputs: object, **kwargs: Any) -> Any:  # type: ignore[override]
        """Translate a text, or all texts of a list, data set or iterator.

        Args:
            inputs: A string, a sequence or data set of strings, or any iterator over strings.
            **kwargs: Arguments of `generate`; `batch_size` and `num_workers`; `split_sentences`:
                whether to translate each sentence by itself; `prefix`: a text that translations
                begin with; `return_scores`: add a `score` to each dict and, if the model knows how
                sure it usually is, `doubtful`: whether it is far less sure here;
                `return_alignments`: add an `alignment`, pairs (source word, target word), both
                counted from 0, with words separated by white space. And of transformers 4:
                `return_tensors` (ids instead of texts), `truncation` (cut what is too long),
                `clean_up_tokenization_spaces`, and `src_lang` and `tgt_lang`, which the model's
                languages must agree with.

        Returns:
            A list for a string or a sequence; an iterator for a data set or an iterator.

        Raises:
            ValueError: An input is too long, scores or alignments are requested together with
                arguments that only `generate` supports, or the model has other languages.
        """
        one = isinstance(inputs, (str, bytes, bytearray, Mapping))
        if one or isinstance(inputs, Dataset) or not isinstance(inputs, Iterable):
            return super().__call__(inputs, **kwargs)
        if not isinstance(inputs, Sequence):
            return super().__call__((text for text in inputs), **kwargs)
        # For an empty list transformers would raise an IndexError.
        found = super().__call__(list(inputs), **kwargs) if len(inputs) else []
        return [each[0] for each in found] if all(len(each) == 1 for each in found) else found

    def save_pretrained(self, save_directory: str | os.PathLike[str], **kwargs: Any) -> None:
        """Save model and tokenizer, without the pipeline's code, which transformers would add.

        That code is useless without the model's; `publish --with-code` copies both.
        """
        self.model.save_pretrained(save_directory, **kwargs)
        self.tokenizer.save_pretrained(save_directory, **kwargs)

    def _sanitize_parameters(
        self, **arguments: Any
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        given = {name: value for name, value in arguments.items() if value is not None}
        languages = written_forms(self.tokenizer).languages
        for name, own in zip(("src_lang", "tgt_lang"), languages, strict=True):
            asked_for = str(given.pop(name, own))
            if own and asked_for[:2].lower() != own[:2].lower():
                what = f"{name}={asked_for}, but the model translates {' to '.join(languages)}"
                raise RequestError(f"Got {what}; leave it out.")
        if "prefix" in given:
            given["prefix"] = prefix_ids(self.tokenizer, given["prefix"])
        several = generation_option(self.model, given, "num_return_sequences") > 1
        if several or given.get("return_alignments") or "prefix" in given:
            given.setdefault("split_sentences", False)
        reading, writing, both = (
            {name: given.pop(name) for name in names if name in given} for names in _STEPS
        )
        return reading, both | given, both | writing

    def preprocess(  # type: ignore[override]  # named arguments
        self, text: str, *, split_sentences: bool | None = None, truncation: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Yield each sentence's ids and mask, (1, S), and whether the sentence is non-empty."""
        parts, forms = [text], written_forms(self.tokenizer)
        if SPLITTERS and (forms.are_sentences if split_sentences is None else split_sentences):
            parts = SPLITTERS[0][0](text, forms.languages[0])
        for number, part in enumerate(parts, start=1):
            (ids,) = encode(self.model, self.tokenizer, [part], None, truncation=truncation)
            row = torch.tensor([ids or [self.tokenizer.pad_token_id]])
            yield {
                "text": part,
                "input_ids": row,
                "attention_mask": torch.ones_like(row),
                "has_text": torch.tensor([bool(ids)]),
                "is_last": number == len(parts),
            }

    def _forward(  # type: ignore[override]  # named arguments
        self, inputs: dict[str, Any], *, return_scores: bool = False, **generation_kwargs: Any
    ) -> dict[str, Any]:
        ids, mask, has_text = inputs["input_ids"], inputs["attention_mask"], inputs["has_text"]
        pad = self.tokenizer.pad_token_id
        kept = {name: inputs[name] for name in ("text", "input_ids", "has_text", "is_last")}
        if not has_text.any():
            count = generation_option(self.model, generation_kwargs, "num_return_sequences")
            empty = ids.new_empty((len(ids), count, 0))
            return {**kept, "sequences": empty}
        found = generate_ids(self.model, ids[has_text], mask[has_text], **generation_kwargs)
        if return_scores and found.scores is None:
            raise only_paper_search_has("return_scores", self.model, generation_kwargs)
        outputs = kept
        for name, part in found.items():  # add rows for blank texts
            empty = pad if name == "sequences" else 0
            outputs[name] = part.new_full((len(ids), *part.shape[1:]), empty)
            outputs[name][has_text] = part
        return outputs

    def postprocess(  # type: ignore[override]  # named arguments
        self, outputs: list[dict[str, Any]], **asked: bool
    ) -> list[dict[str, Any]]:
        """Return a dict for each translation of a text, with its sentences' translations joined."""
        found = [self._results(sentence, asked) for sentence in outputs]
        if len(found) == 1:
            return found[0]
        texts = [best["translation_text"] for best, *_ in found]
        language = written_forms(self.tokenizer).languages[1]
        worst = min(found, key=lambda sentence: sentence[0].get("score", 0.0))[0]
        if "doubtful" in worst:
            worst["doubtful"] = any(best.get("doubtful") for best, *_ in found)
        return [{**worst, "translation_text": SPLITTERS[0][1](texts, language)}]

    def _results(self, outputs: dict[str, Any], asked: Mapping[str, bool]) -> list[dict[str, Any]]:
        """Return a dict for each translation of one sentence; `sequences` is (1, n, T)."""
        if asked.get("return_tensors"):
            return [{"translation_token_ids": row} for row in outputs["sequences"][0]]
        found = [Translation("", 0.0, [])] * outputs["sequences"].size(1)
        if outputs["has_text"]:
            source = (outputs["text"], outputs["input_ids"][0].tolist())
            fields = {name: outputs[name] for name in _FOUND if name in outputs}
            (found,) = translations_of(
                *(self.model, self.tokenizer, [source], BeamSearchOutput(**fields)),
                clean_up=asked.get("clean_up_tokenization_spaces", False),
            )
        results = []
        for translation in found:
            result: dict[str, Any] = {"translation_text": translation.text}
            if asked.get("return_scores"):
                result["score"] = translation.score
                if translation.doubtful is not None:
                    result["doubtful"] = translation.doubtful
            if asked.get("return_alignments"):
                result["alignment"] = translation.alignment
            results.append(result)
        return results


def register_pipeline() -> None:
    """Register `pipeline("translate", ...)` with transformers; a second call changes nothing."""
    if TASK not in PIPELINE_REGISTRY.get_supported_tasks():
        PIPELINE_REGISTRY.register_pipeline(
            TASK,
            pipeline_class=VanillaTransformerTranslationPipeline,
            pt_model=AutoModelForSeq2SeqLM,
            type="text",
        )
