"""Translation for users of the package; a published model's own code has the pipeline instead."""

from .many_texts import Translation, translate, translate_nbest

__all__ = ["Translation", "translate", "translate_nbest"]
