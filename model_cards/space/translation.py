"""What the page of app.py computes: translations of a sentence, their scores and attention."""

import io
import math
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from transformers import Pipeline, pipeline
from transformers.models.whisper.tokenization_whisper import LANGUAGES  # English names by code
from transformers.utils import cached_file

import vanilla_transformer
from vanilla_transformer.batch_translation import beyond_paper_search
from vanilla_transformer.beam_search import longest_sequence
from vanilla_transformer.storage.metrics import example_sources, read_metrics
from vanilla_transformer.translation.many_texts import translate
from vanilla_transformer.visualization import Attention, attention_weights, plot_attention

HERE = Path(__file__).parent
NUM_TRANSLATIONS = 4  # shown, and the number of beams
MAX_CHARACTERS = 5000  # of a text
MAX_LINES = 64  # that a program can send at once
MAX_TOKENS = 200  # of a source; with more, pictures are unreadable and a CPU takes too long
ALL_HEADS, MEAN_OF_HEADS = "all", "mean"
KINDS = {
    "Target to source": "cross",
    "Within the source": "encoder",
    "Within the target": "decoder",
}
DOTS_PER_INCH = 144


def model_name() -> str:
    """Return the model on show, from $MODEL_ID or the file model_id: a Hub id or a directory.

    Without either it is one that comes with the package.
    """
    file = HERE / "model_id"
    name = os.environ.get("MODEL_ID") or (file.read_text("utf-8") if file.is_file() else "")
    return name.strip() or vanilla_transformer.pretrained("everyday-en-de")


def markdown_link(name: str) -> str:
    """Return the name of a model, with a link if it is on the Hub."""
    return (
        f"`{Path(name).name}`"
        if Path(name).is_dir()
        else f"[{name}](https://huggingface.co/{name})"
    )


class Task(NamedTuple):
    """What a model does: the names of its two sides, and source texts to try."""

    source: str
    target: str
    is_translation: bool
    examples: list[str]


def task_of(name: str) -> Task:
    """Return what the metrics.json of a model, on the Hub or in a directory, says of its task."""
    metrics = None
    with suppress(OSError, ValueError):  # it is missing or damaged: the page works without it
        metrics = read_metrics(Path(cached_file(name, "metrics.json")))
    if metrics is None:
        return Task("Source text", "Target text", False, [])
    examples = example_sources(metrics)
    sides = [metrics["recipe"].get(f"{side}_language") for side in ("source", "target")]
    languages = [LANGUAGES.get(re.split("[-_]", side or "")[0].lower()) for side in sides]
    if None not in languages:
        return Task(languages[0].title(), languages[1].title(), True, examples)
    return Task(sides[0] or "Source text", sides[1] or "Target text", False, examples)


def load_translator(name: str) -> Pipeline:
    """Load the pipeline of a model on the CPU, from weights in a format that cannot run code."""
    safely = {"use_safetensors": True}
    return pipeline("translate", model=name, device="cpu", model_kwargs=safely)


def checked_sentence(translator: Pipeline, text: str | None) -> str:
    """Return the text on one line.

    Raises:
        ValueError: It is empty, or too long for the demo; the message is for the visitor.
    """
    text = text or ""
    # Checked first, also for programs: counting the tokens of a long text takes time.
    if len(text) > MAX_CHARACTERS:
        raise ValueError(
            f"This text is too long: it has {len(text)} characters, and this demo takes up to "
            f"{MAX_CHARACTERS}. Send one sentence at a time."
        )
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("This text holds half of a character. Type or copy it again.")
    sentence = " ".join(text.split())
    if not sentence:
        raise ValueError("There is no text yet. Type one first.")
    count = len(translator.tokenizer(sentence, verbose=False)["input_ids"])
    limit = min(MAX_TOKENS, longest_sequence(translator.model) or MAX_TOKENS)
    if count > limit:
        raise ValueError(
            f"This text is too long: it has {count} tokens (pieces of words), and this demo takes "
            f"up to {limit}. Send one sentence at a time."
        )
    return sentence


class Hypothesis(NamedTuple):
    """A translation, its score, and whether the model is far less sure of it than usual."""

    text: str
    score: float
    doubtful: bool


def translations(translator: Pipeline, sentence: str) -> list[Hypothesis]:
    """Return the best translations and their scores, best first.

    A score is what the beam search ranks by: the logarithm of the probability, divided by a penalty
    that grows with the length. It is at most 0, and higher is better.
    """
    options = {"num_beams": NUM_TRANSLATIONS, "num_return_sequences": NUM_TRANSLATIONS}
    if beyond_paper_search(translator.model, options):  # such as a Marian export
        options |= {"return_dict_in_generate": True, "output_scores": True}
    found = translator(sentence, return_scores=True, **options)
    return [
        Hypothesis(result["translation_text"], result["score"], result.get("doubtful", False))
        for result in found
        if math.isfinite(result["score"])  # a search may find fewer
    ]


def translated_lines(translator: Pipeline, texts: list[str]) -> list[str]:
    """Return the best translation of each text; that of a blank one is empty.

    Raises:
        ValueError: These are not texts, or too many, or one of them is too long.
    """
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError('Send a list of texts, such as ["A dog.", "A cat."].')
    if len(texts) > MAX_LINES:
        raise ValueError(f"Got {len(texts)} texts; send up to {MAX_LINES} at once.")
    sentences = [checked_sentence(translator, text) if text.strip() else "" for text in texts]
    return list(translate(translator.model, translator.tokenizer, sentences))


def attention_of(translator: Pipeline, sentence: str, translation: str) -> Attention:
    """Return the attention of all layers and heads over the words of a sentence pair."""
    return attention_weights(translator.model, translator.tokenizer, sentence, translation)


def layer_names(translator: Pipeline, kind: str) -> list[str]:
    """Return the names of the layers with attention of this kind (a value of `KINDS`)."""
    config = translator.model.config
    count = config.encoder_layers if kind == "encoder" else config.decoder_layers
    return [str(layer) for layer in range(1, count + 1)]


def head_names(translator: Pipeline, kind: str) -> list[str]:
    """Return the choices of heads: all of them, their mean, and each one."""
    config = translator.model.config
    encoder, decoder = config.encoder_attention_heads, config.decoder_attention_heads
    count = encoder if kind == "encoder" else decoder
    return [ALL_HEADS, MEAN_OF_HEADS, *(str(head) for head in range(1, count + 1))]


def picture(attention: Attention, kind: str, layer: str, head: str) -> Image.Image:
    """Draw heat maps of one layer with `plot_attention`: one head, their mean, or all heads."""
    heads = {ALL_HEADS: None, MEAN_OF_HEADS: "mean"}
    chosen = heads[head] if head in heads else int(head) - 1
    figure = plot_attention(attention, kind=kind, layer=int(layer) - 1, heads=chosen)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DOTS_PER_INCH, bbox_inches="tight", pad_inches=0.1)
    return Image.open(buffer)
