"""The messages a shard lists by name: suspects, the longest held, dead letters, the oldest; and who holds what."""

from __future__ import annotations

from typing import Literal

import numpy as np

from streaming.core.columns import Array
from streaming.core.events import EXTENDED, RECEIVED, sequence_text
from streaming.core.expire import Windows, expiry
from streaming.core.queues import NEVER, QueueRecord, retention_ms, visibility_ms
from streaming.core.report import Arrival, HeldBy, Listed
from streaming.core.settings import Settings
from streaming.core.state import (
    F_ARRIVED_BY_RECEIVE,
    F_ARRIVED_INFERRED,
    F_MOVE_INFERRED,
    F_TIMELINE,
    ShardState,
)
from streaming.core.views import Attempt, MessageView

_WHAT: dict[int, Literal["received", "extended", "released"]] = {RECEIVED: "received", EXTENDED: "extended"}


class Viewer:
    """Makes the rows of one state, as of one time, presentable."""

    def __init__(self, state: ShardState, w: Windows, settings: Settings) -> None:
        self.state, self.w, self.settings = state, w, settings
        kept = np.array([retention_ms(q, settings) for q in state.queues], dtype=np.int64)
        self.expires = expiry(state, kept, settings) if len(state.rows) else np.zeros(0, dtype=np.int64)
        self._seen: dict[int, MessageView] = {}

    def view(self, row: int, why: tuple[str, ...]) -> MessageView:
        """The message of a row."""
        state, one = self.state, np.array([row])

        def value(name: str) -> int:
            return int(state.rows.at(name, one)[0])

        flags, arrived, code = value("flags"), value("arrived"), value("window_code")
        group, consumer, received = value("group"), value("consumer"), value("last_received")
        known_by = None
        if arrived:
            known_by = arrival_known_by(flags)
        in_flight = bool(self.w.in_flight[row])
        end = int(self.w.window_end[row])
        return MessageView(
            message_id=state.message_id(row),
            state="in_flight" if in_flight else "delayed" if self.w.delayed[row] else "visible",
            sent_at_ms=value("sent"),
            receive_count=value("receive_count"),
            why=why,
            group=state.groups.name[group] if group >= 0 else None,
            sequence=sequence_text(value("seq_kind"), value("seq_hi"), value("seq_lo")),
            consumer=state.consumers.name[consumer] if consumer >= 0 else None,
            last_received_at_ms=received or None,
            invisible_until_ms=end if code and in_flight and end < NEVER else None,
            arrived_at_ms=arrived or None,
            expires_at_ms=int(self.expires[row]),
            arrival_known_by=known_by,
            attempts=self._attempts(row, flags),
            deliveries_seen=int(value("seen")).bit_count() + value("seen_uncounted"),
        )

    def _attempts(self, row: int, flags: int) -> tuple[Attempt, ...]:
        state = self.state
        record = state.queues[int(state.rows.at("queue", np.array([row]))[0])]
        if not flags & F_TIMELINE:
            return self._single_attempt(row, record)
        table, key = state.attempts, state.rows.key[row]
        left, right = np.searchsorted(table["key"], key, "left"), np.searchsorted(table["key"], key, "right")
        out = []
        for i in range(int(left), int(right)):
            code, at, consumer = int(table["code"][i]), int(table["at"][i]), int(table["consumer"][i])
            end = self._end(int(table["end"][i]), at, code, record)
            name = state.consumers.name[consumer] if consumer >= 0 else None
            out.append(Attempt(at, _WHAT.get(code, "released"), int(table["receive_count"][i]), end, name))
        return tuple(out)

    def _single_attempt(self, row: int, record: QueueRecord) -> tuple[Attempt, ...]:
        one, rows = np.array([row]), self.state.rows
        code, at = int(rows.at("window_code", one)[0]), int(rows.at("window_at", one)[0])
        if not code:
            return ()
        consumer = int(rows.at("consumer", one)[0])
        name = self.state.consumers.name[consumer] if consumer >= 0 else None
        end = self._end(int(rows.at("window_end", one)[0]), at, code, record)
        return (Attempt(at, _WHAT.get(code, "released"), int(rows.at("receive_count", one)[0]), end, name),)

    def _end(self, end: int, at: int, code: int, record: QueueRecord) -> int | None:
        if not end and code in _WHAT:
            end = min(at + visibility_ms(record, self.settings), NEVER)
        return end if 0 < end < NEVER else None


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
    out: dict[int, list[Listed]] = {}
    sorted_queue = queue[order]
    starts = np.flatnonzero(np.append(True, sorted_queue[1:] != sorted_queue[:-1]))
    for start, stop in zip(starts.tolist(), np.append(starts[1:], len(order)).tolist(), strict=True):
        chosen = order[start : min(stop, start + settings.messages_per_queue)]
        out[int(sorted_queue[start])] = [
            Listed(tuple(int(c[i]) for c in columns), viewer.view(int(candidates[i]), (kind,))) for i in chosen.tolist()
        ]
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
    by_age = sorted(range(len(first)), key=lambda i: (int(since[first[i]]), state.consumers.name[int(consumer[first[i]])]))
    for i in by_age:
        number = int(consumer[first[i]])
        listed = out.setdefault(state.consumers.queue[number], [])
        if len(listed) < settings.consumers_per_report:
            message_id = state.message_id(int(held[first[i]]))
            listed.append(HeldBy(state.consumers.name[number], int(counts[i]), int(since[first[i]]), message_id))
    return out


def held_since(state: ShardState, rows: Array) -> Array:
    """Since when these in-flight messages have been held without a break: their latest receive, extended or not."""
    received = state.rows.at("last_received", rows)
    return np.where(received > 0, received, state.rows.at("window_at", rows))


def recent_arrivals(state: ShardState, settings: Settings) -> list[Arrival]:
    """Dead letters that came within the lateness, moves that were only concluded included."""
    rows = state.rows
    horizon = state.high_water - settings.lateness_ms
    out: list[Arrival] = []
    if rows.has("arrived"):
        for row in np.flatnonzero(rows["arrived"] > max(horizon, 0)).tolist():
            out.append(_arrival(state, row, settings))
    flags = rows["flags"]
    for row in np.flatnonzero(((flags & F_MOVE_INFERRED) != 0) & (rows["ended"] > horizon)).tolist():
        record = state.queues[int(rows["queue"][row])]
        there = record.attribute("dead_letter_queue")
        if isinstance(there, str):
            name = (record.name[0], record.name[1], there)
            count = int(rows["receive_count"][row])
            out.append(Arrival(name, state.message_id(row), int(rows["ended"][row]), "inferred", record.name[2], count))
    return out


def _arrival(state: ShardState, row: int, settings: Settings) -> Arrival:
    rows, one = state.rows, np.array([row])
    origin, count = int(rows.at("origin", one)[0]), int(rows.at("receive_count", one)[0])
    source = state.queues[origin].name[2] if origin >= 0 else None
    ordered = [
        state.queues[n].ordered or settings.is_ordered(state.queues[n].name) for n in (int(rows["queue"][row]), origin)
    ]
    if origin >= 0 and not any(ordered):
        # An ordered queue is in a shard of its own: what the message went through there cannot be looked up here.
        at, found = rows.find(rows.at("parent", one))
        if found[0]:
            count = max(count, int(rows["receive_count"][at[0]]))
    name = state.queues[int(rows["queue"][row])].name
    by = arrival_known_by(int(rows["flags"][row]))
    return Arrival(name, state.message_id(row), int(rows["arrived"][row]), by, source, count)
