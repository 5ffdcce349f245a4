"""Load a model directory and translate with it, in a process without access to the training run.

This file is run by path: `python -P clean_process.py REQUEST`. It imports nothing from this
package; the request says whether the model may import the package.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

# This package and its extras, which a machine with only torch and transformers lacks.
_ABSENT = (
    *("vanilla_transformer", "accelerate", "babel", "datasets", "evaluate", "jiwer"),
    *("matplotlib", "peft", "sacrebleu", "sacremoses", "sentencepiece"),
)


def main(request_file: str) -> None:
    """Load a model, compute logits and translations as requested, and write them to a file.

    The request, JSON: `folder`; `package`, the directory to import the package from, or null to
    hide it; `trust_remote_code`; `needs`, a package for the tokenizer, or null; `texts` to
    translate; `answer`, the file to write.
    """
    request = json.loads(Path(request_file).read_text(encoding="utf-8"))
    if request["package"] is None:
        absent: dict[str, Any] = dict.fromkeys({*_ABSENT} - {request["needs"]})
        sys.modules.update(absent)  # importing any of them now fails
    else:
        sys.path.insert(0, request["package"])
        importlib.import_module("vanilla_transformer")
    answer = _load_and_translate(request)
    Path(request["answer"]).write_text(json.dumps(answer), encoding="utf-8")


def _load_and_translate(request: dict[str, Any]) -> dict[str, object]:
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

    folder, texts = request["folder"], request["texts"]
    options = {"trust_remote_code": request["trust_remote_code"]}
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    config = AutoConfig.from_pretrained(folder, **options)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, **options)
    inputs = tokenizer(texts[0], return_tensors="pt")
    # Any ids of the target's vocabulary will do. Marian's config has these two fields of sizes too.
    size = getattr(config, "decoder_vocab_size", None) or config.vocab_size
    with torch.inference_mode():
        logits = model.eval()(**inputs, decoder_input_ids=inputs["input_ids"] % size).logits
    if request["trust_remote_code"] or request["package"]:
        AutoModel.from_pretrained(folder, **options)
        # On the CPU, like the translations to compare these with.
        translator = pipeline("translate", model=folder, device="cpu", **options)  # type: ignore[call-overload]  # a task of ours
        translations = [translator(text)[0]["translation_text"] for text in texts]
    else:
        translations = []
        for text in texts:
            inputs = tokenizer(text, return_tensors="pt")
            output = model.generate(**inputs, max_new_tokens=inputs["input_ids"].size(1) + 50)
            translations.append(tokenizer.decode(output[0], skip_special_tokens=True))
    return {"translations": translations, "logits": logits[0, -1].tolist()}


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except Exception as error:  # one line, for the caller's error
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")
