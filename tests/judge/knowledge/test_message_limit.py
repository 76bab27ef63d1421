"""More messages than the limit lets a shard track: the queue is known in part until counts show that all are tracked again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streaming.judge.snapshot import QueueView
from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import SETTINGS, judged

pytestmark = pytest.mark.simulation

LIMITED = replace(SETTINGS, max_messages_per_shard=50)
BURST = 200
DRAINED_S = 300
"""By then the consumer has deleted the whole burst; half of it before its send could be tracked."""


def burst(*, polled: bool) -> list[dict[str, Any]]:
    """A burst of messages that a consumer drains in five minutes, then a message every other second, each deleted after 40 s."""
    out = []
    for n in range(BURST):
        end = 10 + n * (DRAINED_S - 10) / BURST
        out += _life(f"m{n}", n / 100, end)
    for n in range(500):
        out += _life(f"later{n}", DRAINED_S + 5 + 2 * n, DRAINED_S + 45 + 2 * n)
    for at in range(5, 1_400, 5) if polled else ():
        visible = sum(e["type"] == "sent" for e in out if e["at"] <= T0 + at * 1000)
        visible -= sum(e["type"] == "deleted" for e in out if e["at"] <= T0 + at * 1000)
        attributes = {"visible": visible, "in_flight": 0, "delayed": 0, "visibility_timeout_s": 30, "retention_s": 600}
        out.append(ev("queue_state", at, "orders", attributes=attributes))
    if not polled:
        out.append(ev("queue_state", 1, "orders", attributes={"visibility_timeout_s": 30, "retention_s": 600}))
    return sorted(out, key=lambda e: e["at"])


def _life(message_id: str, sent_s: float, deleted_s: float) -> list[dict[str, Any]]:
    about = {"message_id": message_id}
    return [
        ev("sent", sent_s, "orders", **about),
        ev("received", deleted_s - 0.1, "orders", receive_count=1, consumer="w", **about),
        ev("deleted", deleted_s, "orders", consumer="w", **about),
    ]


def views(events: list[dict[str, Any]]) -> dict[int, QueueView]:
    """Return the queue's view by second."""
    steps = [(t * 1000, [e for e in events if (t - 5) * 1000 < e["at"] - T0 <= t * 1000]) for t in range(0, 1_400, 5)]
    return {(s.at_ms - T0) // 1000: s.queues[0] for s in judged(steps, LIMITED).snapshots if s.queues}


def test_the_depth_comes_from_the_broker_while_messages_are_left_out() -> None:
    """And from the messages again, once the counts agree with them."""
    seen = views(burst(polled=True))
    full = seen[20]
    assert (full.basis, full.exact_ages) == ("partial", frozenset())
    assert full.tracked <= 50
    assert "judge.max_messages_per_shard" in full.basis_reason
    assert full.visible == pytest.approx(195, abs=10)
    assert seen[1_300].basis == "messages"


def test_without_counts_the_queue_is_known_in_part_until_the_messages_left_out_have_expired() -> None:
    """Nothing else shows that they are gone."""
    seen = views(burst(polled=False))
    assert {seen[at].basis for at in range(20, 800, 60)} <= {"partial", "consumers"}
    assert seen[1_100].basis == "messages"
