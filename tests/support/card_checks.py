"""Checks of a rendered model card, for tests of publishing."""

import re

from huggingface_hub import ModelCard

_LEFT_OVER = re.compile(r"\{\{|\{%|\bNone\b|\bnan\b|\bundefined\b|More Information Needed")


def card_problems(card, folder):
    """List what the Hub or a reader could not understand.

    Args:
        card: A model card; it is checked without the network.
        folder: The directory of the pictures that the card shows.
    """
    problems = []
    of_translations = ("language", "pipeline_tag") if "translation" in card.data.tags else ()
    missing = [name for name in ("license", *of_translations) if not card.data.get(name)]
    problems += [f"no {name} in the metadata" for name in missing]
    again = ModelCard(str(card))
    if not card.data.eval_results or again.data.eval_results != card.data.eval_results:
        problems.append("a model-index that does not round-trip")
    problems += [f"an empty section {title!r}" for title in empty_sections(card.text)]
    prose = re.sub(r"```.*?```", "", card.text, flags=re.DOTALL)
    prose = re.sub(r"^    .*$", "", prose, flags=re.M)  # without samples
    problems += [f"the text {text!r}" for text in sorted(set(_LEFT_OVER.findall(prose)))]
    problems += [f"{text!r} in a table" for text in re.findall(r"^\|.*\n([^|\n].*)", prose, re.M)]
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", card.text):
        if not (folder / picture).is_file():
            problems.append(f"the picture {picture}, which is not there")
    return problems


def empty_sections(text):
    """List headings with neither text nor a subheading under them."""
    parts = re.split(r"^(#+ .*)$", re.sub(r"```.*?```", "code", text, flags=re.DOTALL), flags=re.M)
    headings, bodies = parts[1::2], parts[2::2]
    levels = [len(heading.split(" ")[0]) for heading in headings]
    return [
        heading.lstrip("# ")
        for i, (heading, body) in enumerate(zip(headings, bodies, strict=True))
        if not body.strip() and not (i + 1 < len(levels) and levels[i + 1] > levels[i])
    ]
