"""A dead letter that is received again and again in its dead-letter queue was moved there once."""

from __future__ import annotations

import pytest

from streaming.core.settings import QueueName
from tests.core.driving import event, run_steps
from tests.judge.driving import SETTINGS

SOURCE, DEAD = QueueName("aws_sqs", "", "orders"), QueueName("aws_sqs", "", "dead")
HOUR_MS = 3_600_000


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("reported", [True, False], ids=["its move was reported", "known by its first receive"])
def test_every_look_at_a_dead_letter_is_no_further_move(shards: int, reported: bool) -> None:
    """Each receive names its source, which has forgotten the message by then."""
    sent = [event("sent", 0, message_id="m"), event("received", 1_000, message_id="m", receive_count=1)]
    moved = [event("dead_lettered", 60_000, message_id="m", to_queue="dead")] if reported else []
    steps = [(0, sent), (60_000, moved)]
    for n in range(1, 5):
        at = n * HOUR_MS
        looked = event("received", at, "dead", message_id="m", receive_count=n + 1, from_queue="orders")
        steps += [(at, [looked, event("released", at + 1_000, "dead", message_id="m")]), (at + HOUR_MS // 2, [])]
    *_, merged = run_steps(steps, SETTINGS, shards=shards, restart=True)
    assert merged.queues[SOURCE].total("dead_lettered") == 1
    assert merged.queues[DEAD].total("arrived") == 1
    assert merged.queues[DEAD].numbers["dead_letters"] == 1


def test_a_message_that_was_redriven_under_its_id_and_fails_again_is_moved_again() -> None:
    """Stand-ins for SQS keep the id. Its receive in the dead-letter queue shows the second move."""
    steps = []
    for n in range(2):
        at = n * 2 * HOUR_MS
        got = event("received", at + 60_000, "dead", message_id="m", receive_count=2, from_queue="orders")
        back = event("redriven", at + 120_000, "dead", message_id="m", to_queue="orders", new_message_id="m")
        steps += [(at + 60_000, [got]), (at + 120_000, [back]), (at + HOUR_MS, [])]
    *_, merged = run_steps(steps, SETTINGS, restart=True)
    assert merged.queues[SOURCE].total("dead_lettered") == 2
    assert merged.queues[DEAD].total("redriven") == 2
