"""A message that enters a dead-letter queue by a send: the broker reports its copy so, or an application sends it there."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from streaming.core.settings import QueueName
from tests.core.driving import T0, event, run_steps

Wire = dict[str, Any]
DEAD = QueueName("activemq", "", "DLQ.jobs")
SENT_AT: Wire = {"sent_at": T0 + 1_000}


def about(type_: str, at_ms: int, queue: str, message_id: str = "m", **fields: Any) -> Wire:
    return event(type_, at_ms, queue, message_id=message_id, **fields) | {"system": "activemq"}


KNOWN = [about("dead_lettered", 0, "jobs", "another", to_queue="DLQ.jobs")]
"""Shows that it is a dead-letter queue."""
COPY = about("sent", 90_000, "DLQ.jobs", **SENT_AT)
"""It has the time at which the message was sent to its source queue."""
MOVE = about("dead_lettered", 90_500, "jobs", to_queue="DLQ.jobs", **SENT_AT)
READ = about("received", 95_000, "DLQ.jobs", from_queue="jobs", **SENT_AT)


def arrival(steps: list[list[Wire]]) -> tuple[int, str]:
    """Return when the message arrived, in milliseconds after T0, and how that is known."""
    report = run_steps([(100_000, step) for step in [KNOWN, *steps]], restart=True)[-1]
    (found,) = [one for one in report.arrivals if one.message_id == "m"]
    assert report.queues[DEAD].total("arrived") == 2
    return found.at - T0, found.known_by


@pytest.mark.parametrize("events", [(COPY, MOVE), (COPY, MOVE, READ)], ids=["not read", "read there"])
def test_its_arrival_is_dated_by_the_move(events: tuple[Wire, ...]) -> None:
    """In whatever order they are read, at once or one by one."""
    for order in permutations(events):
        assert arrival([list(order)]) == (90_500, "event"), order
        assert arrival([[one] for one in order]) == (90_500, "event"), order


def test_it_is_dated_by_its_send_where_no_move_is_reported() -> None:
    assert arrival([[COPY]]) == (1_000, "event")
    assert arrival([[COPY], [READ]]) == (1_000, "event")
