"""Which queues, collectors and messages are tracked: the first ones, up to a limit. Events about others are counted and skipped.

Every shard reads the names of all queues of a batch and keeps a record of each, so all shards track the same queues, and each
of them in full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import replace
from typing import Final

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.events.events import Events
from streaming.core.events.flags import PRIMARY
from streaming.core.events.queue_events import HEARTBEAT
from streaming.core.settings import QueueName, Settings
from streaming.core.state.state import ShardState

TOO_MANY_QUEUES: Final = "too_many_queues"
TOO_MANY_COLLECTORS: Final = "too_many_collectors"
TOO_MANY_MESSAGES: Final = "too_many_messages"
MOST_ID_BYTES = 1 << 30
"""Bytes of the message ids that a shard stores as text (a UUID is stored as a number). Arrow and Java hold at most twice as much
in one array."""
MOST_GROUP_BYTES = 1 << 28
"""Bytes of the names of groups, all of which are stored in every step: a message whose group does not fit is left out."""
MOST_CONSUMER_BYTES = 1 << 25
"""Bytes of the names of consumers, which are reported in every step: one whose name does not fit counts as unknown."""


def admit(state: ShardState, events: Events, settings: Settings) -> tuple[Events, Counter[str]]:
    """Add new queues to the state while there is room; return the events about tracked queues and collectors.

    The counter says by reason how many events were left out.
    """
    refused: Counter[str] = Counter()
    known = len(state.queues) if state.queues.are_resolved_by(settings) else 0
    outside = _queues_outside(state, events, settings)
    _mark_dead_letter_queues(state, known, settings)
    if outside:
        events, refused[TOO_MANY_QUEUES] = _without_queues(events, outside)
    silenced = _collectors_outside(state, events, settings)
    if silenced:
        about_queues = events.about_queues
        out = np.array([name in silenced for name in (*about_queues.consumers, "")])[about_queues["consumer"]]
        out &= about_queues["kind"] == HEARTBEAT
        refused[TOO_MANY_COLLECTORS] = int(out.sum())
        events = replace(events, about_queues=about_queues.take(~out))
    return events, refused


def has_capacity(state: ShardState, name: QueueName, settings: Settings) -> bool:
    """Return whether a queue is tracked or can be."""
    return name in state.queues.index or len(state.queues) < settings.max_queues


def over_capacity(state: ShardState, new: Array, first_at: Array, id_bytes: Array, settings: Settings) -> Array:
    """Return the mask of the messages that cannot be tracked: the youngest of the new ones, once the shard is full.

    `new`: which messages have no row yet; `first_at`: their first events (epoch milliseconds); `id_bytes`: the length of each id
    that is stored as text, else 0.
    """
    outside = np.zeros(len(new), dtype=bool)
    room, room_bytes = len(new), MOST_ID_BYTES - state.texts.nbytes
    if len(state.rows) + int(new.sum()) > settings.max_messages_per_shard:
        # Ended messages keep their rows for a while: only unsettled ones are limited.
        unsettled = int((state.rows["ended"] == 0).sum())
        room = max(0, settings.max_messages_per_shard - unsettled)
    elif int(id_bytes[new].sum()) <= room_bytes:
        return outside
    oldest_first = nonzero(new)[np.argsort(first_at[new], kind="stable")]
    outside[oldest_first[room:]] = True
    taken = id_bytes[oldest_first]
    outside[oldest_first[(taken > 0) & (np.cumsum(taken) > room_bytes)]] = True
    return outside


def _queues_outside(state: ShardState, events: Events, settings: Settings) -> Set[QueueName]:
    known = state.queues.index
    named = [name for name in events.queues if name not in known and name.queue]
    if not named:
        return frozenset()
    # In the order of their names, because shards may read the packets of a batch in different orders.
    new = dict.fromkeys(sorted(named))
    for name in list(new):
        rule = settings.rule(name)
        if rule is not None and rule.dead_letter_queue and name.sibling(rule.dead_letter_queue) not in known:
            new.setdefault(name.sibling(rule.dead_letter_queue))
    names = list(new)
    room = max(0, settings.max_queues - len(state.queues))
    if room:
        state.queues.add(names[:room])
    return frozenset(names[room:])


def _mark_dead_letter_queues(state: ShardState, first: int, settings: Settings) -> None:
    """Mark the dead-letter queues that the settings name, of the queues from row `first` on: the new ones, or all."""
    if not any(rule.dead_letter_queue for rule in settings.rules):
        return
    for name in state.queues.names[first:]:
        rule = settings.rule(name)
        if rule is None or not rule.dead_letter_queue or rule.dead_letter_queue == name.queue:
            continue
        there = name.sibling(rule.dead_letter_queue)
        if has_capacity(state, there, settings):
            state.queues[state.queue_number(there)].report_dead_letters()


def _without_queues(events: Events, outside: Set[QueueName]) -> tuple[Events, int]:
    gone = np.array([name in outside for name in events.queues], dtype=bool)
    columns = events.columns
    left_out = gone[columns["queue"]]
    refused = int((left_out & ((columns["flags"] & PRIMARY) != 0)).sum())
    columns = events.take(nonzero(~left_out))
    peer = columns["peer"]
    columns["peer"] = np.where(np.append(gone, False)[peer], -1, peer).astype(peer.dtype)
    about_queues = events.about_queues
    unknown = gone[about_queues["queue"]]
    refused += int((unknown & ((about_queues["flags"] & PRIMARY) != 0)).sum())
    kept = replace(
        events,
        columns=columns,
        about_queues=about_queues.take(~unknown),
        dead_letter_queues=events.dead_letter_queues - outside,
        apparent_dead_letter_queues=events.apparent_dead_letter_queues - outside,
        redrive_targets=events.redrive_targets - outside,
        ordered_queues=events.ordered_queues - outside,
        unordered_queues=events.unordered_queues - outside,
        skews={name: skew_ms for name, skew_ms in events.skews.items() if name not in outside},
    )
    return kept, refused


def _collectors_outside(state: ShardState, events: Events, settings: Settings) -> Set[str]:
    if not len(events.about_queues):
        return frozenset()
    beats = events.about_queues.take(events.about_queues["kind"] == HEARTBEAT)
    heard = dict.fromkeys(beats.names("consumer"))
    new = [name for name in heard if name not in state.collectors]
    return frozenset(new[max(0, settings.max_collectors - len(state.collectors)) :])
