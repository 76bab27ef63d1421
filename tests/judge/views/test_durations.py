"""Distributions from counts: quantiles, and counts that an earlier release left in classic buckets."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streaming.core.reporting.counted_durations import CountedDurations
from streaming.core.state.duration_buckets import (
    DURATION_BUCKETS_S,
    NATIVE_SCHEMA,
    NATIVE_ZERO,
    SUM,
    UNDIVIDED,
    bucket_of,
)
from streaming.core.state.packed_counts import PackedCounts
from streaming.judge.views.durations import durations

NOTHING = {"wait_ms": 0, "processing_ms": 0, "sojourn_ms": 0}
SOJOURN = 2


def counted(took_ms: list[int]) -> PackedCounts:
    """Return the counts of one queue, of which some messages took so long in all."""
    return PackedCounts(b"").add(SOJOURN << 8 | bucket_of(np.array(took_ms, dtype=np.int64)))


@given(st.lists(st.integers(0, 3_000_000), min_size=1, max_size=40), st.sampled_from([0.1, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_within_one_native_bucket(took_ms: list[int], quantile: float) -> None:
    """The bucket in which the counts reach the quantile is that of the message at this rank."""
    found = durations(CountedDurations([(counted(took_ms), 0)]), NOTHING | {"sojourn_ms": sum(took_ms)})["sojourn"]
    rank = math.ceil(quantile * len(took_ms))
    exact_s = sorted(took_ms)[rank - 1] / 1000
    seen = 0
    for index, messages in found.native.to_dict().items():
        seen += messages
        if seen >= rank:
            lower, upper = (2 ** (k / 2**NATIVE_SCHEMA) for k in (index - 1, index))
            assert exact_s == 0 if index == NATIVE_ZERO else lower < exact_s <= upper
            return
    raise AssertionError("the counts do not reach the quantile")


def test_counts_of_an_earlier_release_are_in_the_classic_histogram_only() -> None:
    """They cannot be divided, so the native histogram is that of the messages since the upgrade, with their own sum."""
    kind = SOJOURN + UNDIVIDED << 8
    earlier = PackedCounts.of(np.array([kind | 3, kind | 12, kind | SUM]), np.array([10, 2, 200_000_000]))
    both = earlier.add(counted([1_500, 1_500, 0]).pairs()[0].repeat([1, 2]))
    found = durations(CountedDurations([(both, 0)]), NOTHING | {"sojourn_ms": 200_003_000})["sojourn"]
    assert found.counts == (1, 0, 0, 12, *[0] * 8, 2)
    assert found.sum_s == 200_003.0
    assert found.native.to_dict() == {NATIVE_ZERO: 1, 3: 2}
    assert found.native_sum_s == 3.0


def test_shards_are_added() -> None:
    """The same bucket may be counted in several shards."""
    parts = [(counted([700, 700, 40]), 0), (counted([700, 9_000]), 0)]
    found = durations(CountedDurations(parts), NOTHING | {"sojourn_ms": 11_140})["sojourn"]
    assert found.counts == (1, 0, 3, 0, 1, *[0] * 8)
    assert found.native.to_dict() == {-18: 1, -2: 3, 13: 1}
    assert sum(found.counts) == sum(found.native.to_dict().values())


def test_nothing_counted_is_no_distribution() -> None:
    assert durations(CountedDurations([]), NOTHING) == {}
    assert len(DURATION_BUCKETS_S) == 12
