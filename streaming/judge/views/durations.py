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
"""Of a kind: the classic buckets, the native ones, the sum of what is only in classic ones."""
_REST: Final = len(DURATIONS) * _SLOTS
"""The slot of what does not count."""
_CUTS: Final = np.array([kind * _SLOTS + _CLASSICS + end for kind in range(len(DURATIONS)) for end in (0, _NATIVES)])
_NATIVE_INDEX: Final[Array] = (np.arange(_REST + 1) % _SLOTS - _CLASSICS + NATIVE_ZERO).astype(np.int16)
"""Per slot of a native bucket its index."""


def _slots() -> tuple[Array, Array]:
    """Return, per key of `duration_buckets`, the slot in which it counts for the classic, and for the native histogram."""
    classic, native = (np.full(2 * UNDIVIDED << 8, _REST) for _ in range(2))
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
    slots, twice = np.concatenate([_CLASSIC_SLOT[keys], _NATIVE_SLOT[keys]]), np.concatenate([counts, counts])
    # A double is exact up to 2^53: 285,000 years of milliseconds.
    filled = np.bincount(slots, weights=twice, minlength=_REST + 1).astype(np.int64)
    at = filled.nonzero()[0]
    indexes, numbers, cuts = _NATIVE_INDEX[at], filled[at], at.searchsorted(_CUTS).tolist()
    found = {}
    for kind, name in enumerate(DURATIONS):
        slot, (start, stop) = kind * _SLOTS, cuts[2 * kind : 2 * kind + 2]
        classic = tuple(filled[slot : slot + _CLASSICS].tolist())
        if any(classic):
            sum_ms = totals[f"{name}_ms"]
            native = NativeBuckets.of(indexes[start:stop], numbers[start:stop])
            found[name] = Duration(classic, sum_ms / 1000, native, (sum_ms - int(filled[slot + _SLOTS - 1])) / 1000)
    return found
