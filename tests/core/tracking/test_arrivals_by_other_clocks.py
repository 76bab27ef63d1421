"""A dead letter that is received, and even finished, before its move by the clock of who received it: it arrived once."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from streaming.core.settings import QueueName
from tests.core.driving import T0, event, run_steps
from tests.judge.driving import SETTINGS, in_steps, judged

Wire = dict[str, Any]
DAY_S = 86_400
SYSTEM = {"system": "cloudflare_queues"}
UNTIL = {"invisible_until": T0 + 900_000}
SETTING = event("queue_state", 0, "q", attributes={"dead_letter_queue": "d", "retention_s": 4 * DAY_S}) | SYSTEM


def about(type_: str, at_ms: int, queue: str, **fields: Any) -> Wire:
    """Return an event about the message."""
    return event(type_, at_ms, queue, message_id="m", **fields) | SYSTEM


def life(behind_ms: int, origin: Wire) -> list[Wire]:
    """Return how it failed at 9 s, was moved at 10 s, was received from the dead-letter queue a second later and deleted."""
    return [
        about("received", 9_000, "q", receive_count=3, sent_at=T0, consumer="w", **UNTIL),
        about("dead_lettered", 10_000, "q", to_queue="d", consumer="w"),
        about("received", 11_000 - behind_ms, "d", receive_count=1, sent_at=T0, consumer="dc", **UNTIL, **origin),
        about("deleted", 12_000 - behind_ms, "d", consumer="dc"),
    ]


def found(steps: list[list[Wire]]) -> dict[str, int]:
    """Return how often it was moved and arrived, and in how many queues it still is."""
    reports = run_steps([(0, [SETTING]), *((100_000, step) for step in steps), (100_000, [])], SETTINGS, restart=True)
    q, d = (reports[-1].queues[QueueName("cloudflare_queues", "", name)] for name in "qd")
    left = sum(queue.numbers[name] for queue in (q, d) for name in ("visible", "in_flight", "delayed"))
    totals = {"moved": q.total("dead_lettered"), "arrived": d.total("arrived"), "deleted": d.total("deleted")}
    return totals | {"left": left}


@pytest.mark.simulation
@pytest.mark.parametrize("origin", [{}, {"from_queue": "q"}], ids=["its queue alone shows it", "it names its source"])
@pytest.mark.parametrize("behind_ms", [0, 5_000, 50_000])
def test_a_move_that_is_dated_after_what_follows_it_counts_once(behind_ms: int, origin: Wire) -> None:
    """In whatever order the events are read, at once or one by one."""
    expected = {"moved": 1, "arrived": 1, "deleted": 1, "left": 0}
    for order in permutations(life(behind_ms, origin)):
        assert found([list(order)]) == expected, order
        assert found([[one] for one in order]) == expected, order


def test_a_move_long_after_a_deletion_is_another_one() -> None:
    """The message was put back in a way that nobody reported. No clocks differ that much."""
    received, moved, *seen = life(63_000, {})
    assert found([seen, [received, moved]]) == {"moved": 1, "arrived": 2, "deleted": 1, "left": 1}


def test_a_message_that_was_redriven_may_come_again_at_once() -> None:
    """Its consumer fails at once, seconds after the redrive."""
    redriven = about("redriven", 13_000, "d", to_queue="q", new_message_id="m")
    again = [about("received", 14_000, "q", receive_count=1, **UNTIL), about("dead_lettered", 15_000, "q", to_queue="d")]
    events = [*life(0, {})[:-1], redriven, *again]
    for steps in ([events], [[one] for one in events]):
        assert found(steps) == {"moved": 2, "arrived": 2, "deleted": 0, "left": 1}


def test_a_delivery_in_its_source_long_after_shows_that_it_is_back() -> None:
    """Within a minute it may be one before the move, by a clock that is ahead."""
    seen = about("received", 10_000, "d", receive_count=1, from_queue="q", **UNTIL)
    for at_ms in (70_000, 70_001):
        again = about("received", at_ms, "q", receive_count=4, **UNTIL)
        for steps in ([[seen, again]], [[seen], [again]], [[again], [seen]]):
            reports = run_steps([(0, [SETTING]), *((100_000, step) for step in steps), (100_000, [])], SETTINGS)
            q = reports[-1].queues[QueueName("cloudflare_queues", "", "q")]
            assert q.numbers["in_flight"] == (at_ms > 70_000)
            assert found(steps)["left"] == 1


def test_nothing_fires_days_later_about_a_dead_letter_that_was_finished() -> None:
    """It seemed to wait until its retention ran out."""
    state = event("queue_state", 0, "d", attributes={"retention_s": 5 * DAY_S, "is_dead_letter_queue": True}) | SYSTEM
    events = [SETTING, state, *life(5_000, {"from_queue": "q"})]
    steps = in_steps(events, 3, 60)
    changes = judged([*steps, *((hour * 3_600_000, []) for hour in range(1, 24 * 6, 6))]).changes_seen()
    assert [(signal, status) for _, signal, status, _ in changes] == [
        ("DeadLetterArrived", status) for status in ("firing", "resolved")
    ]
