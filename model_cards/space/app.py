"""A page on the Hub: type a text, see what the model makes of it and what every head attends to."""

from collections.abc import Callable, Iterator
from html import escape

import gradio as gr
import translation
from PIL import Image
from transformers import Pipeline

INTRODUCTION = """
# {source} to {target}

{model} is a Transformer as in [Attention Is All You Need](https://arxiv.org/abs/1706.03762), with
{millions:.1f} million parameters. It knows the kind of text that it was trained on, and nothing
else. It runs on a CPU here.
"""
SCORES = (
    "The best hypotheses of the beam search. The score is the logarithm of the probability, "
    "divided by a penalty that grows with the length; the higher (nearer to 0), the better."
)
ATTENTION = (
    "## Attention\nEach row is a word that attends, each column a word that it attends to; darker "
    "cells mean more attention."
)
DOUBTFUL = "The model is far less sure of this than usual; it may be wrong."
# The scores stay on one line on a phone too, and the buttons of the picture above it.
STYLE = """
#n-best table { width: 100%; }
#n-best :is(th, td) { text-align: start; vertical-align: top; padding: 0.4rem 0.6rem; }
#n-best :is(table, th, td) { border-color: var(--border-color-primary); }
#n-best td:first-child { overflow-wrap: anywhere; }
#n-best :is(th, td):last-child { text-align: end; white-space: nowrap; width: 1%; }
#attention img { padding-top: 2.5rem; }
"""


def page(translator: Pipeline, *, name: str, task: translation.Task) -> gr.Blocks:
    """Build the page of one model; it computes nothing until a visitor asks."""
    title = f"{task.source} to {task.target}: {name}"
    with gr.Blocks(title=title, analytics_enabled=False) as blocks:
        millions = sum(weight.numel() for weight in translator.model.parameters()) / 1e6
        facts = {"model": translation.markdown_link(name), "millions": millions}
        gr.Markdown(INTRODUCTION.format(source=task.source, target=task.target, **facts))
        sentence = gr.Textbox(
            label=task.source,
            placeholder="Type a sentence, then press Enter",
            max_length=translation.MAX_CHARACTERS,
            max_lines=6,
        )
        button = gr.Button("Translate" if task.is_translation else "Run", variant="primary")
        message = gr.Markdown(elem_id="message")
        examples = [[text] for text in task.examples]
        given = gr.Examples(examples, sentence) if examples else None
        with gr.Column(visible=False) as results:
            best = gr.Textbox(
                label=task.target, interactive=False, buttons=["copy"], elem_id="translation"
            )
            table = gr.HTML(elem_id="n-best")
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
            "fn": translating(translator, task),
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


def translating(translator: Pipeline, task: translation.Task) -> Callable[..., Iterator[tuple]]:
    """Return the listener that fills the page, in two steps so that a slow model shows progress."""

    def translate(text: str, kind: str, layer: str, head: str) -> Iterator[tuple]:
        unchanged = [gr.skip()] * 4
        try:
            sentence = translation.checked_sentence(translator, text)
        except ValueError as error:
            yield f"**{error}**", gr.Column(visible=False), *unchanged
            return
        yield "Computing ...", gr.skip(), *unchanged
        found = translation.translations(translator, sentence)
        best = found[0].text
        shown = (sentence, best)
        image = _drawn(translator, shown, kind, layer, head)
        said = DOUBTFUL if found[0].doubtful else ""
        yield said, gr.Column(visible=True), best, _table(task.target, found), shown, image

    return translate


def _table(target: str, hypotheses: list[translation.Hypothesis]) -> str:
    """Return the hypotheses and their scores as HTML."""
    rows = [f"<th>{escape(target)}</th><th>Score</th>"]
    rows += [
        f'<td dir="auto">{escape(found.text)}</td><td>{found.score:.3f}</td>'
        for found in hypotheses
    ]
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


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
    page(translator, name=name, task=translation.task_of(name)).launch(theme=theme, css=STYLE)


if __name__ == "__main__":
    main()
