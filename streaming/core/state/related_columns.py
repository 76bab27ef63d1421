"""Columns of times that are stored as their distance from another column.

A message is received some seconds after it was sent and deleted some seconds later, and its window begins when it is received. So
the distances take fewer bytes than the times, and hardly any where one column mostly repeats the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from streaming.core.columns import Array, nonzero

Relations = Mapping[str, str]
"""Column -> the column that its distance is from. A column comes after the one it refers to."""

OF_ROWS: Final[Relations] = {
    "last_received": "sent",
    "window_at": "last_received",
    "window_end": "window_at",
    "ended": "last_received",
}
OF_ATTEMPTS: Final[Relations] = {"a.end": "a.at"}
_AFTER: Final = ".after."
"""Between the names of the two columns in the name of the distances. Under its own name a column has times, as before."""


def to_distances(columns: Mapping[str, Array], relations: Relations, times: Mapping[str, Array | None]) -> dict[str, Array]:
    """Return `columns` with distances in place of the related ones. `times`: the columns referred to; None: one of only zeros."""
    stored = dict(columns)
    for name, other in relations.items():
        base = times.get(other)
        if name in stored and base is not None:
            stored[f"{name}{_AFTER}{other}"] = _distances(stored.pop(name), base)
    return stored


def to_times(columns: dict[str, Array], relations: Relations) -> None:
    """Put the times back in place of the distances. The columns referred to are in `columns`."""
    for name, other in relations.items():
        distances = columns.pop(f"{name}{_AFTER}{other}", None)
        if distances is not None:
            columns[name] = _times(distances, columns[other])


def _distances(values: Array, base: Array) -> Array:
    """Return 0 for 0, the value itself where `base` is 0, and else the distance, doubled: odd unless it is negative.

    None is negative, so a column of which nearly all is 0 stays one.
    """
    here = nonzero(values != 0)
    value, other = values[here], base[here]
    apart = value - other
    coded = np.zeros_like(values)
    coded[here] = np.where(other == 0, value, np.where(apart < 0, -2 * apart, 2 * apart + 1))
    return coded


def _times(distances: Array, base: Array) -> Array:
    """Reverse `_distances`."""
    here = nonzero(distances != 0)
    coded, other = distances[here], base[here]
    half = coded >> 1
    times = np.zeros_like(distances)
    times[here] = np.where(other == 0, coded, other + np.where((coded & 1) == 0, -half, half))
    return times
