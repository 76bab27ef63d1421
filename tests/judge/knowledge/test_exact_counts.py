"""Counts that are exact, or late from the start: what they show, and what agrees by chance."""

from __future__ import annotations

import numpy as np
import pytest

from streaming.core.state.queues import Depth
from streaming.judge.history.window import COLUMN, FIELDS, Window
from streaming.judge.knowledge.compare import compare_count
from streaming.judge.knowledge.evidence import EXACT_FOR_MS, Evidence

POLL_MS = 30_000


def compared(counts: int, *, departed_per_s: float = 0.0, in_flight: int = 0, above: int = 0) -> Evidence:
    """Compare counts that grow by a message a second, of which every send is reported, and some departures.

    They are `above` what is tracked.
    """
    at = np.arange(10_000, POLL_MS * counts + 20_001, 10_000, dtype=np.int64)
    values = np.zeros((len(at), len(FIELDS)), dtype=np.int64)
    values[:, COLUMN["sent"]] = values[:, COLUMN["unsettled"]] = at // 1000
    values[:, COLUMN["departed"]] = at / 1000 * departed_per_s
    depths = [Depth(POLL_MS * n, max(30 * n + above, 0), in_flight, 0) for n in range(1, counts + 1)]
    e = Evidence()
    for i, depth in enumerate(depths):
        compare_count(e, depths[:i], depth, Window(at, values))
        e.seen_at = depth.at
    return e


@pytest.mark.parametrize(
    ("departed_per_s", "in_flight", "exact"),
    [(0.0, 0, True), (0.25, 0, False), (0.0, 4, False)],
    ids=["nothing leaves", "some messages leave", "an unseen consumer works"],
)
def test_growth_by_the_reported_sends_shows_exact_counts_only_while_nothing_leaves(
    departed_per_s: float, in_flight: int, exact: bool
) -> None:
    """Where messages leave, a part of the sends equals the growth by chance, three times in a row once in some hours."""
    assert compared(6, departed_per_s=departed_per_s, in_flight=in_flight).counts_are_exact() is exact


@pytest.mark.parametrize(
    ("above", "exact"), [(-60, False), (-10, False), (2, True)], ids=["a minute late", "late", "one is unreported"]
)
def test_a_late_count_that_grows_by_the_sends_is_not_exact(above: int, exact: bool) -> None:
    """It is what was tracked some time before. A count of more than ever were is none of these."""
    assert compared(8, above=above).counts_are_exact() is exact


def test_counts_that_were_exact_are_so_for_ten_minutes() -> None:
    """After that, they may have become late."""
    e = compared(6)
    e.seen_at = e.exact_at + EXACT_FOR_MS + 1
    assert not e.counts_are_exact()


def test_a_first_count_that_is_a_minute_late_contradicts_nothing() -> None:
    """It is far from what is tracked at its time, and what was tracked a minute before."""
    tracked = [0, 5, 8, 11, 15, 20, 25, 25, 22, 22, 22]
    values = np.zeros((len(tracked), len(FIELDS)), dtype=np.int64)
    values[:, COLUMN["unsettled"]] = tracked
    values[:, COLUMN["sent"]] = np.maximum.accumulate(tracked)
    past = Window(np.arange(1, len(tracked) + 1, dtype=np.int64) * 10_000, values)
    depths = [Depth(at, visible, 0, 0) for at, visible in ((10_000, 0), (40_000, 0), (70_000, 0), (100_000, 11))]
    e = Evidence()
    for i, depth in enumerate(depths):
        compare_count(e, depths[:i], depth, past)
    assert (e.tracked.agreed, e.tracked.contradicted_at) == (4, 0)
