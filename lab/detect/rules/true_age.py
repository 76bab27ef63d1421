"""A static threshold on the true age of the oldest unsettled message: over 5 minutes at a scrape every 15 s.

This is what a Prometheus rule `queuewatch_oldest_message_age_seconds{scope="all"} > 300` would give with full telemetry.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.detect.alarms import Alarm, alarms_of
from lab.detect.run import Run

SCRAPE_S = 15.0


@dataclass(frozen=True)
class TrueAge:
    """`limit_s` is the threshold."""

    limit_s: float = 300.0
    name: str = "true age > 5 min"
    source: str = 'queuewatch_oldest_message_age_seconds{scope="all"}'

    def applies(self, run: Run) -> bool:
        """Everywhere."""
        return bool(run.recording.settings)

    def alarms(self, run: Run) -> list[Alarm]:
        times = run.every(SCRAPE_S)
        return alarms_of(run.main, "age", times, [age > self.limit_s for age in run.oldest_age_s(run.main, times)])
