"""Translation of many texts. Code that is published with a model has only the pipeline."""

from .many_texts import Translation, translate, translate_nbest

__all__ = ["Translation", "translate", "translate_nbest"]
