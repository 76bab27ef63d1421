"""A fully reported growing backlog: counts that fall between two samples agree with it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import SETTINGS, judged

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]

QUEUE = "orders.fifo"
STUCK_FROM_S = 20


def growing(per_s: float, until_s: int, *, poll_s: int, seen: float = 1.0) -> Events:
    """Two groups in turn; at some time one gets stuck, and the other is processed at once. Counts are of all messages."""
    out, times = [], []
    for i in range(int(until_s * per_s)):
        at, name = i / per_s + 0.7, f"m{i}"
        is_left = i % 2 and at >= STUCK_FROM_S
        times.append((at, is_left))
        if i // 2 * seen % 1 >= seen:
            continue
        about = {"message_id": name, "group": "stuck" if i % 2 else "flows"}
        out.append(ev("sent", at, QUEUE, **about))
        if not is_left:
            out.append(ev("received", at + 0.1, QUEUE, receive_count=1, consumer="w", **about))
            out.append(ev("deleted", at + 0.2, QUEUE, consumer="w", **about))
    for at_s in range(3, until_s, poll_s):
        visible = sum(at <= at_s and (is_left or at_s < at + 0.1) for at, is_left in times)
        in_flight = sum(at + 0.1 <= at_s < at + 0.2 and not is_left for at, is_left in times)
        attributes = {"visibility_timeout_s": 30, "visible": visible, "in_flight": in_flight, "delayed": 0}
        out.append(ev("queue_state", at_s, QUEUE, attributes=attributes))
    return sorted(out, key=lambda e: e["at"])


def bases(events: Events, until_s: int) -> list[str]:
    """Return the basis at every step, two seconds apart."""
    steps = [(t, [e for e in events if t - 2_000 < e["at"] - T0 <= t]) for t in range(0, until_s * 1000 + 1, 2_000)]
    return [view.basis for snapshot in judged(steps, SETTINGS).snapshots for view in snapshot.queues if view.tracked]


@pytest.mark.parametrize("poll_s", [5, 7, 15])
@pytest.mark.parametrize("per_s", [1.0, 10.0, 40.0])
def test_a_growing_backlog_that_is_reported_in_full_is_known_by_its_messages(per_s: float, poll_s: int) -> None:
    """Samples are ten seconds apart: the one before a count lacks the messages sent since."""
    assert set(bases(growing(per_s, 200, poll_s=poll_s), 200)) == {"messages"}


@pytest.mark.parametrize("seen", [0.25, 0.5])
def test_a_growing_backlog_of_which_a_part_is_reported_is_recognised(seen: float) -> None:
    """Messages sent between two samples do not explain those missing throughout."""
    assert set(bases(growing(10.0, 200, poll_s=5, seen=seen), 200)[-30:]) == {"partial"}
