"""Pairs that translate word for word, and a recipe that trains on them in a second."""

import json

WORDS = {"ein": "a", "Hund": "dog", "Haus": "house", "sieht": "sees", "und": "and", "alt": "old"}

TRAINER = {"save_steps": 3, "logging_steps": 3, "eval_strategy": "no"}


def write_pairs(path, count, seed):
    """Write word-for-word translations; a fixed recurrence draws the words."""
    state, lines = seed, []
    for _ in range(count):
        chosen = []
        for _ in range(3 + state % 4):
            state = (state * 1103515245 + 12345) % 2**31
            chosen.append(list(WORDS)[(state >> 16) % len(WORDS)])
        pair = {"de": " ".join(chosen), "en": " ".join(WORDS[word] for word in chosen)}
        lines.append(json.dumps({"translation": pair}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def tiny_recipe(folder, *, trainer=None, **overrides):
    """Write a recipe for a model that trains in a second, and evaluates with `eval_steps`."""
    trainer = {**TRAINER, **(trainer or {})}
    if "eval_steps" in trainer:
        trainer["eval_strategy"] = "steps"
    folder.mkdir(parents=True, exist_ok=True)
    values = {
        "pair": "de-en",
        "train_file": write_pairs(folder / "train.jsonl", 120, 1),
        "validation_file": write_pairs(folder / "validation.jsonl", 10, 2),
        "test_file": write_pairs(folder / "test.jsonl", 10, 3),
        "vocab_size": 280,
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "attention_heads": 2,
        "ffn_dim": 32,
        "batch_tokens": 256,
        "gradient_accumulation": 1,
        "warmup_steps": 10,
        "max_steps": 9,
        "checkpoints_to_average": 2,
        "choose_on_validation": "false",
        "num_beams": 1,
        "trainer": json.dumps(trainer),
        **overrides,
    }
    path = folder / "tiny.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in values.items()))
    return path
