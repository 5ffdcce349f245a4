"""The original Transformer (Vaswani et al., 2017) as a first-class Hugging Face model."""

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from .batch_translation import AlignedTranslation, Translation, translate, translate_nbest
from .beam_search import FASTER_DECODERS, BeamSearchOutput, beam_search, paper_beam_search
from .configuration_vanilla_transformer import PRESETS, VanillaTransformerConfig
from .fast import incremental_decoder
from .modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
    VanillaTransformerPreTrainedModel,
)
from .pipeline import VanillaTransformerTranslationPipeline, register_pipeline

__version__ = "0.1.0"

AutoConfig.register("vanilla_transformer", VanillaTransformerConfig, exist_ok=True)
AutoModel.register(VanillaTransformerConfig, VanillaTransformerModel, exist_ok=True)
AutoModelForSeq2SeqLM.register(
    VanillaTransformerConfig, VanillaTransformerForConditionalGeneration, exist_ok=True
)
register_pipeline()  # pipeline("translate", model=...)
if incremental_decoder not in FASTER_DECODERS:
    FASTER_DECODERS.append(incremental_decoder)

__all__ = [
    "PRESETS",
    "AlignedTranslation",
    "BeamSearchOutput",
    "Translation",
    "VanillaTransformerConfig",
    "VanillaTransformerForConditionalGeneration",
    "VanillaTransformerModel",
    "VanillaTransformerPreTrainedModel",
    "VanillaTransformerTranslationPipeline",
    "beam_search",
    "paper_beam_search",
    "translate",
    "translate_nbest",
]
