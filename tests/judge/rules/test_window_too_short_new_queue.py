"""WindowTooShort in the first minutes of a queue."""

from __future__ import annotations

from typing import Any

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import in_steps, judged


def delivered(count: int, at: float, *, outlive: int) -> list[dict[str, Any]]:
    """Return messages that are received together; some of them are deleted after the window of 10 s, the others in it."""
    events = []
    for n in range(count):
        about = {"message_id": f"{at}-{n}", "consumer": "w"}
        events += [ev("sent", at - 1, message_id=about["message_id"])]
        events += [ev("received", at, receive_count=1, invisible_until=T0 + round(at * 1000) + 10_000, **about)]
        events += [ev("deleted", at + (45 if n < outlive else 3), **about)]
    return events


def test_the_receives_before_the_first_sample_count() -> None:
    """The job begins with what its source has kept: 500 deliveries at once. Five of them outlive their window: one percent."""
    found = judged(in_steps(delivered(500, 0, outlive=5), 10, 120))
    assert not found.firing("WindowTooShort")
    assert found.snapshots[-1].queues[0].totals["outlived"] == 5


def test_the_receives_of_a_queue_before_it_vanished_do_not_count() -> None:
    """It was empty for hours, and no collector counts it, so it is a new one to the judge. Its shard still knows the totals."""
    steps = in_steps(delivered(1_000, 0, outlive=0), 10, 60)
    steps += [(1000 * at, []) for at in range(600, 10_800, 600)]
    again = in_steps([*delivered(1, 10_800, outlive=0), *delivered(40, 10_830, outlive=10)], 10, 11_000)
    found = judged([*steps, *(step for step in again if step[0] >= 10_800_000)])
    assert found.firing("WindowTooShort")
