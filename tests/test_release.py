"""What is released: one version everywhere, and workflows that run only what they name."""

import re
from pathlib import Path

import yaml

import vanilla_transformer

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(job):
    """Return the actions that a job uses, itself included if it is a workflow of others."""
    return [step["uses"] for step in (job, *job.get("steps", [])) if "uses" in step]


def test_actions_are_pinned_by_digest():
    """A tag can be moved to other code, the digest of a commit cannot."""
    jobs = [job for path in WORKFLOWS for job in yaml.safe_load(path.read_text())["jobs"].values()]
    actions = [action for job in jobs for action in steps(job)]
    assert len(actions) >= 10
    assert [name for name in actions if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name)] == []
    pinned = dict(action.split("@") for action in actions)
    assert len(pinned) == len(set(actions)), "one action has two versions"


def test_only_a_tag_publishes_and_only_its_job_may_ask_for_a_token():
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}, path.name
        for name, job in workflow["jobs"].items():
            publishes = any("pypi-publish" in action for action in steps(job))
            assert ("permissions" in job) == publishes, name
            if publishes:
                assert job["if"] == "startsWith(github.ref, 'refs/tags/v')"
                assert job["permissions"] == {"id-token": "write"}
                assert job["environment"] == "pypi"
                assert workflow["jobs"][job["needs"]]["needs"] == "build"


def test_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)$", changes, re.MULTILINE)[1]
    assert citation["version"] == newest == vanilla_transformer.__version__
