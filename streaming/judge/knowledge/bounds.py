"""Lower bounds on the age of a queue's oldest message, proved by counting and valid for any order of service.

Each relies on a condition about the telemetry (see `evidence`) and is wrong where that condition does not hold.
"""

from __future__ import annotations

import math

import numpy as np

from streaming.core.columns import nonzero
from streaming.judge.broker_counts import COUNT_LAG_MS
from streaming.judge.history.window import Ints, Window

BOUND_ERROR_RATIO = 0.05
"""The error of a count that bounds allow for. A count beyond `COUNT_ERROR_RATIO`, which is larger, contradicts, and ends them."""
MOST_UNREPORTED_RATIO = 0.05
"""The share of sends that may be missing where receives, or the growth of a standing backlog, have shown that nearly all are
reported."""
COUNTS_OF_RATE = 5
"""How fast messages leave is taken from this many of the latest counts."""


def settlement_bound(past: Window, established_since: int, *, minus: int, exact: bool) -> int | None:
    """Return the latest time (epoch milliseconds) by which the oldest message was certainly there, or None.

    Of N messages counted at t0, no more can have left than ends were reported since. `minus` further messages are excluded (in
    flight, for the age of what is visible; poison suspects). Requires every end to be reported since `established_since`.
    `exact`: the counts have proved to be neither late nor approximate.
    """
    at = past["counted_at"]
    rows = nonzero((at > 0) & (at >= established_since))
    if not len(rows):
        return None
    counted = _smallest(past, rows, exact=exact)
    # Ends since the count, taken from the sample before it, which can only overestimate them.
    before = np.maximum(np.searchsorted(past.at, at[rows] if exact else at[rows] - COUNT_LAG_MS, side="right") - 1, 0)
    gone = past["departed"][-1] - past["departed"][before]
    left = nonzero(counted - gone - minus > 0)
    return int(at[rows[left[0]]]) if len(left) else None


def send_bound(past: Window, counted: int, established_since: int, *, exact: bool) -> int | None:
    """Return the latest time by which the oldest of `counted` messages was certainly sent, or None.

    Of all messages sent only `counted` are left, and at the youngest they are the newest ones. Fewer are left where a backlog
    drains: as many as before are taken to leave since the latest count. Requires every send to be reported since
    `established_since`.
    """
    if not exact:
        counted = int(min(counted, _latest_smallest(past)) / (1 + BOUND_ERROR_RATIO))
    sent = past["sent"]
    counted = min(counted, counted + _growth_since_count(past, exact=exact))
    if counted <= 0:
        return None
    since = sent[-1] - sent
    # The first sample since which fewer than that were sent: the oldest of them was sent before it.
    younger = nonzero(since < counted)
    if not len(younger):
        return None
    at = int(past.at[younger[0]])
    return at if at > established_since else None


def standstill_bound(past: Window, counted: int, reported_by: int, established_since: int, *, exact: bool = False) -> int | None:
    """Return the latest time by which the oldest of `counted` messages was certainly sent, or None, from a count in the past.

    It is `send_bound` at the time of that count, and holds for as long as none of those messages has left the queue. Early in an
    outage the backlog is small: so is what the error of its count costs. `reported_by`: when every send until the count had been
    reported. Requires nearly every send to be reported since `established_since`; `exact`: the count has proved to be exact, and
    the sends complete.
    """
    by = int(past.at.searchsorted(reported_by, side="left"))
    if not exact:
        counted = int(counted / (1 + BOUND_ERROR_RATIO) * (1 - MOST_UNREPORTED_RATIO))
    if by >= len(past) or counted <= 0:
        return None
    sent = past["sent"]
    # The first sample since which fewer than that were sent.
    at = int(past.at[sent.searchsorted(sent[by] - counted, side="right")])
    return at if at > established_since else None


def _growth_since_count(past: Window, *, exact: bool) -> int:
    """Return by how much the backlog has grown since the latest count, at the least (negative: it shrinks).

    The reported sends, less what leaves at the fastest rate from an earlier count to the latest. Counts that may be late and
    inexact are compared over a longer time, and what left in the time by which the latest is late is added.
    """
    at = past["counted_at"]
    counts = nonzero(np.diff(at, prepend=0))[-COUNTS_OF_RATE:]
    if not len(counts):
        return 0
    times = at[counts]
    sent = past["sent"][np.maximum(np.searchsorted(past.at, times, side="right") - 1, 0)]
    counted = _counted(past)[counts]
    between_ms = times[-1] - times
    rows = between_ms >= (1 if exact else COUNT_LAG_MS)
    left = (sent[-1] - sent + counted - counted[-1])[rows]
    per_ms = float((left / between_ms[rows]).max(initial=0.0))
    late_ms = int(past.at[-1] - times[-1]) + (0 if exact else COUNT_LAG_MS)
    return int(past["sent"][-1] - sent[-1]) - math.ceil(per_ms * late_ms)


def _counted(past: Window) -> Ints:
    """Return the latest count of unsettled messages at each sample."""
    counted: Ints = past["counted_visible"] + past["counted_in_flight"] + np.maximum(past["counted_delayed"], 0)
    return counted


def _smallest(past: Window, rows: Ints, *, exact: bool) -> Ints:
    """Return the broker's counts at these samples; where counts may be late or inexact, the lowest value they allow."""
    counted = _counted(past)
    if exact:
        known: Ints = counted[rows]
        return known
    at = past["counted_at"]
    left = np.searchsorted(at, at[rows] - COUNT_LAG_MS, side="left")
    right = np.searchsorted(at, at[rows] + COUNT_LAG_MS, side="right")
    least = np.array([counted[i:j].min() for i, j in zip(left.tolist(), right.tolist(), strict=True)], dtype=np.int64)
    sure: Ints = np.floor(least * (1 - BOUND_ERROR_RATIO) / (1 + BOUND_ERROR_RATIO)).astype(np.int64)
    return sure


def _latest_smallest(past: Window) -> int:
    counted = _counted(past)
    at = past["counted_at"]
    return int(counted[at >= at[-1] - COUNT_LAG_MS].min())
