"""A recording in the order and at the times of its events' arrival, as a live job reads them.

A file holds only when things happened; a simulation knows when they were reported. So a late event arrives late, and an event
of a sender whose clock is ahead is dated in the future when it arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lab.report import Event
from sources.wire import decode_records, encode_ndjson
from streaming.core.events.ahead import clamp_future_times
from streaming.core.settings import Settings
from streaming.replay.recording import Recording


class ArrivedEvent(NamedTuple):
    """An event and its time of arrival in epoch milliseconds."""

    came_ms: int
    event: Event


def in_arrival_order(arrivals: Sequence[ArrivedEvent], settings: Settings) -> Recording:
    """Return the recording for a replay in which each event takes effect on arrival. `arrivals` are in order."""
    decoded = decode_records([encode_ndjson([a.event for a in arrivals])])
    if decoded.invalid:
        raise ValueError(f"the simulator wrote an event that cannot be read: {decoded.invalid[0]}")
    came = np.array([a.came_ms for a in arrivals], dtype=np.int64)
    order = np.argsort(decoded.line, kind="stable")
    events = clamp_future_times(decoded.events.take(pa.array(order)), came, settings.skew_allowance_ms)
    return Recording(events, came, unreadable=[], late={}, ordered_queues=frozenset())
