"""Texts, rows, options, ids and pickles that nobody should send.

All but the pickles run in one process. Each case returns "right", "refused", or what went wrong.
"""

import contextlib
import dataclasses
import functools
import io
import json
import os
import pickle
import random
import shutil
import zipfile
from pathlib import Path

import torch
from hostile_values import OBJECTS, TEXTS
from huggingface_hub.errors import StrictDataclassError
from processes import Started, command
from runs import PAIRS, REFUSED, RIGHT, Reference, finished, train

from vanilla_transformer import translate
from vanilla_transformer.data.pair_files import read_pairs
from vanilla_transformer.errors import RequestError, quoted
from vanilla_transformer.recipes.recipe import Recipe, make_recipe
from vanilla_transformer.storage.saved_model import load_saved_model, load_saved_tokenizer
from vanilla_transformer.train.checkpoints import seal
from vanilla_transformer.train.run import training_arguments


@functools.cache
def _model(run: Path) -> tuple[torch.nn.Module, object]:
    return load_saved_model(run), load_saved_tokenizer(run)


# ------------------------------------------------------------------------------------- texts

_RANGES = (
    (0x20, 0x7E),
    (0x00, 0x1F),
    (0x80, 0x24F),
    (0x300, 0x36F),
    (0x590, 0x6FF),
    (0x2000, 0x206F),
    (0x3040, 0x30FF),
    (0x4E00, 0x9FFF),
    (0xE000, 0xF8FF),
    (0xFE00, 0xFFFF),
    (0x1F300, 0x1FAFF),
    (0xE0000, 0xE007F),
    (0x10000, 0x10FFFF),
)
_WORDS = ["<s>", "</s>", "<pad>", "<unk>", "ein", "Hund", "\r\n", "\u2028", "\ufeff"]
_WORDS += ["|||", "\t", ""]


def _random_text(rng: random.Random) -> str:
    parts = []
    for _ in range(rng.choice((0, 1, 2, 5, 20, 60))):
        if rng.random() < 0.4:
            parts.append(rng.choice(_WORDS))
        else:
            low, high = rng.choice(_RANGES)
            parts.append(chr(rng.randint(low, high)) * rng.choice((1, 1, 1, 3)))
        if rng.random() < 0.02:
            parts.append(chr(rng.randint(0xD800, 0xDFFF)))
    return rng.choice(("", " ")).join(parts)


def text(rng: random.Random, folder: Path, number: int) -> str:
    """Check that the tokenizer preserves any normalised text, and refuses only lone surrogates."""
    model, tokenizer = _model(folder / "run")
    sentence = _random_text(rng)
    is_text = not any(0xD800 <= ord(character) <= 0xDFFF for character in sentence)
    try:
        found = list(translate(model, tokenizer, [sentence], num_beams=1, max_new_tokens=4))
    except RequestError as error:
        return f"{sentence!r} is refused: {error}" if is_text else REFUSED
    if not is_text:
        return f"{sentence!r} is translated"
    if len(found) != 1 or not isinstance(found[0], str):
        return f"{sentence!r} becomes {found!r}"
    ids = tokenizer(sentence)["input_ids"]
    back = tokenizer.decode(ids, skip_special_tokens=True)
    known = tokenizer.backend_tokenizer.normalizer.normalize_str(sentence)
    is_right = back == known and tokenizer(known)["input_ids"] == ids
    return RIGHT if is_right else f"{sentence!r} comes back as {back!r}"


# -------------------------------------------------------------------------------------- rows


def _malformed(rng: random.Random) -> bytes:
    good = '{"translation": {"de": "ein Hund", "en": "a dog"}}'
    value = rng.choice(("null", "1", "true", "[]", "{}", '""', '" "', '"\\ud800"', '["a"]', "NaN"))
    side = rng.choice(("de", "en"))
    other = "en" if side == "de" else "de"
    return rng.choice(
        (
            lambda: good[: rng.randrange(1, len(good))].encode(),
            lambda: f'{{"{side}": {value}, "{other}": "a"}}'.encode(),
            lambda: f'{{"translation": {{"{side}": {value}, "{other}": "a"}}}}'.encode(),
            lambda: f'{{"{side}": "a"}}'.encode(),
            lambda: f'{{"translation": {value}}}'.encode(),
            lambda: value.encode(),
            lambda: b"",
            lambda: b"   ",
            lambda: rng.randbytes(rng.randrange(1, 50)).replace(b"\n", b"\xff") + b"\xff",
            lambda: good.encode("utf-16"),
            lambda: b"[" * rng.choice((10, 100_000)),
            lambda: b'{"de": "\xff", "en": "a"}',
            lambda: b'{"de": ' + b"9" * 10_000 + b', "en": "a"}',
            lambda: good.encode() + good.encode(),
        )
    )()


def malformed_row(rng: random.Random, folder: Path, number: int) -> str:
    """Check that a file's good pairs are read, and its malformed line is counted or refused."""
    good = [(f"Satz {number}", f"sentence {number}") for number in range(rng.randrange(1, 6))]
    lines = [json.dumps({"translation": {"de": de, "en": en}}).encode() for de, en in good]
    place, row = rng.randrange(len(good) + 1), _malformed(rng)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "pairs.jsonl"
    ending = rng.choice((b"\n", b"\r\n"))
    path.write_bytes(ending.join([*lines[:place], row, *lines[place:]]) + ending)
    languages = {"source_language": "de", "target_language": "en"}
    reader = read_pairs(path, **languages)
    try:
        found = list(reader)
    except RequestError as error:
        named = row.startswith(b"\xff\xfe") and "UTF-16" in str(error)
        named |= row.startswith(b"[") and "holds a JSON array" in str(error)
        return REFUSED if named else f"{row[:80]!r} is refused: {error}"
    if found != good or reader.num_malformed != 1:
        return f"{row[:80]!r}: {reader.num_malformed} malformed"
    if f"{path}:{place + 1}:" not in reader.examples[0]:
        return f"{row[:80]!r}: {reader.examples[0]}"
    with contextlib.suppress(RequestError):
        list(read_pairs(path, strict=True, **languages))
        return f"{row[:80]!r} passes strict"
    return RIGHT


# ----------------------------------------------------------------------------------- options

OPTIONS = [
    (field.name, value) for field in dataclasses.fields(Recipe) for value in (*TEXTS, *OBJECTS)
]


def option(rng: random.Random, folder: Path, number: int) -> str:
    """Check that an option's value is refused by name, or accepted by model and training."""
    name, value = OPTIONS[number]
    shown = f"{name}={quoted(value)}"
    try:
        recipe = make_recipe({"pair": "de-en", "train_file": "train.jsonl", name: value})
        recipe.config(vocab_size=recipe.vocab_size)
        training_arguments(recipe, folder / "checkpoints")
        json.dumps(dataclasses.asdict(recipe), allow_nan=False)
    except RequestError as error:
        named = name in str(error) and len(str(error)) < 700
        return REFUSED if named else f"{shown}: {str(error)[:200]}"
    except (StrictDataclassError, ValueError, TypeError, OverflowError) as error:
        return f"{shown}: {type(error).__name__}: {str(error)[:200]}"
    return RIGHT


# ------------------------------------------------------------------------------ ids and masks

_DTYPES = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool, torch.float32)
_SHAPES = ((2, 5), (1, 5), (2, 1), (5,), (2, 5, 1), (0, 5), (2, 0), (0, 0), ())
_BOUNDS = ((4, 200), (-3, 5), (200, 40_000))
_FORMS = ("tensor", "list", "numpy")
_MASKS = ("padded", "none", "ones", "bool", "float", "twos", "halves", "additive", "nan", "wide")
_MASKS += ("narrow", "flat", "list", "other rows", "all padding", "negative")


def _mask(kind: str, shape: tuple[int, ...]) -> object:
    ones = torch.ones(shape, dtype=torch.long)
    padded = ones.clone()
    if padded.ndim == 2 and padded.size(1) > 1:
        padded[:, -1] = 0
    wide = torch.ones((*shape[:-1], (shape[-1] if shape else 0) + 2), dtype=torch.long)
    return {
        "none": None,
        "ones": ones,
        "padded": padded,
        "bool": padded.bool(),
        "float": padded.float(),
        "twos": 2 * padded,
        "halves": padded * 0.5,
        "additive": (1.0 - padded) * -1e9,
        "nan": padded * torch.nan,
        "wide": wide,
        "narrow": ones[..., :-1] if shape else ones,
        "flat": ones.flatten(),
        "list": padded.tolist(),
        "other rows": torch.ones((3, *shape[1:]), dtype=torch.long),
        "all padding": torch.zeros_like(ones),
        "negative": -padded,
    }[kind]


def ids(rng: random.Random, folder: Path, number: int) -> str:
    """Check that ids and masks are refused, or give the same as in int64, with 0s and 1s."""
    model, _ = _model(folder / "run")
    # The first choice of each is valid, and taken in three of four cases.
    dtype, shape, kind, (low, high), form = (
        choices[0] if rng.random() < 0.75 else rng.choice(choices)
        for choices in (_DTYPES, _SHAPES, _MASKS, _BOUNDS, _FORMS)
    )
    given = torch.randint(
        low, high, shape, generator=torch.Generator().manual_seed(rng.getrandbits(32))
    )
    given = given.to(dtype)
    handed = {"tensor": given, "list": given.tolist(), "numpy": given.numpy()}[form]
    side = rng.choice(("source", "target", "labels"))
    mask = _mask(kind, shape)
    what = f"{side} {form} {dtype} {list(shape)} from {low} to {high}, mask {kind}"
    plain = torch.full((2, 5), 7)

    def answer(values: object, its_mask: object) -> torch.Tensor:
        if side == "source":
            return model(input_ids=values, attention_mask=its_mask, decoder_input_ids=plain).logits
        if side == "labels":
            return model(input_ids=plain, attention_mask=its_mask, labels=values).logits
        request = {"decoder_input_ids": values, "decoder_attention_mask": its_mask}
        return model(input_ids=plain, **request).logits

    try:
        with torch.inference_mode():
            found = answer(handed, mask)
            canonical = None if mask is None else (torch.as_tensor(mask) != 0).long()
            expected = answer(given.long(), canonical)
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):
        return REFUSED  # mostly by torch
    if not torch.isfinite(found).all():
        return f"{what}: the logits are not finite"
    return RIGHT if torch.equal(found, expected) else f"{what}: other logits"


# ----------------------------------------------------------------------------------- pickles


class _Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path, way: str) -> None:
        self.marker, self.way = marker, way

    def __reduce__(self) -> tuple:
        if self.way == "system":
            return os.system, (f"touch {self.marker}",)
        code = f"open({str(self.marker)!r}, 'w').close()"
        return {"eval": eval, "exec": exec}[self.way], (code,)


def _evil_file(rng: random.Random, marker: Path) -> bytes:
    bomb = _Touch(marker, rng.choice(("system", "eval", "exec")))
    content = rng.choice(
        (bomb, {"model": bomb}, {"state": {}, "param_groups": [bomb]}, [bomb], {"python": bomb})
    )
    buffer = io.BytesIO()
    kind = rng.choice(("torch", "torch", "legacy", "pickle", "zip"))
    if kind == "pickle":
        pickle.dump(content, buffer)
    elif kind == "zip":  # as torch writes it, by hand
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps(content))
            archive.writestr("archive/version", "3\n")
    else:
        torch.save(content, buffer, _use_new_zipfile_serialization=kind == "torch")
    return buffer.getvalue()


_RESUMED = ("optimizer.pt", "scheduler.pt", "rng_state.pth", "scaler.pt", "training_args.bin")
_RESUMED += ("pytorch_model.bin", "adapter_model.bin", "optimizer.bin")
_IMPORTED = ("fairseq", "torch", "annotated", "opennmt", "joeynmt", "marian", "fsmt")


def pickled(rng: random.Random, folder: Path, reference: Reference) -> str:
    """Check that a malicious pickle in a checkpoint or another system's model does not run."""
    marker = Path(f"{folder}.ran")
    content = _evil_file(rng, marker)
    if rng.random() < 0.5:
        outcome = _resumed(rng, folder, content, reference)
    else:
        outcome = _imported(rng.choice(_IMPORTED), folder, content)
    if marker.exists():
        marker.unlink()
        return "the pickle ran"
    return outcome


def _resumed(rng: random.Random, folder: Path, content: bytes, reference: Reference) -> str:
    whole, expected, _, _ = reference.of("fp32", 1)
    shutil.copytree(whole, folder)
    shutil.rmtree(folder / "run/checkpoints/checkpoint-40")
    (folder / "run/metrics.json").unlink()
    checkpoint, name = folder / "run/checkpoints/checkpoint-30", rng.choice(_RESUMED)
    (checkpoint / name).write_bytes(content)
    if name in ("pytorch_model.bin", "adapter_model.bin"):
        (checkpoint / "model.safetensors").unlink()
    seal(checkpoint)  # whoever writes the pickle can write the manifest too
    outcome = finished(folder, expected, Started(train(), folder).ended())
    return outcome if outcome in (RIGHT, REFUSED) else f"{name}: {outcome}"


def _imported(system: str, folder: Path, content: bytes) -> str:
    source = folder / "there"
    source.mkdir(parents=True)
    options: tuple[str, ...] = ()
    path = source
    if system in ("marian", "fsmt"):
        (source / "config.json").write_text(json.dumps({"model_type": system}))
        (source / "pytorch_model.bin").write_bytes(content)
    elif system == "joeynmt":
        shutil.copyfile(PAIRS / "tiny.yaml", source / "config.yaml")
        (source / "best.ckpt").write_bytes(content)
    else:
        path = source / "model.pt"
        path.write_bytes(content)
    if system in ("torch", "annotated"):
        options = ("--heads", "2")
    if system == "torch":
        options += ("--pad-token-id", "0", "--bos-token-id", "1", "--eos-token-id", "2")
    ended = Started(command("import", system, path, folder / "out", *options), folder).ended()
    if (folder / "out").exists():
        return f"import {system} made a model"
    return REFUSED if ended.is_refusal else f"import {system}: {ended.told()}"
