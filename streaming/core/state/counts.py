"""The broker's recent counts of many queues, as rows of the fields of `Depth`: sort them, compact old ones, sum them up.

Everywhere, `owner` is the queue of each row, ascending, and `queues` (ascending) are the queues the result is for.
"""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array
from streaming.core.state.queues import NEVER, Depth

KEPT_AT_LEAST = 2
MOST_COUNTS = 1_000
"""The most that are kept of a queue: one every second for a quarter of an hour. A hostile sender could report any number…"""
MOST_SHARD_COUNTS = 4_000_000
"""…of very many queues: together they are part of the shard's report after every step…"""
FEWEST_COUNTS = 20
"""…but so many of each are."""
LOOKED_AT_MS = 300_000
FEWEST_WITHOUT_VISIBLE = 3
"""Each count is approximate: this many, over some minutes, are not wrong together."""

_AT, _VISIBLE, _IN_FLIGHT, _DELAYED = (Depth._fields.index(name) for name in ("at", "visible", "in_flight", "delayed"))


def sorted_counts(owner: Array, rows: Array) -> tuple[Array, Array]:
    """Return owners and rows by queue and time, each count once."""
    order = np.argsort(owner, kind="stable")
    owner, rows = owner[order], rows[order]
    if ((owner[1:] != owner[:-1]) | (rows[1:, _AT] > rows[:-1, _AT])).all():
        # New counts nearly always follow the known ones, so there is nothing more to sort.
        return owner, rows
    order = np.lexsort((*rows.T[::-1], owner))
    owner, rows = owner[order], rows[order]
    first = np.append(True, (owner[1:] != owner[:-1]) | (rows[1:] != rows[:-1]).any(axis=1))
    return owner[first], rows[first]


def most_counts(known: int) -> int:
    """Return how many counts are kept of each of so many `known` queues."""
    return min(MOST_COUNTS, max(FEWEST_COUNTS, MOST_SHARD_COUNTS // max(known, 1)))


def compactable_counts(owner: Array, rows: Array, queues: Array, keep_since: Array, most: int) -> Array:
    """Return the mask of counts to drop.

    Those superseded before `keep_since`, except the last two, and the oldest of a queue that has more than `most`.
    """
    place = np.searchsorted(queues, owner)
    left = np.searchsorted(owner, queues, side="right")[place] - np.arange(len(owner))
    next_at = np.append(rows[1:, _AT], NEVER)
    needless: Array = ((left > KEPT_AT_LEAST) & (next_at < keep_since[place])) | (left > most)
    return needless


def empty_since(before: Array, owner: Array, rows: Array, queues: Array) -> Array:
    """Return since when each queue's counts have been empty as of its last row (0: that one is not).

    `before`: the same as of the count before its first row.
    """
    starts, stops = (np.searchsorted(owner, queues, side=side) for side in ("left", "right"))
    at = np.append(rows[:, _AT], 0)
    # For each row, the index of the latest row up to it that is not empty.
    latest = np.append(np.maximum.accumulate(np.where(_unsettled(rows) > 0, np.arange(len(rows)), -1)), -1)[stops - 1]
    always = np.where(before > 0, before, at[starts])
    since = np.where(latest < starts, always, np.where(latest == stops - 1, 0, at[np.minimum(latest + 1, len(rows))]))
    result: Array = np.where(starts == stops, before, since)
    return result


def summary_of_counts(empty_from: Array, owner: Array, rows: Array, queues: Array, after_ms: Array) -> dict[str, Array]:
    """Return the columns COUNTS of the queue table.

    `empty_from`: see `empty_since`. `after_ms`: for how long each queue's counts must show something before it is believed.
    """
    starts, stops = (np.searchsorted(owner, queues, side=side) for side in ("left", "right"))
    any_known = starts < stops
    unsettled = _unsettled(rows)
    if not len(rows):
        rows, unsettled = np.zeros((1, len(Depth._fields)), dtype=np.int64), np.zeros(1, dtype=np.int64)
    latest = np.where(any_known, stops - 1, 0)
    found = {
        name: np.where(any_known, rows[latest, field], 0)
        for name, field in (
            ("counted_at", _AT),
            ("counted_visible", _VISIBLE),
            ("counted_in_flight", _IN_FLIGHT),
            ("counted_delayed", _DELAYED),
        )
    }
    most = np.full(len(queues), -1, dtype=np.int64)
    if len(owner):
        lately = rows[:, _AT] >= np.repeat(rows[latest, _AT] - LOOKED_AT_MS, stops - starts)
        most[any_known] = np.maximum.reduceat(np.where(lately, unsettled, -1), starts[any_known])
    empty = any_known & (unsettled[latest] == 0)
    since = np.where(empty, empty_since(empty_from, owner, rows[: len(owner)], queues), -1)
    return found | {"counted_most": most, "empty_since": since} | _without_visible(owner, rows[: len(owner)], queues, after_ms)


def _without_visible(owner: Array, rows: Array, queues: Array, after_ms: Array) -> dict[str, Array]:
    """Return the times of the first and the last of enough counts without visible messages, the latest; 0 where there are none.

    Other counts may lie between them: what was visible all the time would be in every count.
    """
    none = rows[:, _VISIBLE] == 0
    owner, at = owner[none], rows[none, _AT]
    place = np.searchsorted(queues, owner)
    stops = np.searchsorted(owner, queues, side="right")
    last = np.append(at, 0)[stops - 1] * (stops > np.searchsorted(owner, queues, side="left"))
    enough = (at <= last[place] - after_ms[place]) & (np.arange(len(at)) <= stops[place] - FEWEST_WITHOUT_VISIBLE)
    first = np.zeros(len(queues), dtype=np.int64)
    np.maximum.at(first, place[enough], at[enough])
    return {"without_visible_from": first, "without_visible_until": np.where(first > 0, last, 0)}


def _unsettled(rows: Array) -> Array:
    total: Array = rows[:, _VISIBLE] + rows[:, _IN_FLIGHT] + np.maximum(rows[:, _DELAYED], 0)
    return total
