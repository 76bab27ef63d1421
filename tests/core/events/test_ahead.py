"""Events dated in the future are moved back to now and counted separately, and affect no other queue or collector."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from sources.wire import decode_records, encode_ndjson
from streaming.core.events.ahead import AHEAD_MS, clamp_future_times
from streaming.core.reporting.merge import Merged
from streaming.core.settings import QueueName, Settings
from streaming.core.state.state import ShardState
from tests.core.driving import T0, event, run_steps

YEARS = 70 * 365 * 86_400_000
"""How far ahead a clock that reads 2096 is."""
ALLOWED = Settings().skew_allowance_ms
NAME = QueueName("aws_sqs", "", "orders")

TIMES = [
    # the reported times and the resulting ones with now = 1,000,000 and an allowance of 300,000 ms: (field -> ms after T0)
    ({"at": 1_000_000}, {"at": 1_000_000}, 0, "now is now"),
    ({"at": 1_300_000}, {"at": 1_300_000}, 0, "within the allowance"),
    ({"at": 1_300_001}, {"at": 1_000_000}, 300_001, "beyond it"),
    ({"at": YEARS}, {"at": 1_000_000}, YEARS - 1_000_000, "2096"),
    ({"at": YEARS, "sent_at": YEARS - 500}, {"at": 1_000_000, "sent_at": 999_500}, YEARS - 1_000_000, "its age stays"),
    ({"at": YEARS, "sent_at": 5}, {"at": 1_000_000, "sent_at": 5}, YEARS - 1_000_000, "the broker's clock was right"),
    ({"at": 900_000, "sent_at": YEARS}, {"at": 900_000, "sent_at": 900_000}, YEARS - 1_000_000, "the broker's was not"),
    ({"at": 5, "first_received_at": YEARS}, {"at": 5, "first_received_at": 5}, YEARS - 1_000_000, "the first receive"),
    (
        {"at": YEARS, "invisible_until": YEARS + 30_000},
        {"at": 1_000_000, "invisible_until": 1_030_000},
        YEARS - 1_000_000,
        "window",
    ),
    ({"at": 5, "visible_at": 86_400_000}, {"at": 5, "visible_at": 86_400_000}, 0, "a delay of a day is no skew"),
]


@pytest.mark.parametrize(("reported", "kept", "ahead_ms", "why"), TIMES, ids=[row[3] for row in TIMES])
@pytest.mark.parametrize("among", [0, 3])
def test_times_beyond_now_are_brought_back(
    reported: dict[str, int], kept: dict[str, int], ahead_ms: int, why: str, among: int
) -> None:
    """Alone, and among correct events, which are unchanged."""
    row = event("received", 0, message_id="m") | {name: T0 + at for name, at in reported.items()}
    others = [event("received", i, message_id="o") for i in range(among)]
    table = clamp_future_times(decode_records([encode_ndjson([*others, row])]).events, T0 + 1_000_000, ALLOWED)
    found = table.to_pylist()
    assert {name: at - T0 for name, at in found[-1].items() if name in reported} == kept, why
    assert found[-1].get(AHEAD_MS, 0) == ahead_ms
    assert [one["at"] - T0 for one in found[:-1]] == list(range(among))
    assert all(one.get(AHEAD_MS, 0) == 0 for one in found[:-1])


def test_a_table_without_such_events_is_left_alone() -> None:
    """The usual case costs three maxima."""
    table = decode_records([encode_ndjson([event("sent", i, message_id=f"m{i}") for i in range(10)])]).events
    assert clamp_future_times(table, T0, ALLOWED) is table
    assert clamp_future_times(table.slice(0, 0), T0, ALLOWED).num_rows == 0
    assert clamp_future_times(table, np.full(10, T0), ALLOWED) is table


def judged(poison: dict[str, Any], shards: int = 2) -> Merged:
    """Return the report after one event from 2096 and a normal life after it."""
    steps = [
        (0, [event("sent", 0, message_id="before")]),
        (1_000, [event("queue_state", 500, attributes={"visible": 1, "in_flight": 0}), poison]),
        (2_000, [event("sent", 1_500, message_id="after"), event("heartbeat", 1_500, consumer="collector")]),
        (
            3_000,
            [
                event("received", 2_500, message_id="after"),
                event("queue_state", 2_500, attributes={"visible": 7, "in_flight": 1}),
            ],
        ),
    ]
    return run_steps(steps, shards=shards)[-1]


@pytest.mark.parametrize(
    "poison",
    [
        event("queue_state", YEARS, attributes={"visible": 99, "in_flight": 0}),
        event("purged", YEARS),
        event("heartbeat", YEARS, consumer="collector"),
        event("sent", YEARS, message_id="other"),
        event("received", YEARS, message_id="other", receive_count=1),
        event("batch", YEARS, batch_id="b", attributes={"size": 1, "failed": 1}),
        event("consumer_state", YEARS, consumer="c", attributes={"prefetch": 1}),
    ],
    ids=lambda one: one["type"],
)
@pytest.mark.parametrize("shards", [1, 3])
def test_one_event_of_2096_blinds_nothing(poison: dict[str, Any], shards: int) -> None:
    """The later reports of correct clocks count."""
    merged = judged(poison, shards)
    assert +merged.events_total == {"accepted": 6, "ahead": 1}
    summary = merged.queues[NAME]
    latest = [
        summary.last_event_at,
        summary.last_state_at,
        summary.last_received_at,
        merged.high_water,
        *merged.collectors.values(),
    ]
    assert max(latest) <= T0 + 3_000
    assert summary.attribute("visible") == 7
    assert merged.collectors == {"collector": T0 + 1_500}
    if poison["type"] != "purged":
        assert summary.numbers["visible"] + summary.numbers["in_flight"] >= 2
    else:
        assert summary.numbers["in_flight"] == 1, "the message sent after the purge is there"


def test_how_far_it_was_ahead_is_kept_for_the_skew() -> None:
    """The raw figure, in the queue's own record."""
    assert judged(event("sent", YEARS, message_id="other")).queues[NAME].skew_ms == YEARS - 1_000


def test_a_clock_that_was_set_right_is_accused_until_the_full_hour_at_most() -> None:
    """The hour's maximum is kept while other clocks are right, and cleared at the next hour."""
    hour = 3_600_000
    to_full_hour = hour - T0 % hour
    steps = [
        (1_000, [event("sent", 500, message_id="a", sent_at=T0 + 90_500)]),
        (2_000, [event("sent", 1_500, message_id="b", sent_at=T0 + 11_500)]),
        (to_full_hour - 1, []),
        (to_full_hour, [event("sent", to_full_hour - 500, message_id="c", sent_at=T0 + to_full_hour + 4_500)]),
        (to_full_hour + hour, []),
    ]
    assert [merged.queues[NAME].skew_ms for merged in run_steps(steps, shards=2)] == [90_000, 90_000, 90_000, 5_000, 0]


def test_what_it_ended_is_compacted_and_forgotten_like_the_rest() -> None:
    """An end in 2096 would keep its segment for ever."""
    states: list[ShardState] = []
    lives = [event("sent", 0, message_id="m"), event("deleted", YEARS, message_id="m")]
    hours = [(3_600_000 * n, [event("sent", 3_600_000 * n, message_id=f"n{n}")]) for n in range(1, 4)]
    run_steps([(1_000, lives), *hours], states=states, fewest_tombstones=1)
    assert states[0].messages == 3


def test_the_same_event_twice_in_a_batch_is_one() -> None:
    """All of its times are moved back alike."""
    twice = [event("deleted", YEARS, message_id="m"), event("deleted", YEARS, message_id="m")]
    merged = run_steps([(0, [event("sent", 0, message_id="m")]), (1_000, twice)])[-1]
    assert +merged.events_total == {"accepted": 1, "ahead": 1, "duplicate": 1}
    assert merged.queues[NAME].total("deleted") == 1


REPEATED = [
    event("received", YEARS, message_id="m"),
    event("received", YEARS, message_id="m", receive_count=2),
    event("received", YEARS, message_id="m", invisible_until=T0 + YEARS + 30_000),
    event("received", YEARS, message_id="m", invisible_until=T0 + 60_000),
    event("extended", YEARS, message_id="m"),
    event("released", YEARS, message_id="m"),
    event("deleted", YEARS, message_id="m"),
    event("dead_lettered", YEARS, message_id="m", to_queue="dead"),
    event("batch", YEARS, batch_id="b", attributes={"size": 1, "failed": 1}),
    event("purged", YEARS),
]


@pytest.mark.parametrize("repeated", REPEATED, ids=lambda one: "-".join([one["type"], *sorted(one.keys() - event("sent", 0))]))
@pytest.mark.parametrize("gap_ms", [0, 1_000, 400_000])
def test_the_same_event_in_another_batch_is_one(repeated: dict[str, Any], gap_ms: int) -> None:
    """Each copy is moved back to its own arrival, so they differ in their times."""
    before = [event("sent", 0, message_id="m"), event("received", 500, message_id="m", receive_count=1)]
    steps = [(500, before), (1_000, [repeated])]
    once = run_steps([*steps, (1_000 + gap_ms, [])], shards=2)[-1]
    twice = run_steps([*steps, (1_000 + gap_ms, [repeated])], shards=2)[-1]
    assert +twice.events_total == +once.events_total + Counter({"duplicate": 1})
    assert twice.queues[NAME].totals == once.queues[NAME].totals
    assert twice.queues[NAME].numbers == once.queues[NAME].numbers


def test_what_came_after_an_early_purge_stays_when_it_is_repeated() -> None:
    """The second copy is no purge of what was sent between them."""
    purge = event("purged", YEARS)
    steps = [(0, [event("sent", 0, message_id="a")]), (1_000, [purge]), (2_000, [event("sent", 1_500, message_id="b")])]
    assert run_steps([*steps, (3_000, [purge])])[-1].queues[NAME].numbers["visible"] == 1


def test_different_events_of_a_fast_clock_all_count() -> None:
    """They are seconds apart, however far ahead they are."""
    received = [(1_000 * n, [event("received", YEARS + 1_000 * n, message_id="m")]) for n in range(1, 4)]
    assert run_steps([(0, [event("sent", 0, message_id="m")]), *received])[-1].queues[NAME].total("received") == 3


@pytest.mark.parametrize(("kind", "count"), [("received", None), ("received", 80), ("released", 1), ("extended", 1)], ids=str)
def test_an_event_that_is_ahead_no_more_when_it_is_repeated_is_one(kind: str, count: int | None) -> None:
    """Its second copy keeps its time, which is within the allowance now."""
    early = event(kind, ALLOWED + 60_000, message_id="m", receive_count=count)
    merged = run_steps([(0, [event("sent", 0, message_id="m")]), (1_000, [early]), (120_000, [early])])[-1]
    assert merged.events_total["duplicate"] == 1
    assert merged.queues[NAME].total("received") == (kind == "received")


def test_in_a_replay_events_say_what_time_it_is() -> None:
    """Nothing is ahead of a `now` that comes from the events; the recording detects what is."""
    merged = run_steps([(0, [event("sent", 600_000, message_id="m")])], Settings(now_is_event_time=True))[-1]
    assert +merged.events_total == {"accepted": 1}
