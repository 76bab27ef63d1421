"""Without a collector, nothing shows that SQS moved a message to a dead-letter queue: it alone does not stall a quiet queue."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import Settings
from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import Step, judged

pytestmark = pytest.mark.simulation

Wire = dict[str, Any]


def failing(receives: int = 3, **fields: Any) -> list[Wire]:
    """One message that is received again and again in vain, and another that is deleted at 60 s. Then the queue is quiet."""
    bad = [
        ev("received", 40 * n, message_id="bad", consumer="w", receive_count=n + 1, sent_at=T0, **fields) for n in range(receives)
    ]
    good = [
        ev("received", 59, message_id="good", consumer="w", receive_count=1, **fields),
        ev("deleted", 60, message_id="good", consumer="w", **fields),
    ]
    return [*bad, *good]


def stalls(events: list[Wire], *more: Step) -> list[tuple[str, int]]:
    """Return when `QueueStalled` changed within 25 minutes, in seconds."""
    steps = [(100_000, events), *more, *((at, []) for at in range(120_000, 1_500_000, 10_000))]
    changes = judged(sorted(steps, key=lambda step: step[0]), Settings()).changes
    return [(c.status, (c.at_ms - T0) // 1000) for c in changes if c.finding.key.signal == "QueueStalled"]


def test_a_quiet_queue_is_not_stalled_by_a_suspect_that_was_probably_moved() -> None:
    """It pages nobody at night."""
    assert stalls(failing()) == []


def test_a_message_that_is_sent_then_is_given_the_whole_time() -> None:
    """It has not waited for as long as the suspect seems to."""
    sent = (900_000, [ev("sent", 900, message_id="new")])
    assert stalls(failing(), sent) == [("firing", 1_200)]
    received = [ev("received", 905, message_id="new", consumer="w", receive_count=1), ev("deleted", 906, message_id="new")]
    assert stalls(failing(), sent, (910_000, received)) == []


def test_consumers_that_receive_and_finish_nothing_stall_the_queue() -> None:
    """Also when all messages have become suspects, and the consumers stop at last."""
    in_vain: list[Wire] = []
    for n in range(60):
        about: Wire = {"message_id": f"bad{n % 3}", "receive_count": n // 3 + 1, "consumer": "w", "sent_at": T0}
        in_vain.append(ev("received", 10 + 15 * n, **about))
    steps: list[Step] = [(e["at"] - T0, [e]) for e in in_vain]
    steps += [(at, []) for at in range(900_000, 1_500_000, 10_000)]
    changes = judged(steps, Settings()).changes
    assert {c.status for c in changes if c.finding.key.signal == "QueueStalled"} == {"firing"}


@pytest.mark.parametrize(
    "events",
    [
        [*failing(), ev("queue_state", 99, attributes={"max_receive_count": 9, "dead_letter_queue": "d"})],
        [*failing(), ev("queue_state", 99, attributes={"visible": 1, "in_flight": 0, "delayed": 0})],
        failing(2),
        failing(group="g", queue="q.fifo"),
    ],
    ids=["the limit is known", "counts", "no suspect", "an ordered queue"],
)
def test_one_that_certainly_waits_stalls_the_queue(events: list[Wire]) -> None:
    """Where the limit of receives is known, a move is inferred; counts and later messages of a group show it."""
    assert [status for status, _ in stalls(events)] == ["firing"]
