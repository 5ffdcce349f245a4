"""One model gives the same texts in every runtime that its exports are for: `make test-doors`."""

import os
from pathlib import Path

import doors
import pytest

from vanilla_transformer import pretrained

ROOT = Path(__file__).parents[2]
PLACE = os.environ.get("VANILLA_DOORS")  # folder for the environments, which is kept
TEST_FILE = ROOT.parent / "shared" / "data" / "tatoeba_deen" / "test.jsonl.gz"


@pytest.fixture(scope="module", params=["everyday-en-de", "everyday-en-zh"])
def measured(request):
    """Translate with a model that comes with the package, or with the run in VANILLA_DOORS_RUN.

    The first is post-norm and is exported as a MarianMTModel, the second is pre-norm, as Pegasus.
    """
    if not PLACE:
        pytest.skip("make test-doors runs this: it installs the runtimes")
    run = os.environ.get("VANILLA_DOORS_RUN") or pretrained(request.param)
    if TEST_FILE.is_file():
        pairs = doors.read_pairs(TEST_FILE, source_language="en", target_language="de")
        sentences = [source for source, _ in pairs]
    else:
        sentences = doors.SENTENCES.read_text(encoding="utf-8").splitlines()
    count = int(os.environ.get("VANILLA_DOORS_SENTENCES", "1000"))
    return doors.measure(Path(run), doors.spread(sentences, count), Path(PLACE))


@pytest.mark.parametrize("name", [name for name in doors.DOORS if name != "PyTorch"])
@pytest.mark.parametrize("beams", [1, 4])
def test_runtime_gives_the_same_texts(measured, name, beams):
    answers, _, missing = measured
    if name in missing:
        pytest.skip(missing[name])
    share = doors.share_alike(answers, name, beams)
    if share is None:
        pytest.skip("it has no beam search")
    assert share >= (99 if doors.DOORS[name].exact else 50)
