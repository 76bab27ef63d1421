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


def worked_by_groups(*, receives: bool, counted: bool) -> Events:
    """Return eight groups, each with one message in work for four seconds and nine behind it."""
    out: Events = []
    for at in range(0, UNTIL_S, 4):
        for g in range(8):
            about = {"group": f"g{g}"}
            out.append(ev("sent", at + g / 10, NAME, message_id=f"{g}-{at}", sequence=str(8 * at + g), **about))
            if at >= 40:
                if receives:
                    received_at = at - 4 + g / 10 + 0.06
                    out.append(ev("received", received_at, NAME, message_id=f"{g}-{at - 40}", receive_count=1, **about))
                out.append(ev("deleted", at + g / 10 + 0.05, NAME, message_id=f"{g}-{at - 40}", **about))
    for at in range(2, UNTIL_S, 30) if counted else ():
        numbers = {"visible": min(72, 8 * (at // 4 + 1)), "in_flight": 8 if at > 38 else 0, "delayed": 0}
        out.append(ev("queue_state", at, NAME, attributes={"kind": "fifo", "visibility_timeout_s": 60, **numbers}))
    return sorted(out, key=lambda e: e["at"])


@pytest.mark.parametrize("counted", [True, False])
def test_groups_of_which_no_receive_is_reported_are_not_called_idle(counted: bool) -> None:
    """Their consumers report what they delete: which groups are in flight is not known, and no collapse of the concurrency."""
    found = judged(in_steps(worked_by_groups(receives=False, counted=counted), 10, UNTIL_S))
    assert "ConcurrencyCollapsed" not in {signal for _, signal, _, _ in found.changes_seen()}
    assert found.snapshots[-1].queues[0].groups == {"backlog": 8}


def test_groups_of_which_receives_are_reported_have_all_states() -> None:
    """The same with complete telemetry."""
    found = judged(in_steps(worked_by_groups(receives=True, counted=True), 10, 120))
    assert found.snapshots[-1].queues[0].groups == {"backlog": 8, "in_flight": 8, "blocked": 8, "hidden": 0}


def test_consumers_that_delete_during_a_collapse_are_not_said_to_do_nothing() -> None:
    """One received all messages of a group at once and works on them for an hour, while seven groups wait."""
    events = [ev("queue_state", 0, NAME, attributes={"kind": "fifo", "visibility_timeout_s": 3_600})]
    events += [sent("A", n, n / 10) for n in range(10)] + [sent(f"g{g}", n, 2 + g + n / 10) for g in range(7) for n in range(3)]
    for n in range(10):
        about = {"message_id": f"A{n}", "group": "A"}
        events += [ev("received", 1.5, NAME, receive_count=1, **about), ev("deleted", 1.5 + 60 * (n + 1), NAME, **about)]
    events = [e for e in sorted(events, key=lambda e: e["at"]) if e["at"] < ev("x", 400)["at"]]
    (found,) = judged(in_steps(events, 10, 400)).firing("ConcurrencyCollapsed")
    assert found.evidence["summary"].endswith("7 have messages waiting: consumers work one group at a time.")
