"""What is forgotten: it can matter no more, whenever this runs."""

from __future__ import annotations

import numpy as np

from streaming.core.settings import Settings
from streaming.core.state.frozen import forgotten, freeze
from streaming.core.state.state import ShardState
from streaming.core.tracking.attempts import forget
from streaming.core.tracking.facts import FAILED_BATCH_MEMORY_MS

SILENT_MEMORY_MS = 24 * 3_600_000
"""A consumer or collector of which nothing was told for so long is no more expected."""

SWEPT_NAMES = 1_000
"""So many names of groups or consumers are kept without asking whether anything has them."""


def sweep(state: ShardState, settings: Settings) -> None:
    """Forget what can matter no more. What is forgotten already counted as gone, so when this runs changes no result."""
    horizon = state.high_water - settings.lateness_ms
    rows = state.rows
    old = forgotten(state, rows["ended"], settings)
    if old.sum() * 8 > len(old):
        forget(state, rows.key[old])
        for key in rows.key[old].tolist() if state.loss_reasons else []:
            state.loss_reasons.pop(key, None)
        rows.keep(~old)
    freeze(state, settings)
    memory = state.fingerprints
    old = memory["at"] < horizon
    if old.sum() * 8 > len(old):
        state.fingerprints = {name: values[~old] for name, values in memory.items()}
    _sweep_told_once(state, state.high_water - SILENT_MEMORY_MS)
    oldest_batch = state.high_water - FAILED_BATCH_MEMORY_MS
    if state.failed_batches and min(state.failed_batches.values()) < oldest_batch:
        state.failed_batches = {k: at for k, at in state.failed_batches.items() if at >= oldest_batch}
    _forget_settled(state, horizon)
    _sweep_names(state, horizon)


def _sweep_told_once(state: ShardState, horizon: int) -> None:
    """Consumers and collectors have names of their own at every start: those nobody told of for long would pile up."""
    if any(told.at < horizon for told in state.consumer_states.values()):
        state.consumer_states = {key: told for key, told in state.consumer_states.items() if told.at >= horizon}
    if any(at < horizon for at in state.collectors.values()):
        state.collectors = {name: at for name, at in state.collectors.items() if at >= horizon}


def _forget_settled(state: ShardState, horizon: int) -> None:
    """A group in which nothing is left is forgotten after the lateness: at once, not when its name happens to be swept, or
    what is said of a group that comes back would depend on that."""
    settled = state.groups.time
    old = (settled > 0) & (settled < horizon)
    if not old.any():
        return
    rows = state.rows
    number = rows["group"][rows["ended"] == 0]
    old[number[number >= 0]] = False
    settled[old] = 0


def _sweep_names(state: ShardState, horizon: int) -> None:
    acks_since = state.high_water - SILENT_MEMORY_MS
    for names, column, since in ((state.groups, "group", horizon), (state.consumers, "consumer", acks_since)):
        if len(names) < SWEPT_NAMES:
            continue
        used = np.zeros(len(names), dtype=bool)
        numbers = state.rows[column]
        used[numbers[numbers >= 0]] = True
        if column == "consumer":
            held = state.attempts["consumer"]
            used[held[held >= 0]] = True
        used |= names.time >= since
        if used.sum() * 2 > len(names):
            continue
        moved = names.keep(used)
        state.remember_renumbering(column, moved)
        if state.rows.has(column):
            state.rows.columns[column] = moved[numbers]
        if column == "consumer":
            state.attempts["consumer"] = moved[state.attempts["consumer"]]
