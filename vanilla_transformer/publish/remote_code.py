"""Copy the model's own code beside its weights, for machines without this package.

transformers loads such code with `trust_remote_code=True`: `auto_map` in config.json names the
classes, `custom_pipelines` the pipeline, and the files lie beside it in one folder. A checkpoint
has no code unless you ask for it.
"""

import shutil
from pathlib import Path

from transformers.dynamic_module_utils import get_relative_import_files

from .. import modeling_vanilla_transformer as modeling
from ..configuration_vanilla_transformer import VanillaTransformerConfig
from ..pipeline import TASK, VanillaTransformerTranslationPipeline
from ..storage.atomic import write_json
from ..storage.reading import read_json
from ..storage.saved_model import CONFIG

AUTO_CLASSES = {
    "AutoConfig": VanillaTransformerConfig,
    "AutoModel": modeling.VanillaTransformerModel,
    "AutoModelForSeq2SeqLM": modeling.VanillaTransformerForConditionalGeneration,
}
# Appended to the copy of the configuration's module. When transformers saves a model with copied
# code, it copies all files that import statements name, whether or not these are executed.
_IMPORT_ALL = """

if False:  # makes transformers copy the pipeline, and so all of the code, with each saved model
    from .pipeline import VanillaTransformerTranslationPipeline
"""


def code_files() -> list[Path]:
    """Return the code files that the pipeline needs, found by transformers' search for imports.

    Returns:
        Sorted paths: the pipeline's module and all modules that it imports from this package, at
        any depth. They include the modules of `AUTO_CLASSES`.
    """
    pipeline = Path(__file__).parents[1] / f"{_module(VanillaTransformerTranslationPipeline)}.py"
    return sorted({pipeline, *map(Path, get_relative_import_files(pipeline))})


def embed_code(directory: Path) -> None:
    """Copy the code into a model directory and refer to it in config.json."""
    for path in code_files():
        shutil.copyfile(path, directory / path.name)
    configuration = directory / f"{_module(VanillaTransformerConfig)}.py"
    with configuration.open("a", encoding="utf-8", newline="\n") as file:
        file.write(_IMPORT_ALL)
    config_file = directory / CONFIG
    config = read_json(config_file)
    config["auto_map"] = {name: _reference(cls) for name, cls in AUTO_CLASSES.items()}
    pipeline = _reference(VanillaTransformerTranslationPipeline)
    task = {"impl": pipeline, "pt": ["AutoModelForSeq2SeqLM"], "type": "text"}
    config["custom_pipelines"] = {TASK: task}
    write_json(config_file, config, sort_keys=True)


def _module(cls: type) -> str:
    return cls.__module__.rpartition(".")[2]


def _reference(cls: type) -> str:
    return f"{_module(cls)}.{cls.__name__}"
