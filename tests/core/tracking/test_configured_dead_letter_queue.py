"""A dead-letter queue that only the settings name is one, as if its source queue reported it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streaming.core.events.packet import empty_packet
from streaming.core.settings import QueueName, QueueRule, Settings
from streaming.core.state.state import ShardState
from streaming.core.track import track
from tests.core.driving import event, run_steps
from tests.judge.driving import SETTINGS, Step, judged

ORDERS, DEAD = (QueueName("aws_sqs", "", queue) for queue in ("orders", "orders-dead"))
RECEIVES = [event("received", 1_000 + 40_000 * n, message_id="m", receive_count=n + 1) for n in range(3)]
THERE = event("received", 410_000, "orders-dead", message_id="m", receive_count=4)


def configured(pattern: str) -> Settings:
    return replace(SETTINGS, rules=(QueueRule(pattern, max_receive_count=3, dead_letter_queue="orders-dead"),))


@pytest.mark.parametrize("pattern", ["orders", "orders*"], ids=["the source", "both queues"])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_message_received_from_a_configured_dead_letter_queue_has_moved(pattern: str, shards: int) -> None:
    """A pattern that matches both queues does not make the second one its own dead-letter queue."""
    steps: list[Step] = [(100_000, [event("sent", 0, message_id="m"), *RECEIVES]), (410_000, [THERE]), (720_000, [])]
    found = judged(steps, configured(pattern), shards=shards, restart=True)
    queues = {view.queue: view for view in found.snapshots[-1].queues}
    assert (queues["orders-dead"].is_dead_letter_queue, queues["orders-dead"].tracked, queues["orders"].tracked) == (True, 1, 0)
    assert queues["orders"].totals["dead_lettered"] == 1
    firing = [(at, signal) for at, signal, status, _ in found.changes_seen() if status == "firing"]
    assert firing == [(100_000, "PoisonMessage"), (410_000, "DeadLetterArrived")]


def test_one_that_is_configured_later_is_one_from_then_on() -> None:
    """The source queue was known before, and the dead-letter queue was not."""
    states: list[ShardState] = []
    run_steps([(100_000, [event("sent", 0, message_id="m")])], SETTINGS, states=states)
    assert DEAD not in states[0].queues.index
    state = ShardState.unpack(states[0].pack())
    state, _ = track(state, empty_packet(), state.now + 1_000, configured("orders"))
    assert state.queues[state.queues.index[DEAD]].dead_letter
    assert not state.queues[state.queues.index[ORDERS]].dead_letter
