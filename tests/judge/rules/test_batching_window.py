"""Messages that a Lambda mapping gathers for minutes seem to wait until the function is invoked and reports their receives."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import Settings
from tests.core.driving import event
from tests.judge.driving import Step, judged

pytestmark = pytest.mark.simulation

WINDOW_S, WORK_S, POLL_S, SEND_S, UNTIL_S = 300, 20, 60, 3, 600


def steps(*, invoked: bool, late_s: int = 0) -> list[Step]:
    """A message every three seconds; every five seconds a step, with what has arrived by then.

    `invoked`: the mapping receives them at once, and invokes the function five minutes after the first of a batch. If not, nobody
    receives them. `late_s`: how old the broker's counts are.
    """
    came: list[tuple[int, dict[str, Any]]] = []
    taken: list[tuple[int, int]] = []
    for at in range(0, UNTIL_S, SEND_S):
        about = {"message_id": f"m{at}"}
        came.append((at, event("sent", at * 1000, **about)))
        if not invoked:
            continue
        # What is sent while the function works waits for the next batch.
        start = WINDOW_S if at < WINDOW_S else 2 * WINDOW_S + WORK_S
        got_at = at + 1 if at < WINDOW_S else max(at + 1, WINDOW_S + WORK_S + 1)
        taken.append((got_at, start + WORK_S))
        came.append((start, event("received", got_at * 1000, receive_count=1, consumer="fn", batch_id=f"r{start}", **about)))
        came.append((start + WORK_S, event("deleted", (start + WORK_S) * 1000, consumer="fn", **about)))
    for at in range(3, UNTIL_S, POLL_S):
        true_at = at - late_s
        sent = max((true_at + SEND_S - 1) // SEND_S, 0)
        in_flight = sum(got_at <= true_at < gone_at for got_at, gone_at in taken)
        gone = sum(gone_at <= true_at for _, gone_at in taken)
        counts = {"visible": max(sent - in_flight - gone, 0), "in_flight": in_flight, "delayed": 0}
        came.append((at, event("queue_state", at * 1000, attributes=counts | {"visibility_timeout_s": 900})))
    return [(t * 1000, [e for at, e in came if t - 5 < at <= t]) for t in range(0, UNTIL_S, 5)]


@pytest.mark.parametrize("late_s", [0, 60])
def test_a_batch_that_is_gathered_for_five_minutes_is_no_stalled_queue(late_s: int) -> None:
    """The counts show that nothing is visible."""
    found = judged(steps(invoked=True, late_s=late_s), Settings()).changes
    assert not [c for c in found if c.finding.key.signal == "QueueStalled"]


@pytest.mark.parametrize("late_s", [0, 60])
def test_a_queue_without_consumers_pages_in_time(late_s: int) -> None:
    """A count that is a minute old shows nothing visible in the first minute, which delays nothing."""
    found = judged(steps(invoked=False, late_s=late_s), Settings()).changes
    (fired,) = [c for c in found if c.finding.key.signal == "QueueStalled" and c.status == "firing"]
    assert fired.at_ms <= event("x", 360_000)["at"]
