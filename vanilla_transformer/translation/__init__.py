"""Translation for users of the package; a published model's own code has the pipeline instead."""

from .custom_generate import paper_beam_search
from .many_texts import Translation, translate, translate_nbest

__all__ = ["Translation", "paper_beam_search", "translate", "translate_nbest"]
