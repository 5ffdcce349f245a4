"""LoRA adapters: load a model that was saved as an adapter by merging it with its base model."""

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import TypedDict

import torch

from ..errors import RequestError, quoted
from .extras import require
from .reading import checked, own_file, read_json
from .run_files import METRICS, TRAINER_STATE
from .saved_model import (
    ADAPTER,
    ADAPTER_WEIGHTS,
    TOKENIZER_SETTINGS,
    copy_tokenizer,
    load_saved_model,
    model_folder,
    named_errors,
    read_tensors,
)


class _Adapter(TypedDict, total=False):
    """The fields of adapter_config.json that this package reads itself."""

    peft_type: str
    base_model_name_or_path: str | None
    revision: str | None


def merged_adapter(folder: Path) -> Path:
    """Merge a LoRA adapter with the model that it was trained on.

    Args:
        folder: Folder with adapter_config.json and adapter_model.safetensors. It may have a
            tokenizer; otherwise the base model's is used.

    Returns:
        A folder with the merged model in float32 and the tokenizer, for as long as this process
        lives.

    Raises:
        ValueError: It is not a LoRA adapter, is damaged, or does not fit the base model.
        ImportError: peft is not installed.
    """
    require("a LoRA adapter", "peft")
    from peft import PeftModel, get_peft_model_state_dict

    settings = checked(read_json(own_file(folder / ADAPTER)), _Adapter, folder / ADAPTER)
    name, kind = settings.get("base_model_name_or_path"), settings.get("peft_type")
    if not name or kind != "LORA":
        what = f"peft_type {quoted(str(kind))} and base_model_name_or_path {quoted(str(name))}"
        raise RequestError(f"{folder / ADAPTER} has {what}; allowed: LORA and a base model.")
    base = model_folder(name, settings.get("revision"))
    model = load_saved_model(base, dtype=torch.float32)
    own = {key for key, _ in read_tensors(own_file(folder / ADAPTER_WEIGHTS))}
    with named_errors(f"{folder} does not fit its base model {base}"):
        adapted = PeftModel.from_pretrained(model, str(folder))
        if own != get_peft_model_state_dict(adapted).keys():
            raise RequestError(f"{folder} is not an adapter of the model {base}.")
        merged = adapted.merge_and_unload()
    target = Path(tempfile.mkdtemp(prefix="vanilla-transformer-"))
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    merged.save_pretrained(target)
    copy_tokenizer(folder if (folder / TOKENIZER_SETTINGS).is_file() else base, target)
    for name in (METRICS, TRAINER_STATE):  # for its card
        if (folder / name).is_file():
            shutil.copyfile(own_file(folder / name), target / name)
    return target
