"""A depth threshold as teams set it: the 99th percentile of quiet minutes, exceeded in 3 of 5 datapoints.

The threshold of a scenario is learned from other seeds: the minutes before the fault, or all of a healthy run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lab.detect.alarms import Alarm, alarms_of
from lab.detect.rules.cloudwatch_alarm import PERIOD_S, firing
from lab.detect.run import Run

PERCENTILE = 99.0


def quiet_minutes(run: Run) -> list[int]:
    """Return the visible messages at each minute without a fault."""
    cause = run.recording.cause_ms()
    return run.visible(run.main, [at for at in run.every(PERIOD_S) if cause is None or at < cause])


def fitted(minutes: Iterable[int]) -> float | None:
    """Return the threshold, None without a quiet minute."""
    found = list(minutes)
    return float(np.percentile(found, PERCENTILE)) if found else None


@dataclass(frozen=True)
class DepthPercentile:
    """Visible messages over the learned threshold."""

    name: str = "depth > p99 of quiet time, 3 of 5"
    source: str = "the usual practice; ApproximateNumberOfMessagesVisible"

    def applies(self, run: Run) -> bool:
        """It applies wherever quiet time was seen: not where the fault exists from the start."""
        return run.quiet_depth is not None

    def alarms(self, run: Run) -> list[Alarm]:
        times = run.every(PERIOD_S)
        fires = firing(run.visible(run.main, times), run.quiet_depth or 0.0, 3, 5)
        return alarms_of(run.main, "depth", times, fires)
