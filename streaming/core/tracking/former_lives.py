"""Events of the life of a message before it was redriven back to its queue under its own id, as ElasticMQ and ActiveMQ do.

The message has started over since: what is read late of its former life is counted, and changes nothing of its life now.
"""

from __future__ import annotations

import numpy as np

from streaming.core.clock import CLOCKS_DIFFER_MS
from streaming.core.columns import Array, nonzero
from streaming.core.events.events import RECEIVED, SENT
from streaming.core.events.flags import PRIMARY
from streaming.core.state.queues import T_RECEIVED, T_SENT
from streaming.core.state.rows import F_ARRIVED, F_ENTERED, F_REDRIVEN, F_SENT_KNOWN, F_WAS_REDRIVEN
from streaming.core.state.state import ShardState
from streaming.core.tracking.apply_ends import COUNTED_ENDS
from streaming.core.tracking.dedup import fingerprint, is_new
from streaming.core.tracking.segments import Segments

_RETURNED = F_WAS_REDRIVEN | F_SENT_KNOWN | F_ENTERED


def of_former_life(state: ShardState, seg: Segments) -> Array:
    """Return which events are from before the last return of their message to its queue, which is when it counts as sent."""
    flags = state.rows.at("flags", seg.rows) & np.uint32(_RETURNED | F_ARRIVED | F_REDRIVEN)
    returned_at = np.where(flags == _RETURNED, state.rows.at("sent", seg.rows), 0)
    result: Array = seg["at"] < (returned_at - CLOCKS_DIFFER_MS)[seg.of_event]
    return result


def count_former_lives(state: ShardState, seg: Segments, former: Array) -> Array:
    """Count what happened in former lives, and return which of these events are duplicates."""
    where = nonzero(former)
    code, at = seg["code"][where], seg["at"][where]
    content = (seg["receive_count"][where] + seg["end"][where]).astype(np.uint64)
    new = is_new(state, fingerprint(seg["key"][where], at, code.astype(np.uint64), content), at)
    counted = new & ((seg["flags"][where] & PRIMARY) != 0)
    totals = ((SENT, T_SENT), (RECEIVED, T_RECEIVED), *((kind, total) for kind, _, total in COUNTED_ENDS))
    for kind, total in totals:
        state.queues.count(seg["queue"][where[counted & (code == kind)]], total)
    return ~new
