"""Messages that the broker no longer counts, at all or as visible, are reconciled away, in each queue by its own counts."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.core.reporting.merge import Merged
from streaming.core.settings import QueueName, QueueRule, Settings
from streaming.core.state.queues import NEVER
from tests.core.driving import T0, event, run_steps

EXAMPLES = int(os.environ.get("QUEUEWATCH_EXAMPLES", "60"))
QUEUES = ("orders", "mail", "slow-to-settle")
AFTER_S = {"orders": 300, "mail": 300, "slow-to-settle": 600}
SETTINGS = Settings(rules=(QueueRule("slow-*", {"reconcile_after_s": AFTER_S["slow-to-settle"]}),))
END_S = 1_500
Wire = dict[str, Any]


@st.composite
def lives(draw: st.DrawFn, queue: str) -> list[Wire]:
    """Return a queue's messages and the broker's counts every minute or two, with or without delayed messages."""
    events = []
    for n in range(draw(st.integers(0, 4))):
        at = 1_000 * draw(st.integers(0, END_S))
        about = {"message_id": f"{queue}-{n}"}
        later = {"visible_at": T0 + at + 1_000 * draw(st.integers(1, END_S))} if draw(st.booleans()) else {}
        events.append(event("sent", at, queue, **about, **later))
        if draw(st.booleans()):
            at += 1_000 * draw(st.integers(1, 600))
            events.append(event("received", at, queue, **about))
            if draw(st.booleans()):
                at += 1_000
                later = {"visible_at": T0 + at + 1_000 * draw(st.integers(1, END_S))} if draw(st.booleans()) else {}
                events.append(event("released", at, queue, **about, **later))
    empty_from, reported = draw(st.integers(0, 900)), draw(st.booleans())
    for at_s in range(0, END_S, 60 * draw(st.integers(1, 2))):
        counts = {"visible": int(at_s < empty_from), "in_flight": 0} | ({"delayed": 0} if reported else {})
        events.append(event("queue_state", 1_000 * at_s, queue, attributes=counts))
    return events


def _reconciled(merged: Merged, queue: str) -> tuple[int, int]:
    """Return how many were reconciled away, and how many are left."""
    summary = merged.queues[QueueName("aws_sqs", "", queue)]
    return summary.total("reconciled"), sum(summary.numbers[state] for state in ("visible", "in_flight", "delayed"))


def _expected(events: list[Wire], queue: str) -> tuple[int, int]:
    """Compute the same message by message."""
    counts = [e for e in events if e["type"] == "queue_state"]
    empty = [e["at"] for e in counts if not e["attributes"]["visible"]]
    visible_by = max((at for at in empty[:-2] if at <= empty[-1] - 1_000 * AFTER_S[queue]), default=0) - 120_000
    gone, ids = 0, {e["message_id"] for e in events if e["type"] == "sent"}
    for message_id in ids:
        own = [e for e in events if e.get("message_id") == message_id]
        heard = own[-1]["at"]
        # Of one that was received it is not known when its window ended.
        waits_since = max(heard, own[-1].get("visible_at", 0)) if own[-1]["type"] != "received" else None
        seen_waiting = waits_since is not None and waits_since <= visible_by
        if waits_since is not None and "delayed" not in counts[-1]["attributes"]:
            # Until then it may be one of those that are not counted.
            heard = waits_since
        gone += seen_waiting or counts[-1]["at"] - max(heard, min(empty, default=NEVER)) >= 1_000 * AFTER_S[queue]
    return gone, len(ids) - gone


@pytest.mark.simulation
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_every_queue_is_reconciled_by_its_own_counts(data: st.DataObject) -> None:
    """Many queues together, each with its own thresholds."""
    of_queue = {queue: data.draw(lives(queue), label=queue) for queue in QUEUES}
    events = [e for own in of_queue.values() for e in own]
    merged = run_steps([(1_000 * END_S, events)], SETTINGS, shards=data.draw(st.sampled_from([1, 2])))[-1]
    for queue, own in of_queue.items():
        assert _reconciled(merged, queue) == _expected(own, queue), queue
