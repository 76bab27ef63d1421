"""What became of each event that was read, as a code, and how many of them there were."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streaming.core.columns import Array
from streaming.core.events.flags import AHEAD, PRIMARY
from streaming.core.state.state import ShardState

ACCEPTED, DUPLICATE, TOO_LATE, DATED_AHEAD = range(4)
"""DATED_AHEAD: accepted, but dated in the future."""
NOT_APPLIED = 4
"""Left out, and counted as invalid."""
_NAMES: Sequence[str] = ("accepted", "duplicate", "late", "ahead")
"""The totals of the shard by these codes."""


def count_results(state: ShardState, results: Array, flags: Array) -> None:
    """Add the results of events to the totals, each event once. `flags`: see `events.flags`."""
    results = np.where((results == ACCEPTED) & ((flags & AHEAD) != 0), DATED_AHEAD, results)
    counts = np.bincount(results[(flags & PRIMARY) != 0], minlength=len(_NAMES)).tolist()
    for name, n in zip(_NAMES, counts, strict=True):
        state.events_total[name] += n
