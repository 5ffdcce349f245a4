"""A run and two published folders written by version 0.1.0, and their expected outputs.

fixtures/make_0_1_0.py made them. This file and test_compatibility.py use only what is stable: the
package's public names, transformers and the command line, but no modules of the package.

    python tests/fixture_0_1_0.py --check-bits

resumes the interrupted run with the code of this checkout and compares the results bit by bit with
those of 0.1.0. Processors round differently, so use a machine on which 0.1.0 itself passes.
"""

import hashlib
import importlib
import json
import os
import shutil
import sys
import tempfile
import tomllib
from contextlib import chdir
from pathlib import Path

FIXTURES = Path(__file__).with_name("fixtures")
RUN = FIXTURES / "run_0_1_0"  # recipe, pairs, and the runs complete/ and interrupted/
PUBLISHED = {name: FIXTURES / "published_0_1_0" / name for name in ("without_code", "with_code")}
EXPECTED = RUN / "expected.json"
RECIPE, INTERRUPTED_AT = "tiny.yaml", 220
# Files that are bit-identical in a resumed and in an uninterrupted run.
BITS = ("model.safetensors", "checkpoints/checkpoint-240/model.safetensors", "samples.md")


def command(*words: object) -> int:
    """Run `vanilla-transformer WORDS` in this process and return the exit code."""
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    module, _, name = tomllib.loads(text)["project"]["scripts"]["vanilla-transformer"].partition(
        ":"
    )
    return getattr(importlib.import_module(module), name)([str(word) for word in words])


def pairs(split: str) -> tuple[list[str], list[str]]:
    lines = (RUN / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line)["translation"] for line in lines]
    return [pair["de"] for pair in found], [pair["en"] for pair in found]


def observed(model: object, tokenizer: object, sentences: list[str]) -> dict[str, object]:
    """Return token ids, the loss of a batch, and translations with their scores."""
    import torch

    from vanilla_transformer import translate, translate_nbest

    sources, targets = (
        tokenizer(texts, padding=True, return_tensors="pt") for texts in pairs("test")
    )
    labels = targets["input_ids"].masked_fill(targets["attention_mask"] == 0, -100)
    with torch.no_grad():
        loss = model(**sources, labels=labels).loss.item()
    best = [found[0] for found in translate_nbest(model, tokenizer, sentences)]
    assert list(translate(model, tokenizer, sentences)) == [found.text for found in best]
    return {
        "source_ids": sources["input_ids"].tolist(),
        "labels": labels.tolist(),
        "loss": loss,
        "translations": [{"text": found.text, "score": found.score} for found in best],
    }


def load(directory: os.PathLike) -> tuple[object, object]:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    import vanilla_transformer  # noqa: F401, registers the model

    model = AutoModelForSeq2SeqLM.from_pretrained(directory)
    return model.eval(), AutoTokenizer.from_pretrained(directory)


def losses_after(run: Path, update: int) -> dict[str, float]:
    """Return the training and validation losses logged after an update."""
    state = json.loads((run / "checkpoints/checkpoint-240/trainer_state.json").read_text())
    return {
        f"{name} at {entry['step']}": entry[name]
        for entry in state["log_history"]
        for name in ("loss", "eval_loss")
        if name in entry and entry["step"] > update
    }


def digests(run: Path) -> dict[str, str]:
    return {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in BITS}


def check_bits() -> bool:
    """Return whether the interrupted run, resumed here, ends as it did with 0.1.0."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(shutil.copytree(RUN, Path(folder, "work")), "interrupted")
        with chdir(run.parent):
            assert command("train", RECIPE, "--output-dir", run.name) == 0
        found, losses = digests(run), losses_after(run, INTERRUPTED_AT)
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    for name, digest in found.items():
        print(f"{'same' if digest == expected['sha256'][name] else 'OTHER'}  {digest}  {name}")
    print("same" if losses == expected["losses"] else "OTHER", " losses", losses)
    return found == expected["sha256"] and losses == expected["losses"]


if __name__ == "__main__":
    if sys.argv[1:] != ["--check-bits"]:
        sys.exit(__doc__)
    os.environ |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    sys.path.insert(0, str(Path(__file__).parents[1]))  # the checkout that this file is in
    sys.exit(0 if check_bits() else 1)
