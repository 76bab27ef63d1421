"""A producer stops reporting while it continues to send: nothing wrong is published until that is detected."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import Judged, in_steps, judged

pytestmark = pytest.mark.simulation

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


def test_where_nothing_is_received_the_depth_is_that_of_exact_counts() -> None:
    """They grew by exactly the reported sends, so what they grow by now was sent as well."""
    sent = [ev("sent", at, message_id=f"m{at}") for at in range(450)]
    polls = [
        ev("queue_state", at, attributes={"visible": at + 1, "in_flight": 0, "delayed": 0, "visibility_timeout_s": 30})
        for at in range(0, 500, 30)
    ]
    found = judged(in_steps(sorted([*sent, *polls], key=lambda e: e["at"]), 10, 500)).snapshots
    depths = {(s.at_ms - T0) // 1000: (s.queues[0].basis, s.queues[0].visible) for s in found}
    assert depths[440] == ("messages", 441), "with the sends since the last count"
    assert depths[480] == ("messages", 481)
