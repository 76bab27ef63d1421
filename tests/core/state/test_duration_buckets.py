"""The bounds of the buckets in which durations are counted, against the definitions of both kinds of histogram."""

from __future__ import annotations

import bisect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.core.state.duration_buckets import (
    BOUNDS_MS,
    CLASSIC,
    DURATION_BUCKETS_S,
    NATIVE,
    NATIVE_LAST,
    NATIVE_ZERO,
    SUM,
    bucket_of,
)
from tests.core.tracking.test_durations import native_bucket

HUNDRED_YEARS_MS = 4_102_444_800_000 - 978_307_200_000
"""Between the earliest and the latest time that an event can have."""


def both(took_ms: int) -> tuple[int, int]:
    """Return the classic and the native bucket in which a duration is counted."""
    bucket = int(bucket_of(np.array([took_ms]))[0])
    return int(CLASSIC[bucket]), int(NATIVE[bucket])


@pytest.mark.parametrize(
    ("took_ms", "classic", "native", "why"),
    [
        (0, 0, NATIVE_ZERO, "less than a millisecond: the zero bucket"),
        (1, 0, -39, "the shortest that is measured: 2^-10 < 0.001 ≤ 2^-9.75"),
        (100, 0, -13, "a classic bound belongs to the bucket it ends; 2^-3.25 s is 105 ms"),
        (101, 1, -13, "the classic bound divides a native bucket"),
        (105, 1, -13, "the last millisecond of that native bucket"),
        (106, 1, -12, "the first of the next"),
        (125, 1, -12, "2^-3 s is a native bound, and no classic one"),
        (126, 1, -11, "after it"),
        (500, 1, -4, "a bound of both kinds"),
        (501, 2, -3, "after it"),
        (1_000, 2, 0, "native bucket 0 ends at one second"),
        (1_001, 3, 1, "after it"),
        (86_400_000, 11, 66, "the last classic bound"),
        (86_400_001, 12, 66, "+Inf"),
        (HUNDRED_YEARS_MS, 12, 127, "the longest between the times that events can have"),
        (2**60, 12, NATIVE_LAST, "anything longer is in the last bucket"),
    ],
)  # fmt: skip
def test_a_duration_is_in_the_buckets_of_both_kinds(took_ms: int, classic: int, native: int, why: str) -> None:
    assert both(took_ms) == (classic, native), why


@given(st.integers(0, HUNDRED_YEARS_MS) | st.integers(0, 100_000))
def test_every_duration_is_in_its_buckets(took_ms: int) -> None:
    """As bisecting the classic bounds and the definition of native ones say."""
    assert both(took_ms) == (bisect.bisect_left(DURATION_BUCKETS_S, took_ms / 1000), native_bucket(took_ms))


def test_a_bucket_fits_the_byte_it_has_in_a_key() -> None:
    assert len(BOUNDS_MS) < SUM
    assert len(DURATION_BUCKETS_S) < SUM
