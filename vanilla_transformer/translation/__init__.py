"""Translation for users of the package; a published model's own code has the pipeline instead."""

from .custom_generate import paper_beam_search
from .many_texts import AlignedTranslation, Translation, translate, translate_nbest

__all__ = ["AlignedTranslation", "Translation", "paper_beam_search", "translate", "translate_nbest"]
