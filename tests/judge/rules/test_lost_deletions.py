"""A deletion that was never reported leaves the head of an ordering group behind: the group is not stuck."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev, ms
from tests.judge.driving import in_steps, judged

Events = list[dict[str, Any]]
NAME = "f.fifo"
QUEUE = ev("queue_state", 0, NAME, attributes={"kind": "fifo", "visibility_timeout_s": 30})


def worked(group: str, n: int, at_s: float, *, until_s: float | None = None) -> Events:
    """Return a message that waits two seconds for its consumer and is deleted, or only received."""
    about = {"message_id": f"{group}{n}", "group": group, "consumer": "w"}
    out = [ev("sent", at_s, NAME, sequence=str(n), **about), ev("received", at_s + 2, NAME, receive_count=1, **about)]
    return out if until_s is None else [*out, ev("deleted", until_s, NAME, **about)]


def counts(events: Events, until_s: int) -> Events:
    """Return the broker's count every 30 s, from all that happened."""
    out = []
    for at_s in range(0, until_s, 30):
        seen = [(e["type"], e["message_id"]) for e in events if e["at"] <= ms(at_s)]
        of = {type_: {name for kind, name in seen if kind == type_} for type_ in ("sent", "received", "deleted")}
        visible, in_flight = len(of["sent"] - of["received"]), len(of["received"] - of["deleted"])
        state = {"kind": "fifo", "visibility_timeout_s": 30, "visible": visible, "in_flight": in_flight, "delayed": 0}
        out.append(ev("queue_state", at_s, NAME, attributes=state))
    return out


def stuck(events: Events, until_s: int) -> list[tuple[int, str]]:
    """Return when GroupStuck fired, in seconds, and of which group."""
    found = judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, until_s))
    fired = [c for c in found.changes if c.finding.key.signal == "GroupStuck" and c.status == "firing"]
    return [(round(c.at_ms / 1000) % 100_000, str(c.finding.key.group)) for c in fired]


@pytest.mark.simulation
@pytest.mark.parametrize("reported", [True, False], ids=["reported", "lost"])
def test_a_head_whose_group_moves_on_was_deleted(reported: bool) -> None:
    """Later messages of its group are received, which is only possible once it is gone."""
    head = worked("A", 0, 10, until_s=15 if reported else None)
    flow = [e for n, at in enumerate(range(20, 600, 20)) for e in worked("B", n, at, until_s=at + 5)]
    later = [e for n, at in enumerate(range(50, 600, 90), start=1) for e in worked("A", n, at, until_s=at + 12)]
    assert not stuck([QUEUE, *head, *flow, *later], 600)


def test_a_head_that_was_given_back_before_the_rest_of_its_batch_was_deleted_is_stuck() -> None:
    """The later message was received together with it, so its deletion shows nothing."""
    flow = [e for n, at in enumerate(range(20, 300, 20)) for e in worked("B", n, at, until_s=at + 5)]
    batch = [e for n in range(2) for e in worked("A", n, 10, until_s=20 if n else None)]
    given_back = ev("released", 15, NAME, message_id="A0", group="A", consumer="w", visible_at=ms(15))
    waits = ev("sent", 30, NAME, message_id="A2", group="A", sequence="2")
    found = stuck([QUEUE, *batch, given_back, waits, *flow], 300)
    assert [group for _, group in found] == ["A"]


def test_a_head_that_fails_again_and_again_is_stuck() -> None:
    """Nothing of its group is settled, although others flow."""
    flow = [e for n, at in enumerate(range(20, 300, 20)) for e in worked("B", n, at, until_s=at + 5)]
    about = {"message_id": "A0", "group": "A", "consumer": "w"}
    again = [ev("received", 12 + 40 * n, NAME, receive_count=n + 1, **about) for n in range(7)]
    waits = ev("sent", 11, NAME, message_id="A1", group="A", sequence="1")
    found = stuck([QUEUE, ev("sent", 10, NAME, sequence="0", **about), *again, waits, *flow], 300)
    assert [group for _, group in found] == ["A"]


@pytest.mark.simulation
@pytest.mark.parametrize("lost_s", [(0, 0), (451, 800)], ids=["nothing lost", "six minutes lost"])
def test_groups_are_not_called_stuck_because_all_telemetry_was_lost_for_a_while(lost_s: tuple[int, int]) -> None:
    """Heads that were sent before it look as if nobody had received them, and counts do not show it at once."""
    every = [e for n, at in enumerate(range(10, 900, 40)) for group in "ABCDEFGH" for e in worked(group, n, at, until_s=at + 16)]
    reported = [e for e in [*every, *counts(every, 900)] if not ms(lost_s[0]) < e["at"] < ms(lost_s[1])]
    assert not stuck(reported, 900)
