"""A message that is redriven to an ordered queue is tracked in that queue's shard, where its later events go."""

from __future__ import annotations

import pytest

from streaming.core.settings import QueueName
from tests.core.driving import event, run_steps
from tests.judge.driving import SETTINGS

JOBS, DEAD = QueueName("activemq", "", "jobs"), QueueName("activemq", "", "DLQ")
ORDERED = {"system": "activemq", "ordered": True, "group": "g"}


@pytest.mark.parametrize("new_id", [f"again-{n}" for n in range(12)])
def test_a_redrive_that_its_target_reports_starts_in_the_target_s_shard(new_id: str) -> None:
    """The step holds no other event of the queue, which would say that it keeps order."""
    sent = event("sent", 0, "jobs", message_id="m", **ORDERED)
    moved = event("dead_lettered", 20_000, "jobs", message_id="m", to_queue="DLQ", **ORDERED)
    back = event("redriven", 40_000, "jobs", message_id="m", from_queue="DLQ", new_message_id=new_id, **ORDERED)
    got = event("received", 60_000, "jobs", message_id=new_id, receive_count=1, **ORDERED)
    done = event("deleted", 61_000, "jobs", message_id=new_id, **ORDERED)
    steps = [(one["at"] - sent["at"], [one]) for one in (sent, moved, back, got, done)]
    reports = run_steps([*steps, (90_000, [])], SETTINGS, shards=5, restart=True)
    depths = [report.queues[JOBS].numbers["visible"] for report in reports]
    assert depths == [1, 0, 1, 0, 0, 0]
    dead = reports[-1].queues[DEAD]
    assert (dead.numbers["dead_letters"], dead.total("redriven"), dead.dead_letter) == (0, 1, True)
