"""Counts by queue and key are those of a dictionary, packed or not."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streaming.core.state.packed_counts import PackedCounts

PAIRS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0, 1, 2, 300, 65_535])), max_size=8)


def of_queue(counts: PackedCounts, queue: int) -> dict[int, int]:
    keys, found = counts.of_queue(queue)
    assert keys.tolist() == sorted(set(keys.tolist()))
    return dict(zip(keys.tolist(), found.tolist(), strict=True))


@given(st.lists(PAIRS, max_size=5), st.booleans())
def test_counts_are_those_of_a_dictionary(steps: list[list[tuple[int, int]]], packed: bool) -> None:
    """After any additions, with or without packing in between; what was taken before does not change."""
    counts, expected = PackedCounts(b""), Counter[tuple[int, int]]()
    for added in steps:
        before, was = counts, [of_queue(counts, queue) for queue in range(7)]
        counts = counts.add(np.array([queue << 16 | key for queue, key in added], dtype=np.int64))
        expected.update(added)
        assert [of_queue(before, queue) for queue in range(7)] == was
        if packed:
            counts = pickle.loads(pickle.dumps(PackedCounts(counts.to_bytes())))
        for queue in range(7):
            assert of_queue(counts, queue) == {key: n for (q, key), n in expected.items() if q == queue}
    by_queue = PackedCounts.from_queues([of_queue(counts, queue) for queue in range(7)])
    assert [column.tolist() for column in by_queue.pairs()] == [column.tolist() for column in counts.pairs()]


def test_large_counts_are_exact() -> None:
    """Sums of milliseconds are counted like messages."""
    pairs, counts = np.array([7, 1 << 16]), np.array([2**40 + 1, 2**62])
    assert PackedCounts(PackedCounts.of(pairs, counts).to_bytes()).pairs()[1].tolist() == [2**40 + 1, 2**62]
