"""What is kept in a shard's state is limited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from streaming.core.maintenance import compact
from streaming.core.settings import QueueName, Settings
from streaming.core.state.queues import T_RETRIED
from streaming.core.state.state import ShardState
from tests.core.driving import T0, event, run_steps


@pytest.mark.parametrize("order", [range(6), range(5, -1, -1)], ids=["in order", "late ones last"])
def test_the_latest_failed_batches_are_kept(order: Sequence[int]) -> None:
    """A worker of single messages fails a batch with each of them. Redeliveries from the latest are still counted."""
    failed = [event("batch", 10_000 + n, batch_id=f"b{n}", attributes={"failed": True}) for n in order]
    received = [event("received", 1_000, message_id=f"m{n}", receive_count=1, batch_id=f"b{n}") for n in range(6)]
    again = [event("received", 50_000, message_id=f"m{n}", receive_count=2) for n in range(6)]
    states: list[ShardState] = []
    with patch.object(compact, "MOST_FAILED_BATCHES", 4):
        run_steps([(2_000, received), *((20_000, [one]) for one in failed), (60_000, again)], restart=True, states=states)
    [state] = states
    assert sorted(at - T0 for at in state.failed_batches.values()) == [10_002, 10_003, 10_004, 10_005]
    assert state.queues.totals[state.queues.index[QueueName("aws_sqs", "", "orders")], T_RETRIED] == 4


def test_ids_of_forgotten_messages_are_dropped_without_packing() -> None:
    """A replay keeps its state in memory throughout. The messages that are still there keep their ids."""
    steps = []
    for n in range(40):
        at = 60_000 * n
        here = [event("sent", at, message_id=f"job-{n}-{i}") for i in range(50)]
        steps.append((at + 1_000, [*here, *(event("deleted", at + 500, message_id=f"job-{n}-{i}") for i in range(1, 50))]))
    states: list[ShardState] = []
    run_steps(steps, Settings(now_is_event_time=True, lateness_ms=60_000), states=states)
    [state] = states
    assert len(state.texts) <= 2 * len(state.rows) < 1_000
    unsettled = np.flatnonzero(state.rows["ended"] == 0)
    assert set(state.message_ids(unsettled)) == {f"job-{n}-0" for n in range(40)}


@pytest.mark.slow
@pytest.mark.parametrize("restart", [False, True])
def test_an_application_that_names_a_consumer_for_each_message_does_not_fill_the_memory(restart: bool) -> None:
    """The results of the latest are kept, those of one that works on are complete, and one that holds a message is known."""

    def work(step: int) -> list[dict[str, Any]]:
        out = []
        for n in range(20):
            at = 10_000 * step + n
            about = {"message_id": f"m{step}-{n}", "consumer": "steady" if n == 0 else f"w{step}-{n}"}
            out += [event("received", at, receive_count=1, **about), event("deleted", at + 100, **about)]
        return out

    steps = [(10_000 * step + 5_000, work(step)) for step in range(1, 60)]
    steps[0][1].append(event("received", 10_000, message_id="held", receive_count=1, consumer="holder"))
    states: list[ShardState] = []
    steps[0][1].append(event("queue_state", 9_000, attributes={"visibility_timeout_s": 3_600}))
    with patch.object(compact, "MOST_CONSUMERS", 50), patch.object(compact, "SWEPT_NAMES", 10):
        merged = run_steps(steps, restart=restart, states=states, fewest_tombstones=1)[-1]
    [state], [summary] = states, merged.queues.values()
    assert len(state.consumers) <= 2 * 50 + 20
    results = {consumer: known.finished for consumer, known in summary.consumer_results.items()}
    assert results["steady"] == 59
    assert results["w59-19"] == 1
    assert "w1-19" not in results
    assert [held.consumer for held in summary.consumers] == ["holder"]


@pytest.mark.parametrize("connected", [True, False])
def test_the_consumers_of_a_queue_that_were_reported_last_are_followed(connected: bool) -> None:
    """However many a client names by subscribing again and again; those of other queues are not affected."""
    about: dict[str, Any] = {"attributes": {"connected": connected, "prefetch": 1, "dispatched": 0}}
    reported = [event("consumer_state", 1_000 + n, consumer=f"c{n:02}", **about) for n in range(30)]
    other = event("consumer_state", 1, "payments", consumer="p", **about)
    with patch.object(compact, "MOST_DEPARTED", 5), patch.object(compact, "MOST_CONNECTED", 5):
        steps = [(2_000, [*reported[10:20], other, *reported[:10]]), (3_000, reported[20:]), (4_000, [])]
        merged = run_steps(steps, restart=True)[-1]
    assert {name.queue: sorted(summary.consumer_states) for name, summary in merged.queues.items()} == {
        "orders": [f"c{n}" for n in range(25, 30)],
        "payments": ["p"],
    }
