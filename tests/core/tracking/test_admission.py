"""The number of queues and collectors is limited: what is tracked is exact, the rest is counted."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.core.settings import QueueRule, Settings
from streaming.core.state.queue_table import QueueTable
from tests.core.driving import T0, event, run_steps
from tests.core.reference import Model, Wire
from tests.core.test_against_reference import DEAD_LETTER_QUEUES, MAX_RECEIVES, STATES, VISIBILITY_MS, expected, lifecycles, said

LIMITED = Settings(max_queues=4, max_collectors=2)
SHARDS = pytest.mark.parametrize("shards", [1, 3])


def _one_shot_queues(count: int) -> list[Wire]:
    return [event("sent", n, f"one-shot-{n:03d}", message_id=f"m{n}") for n in range(count)]


def _names(merged: Any) -> set[str]:
    return {name.queue for name in merged.queues}


@pytest.mark.simulation
@settings(max_examples=15)
@given(data=st.data())
def test_tracked_queues_are_exact_while_others_are_left_out(data: st.DataObject) -> None:
    """However their events are mixed and cut into steps, over any number of shards, after restarts."""
    events = data.draw(lifecycles())
    others = _one_shot_queues(data.draw(st.integers(1, 6)))
    mixed = data.draw(st.permutations([*events[len(STATES) :], *others, *others]))
    cut = data.draw(st.integers(0, len(mixed)))
    steps = [(0, STATES), (0, mixed[:cut]), (0, mixed[cut:]), (300_000, [])]
    shards, restart = data.draw(st.sampled_from([1, 2, 5])), data.draw(st.booleans())
    merged = run_steps(steps, LIMITED, shards=shards, restart=restart)[-1]
    model = Model(VISIBILITY_MS, MAX_RECEIVES, DEAD_LETTER_QUEUES)
    model.tell(events)
    assert not any(name.startswith("one-shot") for name in _names(merged))
    for queue, words in said(merged).items():
        assert words == expected(model, queue, T0 + 300_000), queue
    assert merged.invalid_total == {"too_many_queues": 2 * len(others)}
    assert merged.events_total["accepted"] == len(events)
    assert merged.events_total["invalid"] == 2 * len(others)


@SHARDS
def test_every_shard_tracks_the_same_queues(shards: int) -> None:
    """Each message of a tracked queue is in it, whichever shard it went to, though most shards saw none of its first batch."""
    first = [event("sent", 0, f"q{n}", message_id="m") for n in range(3)]
    more = [event("sent", n, queue, message_id=f"m{n}") for n in range(40) for queue in ("q0", "q3", "q4", "orders.fifo")]
    merged = run_steps([(0, first), (100, more)], LIMITED, shards=shards)[-1]
    depths = {name.queue: summary.numbers["visible"] for name, summary in merged.queues.items()}
    assert depths == {"q0": 41, "q1": 1, "q2": 1, "orders.fifo": 40}
    assert merged.invalid_total == {"too_many_queues": 80}


@SHARDS
def test_a_move_to_a_queue_beyond_the_limit_still_ends_the_message(shards: int) -> None:
    """The source counts it as dead-lettered; a move from such a queue still arrives."""
    few = Settings(max_queues=1)
    steps = [
        (0, [event("sent", 0, message_id="a"), event("received", 1, message_id="a")]),
        (10, [event("dead_lettered", 2, message_id="a", to_queue="dead")]),
        (20, [event("dead_lettered", 3, "elsewhere", message_id="b", to_queue="orders")]),
    ]
    [(name, summary)] = run_steps(steps, few, shards=shards)[-1].queues.items()
    assert name.queue == "orders"
    assert (summary.total("dead_lettered"), summary.numbers["visible"]) == (1, 1)


@SHARDS
def test_a_dead_letter_queue_beyond_the_limit_is_not_tracked(shards: int) -> None:
    """Whether the broker names it or the configuration does."""
    reported = event("queue_state", 0, attributes={"kind": "standard", "dead_letter_queue": "dead"})
    rule = QueueRule("orders", dead_letter_queue="dead")
    for limited in (Settings(max_queues=1), Settings(max_queues=1, rules=(rule,))):
        assert _names(run_steps([(0, [reported])], limited, shards=shards)[-1]) == {"orders"}


@SHARDS
def test_the_queues_that_reports_name_are_tracked_in_the_order_of_their_names(shards: int) -> None:
    """As far as there is room, whichever queue names them and however many reports on one queue came in the step."""
    states = [
        event("queue_state", 2, "a", attributes={"kind": "standard", "dead_letter_queue": "dead-3"}),
        event("queue_state", 1, "b", attributes={"kind": "standard", "dead_letter_queue": "dead-2"}),
        event(
            "queue_state", 3, "b", attributes={"kind": "standard", "redrive_task": {"status": "RUNNING", "to_queue": "dead-1"}}
        ),
    ]
    merged = run_steps([(5, states)], LIMITED, shards=shards)[-1]
    assert {name.queue: summary.dead_letter for name, summary in merged.queues.items()} == {
        "a": False,
        "b": True,
        "dead-1": False,
        "dead-2": True,
    }


def test_the_queues_that_the_reports_of_a_step_name_are_added_together() -> None:
    """Adding copies the table: a step with thousands of new dead-letter queues took minutes."""
    reports = [event("queue_state", 0, f"q{n}", attributes={"kind": "standard", "dead_letter_queue": f"d{n}"}) for n in range(50)]
    with patch.object(QueueTable, "add", autospec=True, side_effect=QueueTable.add) as add:
        merged = run_steps([(0, reports)])[-1]
    assert len(merged.queues) == 100
    assert add.call_count == 2


@SHARDS
def test_collectors_beyond_the_limit_are_counted(shards: int) -> None:
    """Those known go on; a place is free again when one was silent for a day."""
    day_ms = 25 * 3_600_000

    def beat(at_ms: int, name: str) -> Wire:
        return event("heartbeat", at_ms, "", consumer=name)

    steps = [(0, [beat(0, "a"), beat(0, "b"), beat(0, "c")]), (5, [beat(5, "a"), beat(5, "d")])]
    later = [(day_ms, [beat(day_ms, "a")]), (day_ms + 5, [beat(day_ms + 5, "d")])]
    merged = run_steps([*steps, *later], LIMITED, shards=shards)
    assert merged[1].collectors == {"a": T0 + 5, "b": T0}
    assert merged[1].invalid_total == {"too_many_collectors": 2}
    assert set(merged[-1].collectors) == {"a", "d"}
