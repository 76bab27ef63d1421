"""WindowTooShort in the first minutes of a queue."""

from __future__ import annotations

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import in_steps, judged


def test_the_receives_before_the_first_sample_count() -> None:
    """The job begins with what its source has kept: 500 deliveries at once. Five of them outlive their window: one percent."""
    events = []
    for n in range(500):
        about = {"message_id": f"m{n}", "consumer": "w"}
        events += [ev("sent", -1, message_id=about["message_id"])]
        events += [ev("received", 0, receive_count=1, invisible_until=T0 + 10_000, **about)]
        events += [ev("deleted", 45 if n < 5 else 3, **about)]
    found = judged(in_steps(events, 10, 120))
    assert not found.firing("WindowTooShort")
    assert found.snapshots[-1].queues[0].totals["outlived"] == 5
