"""Deletions that were refused because the window had ended: each counts once, and changes nothing else."""

from __future__ import annotations

from itertools import permutations

import pytest

from tests.core.driving import event, run_steps

LATE = event("outlived", 40_000, "orders.fifo", message_id="m", group="g", consumer="w")
LIFE = [
    event("sent", 0, "orders.fifo", message_id="m", group="g"),
    event("received", 1_000, "orders.fifo", message_id="m", group="g", receive_count=1),
    event("received", 35_000, "orders.fifo", message_id="m", group="g", receive_count=2),
]


@pytest.mark.parametrize("shards", [1, 3])
def test_it_counts_once_in_any_order(shards: int) -> None:
    """Also if repeated, in the same step or a later one; the message stays in flight for the second consumer."""
    for order in permutations([*LIFE, LATE, LATE]):
        *_, merged = run_steps([(45_000, [one]) for one in order], shards=shards, restart=True)
        [summary] = merged.queues.values()
        assert summary.total("outlived") == 1
        assert summary.numbers["in_flight"] == 1
        assert (merged.events_total["accepted"], merged.events_total["duplicate"]) == (4, 1)


def test_a_second_delivery_may_outlive_its_window_too() -> None:
    *_, merged = run_steps([(90_000, [*LIFE, LATE, LATE | {"at": LATE["at"] + 30_000}])])
    [summary] = merged.queues.values()
    assert summary.total("outlived") == 2


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
