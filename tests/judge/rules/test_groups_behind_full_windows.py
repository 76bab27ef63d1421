"""A broker with message groups gives all of a group to one consumer: a head that nobody received waits until it has room."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.judge.findings.signals import SignalChange
from tests.contract.replaying import ev
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

HOT_FROM_S, UNTIL_S = 300, 1_500
OWNED = ("a", "b", "c")
"""Groups of consumer c1, as is the busy one."""


def one_at_a_time(*, prefetch: int | None = 1, hangs: bool = False) -> list[dict[str, Any]]:
    """Two consumers, a message of two seconds each. At 300 s, 300 messages of one group arrive, then one of each every 100 s.

    Until then each group has a message every ten seconds. With `hangs`, c1 does not finish the first message of the busy group.
    """
    mq = {"system": "activemq", "ordered": True}
    out: list[dict[str, Any]] = []

    def message(group: str, number: int, at_s: float, *, consumer: str, begin_s: float, end_s: float) -> None:
        about = {"message_id": f"{group}{number}", "group": group, "sequence": str(len(out) + 1)}
        out.append(ev("sent", at_s, **about))
        if begin_s <= UNTIL_S:
            out.append(ev("received", begin_s, consumer=consumer, receive_count=1, **about))
        if begin_s <= UNTIL_S and end_s <= UNTIL_S:
            out.append(ev("deleted", end_s, consumer=consumer, **about))

    for number, at_s in enumerate(range(1, HOT_FROM_S, 10)):
        for i, group in enumerate(OWNED):
            message(group, number, at_s, consumer="c1", begin_s=at_s + 2 * i, end_s=at_s + 2 * i + 2)
    for number, at_s in enumerate(range(3, UNTIL_S, 10)):
        message("z", number, at_s, consumer="c2", begin_s=at_s, end_s=at_s + 2)
    free_s: float = float("inf") if hangs else HOT_FROM_S + 600
    for number in range(300):
        begin_s: float = HOT_FROM_S + 2 * number
        hung: dict[str, float] = {"begin_s": HOT_FROM_S if not number else free_s, "end_s": free_s}
        message("hot", number, HOT_FROM_S, consumer="c1", **(hung if hangs else {"begin_s": begin_s, "end_s": begin_s + 2}))
    for number, at_s in enumerate(range(HOT_FROM_S + 5, HOT_FROM_S + 400, 100)):
        for i, group in enumerate(OWNED):
            begin_s = free_s + 2 * (len(OWNED) * number + i)
            message(group, 100 + number, at_s, consumer="c1", begin_s=begin_s, end_s=begin_s + 2)
    state = {"connected": True} | ({"prefetch": prefetch} if prefetch else {})
    for at_s in range(0, UNTIL_S, 30):
        out += [ev("consumer_state", at_s, consumer=name, attributes=state) for name in ("c1", "c2")]
    return [event | mq for event in sorted(out, key=lambda event: event["at"])]


def stuck(events: list[dict[str, Any]]) -> list[SignalChange]:
    """Return each group that is said to be stuck."""
    changes = judged(in_steps(events, 15, UNTIL_S)).changes
    return [c for c in changes if c.finding.key.signal == "GroupStuck" and c.status == "firing"]


def test_a_group_whose_consumer_works_off_another_group_is_not_stuck() -> None:
    """An import fills one group; others of its consumer wait ten minutes, and nothing is wrong with any of them."""
    found = stuck(one_at_a_time())
    assert {c.finding.key.group for c in found} == set(OWNED)
    assert not any(c.finding.alerting for c in found)
    assert all("waits for room in the prefetch window" in c.finding.evidence["summary"] for c in found)


def test_a_group_that_waits_for_a_hung_consumer_is_stuck_and_names_it() -> None:
    """The consumer hangs over a message of another group: the head is not received, because nobody else may have it."""
    found = {c.finding.key.group: c.finding for c in stuck(one_at_a_time(hangs=True))}
    assert set(found) == {"hot", *OWNED}
    for group in OWNED:
        finding = found[group]
        assert finding.alerting
        assert finding.severity == "critical"
        named = [finding.evidence.get(name) for name in ("blocking_consumer", "blocking_message_id")]
        assert named == ["c1", "hot0"]
        assert "waits for c1" in finding.evidence["summary"]


def test_where_windows_are_not_reported_a_head_that_is_not_received_is_stuck() -> None:
    """Nothing says that its consumer has no room."""
    loud = [c.finding for c in stuck(one_at_a_time(prefetch=None)) if c.finding.alerting]
    assert {finding.key.group for finding in loud} == set(OWNED)
