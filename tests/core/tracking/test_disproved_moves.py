"""A message that is delivered in its source queue after it was moved to a dead-letter queue is not in the dead-letter queue."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from streaming.core.reporting.merge import Merged
from streaming.core.reporting.report import AGE_SCOPES
from streaming.core.settings import QueueName
from tests.core.driving import event, run_steps

Wire = dict[str, Any]
SENT = [event("sent", 0, message_id="m"), event("received", 1_000, message_id="m", receive_count=1)]
MOVED = event("dead_lettered", 100_000, message_id="m", to_queue="dead")


def again(at_ms: int, queue: str = "orders", **fields: Any) -> Wire:
    """The message is delivered once more."""
    return event("received", at_ms, queue, message_id="m", receive_count=4, **fields)


def tracked(merged: Merged, queue: str) -> int:
    """Return how many unsettled messages a queue has."""
    numbers = merged.queues[QueueName("aws_sqs", "", queue)].numbers
    return sum(numbers[state] for state in ("visible", "in_flight", "delayed"))


def left(events: list[Wire], shards: int = 1) -> tuple[int, int]:
    """Return how many messages the source and the dead-letter queue have after these events, a step for each."""
    *_, merged = run_steps([(0, [one]) for one in events] + [(500_000, [])], shards=shards, restart=True)
    return tracked(merged, "orders"), tracked(merged, "dead")


@pytest.mark.simulation
@pytest.mark.parametrize("shards", [1, 3])
def test_a_later_delivery_in_the_source_takes_the_dead_letter_back(shards: int) -> None:
    """Else it would expire in the dead-letter queue and page as lost. The order of the reports makes no difference."""
    for order in permutations([MOVED, again(200_000), event("deleted", 205_000, message_id="m")]):
        assert left([*SENT, *order], shards) == (0, 0)
    for order in permutations([*SENT, MOVED, again(200_000)]):
        assert left([*order], shards) == (1, 0)
    *_, merged = run_steps([(0, [*SENT, MOVED, again(200_000)])])
    assert (tracked(merged, "orders"), tracked(merged, "dead")) == (1, 0)


@pytest.mark.parametrize(
    ("later", "here_and_there"),
    [
        ([again(90_000)], (0, 1)),
        ([again(200_000), again(280_000, "dead")], (0, 1)),
        ([again(280_000, "dead"), again(200_000)], (0, 1)),
        ([again(200_000), {**MOVED, "at": MOVED["at"] + 180_000}], (0, 1)),
    ],
    ids=[
        "a delivery of before the move",
        "seen in the dead-letter queue since",
        "and reported in the other order",
        "moved again",
    ],
)
def test_what_is_in_the_dead_letter_queue_stays_there(later: list[Wire], here_and_there: tuple[int, int]) -> None:
    """Only the latest of the deliveries and moves tells where it is."""
    assert left([*SENT, MOVED, *later]) == here_and_there


def test_a_redrive_that_is_reported_is_none_of_these() -> None:
    """It was in the dead-letter queue, and left it by the redrive, whenever that is reported."""
    back = event("redriven", 150_000, "dead", message_id="m", to_queue="orders", new_message_id="m")
    for order in ([back, again(200_000)], [again(200_000), back]):
        *_, merged = run_steps([(0, [*SENT, MOVED]), *((0, [one]) for one in order)])
        summary = merged.queues[QueueName("aws_sqs", "", "dead")]
        assert tracked(merged, "dead") == 0
        assert summary.total("redriven") == 1
        assert summary.total("reconciled") - summary.total("found_later") == 0


def test_a_purge_of_the_dead_letter_queue_removed_none_of_these() -> None:
    """It was purged at a time when the message was thought to be there."""
    for order in permutations([event("purged", 150_000, "dead"), again(200_000)]):
        *_, merged = run_steps([(0, [*SENT, MOVED]), *((0, [one]) for one in order), (210_000, [])])
        assert not merged.queues[QueueName("aws_sqs", "", "dead")].purges


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("received", [True, False], ids=["received in its source queue", "not received there"])
@pytest.mark.parametrize("at_once", [True, False], ids=["in one step", "step by step"])
def test_a_dead_letter_that_was_redriven_under_its_id_and_is_seen_again_was_moved_again(
    at_once: bool, received: bool, shards: int
) -> None:
    """Its receive does not say where it comes from. It is settled in the queue where it no longer is."""
    back = event("redriven", 150_000, "dead", message_id="m", to_queue="orders", new_message_id="m")
    lived = [event("received", 160_000, message_id="m", receive_count=1)] if received else []
    events = [*SENT, MOVED, back, *lived, again(290_000, "dead")]
    steps = [(0, events)] if at_once else [(0, [one]) for one in events]
    deleted = event("deleted", 295_000, "dead", message_id="m")
    *_, before, merged = run_steps([*steps, (0, []), (310_000, [deleted])], shards=shards, restart=True)
    assert before.queues[QueueName("aws_sqs", "", "dead")].oldest[AGE_SCOPES.index("all")] == back["at"]
    assert (tracked(merged, "orders"), tracked(merged, "dead")) == (0, 0)
    assert merged.queues[QueueName("aws_sqs", "", "orders")].total("dead_lettered") == 2
    assert merged.queues[QueueName("aws_sqs", "", "dead")].total("arrived") == 2
    assert [(one.message_id, one.known_by, one.at - MOVED["at"]) for one in merged.arrivals] == [("m", "first_receive", 190_000)]


def test_a_dead_letter_that_was_redriven_under_another_id_and_is_seen_again_was_moved_once() -> None:
    """It did not leave: the original is not back in the source queue."""
    back = event("redriven", 150_000, "dead", message_id="m", to_queue="orders", new_message_id="n")
    *_, merged = run_steps([(0, [one]) for one in (*SENT, MOVED, back, again(290_000, "dead"))])
    assert merged.queues[QueueName("aws_sqs", "", "dead")].total("arrived") == 1
    assert tracked(merged, "dead") == 1


@pytest.mark.parametrize("skew_ms", [0, 500, 2_000, 59_000])
def test_a_source_whose_clock_is_ahead_does_not_take_its_dead_letter_back(skew_ms: int) -> None:
    """What two clocks date within a minute is in no certain order."""
    source = [event("received", 73_000 + skew_ms, message_id="m", receive_count=3)]
    moved = event("dead_lettered", 73_100, message_id="m", to_queue="dead")
    seen = event("received", 80_000, "dead", message_id="m", receive_count=4)
    for order in permutations([*source, moved, seen]):
        *_, merged = run_steps([(0, [*SENT]), *((0, [one]) for one in order), (500_000, [])])
        assert tracked(merged, "dead") == 1
        assert merged.queues[QueueName("aws_sqs", "", "dead")].total("arrived") == 1
        assert merged.queues[QueueName("aws_sqs", "", "dead")].total("reconciled") == 0


def test_a_dead_letter_of_which_more_receives_are_counted_was_seen_later() -> None:
    """SQS goes on counting after a move, so the clock of the source is wrong, by however much."""
    source = event("received", 250_000, message_id="m", receive_count=3)
    assert left([*SENT, again(100_000, "dead", from_queue="orders"), source])[1] == 1
    assert left([*SENT, again(100_000, "dead", from_queue="orders"), {**source, "receive_count": 5}])[1] == 0


def test_the_queue_may_become_known_as_a_dead_letter_queue_last() -> None:
    """The result is the same as in order."""
    known = event("queue_state", 500, attributes={"dead_letter_queue": "dead"})
    seen = event("received", 50_000, "dead", message_id="m", receive_count=2)
    back = event("received", 150_000, message_id="m", receive_count=3)
    found = {str([one["at"] for one in order]): left([*SENT, *order]) for order in permutations([known, seen, back])}
    assert set(found.values()) == {(1, 0)}, found


@pytest.mark.parametrize("skew_ms", [0, 5_000])
def test_a_source_of_which_only_receives_are_reported_does_not_move_its_message_again(skew_ms: int) -> None:
    """Its send time is unknown; that its clock is ahead shows no redrive."""
    known = event("queue_state", 500, attributes={"dead_letter_queue": "dead"})
    first = event("received", 73_000 + skew_ms, message_id="m", receive_count=3)
    seen = [event("received", at, "dead", message_id="m", receive_count=n) for n, at in ((4, 73_100), (5, 110_000))]
    for order in permutations([first, *seen]):
        *_, merged = run_steps([(0, [known]), *((0, [one]) for one in order), (200_000, [])])
        assert merged.queues[QueueName("aws_sqs", "", "dead")].total("arrived") == 1
