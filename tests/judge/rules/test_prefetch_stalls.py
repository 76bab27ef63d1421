"""Messages in prefetch windows wait although the broker counts them as in flight: a hung consumer stalls its queue."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.judge.findings.signals import SignalName
from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import Judged, in_steps, judged

pytestmark = pytest.mark.simulation

UNTIL_S = 2_400
HANGS_S = 900
EVERY_S = 5
MQ = {"system": "activemq"}


def consumed(
    *,
    prefetch: int | None = 1_000,
    work_s: float = 0.3,
    hangs_at_s: float = UNTIL_S,
    every_s: int = EVERY_S,
    others: bool = False,
) -> list[dict[str, Any]]:
    """A consumer gets each message as it is sent and finishes one after the other, until it hangs. Another one may go on."""
    out, free_s = [], 0.0
    for i, sent_s in enumerate(range(0, UNTIL_S, every_s)):
        by: dict[str, Any] = {"message_id": f"m{i}", "consumer": "c2" if others and i % 2 else "c1"}
        out += [ev("sent", sent_s, message_id=f"m{i}"), ev("received", sent_s, receive_count=1, **by)]
        free_s = max(free_s, sent_s) + work_s
        if free_s <= hangs_at_s or by["consumer"] == "c2":
            out.append(ev("deleted", free_s, **by))
    state = {"connected": True} | ({"prefetch": prefetch} if prefetch else {})
    out += [ev("consumer_state", at, consumer=name, attributes=state) for at in range(0, UNTIL_S, 60) for name in ("c1", "c2")]
    return [event | MQ for event in sorted(out, key=lambda event: event["at"]) if event["at"] <= T0 + 1000 * UNTIL_S]


def fired(run: Judged, signal: SignalName) -> list[int]:
    """Return the seconds at which a signal fired."""
    changes = [c for c in run.changes if c.finding.key.signal == signal and c.finding.alerting and c.status == "firing"]
    return [(c.at_ms - T0) // 1_000 for c in changes]


def test_the_only_consumer_hangs() -> None:
    """Nothing is visible to the broker until its window of 1,000 is full, and nothing is settled from the start."""
    run = judged(in_steps(consumed(hangs_at_s=HANGS_S), 10, UNTIL_S))
    (at,) = fired(run, "QueueStalled")
    assert HANGS_S + 300 <= at <= HANGS_S + 320
    (stalled,) = run.firing("QueueStalled")
    assert stalled.severity == "critical"
    assert (stalled.evidence["reason"], stalled.evidence["visible"]) == ("no_progress", 0)
    assert stalled.evidence["prefetched"] == stalled.evidence["in_flight"] - 1
    assert str(stalled.evidence["summary"]).endswith(
        "messages waiting in prefetch windows: consumers hold 300 messages and finish nothing."
    )
    assert run.snapshots[-1].queues[0].status == "stalled"


@pytest.mark.parametrize(
    "history",
    [
        consumed(),
        consumed(hangs_at_s=HANGS_S, others=True),
        consumed(hangs_at_s=HANGS_S, prefetch=None),
        consumed(work_s=400, every_s=420),
        consumed(work_s=400, every_s=200),
    ],
    ids=["works", "another goes on", "no window is reported", "long work", "long work, and more waits"],
)
def test_other_queues_are_not_stalled(history: list[dict[str, Any]]) -> None:
    """Long work is not unusual: until enough messages show what is, the limit is a quarter of an hour."""
    run = judged(in_steps(history, 20, UNTIL_S))
    assert not fired(run, "QueueStalled")
    assert run.snapshots[-1].queues[0].status == "ok"


WINDOW, WORK_S = 300, 3
FULL_HANGS_S, FULL_UNTIL_S = 2_400, 3_000


def backlogged(*, long_at: int = -1, long_s: int = 0) -> list[dict[str, Any]]:
    """A consumer with a full window and a backlog hangs. Its messages take 3 s, and are held for 300 times as long.

    `long_at`: one of its messages takes `long_s`.
    """
    state = {"connected": True, "prefetch": WINDOW}
    out = [ev("consumer_state", at, consumer="c1", attributes=state) for at in range(0, FULL_UNTIL_S, 60)]
    finished_s: list[int] = []
    while (free_s := finished_s[-1] if finished_s else 0) < FULL_HANGS_S:
        finished_s.append(free_s + (long_s if len(finished_s) == long_at else WORK_S))
    # Each message that is finished makes room for the next one.
    for i, at in enumerate([0] * WINDOW + finished_s):
        by: dict[str, Any] = {"message_id": f"m{i}", "consumer": "c1"}
        out += [ev("sent", 0, message_id=f"m{i}"), ev("received", at, receive_count=1, **by)]
        if i < len(finished_s):
            out.append(ev("deleted", finished_s[i], **by))
    out += [ev("sent", 0, message_id=f"behind{i}") for i in range(WINDOW)]
    return [event | MQ for event in sorted(out, key=lambda event: event["at"])]


def test_a_consumer_with_a_full_window_hangs() -> None:
    """Its messages are held for a quarter of an hour because they wait for their turn: that makes no pause usual."""
    run = judged(in_steps(backlogged(), 10, FULL_UNTIL_S))
    (at,) = fired(run, "QueueStalled")
    assert FULL_HANGS_S + 300 <= at <= FULL_HANGS_S + 320
    assert run.snapshots[-1].queues[0].status == "stalled"


def test_one_that_took_long_for_a_message_may_do_so_again() -> None:
    """One message took 200 s: twice that, and not more than half as much again, is not unusual."""
    (at,) = fired(judged(in_steps(backlogged(long_at=20, long_s=200), 10, FULL_UNTIL_S)), "QueueStalled")
    assert FULL_HANGS_S + 400 <= at <= FULL_HANGS_S + 600
