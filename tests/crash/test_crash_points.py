"""After a fault at any point of a run, totals, firing signals, signal log and quarantine equal those of a run without one."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.points import undisturbed
from tests.crash.trial import tried

TRIED = 80
"""The number of points in a normal test run, spread evenly over all of them."""


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_a_fault_at_any_point_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The test covers some of the points; CRASH_POINTS=all (`make crash`) covers all of them."""
    run = undisturbed(tmp_path)
    points, processes = list(run.points()), os.cpu_count() or 1
    total = len(points)
    if os.environ.get("CRASH_POINTS") != "all":
        # One process, because the other half of the test suite runs at the same time.
        points, processes = [points[n * total // TRIED] for n in range(TRIED)], 1
    outcomes = tried(run, points, processes)
    with capsys.disabled():
        by_mode = ", ".join(f"{mode} {count}" for mode, count in sorted(Counter(point.mode for point in points).items()))
        restarts = sum(outcome.restarted for outcome in outcomes)
        sys.stdout.write(
            f"\n{len(points)} of {total} crash points tried ({by_mode}), {sum(map(len, run.operations))} operations, "
            f"{restarts} restarts\n"
        )
    found = {outcome.point: outcome.wrong for outcome in outcomes if outcome.wrong is not None}
    assert not found, "\n".join(f"{point}: {wrong}" for point, wrong in found.items())
    assert total > 1_000
