"""The demo Space in a real browser. `make test-slow` runs this if Chromium is installed.

    pip install -e ".[browser]"; apt-get install chromium
    SPACE_MODEL=runs/multi30k_en_de pytest -m slow tests/publish/test_space_browser.py

SPACE_MODEL names a trained model to show instead of a random one.
"""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from browser import free_port, opened, served
from published_runs import METRICS, save_all, tiny_model

from vanilla_transformer.data.tokenizer import train_tokenizer
from vanilla_transformer.publish.space import write_space

pytestmark = pytest.mark.slow
SAMPLES = [
    "People are fixing the roof of a house.",
    "A man in an orange hat is riding a brown horse on the beach.",
]


# With a small model a message may disappear before the test can read it.
REMEMBER_MESSAGES = """() => {
    window.said = []
    const message = document.querySelector('#message')
    const note = () => window.said.push(message.innerText.trim())
    const all = {childList: true, subtree: true, characterData: true}
    new MutationObserver(note).observe(message, all)
}"""

BEYOND_THE_EDGE = """() => [...document.querySelectorAll('*')]
    .filter(element => element.getBoundingClientRect().right > innerWidth + 1)
    .map(element => element.outerHTML.slice(0, 100))"""
LINES_OF_SCORES = """() => [...document.querySelectorAll('#n-best td:last-child')].map(cell => {
    const range = document.createRange()
    range.selectNodeContents(cell)
    return range.getClientRects().length
})"""
SCORE = r"/-\d+\.\d+/g"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the run directory in SPACE_MODEL, or one with a random model."""
    if os.environ.get("SPACE_MODEL"):
        return Path(os.environ["SPACE_MODEL"]).resolve()
    tokenizer = train_tokenizer(SAMPLES * 2, vocab_size=300, show_progress=False)
    model = tiny_model(vocab_size=len(tokenizer), encoder_layers=2, decoder_layers=2)
    folder = save_all(tmp_path_factory.mktemp("run"), model, tokenizer)
    samples = [{"source": text, "reference": "", "translation": ""} for text in SAMPLES]
    metrics = METRICS | {"samples": {"test": samples}}
    (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def address(run, tmp_path_factory):
    """Start the Space and return its address."""
    pytest.importorskip("gradio", reason="comes with a Space")
    folder = tmp_path_factory.mktemp("served") / "space"
    write_space(folder, "user/name")
    port, variables = free_port(), {"MODEL_ID": str(run), "HF_HUB_OFFLINE": "1"}
    with served([sys.executable, "app.py"], folder, port, **variables):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(params=[360, 1280])
def page(address, request):
    with opened(address, width=request.param) as page:
        yield page


def picture(page):
    return page.locator("#attention img").get_attribute("src")


def next_picture(page, before):
    """Wait until a new picture has loaded and return its address."""
    page.wait_for_function(
        "before => { const image = document.querySelector('#attention img');"
        " return image && image.src != before && image.complete && image.naturalWidth > 100 }",
        arg=before,
    )
    return picture(page)


def test_visitor_can_translate_and_view_the_attention(page):
    sentence = page.locator("textarea").first
    sentence.wait_for()
    assert page.locator("#attention img").count() == 0
    page.evaluate(REMEMBER_MESSAGES)
    sentence.fill(SAMPLES[1])
    page.get_by_role("button", name="Translate").click()
    page.wait_for_function("said.length > 0")
    first = next_picture(page, "")
    assert "Computing ..." in page.evaluate("said")
    assert page.locator("#translation textarea").input_value()
    page.wait_for_function(
        f"document.querySelector('#n-best').innerText.match({SCORE})?.length == 4"
    )
    # Nothing is cut off, and each score is on one line.
    assert page.evaluate(BEYOND_THE_EDGE) == []
    assert page.evaluate(LINES_OF_SCORES) == [1] * 4
    page.get_by_role("radio", name="Within the source").check()
    second = next_picture(page, first)
    page.get_by_role("radio", name="all", exact=True).check()
    third = next_picture(page, second)
    page.get_by_role("radio", name="1", exact=True).first.check()
    assert len({first, second, third, next_picture(page, third)}) == 4
    assert page.problems == []


def test_visitor_can_click_an_example_and_sees_the_error_for_an_invalid_text(page, run):
    metrics = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    example = next(iter(metrics["samples"].values()))[0]["source"]
    page.get_by_role("heading", name=re.compile(r"^\w+ to \w+$")).wait_for()
    page.get_by_text(example[:20]).first.click()
    next_picture(page, "")
    for text, message in (("  ", "There is no text yet"), ("word " * 900, "too long")):
        page.locator("textarea").first.fill(text)
        page.get_by_role("button", name="Translate").click()
        page.locator("#message").get_by_text(message).wait_for()
    assert page.problems == []
