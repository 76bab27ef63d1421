"""While the job catches up with its source, events are minutes old when they are judged."""

from __future__ import annotations

from typing import Any

from tests.contract.replaying import ev
from tests.judge.driving import Step, judged

SENT = 1_200
PER_STEP = 100
READ_FROM_S = 700
"""When reading begins: the events are of the time before."""


def steps() -> list[Step]:
    """A backlog that was sent within ten minutes, counted at its end, and read in a tenth of the time."""
    events: list[dict[str, Any]] = [ev("sent", n / 2, message_id=f"m{n}") for n in range(SENT)]
    counts = {"visible": SENT, "in_flight": 0, "delayed": 0, "visibility_timeout_s": 30}
    events.append(ev("queue_state", 690, attributes=counts))
    for n in range(PER_STEP):
        at_s, about = 691 + n / 100, {"message_id": f"m{n}", "consumer": "w"}
        events += [ev("sent", at_s, message_id=f"later{n}"), ev("sent", at_s, message_id=f"more{n}")]
        events += [ev("received", at_s, receive_count=1, **about), ev("deleted", at_s + 0.1, **about)]
    chunks = [events[i : i + PER_STEP] for i in range(0, len(events), PER_STEP)]
    return [(1_000 * (READ_FROM_S + 5 * i), chunk) for i, chunk in enumerate(chunks)]


def test_a_backlog_is_not_added_to_the_count_that_has_it() -> None:
    """The count says 1,200, and 200 were sent and 100 processed after it. The first step had known of 100 messages only."""
    queue = judged(steps()).snapshots[-1].queues[0]
    assert queue.basis == "messages"
    assert queue.visible is not None
    # To the precision of the step in which the count arrived.
    assert abs(queue.visible - (SENT + PER_STEP)) <= 0.05 * SENT
