"""The original Transformer (Vaswani et al., 2017) as a first-class Hugging Face model."""

import signal
import sys
from pathlib import Path
from typing import Any

_IS_PROGRAM = Path(*sys.argv[:1]).name in ("vanilla-transformer", "vanilla-transformer.exe")
if _IS_PROGRAM and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C before the command begins ends the program without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from .storage.shipped import pretrained  # noqa: E402, after the signal handler is set

__version__ = "0.2.0"


def register() -> None:
    """Register the model with the Auto classes and pipelines of transformers.

    Importing the package does this. A second call changes nothing.
    """
    from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

    from . import modeling_vanilla_transformer as modeling
    from .beam_search import FASTER_DECODERS
    from .configuration_vanilla_transformer import VanillaTransformerConfig
    from .fast import incremental_decoder
    from .pipeline import SPLITTERS, register_pipeline
    from .texts.sentences import join_sentences, split_sentences

    AutoConfig.register("vanilla_transformer", VanillaTransformerConfig, exist_ok=True)
    AutoModel.register(VanillaTransformerConfig, modeling.VanillaTransformerModel, exist_ok=True)
    AutoModelForSeq2SeqLM.register(
        VanillaTransformerConfig, modeling.VanillaTransformerForConditionalGeneration, exist_ok=True
    )
    register_pipeline()  # pipeline("translate", model=...)
    if incremental_decoder not in FASTER_DECODERS:
        FASTER_DECODERS.append(incremental_decoder)
    if not SPLITTERS:
        SPLITTERS.append((split_sentences, join_sentences))


def metric(name: str, **options: Any) -> Any:
    """Return one of this package's metrics as an `evaluate.Metric`, like `evaluate.load`.

    Args:
        name: One of `storage.metrics.MEASURES`, such as "bleu" or "wer".
        **options: Those of `evaluate.load`, such as `cache_dir` or `num_process`.

    Raises:
        ValueError: There is no such metric.
        ImportError: `evaluate` is not installed.
    """
    from .evaluation.evaluate_module import Measure

    return Measure(name, **options)


# torch and transformers take seconds to load. The program `vanilla-transformer` shows its help
# without them, and registers the model itself before it runs a command.
if not _IS_PROGRAM:
    from .beam_search import BeamSearchOutput
    from .configuration_vanilla_transformer import PRESETS, VanillaTransformerConfig
    from .modeling_vanilla_transformer import (
        VanillaTransformerForConditionalGeneration,
        VanillaTransformerModel,
        VanillaTransformerPreTrainedModel,
    )
    from .pipeline import VanillaTransformerTranslationPipeline
    from .translation import Translation, translate, translate_nbest

    register()

__all__ = [
    "PRESETS",
    "BeamSearchOutput",
    "Translation",
    "VanillaTransformerConfig",
    "VanillaTransformerForConditionalGeneration",
    "VanillaTransformerModel",
    "VanillaTransformerPreTrainedModel",
    "VanillaTransformerTranslationPipeline",
    "metric",
    "pretrained",
    "translate",
    "translate_nbest",
]
