"""Rewind to a correct `now` after a wrong one was trusted: times taken from the wrong clock become the present."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.settings import Settings
from streaming.core.state.rows import ENDS, TIMES, Rows
from streaming.core.state.state import ShardState

_TIMES = (
    "purged_at",
    "last_event_at",
    "last_received_at",
    "last_settled_at",
    "last_state_at",
    "empty_from",
    "youngest_sent_at",
    "youngest_received_at",
    "left_out_at",
    "timeout_since",
    "timeout_before_at",
)


def rewind(state: ShardState, now: int, settings: Settings) -> None:
    """Set every time in `state` that is later than `now` (epoch milliseconds) plus the allowed skew to `now`.

    What lasts until a later time lasts as long as before. Compacted messages keep their times, except that by which they are
    forgotten.
    Messages settled because of the wrong time stay settled, unless a later delivery proves otherwise.
    """
    limit = now + settings.skew_allowance_ms
    state.now = now
    state.high_water = min(state.high_water, now)
    state.collectors = {name: _at_most(at, limit, now) for name, at in state.collectors.items()}
    reported = state.consumer_states
    at, dispatched_at = (np.where(times > limit, now, times) for times in (reported.at, reported.dispatched_at))
    state.consumer_states = replace(reported, at=at, dispatched_at=dispatched_at)
    state.failed_batches = {batch: _at_most(at, limit, now) for batch, at in state.failed_batches.items()}
    state.refusals = {key: one._replace(last_at=_at_most(one.last_at, limit, now)) for key, one in state.refusals.items()}
    known = [state.queues.attributes(number) for number in range(len(state.queues))]
    for name in _TIMES:
        column = state.queues.column(name)
        column[column > limit] = now
    for number, attributes in enumerate(known):
        if any(value.at > limit for value in attributes.values()):
            attributes = {name: value._replace(at=_at_most(value.at, limit, now)) for name, value in attributes.items()}
        state.queues.put_attributes(number, attributes)
    state.queues.forget_depths_after(limit)
    _rewind_rows(state.rows, limit, now)
    state.attempts = _rewound_attempts(state.attempts, limit, now)
    of_names = (state.groups.time, state.groups.reached_at, state.consumers.time, state.consumers.failed_at)
    for times in (*of_names, state.fingerprints["at"]):
        times[times > limit] = now
    # A segment is dropped by the age of its last end.
    state.segments = [replace(segment, last_end=_at_most(segment.last_end, limit, now)) for segment in state.segments]


def _rewind_rows(rows: Rows, limit: int, now: int) -> None:
    ends = {name: _ends(rows[name], rows[since], limit, now) for name, since in ENDS.items() if rows.has(name)}
    for name in TIMES:
        if rows.has(name):
            late = nonzero(rows[name] > limit)
            rows.put(name, late, np.full(len(late), now, dtype=np.int64))
    for name, end in ends.items():
        rows.columns[name] = end


def _rewound_attempts(attempts: dict[str, Array], limit: int, now: int) -> dict[str, Array]:
    late = nonzero(attempts["at"] > limit)
    if not len(late):
        return attempts
    at = attempts["at"].copy()
    # A millisecond apart, so that each extension stays with its receive. The latest is that of the row's window.
    key = attempts["key"][late]
    at[late] = now + 1 + np.arange(len(late)) - np.searchsorted(key, key, "right")
    rewound = attempts | {"at": at, "end": _ends(attempts["end"], attempts["at"], limit, now)}
    order = np.lexsort((rewound["code"], at, rewound["key"]))
    return {name: values[order] for name, values in rewound.items()}


def _ends(end: Array, since: Array, limit: int, now: int) -> Array:
    """Return the ends of what was counted from `since`: as long after `now` as they were after a time that becomes `now`."""
    wrong = since > limit
    result: Array = np.where(wrong & (end > limit), np.where(end > since, end - since + now, now), end)
    return result


def _at_most(at: int, limit: int, now: int) -> int:
    return now if at > limit else at
