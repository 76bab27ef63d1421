"""The buckets in which durations are counted: fine enough for classic and for native histograms.

A classic histogram has the bounds DURATION_BUCKETS_S; a native one has 2^(k / 2^NATIVE_SCHEMA) seconds for every integer k. A
duration is counted between two neighbouring bounds of either kind, so that both histograms are exact. All buckets are
(lower, upper].

A count's key is `kind << 8 | bucket`, where the kind is an index of DURATIONS and the bucket one of BOUNDS_MS. Counts of state
versions before 7 are in classic buckets and cannot be divided: their kind is UNDIVIDED higher, the bucket that of
DURATION_BUCKETS_S, and the sum of their durations (milliseconds) is under the bucket SUM.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt
from typing import Final

import numpy as np

from streaming.core.columns import Array

DURATIONS: Final = ("wait", "processing", "sojourn")
"""Sent to first received; last received to deleted; sent to deleted."""
DURATION_BUCKETS_S: Final[tuple[float, ...]] = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3_600, 14_400, 86_400)
NATIVE_SCHEMA: Final = 2
"""Four native buckets per doubling: each is 19% wide."""

UNDIVIDED: Final = len(DURATIONS)
SUM: Final = 0xFF

_PER_DOUBLING: Final = 1 << NATIVE_SCHEMA
NATIVE_ZERO: Final = -10 * _PER_DOUBLING
"""Stands for the zero bucket: 1 ms, the shortest duration above zero, is in the native bucket after this one."""
NATIVE_LAST: Final = 32 * _PER_DOUBLING
"""2^32 s: the times of events span a hundred years, which is less."""


def native_bound_ms(index: int) -> int:
    """Return the upper bound of a native bucket, rounded down to the milliseconds in which durations are measured."""
    power: int = 1_000**_PER_DOUBLING
    power = power << index if index >= 0 else power >> -index
    for _ in range(NATIVE_SCHEMA):
        power = isqrt(power)
    return power


_CLASSIC_MS: Final = np.array([int(bound * 1000) for bound in DURATION_BUCKETS_S], dtype=np.int64)
_NATIVE_MS: Final = np.array([native_bound_ms(index) for index in range(NATIVE_ZERO, NATIVE_LAST + 1)], dtype=np.int64)
BOUNDS_MS: Final[Array] = np.union1d(_CLASSIC_MS, _NATIVE_MS)
"""The upper bound of each bucket, as the longest duration in it (milliseconds); the first bucket is that of zero."""
CLASSIC: Final[Array] = np.searchsorted(_CLASSIC_MS, BOUNDS_MS)
"""Per bucket the index in DURATION_BUCKETS_S of the classic bucket it is part of; after the last one is +Inf."""
NATIVE: Final[Array] = np.searchsorted(_NATIVE_MS, BOUNDS_MS) + NATIVE_ZERO
"""Per bucket the index of the native bucket it is part of, as Prometheus numbers them: 0 ends at 1 s."""


_BOUNDS: Final[list[int]] = BOUNDS_MS.tolist()
_MIDDLES: Final[list[int]] = np.rint(np.sqrt(np.maximum(np.append(0.0, BOUNDS_MS[:-1]), 1) * BOUNDS_MS)).astype(int).tolist()
"""The geometric middle of each bucket, in milliseconds."""


def bucket_of(took_ms: Array) -> Array:
    """Return the bucket of each duration; none is negative."""
    return np.searchsorted(BOUNDS_MS[:-1], took_ms)


def median_ms(counts: Mapping[int, float]) -> int | None:
    """Return the median of durations counted by bucket, to within a tenth; None: none is counted."""
    bucket = _bucket_of_quantile(counts, 0.5)
    return None if bucket is None else _MIDDLES[bucket]


def quantile_ms(counts: Mapping[int, float], quantile: float) -> int | None:
    """Return a duration that `quantile` of those counted by bucket do not exceed, at most a fifth longer; None: none counted."""
    bucket = _bucket_of_quantile(counts, quantile)
    return None if bucket is None else _BOUNDS[bucket]


def _bucket_of_quantile(counts: Mapping[int, float], quantile: float) -> int | None:
    missing, bucket = quantile * sum(counts.values()), None
    for bucket in sorted(counts):
        missing -= counts[bucket]
        if missing <= 0:
            break
    return bucket
