"""The pages for users as one text, so that tests do not depend on which page says what."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "training/own_pairs.md",
    "training/README.md",
    "training/benchmarks/README.md",
    "model_cards/README.md",
    "vanilla_transformer/README.md",
    "tests/README.md",
)
README = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in PAGES)
