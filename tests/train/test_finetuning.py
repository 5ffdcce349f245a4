"""Fine-tuning a model of the Hub, by the README's own blocks, with a Hub on loopback."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch
from hub_server import HubServer, Repository
from pages import BLOCKS, output_of
from published_runs import named_code, save_all
from transformers import AutoModelForSeq2SeqLM, pipeline

from vanilla_transformer.publish.remote_code import embed_code

ROOT = Path(__file__).parents[2]
EXAMPLE = "examples/pytorch/translation/run_translation.py"
PAIRS = [("3 hours", "3 Stunden"), ("20 minutes", "20 Minuten")] * 4


@pytest.fixture
def hub():
    server = HubServer({"token": "user"})
    yield server
    server.close()


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Return a directory with a random model, as its author has it before publishing."""
    return save_all(tmp_path_factory.mktemp("author"))


def published(hub, directory):
    """Publish a directory as the model user/demo-en-de, with its code, and return the commit."""
    with_code = shutil.copytree(directory, directory.with_name("with_code"), dirs_exist_ok=True)
    embed_code(with_code)
    hub.repositories["model", "user/demo-en-de"] = repository = Repository()
    files = {path.name: path.read_bytes() for path in with_code.iterdir()}
    return repository.commit("main", files, "Publish")


def run(hub, folder, *command, **variables):
    """Run a command of a user who is logged in and has an empty cache."""
    variables |= {"HF_ENDPOINT": hub.url, "HF_TOKEN": "token", "HF_HOME": str(folder / "hf")}
    variables |= {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}  # the server has no Xet storage
    return output_of(command, folder, os.environ | variables)


@pytest.mark.slow
def test_blocks_finetune_and_finetune_lora(hub, directory, tmp_path):
    """Run the blocks from `from_pretrained` to `push_to_hub`, then load what was pushed."""
    published(hub, directory)
    before = dict(hub.repositories["model", "user/demo-en-de"].commits)
    code = BLOCKS["finetune"] + BLOCKS["finetune_lora"] + "print(model.device.type)\n"
    assert run(hub, tmp_path, sys.executable, "-c", code).endswith("cpu\n")
    tuned, lora = (set(hub.files(f"user/{name}")) for name in ("demo-finetuned", "demo-lora"))
    assert {"model.safetensors", "config.json", "generation_config.json", "tokenizer.json"} <= tuned
    assert {"adapter_model.safetensors", "adapter_config.json"} <= lora
    assert "model.safetensors" not in lora
    assert not [name for name in tuned | lora if name.endswith((".bin", ".pt", ".pth", ".py"))]
    adapter = json.loads(hub.files("user/demo-lora")["adapter_config.json"])
    assert adapter["base_model_name_or_path"] == "user/demo-en-de"
    assert hub.repositories["model", "user/demo-en-de"].commits == before
    (tmp_path / "tuned").mkdir()
    for name, content in hub.files("user/demo-finetuned").items():
        (tmp_path / "tuned" / name).write_bytes(content)
    new, old = map(AutoModelForSeq2SeqLM.from_pretrained, (tmp_path / "tuned", directory))
    assert named_code(tmp_path / "tuned") == set()
    pairs = zip(new.parameters(), old.parameters(), strict=True)
    assert not all(torch.equal(tuned, before) for tuned, before in pairs)
    assert new.generation_config.num_beams == old.generation_config.num_beams == 4
    translator = pipeline("translate", model=str(tmp_path / "tuned"))
    assert "translation_text" in translator("3 hours", max_new_tokens=4)[0]


def example_checkout():
    root = os.environ.get("HF_TESTS_ROOT")
    return Path(root).resolve() if root and (Path(root) / EXAMPLE).is_file() else None


# The example would load this metric from the Hub.
METRIC = """
import datasets
import evaluate
import sacrebleu


class Metric(evaluate.Metric):
    def _info(self):
        text = datasets.Value("string")
        features = datasets.Features({"predictions": text, "references": datasets.Sequence(text)})
        return evaluate.MetricInfo(description="", citation="", features=features)

    def _compute(self, predictions, references):
        columns = [list(column) for column in zip(*references)]
        return {"score": sacrebleu.corpus_bleu(predictions, columns).score}
"""


@pytest.mark.slow
@pytest.mark.skipif(example_checkout() is None, reason=f"HF_TESTS_ROOT has no {EXAMPLE}")
def test_block_finetune_example(hub, directory, tmp_path):
    """Run Hugging Face's own example with remote code, without this package."""
    commit = published(hub, directory)
    reader = tmp_path / "reader"
    (reader / "sacrebleu").mkdir(parents=True)
    (reader / "sacrebleu" / "sacrebleu.py").write_text(METRIC, encoding="utf-8")
    (reader / "transformers").symlink_to(example_checkout())
    lines = [json.dumps({"translation": {"en": en, "de": de}}) for en, de in PAIRS]
    for name in ("train", "valid"):
        (reader / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    # A directory earlier on the path hides the package that this test runs with.
    hidden = tmp_path / "hidden" / "vanilla_transformer"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('not on this machine')\n")
    command = BLOCKS["finetune_example"].replace(".venv/bin/", f"{Path(sys.executable).parent}/")
    small = "--num_train_epochs 1 --generation_max_length 20 --report_to none"
    run(
        hub,
        reader,
        *("bash", "-euc", f"{command.rstrip()} {small}"),
        COMMIT=commit,
        PYTHONPATH=str(hidden.parent),
    )
    results = json.loads((reader / "runs" / "example" / "eval_results.json").read_text())
    assert results["eval_samples"] == len(PAIRS)
    assert results["eval_bleu"] >= 0
    assert (reader / "runs" / "example" / "model.safetensors").is_file()
    assert "pipeline.py" in named_code(reader / "runs" / "example")
