"""The healthy week: its traffic, and no false QueueFailing or QueueLagging."""

from __future__ import annotations

import pytest

from lab.simulation import T0_MS
from lab.week import calendar_week, run_week

pytestmark = pytest.mark.simulation

HOUR_MS = 3_600_000


def test_the_week_has_deploys_bursts_and_a_nightly_batch() -> None:
    """Times are hours after Monday, eight o'clock."""
    deliveries = calendar_week("standard", 1, 19).history.of("orders").deliveries
    received = [d.at - T0_MS for d in deliveries]

    def between(from_h: float, to_h: float) -> int:
        return sum(from_h * HOUR_MS <= at < to_h * HOUR_MS for at in received)

    assert between(1.5, 1.55) > 100, "a burst at half past nine"
    assert between(2.5 + 1 / 3600, 2.5 + 59 / 3600) == 0, "a deploy at half past ten: nobody is there for a minute"
    assert between(8, 8 + 60 / 3600) > 0, "a rolling deploy at four: one of two is there"
    assert between(18, 18.5) > 1_500, "a batch at two in the morning"
    assert between(12, 18) < between(2, 8) / 2, "the night is quiet"


@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_the_first_hours_of_the_week_are_quiet(kind: str) -> None:
    """A burst and a deploy cause neither QueueFailing, QueueLagging nor a critical signal."""
    row = run_week(kind, 1, hours=2.7)
    assert (row["broken"], row["queue_wide"], row["criticals"]) == ([], 0, {})
