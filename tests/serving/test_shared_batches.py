"""Texts of concurrent requests share batches, and a bad one harms no other."""

import asyncio
import threading

import pytest

from vanilla_transformer import Translation, translate, translate_nbest
from vanilla_transformer.serving.shared_batches import SharedBatches

BAD = {"\ud800": "a string that UTF-8 can encode", None: "is None; give a", "long " * 200: "has 2"}


def test_a_text_that_cannot_be_translated_is_one_error_and_the_others_are_right(everyday):
    good = everyday.sentences[:6]
    texts = [*good[:3], *BAD, *good[3:], ""]
    options = {"most_tokens": 100, "tokens_at_once": 400}
    found = [it for it, *_ in translate_nbest(everyday.model, everyday.tokenizer, texts, **options)]
    expected = [*translate(everyday.model, everyday.tokenizer, good)]
    assert [each.text for each in found if each.error is None] == [*expected, ""]
    for each, reason in zip(found[3:6], BAD.values(), strict=True):
        assert reason in each.error
        assert each.text == ""
    for more, reason in (({}, "Input 4 is"), (options, "call translate_nbest")):
        with pytest.raises(ValueError, match=reason):
            [*translate(everyday.model, everyday.tokenizer, texts, **more)]


class Upper:
    """A translator that notes its batches and works when it is told to."""

    def __init__(self):
        self.batches, self.go = [], threading.Event()
        self.go.set()

    def __call__(self, texts):
        self.batches.append(texts)
        self.go.wait(10)
        if "broken" in texts:
            raise MemoryError("no memory")
        errors = ["it is bad" if text == "bad" else None for text in texts]
        return [Translation(it.upper(), 0.0, error=e) for it, e in zip(texts, errors, strict=True)]


def run(asked):
    upper = Upper()
    return asyncio.run(asked(SharedBatches(upper), upper)), upper.batches


def test_texts_that_arrive_while_the_model_is_busy_are_translated_together():
    async def asked(batches, upper):
        upper.go.clear()
        tasks = [asyncio.create_task(batches.translate(["one"]))]
        while not upper.batches:
            await asyncio.sleep(0)
        tasks += [asyncio.create_task(batches.translate(it)) for it in (["a", "b"], [], ["c"])]
        gone = asyncio.create_task(batches.translate(["gone"]))
        await asyncio.sleep(0)
        gone.cancel()
        upper.go.set()
        return await asyncio.gather(*tasks)

    assert run(asked) == ([["ONE"], ["A", "B"], [], ["C"]], [["one"], ["a", "c", "b"]])


def test_a_short_request_does_not_wait_for_all_of_a_long_one():
    async def asked(batches, upper):
        long = asyncio.create_task(batches.translate([f"{number}" for number in range(300)]))
        while not upper.batches:
            await asyncio.sleep(0)
        return [await batches.translate(["a", "b"]), len(await long)]

    found, batches = run(asked)
    assert found == [["A", "B"], 300]
    assert [place for place, texts in enumerate(batches) if {"a", "b"} & {*texts}] == [1]


def test_errors_reach_those_who_asked_and_the_next_are_served():
    async def asked(batches, upper):
        requests = [["a"], ["b", "bad"], ["c"]]
        found = await asyncio.gather(*map(batches.translate, requests), return_exceptions=True)
        failed = await asyncio.gather(batches.translate(["broken"]), return_exceptions=True)
        return [*map(str, found), *map(repr, failed), await batches.translate(["d"])]

    found, batches = run(asked)
    assert found == ["['A']", "it is bad", "['C']", "MemoryError('no memory')", ["D"]]
    assert batches[0] == ["a", "b", "c", "bad"]
