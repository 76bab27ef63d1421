"""A message with no receives left, whose last window is over, may be gone once a consumer receives: that is not reported."""

from __future__ import annotations

from typing import Any

from streaming.core.settings import Settings
from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import Step, judged

CONFIG = ev("queue_state", 0, attributes={"visibility_timeout_s": 30, "max_receive_count": 2, "dead_letter_queue": "dlq"})
LAST_S = 40
"""When the bad message is received for the last time; its window ends 30 s later."""


def bad() -> list[dict[str, Any]]:
    """A message that was received twice, of two times."""
    events = [CONFIG, ev("sent", 1, message_id="bad"), ev("sent", 2, message_id="other"), ev("sent", 50, message_id="x")]
    return [*events, *(ev("received", at, message_id="bad", consumer="w", receive_count=n) for n, at in ((1, 5), (2, LAST_S)))]


def ages(*steps: Step) -> list[tuple[float | None, bool]]:
    """Return at each step the send time of the oldest message in seconds, and whether it is exact."""
    views = [snapshot.queues[0] for snapshot in judged(steps, Settings()).snapshots]
    known = [(view.oldest_ms.get("all"), "all" in view.exact_ages) for view in views]
    return [(None if at is None else (at - T0) / 1000, exact) for at, exact in known]


def test_while_others_are_received_it_may_be_gone() -> None:
    """From the end of its window until somebody is known to have received: the age of the rest is a lower bound."""
    received = ev("received", 60, message_id="x", consumer="v", receive_count=1)
    found = ages((69_000, [*bad(), received]), (71_000, []))
    assert found == [(1, True), (2, False)]


def test_a_receive_of_another_message_does_not_prove_that_it_is_gone() -> None:
    """It most likely moved it: its age is not published. But only a report ends it."""
    received = ev("received", 71, message_id="x", consumer="v", receive_count=1)
    ended = ev("deleted", 90, message_id="bad", consumer="w")
    found = ages((69_000, bad()), (72_000, [received]), (91_000, [ended]))
    assert found == [(1, True), (2, False), (2, True)]


def test_while_nobody_receives_it_is_there() -> None:
    """The last receive was its own, or is a minute old."""
    assert ages((69_000, bad()), (71_000, []), (500_000, [])) == [(1, True)] * 3
    received = ev("received", 60, message_id="x", consumer="v", receive_count=1)
    found = ages((71_000, [*bad(), received]), (119_000, []), (121_000, []))
    assert found == [(2, False), (2, False), (1, True)]
