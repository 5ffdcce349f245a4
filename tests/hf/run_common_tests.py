"""Run the common model tests of transformers on MarianMTModel and on our model, and compare.

    HF_TESTS_ROOT=~/transformers python tests/hf/run_common_tests.py

HF_TESTS_ROOT is a checkout (or unpacked source distribution) of the transformers release that is
installed; its tests also need `pip install parameterized`. The exit status is 1 if there is a test
that Marian passes and ours does not, and 2 if the checkout lacks a class of tests (the source
distribution has no generation tests). None of its code is in this repository.
"""

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import transformers

HERE = Path(__file__).resolve().parent
CLASSES = ("MarianTest", "VanillaTransformerTest")
SEVERITY = ("passed", "skipped", "failed")


def checkout():
    """Return HF_TESTS_ROOT; exit unless it is a checkout of the installed version."""
    root = os.environ.get("HF_TESTS_ROOT")
    if not root or not (Path(root) / "tests" / "test_modeling_common.py").is_file():
        sys.exit(
            f"HF_TESTS_ROOT={root or ''} holds no tests/test_modeling_common.py; set it to a "
            f"checkout of transformers v{transformers.__version__}."
        )
    text = (Path(root) / "src" / "transformers" / "__init__.py").read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "(.+)"', text, re.MULTILINE).group(1)
    if version != transformers.__version__:
        sys.exit(
            f"HF_TESTS_ROOT={root} is transformers {version}, but {transformers.__version__} is "
            f"installed; check out v{transformers.__version__}."
        )
    if importlib.util.find_spec("parameterized") is None:
        sys.exit("The tests of transformers need one more package: pip install parameterized")
    return Path(root).resolve()


def run(root, class_name, directory):
    """Run the tests of one class; return outcomes by name, missing test classes, and output."""
    results, missing = directory / f"{class_name}.xml", directory / f"{class_name}.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"]
    # An empty configuration, so that the options of this repository's tests do not apply.
    command += ["-c", str(directory / "pytest.ini"), "--rootdir", str(directory)]
    command += ["--tb=short", f"--junitxml={results}", f"{HERE / 'common_cases.py'}::{class_name}"]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH")))),
        "COMMON_CASES_MISSING": str(missing),
        "HF_HUB_OFFLINE": "1",
    }
    finished = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    if finished.returncode not in (0, 1):  # 1: some test failed
        raise RuntimeError(f"pytest did not run:\n{finished.stdout}\n{finished.stderr}")
    return outcomes(results), json.loads(missing.read_text()), finished.stdout


def outcomes(path):
    """Return outcome and reason of each test; the worst one if subtests report several."""
    found = {}
    for case in ElementTree.parse(path).iter("testcase"):
        outcome, reason = "passed", ""
        for child in case:
            if child.tag in ("failure", "error", "skipped"):
                outcome = "skipped" if child.tag == "skipped" else "failed"
                reason = (child.get("message") or "").partition("\n")[0]
        name = case.get("name")
        before = found.get(name, ("passed", ""))
        found[name] = max(before, (outcome, reason), key=lambda pair: SEVERITY.index(pair[0]))
    return found


def report_text(marian, ours, missing, worse):
    """Return the comparison as Markdown."""
    lines = ["# Common model tests of transformers", ""]
    lines += [f"transformers {transformers.__version__}, Python {sys.version.split()[0]}", ""]
    for name, results in (("MarianMTModel", marian), ("ours", ours)):
        counts = Counter(outcome for outcome, _ in results.values())
        lines.append(f"- {name}: " + ", ".join(f"{counts[word]} {word}" for word in SEVERITY))
    lines.append(f"- passed by Marian and not by ours: {len(worse)}")
    if missing:
        lines.append(f"- INCOMPLETE, the checkout lacks the tests of {', '.join(missing)}")
    lines += ["", "| test | Marian | ours | why not passed |", "|---|---|---|---|"]
    for name in sorted(marian.keys() | ours.keys()):
        theirs, mine = marian.get(name, ("absent", "")), ours.get(name, ("absent", ""))
        reason = (mine[1] or theirs[1]).replace("|", "\\|")[:120]
        mark = "**" if name in worse else ""
        lines.append(f"| {name} | {theirs[0]} | {mark}{mine[0]}{mark} | {reason} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--report", type=Path, default=Path("build/hf-common-tests.md"))
    report = parser.parse_args().report.resolve()
    root = checkout()
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "pytest.ini").write_text("[pytest]\n")
        with ThreadPoolExecutor() as pool:
            runs = [pool.submit(run, root, name, Path(directory)) for name in CLASSES]
        marian, missing, _ = runs[0].result()
        ours, _, output = runs[1].result()
    passed = {name for name, (outcome, _) in marian.items() if outcome == "passed"}
    worse = sorted(name for name in passed if ours.get(name, ("absent",))[0] != "passed")
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(report_text(marian, ours, missing, worse), encoding="utf-8")
    print(report.read_text(encoding="utf-8").partition("\n\n|")[0])
    print(f"The list is in {report}.")
    for name in worse:
        print(f"FAIL {name}: {' '.join(ours.get(name, ('absent', '')))}")
    if worse:
        print(output[-20_000:])
    if not passed:
        sys.exit("Marian passed nothing: the tests did not run.")
    return 1 if worse else 2 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
