"""After a fault at any point of a run, totals, firing signals, signal log and quarantine equal those of a run without one."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.points import problem, undisturbed

TRIED = 60
"""The number of points in a normal test run, spread evenly over all of them."""


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_a_fault_at_any_point_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The test covers some of the points; CRASH_POINTS=all (`make crash`) covers all of them."""
    run = undisturbed(tmp_path)
    points = list(run.points())
    if os.environ.get("CRASH_POINTS") != "all":
        points = points[:: max(1, len(points) // TRIED)]
    found = {point: wrong for point in points if (wrong := problem(run, point)) is not None}
    with capsys.disabled():
        total = sum(1 for _ in run.points())
        by_mode = ", ".join(f"{mode} {count}" for mode, count in sorted(Counter(point.mode for point in points).items()))
        sys.stdout.write(
            f"\n{len(points)} of {total} crash points tried ({by_mode}), {sum(map(len, run.operations))} operations\n"
        )
    assert not found, "\n".join(f"{point}: {wrong}" for point, wrong in found.items())
    assert total > 1_000
