"""The messages a shard lists by name: suspects, the longest held, dead letters, the oldest; and who holds what."""

from __future__ import annotations

from typing import Literal

import numpy as np

from streaming.core.columns import Array
from streaming.core.events import EXTENDED, RECEIVED
from streaming.core.expire import Windows, expiry, find_remembered
from streaming.core.queues import NEVER, retention_ms, visibility_ms
from streaming.core.report import Arrival, HeldBy, Listed, Loss
from streaming.core.rows import F_ARRIVED_BY_RECEIVE, F_ARRIVED_INFERRED, F_DROPPED, F_EXPIRED, F_MOVE_INFERRED, F_TIMELINE
from streaming.core.sequences import sequence_text
from streaming.core.settings import Settings
from streaming.core.state import ShardState
from streaming.core.views import Attempt, MessageView

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
_WHAT: dict[int, Literal["received", "extended", "released"]] = {RECEIVED: "received", EXTENDED: "extended"}


class Viewer:
    """Makes the rows of one state, as of one time, presentable."""

    def __init__(self, state: ShardState, w: Windows, settings: Settings) -> None:
        self.state, self.w, self.settings = state, w, settings
        kept = np.array([retention_ms(q, settings) for q in state.queues], dtype=np.int64)
        self.expires = expiry(state, kept, settings) if len(state.rows) else np.zeros(0, dtype=np.int64)
        self.windows = [visibility_ms(q, settings) for q in state.queues]

    def view(self, row: int, why: tuple[str, ...]) -> MessageView:
        """The message of a row."""
        return self.views(np.array([row]), why)[0]

    def views(self, rows: Array, why: tuple[str, ...]) -> list[MessageView]:
        """The messages of some rows."""
        state = self.state
        groups, consumers = state.groups.name, state.consumers.name
        columns = {name: state.rows.at(name, rows).tolist() for name in _SHOWN}
        in_flight, delayed = self.w.in_flight[rows].tolist(), self.w.delayed[rows].tolist()
        ends, expires = self.w.window_end[rows].tolist(), self.expires[rows].tolist()
        seen = (np.bitwise_count(state.rows.at("seen", rows)) + state.rows.at("seen_uncounted", rows)).tolist()
        out = []
        for i, row in enumerate(rows.tolist()):
            c = {name: values[i] for name, values in columns.items()}
            until = ends[i] if in_flight[i] and ends[i] < NEVER else None
            out.append(
                MessageView(
                    message_id=state.message_id(row),
                    state="in_flight" if in_flight[i] else "delayed" if delayed[i] else "visible",
                    sent_at_ms=c["sent"],
                    receive_count=c["receive_count"],
                    why=why,
                    group=groups[c["group"]] if c["group"] >= 0 else None,
                    sequence=sequence_text(c["seq_kind"], c["seq_hi"], c["seq_lo"]),
                    consumer=consumers[c["consumer"]] if c["consumer"] >= 0 else None,
                    last_received_at_ms=c["last_received"] or None,
                    invisible_until_ms=until,
                    arrived_at_ms=c["arrived"] or None,
                    expires_at_ms=expires[i],
                    arrival_known_by=arrival_known_by(c["flags"]) if c["arrived"] else None,
                    attempts=self._timeline(row, c["queue"]) if c["flags"] & F_TIMELINE else self._single(c),
                    deliveries_seen=seen[i],
                )
            )
        return out

    def _timeline(self, row: int, queue: int) -> tuple[Attempt, ...]:
        state = self.state
        table, key, window = state.attempts, state.rows.key[row], self.windows[queue]
        left, right = np.searchsorted(table["key"], key, "left"), np.searchsorted(table["key"], key, "right")
        names = ("at", "code", "receive_count", "end", "consumer")
        entries = zip(*(table[name][left:right].tolist() for name in names), strict=True)
        return tuple(self._attempt(window, *entry) for entry in entries)

    def _single(self, c: dict[str, int]) -> tuple[Attempt, ...]:
        if not c["window_code"]:
            return ()
        window = self.windows[c["queue"]]
        what = (c["window_at"], c["window_code"], c["receive_count"], c["window_end"], c["consumer"])
        return (self._attempt(window, *what),)

    def _attempt(self, window: int, at: int, code: int, receives: int, end: int, consumer: int) -> Attempt:
        if not end and code in _WHAT:
            end = min(at + window, NEVER)
        name = self.state.consumers.name[consumer] if consumer >= 0 else None
        return Attempt(at, _WHAT.get(code, "released"), receives, end if 0 < end < NEVER else None, name)


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
        ranks_of = zip(*(c[chosen].tolist() for c in columns), strict=True)
        views = viewer.views(candidates[chosen], (kind,))
        out[int(sorted_queue[start])] = [Listed(rank, view) for rank, view in zip(ranks_of, views, strict=True)]
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


def last_acks(state: ShardState, settings: Settings) -> dict[int, dict[str, int]]:
    """Per queue (by index) when its consumers last acknowledged a message, the latest ones."""
    names = state.consumers
    out: dict[int, dict[str, int]] = {}
    for number in np.argsort(-names.time, kind="stable").tolist():
        at = int(names.time[number])
        if not at:
            break
        acks = out.setdefault(names.queue[number], {})
        if len(acks) < settings.consumers_per_report:
            acks[names.name[number]] = at
    return out


def held_since(state: ShardState, rows: Array) -> Array:
    """Since when these in-flight messages have been held without a break: their latest receive, extended or not."""
    received = state.rows.at("last_received", rows)
    return np.where(received > 0, received, state.rows.at("window_at", rows))


def recent_arrivals(state: ShardState, since: int, settings: Settings) -> list[Arrival]:
    """Dead letters that came after `since`, moves that were only concluded included."""
    rows = state.rows
    out: list[Arrival] = []
    if rows.has("arrived"):
        for row in np.flatnonzero(rows["arrived"] > max(since, 0)).tolist():
            out.append(_arrival(state, row, settings))
    flags = rows["flags"]
    for row in np.flatnonzero(((flags & F_MOVE_INFERRED) != 0) & (rows["ended"] > since)).tolist():
        record = state.queues[int(rows["queue"][row])]
        there = record.attribute("dead_letter_queue")
        if isinstance(there, str):
            name = (record.name[0], record.name[1], there)
            count = int(rows["receive_count"][row])
            out.append(Arrival(name, state.message_id(row), int(rows["ended"][row]), "inferred", record.name[2], count))
    return out


def recent_losses(state: ShardState, since: int, settings: Settings) -> dict[int, list[Loss]]:
    """Per queue (by index) the latest messages that expired or were dropped after `since`, oldest first."""
    rows = state.rows
    flags = rows["flags"]
    lost = np.flatnonzero(((flags & (F_EXPIRED | F_DROPPED)) != 0) & (rows["ended"] > since))
    out: dict[int, list[Loss]] = {}
    for row in lost.tolist():
        kind = "dropped" if flags[row] & F_DROPPED else "expired"
        reason = state.loss_reasons.get(int(rows.key[row]), "" if kind == "dropped" else "retention ran out")
        count, sent = int(rows["receive_count"][row]), int(rows["sent"][row])
        loss = Loss(int(rows["ended"][row]), state.message_id(row), kind, reason, count, sent)
        out.setdefault(int(rows["queue"][row]), []).append(loss)
    return {number: sorted(losses)[-settings.messages_per_queue :] for number, losses in out.items()}


def _arrival(state: ShardState, row: int, settings: Settings) -> Arrival:
    rows, one = state.rows, np.array([row])
    origin, count = int(rows.at("origin", one)[0]), int(rows.at("receive_count", one)[0])
    source = state.queues[origin].name[2] if origin >= 0 else None
    ordered = [state.queues[n].ordered or settings.is_ordered(state.queues[n].name) for n in (int(rows["queue"][row]), origin)]
    if origin >= 0 and not any(ordered):
        # An ordered queue is in a shard of its own: what the message went through there cannot be looked up here.
        at, found = find_remembered(state, rows.at("parent", one), settings)
        if found[0]:
            count = max(count, int(rows["receive_count"][at[0]]))
    name = state.queues[int(rows["queue"][row])].name
    by = arrival_known_by(int(rows["flags"][row]))
    return Arrival(name, state.message_id(row), int(rows["arrived"][row]), by, source, count)
