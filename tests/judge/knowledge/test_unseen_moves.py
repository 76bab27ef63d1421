"""While moves to a dead-letter queue are not inferred yet, they are named as what is missing: there is nothing to instrument."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.driving import event
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]
QUEUE: dict[str, Any] = {"kind": "standard", "visibility_timeout_s": 900, "max_receive_count": 10, "dead_letter_queue": "dead"}
UNTIL_S = 1_200


def counted(queue: str, visible: int, from_s: int = 60, until_s: int = UNTIL_S, grows: int = 0, **settings: Any) -> Events:
    """Return the broker's counts of a queue, one a minute."""
    return [
        event(
            "queue_state",
            s * 1000,
            queue=queue,
            attributes=settings | {"visible": visible + grows * n, "in_flight": 0, "delayed": 0},
        )
        for n, s in enumerate(range(from_s, until_s, 60))
    ]


def partial(events: Events, queue: str) -> dict[str, Any]:
    """Return the evidence of TelemetryPartial about a queue."""
    found = judged(in_steps(sorted(events, key=lambda e: e["at"]), 15, UNTIL_S))
    return next(dict(f.evidence) for f in found.firing("TelemetryPartial") if f.key.queue == queue)


@pytest.mark.parametrize(
    ("grows", "missing", "next_step"),
    [
        (2, "some messages have probably been moved to dead", ""),
        (0, "ends of some messages of q are not seen", "instrument the remaining consumers of q"),
    ],
    ids=["its dead-letter queue grows", "it does not"],
)
def test_a_source_queue_with_fewer_messages_than_tracked(grows: int, missing: str, next_step: str) -> None:
    """A hundred messages wait after one was received; the broker counts sixty."""
    events = [event("sent", 100 * n, queue="q", message_id=f"m{n}") for n in range(101)]
    events += [event(what, 20_000, queue="q", message_id="m0") for what in ("received", "deleted")]
    events += counted("q", 60, **QUEUE) + counted("dead", 5, grows=grows, kind="standard")
    evidence = partial(events, "q")
    assert (evidence["missing"], evidence["next_step"]) == (missing, next_step)


@pytest.mark.parametrize(
    ("known", "missing"),
    [(60, "moves to dead are not seen yet: SQS does not report them"), (140, "deliveries and deletions of dead are not seen")],
    ids=["more than tracked", "fewer than tracked"],
)
def test_a_dead_letter_queue_with_other_messages_than_tracked(known: int, missing: str) -> None:
    """The broker counts a hundred: what is missing are arrivals, or what somebody took."""
    events = counted("q", 0, **QUEUE) + counted("dead", 100, kind="standard")
    for n in range(known):
        about = {"queue": "q", "message_id": f"m{n}"}
        events += [event("sent", 100 * n, **about), event("received", 100 * n + 50, receive_count=10, **about)]
        events.append(event("dead_lettered", 30_000 + n, to_queue="dead", **about))
    assert partial(events, "dead")["missing"] == missing
