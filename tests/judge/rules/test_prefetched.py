"""A message in a prefetch window waits for its turn: while its consumer finishes others, neither it nor its group is stuck."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

WORK_S = 30
WINDOW = 40
"""A message is dispatched this many messages before its turn: it is held for 20 minutes."""
UNTIL_S = 5_400


def working(
    *, prefetch: int | None = WINDOW, hangs_at_s: int | None = None, left: int | None = None, groups: int = 0
) -> list[dict[str, Any]]:
    """A consumer works on one message after the other. It may hang as a whole, or leave one message and go on with the others."""
    mq = {"system": "activemq"}
    out = []
    for i in range(UNTIL_S // WORK_S + WINDOW):
        about: dict[str, Any] = {"message_id": f"m{i}"} | (
            {"group": f"g{i % groups}", "sequence": str(i), "ordered": True} if groups else {}
        )
        by: dict[str, Any] = {"consumer": "c1", **about}
        dispatched_s, finished_s = max(0, i - WINDOW) * WORK_S, (i + 1) * WORK_S
        if hangs_at_s is not None and dispatched_s > hangs_at_s:
            break
        out += [ev("sent", dispatched_s, **about), ev("received", dispatched_s + 0.1, receive_count=1, **by)]
        if i != left and (hangs_at_s is None or finished_s <= hangs_at_s):
            out.append(ev("deleted", finished_s, **by))
    for at in range(0, UNTIL_S, 60):
        state = {"connected": True} | ({"prefetch": prefetch} if prefetch else {})
        out.append(ev("consumer_state", at, consumer="c1", attributes=state))
    return [event | mq for event in sorted(out, key=lambda event: event["at"]) if event["at"] <= T0 + 1000 * UNTIL_S]


def held_too_long(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Return which messages `MessageHeldTooLong` was about, and the minute in which it fired."""
    run = judged(in_steps(events, 60, UNTIL_S))
    changes = [c for c in run.changes if c.finding.key.signal == "MessageHeldTooLong" and c.status == "firing"]
    return [(c.finding.key.message_id or "", (c.at_ms - T0) // 60_000) for c in changes]


def test_messages_that_wait_in_a_prefetch_window_are_not_held_too_long() -> None:
    """Each of them is held for 20 minutes, five more than the limit, and one is finished every 30 s."""
    assert held_too_long(working()) == []


@pytest.mark.parametrize("prefetch", [1, None], ids=["one at a time", "not reported"])
def test_without_a_prefetch_window_a_long_hold_is_work(prefetch: int | None) -> None:
    """Nothing says that the messages wait: the limit is that of all work."""
    assert held_too_long(working(prefetch=prefetch))


def test_a_message_that_others_overtake_is_held_too_long() -> None:
    """One thread of the consumer hangs: the message is held for twice as long as any other."""
    fired = held_too_long(working(left=80))
    assert {message for message, _ in fired} == {"m80"}


def test_no_extensions_are_counted_where_no_window_ends() -> None:
    """ActiveMQ keeps a message with its consumer until it is acknowledged."""
    (found,) = judged(in_steps(working(left=80), 60, UNTIL_S)).firing("MessageHeldTooLong")
    assert "extension" not in found.evidence["summary"]
    assert found.evidence["summary"].endswith("min: its consumer may be hung.")


def test_a_consumer_that_hangs_is_noticed_within_the_limit() -> None:
    """It finishes nothing for a quarter of an hour, although its messages are not held for longer than usual."""
    fired = held_too_long(working(hangs_at_s=3_600))
    assert min(minute for _, minute in fired) in (75, 76)


@pytest.mark.parametrize(
    ("fault", "stuck"),
    [
        ({}, set()),
        ({"left": 81}, {"g1"}),
        ({"hangs_at_s": 3_600}, {f"g{i}" for i in range(10)}),
        ({"prefetch": 1}, {f"g{i}" for i in range(10)}),
    ],
    ids=["works", "one thread hangs", "hangs", "one at a time"],
)
def test_a_group_whose_head_waits_in_a_prefetch_window_is_not_stuck(fault: dict[str, int], stuck: set[str]) -> None:
    """Ten groups take turns, so each moves every five minutes. The first ten messages must tell what is usual."""
    changes = judged(in_steps(working(groups=10, **fault), 60, UNTIL_S)).changes
    loud = [c.finding for c in changes if c.finding.key.signal == "GroupStuck" and c.finding.alerting and c.at_ms > T0 + 600_000]
    assert {finding.key.group for finding in loud} == stuck
