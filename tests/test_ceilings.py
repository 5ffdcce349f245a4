"""The size of the project: no count of `count_lines.py` exceeds its ceiling."""

from pathlib import Path

import count_lines

ROOT = Path(__file__).parents[1]


def test_no_count_exceeds_its_ceiling():
    counts, ceilings = count_lines.counts(ROOT), count_lines.ceilings(ROOT)
    assert counts.keys() == ceilings.keys()
    over = {name: count for name, count in counts.items() if count > ceilings[name]}
    assert not over, f"{over}: take lines out, or raise the ceiling in a commit that says why"


def test_contributing_prints_the_ceilings():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for name, ceiling in count_lines.ceilings(ROOT).items():
        assert f"`{name}` | {ceiling:,} |" in page, name
