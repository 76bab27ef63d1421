"""Advisories that are read in another order than they were sent."""

from typing import Any

import pytest

from sources.activemq.advisory import ConsumerRemoved
from tests.sources.activemq.advisories import QUEUE, A, B, DrivenLifecycle, consumer, seen

# Each row: the advisories and when they are read (ms), then all events reported until long after.
RACES: list[tuple[str, list[tuple[int, Any]], list[str]]] = [
    (
        "the acknowledgement is read before the dispatch",
        [(5, seen("consumed", out_ms=2)), (6, seen("dispatched", by=A, out_ms=2))],
        ["received x1 A @2", "deleted x1 A @5"],
    ),
    (
        "the dispatch is read before the arrival",
        [(3, seen("dispatched", by=A, out_ms=2)), (4, seen("delivered")), (9, seen("consumed", out_ms=2))],
        ["received x1 A @2", "sent x0 - @0", "deleted x1 A @5"],
    ),
    (
        "the next dispatch is read before the first consumer's end",
        [
            (1, seen("dispatched", by=A, out_ms=1)),
            (50, seen("dispatched", by=B, out_ms=50, redeliveries=1)),
            (51, ConsumerRemoved(A)),
            (90, seen("consumed", out_ms=50)),
        ],
        ["received x1 A @1", "received x2 B @50", "deleted x2 B @90"],
    ),
    (
        "a second dispatch contradicts the acknowledgement",
        [
            (1, seen("dispatched", by=A, out_ms=1)),
            (50, seen("consumed", out_ms=1)),
            (51, ConsumerRemoved(A)),
            (900, seen("dispatched", by=B, out_ms=900, redeliveries=1)),
        ],
        ["received x1 A @1", "received x2 B @900"],
    ),
    (
        "a second dispatch contradicts the acknowledgement after it was reported",
        [
            (1, seen("dispatched", by=A, out_ms=1)),
            (50, seen("consumed", out_ms=1)),
            (9_000, seen("dispatched", by=B, out_ms=9_000, redeliveries=1)),
        ],
        ["received x1 A @1", "deleted x1 A @50", "received x2 B @9000"],
    ),
    (
        "the second delivery's acknowledgement is read before its dispatch",
        [
            (1, seen("dispatched", by=A, out_ms=1)),
            (50, ConsumerRemoved(A)),
            (61, seen("consumed", out_ms=60, redeliveries=1)),
            (62, seen("dispatched", by=B, out_ms=60, redeliveries=1)),
        ],
        ["received x1 A @1", "released x1 A @50", "received x2 B @60", "deleted x2 B @61"],
    ),
    (
        "a dispatch that is read after its acknowledgement was reported",
        [(5, seen("consumed", out_ms=2)), (9_000, seen("dispatched", by=A, out_ms=2))],
        ["deleted x0 - @5", "received x1 A @2"],
    ),
    (
        "an acknowledgement repeated long after, without another dispatch",
        [
            (1, seen("dispatched", by=A, out_ms=1)),
            (50, seen("consumed", out_ms=1)),
            (9_000, seen("consumed", out_ms=1)),
        ],
        ["received x1 A @1", "deleted x1 A @50", "received x2 A @9000", "deleted x2 A @9000"],
    ),
    (
        "given back and dispatched again within a millisecond",
        [
            (1, seen("dispatched", by=A, out_ms=1)),
            (50, ConsumerRemoved(A)),
            (50, seen("dispatched", by=B, out_ms=50, redeliveries=1)),
        ],
        ["received x1 A @1", "released x1 A @50", "received x2 B @51"],
    ),
    (
        "the dispatch to a consumer that has left is read after the next one, whose time it carries",
        [
            (1, ConsumerRemoved(A)),
            (3, seen("dispatched", by=B, out_ms=3, redeliveries=1)),
            (3, seen("dispatched", by=A, out_ms=3, redeliveries=1)),
            (90, seen("consumed", out_ms=3, redeliveries=1)),
        ],
        ["received x2 B @3", "deleted x2 B @90"],
    ),
    (
        "the same, read before the consumer's end",
        [
            (1, consumer(B)),
            (1, seen("dispatched", by=B, out_ms=1, redeliveries=1)),
            (1, seen("dispatched", by=A, out_ms=1, redeliveries=1)),
            (9, ConsumerRemoved(A)),
            (90, seen("consumed", out_ms=1, redeliveries=1)),
        ],
        ["received x2 B @1", "received x2 A @2", "received x2 B @9", "deleted x2 B @90"],
    ),
    (
        "two dispatches with one time, in their order, before both consumers leave",
        [
            (1, seen("dispatched", by=A, out_ms=1, redeliveries=1)),
            (1, seen("dispatched", by=B, out_ms=1, redeliveries=1)),
            (9, ConsumerRemoved(A)),
            (10, ConsumerRemoved(B)),
        ],
        ["received x2 A @1", "received x2 B @2", "released x2 B @10"],
    ),
    (
        "the only dispatch is read after its consumer left",
        [
            (9, ConsumerRemoved(A)),
            (9, seen("dispatched", by=A, out_ms=1)),
            (50, seen("dispatched", by=B, out_ms=50, redeliveries=1)),
        ],
        ["received x1 A @1", "released x1 A @1", "received x2 B @50"],
    ),
    (
        "a client reconnects with the same consumer",
        [(9, ConsumerRemoved(A)), (50, consumer(A)), (60, seen("dispatched", by=A, out_ms=55))],
        ["received x1 A @55"],
    ),
    (
        "a client reconnects with the same consumer, whose first dispatch is read before it is announced",
        [(9, ConsumerRemoved(A)), (5_000, seen("dispatched", by=A, out_ms=5_000)), (5_001, consumer(A))],
        ["received x1 A @5000"],
    ),
    (
        "a broker that forgot its redelivery counter at a restart",
        [
            (1, seen("dispatched", by=A, out_ms=1, redeliveries=3)),
            (50, ConsumerRemoved(A)),
            (99, seen("dispatched", by=B, out_ms=99, redeliveries=0)),
        ],
        ["received x4 A @1", "released x4 A @50", "received x4 B @99"],
    ),
    (
        "the copy in the dead-letter queue is read after the move",
        [
            (1, seen("dispatched", by=A, out_ms=1)),
            (50, seen("dead_lettered", out_ms=1)),
            (51, seen("consumed", out_ms=1)),
            (52, seen("delivered", queue="DLQ.orders", in_ms=50, out_ms=1, origin_queue=QUEUE)),
        ],
        ["received x1 A @1", "dead_lettered x1 A @50", "sent x0 - @50"],
    ),
    (
        "the copy in the dead-letter queue is never read",
        [(1, seen("dispatched", by=A, out_ms=1)), (50, seen("dead_lettered", out_ms=1))],
        ["received x1 A @1", "dead_lettered x1 A @50"],
    ),
    (
        "a redelivery plugin sends the message into its queue again",
        [
            (1, seen("dispatched", by=A, out_ms=1)),
            (50, seen("consumed", out_ms=1)),
            (80, seen("delivered", in_ms=80, out_ms=1)),
            (90, seen("dispatched", by=B, in_ms=80, out_ms=90, redeliveries=1)),
        ],
        ["received x1 A @1", "deleted x1 A @50", "sent x0 - @80", "received x2 B @90"],
    ),
]


@pytest.mark.parametrize(("advisories", "expected"), [pytest.param(a, e, id=why) for why, a, e in RACES])
def test_races(advisories: list[tuple[int, Any]], expected: list[str]) -> None:
    driven = DrivenLifecycle()
    for at, advisory in advisories:
        driven.flush(at)
        driven.apply(advisory, at)
    driven.flush(60_000)
    assert driven.lines() == expected


def test_an_acknowledgement_is_reported_after_its_grace_period() -> None:
    driven = DrivenLifecycle(grace_ms=2_000)
    driven.apply(seen("dispatched", by=A, out_ms=1), 1)
    driven.apply(seen("consumed", out_ms=1), 50)
    assert driven.flush(2_049) == []
    assert [event["type"] for event in driven.flush(2_050)] == ["deleted"]
