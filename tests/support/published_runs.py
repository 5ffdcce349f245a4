"""Run directories with untrained models, for tests of publishing."""

import json
from pathlib import Path

import torch
from tiny_models import tiny_config
from transformers.dynamic_module_utils import get_relative_import_files

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.data.tokenizer import train_tokenizer
from vanilla_transformer.publish import publishing
from vanilla_transformer.storage.saved_model import load_saved_model, load_saved_tokenizer
from vanilla_transformer.train.finishing import write_samples
from vanilla_transformer.translation import translate

SENTENCES = {"ein Hund": "a dog", "ein altes Haus": "an old house", "und ein Hund": "and a dog"}
SCORES = {
    "bleu": 34.39082,
    "bleu_signature": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
    "chrf": 57.90592,
    "chrf_signature": "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0",
    "exact_match": 4.3,
    "num_sentences": 1000,
    "perplexity": 6.72315,
    "copy_baseline": {"bleu": 0.47},
}
SAMPLES = {
    "test": [
        {"source": source, "reference": reference, "translation": ""}
        for source, reference in SENTENCES.items()
    ]
}
METRICS = {
    "scores": {"validation": {**SCORES, "bleu": 34.1395}, "test": SCORES},
    **{"parameters": 7065600, "updates": 2603, "epochs": 5.259, "target_tokens": 2522630},
    **{"target_tokens_per_second": 2101.8, "training_minutes": 20.004, "precision": "fp32"},
    **{"averaged_checkpoints": ["checkpoint-6", "checkpoint-9"], "seed": 0, "devices": 1},
    "vocabulary": 300,
    "data": {
        **{"train_pairs": 29000, "train_pairs_kept": 28997, "validation_pairs": 1014},
        **{"train_malformed": 2, "train_too_long": 3},
        "files": {"train": {"train.jsonl": "8e" * 32}},
    },
    "hardware": {"cpu": "A processor", "cores": 2, "threads": 2},
    "versions": {"python": "3.11.7", "torch": "2.13.0"},
    "git_commit": "0" * 40,
    "recipe": {
        **{"preset": "base", "d_model": 16, "dropout": 0.15, "vocab_size": 300, "num_beams": 4},
        **{"source_language": "de", "target_language": "en", "dataset": None, "generated": None},
        **{"max_source_length": 256, "max_minutes": 20.0, "warmup_steps": 4000},
        "train_file": "/home/somebody/secret/train.jsonl",
        **{"data_license": "CC BY 4.0", "data_source": "Three sentences"},
    },
    "samples": SAMPLES,
}


def tiny_model(seed=0, **changes):
    torch.manual_seed(seed)
    config = tiny_config(**{"vocab_size": 300, **changes})
    model = VanillaTransformerForConditionalGeneration(config).eval()
    search = model.generation_config
    search.num_beams, search.length_penalty = 4, 0.6  # as a run ships them
    model.config.use_cache = False  # as the Trainer leaves it
    return model


def tiny_tokenizer(vocab_size=300):
    texts = [*SENTENCES, *SENTENCES.values()] * 3
    return train_tokenizer(texts, vocab_size=vocab_size, show_progress=False)


def save_all(folder, *parts):
    """Save models and tokenizers, by default tiny ones of the same vocabulary."""
    for part in parts or (tiny_model(), tiny_tokenizer()):
        part.save_pretrained(folder)
    return folder


def write_run(directory, *, seed=0, metrics=METRICS):
    """Write a run directory, including files that must not be published."""
    directory.mkdir(parents=True, exist_ok=True)
    save_all(directory, tiny_model(seed), tiny_tokenizer())
    (directory / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    write_samples(directory, SAMPLES)
    (directory / "curves.png").write_bytes(b"\x89PNG curves")
    (directory / "history.tsv").write_text("step\tloss\n100\t5.5\n")
    for name in ("training_args.bin", "optimizer.pt", "recipe.yaml", "notes.txt", ".token"):
        (directory / name).write_text("hf_home")
    checkpoint = directory / "checkpoints" / "checkpoint-9"
    checkpoint.mkdir(parents=True, exist_ok=True)
    (checkpoint / "model.safetensors").write_text("a checkpoint")
    return directory


def load_here(folder, texts, *, form, name, needs=None):
    """Stand in for `load_in_clean_process`, which takes seconds and is tested elsewhere."""
    model, tokenizer = load_saved_model(folder), load_saved_tokenizer(folder)
    found = [next(translate(model, tokenizer, [text])) for text in texts]
    logits = publishing._logits(model, tokenizer, texts[0])
    return {"translations": found, "logits": logits.tolist()}


def draw_nothing(model, tokenizer, folder, facts):
    for number in range(1, len(facts["samples"]["card"]) + 1):
        (folder / f"attention-{number}.png").write_bytes(b"\x89PNG")


def named_code(folder):
    """Return the names of the files of code that a saved folder needs; all must be there."""
    references = []
    for path in folder.glob("*.json"):
        settings = json.loads(path.read_text(encoding="utf-8"))
        references += settings.get("auto_map", {}).values()
        references += [entry["impl"] for entry in settings.get("custom_pipelines", {}).values()]
    files = {folder / f"{reference.partition('.')[0]}.py" for reference in references}
    files |= {Path(path) for file in files for path in get_relative_import_files(file)}
    return {file.name for file in files if file.read_bytes()}
