"""A purge ends the messages that were in the queue, and no others."""

from __future__ import annotations

import pytest

from tests.core.driving import event, run_steps


@pytest.mark.parametrize("arrives_ms", [40_000, 60_000])
def test_a_dead_letter_is_purged_only_if_it_had_arrived(arrives_ms: int) -> None:
    """It keeps its send time: it may have been sent before the purge of the dead-letter queue and have arrived after it."""
    moved = event("dead_lettered", arrives_ms, message_id="m", to_queue="dead")
    for events in (
        [event("sent", 0, message_id="m"), event("purged", 50_000, "dead"), moved],
        [moved, event("purged", 50_000, "dead")],
    ):
        *_, merged = run_steps([(70_000, [one]) for one in events], shards=2)
        (dead,) = [summary for name, summary in merged.queues.items() if name.queue == "dead"]
        assert dead.numbers["dead_letters"] == (arrives_ms > 50_000)


@pytest.mark.parametrize("deleted_ms", [5_000, 510_000])
def test_a_deletion_that_is_read_after_a_purge_is_the_end(deleted_ms: int) -> None:
    """Its consumer had finished before the purge, or finished in spite of it: the times are those of the deletion."""
    life = [event("sent", 0, message_id="m"), event("received", 1_000, message_id="m", receive_count=1)]
    deleted = event("deleted", deleted_ms, message_id="m")
    *_, merged = run_steps([(2_000, life), (501_000, [event("purged", 500_000)]), (511_000, [deleted])], restart=True)
    [summary] = merged.queues.values()
    assert (summary.total("processing_ms"), summary.total("sojourn_ms")) == (deleted_ms - 1_000, deleted_ms)
