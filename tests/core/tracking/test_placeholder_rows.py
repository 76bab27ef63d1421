"""Dead letters inferred in a FIFO queue are rows of its dead-letter queue until an event shows the message itself."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.events.packet import empty_packet
from streaming.core.maintenance.reshard import reshard
from streaming.core.reporting.merge import merge
from streaming.core.settings import QueueName, Settings
from streaming.core.state.state import ShardState
from streaming.core.track import track
from tests.core.driving import T0, event, run_steps
from tests.judge.test_shards import inferred_in_fifo

DEAD, SOURCE = QueueName("aws_sqs", "", "d.fifo"), QueueName("aws_sqs", "", "q.fifo")
INFERRED = [(200_000, inferred_in_fifo(6))]
BAD = [f"bad{i}" for i in range(6)]
RETENTION_MS = 86_400_000
OVER = 10_000 + 40_000 + 30_000
"""When the first message's last window ended, in milliseconds after T0."""

Steps = list[tuple[int, list[dict[str, Any]]]]
pytestmark = pytest.mark.parametrize("shards", [1, 2, 5])


def seen(message_id: str, at: int) -> dict[str, Any]:
    """Return a receive from the dead-letter queue that names the source."""
    about = {"message_id": message_id, "group": "g", "receive_count": 3, "from_queue": "q.fifo"}
    return event("received", at, "d.fifo", **about)


def dead_letters(steps: Steps, shards: int) -> tuple[int, int]:
    """Return how many messages are in the dead-letter queue after the steps, and how many ever arrived in it."""
    summary = run_steps([*INFERRED, *steps], shards=shards, restart=True)[-1].queues[DEAD]
    return summary.numbers["visible"] + summary.numbers["in_flight"], summary.total("arrived")


def test_it_is_listed_and_expires_by_its_own_clock(shards: int) -> None:
    """The age and the retention of a FIFO dead letter count from the move."""
    merged = run_steps(INFERRED, shards=shards, restart=True)[-1]
    summary = merged.queues[DEAD]
    assert (summary.numbers["visible"], summary.numbers["dead_letters"], summary.total("arrived")) == (6, 6, 6)
    assert merged.queues[SOURCE].total("dead_lettered") == 6
    assert summary.oldest[0] == T0 + OVER
    assert summary.numbers["expires_at"] == T0 + OVER + RETENTION_MS
    assert sorted(a.message_id for a in merged.arrivals if a.queue == DEAD) == BAD
    assert {a.source for a in merged.arrivals if a.queue == DEAD} == {"q.fifo"}


def test_its_own_events_take_its_place(shards: int) -> None:
    """Whether the move is reported, or shown by a receive: it arrived once."""
    reported = event("dead_lettered", 250_000, "q.fifo", to_queue="d.fifo", message_id="bad1", group="g1")
    assert dead_letters([(300_000, [seen("bad0", 260_000), reported])], shards) == (6, 6)
    deleted = event("deleted", 300_000, "d.fifo", message_id="bad0", group="g")
    assert dead_letters([(300_000, [seen("bad0", 260_000)]), (400_000, [deleted, seen("bad0", 260_000)])], shards) == (5, 6)


def test_it_ends_when_it_is_moved_back(shards: int) -> None:
    """Under its own id: the message is in the source queue again."""
    back = event("redriven", 260_000, "d.fifo", to_queue="q.fifo", message_id="bad0", new_message_id="bad0", group="g0")
    assert dead_letters([(300_000, [back])], shards) == (5, 6)


def test_it_ends_with_a_purge_with_counts_and_with_retention(shards: int) -> None:
    """All of these reach every shard."""
    assert dead_letters([(300_000, [event("purged", 250_000, "d.fifo")])], shards) == (0, 6)
    empty = {"visible": 0, "in_flight": 0, "delayed": 0}
    zeros = [event("queue_state", at, "d.fifo", attributes=empty) for at in range(250_000, 1_300_000, 30_000)]
    assert dead_letters([(1_300_000, zeros)], shards) == (0, 6)
    assert dead_letters([(RETENTION_MS + 200_000, [])], shards) == (0, 6)


@pytest.mark.parametrize("to", [1, 3])
def test_it_moves_with_its_source_to_another_number_of_shards(shards: int, to: int) -> None:
    """An event that shows it later still finds it."""
    states: list[ShardState] = []
    run_steps(INFERRED, shards=shards, states=states)
    moved = [ShardState.unpack(state.pack()) for state in reshard(states, to, Settings())]
    before = merge([track(state, empty_packet(), T0 + 200_000, Settings())[1] for state in moved], Settings())
    assert (before.queues[DEAD].numbers["dead_letters"], before.queues[DEAD].total("arrived")) == (6, 6)
    after = run_steps([(300_000, [seen("bad0", 260_000)])], shards=to, states=moved)[-1]
    assert (after.queues[DEAD].numbers["dead_letters"], after.queues[DEAD].total("arrived")) == (6, 6)
