"""A producer stops reporting while it continues to send: nothing wrong is published until that is detected."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import Judged, in_steps, judged

Events = list[dict[str, Any]]
LEAVES_S, END_S = 1_905, 2_200
WAITS_S, WORKED_ON_S = 12, 4
"""A message every two seconds waits for 12 s and is processed for 4 s: eight are in the queue."""
COUNTS = {"visible": 6, "in_flight": 2, "delayed": 0, "visibility_timeout_s": 30}


@pytest.fixture(scope="module")
def leaving() -> Judged:
    """Judge every fifteen seconds, with counts every thirty."""
    events: Events = []
    for at in range(0, END_S, 2):
        name = f"m{at}"
        if at < LEAVES_S:
            events.append(ev("sent", at, message_id=name))
        got = at + WAITS_S
        events += [
            ev("received", got, message_id=name, receive_count=1, consumer="w", sent_at=T0 + at * 1000),
            ev("deleted", got + WORKED_ON_S, message_id=name, consumer="w"),
        ]
    events += [ev("queue_state", at, attributes=COUNTS) for at in range(30, END_S, 30)]
    return judged(in_steps(sorted(events, key=lambda e: e["at"]), 15, END_S))


@pytest.mark.simulation
def test_the_depth_is_the_brokers_at_every_count(leaving: Judged) -> None:
    """By then only two of eight messages are known, before the basis changes."""
    for snapshot in leaving.snapshots:
        at_s, (queue,) = (snapshot.at_ms - T0) // 1000, snapshot.queues
        if at_s % 30 == 0 and 30 < at_s < END_S:
            depth = (queue.visible or 0) + (queue.in_flight or 0)
            assert abs(depth - 8) <= 1, (at_s, queue.basis)
    assert leaving.snapshots[-1].queues[0].basis != "messages"


def test_a_queue_that_is_received_from_is_not_silent(leaving: Judged) -> None:
    """Its sends alone would make it look silent."""
    assert "QueueSilent" not in {signal for _, signal, _, _ in leaving.changes_seen()}
