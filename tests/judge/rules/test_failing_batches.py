"""A handler that throws fails its whole batch: the deliveries of one batch fail for one reason."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.driving import event
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

SIZE, EVERY_S, UNTIL_S = 10, 3, 420
FAULT_S = 300


def batches(fail: str, batch_size: int) -> list[dict[str, Any]]:
    """Return a batch every three seconds, finished a second later. From second 300 on those marked x in `fail` throw."""
    events = [event("queue_state", 0, system="cloudflare_queues", attributes={"max_batch_size": batch_size})]
    for n, at in enumerate(range(0, UNTIL_S, EVERY_S)):
        later = n - FAULT_S // EVERY_S
        thrown = later >= 0 and fail[later % len(fail)] == "x"
        for i in range(SIZE):
            about = {"system": "cloudflare_queues", "message_id": f"m{n}-{i}", "consumer": "w"}
            events.append(event("sent", at * 1000, **about))
            events.append(event("received", at * 1000 + 100, receive_count=1, **about))
            events.append(event("released" if thrown else "deleted", at * 1000 + 1_100, receive_count=1, **about))
    return events


@pytest.mark.parametrize(
    ("fail", "batch_size", "fires"),
    [
        pytest.param("xxxoxxoxxoxoxxoooooooooooooooooooooooooo", SIZE, False, id="two batches in three for a while are chance"),
        pytest.param("xxxoxxoxxoxoxxoooooooooooooooooooooooooo", 1, True, id="so many single messages are not"),
        pytest.param("x", SIZE, True, id="all batches"),
    ],
)
def test_a_batch_that_fails_is_one_failure_of_many_messages(fail: str, batch_size: int, fires: bool) -> None:
    """Before half of the deliveries of five minutes have failed, more must fail where they fail together."""
    found = judged(in_steps(batches(fail, batch_size), 5, UNTIL_S))
    assert any(change[1:3] == ("QueueFailing", "firing") for change in found.changes_seen()) == fires
