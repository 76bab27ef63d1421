"""A message that serves as a lock: each consumer holds it for a while and gives it back, and nobody ever deletes it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

HELD_S, FREE_S, TURNS = 60, 10, 8

Events = list[dict[str, Any]]


def lock() -> Events:
    """Return turns of a minute each, and a last one that does not end."""
    out = [ev("queue_state", 0, attributes={"visibility_timeout_s": 3_600}), ev("sent", 0, message_id="lock")]
    for n in range(TURNS + 1):
        at, about = 1 + n * (HELD_S + FREE_S), {"message_id": "lock", "consumer": f"w{n % 2}"}
        out.append(ev("received", at, receive_count=n + 1, **about))
        if n < TURNS:
            out.append(ev("released", at + HELD_S, **about))
    return out


def slow(events: Events, until_s: int) -> list[tuple[int, str]]:
    """Return when SlowConsumer began and ended, in seconds."""
    found = judged(in_steps(events, 5, until_s), restart=True)
    changes = [c for c in found.changes if c.finding.key.signal == "SlowConsumer"]
    return [((c.at_ms - ev("x", 0)["at"]) // 1000, c.status) for c in changes]


def test_its_holder_is_slow_only_if_it_has_it_for_longer_than_the_others() -> None:
    """The first two turns show for how long it is usually held. Each turn of more than half a minute was called slow."""
    last_at = 1 + TURNS * (HELD_S + FREE_S)
    usual_limit_s = 10 * HELD_S
    changes = slow(lock(), last_at + usual_limit_s + 60)
    known_at = 1 + 2 * (HELD_S + FREE_S)
    assert [status for at, status in changes if at <= known_at] == ["firing", "resolved"] * 2
    ((at, status),) = [change for change in changes if change[0] > known_at]
    assert status == "firing"
    assert usual_limit_s <= at - last_at <= usual_limit_s + 5
