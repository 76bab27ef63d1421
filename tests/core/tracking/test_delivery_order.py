"""Receive counts order the deliveries of a message where the clocks of its consumers differ by seconds."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from streaming.core.reporting.report import RETENTION_RAN_OUT
from streaming.core.settings import QueueName
from streaming.core.state.state import ShardState
from tests.core.driving import T0, event, run_steps
from tests.judge.driving import SETTINGS, in_steps, judged

Wire = dict[str, Any]
ORDERS = QueueName("aws_sqs", "", "orders")
UNTIL = {"invisible_until": T0 + 600_000}


def got(at_ms: int, count: int | None, consumer: str, **more: Any) -> Wire:
    """Return a receive of the message."""
    numbered: Wire = {"receive_count": count} if count else {}
    return event("received", at_ms, message_id="m", consumer=consumer, **numbered, **(UNTIL | more))


def gave_back(at_ms: int, count: int | None, consumer: str) -> Wire:
    """Return a release of the message."""
    numbered: Wire = {"receive_count": count} if count else {}
    return event("released", at_ms, message_id="m", consumer=consumer, **numbered)


def deleted(at_ms: int, **more: Any) -> Wire:
    """Return its deletion."""
    return event("deleted", at_ms, message_id="m", **more)


def state(steps: list[list[Wire]]) -> tuple[str, str]:
    """Return where the message is after these steps, and who holds it."""
    summary = run_steps([(100_000, step) for step in steps], SETTINGS, restart=True)[-1].queues[ORDERS]
    where = [name for name in ("visible", "in_flight", "delayed") if summary.numbers[name]]
    return (where or ["gone"])[0], ",".join(held.consumer for held in summary.consumers)


def states_in_any_order(events: list[Wire]) -> set[tuple[str, str]]:
    """Return where it is, whatever the order in which the events are read, at once and one by one."""
    orders = list(permutations(events))
    return {state([list(order)]) for order in orders} | {state([[one] for one in order]) for order in orders}


@pytest.mark.simulation
@pytest.mark.parametrize("ahead_ms", [0, 5_000, 55_000])
def test_a_first_delivery_dated_after_the_end_of_the_second_brings_nothing_back(ahead_ms: int) -> None:
    """The first consumer's clock is ahead."""
    first = [got(ahead_ms, 1, "a"), gave_back(ahead_ms + 1_000, 1, "a")]
    assert states_in_any_order([*first, got(3_000, 2, "b"), deleted(4_000)]) == {("gone", "")}


def test_the_message_is_with_whom_it_was_delivered_to_last() -> None:
    """The second consumer, whose clock is behind, hangs."""
    events = [got(5_000, 1, "a"), gave_back(6_000, 1, "a"), got(-2_000, 2, "b")]
    assert states_in_any_order(events) == {("in_flight", "b")}


@pytest.mark.simulation
def test_of_several_earlier_deliveries_none_counts() -> None:
    """Two of them are by the clock that is ahead, and nothing contradicts their order."""
    events = [got(5_000, 1, "a"), got(20_000, 2, "a"), gave_back(21_000, 2, "a"), got(10_000, 3, "b")]
    assert states_in_any_order(events) == {("in_flight", "b")}


def test_a_lower_count_long_after_is_a_new_start() -> None:
    """A redrive that nobody reported: the counts start again. No clocks differ that much."""
    assert states_in_any_order([got(3_000, 2, "b"), deleted(4_000), got(63_001, 1, "a")]) == {("in_flight", "a")}


def test_without_counts_the_times_decide() -> None:
    """Nothing else tells which delivery was the later one."""
    assert states_in_any_order([got(3_000, 2, "b"), deleted(4_000), got(5_000, None, "a")]) == {("in_flight", "a")}
    assert states_in_any_order([got(5_000, 1, "a"), got(-2_000, 2, "b"), gave_back(6_000, None, "a")]) == {("visible", "")}


def test_the_receives_of_a_message_that_was_redriven_count_from_one_again() -> None:
    """A redrive under the same id is reported, seconds after a delivery with a higher count."""
    about = {"message_id": "m", "to_queue": "orders", "new_message_id": "m"}
    moved = event("dead_lettered", 4_000, message_id="m", to_queue="dead")
    events = [got(3_000, 3, "b"), moved, event("redriven", 10_000, "dead", **about)]
    for steps in ([[*events, got(12_000, 1, "a")]], [[one] for one in (*events, got(12_000, 1, "a"))]):
        assert state(steps) == ("in_flight", "a")
    assert state([[got(3_000, 3, "b"), event("redriven", 10_000, "dead", **about)], [got(12_000, 1, "a")]]) == ("in_flight", "a")


def test_nothing_fires_about_a_message_that_is_settled() -> None:
    """By the clock of its first consumer it was given back after the second had deleted it."""
    events = [got(3_000, 2, "b"), deleted(4_000), got(5_000, 1, "a"), gave_back(6_000, 1, "a")]
    assert judged(in_steps(events, 3, 900)).changes == []


def test_the_consumer_that_has_the_message_is_named_as_slow() -> None:
    """The one before has given it back."""
    window = {"invisible_until": T0 + 5_000_000}
    events = [got(15_000, 1, "a", **window), gave_back(16_000, 1, "a"), got(8_000, 2, "b", **window)]
    found = judged(in_steps(events, 60, 1_800)).firing("SlowConsumer")
    assert [finding.key.consumer for finding in found] == ["b"]


RETAINED = event("queue_state", 0, attributes={"visibility_timeout_s": 600, "retention_s": 345_600})


@pytest.mark.simulation
@pytest.mark.parametrize("kind", ["expired", "dropped"])
def test_a_loss_keeps_its_reason_until_it_is_known_which_delivery_was_the_last(kind: str) -> None:
    """The first delivery is dated after the loss, which without a reason would be taken for an inferred one."""
    lost = event(kind, 4_000, message_id="m", reason="poison pill")
    for order in permutations([got(5_000, 1, "a"), got(3_000, 2, "b"), lost]):
        for parts in ([list(order)], [[one] for one in order], [[order[0]], list(order[1:])], [list(order[:2]), [order[2]]]):
            steps = [(0, [RETAINED]), *((10_000 * i, part) for i, part in enumerate(parts, 1)), (60_000, [])]
            found = judged(steps, SETTINGS, restart=True).firing("MessageDropped")
            evidence = [(f.evidence["kind"], f.evidence["reason"], f.evidence["basis"]) for f in found]
            assert evidence == [(kind, "poison pill", "consumers")], parts


@pytest.mark.parametrize("read", [0, 1], ids=["before the delivery", "after the delivery"])
def test_a_later_loss_does_not_have_the_reason_of_one_that_a_delivery_disproved(read: int) -> None:
    """The message was delivered minutes after it was reported lost, and its retention ran out in the end."""
    parts = [[got(200_000, 3, "a")]]
    parts.insert(read, [event("expired", 4_000, message_id="m", reason="poison pill")])
    steps = [(0, [RETAINED]), (201_000, parts[0]), (202_000, parts[1]), (345_900_000, [])]
    summary = run_steps(steps, SETTINGS, restart=True)[-1].queues[ORDERS]
    assert [(loss.kind, loss.reason) for loss in summary.losses] == [("expired", RETENTION_RAN_OUT)]


@pytest.mark.parametrize("read", [0, 1], ids=["before the delivery", "after the delivery"])
def test_the_reason_of_a_loss_goes_when_its_message_is_compacted(read: int) -> None:
    """It was delivered again and deleted: nothing would ever remove the reason."""
    parts = [[got(200_000, 3, "a")]]
    parts.insert(read, [event("dropped", 4_000, message_id="m", reason="poison pill")])
    steps = [(201_000, parts[0]), (202_000, parts[1]), (203_000, [deleted(202_500)]), (210_000, [])]
    states: list[ShardState] = []
    run_steps(steps[:2], SETTINGS, states=states, fewest_tombstones=1)
    assert list(states[0].loss_reasons.values()) == ["poison pill"]
    states.clear()
    run_steps(steps, SETTINGS, states=states, fewest_tombstones=1)
    assert (len(states[0].rows), states[0].loss_reasons) == (0, {})
