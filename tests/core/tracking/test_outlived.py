"""Deletions that were refused because the window had ended: each counts once, and changes nothing else."""

from __future__ import annotations

from itertools import permutations

import pytest

from streaming.core.maintenance.reshard import reshard
from streaming.core.settings import Settings
from streaming.core.state.state import ShardState
from tests.core.driving import event, run_steps

LATE = event("outlived", 40_000, "orders.fifo", message_id="m", group="g", consumer="w")
LIFE = [
    event("sent", 0, "orders.fifo", message_id="m", group="g"),
    event("received", 1_000, "orders.fifo", message_id="m", group="g", receive_count=1),
    event("received", 35_000, "orders.fifo", message_id="m", group="g", receive_count=2),
]


@pytest.mark.simulation
@pytest.mark.parametrize("shards", [1, 3])
def test_it_counts_once_in_any_order(shards: int) -> None:
    """Also if repeated, in the same step or a later one; the message stays in flight for the second consumer."""
    for n, order in enumerate(permutations([*LIFE, LATE])):
        repeated = (*order, LATE) if n % 2 else (LATE, *order)
        *_, merged = run_steps([(45_000, [one]) for one in repeated], shards=shards, restart=True)
        [summary] = merged.queues.values()
        assert summary.total("outlived") == 1
        assert summary.numbers["in_flight"] == 1
        assert [one.view.refused_settlements for one in summary.messages["oldest"]] == [1]
        assert (merged.events_total["accepted"], merged.events_total["duplicate"]) == (4, 1)


def test_a_second_delivery_may_outlive_its_window_too() -> None:
    *_, merged = run_steps([(90_000, [*LIFE, LATE, LATE | {"at": LATE["at"] + 30_000}])])
    [summary] = merged.queues.values()
    assert summary.total("outlived") == 2


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_of_every_message_it_is_found_in_any_number_of_shards(shards: int) -> None:
    """The messages of a queue without order are in all of them."""
    about = [{"message_id": f"m{n}", "consumer": "w"} for n in range(12)]
    events = [event("received", 1_000, receive_count=1, **one) for one in about]
    *_, merged = run_steps(
        [(45_000, [*events, *(event("outlived", 40_000, **one) for one in about)])], shards=shards, restart=True
    )
    [summary] = merged.queues.values()
    assert summary.total("outlived") == len(about)
    assert [one.view.refused_settlements for one in summary.messages["oldest"]] == [1] * len(summary.messages["oldest"])


def test_it_makes_no_message_known() -> None:
    """Another consumer may have deleted the message so long ago that it is forgotten."""
    *_, merged = run_steps([(45_000, [LATE])])
    [summary] = merged.queues.values()
    assert (summary.total("outlived"), sum(summary.numbers[state] for state in ("visible", "in_flight", "delayed"))) == (1, 0)


def test_a_late_one_is_not_counted() -> None:
    """It may be a repetition of one that is forgotten."""
    *_, merged = run_steps([(900_000, [event("heartbeat", 900_000, consumer="c")]), (900_001, [LATE])])
    assert merged.events_total["late"] == 1
    assert sum(summary.total("outlived") for summary in merged.queues.values()) == 0


def test_it_is_known_of_the_message_until_that_is_settled() -> None:
    """Far longer than events may be late, and through any number of restarts; and of a message without a row no longer."""
    states: list[ShardState] = []
    other = event("outlived", 41_000, "orders.fifo", message_id="unknown", group="g")
    later = [(at, [event("heartbeat", at, "orders.fifo", consumer="c")]) for at in range(700_000, 2_000_000, 300_000)]
    *_, merged = run_steps([(45_000, [*LIFE, LATE, other]), *later], restart=True, states=states)
    [summary] = merged.queues.values()
    assert [one.view.refused_settlements for one in summary.messages["oldest"]] == [1]
    assert len(states[0].refusals) == 1
    deleted = event("deleted", 2_000_000, "orders.fifo", message_id="m", group="g")
    last = [(at, [event("heartbeat", at, "orders.fifo", consumer="c")]) for at in (3_000_000, 3_100_000)]
    run_steps([(2_000_000, [deleted]), *last], states=states)
    assert not states[0].refusals


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_it_survives_a_change_of_the_number_of_shards(shards: int) -> None:
    states: list[ShardState] = []
    run_steps([(45_000, [*LIFE, LATE])], states=states, shards=3)
    made = reshard(states, shards, Settings())
    *_, merged = run_steps([(46_000, [])], states=made, shards=shards)
    [summary] = merged.queues.values()
    assert [one.view.refused_settlements for one in summary.messages["oldest"]] == [1]


@pytest.mark.parametrize(("receives", "outlived"), [(1, 0), (2, 1)])
def test_a_deletion_by_another_name_outlives_only_after_a_redelivery(receives: int, outlived: int) -> None:
    """One process may receive and another delete: a single delivery that ends within its window is no double work."""
    about = {"message_id": "m"}
    life = [event("received", 1_000 * n, consumer=f"receiver-{n}", receive_count=n, **about) for n in range(1, receives + 1)]
    states = [event("queue_state", 0, attributes={"visibility_timeout_s": 30})]
    *_, merged = run_steps(
        [(9_000, [*states, *life, event("deleted", 8_000, consumer="deleter" if receives == 1 else "receiver-1", **about)])]
    )
    [summary] = merged.queues.values()
    assert summary.total("outlived") == outlived
