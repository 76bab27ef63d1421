"""Clients of which fewer report than before: the share that the basis names is that of now."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

FEWER_S, UNTIL_S = 600, 1_500


def test_the_share_that_is_seen_is_that_of_now() -> None:
    """A backlog of a hundred was known and is gone; of the hundred that are counted since, few were reported."""
    events: list[dict[str, Any]] = [ev("sent", n / 100, message_id=f"old{n}") for n in range(100)]
    for n in range(100):
        about = {"message_id": f"old{n}"}
        events += [ev("received", FEWER_S, receive_count=1, **about), ev("deleted", FEWER_S + 5, **about)]
    events += [ev("sent", at, message_id=f"m{at}") for at in range(FEWER_S + 10, UNTIL_S, 60)]
    attributes = {"visible": 100, "in_flight": 0, "delayed": 0, "visibility_timeout_s": 30}
    events += [ev("queue_state", at + 1.7, attributes=attributes) for at in range(0, UNTIL_S, 30)]
    steps = in_steps(sorted(events, key=lambda event: event["at"]), 30, UNTIL_S)
    queue = judged(steps).snapshots[-1].queues[0]
    assert queue.basis_reason == "about 15% of the messages the broker counts are seen"
