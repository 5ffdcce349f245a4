"""Print what pyproject.toml depends on, extras included, without bounds; `make test-newest`."""

import re
import tomllib
from pathlib import Path

file = Path(__file__).parents[1] / "pyproject.toml"
project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
groups = [project["dependencies"], *project["optional-dependencies"].values()]
names = {re.match(r"[\w-]+", requirement)[0] for group in groups for requirement in group}
print(*sorted(names - {project["name"], "torch"}))  # the Makefile chooses torch's build
