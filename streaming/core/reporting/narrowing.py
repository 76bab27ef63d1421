"""A pickler that writes columns in few bytes: most numbers are small, near to one another, or the same for all queues."""

from __future__ import annotations

import pickle
from typing import Any, Final

import numpy as np
import pyarrow as pa

from streaming.core.columns import Array
from streaming.core.state.queues import NEVER

_NARROW: Final = tuple((dtype, int(np.iinfo(dtype).max)) for dtype in (np.uint8, np.uint16, np.uint32))
"""The types, each with its largest value: numpy looks it up anew each time, which takes as long as a column's minimum."""
_FEWEST: Final = 64
"""Shorter columns are written as they are."""
_WIDEST: Final = 64
"""Tables with more columns than this are written as they are."""


class Narrowing(pickle.Pickler):
    """Writes columns of integers and of text in as few bytes as their values need. `pickle.loads` restores them."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.ndarray and value.dtype.kind in "iu" and value.size >= _FEWEST:
            if value.ndim == 1:
                return _narrowed(value)
            if value.ndim == 2 and value.shape[1] <= _WIDEST:
                # Those of a queue table are together in memory, and need no copy.
                return _side_by_side, tuple(np.ascontiguousarray(column) for column in value.T)
        if type(value) is pa.StringArray and len(value) >= _FEWEST and value.null_count == len(value):
            return pa.nulls, (len(value), pa.string())
        return NotImplemented


def _narrowed(values: Array) -> Any:
    low, high = int(values.min()), int(values.max())
    if low == high:
        return _constant, (low, values.dtype.str, values.shape)
    narrow = _narrowest(high - low)
    if narrow is np.uint8 or values.itemsize == 1:
        return _plain(values, low, narrow)
    if values[0] == low and values[-1] == high and (steps := np.diff(values)).max() <= 255 and steps.min() >= 0:
        return _ascending, (low, values.dtype.str, steps.astype(np.uint8))
    if narrow is None and values.dtype == np.int64 and (high == NEVER or low == 0):
        return _apart(values, high if high == NEVER else low)
    return _plain(values, low, narrow)


def _plain(values: Array, low: int, narrow: type[np.unsignedinteger[Any]] | None) -> Any:
    if narrow is None or np.dtype(narrow).itemsize >= values.itemsize:
        return NotImplemented
    return _widened, (low, values.dtype.str, (values - values.dtype.type(low)).astype(narrow))


def _apart(values: Array, unknown: int) -> Any:
    """Narrow times of which some are not known: they are far from all others."""
    known = values != unknown
    low, high = int(values[known].min()), int(values[known].max())
    narrow = _narrowest(high - low + 1)
    if narrow is None:
        return NotImplemented
    return _put_apart, (low - 1, unknown, ((values - (low - 1)) * known).astype(narrow))


def _narrowest(span: int) -> type[np.unsignedinteger[Any]] | None:
    return next((dtype for dtype, most in _NARROW if span <= most), None)


def _constant(value: int, dtype: str, shape: tuple[int, ...]) -> Array:
    # One number in memory, whatever the shape. It cannot be written to, and nobody writes to a report.
    return np.broadcast_to(np.array(value, dtype=dtype), shape)


def _widened(low: int, dtype: str, values: Array) -> Array:
    wide: Array = values.astype(dtype)
    wide += wide.dtype.type(low)
    return wide


def _put_apart(below: int, unknown: int, values: Array) -> Array:
    wide = _widened(below, "<i8", values)
    wide[values == 0] = unknown
    return wide


def _ascending(first: int, dtype: str, steps: Array) -> Array:
    whole = np.empty(len(steps) + 1, dtype=dtype)
    whole[0], whole[1:] = first, steps
    return np.cumsum(whole, out=whole)


def _side_by_side(*columns: Array) -> Array:
    return np.stack(columns).T
