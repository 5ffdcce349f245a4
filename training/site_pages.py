"""A hook of MkDocs that `make docs` runs: it adds the page of all public Python docstrings."""

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_PACKAGES = ("data", "train", "translation", "evaluation", "visualization", "publish", "fast")
_NAMES = ("vanilla_transformer", *(f"vanilla_transformer.{package}" for package in _PACKAGES))
_PYTHON = "# Python\n\n" + "\n".join(f"::: {name}" for name in _NAMES)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page with the docstrings."""
    files.append(File.generated(config, "python.md", content=_PYTHON))
    return files
