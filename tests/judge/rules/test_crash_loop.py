"""Consumers that are started again and again, and end in the message that they received."""

from __future__ import annotations

from typing import Any

from tests.core.driving import event
from tests.judge.driving import in_steps, judged

DIED_AT_S, WINDOW_S, UNTIL_S = 1_200, 30, 3_600
RECEIVED_AT_S = range(DIED_AT_S + 60, UNTIL_S, 80)


def crash_loop() -> list[dict[str, Any]]:
    """A message every two seconds, of which only consumers and counts tell. From some time on none is deleted."""
    out = []
    for at_s in range(2, DIED_AT_S, 2):
        out.append(event("received", at_s * 1_000, message_id=f"m{at_s}", receive_count=1))
        out.append(event("deleted", at_s * 1_000 + 1_000, message_id=f"m{at_s}"))
    for n, at_s in enumerate(RECEIVED_AT_S):
        out.append(event("received", at_s * 1_000, message_id=f"lost{n}", receive_count=1))
    for at_s in range(5, UNTIL_S, 30):
        held = sum(at_s - WINDOW_S < received <= at_s for received in RECEIVED_AT_S)
        waiting = max(0, at_s - DIED_AT_S) // 2 - held
        counts = {"visible": max(waiting, 0), "in_flight": held, "delayed": 0}
        out.append(
            event("queue_state", at_s * 1_000, attributes=counts | {"visibility_timeout_s": WINDOW_S, "max_receive_count": 50})
        )
    return sorted(out, key=lambda e: int(e["at"]))


def test_a_crash_loop_is_one_stall() -> None:
    """Between two receives the counts stand still, and each receive seemed to begin another stall: it resolved 36 times."""
    run = judged(in_steps(crash_loop(), 5, UNTIL_S - 10))
    assert run.snapshots[-1].queues[0].basis == "consumers"
    ((at_ms, _, status, _),) = [change for change in run.changes_seen() if change[1] == "QueueStalled"]
    assert status == "firing"
    assert at_ms <= (DIED_AT_S + 330) * 1_000
