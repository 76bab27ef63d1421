"""A queue is known to be a dead-letter queue by what is reported about itself: its source queues, or a redrive task.

SQS accepts a task only for a dead-letter queue.
"""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import QueueName
from tests.core.driving import T0, event, run_steps
from tests.judge.driving import SETTINGS, judged

RUNNING = {"status": "RUNNING", "started_at": T0, "moved": 0, "to_move": 9}
STARTED = {"status": "RUNNING", "task_id": "t-1"}


def reported(task: object, at: int = 0) -> dict[str, Any]:
    """Return a report on the queue `parked`, whose source queue reports nothing."""
    return event("queue_state", at, "parked", attributes={"kind": "standard", "redrive_task": task})


@pytest.mark.parametrize(
    ("task", "dead"),
    [
        (RUNNING, True),
        (STARTED, True),
        ({**RUNNING, "status": "COMPLETED"}, True),
        ({**RUNNING, "status": "FAILED", "failure_reason": "CouldNotDetermineMessageSource"}, True),
        (None, False),
        ({}, False),
        ("RUNNING", False),
    ],
    ids=["runs", "just started by an application", "completed", "failed", "no task", "nothing known of it", "not a task"],
)
@pytest.mark.parametrize("shards", [1, 3])
def test_a_queue_with_a_redrive_task_is_a_dead_letter_queue(task: object, dead: bool, shards: int) -> None:
    """In every shard, whichever comes first: the report or the message, whose first receive shows that it arrived there."""
    received = event("received", 1_000, "parked", message_id="m", receive_count=5)
    for steps in ([(0, [reported(task)]), (2_000, [received])], [(1_000, [received]), (2_000, [reported(task, at=1_500)])]):
        *_, merged = run_steps(steps, SETTINGS, shards=shards, restart=True)
        queue = merged.queues[QueueName("aws_sqs", "", "parked")]
        assert (queue.dead_letter, queue.total("arrived"), len(merged.arrivals)) == (dead, dead, dead)


@pytest.mark.parametrize("task", [RUNNING, None], ids=["a task", "no task"])
def test_its_messages_are_judged_as_dead_letters(task: object) -> None:
    """They are no stalled backlog, and the first to be lost is announced."""
    sent = [event("sent", 1_000, "parked", message_id=f"m{n}") for n in range(9)]
    state = event("queue_state", 0, "parked", attributes={"kind": "standard", "retention_s": 3_600, "redrive_task": task})
    found = judged([(t, [state, *sent] if not t else []) for t in range(0, 3_000_000, 60_000)])
    assert bool(found.firing("DeadLetterExpiring")) is (task is not None)
    assert bool(found.firing("QueueStalled")) is (task is None)


def named(sources: object, at: int = 0, visible: int = 9) -> dict[str, Any]:
    """Return a collector's report on the queue `parked`, whose source queue is not watched."""
    counts = {"visible": visible, "in_flight": 0, "delayed": 0}
    return event("queue_state", at, "parked", attributes={"kind": "standard", "dead_letter_sources": sources} | counts)


@pytest.mark.parametrize(
    ("sources", "dead"),
    [(["orders"], True), (["orders", "refunds"], True), ([], False), (None, False), ("orders", False)],
    ids=["one", "two", "none", "nothing known of them", "not a list"],
)
def test_a_queue_that_names_its_sources_is_a_dead_letter_queue(sources: object, dead: bool) -> None:
    """Counted alone, what waits there is no stalled backlog, and what comes is announced."""
    found = judged([(t, [named(sources, t, visible=9 if t < 1_200_000 else 12)]) for t in range(0, 1_800_000, 60_000)])
    seen = {signal for _, signal, status, _ in found.changes_seen() if status == "firing"}
    assert found.snapshots[-1].queues[0].status == ("ok" if dead else "stopped")
    assert ("QueueStalled" in seen) is not dead
    assert ("DeadLetterArrived" in seen) is dead
