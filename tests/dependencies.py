"""Print what pyproject.toml depends on, extras included, without bounds; `make test-newest`."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))[
    "project"
]
groups = [project["dependencies"], *project["optional-dependencies"].values()]
names = {re.match(r"[\w-]+", requirement)[0] for group in groups for requirement in group}
print(*sorted(names - {project["name"], "torch"}))  # the Makefile chooses torch's build
