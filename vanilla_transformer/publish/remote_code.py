"""Copy the model's own code beside its weights, for machines without this package.

transformers loads such code with `trust_remote_code=True`: `auto_map` in config.json names the
classes, `custom_pipelines` the pipeline, and the files lie beside it in one folder. A checkpoint
has no code unless you ask for it.
"""

import shutil
from pathlib import Path

from transformers.dynamic_module_utils import get_relative_import_files

from ..configuration_vanilla_transformer import VanillaTransformerConfig
from ..modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
)
from ..pipeline import TASK, VanillaTransformerTranslationPipeline
from ..storage.atomic import write_json
from ..storage.reading import read_json

AUTO_CLASSES = {
    "AutoConfig": VanillaTransformerConfig,
    "AutoModel": VanillaTransformerModel,
    "AutoModelForSeq2SeqLM": VanillaTransformerForConditionalGeneration,
}


def code_files() -> list[Path]:
    """Return the files that the classes above and the pipeline need, by the loader's own rule.

    Returns:
        Sorted paths: their modules and all that these import from this package, at any depth.
    """
    package = Path(__file__).parents[1]
    classes = [*AUTO_CLASSES.values(), VanillaTransformerTranslationPipeline]
    modules = {package / f"{_module(cls)}.py" for cls in classes}
    found = {Path(path) for module in modules for path in get_relative_import_files(module)}
    return sorted(modules | found)


def embed_code(directory: Path) -> None:
    """Copy the code into a model directory and name it in its config.json."""
    for path in code_files():
        shutil.copyfile(path, directory / path.name)
    config_file = directory / "config.json"
    config = read_json(config_file)
    config["auto_map"] = {name: _reference(cls) for name, cls in AUTO_CLASSES.items()}
    config["custom_pipelines"] = {
        TASK: {
            "impl": _reference(VanillaTransformerTranslationPipeline),
            "pt": ["AutoModelForSeq2SeqLM"],
            "type": "text",
        }
    }
    write_json(config_file, config, sort_keys=True)


def _module(cls: type) -> str:
    return cls.__module__.rpartition(".")[2]


def _reference(cls: type) -> str:
    return f"{_module(cls)}.{cls.__name__}"
