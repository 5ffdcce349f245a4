"""A page on the Hub: type a sentence, see its translations and what every head attends to."""

from collections.abc import Callable, Iterator

import gradio as gr
import translation
from PIL import Image
from transformers import Pipeline

INTRODUCTION = """
# Translate with {name}

{model} is a Transformer as in [Attention Is All You Need](https://arxiv.org/abs/1706.03762), with
{millions:.1f} million parameters. It knows the languages and the kind of text that it was trained
on, and nothing else. It runs on a CPU here.
"""
SCORES = (
    "The best hypotheses of the beam search. The score is the logarithm of the probability, "
    "divided by a penalty that grows with the length; the higher (nearer to 0), the better."
)
ATTENTION = (
    "## Attention\nEach row is a word that attends, each column a word that it attends to; darker "
    "cells mean more attention."
)


def page(translator: Pipeline, *, name: str, examples: list[str]) -> gr.Blocks:
    """Build the page of one model; it computes nothing until a visitor asks."""
    with gr.Blocks(title=f"Translate with {name}", analytics_enabled=False) as blocks:
        millions = sum(weight.numel() for weight in translator.model.parameters()) / 1e6
        model = translation.markdown_link(name)
        gr.Markdown(INTRODUCTION.format(name=name, model=model, millions=millions))
        sentence = gr.Textbox(
            label="Sentence",
            placeholder="Type a sentence, then press Enter",
            max_length=translation.MAX_CHARACTERS,
            max_lines=6,
        )
        button = gr.Button("Translate", variant="primary")
        message = gr.Markdown(elem_id="message")
        given = gr.Examples([[text] for text in examples], sentence) if examples else None
        with gr.Column(visible=False) as results:
            best = gr.Textbox(
                label="Translation", interactive=False, buttons=["copy"], elem_id="translation"
            )
            table = gr.Dataframe(
                headers=["Translation", "Score"],
                datatype=["str", "number"],
                column_widths=["85%", "15%"],
                interactive=False,
                wrap=True,
                buttons=[],
                elem_id="n-best",
            )
            gr.Markdown(SCORES)
            gr.Markdown(ATTENTION)
            controls = _controls(translator)
            image = gr.Image(
                show_label=False,
                interactive=False,
                format="png",
                buttons=["download", "fullscreen"],
                elem_id="attention",
            )
        shown = gr.State()  # sentence and translation, to draw other attention
        translate = {
            "fn": _translating(translator),
            "inputs": [sentence, *controls],
            "outputs": [message, results, best, table, shown, image],
            "concurrency_id": "model",  # one request at a time, from page and API
            "show_progress": "hidden",  # the message shows it
        }
        gr.on([button.click, sentence.submit], **translate, api_name="translate")
        if given:
            given.load_input_event.success(**translate, api_visibility="private")
        _redraw_on_choice(translator, shown, controls, image)
        gr.api(_lines(translator), api_name="translate_lines", concurrency_id="model")
    return blocks


def _controls(translator: Pipeline) -> list[gr.Radio]:
    """Create the choices of attention, layer and head; preselect cross, last layer and mean."""
    first = next(iter(translation.KINDS.values()))
    layers = translation.layer_names(translator, first)
    heads = translation.head_names(translator, first)
    kind = gr.Radio([*translation.KINDS.items()], value=first, label="Attention")
    with gr.Row():
        layer = gr.Radio(layers, value=layers[-1], label="Layer")
        head = gr.Radio(heads, value=translation.MEAN_OF_HEADS, label="Head")
    return [kind, layer, head]


def _translating(translator: Pipeline) -> Callable[..., Iterator[tuple]]:
    """Return the listener that fills the page, in two steps so that a slow model shows progress."""

    def translate(text: str, kind: str, layer: str, head: str) -> Iterator[tuple]:
        unchanged = [gr.skip()] * 4
        try:
            sentence = translation.checked_sentence(translator, text)
        except ValueError as error:
            yield f"**{error}**", gr.Column(visible=False), *unchanged
            return
        yield "Translating ...", gr.skip(), *unchanged
        found = translation.translations(translator, sentence)
        best = found[0][0]
        shown = (sentence, best)
        rows = [[text, round(score, 3)] for text, score in found]
        image = _drawn(translator, shown, kind, layer, head)
        yield "", gr.Column(visible=True), best, rows, shown, image

    return translate


def _lines(translator: Pipeline) -> Callable[[list[str]], list[str]]:
    """Return the function that programs call: texts in, translations out, nothing drawn."""

    def translate_lines(texts: list[str]) -> list[str]:
        """Translate sentences, all in one batch."""
        try:
            return translation.translated_lines(translator, texts)
        except ValueError as error:
            raise gr.Error(str(error), print_exception=False) from error

    return translate_lines


def _drawn(
    translator: Pipeline, shown: tuple[str, str], kind: str, layer: str, head: str
) -> Image.Image:
    attention = translation.attention_of(translator, *shown)
    return translation.picture(attention, kind, layer, head)


def _redraw_on_choice(
    translator: Pipeline, shown: gr.State, controls: list[gr.Radio], image: gr.Image
) -> None:
    kind, layer, head = controls

    def choose_kind(shown: tuple[str, str] | None, kind: str, layer: str, head: str) -> tuple:
        layers = translation.layer_names(translator, kind)
        heads = translation.head_names(translator, kind)
        layer = layer if layer in layers else layers[-1]
        head = head if head in heads else translation.MEAN_OF_HEADS
        drawn = choose(shown, kind, layer, head)
        return gr.Radio(layers, value=layer), gr.Radio(heads, value=head), drawn

    def choose(shown: tuple[str, str] | None, kind: str, layer: str, head: str) -> object:
        if shown is None:  # the page was opened before the Space restarted
            return gr.skip()
        return _drawn(translator, shown, kind, layer, head)

    inputs = [shown, *controls]
    common = {"api_visibility": "private", "concurrency_id": "model"}
    kind.input(choose_kind, inputs, [layer, head, image], **common)
    for control in (layer, head):
        control.input(choose, inputs, image, **common)


def main() -> None:
    """Serve the page of the model that `translation.model_name` finds."""
    name = translation.model_name()
    translator = translation.load_translator(name)
    # The visitor's own fonts: nothing is downloaded, and they show any script.
    theme = gr.themes.Soft(font=["system-ui", "sans-serif"], font_mono=["system-ui", "sans-serif"])
    page(translator, name=name, examples=translation.example_sentences()).launch(theme=theme)


if __name__ == "__main__":
    main()
