"""Translation of many texts. This code is not published with models, unlike the pipeline's."""

from .many_texts import Translation, translate, translate_nbest

__all__ = ["Translation", "translate", "translate_nbest"]
