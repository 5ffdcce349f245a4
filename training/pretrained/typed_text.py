"""Store in a trained model when to doubt a translation, and its sources' case and punctuation.

    python training/pretrained/typed_text.py MODEL TRAIN VALIDATION --pair en-de

`train` does this by itself; this script is for models that were trained before it did.
"""

import argparse
from pathlib import Path

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import vanilla_transformer  # noqa: F401  # registers the model
from vanilla_transformer.data import load_pairs
from vanilla_transformer.data.form_counts import count_forms
from vanilla_transformer.storage.metrics import read_record, write_metrics
from vanilla_transformer.storage.run_files import METRICS, MODEL_FILES, digests
from vanilla_transformer.storage.saved_model import MODEL
from vanilla_transformer.translation.doubt_threshold import set_doubt_threshold


def main() -> None:
    """Read the command line, and store both in the files of the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="folder of a saved model, which is changed")
    parser.add_argument("train", help="its training pairs")
    parser.add_argument("validation", help="pairs of the same kind that it was not trained on")
    parser.add_argument("--pair", required=True, help="languages, such as en-de")
    options = parser.parse_args()
    source, target = options.pair.split("-")
    sides = {"source_language": source, "target_language": target}
    pairs, held_out = (load_pairs(path, **sides) for path in (options.train, options.validation))
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForSeq2SeqLM.from_pretrained(options.model)
    unique = list(dict.fromkeys(pairs["source"]))
    count_forms(unique, pairs["target"], (source, target)).to_tokenizer(tokenizer)
    usual = set_doubt_threshold(model, tokenizer, held_out["source"])
    tokenizer.save_pretrained(options.model)
    model.generation_config.save_pretrained(options.model)
    metrics = read_record(options.model / METRICS)
    metrics["validation_sureness"] = usual
    if MODEL_FILES in metrics:
        metrics[MODEL_FILES] = digests(options.model, MODEL)
    write_metrics(options.model / METRICS, metrics)
    print(f"How sure the model is of validation sources, by percentile: {usual}")


if __name__ == "__main__":
    main()
