"""The distributions of how long deleted messages took, from their counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from streaming.core.columns import Array
from streaming.core.reporting.counted_durations import CountedDurations
from streaming.core.state.duration_buckets import (
    BOUNDS_MS,
    CLASSIC,
    DURATION_BUCKETS_S,
    DURATIONS,
    NATIVE,
    NATIVE_LAST,
    NATIVE_ZERO,
    SUM,
    UNDIVIDED,
)
from streaming.judge.snapshot import Duration, NativeBuckets

_CLASSICS: Final = len(DURATION_BUCKETS_S) + 1
_NATIVES: Final = NATIVE_LAST - NATIVE_ZERO + 1
_SLOTS: Final = _CLASSICS + _NATIVES + 1
"""Of a kind: the classic buckets, the native ones, the sum of what is only in classic ones. A last slot takes the rest."""


def _slots() -> tuple[Array, Array]:
    """Return, per key of `duration_buckets`, the slot in which it counts for the classic, and for the native histogram."""
    classic, native = (np.full(2 * UNDIVIDED << 8, len(DURATIONS) * _SLOTS) for _ in range(2))
    for kind in range(len(DURATIONS)):
        key, undivided, slot = kind << 8, kind + UNDIVIDED << 8, kind * _SLOTS
        classic[key : key + len(BOUNDS_MS)] = slot + CLASSIC
        native[key : key + len(BOUNDS_MS)] = slot + _CLASSICS + NATIVE - NATIVE_ZERO
        classic[undivided : undivided + _CLASSICS] = slot + np.arange(_CLASSICS)
        native[undivided + SUM] = slot + _SLOTS - 1
    return classic, native


_CLASSIC_SLOT, _NATIVE_SLOT = _slots()


def durations(counted: CountedDurations, totals: Mapping[str, int]) -> dict[str, Duration]:
    """Return the distributions by name of DURATIONS, where anything was counted. `totals`: values by name of TOTALS."""
    keys, counts = counted.columns()
    if not len(keys):
        return {}
    slots = np.concatenate([_CLASSIC_SLOT[keys], _NATIVE_SLOT[keys]])
    # A double is exact up to 2^53: 285,000 years of milliseconds.
    filled = np.bincount(slots, weights=np.concatenate([counts, counts]), minlength=len(DURATIONS) * _SLOTS + 1).astype(np.int64)
    found = {}
    for name, own in zip(DURATIONS, filled[:-1].reshape(len(DURATIONS), _SLOTS), strict=True):
        classic, native = tuple(own[:_CLASSICS].tolist()), own[_CLASSICS:-1]
        if any(classic):
            at = native.nonzero()[0]
            sum_ms = totals[f"{name}_ms"]
            buckets = NativeBuckets.of(at + NATIVE_ZERO, native[at])
            found[name] = Duration(classic, sum_ms / 1000, buckets, (sum_ms - int(own[-1])) / 1000)
    return found
