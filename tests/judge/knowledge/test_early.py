"""The first minutes of a queue: a few counts agree with anything, so order has to tell who else receives."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import Judged, in_steps, judged

Events = list[dict[str, Any]]


def shared(until_s: int, *, unseen: bool) -> Events:
    """A message a second, received in order by two consumers in turns; the second may be unseen."""
    out: Events = []
    for i in range(until_s):
        sent = ev("sent", i, message_id=f"m{i}")
        out.append(sent)
        if i % 2 and unseen:
            continue
        out.append(ev("received", i + 0.5, message_id=f"m{i}", receive_count=1, consumer=f"w{i % 2}", sent_at=sent["at"]))
        out.append(ev("deleted", i + 8.5, message_id=f"m{i}", consumer=f"w{i % 2}"))
    return out


def counted(n: list[int]) -> Events:
    """A poll every 30 s."""
    return [
        ev("queue_state", 30 * i, attributes={"visibility_timeout_s": 30, "visible": 0, "in_flight": k, "delayed": 0})
        for i, k in enumerate(n)
    ]


def seen(events: Events, until_s: int) -> Judged:
    """Judged every ten seconds."""
    return judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, until_s))


@pytest.mark.parametrize(("unseen", "basis"), [(False, "messages"), (True, "partial")], ids=["both seen", "one unseen"])
def test_messages_that_were_passed_over_are_not_called_known(unseen: bool, basis: str) -> None:
    """The first count is that of the empty beginning, and contradicts nothing."""
    last = seen([*shared(30, unseen=unseen), *counted([0])], 30).snapshots[-1]
    assert last.queues[0].basis == basis
    oldest = last.queues[0].oldest_ms.get("all")
    assert oldest is None or last.at_ms - oldest < 10_000, "nothing is there for longer than nine seconds"


def test_ages_are_called_exact_once_agreement_is_more_than_chance() -> None:
    """Two counts with twenty messages in all, or five minutes; before that the same ages are lower bounds."""
    found = seen([*shared(200, unseen=False), *counted([0, *[9] * 7])], 200)
    exact = {(s.at_ms - T0) // 1000: bool(s.queues[0].exact_ages) for s in found.snapshots if s.at_ms > T0}
    assert not exact[20]
    assert exact[160]
