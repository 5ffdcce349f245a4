"""Run the common model tests of transformers on MarianMTModel and on our model, and compare.

    HF_TESTS_ROOT=~/transformers python tests/hf/run_common_tests.py

HF_TESTS_ROOT is a checkout of the transformers release that is installed (its source distribution
lacks some of the tests), which also need `pip install parameterized`. The exit status is 1 if there
is a test that Marian passes and ours does not. None of its code is in this repository.
"""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEVERITY = ("passed", "skipped", "failed")


def run(root, class_name, directory):
    """Run the tests of one class; return outcomes by name, and the output."""
    results = directory / f"{class_name}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"]
    # An empty configuration, so that the options of this repository's tests do not apply.
    command += ["-c", str(directory / "pytest.ini"), "--rootdir", str(directory)]
    command += ["--tb=short", f"--junitxml={results}", f"{HERE / 'common_cases.py'}::{class_name}"]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH")))),
        "HF_HUB_OFFLINE": "1",
    }
    finished = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    if finished.returncode not in (0, 1):  # 1: some test failed
        raise SystemExit(f"pytest did not run:\n{finished.stdout}\n{finished.stderr}")
    return outcomes(results), finished.stdout


def outcomes(path):
    """Return the outcome of each test; the worst one if subtests report several."""
    found = {}
    for case in ElementTree.parse(path).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "passed"
        outcome = "skipped" if outcome == "passed" and "skipped" in kinds else outcome
        before = found.get(case.get("name"), "passed")
        found[case.get("name")] = max(before, outcome, key=SEVERITY.index)
    return found


def main():
    root = Path(os.environ.get("HF_TESTS_ROOT") or sys.exit("Set HF_TESTS_ROOT.")).resolve()
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "pytest.ini").write_text("[pytest]\n")
        with ThreadPoolExecutor() as pool:
            classes = ("MarianTest", "VanillaTransformerTest")
            runs = [pool.submit(run, root, name, Path(directory)) for name in classes]
        marian, _ = runs[0].result()
        ours, output = runs[1].result()
    for name, results in (("MarianMTModel", marian), ("ours", ours)):
        counts = Counter(results.values())
        print(f"{name}: " + ", ".join(f"{counts[word]} {word}" for word in SEVERITY))
    passed = {name for name, outcome in marian.items() if outcome == "passed"}
    worse = sorted(name for name in passed if ours.get(name) != "passed")
    if worse:
        print(output[-20_000:])
    for name in worse:
        print(f"FAIL {name}: {ours.get(name, 'absent')}")
    if not passed:
        sys.exit("Marian passed nothing: the tests did not run.")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
