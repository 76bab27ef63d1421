"""The numbers with which QueueFailing begins: how much is lost, and since when deliveries fail."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.judge.findings.signals import SignalChange
from tests.core.driving import T0, event
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]


def queue(**attributes: Any) -> dict[str, Any]:
    return event(
        "queue_state", 0, attributes={"kind": "standard", "visibility_timeout_s": 30, "max_receive_count": 10} | attributes
    )


def delivery(at_s: float, *, fails: bool, lost: bool = False) -> Events:
    """Return a message that is received at once and, a second later, deleted or given back, perhaps for good."""
    at_ms, about = int(at_s * 1000), {"message_id": f"m{at_s}"}
    events = [event("sent", at_ms, **about), event("received", at_ms + 1, receive_count=1, consumer="c", **about)]
    events.append(event("released" if fails else "deleted", at_ms + 1_000, consumer="c", **about))
    return [*events, event("dead_lettered", at_ms + 1_001, to_queue="dead", **about)] if lost else events


def first(events: Events, until_s: int) -> SignalChange:
    """Return how QueueFailing began."""
    found = judged(in_steps(sorted(events, key=lambda e: e["at"]), 1, until_s))
    return next(c for c in found.changes if c.finding.key.signal == "QueueFailing")


def test_the_rate_of_lost_messages_is_that_since_the_failures_began() -> None:
    """One a second is 3,600 an hour, also forty seconds after four minutes in which nothing was lost."""
    events = [queue(max_receive_count=1, dead_letter_queue="dead")]
    for s in range(300):
        events += delivery(s, fails=s >= 240, lost=s >= 240)
    change = first(events, 300)
    assert change.at_ms - T0 < 290_000
    assert 3_000 <= change.finding.evidence["lost_or_dead_lettered_per_hour"] <= 3_900


MIXED = {n for n in range(60) if n < 2 or n % 2 == 0}
OUTAGE_FROM = 20


@pytest.mark.parametrize(
    ("fails", "from_s", "to_s"),
    [
        (MIXED, 0, 10),
        (set(range(OUTAGE_FROM, 60)), 5 * OUTAGE_FROM - 5, 5 * OUTAGE_FROM + 5),
        ({3, *range(OUTAGE_FROM, 60)}, 5 * OUTAGE_FROM - 5, 5 * OUTAGE_FROM + 5),
        ({3, *range(OUTAGE_FROM, 60)} - {30, 40}, 5 * OUTAGE_FROM - 5, 5 * OUTAGE_FROM + 5),
    ],
    ids=["about half fail from the beginning", "a total outage", "one failed long before", "some succeed later"],
)
def test_since_when_deliveries_fail(fails: set[int], from_s: int, to_s: int) -> None:
    """A delivery every five seconds: where some succeed, the last of them does not tell when the others began to fail."""
    change = first([queue(), *(e for n in range(60) for e in delivery(5 * n, fails=n in fails))], 300)
    assert from_s <= (change.finding.evidence["failing_since"] - T0) / 1000 <= to_s
    assert change.finding.since_ms == change.finding.evidence["failing_since"]
