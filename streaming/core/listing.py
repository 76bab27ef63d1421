"""The messages a shard lists by name: suspects, the longest held, dead letters, the oldest; and who holds what."""

from __future__ import annotations

from typing import Literal

import numpy as np

from streaming.core.columns import Array
from streaming.core.events import EXTENDED, RECEIVED
from streaming.core.expire import expiry, find_remembered
from streaming.core.queues import NEVER, visibility_ms
from streaming.core.report import RETENTION_RAN_OUT, Arrival, ConsumerResults, HeldBy, Listed, Loss, Rank
from streaming.core.rows import F_ARRIVED_BY_RECEIVE, F_ARRIVED_INFERRED, F_DROPPED, F_EXPIRED, F_MOVE_INFERRED, F_TIMELINE
from streaming.core.sequences import sequence_text
from streaming.core.settings import Settings
from streaming.core.state import ShardState
from streaming.core.sweep import SILENT_MEMORY_MS
from streaming.core.views import Attempt, MessageView
from streaming.core.windows import Windows

_SHOWN = (
    "queue",
    "flags",
    "sent",
    "receive_count",
    "group",
    "seq_kind",
    "seq_hi",
    "seq_lo",
    "consumer",
    "last_received",
    "window_at",
    "window_end",
    "window_code",
    "arrived",
)
_STATES: tuple[Literal["visible", "in_flight", "delayed"], ...] = ("visible", "in_flight", "delayed")
_WHAT: dict[int, Literal["received", "extended", "released"]] = {RECEIVED: "received", EXTENDED: "extended"}


class Viewer:
    """Makes the rows of one state, as of one time, presentable."""

    def __init__(self, state: ShardState, w: Windows, settings: Settings) -> None:
        self.state, self.w, self.settings = state, w, settings
        self.windows = np.array([visibility_ms(q, settings) for q in state.queues], dtype=np.int64)

    def views(self, rows: Array, why: tuple[str, ...]) -> list[MessageView]:
        """The messages of some rows."""
        state, live = self.state, self.state.rows
        at = {name: live.at(name, rows) for name in _SHOWN}
        seen = np.bitwise_count(live.at("seen", rows)) + live.at("seen_uncounted", rows)
        consumers = state.consumers.words(at["consumer"])
        columns = zip(
            state.message_ids(rows),
            np.where(self.w.in_flight[rows], 1, np.where(self.w.delayed[rows], 2, 0)).tolist(),
            at["sent"].tolist(),
            at["receive_count"].tolist(),
            state.groups.words(at["group"]),
            zip(at["seq_kind"].tolist(), at["seq_hi"].tolist(), at["seq_lo"].tolist(), strict=True),
            consumers,
            at["last_received"].tolist(),
            self.w.window_end[rows].tolist(),
            at["arrived"].tolist(),
            expiry(state, rows, self.settings).tolist(),
            at["flags"].tolist(),
            self._attempts(rows, at, consumers),
            seen.tolist(),
            strict=True,
        )
        return [
            MessageView(
                message_id,
                _STATES[doing],
                sent,
                receives,
                why,
                group,
                sequence_text(*position) if position[0] else None,
                consumer,
                received or None,
                end if doing == 1 and end < NEVER else None,
                arrived or None,
                expires,
                arrival_known_by(flags) if arrived else None,
                attempts,
                seen_here,
            )
            for (
                message_id,
                doing,
                sent,
                receives,
                group,
                position,
                consumer,
                received,
                end,
                arrived,
                expires,
                flags,
                attempts,
                seen_here,
            ) in columns
        ]

    def _attempts(self, rows: Array, at: dict[str, Array], consumers: list[str | None]) -> list[tuple[Attempt, ...]]:
        """Of each row its timeline; of a message delivered once, what its row tells."""
        state, table = self.state, self.state.attempts
        timeline = np.flatnonzero((at["flags"] & F_TIMELINE) != 0)
        keys = state.rows.key[rows[timeline]]
        left, right = np.searchsorted(table["key"], keys, "left"), np.searchsorted(table["key"], keys, "right")
        lengths = right - left
        places = np.repeat(left - np.append(0, np.cumsum(lengths)[:-1]), lengths) + np.arange(int(lengths.sum()))
        of_timeline = self._made(
            np.repeat(self.windows[at["queue"][timeline]], lengths),
            {name: table[name][places] for name in ("at", "code", "receive_count", "end")},
            state.consumers.words(table["consumer"][places]),
        )
        single = {"at": "window_at", "code": "window_code", "receive_count": "receive_count", "end": "window_end"}
        singles = self._made(self.windows[at["queue"]], {name: at[column] for name, column in single.items()}, consumers)
        told = zip(singles, at["window_code"].tolist(), strict=True)
        out: list[tuple[Attempt, ...]] = [(one,) if code else () for one, code in told]
        first = 0
        for row, length in zip(timeline.tolist(), lengths.tolist(), strict=True):
            out[row] = tuple(of_timeline[first : first + length])
            first += length
        return out

    def _made(self, windows: Array, columns: dict[str, Array], consumers: list[str | None]) -> list[Attempt]:
        at, code, end = columns["at"], columns["code"], columns["end"]
        opens = (code == RECEIVED) | (code == EXTENDED)
        end = np.where(opens & (end == 0), np.minimum(at + windows, NEVER), end)
        told = zip(at.tolist(), code.tolist(), columns["receive_count"].tolist(), end.tolist(), consumers, strict=True)
        return [
            Attempt(at_ms, _WHAT.get(kind, "released"), receives, end_ms if 0 < end_ms < NEVER else None, consumer)
            for at_ms, kind, receives, end_ms, consumer in told
        ]


def arrival_known_by(flags: int) -> str:
    """How a dead letter's arrival is known."""
    if flags & F_ARRIVED_BY_RECEIVE:
        return "first_receive"
    return "inferred" if flags & F_ARRIVED_INFERRED else "event"


def list_messages(
    viewer: Viewer, kind: str, candidates: Array, ranks: tuple[Array, ...], settings: Settings
) -> dict[int, list[Listed]]:
    """Per queue (by index) the candidates of lowest rank, at most `messages_per_queue`. `ranks` are columns beside them."""
    rows = viewer.state.rows
    if not len(candidates):
        return {}
    queue = rows.at("queue", candidates)
    tie = (rows.key[candidates] >> np.uint64(1)).astype(np.int64)
    columns = (*ranks, tie)
    order = np.lexsort((*reversed(columns), queue))
    sorted_queue = queue[order]
    first = np.append(True, sorted_queue[1:] != sorted_queue[:-1])
    place = np.arange(len(order))
    place -= np.maximum.accumulate(np.where(first, place, 0))
    chosen = order[place < settings.messages_per_queue]
    ranks_of = zip(*(c[chosen].tolist() for c in columns), strict=True)
    out: dict[int, list[Listed]] = {}
    for number, rank, view in zip(queue[chosen].tolist(), ranks_of, viewer.views(candidates[chosen], (kind,)), strict=True):
        out.setdefault(number, []).append(Listed(rank, view))
    return out


def held_by_consumers(state: ShardState, w: Windows, settings: Settings) -> dict[int, list[HeldBy]]:
    """Per queue (by index) what each consumer holds, the longest held first."""
    rows = state.rows
    if not rows.has("consumer"):
        return {}
    held = np.flatnonzero(w.in_flight & (rows["consumer"] >= 0))
    if not len(held):
        return {}
    since = held_since(state, held)
    consumer = rows.at("consumer", held)
    order = np.lexsort((rows.key[held], since, consumer))
    held, since, consumer = held[order], since[order], consumer[order]
    first = np.flatnonzero(np.append(True, consumer[1:] != consumer[:-1]))
    counts = np.diff(np.append(first, len(held)))
    out: dict[int, list[HeldBy]] = {}
    owners = state.consumers.queue[consumer[first]].tolist()
    names = state.consumers.words(consumer[first])
    message_ids = state.message_ids(held[first])
    told = zip(since[first].tolist(), names, counts.tolist(), message_ids, owners, strict=True)
    for since_ms, name, n, message_id, number in sorted(told, key=lambda one: (one[0], one[1] or "")):
        listed = out.setdefault(number, [])
        if len(listed) < settings.consumers_per_report:
            listed.append(HeldBy(name or "", n, since_ms, message_id))
    return out


def last_acks(state: ShardState, settings: Settings) -> dict[int, dict[str, int]]:
    """Per queue (by index) when its consumers last acknowledged a message, the latest ones; none of more than a day ago."""
    names = state.consumers
    told = np.flatnonzero((names.time > 0) & (names.time >= state.high_water - SILENT_MEMORY_MS))
    told = told[np.argsort(-names.time[told], kind="stable")]
    by_queue = told[np.argsort(names.queue[told], kind="stable")]
    queue = names.queue[by_queue]
    latest = np.arange(len(queue)) - np.searchsorted(queue, queue, side="left") < settings.consumers_per_report
    chosen = by_queue[latest]
    out: dict[int, dict[str, int]] = {}
    for name, number, at in zip(names.words(chosen), queue[latest].tolist(), names.time[chosen].tolist(), strict=True):
        out.setdefault(number, {})[name or ""] = at
    return out


def consumer_results(state: ShardState, settings: Settings) -> dict[int, dict[str, ConsumerResults]]:
    """Per queue (by index) how the deliveries of its consumers ended, of those with the most failed ones."""
    names = state.consumers
    told = np.flatnonzero((names.finished > 0) | (names.failed > 0))
    told = told[np.lexsort((-names.failed[told], names.queue[told]))]
    queue = names.queue[told]
    chosen = told[np.arange(len(queue)) - np.searchsorted(queue, queue, side="left") < settings.consumers_per_report]
    out: dict[int, dict[str, ConsumerResults]] = {}
    counted = zip(names.finished[chosen].tolist(), names.failed[chosen].tolist(), strict=True)
    for name, number, results in zip(names.words(chosen), names.queue[chosen].tolist(), counted, strict=True):
        out.setdefault(number, {})[name or ""] = ConsumerResults(*results)
    return out


def held_since(state: ShardState, rows: Array) -> Array:
    """Since when these in-flight messages have been held without a break: their latest receive, extended or not."""
    received = state.rows.at("last_received", rows)
    return np.where(received > 0, received, state.rows.at("window_at", rows))


def recent_arrivals(state: ShardState, since: int, settings: Settings) -> list[Arrival]:
    """Dead letters that came after `since`, moves that were only concluded included: of each queue the latest."""
    rows = state.rows
    came = np.flatnonzero(rows["arrived"] > max(since, 0)) if rows.has("arrived") else np.zeros(0, dtype=np.int64)
    moved, there = _inferred_moves(state, since, settings)
    hit = np.concatenate([came, moved])
    if not len(hit):
        return []
    queue = np.concatenate([rows.at("queue", came), there])
    source = np.concatenate([rows.at("origin", came), rows.at("queue", moved)])
    at = np.concatenate([rows.at("arrived", came), rows.at("ended", moved)])
    noticed = np.concatenate([rows.at("arrived_noticed", came), rows.at("ended_noticed", moved)])
    quiet_ms = np.array([settings.thresholds(q.name).dead_letter_quiet_s * 1000 for q in state.queues], dtype=np.int64)
    rank, chosen = _latest(state, hit, queue, _quiet_from(at, noticed, quiet_ms[queue]), settings.messages_per_queue)
    hit, queue, source, at, reported = hit[chosen], queue[chosen], source[chosen], at[chosen], chosen < len(came)
    names = [q.name for q in state.queues]
    told = zip(
        queue.tolist(),
        state.message_ids(hit),
        at.tolist(),
        np.where(reported, rows.at("flags", hit), F_ARRIVED_INFERRED).tolist(),
        source.tolist(),
        _receives(state, hit, queue, np.where(reported, source, -1), settings).tolist(),
        rank,
        strict=True,
    )
    return [
        Arrival(
            names[number], message_id, at_ms, arrival_known_by(flags), names[origin][2] if origin >= 0 else None, count, placed
        )
        for number, message_id, at_ms, flags, origin, count, placed in told
    ]


def recent_losses(state: ShardState, since: int, settings: Settings) -> dict[int, list[Loss]]:
    """Per queue (by index) the latest messages that expired or were dropped after `since`, oldest first."""
    rows = state.rows
    lost = np.flatnonzero(((rows["flags"] & (F_EXPIRED | F_DROPPED)) != 0) & (rows["ended"] > since))
    if not len(lost):
        return {}
    queue, at = rows.at("queue", lost), rows.at("ended", lost)
    quiet_ms = np.array([settings.thresholds(q.name).dropped_quiet_s * 1000 for q in state.queues], dtype=np.int64)
    quiet_from = _quiet_from(at, rows.at("ended_noticed", lost), quiet_ms[queue])
    rank, chosen = _latest(state, lost, queue, quiet_from, settings.messages_per_queue)
    lost = lost[chosen]
    told = zip(
        queue[chosen].tolist(),
        rank,
        at[chosen].tolist(),
        state.message_ids(lost),
        (rows.at("flags", lost) & F_DROPPED).tolist(),
        rows.key[lost].tolist(),
        rows.at("receive_count", lost).tolist(),
        rows.at("sent", lost).tolist(),
        strict=True,
    )
    out: dict[int, list[Loss]] = {}
    for number, placed, at_ms, message_id, dropped, key, receives, sent_at in told:
        kind = "dropped" if dropped else "expired"
        reason = state.loss_reasons.get(key, "" if dropped else RETENTION_RAN_OUT)
        out.setdefault(number, []).append(Loss(placed, at_ms, message_id, kind, reason, receives, sent_at))
    return out


def _inferred_moves(state: ShardState, since: int, settings: Settings) -> tuple[Array, Array]:
    """Rows of messages whose move was concluded after `since`, and the dead-letter queue of each (by index)."""
    rows = state.rows
    moved = np.flatnonzero(((rows["flags"] & F_MOVE_INFERRED) != 0) & (rows["ended"] > since))
    target = np.full(len(state.queues), -1, dtype=np.int32)
    ordered = np.array([q.ordered or settings.is_ordered(q.name) for q in state.queues], dtype=bool)
    for number in np.unique(rows.at("queue", moved)).tolist():
        record = state.queues[number]
        there = record.attribute("dead_letter_queue")
        if isinstance(there, str):
            target[number] = state.queue_index.get(record.name.sibling(there), -1)
        if target[number] >= 0 and not ordered[number] and not ordered[target[number]]:
            # It is a row of the dead-letter queue, and listed as one.
            target[number] = -1
    queue = target[rows.at("queue", moved)]
    return moved[queue >= 0], queue[queue >= 0]


def _quiet_from(happened: Array, noticed: Array, quiet_ms: Array) -> Array:
    return np.where(noticed - happened < quiet_ms, happened, noticed)


def _latest(state: ShardState, rows: Array, queue: Array, quiet_from: Array, most: int) -> tuple[list[Rank], Array]:
    """The latest `most` of each queue in ascending order: the rank of each, and its place among `rows`."""
    tie = (state.rows.key[rows] >> np.uint64(1)).astype(np.int64)
    order = np.lexsort((tie, quiet_from, queue))
    of = queue[order]
    behind = np.searchsorted(of, of, side="right") - np.arange(len(of))
    chosen = order[behind <= most]
    return list(zip(quiet_from[chosen].tolist(), tie[chosen].tolist(), strict=True)), chosen


def _receives(state: ShardState, hit: Array, queue: Array, origin: Array, settings: Settings) -> Array:
    """How often each of these dead letters was received, in the queue it came from (-1: not known) included."""
    rows = state.rows
    count = rows.at("receive_count", hit)
    ordered = np.array([q.ordered or settings.is_ordered(q.name) for q in state.queues], dtype=bool)
    # An ordered queue is in a shard of its own: what the message went through there cannot be looked up here.
    together = np.flatnonzero((origin >= 0) & ~ordered[queue] & ~ordered[origin])
    at, found = find_remembered(state, rows.at("parent", hit[together]), settings)
    together, at = together[found], at[found]
    count[together] = np.maximum(count[together], rows.at("receive_count", at))
    return count
