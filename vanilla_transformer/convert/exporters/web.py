"""Export to a folder of static files: a page that translates in the visitor's own browser.

The page is the folder `page` beside this file. Its model is an ONNX export with weights in half
precision, which halves what a visitor downloads; computation is in float32.
"""

from dataclasses import asdict
from pathlib import Path

import torch

from ...batch_translation import DOUBTFUL_BELOW
from ...errors import RequestError
from ...storage.atomic import copy_files, write_json
from ...storage.metrics import example_sources, read_metrics
from ...storage.reading import StrPath, read_json
from ...storage.run_files import METRICS, recipe_values
from ...storage.saved_model import TOKENIZER_SETTINGS, load_saved_tokenizer
from ...target_tokenizer import TARGET_TOKENIZER
from ...written_forms import WRITTEN_FORMS, written_forms
from .onnx import write_onnx
from .source import load_source, write_export


def export_web(model_dir: StrPath, output_dir: StrPath) -> Path:
    """Write a web page that runs a saved model in any browser with WebAssembly.

    `npm install` in the folder fetches Transformers.js, which runs the model; from then on the page
    sends no request to other servers.

    Arguments and result are as for `write_export`.

    Raises:
        ValueError: As for `export_onnx`, or the model has a tokenizer for each side; the export is
            compared with the model whose weights are rounded to half precision.
    """
    return write_export(model_dir, output_dir, "a page", _write)


def _write(source: Path, folder: Path) -> str:
    model = load_source(source, dtype=torch.float32)
    settings = read_json(source / TOKENIZER_SETTINGS)
    if TARGET_TOKENIZER in settings or not (source / "tokenizer.json").is_file():
        raise RequestError(f"The page needs one tokenizer.json for both sides; {source} has none.")
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.half())
    difference = write_onnx(model, source, folder / "model", half=True)
    copy_files(Path(__file__).with_name("page"), folder)
    sides = recipe_values(source)
    task = {
        "source": sides.get("source_language"),
        "target": sides.get("target_language"),
        "examples": example_sources(read_metrics(source / METRICS)),
        WRITTEN_FORMS: asdict(written_forms(load_saved_tokenizer(source))),
        DOUBTFUL_BELOW: getattr(model.generation_config, DOUBTFUL_BELOW, None),
    }
    write_json(folder / "task.json", task)
    more = "Run `npm install` there, then `python -m http.server`"
    return f"{difference} from those with rounded weights. {more}"
