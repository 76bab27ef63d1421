"""Evict state that can no longer affect any result; when this runs does not matter."""

from __future__ import annotations

from heapq import nlargest

import numpy as np
import pyarrow as pa

from streaming.core.columns import Array, nonzero
from streaming.core.settings import Settings
from streaming.core.state.interner import Interner
from streaming.core.state.state import SILENT_MEMORY_MS, ShardState
from streaming.core.state.tombstones import compact_deleted, forgotten
from streaming.core.tracking.admission import MOST_CONSUMER_BYTES
from streaming.core.tracking.queue_events import FAILED_BATCH_MEMORY_MS

MOST_REFUSALS = 10_000
"""Of so many messages per shard it is known how often their settlement was refused: it is only shown of suspects."""
MOST_DEPARTED = 1_000
"""At most this many of the consumers that left a queue are remembered: the latest. A client that resubscribes for each message
leaves one each time."""
MOST_CONNECTED = 10_000
"""At most this many of a queue's consumers that are said to be connected are followed: those reported last."""
MOST_FAILED_BATCHES = 20_000
"""Of so many failed batches per shard, the latest, redeliveries are counted: a worker may have one for each message."""
SWEPT_NAMES = 1_000
"""Up to this many names of groups or consumers are kept without checking whether any message uses them."""
MOST_CONSUMERS = 100_000
"""Of so many consumers per shard, the latest, it is remembered how their deliveries ended. Some applications name a new one for
each message."""


def compact(state: ShardState, settings: Settings) -> None:
    """Evict expired state. Evicted entries already counted as gone, so when this runs changes no result."""
    horizon = state.oldest_timely_at(settings)
    rows = state.rows
    # A loss that was noticed late is still to be reported.
    old = forgotten(state, rows["ended"], settings) & (rows["ended_noticed"] < horizon)
    if old.sum() * 8 > len(old):
        state.drop_timelines(rows.key[old])
        for key in rows.key[old].tolist() if state.loss_reasons else []:
            state.loss_reasons.pop(key, None)
        rows.keep(~old)
    compact_deleted(state, settings)
    # A replay never packs its state, which drops them too.
    if len(state.texts) > 2 * len(state.rows):
        state.drop_unused_texts()
    memory = state.fingerprints
    old = memory["at"] < horizon
    if old.sum() * 8 > len(old):
        state.fingerprints = {name: values[~old] for name, values in memory.items()}
    _sweep_silent(state, state.high_water - SILENT_MEMORY_MS)
    _sweep_reported(state)
    _sweep_failed_batches(state, state.high_water - FAILED_BATCH_MEMORY_MS)
    _sweep_refusals(state, horizon)
    _forget_settled(state, horizon)
    _sweep_names(state, horizon)


def _sweep_silent(state: ShardState, horizon: int) -> None:
    """Evict silent consumers and collectors, which may get a new name at every start and would pile up."""
    state.consumer_states = state.consumer_states.only(state.consumer_states.at >= horizon)
    if any(at < horizon for at in state.collectors.values()):
        state.collectors = {name: at for name, at in state.collectors.items() if at >= horizon}


def _sweep_reported(state: ShardState) -> None:
    """Forget all but the latest of the consumers that left each queue, and of those that are connected to it."""
    states = state.consumer_states
    if len(states) <= MOST_DEPARTED:
        return
    kept = np.ones(len(states), dtype=bool)
    for are_connected, most in ((False, MOST_DEPARTED), (True, MOST_CONNECTED)):
        rows = nonzero((states.connected > 0) == are_connected)
        queues = states.queue[rows]
        for number in nonzero(np.bincount(queues) > most).tolist():
            own = rows[queues == number]
            latest_last = sorted(
                zip(states.at[own].tolist(), states.names.take(pa.array(own)).to_pylist(), own.tolist(), strict=True)
            )
            kept[[row for *_, row in latest_last[:-most]]] = False
    state.consumer_states = states.only(kept)


def _sweep_failed_batches(state: ShardState, oldest: int) -> None:
    """Forget batches that failed too long ago, and all but the latest."""
    batches = state.failed_batches
    if batches and min(batches.values()) < oldest:
        batches = {batch: at for batch, at in batches.items() if at >= oldest}
    if len(batches) > MOST_FAILED_BATCHES:
        batches = dict(nlargest(MOST_FAILED_BATCHES, batches.items(), key=lambda item: (item[1], item[0])))
    state.failed_batches = batches


def _sweep_refusals(state: ShardState, horizon: int) -> None:
    """Forget refusals of messages that are not unsettled any more, and those of all but the latest messages."""
    if not state.refusals:
        return
    rows, found = state.rows.find(np.sort(np.fromiter(state.refusals, dtype=np.uint64, count=len(state.refusals))))
    rows = rows[found]
    unsettled = set(state.rows.key[rows[state.rows.at("ended", rows) == 0]].tolist())
    kept = [(key, one) for key, one in state.refusals.items() if key in unsettled or one.last_at >= horizon]
    state.refusals = dict(nlargest(MOST_REFUSALS, kept, key=lambda item: item[1].last_at))


def _forget_settled(state: ShardState, horizon: int) -> None:
    """Forget groups without messages once the lateness has expired.

    This must not wait until the group's name happens to be swept, or the report on a group that comes back would depend on that.
    """
    settled = state.groups.time
    old = (settled > 0) & (settled < horizon)
    if not old.any():
        return
    rows = state.rows
    number = rows["group"][rows["ended"] == 0]
    old[number[number >= 0]] = False
    settled[old] = 0


def _sweep_names(state: ShardState, horizon: int) -> None:
    """Drop names that nothing refers to and that were not active lately, once they are half of all."""
    acks_since = state.high_water - SILENT_MEMORY_MS
    for names, column, since, most in (
        (state.groups, "group", horizon, len(state.groups)),
        (state.consumers, "consumer", acks_since, _most_consumers(state.consumers)),
    ):
        if len(names) < SWEPT_NAMES:
            continue
        used = np.zeros(len(names), dtype=bool)
        numbers = state.rows[column]
        used[numbers[numbers >= 0]] = True
        if column == "consumer":
            held = state.attempts["consumer"]
            used[held[held >= 0]] = True
        used |= _latest(names.active_at, most) & (names.active_at >= since)
        if used.sum() * 2 > len(names):
            continue
        moved = names.keep(used)
        state.remember_renumbering(column, moved)
        if state.rows.has(column):
            state.rows.columns[column] = moved[numbers]
        if column == "consumer":
            state.attempts["consumer"] = moved[state.attempts["consumer"]]


def _most_consumers(names: Interner) -> int:
    """Return how many consumers are remembered: fewer where their names are long, so that there is room for new ones."""
    room = MOST_CONSUMER_BYTES // 4
    return MOST_CONSUMERS if names.texts.nbytes <= room else min(MOST_CONSUMERS, len(names) * room // names.texts.nbytes)


def _latest(times: Array, most: int) -> Array:
    """Return the mask of the latest `most` of these times."""
    latest = np.ones(len(times), dtype=bool)
    if len(times) > most:
        latest[np.argpartition(times, -most)[:-most]] = False
    return latest
