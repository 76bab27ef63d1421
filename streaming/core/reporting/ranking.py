"""Put groups or consumers in order, and take the first ones of each queue."""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array, run_starts
from streaming.core.state.interner import Interner


def in_order(keys: tuple[Array, ...], names: Interner, numbers: Array) -> Array:
    """Return the order of some names by columns, the most important first; where all are equal, by name.

    Names decide, since their numbers differ between shards. `numbers`: the names' numbers.
    """
    order = np.lexsort(keys[::-1])
    same = ~run_starts(*(key[order] for key in keys))
    if not same.any():
        return order
    tied = order[same | np.append(same[1:], False)]
    rank = np.zeros(len(order), dtype=np.int64)
    rank[tied] = np.unique(np.array(names.words(numbers[tied]), dtype=object), return_inverse=True)[1]
    return np.lexsort((rank, *keys[::-1]))


def place_in_queue(queue: Array) -> Array:
    """Return the place of each row among those of its queue, from 0 on. `queue`: row numbers of queues, ascending."""
    place: Array = np.arange(len(queue)) - np.searchsorted(queue, queue)
    return place
