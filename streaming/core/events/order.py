"""The order in which a step's events are applied."""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array

_CODE_BITS = 4


def message_order(key: Array, at: Array, code: Array, end: Array) -> Array:
    """Return positions ordered by message (`key`), then time, kind and `end`.

    Sorting integers is ten times faster than sorting positions by them, so each integer carries its position in its lowest bits:
    first the moments, then the keys with their rank among the moments. Where that does not fit, or two keys differ only in the
    replaced bits, positions are sorted the slow way.
    """
    n = len(key)
    bits = n.bit_length()
    first = int(at.min())
    if (int(at.max()) - first + 1) << (_CODE_BITS + bits) < 1 << 63:
        moment = ((at - first) << _CODE_BITS) | code
        by_time = np.sort(moment << bits | np.arange(n)) & ((1 << bits) - 1)
        low = np.uint64((1 << bits) - 1)
        ranked = (key[by_time] & ~low) | np.arange(n, dtype=np.uint64)
        ranked.sort()
        order: Array = by_time[(ranked & low).astype(np.int64)]
        if _is_ordered(key[order], moment[order], end[order]):
            return order
    return np.lexsort((end, code, at, key))


def _is_ordered(key: Array, moment: Array, end: Array) -> bool:
    same = key[1:] == key[:-1]
    tie = same & (moment[1:] == moment[:-1])
    return not ((key[1:] < key[:-1]) | (tie & (end[1:] < end[:-1]))).any()
