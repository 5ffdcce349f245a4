"""A trained model for tests: everyday-en-de, which comes with the package."""

from pathlib import Path
from typing import NamedTuple

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedTokenizerBase

from vanilla_transformer import VanillaTransformerForConditionalGeneration, pretrained

TEXTS = Path(__file__).parents[2] / "training" / "pretrained" / "sentences.txt"


class Everyday(NamedTuple):
    """The folder of the model, what it holds, and a hundred English sentences."""

    folder: Path
    model: VanillaTransformerForConditionalGeneration
    tokenizer: PreTrainedTokenizerBase
    sentences: list[str]


def load() -> Everyday:
    """Return the model in float32, for evaluation."""
    folder = Path(pretrained("everyday-en-de"))
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return Everyday(folder, model, tokenizer, TEXTS.read_text(encoding="utf-8").splitlines())
