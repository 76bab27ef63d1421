"""What would make more of a queue visible."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.judge.driving import in_steps, judged

DOCTOR = "run queuewatch doctor activemq: it names the advisories that the broker does not send"
COUNTS = [ev("queue_state", at, attributes={"visible": 5, "in_flight": 0, "delayed": 0}) for at in range(10, 60, 10)]
SENDS = [ev("sent", at, message_id=f"m{at}") for at in range(5)]


@pytest.mark.parametrize(
    ("events", "system", "basis", "step"),
    [
        (SENDS + COUNTS, "aws_sqs", "producers", "instrument its consumers"),
        (SENDS + COUNTS, "activemq", "producers", f"if it has consumers, {DOCTOR}"),
        (COUNTS, "aws_sqs", "counts", "instrument the consumers of q"),
        (COUNTS, "activemq", "counts", DOCTOR),
    ],
)
def test_applications_on_activemq_need_no_instrumentation(
    events: list[dict[str, Any]], system: str, basis: str, step: str
) -> None:
    """Its broker reports what they do. A queue without consumers is no reason to change anything."""
    found = judged(in_steps([event | {"system": system} for event in events], 10, 60))
    queue = found.snapshots[-1].queues[0]
    assert (queue.basis, queue.next_step) == (basis, step)


def test_nothing_need_consume_a_dead_letter_queue() -> None:
    """To instrument its consumers would be advice that most dead-letter queues cannot follow."""
    named = ev("queue_state", 1, attributes={"visible": 0, "dead_letter_queue": "d"})
    found = judged(in_steps([named, *({**event, "queue": "d"} for event in COUNTS)], 10, 60))
    queues = {queue.queue: queue for queue in found.snapshots[-1].queues}
    assert (queues["d"].basis, queues["d"].next_step) == ("counts", "instrument what empties it, if anything does")
    assert queues["q"].next_step == "instrument the consumers of q"
