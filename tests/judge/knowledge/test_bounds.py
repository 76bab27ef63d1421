"""The two counting bounds, compared with simulated queues that serve in any order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.judge.history.window import COLUMN, FIELDS, Window
from streaming.judge.knowledge.bounds import send_bound, settlement_bound, standstill_bound

STEP_MS = 10_000


def simulated(sends: list[int], departures: list[int], seed: int | None) -> tuple[Window, list[int]]:
    """Return samples of a queue that gets `sends[i]` messages in step i and loses up to `departures[i]`.

    These are chosen at random, or without a `seed` are the oldest.

    Also returns the send times of the remaining messages.
    """
    rng = np.random.default_rng(seed)
    waiting: list[int] = []
    values, sent, departed = [], 0, 0
    for i, (n, m) in enumerate(zip(sends, departures, strict=True)):
        at = (i + 1) * STEP_MS
        waiting += [at] * n
        sent += n
        gone = min(m, len(waiting))
        for _ in range(gone):
            waiting.pop(0 if seed is None else int(rng.integers(len(waiting))))
        departed += gone
        row = [0] * len(FIELDS)
        for name, value in (
            ("present", 1),
            ("sent", sent),
            ("departed", departed),
            ("counted_at", at),
            ("counted_visible", len(waiting)),
        ):
            row[COLUMN[name]] = value
        values.append(row)
    at_ms = np.array([(i + 1) * STEP_MS for i in range(len(sends))], dtype=np.int64)
    return Window(at_ms, np.array(values, dtype=np.int64)), waiting


STEPS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=40)


@pytest.mark.simulation
@settings(max_examples=300)
@given(steps=STEPS, seed=st.integers(0, 10_000))
def test_a_settlement_bound_is_never_younger_than_the_truth(steps: list[tuple[int, int]], seed: int) -> None:
    """Whatever the order of service, the oldest remaining message was there at that time."""
    past, left = simulated([n for n, _ in steps], [m for _, m in steps], seed)
    for exact in (True, False):
        bound = settlement_bound(past, 1, minus=0, exact=exact)
        assert bound is None or (left and min(left) <= bound)


@pytest.mark.simulation
@settings(max_examples=300)
@given(steps=STEPS, seed=st.integers(0, 10_000))
def test_a_send_bound_is_never_younger_than_the_truth(steps: list[tuple[int, int]], seed: int) -> None:
    """Only the counted number of all sent messages is left, and at the youngest these are the newest."""
    past, left = simulated([n for n, _ in steps], [m for _, m in steps], seed)
    for exact in (True, False):
        bound = send_bound(past, len(left), 0, exact=exact)
        assert bound is None or (left and min(left) <= bound)


def test_without_consumers_both_bounds_come_close() -> None:
    """A minute of work, then no consumer: the age is exact to the interval of the samples."""
    past, left = simulated([3] * 60, [3] * 6 + [0] * 54, 1)
    oldest = min(left)
    assert settlement_bound(past, 1, minus=0, exact=True) == oldest
    sent = send_bound(past, len(left), 0, exact=True)
    assert sent is not None
    assert oldest <= sent <= oldest + 2 * STEP_MS


def polled(past: Window, every: int) -> Window:
    """Return the same samples with the broker's count of every n-th only, known until the next one."""
    values = past.values.copy()
    latest = np.arange(len(past)) // every * every
    for name in ("counted_at", "counted_visible"):
        values[:, COLUMN[name]] = past[name][latest]
    return Window(past.at, values)


@pytest.mark.parametrize("every", [3, 6])
@pytest.mark.parametrize("exact", [True, False])
def test_while_a_backlog_drains_a_send_bound_allows_for_what_left_since_the_count(every: int, exact: bool) -> None:
    """Six messages leave in each step, and one is sent: those left at the end were sent after those of the latest count."""
    sends, departures = [6] * 40 + [1] * 40, [1] * 40 + [6] * 40
    found = 0
    for until in range(40 + 3 * every, 80):
        past, left = simulated(sends[:until], departures[:until], None)
        counts = polled(past, every)
        bound = send_bound(counts, int(counts["counted_visible"][-1]), 0, exact=exact)
        assert bound is None or (left and min(left) <= bound), until
        found += bound is not None
    assert found


def test_of_a_backlog_that_does_not_shrink_an_old_count_is_as_good_as_a_new_one() -> None:
    """Two messages are sent in each step, and two leave."""
    past, left = simulated([12] + [2] * 60, [0] + [2] * 60, None)
    counted = int(past["counted_visible"][-1])
    assert len(left) == counted
    assert send_bound(polled(past, 6), counted, 0, exact=True) == send_bound(past, counted, 0, exact=True) is not None


OUTAGE = st.lists(st.integers(0, 6), min_size=1, max_size=30)


@pytest.mark.simulation
@settings(max_examples=300)
@given(steps=STEPS, outage=OUTAGE, counted_in=st.integers(0, 30), error=st.floats(-0.05, 0.05), seed=st.integers(0, 10_000))
def test_a_standstill_bound_is_never_younger_than_the_truth(
    steps: list[tuple[int, int]], outage: list[int], counted_in: int, error: float, seed: int
) -> None:
    """Whichever count of an outage is used, however inexact or old: nothing has left since it was true."""
    sends, departures = [n for n, _ in steps] + outage, [m for _, m in steps] + [0] * len(outage)
    past, left = simulated(sends, departures, seed)
    true = len(steps) - 1 + min(counted_in, len(outage))
    counted = round(int(past["counted_visible"][true]) * (1 + error))
    for late in range(min(9, len(past) - true)):
        bound = standstill_bound(past, counted, int(past.at[true + late]), 0)
        assert bound is None or (left and min(left) <= bound)


def test_a_standstill_bound_stays_near_the_truth_however_long_the_outage() -> None:
    """The send bound loses a twentieth of the outage, because it counts the whole backlog."""
    past, left = simulated([3] * 400, [3] * 6 + [0] * 394, 1)
    early = standstill_bound(past, int(past["counted_visible"][12]), int(past.at[12]), 0)
    late = send_bound(past, len(left), 0, exact=False)
    assert early is not None
    assert late is not None
    assert early - min(left) <= 2 * STEP_MS
    assert late - min(left) > 15 * STEP_MS


def test_no_send_from_before_the_reports_were_complete_is_part_of_a_standstill_bound() -> None:
    """Unreported sends would make the newest ones appear older than they are."""
    past, _ = simulated([3] * 20, [0] * 20, 1)
    assert standstill_bound(past, 30, int(past.at[15]), int(past.at[4])) is not None
    assert standstill_bound(past, 30, int(past.at[15]), int(past.at[9])) is None
