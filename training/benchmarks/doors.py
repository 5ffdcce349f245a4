"""Translate with one model in every runtime that its exports are for, and compare the texts.

    python training/benchmarks/doors.py --sentences 100
    python training/benchmarks/doors.py --run RUN --test-file test.jsonl.gz --pair en-de

Every runtime translates one sentence after another in its own process, greedily and, where it can,
with beam 4 and `generate`'s early stopping. Runtimes that need other packages than ours get an
environment of their own below --environments, which is kept; a runtime that cannot be installed is
left out.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from report import write_results

from vanilla_transformer import pretrained
from vanilla_transformer.data.pair_files import read_pairs
from vanilla_transformer.evaluation import corpus_scores

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results" / "doors.json"
SENTENCES = FOLDER.parent / "pretrained" / "sentences.txt"
ENVIRONMENTS = Path.home() / ".cache" / "vanilla_transformer" / "doors"
MODEL_FILES = ("*.safetensors", "*config.json", "tokenizer*")
MORE_TOKENS = 50  # a translation may be this much longer than its source (Section 6.1)

# Script of every runtime in Python. MODEL becomes the code in `Door.model`, which must define a
# `model` whose `generate` takes these arguments.
PYTHON = f"""
import json, sys, time
import torch
from pathlib import Path
from transformers import AutoTokenizer
torch.set_num_threads(1)
task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
folder, beams = task["folder"], task["beams"]
MODEL
tokenizer = AutoTokenizer.from_pretrained(folder)
search = {{"num_beams": beams, "length_penalty": 1.0}}
search |= {{"early_stopping": True}} if beams > 1 else {{}}
texts, start = [], time.perf_counter()
for sentence in task["sentences"]:
    ids = tokenizer(sentence, return_tensors="pt")
    ids = {{"input_ids": ids["input_ids"], "attention_mask": ids["attention_mask"]}}
    longest = ids["input_ids"].size(1) + {MORE_TOKENS}
    with torch.inference_mode():
        found = model.generate(**ids, **search, max_new_tokens=longest)
    texts += tokenizer.batch_decode(
        found.tolist(), skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
print(json.dumps([texts, time.perf_counter() - start]))
"""
NODE = f"""
import fs from "fs"
import path from "path"
import {{ env, pipeline }} from "@huggingface/transformers"
const task = JSON.parse(fs.readFileSync(process.argv[2], "utf8"))
env.allowRemoteModels = false
env.localModelPath = path.dirname(task.folder)
const translator = await pipeline("translation", path.basename(task.folder), {{ dtype: "fp32" }})
const texts = []
const start = performance.now()
for (const sentence of task.sentences) {{
  const max_new_tokens = translator.tokenizer.encode(sentence).length + {MORE_TOKENS}
  texts.push((await translator(sentence, {{ max_new_tokens }}))[0].translation_text)
}}
console.log(JSON.stringify([texts, (performance.now() - start) / 1000]))
"""
LOADED = "from {} import {} as Model\nmodel = Model.from_pretrained(folder{})"
CTRANSLATE2 = """
import ctranslate2
class Model:
    translator = ctranslate2.Translator(folder, intra_threads=1)
    def generate(self, input_ids, num_beams, length_penalty, max_new_tokens, **others):
        result, = self.translator.translate_batch(
            [tokenizer.convert_ids_to_tokens(input_ids[0])],
            beam_size=num_beams,
            length_penalty=length_penalty,
            min_decoding_length=0,
            max_decoding_length=max_new_tokens,
        )
        return torch.tensor([tokenizer.convert_tokens_to_ids(result.hypotheses[0])])
model = Model()
"""
OURS = LOADED.format("vanilla_transformer", "VanillaTransformerForConditionalGeneration", "")
STOCK = LOADED.format("transformers", "AutoModelForSeq2SeqLM", "") + ".eval()"
TORCH = "torch==2.13.0"  # later ones may come with gigabytes of CUDA
FLOAT32 = {"INFERENCE_PRECISION_HINT": "f32"}
OPTIMUM = (TORCH, "transformers==4.57.6")  # the newest one that Optimum allows
INT8 = "Int8DynamicActivationInt8WeightConfig"


class Door(NamedTuple):
    """A runtime: the format it needs its model in, how Python loads that, and its packages."""

    export: str  # format to export to; empty: the saved model itself
    model: str = ""  # Python code that loads the model; empty: the runtime is Node
    packages: tuple[str, ...] = ()  # to install in a new environment; empty: it uses ours
    exact: bool = True  # whether it computes in float32, and should give PyTorch's texts
    beams: tuple[int, ...] = (1, 4)


# The texts of all runtimes are compared with those of the first one.
DOORS = {
    "PyTorch": Door("", f"{OURS}.eval()"),
    "transformers 5, stock": Door("stock", STOCK),
    "transformers 4, stock": Door("stock", STOCK, (TORCH, "transformers==4.57.6")),
    "ONNX Runtime, Optimum": Door(
        "onnx",
        LOADED.format("optimum.onnxruntime", "ORTModelForSeq2SeqLM", ""),
        (*OPTIMUM, "optimum-onnx[onnxruntime]==0.1.0", "onnxruntime==1.32.0"),
    ),
    "OpenVINO, Optimum": Door(
        "stock",
        # On a CPU with bf16, OpenVINO would compute in it, and some words would differ.
        LOADED.format(
            "optimum.intel", "OVModelForSeq2SeqLM", f", export=True, ov_config={FLOAT32}"
        ),
        (*OPTIMUM, "optimum-intel==2.2.0", "optimum==2.3.0", "openvino==2026.4.1"),
    ),
    "Transformers.js": Door("onnx", packages=("@huggingface/transformers@4.3.1",), beams=(1,)),
    "CTranslate2": Door("ctranslate2", CTRANSLATE2),
    "torchao, int8": Door(
        "",
        f"from torchao.quantization import {INT8}, quantize_\n{OURS}.eval()\n"
        f"quantize_(model, {INT8}())",
        (TORCH, "torchao==0.18.0", str(FOLDER.parents[1])),  # and this package
        exact=False,
    ),
}


def spread(texts: Sequence[str], count: int) -> Sequence[str]:
    """Return at most `count` texts, evenly spaced, because a file may be sorted by length."""
    return texts[:: -(-len(texts) // count)]


def environment(name: str, door: Door, folder: Path) -> tuple[list[str], Path]:
    """Prepare the folder of a runtime; return the program that runs its script, and the script."""
    own = folder / "-".join(name.lower().replace(",", "").split())
    own.mkdir(parents=True, exist_ok=True)
    script = own / ("door.py" if door.model else "door.mjs")
    text = PYTHON.replace("MODEL", door.model) if door.model else NODE
    script.write_text(text, encoding="utf-8")
    program = [str(own / "bin" / "python")] if door.model else ["node"]
    if not door.packages:
        return [sys.executable], script
    if not (own / "complete").is_file():
        if door.model:
            _run([sys.executable, "-m", "venv", str(own)])
            _run([*program, "-m", "pip", "install", "--quiet", *door.packages])
            # Some packages bring a torchvision for CUDA; transformers fails with it on CPU torch.
            _run([*program, "-m", "pip", "uninstall", "--quiet", "--yes", "torchvision"])
        else:
            _run(["npm", "install", "--ignore-scripts", "--prefix", str(own), *door.packages])
        (own / "complete").touch()
    return program, script


def _run(command: list[str]) -> str:
    """Return what a command prints, or raise OSError with the last line of its errors."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError((done.stderr.strip().splitlines() or [f"{command[0]} fails"])[-1])
    return done.stdout


def measure(run: Path, sentences: Sequence[str], environments: Path) -> tuple[dict, dict, dict]:
    """Translate the sentences in every runtime, with each number of beams that it supports.

    Returns:
        Texts and seconds by runtime and beams; MB of each model; why a runtime is left out.
    """
    answers: dict[str, dict[int, list]] = {}
    sizes, missing = {}, {}
    with tempfile.TemporaryDirectory() as temporary:
        task = Path(temporary, "task.json")
        for name, door in DOORS.items():
            folder = Path(temporary, door.export) if door.export else run.resolve()
            try:
                if not folder.exists():
                    export = [sys.executable, "-m", "vanilla_transformer.cli", "export"]
                    _run([*export, door.export, str(run), str(folder)])
                program, script = environment(name, door, environments)
                found = {}
                for beams in door.beams:
                    content = {"folder": str(folder), "beams": beams, "sentences": sentences}
                    task.write_text(json.dumps(content), encoding="utf-8")
                    printed = _run([*program, str(script), str(task)])
                    found[beams] = json.loads(printed.splitlines()[-1])
            except OSError as error:
                missing[name] = str(error)
                continue
            answers[name] = found
            patterns = ("**/*",) if door.export else MODEL_FILES
            files = {path for pattern in patterns for path in folder.glob(pattern)}
            sizes[name] = sum(path.stat().st_size for path in files if path.is_file()) / 1e6
    return answers, sizes, missing


def share_alike(answers: dict[str, dict[int, list]], name: str, beams: int) -> float | None:
    """Return the percentage of a runtime's texts that equal PyTorch's; None if not measured."""
    if beams not in answers[name]:
        return None
    first, texts = (answers[door][beams][0] for door in ("PyTorch", name))
    return 100 * sum(a == b for a, b in zip(first, texts, strict=True)) / len(first)


def table(
    answers: dict[str, dict[int, list]],
    sizes: dict[str, float],
    references: Sequence[str] | None,
    target: str,
) -> dict[str, object]:
    """Return a table with one row per runtime."""
    rows = []
    for name, found in answers.items():
        texts, seconds = found[1]
        shares = (share_alike(answers, name, beams) for beams in (1, 4))
        row = [name, round(len(texts) / seconds, 1), round(sizes[name], 1)]
        row += ["-" if share is None else f"{share:.1f} %" for share in shares]
        if references:
            row.append(round(corpus_scores(texts, references, target_language=target)["bleu"], 2))
        rows.append(row)
    columns = ["Contender", "sentences/s", "MB", "greedy: alike", "beam 4: alike"]
    return {"columns": columns + ["BLEU"] * bool(references), "rows": rows}


def main() -> None:
    """Compare the translations of all runtimes, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    run = pretrained("everyday-en-de")
    parser.add_argument("--run", type=Path, default=run, help="model (default: everyday-en-de)")
    parser.add_argument("--test-file", help="pairs (default: a hundred English sentences)")
    parser.add_argument("--pair", default="en-de", help="such as en-de")
    parser.add_argument("--sentences", type=int, default=1000, help="number to use at most")
    parser.add_argument("--environments", type=Path, default=ENVIRONMENTS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    source, target = options.pair.split("-")
    sentences, references = SENTENCES.read_text(encoding="utf-8").splitlines(), None
    if options.test_file:
        pairs = read_pairs(options.test_file, source_language=source, target_language=target)
        sentences, references = ([pair[side] for pair in pairs] for side in (0, 1))
        references = spread(references, options.sentences)
    sentences = spread(sentences, options.sentences)
    answers, sizes, missing = measure(options.run, sentences, options.environments)
    write_results(
        options.output,
        "One model in every runtime",
        data=f"{Path(options.test_file or SENTENCES).name}, {len(sentences)} sentences",
        settings={"threads": 1},
        tables=[table(answers, sizes, references, target)],
        left_out=missing,
    )


if __name__ == "__main__":
    main()
