"""Deduplicate events that carry no number of their own: a fingerprint of each is kept for the lateness."""

from __future__ import annotations

import numpy as np

from streaming.core.columns import Array
from streaming.core.hashing import mix
from streaming.core.state.state import ShardState


def fingerprint(key: Array, at: Array, code: Array | np.uint64, end: Array | np.uint64) -> Array:
    """Return a number per event that identifies its repetitions."""
    return mix(key ^ mix(at.astype(np.uint64) * np.uint64(16) + code) + end)


def is_new(state: ShardState, prints: Array, at: Array) -> Array:
    """Return which of `prints` are new, counting each once, and remember them."""
    new = np.zeros(len(prints), dtype=bool)
    new[np.unique(prints, return_index=True)[1]] = True
    seen = state.fingerprints["hash"]
    if len(seen):
        new &= seen[np.minimum(np.searchsorted(seen, prints), len(seen) - 1)] != prints
    add_fingerprints(state, prints[new], at[new])
    return new


def add_fingerprints(state: ShardState, prints: Array, at: Array) -> None:
    """Remember events by their fingerprints and times (epoch milliseconds)."""
    memory = state.fingerprints
    order = np.argsort(prints)
    prints, at = prints[order], at[order]
    where = np.searchsorted(memory["hash"], prints)
    memory["hash"] = np.insert(memory["hash"], where, prints)
    memory["at"] = np.insert(memory["at"], where, at)
