"""A second consumer of a FIFO queue that reports nothing: the broker's counts show that the heads it received are not waiting."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]
NAME = "f.fifo"
DELAYED = 60
"""Messages that wait for later throughout: so many that the counts agree, whatever the few others do."""
HEADS = ("A", "C", "D", "E")
SENT_S, UNTIL_S = 330, 600


def sent(group: str, n: int, at_s: float, **fields: Any) -> dict[str, Any]:
    """Return a send to a group."""
    return ev("sent", at_s, NAME, message_id=f"{group}{n}", group=group, sequence=str(n), **fields)


def delayed() -> Events:
    """Return messages that become visible in an hour."""
    return [sent(f"later{n}", 0, 1, visible_at=ev("x", 3_600)["at"]) for n in range(DELAYED)]


def worked() -> Events:
    """Return four groups of which the reporting consumer always holds one message, for half a minute each."""
    out: Events = []
    for n, at in enumerate(range(10, UNTIL_S, 30)):
        for group in ("W1", "W2", "W3", "W4"):
            about = {"message_id": f"{group}{n}", "group": group, "consumer": "w"}
            out += [sent(group, n, at), ev("received", at + 0.2, NAME, receive_count=1, **about)]
            out.append(ev("deleted", at + 29.5, NAME, **about))
    return out


def counts(*, visible: int, in_flight: int) -> Events:
    """Return the broker's count every ten seconds: `visible` and `in_flight` once the heads were sent."""
    out: Events = []
    for at in range(5, UNTIL_S, 10):
        numbers = {"visible": 0, "in_flight": 4} if at < SENT_S else {"visible": visible, "in_flight": in_flight}
        numbers["delayed"] = DELAYED
        out.append(ev("queue_state", at, NAME, attributes={"kind": "fifo", "visibility_timeout_s": 90, **numbers}))
    return out


@pytest.mark.parametrize(
    ("visible", "in_flight", "stuck"),
    [(8, 4, {*HEADS}), (0, 4, set()), (4, 8, set())],
    ids=["the heads wait", "all were deleted", "an unseen consumer works"],
)
def test_heads_that_an_unseen_consumer_received_are_not_stuck(visible: int, in_flight: int, stuck: set[str]) -> None:
    """Four heads, each with a message behind it, of which no receive is reported."""
    waiting = [sent(group, n, SENT_S + n / 10) for group in HEADS for n in range(2)]
    events = [*delayed(), *worked(), *waiting, *counts(visible=visible, in_flight=in_flight)]
    found = judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, UNTIL_S))
    fired = {c.finding.key.group for c in found.changes if c.finding.key.signal == "GroupStuck" and c.status == "firing"}
    assert fired == stuck


def test_without_counts_the_order_of_groups_shows_consumers_that_do_not_report() -> None:
    """One has half of the messages: no group is stuck, and what is missing is said. The basis recovers once both report."""
    shared: Events = []
    chance = random.Random(1)
    for n, at in enumerate(range(10, 1_800, 3)):
        group = f"g{n % 12}"
        about = {"message_id": f"{group}{n}", "group": group}
        shared.append(sent(group, n, at))
        if at >= 600 or chance.random() < 0.5:
            shared += [ev("received", at + 1, NAME, receive_count=1, sequence=str(n), consumer="w", **about)]
            shared.append(ev("deleted", at + 2, NAME, consumer="w", **about))
    found = judged(in_steps(shared, 10, 1_800), restart=True)
    assert not [c for c in found.changes if c.finding.key.signal == "GroupStuck"]
    half, whole = found.snapshots[60].queues[0], found.snapshots[-1].queues[0]
    assert (half.basis, half.basis_reason) == ("partial", "ends of some messages of f.fifo are not seen")
    assert whole.basis == "messages"


def test_a_head_that_seems_not_to_be_received_is_doubted_for_a_quarter_of_an_hour() -> None:
    """Without counts, a message that an unseen consumer took is known, and older than the eleven minutes of dense samples."""
    until_s = 1_000
    events = [ev("queue_state", 0, NAME, attributes={"kind": "fifo", "visibility_timeout_s": 30})]
    for n, at in enumerate(range(0, until_s, 5)):
        about = {"message_id": f"F{n}", "group": "F", "consumer": "w"}
        events += [sent("F", n, at), ev("received", at + 0.5, NAME, receive_count=1, sequence=str(n), **about)]
        events.append(ev("deleted", at + 0.7, NAME, **about))
    about = {"message_id": "A2", "group": "A", "consumer": "w"}
    events += [sent("A", 1, 1), sent("A", 2, 2), ev("received", 4, NAME, receive_count=1, sequence="2", **about)]
    events += [ev("deleted", 4.2, NAME, **about), sent("B", 1, 620), sent("B", 2, 621)]
    found = judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, until_s))
    (fired,) = (c for c in found.changes if c.finding.key.signal == "GroupStuck")
    assert 900 <= (fired.at_ms - ev("x", 0)["at"]) / 1000 <= 960
