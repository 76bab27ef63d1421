"""A handler that throws fails its whole batch: the deliveries of one batch fail for one reason."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.driving import T0, event
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

SIZE, EVERY_S, UNTIL_S = 10, 3, 600
FAULT_S = 300
CHANCE = "xxxoxxoxxoxoxxoooooooooooooooooooooooooo"
"""Two batches in three fail for a while, of one in four."""


def batches(fail: str, batch_size: int | None, system: str = "cloudflare_queues", **attributes: Any) -> list[dict[str, Any]]:
    """Return a batch every three seconds, finished a second later. From second 300 on those marked x in `fail` throw."""
    reported = attributes | ({} if batch_size is None else {"max_batch_size": batch_size})
    reported |= {"max_retries": 3} if system == "cloudflare_queues" else {"visibility_timeout_s": 30}
    events = [event("queue_state", 0, system=system, attributes=reported)]
    for n, at in enumerate(range(0, UNTIL_S, EVERY_S)):
        later = n - FAULT_S // EVERY_S
        thrown = later >= 0 and fail[later % len(fail)] == "x"
        for i in range(SIZE):
            about = {"system": system, "message_id": f"m{n}-{i}", "consumer": "w"}
            events.append(event("sent", at * 1000, **about))
            events.append(event("received", at * 1000 + 100, receive_count=1, **about))
            events.append(event("released" if thrown else "deleted", at * 1000 + 1_100, receive_count=1, **about))
    return events


@pytest.mark.parametrize(
    ("fail", "batch_size", "fires"),
    [
        pytest.param(CHANCE, SIZE, False, id="two batches in three for a while are chance"),
        pytest.param(CHANCE, 1, True, id="so many single messages are not"),
        pytest.param(CHANCE, None, False, id="without their size, the default"),
        pytest.param("x", SIZE, True, id="all batches"),
    ],
)
def test_a_batch_that_fails_is_one_failure_of_many_messages(fail: str, batch_size: int | None, fires: bool) -> None:
    """Before half of the deliveries of five minutes have failed, more must fail where they fail together."""
    found = judged(in_steps(batches(fail, batch_size), 5, UNTIL_S))
    assert any(change[1:3] == ("QueueFailing", "firing") for change in found.changes_seen()) == fires


def delivered_again(known: list[dict[str, Any]], *, whole: bool, which: str = "") -> list[dict[str, Any]]:
    """Return the same, each message that failed delivered once more at once, and failing again.

    `whole`: the handler throws; else it retries each message by itself. `which`: only messages whose ids end like this.
    """
    events: list[dict[str, Any]] = []
    for one in known:
        about: dict[str, Any] = {name: one[name] for name in ("system", "message_id", "consumer") if name in one}
        batch_id, at = one.get("message_id", "").partition("-")[0], one["at"] - T0
        events.append(one | ({"batch_id": batch_id} if one["type"] == "received" else {}))
        if one["type"] == "released" and one["message_id"].endswith(which):
            outcome = {"size": SIZE, "failed": SIZE * whole, "retried": SIZE * (not whole)}
            events.append(event("batch", at, system=one["system"], batch_id=batch_id, attributes=outcome))
            again = {"receive_count": 2, "batch_id": f"{batch_id}-again", **about}
            events += [event("received", at + 300, **again), event("released", at + 600, **again)]
    return sorted(events, key=lambda e: e["at"])


@pytest.mark.parametrize(("whole", "earliest_s", "latest_s"), [(True, 90, 180), (False, 30, 75)])
def test_messages_that_fail_one_by_one_are_not_taken_for_whole_batches(whole: bool, earliest_s: int, latest_s: int) -> None:
    """A batch may hold a hundred. Where a hundred fail as one, half of five minutes must have failed; else a minute is enough."""
    events = delivered_again(batches("x", 10 * SIZE), whole=whole)
    changes = judged(in_steps(events, 5, UNTIL_S)).changes_seen()
    (began_s,) = [at // 1000 - FAULT_S for at, signal, status, _ in changes if (signal, status) == ("QueueFailing", "firing")]
    assert earliest_s <= began_s <= latest_s


@pytest.mark.parametrize("whole", [True, False])
def test_a_function_that_throws_fails_its_whole_batch(whole: bool) -> None:
    """Lambda gives it ten messages by default, and nobody reports how many it may get. What a batch's outcome says counts."""
    events = delivered_again(batches(CHANCE, None, "aws_sqs"), whole=whole, which="-0")
    changes = judged(in_steps(events, 5, UNTIL_S)).changes_seen()
    assert any(change[1:3] == ("QueueFailing", "firing") for change in changes) is not whole


def test_a_handler_that_no_longer_throws_fails_one_message_at_a_time() -> None:
    """The module for Workers says for an hour that it does, and then that it does not."""
    for throws, fires in ((True, False), (False, True)):
        found = judged(in_steps(batches(CHANCE, SIZE, throws_on_error=throws), 5, UNTIL_S))
        assert any(change[1:3] == ("QueueFailing", "firing") for change in found.changes_seen()) is fires
