"""A message that failed is in flight until its window ends, as one that a consumer holds: the words allow for both."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.judge.driving import Judged, in_steps, judged

Events = list[dict[str, Any]]


def seen(kept: Events, until_s: int, others_until_s: int) -> Judged:
    """A queue with a visibility timeout of three minutes, whose consumer finishes a message every five seconds besides `kept`."""
    events = [ev("queue_state", 0, attributes={"visibility_timeout_s": 180}), *kept]
    for n in range(others_until_s // 5):
        about = {"message_id": f"m{n}", "consumer": "w"}
        events += [
            ev("received", 5 * n, receive_count=1, sent_at=ev("x", 5 * n)["at"], **about),
            ev("deleted", 5 * n + 1, **about),
        ]
    return judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, until_s))


def test_a_slow_consumer_that_goes_on_may_have_failed() -> None:
    """Not one that has finished nothing since: it holds the message."""
    bad = ev("received", 61, message_id="bad", consumer="w", receive_count=1)
    (found,) = seen([bad], 120, 120).firing("SlowConsumer")
    assert found.evidence["summary"].endswith("If it failed, it becomes visible again when its visibility window of 3 min ends.")
    also = ev("received", 62, message_id="also", consumer="w", receive_count=1)
    (found,) = seen([bad, also], 120, 120).firing("SlowConsumer")
    assert "Consumer w of q has held message bad for 59 s (it holds 2 messages); the usual hold" in found.evidence["summary"]
    (found,) = seen([bad], 120, 60).firing("SlowConsumer")
    assert "failed" not in found.evidence["summary"]


@pytest.mark.simulation
def test_a_message_held_too_long_may_be_a_delayed_retry() -> None:
    """Its consumer set 20 minutes to try again later, and went on."""
    about = {"message_id": "later", "consumer": "w"}
    kept = [ev("received", 61, receive_count=1, **about), ev("extended", 62, invisible_until=ev("x", 1_262)["at"], **about)]
    (found,) = seen(kept, 1_000, 1_000).firing("MessageHeldTooLong")
    assert found.evidence["summary"].endswith(
        "its consumer may be hung or delaying a retry; it has finished other messages since."
    )
    (found,) = seen(kept, 1_000, 60).firing("MessageHeldTooLong")
    assert found.evidence["summary"].endswith("its consumer may be hung.")
