"""Optional packages that some tasks need, and how to install them."""

from importlib.util import find_spec

TRAIN = (
    *("accelerate", "babel", "datasets", "ijson", "lxml", "matplotlib", "py3langid", "sacrebleu"),
    *("xxhash", "yaml"),
)
# Each package's extra, as in pyproject.toml.
EXTRAS = {
    **dict.fromkeys((*TRAIN, "evaluate", "jiwer"), "train"),
    **dict.fromkeys(("ctranslate2", "onnx", "onnx_ir", "onnxruntime", "onnxscript"), "export"),
    **dict.fromkeys(("sacremoses", "sentencepiece"), "import"),
    **dict.fromkeys(("fastapi", "uvicorn", "python_multipart"), "serve"),
    "peft": "lora",
}


def how_to_install(package: str) -> str | None:
    """Return how to install a missing optional package; None for any other package."""
    if package not in EXTRAS:
        return None
    return f"in the clone of vanilla_transformer, pip install '.[{EXTRAS[package]}]'"


def require(task: str, *packages: str) -> None:
    """Check that optional packages are installed, without importing them.

    Args:
        task: Task that needs the packages, as the beginning of a sentence.
        packages: Names of the packages.

    Raises:
        ImportError: One is missing; the message says how to install it.
    """
    for package in packages:
        if find_spec(package) is None:
            raise ImportError(f"{task} needs {package}; {how_to_install(package)}", name=package)
