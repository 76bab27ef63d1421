"""When the service's clock is trusted: a table of clocks and the times that sources reported."""

from __future__ import annotations

import pytest

from streaming.core.clock import Clock, count_confirmations, record_future_events, senders_are_ahead, tick, time_of_step

S, MIN, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
T0 = 1_700_000_000_000

Batch = tuple[int, list[int]]
"""The clock's reading, and the time up to which each source has reported; in ms after T0."""


def run(batches: list[Batch]) -> list[tuple[int, bool]]:
    """Return `now` after T0 and whether the clock is trusted, after each batch."""
    clock, out = Clock(), []
    for read, newest in batches:
        clock = tick(clock, T0 + read)
        clock = count_confirmations(clock, [T0 + at for at in newest])
        out.append((clock.now - T0, clock.trusted))
    return out


CASES: list[tuple[str, list[Batch], list[tuple[int, bool]]]] = [
    ("it ticks", [(0, []), (S, []), (2 * S, [])], [(0, True), (S, True), (2 * S, True)]),
    ("a small step back is waited for", [(0, []), (-MIN, []), (S, [])], [(0, True), (0, True), (S, True)]),
    ("a batch of 59 minutes", [(0, []), (59 * MIN, [])], [(0, True), (59 * MIN, True)]),
    ("an hour is a jump", [(0, []), (HOUR, [])], [(0, True), (0, False)]),
    (
        "30 days ahead for one batch",
        [(0, [0]), (30 * DAY, [0]), (2 * S, [2 * S])],
        [(0, True), (0, False), (2 * S, True)],
    ),
    (
        "30 days ahead for long: sources speak from before, and now goes on with the ticks",
        [(0, [0]), *((30 * DAY + n * S, [n * S, n * S]) for n in range(1, 100)), (100 * S, [])],
        [(0, True), *((n * S, False) for n in range(99)), (100 * S, True)],
    ),
    (
        "suspended for two days: sources come over one by one",
        [(0, [0, 0, 0]), (2 * DAY, [0, 0, 0]), (2 * DAY + S, [2 * DAY, 2 * DAY, 0]), (2 * DAY + 2 * S, [])],
        [(0, True), (0, False), (S, False), (2 * DAY + 2 * S, True)],
    ),
    (
        "one sender that is as far ahead as the clock is not enough",
        [(0, [0]), *((30 * DAY + n * S, [30 * DAY, n * S, n * S]) for n in range(1, 30))],
        [(0, True), *((n * S, False) for n in range(29))],
    ),
    (
        "nobody says anything: ten batches and a minute",
        [(0, []), *((DAY + n * 10 * S, []) for n in range(12))],
        [(0, True), *((n * 10 * S, False) for n in range(10)), (DAY + 100 * S, True), (DAY + 110 * S, True)],
    ),
    (
        "ten quick batches are not a minute",
        [(0, []), *((DAY + n * S, []) for n in range(30))],
        [(0, True), *((n * S, False) for n in range(30))],
    ),
    (
        "it jumps again: what was said of the first jump does not count",
        [(0, [0]), (DAY, [DAY]), (30 * DAY, [DAY]), (30 * DAY + S, [])],
        [(0, True), (0, False), (MIN, False), (MIN + S, False)],
    ),
    (
        "back by a month: sources speak from now",
        [(0, [0]), (-30 * DAY, [0]), (-30 * DAY + S, [S]), (2 * S, [])],
        [(0, True), (0, False), (S, False), (2 * S, True)],
    ),
    (
        "what was believed wrongly is taken back when the clock is right again",
        [(30 * DAY, [0]), (0, [0]), (S, [S]), (2 * S, [])],
        [(30 * DAY, True), (30 * DAY, False), (S, True), (2 * S, True)],
    ),
]


@pytest.mark.parametrize(("why", "batches", "expected"), CASES, ids=[case[0] for case in CASES])
def test_when_the_clock_is_believed(why: str, batches: list[Batch], expected: list[tuple[int, bool]]) -> None:
    """Batch by batch."""
    assert run(batches) == expected, why


def test_senders_count_as_ahead_for_ten_minutes() -> None:
    """Ten minutes after the last such event."""
    clock = record_future_events(Clock(), 0, T0)
    assert not senders_are_ahead(clock, T0)
    assert not senders_are_ahead(Clock(), 0)
    clock = record_future_events(clock, 3, T0)
    assert senders_are_ahead(record_future_events(clock, 3, T0 + 9 * MIN), T0 + 9 * MIN)
    assert not senders_are_ahead(record_future_events(clock, 3, T0 + 10 * MIN), T0 + 10 * MIN)
    assert senders_are_ahead(record_future_events(clock, 4, T0 + 10 * MIN), T0 + 10 * MIN)


@pytest.mark.parametrize(
    ("newest", "before", "expected"),
    [
        (None, T0, 10 * MIN),  # nothing is waiting
        (10 * MIN - 15 * S, 0, 10 * MIN),
        (10 * MIN - 16 * S, 0, 10 * MIN - 16 * S),
        (MIN, 3 * MIN, 3 * MIN),  # one late report among none: time stands still for one batch
        (MIN, 11 * MIN, 10 * MIN),  # the clock was set back
    ],
)
def test_a_step_behind_the_source_is_at_its_newest_event(newest: int | None, before: int, expected: int) -> None:
    """Times are after T0."""
    found = time_of_step(T0 + 10 * MIN, newest if newest is None else T0 + newest, T0 + before)
    assert found == T0 + expected
