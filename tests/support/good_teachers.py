"""Translators that are good after a few updates."""

from vanilla_transformer.batch_translation import Translation
from vanilla_transformer.train import synthetic_pairs


def make_teachers_good(monkeypatch, right):
    """Replace the translations that become training pairs by those of a function."""

    def translate_nbest(model, tokenizer, texts, **options):
        for text in texts:
            yield [Translation(right(text), score=-1.0, token_score=-1.0)]

    monkeypatch.setattr(synthetic_pairs, "translate_nbest", translate_nbest)
