"""Counts of many queues added at once give the same as adding each count to a list of its queue."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.core.settings import QueueName
from streaming.core.state import counts as counts_module
from streaming.core.state.queue_table import COUNTS, QueueTable
from streaming.core.state.queues import Depth

QUEUES = 4
MOST = 6
"""In place of MOST_COUNTS."""
LATELY_MS = 300_000
MINUTE_MS = 60_000


@pytest.fixture(autouse=True, scope="module")
def few_counts() -> Iterator[None]:
    """Few counts are kept of a queue."""
    with patch.object(counts_module, "MOST_COUNTS", MOST):
        yield


class OneQueue:
    """The counts of one queue, the obvious way."""

    def __init__(self) -> None:
        self.depths: list[Depth] = []
        self.empty_from = 0

    def add(self, counts: list[Depth], keep_since: int) -> None:
        self.depths = sorted({*self.depths, *counts})
        while (len(self.depths) > 2 and self.depths[1].at < keep_since) or len(self.depths) > MOST:
            oldest = self.depths.pop(0)
            self.empty_from = (self.empty_from or oldest.at) if oldest.unsettled == 0 else 0

    def columns(self) -> dict[str, int]:
        if not self.depths:
            return dict.fromkeys(COUNTS, 0) | {"counted_most": -1, "empty_since": -1}
        latest, since = self.depths[-1], self.empty_from
        for depth in self.depths:
            since = (since or depth.at) if depth.unsettled == 0 else 0
        none = [depth.at for depth in self.depths if depth.visible == 0]
        first = max((at for at in none[:-2] if at <= none[-1] - LATELY_MS), default=0)
        return {
            "counted_at": latest.at,
            "counted_visible": latest.visible,
            "counted_in_flight": latest.in_flight,
            "counted_delayed": latest.delayed,
            "counted_most": max(depth.unsettled for depth in self.depths if depth.at >= latest.at - LATELY_MS),
            "empty_since": since if latest.unsettled == 0 else -1,
            "without_visible_from": first,
            "without_visible_until": none[-1] if first else 0,
        }


MINUTES = st.integers(1, 12)
COUNT = st.builds(
    lambda m, v, f, d: Depth(m * MINUTE_MS, v, f, d), MINUTES, st.integers(0, 2), st.integers(0, 1), st.integers(-1, 1)
)
STEP = st.tuples(st.dictionaries(st.integers(0, QUEUES - 1), st.lists(COUNT, max_size=4), max_size=QUEUES), MINUTES)


@pytest.mark.slow
@given(st.lists(STEP, max_size=8), st.booleans())
def test_counts_added_at_once_equal_counts_added_one_by_one(
    steps: list[tuple[dict[int, list[Depth]], int]], stored: bool
) -> None:
    table, obvious = QueueTable(), [OneQueue() for _ in range(QUEUES)]
    table.add([QueueName("aws_sqs", "eu-west-1", f"queue-{n}") for n in range(QUEUES)])
    for counts, minute in steps:
        queues = np.array(sorted(counts), dtype=np.int64)
        flat = [(queue, depth) for queue, depths in counts.items() for depth in depths]
        owner = np.array([queue for queue, _ in flat], dtype=np.int64)
        rows = np.array([depth for _, depth in flat], dtype=np.int64).reshape(len(flat), len(Depth._fields))
        table.add_depths(queues, np.full(len(queues), minute * MINUTE_MS), owner, rows)
        for queue, depths in counts.items():
            obvious[queue].add(depths, minute * MINUTE_MS)
        if stored:
            table = QueueTable.unpack(table.pack())
    assert_same(table, obvious)


@given(st.lists(st.lists(COUNT, max_size=5), min_size=QUEUES, max_size=QUEUES), MINUTES)
def test_forgetting_late_counts_leaves_those_before(counts: list[list[Depth]], minute: int) -> None:
    table, obvious = QueueTable(), [OneQueue() for _ in range(QUEUES)]
    table.add([QueueName("aws_sqs", "eu-west-1", f"queue-{n}") for n in range(QUEUES)])
    for queue, depths in enumerate(counts):
        one, rows = np.array([queue]), np.array(depths, dtype=np.int64).reshape(len(depths), len(Depth._fields))
        table.add_depths(one, np.array([0]), np.full(len(depths), queue), rows)
        obvious[queue].add([depth for depth in depths if depth.at <= minute * MINUTE_MS], 0)
    table.forget_depths_after(minute * MINUTE_MS)
    assert_same(table, obvious)


def assert_same(table: QueueTable, obvious: list[OneQueue]) -> None:
    for number, queue in enumerate(obvious):
        assert table.depths(number) == queue.depths
        assert table[number].empty_from == queue.empty_from
        assert {name: int(table.column(name)[number]) for name in COUNTS} == queue.columns()


@pytest.mark.parametrize(("queues", "kept"), [(1, 6), (2, 6), (4, 3), (40, 2)])
def test_fewer_are_kept_of_each_of_very_many_queues(queues: int, kept: int) -> None:
    """They are part of the shard's report after every step."""
    table = QueueTable()
    table.add([QueueName("aws_sqs", "", f"q{number}") for number in range(queues)])
    owner = np.repeat(np.arange(queues), 10)
    depths = np.array([Depth(MINUTE_MS * minute, 1, 0, 0) for _ in range(queues) for minute in range(10)], dtype=np.int64)
    with patch.object(counts_module, "MOST_SHARD_COUNTS", 12), patch.object(counts_module, "FEWEST_COUNTS", 2):
        table.add_depths(np.arange(queues), np.zeros(queues, dtype=np.int64), owner, depths)
    assert [len(table.depths(number)) for number in range(queues)] == [kept] * queues
    assert table.depths(0)[-1].at == 9 * MINUTE_MS
