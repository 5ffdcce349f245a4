"""The plan of a run: all settings, derived once from a recipe before reading or writing anything.

`planning.py` derives it. Each stage of a run reads its part of the plan and never the recipe.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import RequestError
from ..storage.reading import as_yaml
from .options import OPTIONS, Data, Evaluation, Model, Text, Tokenizer

if TYPE_CHECKING:
    from ..configuration_vanilla_transformer import VanillaTransformerConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataPlan(Data, Text):
    """Options of the pairs: where they are, filters, and data augmentation."""

    @property
    def languages(self) -> tuple[str, str]:
        """Names of the two sides: language codes, or else "source" and "target"."""
        return self.source_language or "source", self.target_language or "target"

    def check_positions(self, config: "VanillaTransformerConfig") -> None:
        """Refuse a model with fewer learned positions than the longest allowed sentence."""
        longest = max(self.max_source_length, self.max_target_length)
        if config.position_encoding == "learned" and longest > config.max_position_embeddings:
            names, most = "max_source_length, max_target_length", config.max_position_embeddings
            raise RequestError(f"{names}: got {longest}, but learned positions end at {most}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Settings of a run, by its stages.

    Args:
        model: The model.
        data: The pairs; the revision of a data set on the Hub is a commit.
        tokenizer: The tokenizer; `normalize_text` is true or false.
        arguments: Training arguments, without those that depend on the number of processes.
        evaluation: Measures, search, and choices on validation pairs.
        back_translation: Plan of the model that translates `data.monolingual_target`, if any.
        settings: The recipe's values, in JSON types, to be recorded.
        binding: The settings that must not change when the run is resumed.
        fixed: Names of the settings that the user typed; a limit in minutes changes only others.
    """

    model: Model
    data: DataPlan
    tokenizer: Tokenizer
    arguments: Mapping[str, Any]
    evaluation: Evaluation
    back_translation: "Plan | None"
    settings: dict[str, Any]
    binding: dict[str, Any]
    fixed: frozenset[str] = frozenset()


def settings_as_yaml(settings: Mapping[str, Any]) -> str:
    """Return the values of all options as YAML, each with its help text as a comment."""
    return "".join(
        f"# {option.metadata['help']}\n{as_yaml({name: settings[name]})}"
        for name, option in OPTIONS.items()
    )


def changed_settings_as_yaml(settings: Mapping[str, Any]) -> str:
    """Return the values that differ from the defaults as YAML: the shortest equivalent recipe."""
    return "".join(
        as_yaml({name: settings[name]})
        for name, option in OPTIONS.items()
        if settings.get(name, option.default) != option.default
    )
