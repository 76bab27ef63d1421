"""The messages a shard lists by name: suspects, the longest held, dead letters, the oldest; those that arrived or were lost."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa

from streaming.core.columns import Array, nonzero
from streaming.core.events.events import EXTENDED, RECEIVED
from streaming.core.reporting.message_columns import AttemptColumns, ListedMessages, MessageColumns, arrival_known_by
from streaming.core.reporting.report import RETENTION_RAN_OUT, Arrival, Loss, Rank, listed_per_queue
from streaming.core.reporting.views import MessageView
from streaming.core.settings import Settings
from streaming.core.state.interner import text_of
from streaming.core.state.queues import Refusals
from streaming.core.state.rows import F_DEAD_LETTERED, F_DELETED, F_DROPPED, F_EXPIRED, F_REDRIVEN, F_SENT_KNOWN, F_TIMELINE
from streaming.core.state.state import ShardState
from streaming.core.tracking.holds import held_since
from streaming.core.tracking.retention import expiry
from streaming.core.tracking.windows import Windows, default_ends, windows

_LOST, _NOT_LOST = np.uint32(F_EXPIRED | F_DROPPED), np.uint32(F_DELETED | F_DEAD_LETTERED | F_REDRIVEN)

_SHOWN = (
    "hi",
    "lo",
    "text",
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


class Viewer:
    """Converts rows of one state, at one time, to what is shown to a person."""

    def __init__(self, state: ShardState, w: Windows, settings: Settings) -> None:
        self.state, self.w, self.settings = state, w, settings
        self._made: dict[bytes, MessageColumns] = {}

    def columns(self, rows: Array) -> MessageColumns:
        """Return some rows' messages as columns. The same messages are often listed under several kinds."""
        key = rows.tobytes()
        if key not in self._made:
            self._made[key] = self._columns(rows)
        return self._made[key]

    def _columns(self, rows: Array) -> MessageColumns:
        state, live = self.state, self.state.rows
        at = {name: live.at(name, rows) for name in _SHOWN}
        return MessageColumns(
            numbers={
                "hi": at["hi"],
                "lo": at["lo"],
                "state": np.where(self.w.in_flight[rows], 1, np.where(self.w.delayed[rows], 2, 0)),
                "sent": at["sent"],
                "receive_count": at["receive_count"],
                "seq_kind": at["seq_kind"],
                "seq_hi": at["seq_hi"],
                "seq_lo": at["seq_lo"],
                "last_received": at["last_received"],
                "held_since": np.where(self.w.in_flight[rows], held_since(state, rows, self.settings), 0),
                "window_end": self.w.window_end[rows],
                "arrived": at["arrived"],
                "expires": expiry(state, rows, self.settings),
                "flags": at["flags"],
                "seen": np.bitwise_count(live.at("seen", rows)) + live.at("seen_uncounted", rows),
                "refused": self._refused(rows),
            },
            texts=text_of(state.texts, at["text"]),
            groups=state.groups.taken(at["group"]),
            consumers=state.consumers.taken(at["consumer"]),
            attempts=self._attempts(rows, at),
        )

    def views(self, rows: Array, why: tuple[str, ...]) -> list[MessageView]:
        """Return some rows' messages as they are shown."""
        return self.columns(rows).views(0, len(rows), why)

    def _refused(self, rows: Array) -> Array:
        known = self.state.refusals
        if not known:
            return np.zeros(len(rows), dtype=np.int64)
        none = Refusals(0, 0)
        return np.array([known.get(key, none).times for key in self.state.rows.key[rows].tolist()], dtype=np.int64)

    def _attempts(self, rows: Array, at: dict[str, Array]) -> AttemptColumns:
        """Return each row's timeline; for a message delivered once, the single attempt its row records."""
        state, table = self.state, self.state.attempts
        has_timeline = (at["flags"] & F_TIMELINE) != 0
        timeline, single = nonzero(has_timeline), nonzero(~has_timeline & (at["window_code"] > 0))
        if not len(timeline) and not len(single):
            return _no_attempts(len(rows))
        of = single
        if len(timeline):
            keys = state.rows.key[rows[timeline]]
            left, right = np.searchsorted(table["key"], keys, "left"), np.searchsorted(table["key"], keys, "right")
            lengths = right - left
            places = np.repeat(left - np.append(0, np.cumsum(lengths)[:-1]), lengths) + np.arange(int(lengths.sum()))
            of = np.concatenate([np.repeat(timeline, lengths), single])
            order = np.argsort(of, kind="stable")
            of = of[order]

        def combined(attempt: str, column: str) -> Array:
            own = at[column][single]
            return np.concatenate([table[attempt][places], own])[order] if len(timeline) else own

        happened, code, end = combined("at", "window_at"), combined("code", "window_code"), combined("end", "window_end")
        opens = (code == RECEIVED) | (code == EXTENDED)
        end = np.where(opens & (end == 0), default_ends(state, at["queue"][of], happened, self.settings), end)
        return AttemptColumns(
            starts=np.searchsorted(of, np.arange(len(rows) + 1)),
            at=happened,
            what=np.where(code == RECEIVED, 0, np.where(code == EXTENDED, 1, 2)),
            receive_count=np.where((code == RECEIVED) | ~has_timeline[of], combined("receive_count", "receive_count"), 0),
            end=end,
            consumers=state.consumers.taken(combined("consumer", "consumer")),
        )


def _no_attempts(messages: int) -> AttemptColumns:
    # Most messages that are listed only wait, and were never delivered.
    nothing = np.zeros(0, dtype=np.int64)
    starts = np.zeros(messages + 1, dtype=np.int64)
    return AttemptColumns(starts, nothing, nothing, nothing, nothing, pa.nulls(0, pa.string()))


@cache
def no_messages() -> MessageColumns:
    """No messages. Most kinds are empty in most steps, and building empty columns costs as much as building small ones."""
    state, settings = ShardState.empty(), Settings()
    return Viewer(state, windows(state, 0, settings), settings).columns(np.zeros(0, dtype=np.int64))


def list_messages(viewer: Viewer, kind: str, candidates: Array, ranks: tuple[Array, ...], most: int) -> ListedMessages:
    """List at most `most` candidates of lowest rank per queue. `ranks` are columns parallel to the candidates."""
    rows = viewer.state.rows
    queue = rows.at("queue", candidates)
    if not len(candidates):
        return ListedMessages(kind, queue, (*ranks, np.zeros(0, dtype=np.int64)), no_messages(), most)
    tie = (rows.key[candidates] >> np.uint64(1)).astype(np.int64)
    columns = (*ranks, tie)
    if np.bincount(queue).max() == 1:
        # One of each queue, as nearly all of those with the oldest send time are: they need no ranks.
        chosen = np.argsort(queue)
    else:
        order = np.lexsort((*reversed(columns), queue))
        sorted_queue = queue[order]
        place = np.arange(len(order)) - np.searchsorted(sorted_queue, sorted_queue, side="left")
        chosen = order[place < most]
    return ListedMessages(kind, queue[chosen], tuple(c[chosen] for c in columns), viewer.columns(candidates[chosen]), most)


def recent_arrivals(state: ShardState, since: int, settings: Settings) -> tuple[list[Arrival], int]:
    """Return the latest dead letters of each queue that arrived after `since`, or became known then, inferred moves included.

    And how many of each queue they are at most.
    """
    rows, most = state.rows, settings.messages_per_queue
    if not len(rows) or not rows.has("arrived"):
        return [], most
    hit = nonzero((rows["arrived"] > 0) & (np.maximum(rows["arrived"], rows["arrived_noticed"]) > since))
    if not len(hit):
        return [], most
    # How long the row of a message that left again is kept depends on when rows are compacted.
    ended = rows.at("ended", hit)
    hit = hit[(ended == 0) | (ended >= since)]
    queue, at, noticed = rows.at("queue", hit), rows.at("arrived", hit), rows.at("arrived_noticed", hit)
    quiet_ms = state.queues.limit("dead_letter_quiet_ms", settings)
    most = listed_per_queue(queue, most)
    rank, chosen = _latest(state, hit, queue, quiet_start(at, noticed, quiet_ms[queue]), most)
    hit, queue, at = hit[chosen], queue[chosen], at[chosen]
    source = rows.at("origin", hit)
    names = state.queues.names
    fields = zip(
        queue.tolist(),
        state.message_ids(hit),
        at.tolist(),
        rows.at("flags", hit).tolist(),
        source.tolist(),
        _receives(state, hit, queue, source, since, settings).tolist(),
        rank,
        strict=True,
    )
    arrivals = [
        Arrival(
            queue=names[number],
            message_id=message_id,
            at=at_ms,
            known_by=arrival_known_by(flags),
            source=names[origin].queue if origin >= 0 else None,
            receive_count=count,
            rank=placed,
        )
        for number, message_id, at_ms, flags, origin, count, placed in fields
    ]
    return arrivals, most


def recent_losses(state: ShardState, since: int, settings: Settings) -> tuple[dict[int, list[Loss]], int]:
    """Return, per queue (by index), the latest messages that were lost after `since`, or of which it became known then.

    Oldest first; and how many of each queue they are at most. A message that was processed or moved as well, by another report,
    was not lost.
    """
    rows, most = state.rows, settings.messages_per_queue
    is_lost = ((rows["flags"] & _LOST) != 0) & ((rows["flags"] & _NOT_LOST) == 0)
    lost = nonzero(is_lost & (np.maximum(rows["ended"], rows["ended_noticed"]) > since))
    if not len(lost):
        return {}, most
    queue, at = rows.at("queue", lost), rows.at("ended", lost)
    quiet_ms = state.queues.limit("dropped_quiet_ms", settings)
    quiet_from = quiet_start(at, rows.at("ended_noticed", lost), quiet_ms[queue])
    most = listed_per_queue(queue, most)
    rank, chosen = _latest(state, lost, queue, quiet_from, most)
    lost = lost[chosen]
    flags = rows.at("flags", lost)
    fields = zip(
        queue[chosen].tolist(),
        rank,
        at[chosen].tolist(),
        state.message_ids(lost),
        (flags & F_DROPPED).tolist(),
        rows.key[lost].tolist(),
        rows.at("receive_count", lost).tolist(),
        rows.at("sent", lost).tolist(),
        ((flags & F_SENT_KNOWN) != 0).tolist(),
        strict=True,
    )
    out: dict[int, list[Loss]] = {}
    for number, placed, at_ms, message_id, dropped, key, receives, sent_at, sent_known in fields:
        kind = "dropped" if dropped else "expired"
        reason = state.loss_reasons.get(key, "" if dropped else RETENTION_RAN_OUT)
        out.setdefault(number, []).append(
            Loss(
                rank=placed,
                at=at_ms,
                message_id=message_id,
                kind=kind,
                reason=reason,
                receive_count=receives,
                sent_at=sent_at,
                sent_known=sent_known,
            )
        )
    return out, most


def quiet_start(happened: Array, noticed: Array, quiet_ms: Array) -> Array:
    """Return from when the quiet after each counts: since it happened or, if that became known too late, since it was noticed."""
    return np.where(noticed - happened < quiet_ms, happened, noticed)


def _latest(state: ShardState, rows: Array, queue: Array, quiet_from: Array, most: int) -> tuple[list[Rank], Array]:
    """Return the latest `most` of each queue in ascending order: the rank of each, and its index in `rows`."""
    tie = (state.rows.key[rows] >> np.uint64(1)).astype(np.int64)
    order = np.lexsort((tie, quiet_from, queue))
    of = queue[order]
    behind = np.searchsorted(of, of, side="right") - np.arange(len(of))
    chosen = order[behind <= most]
    return list(zip(quiet_from[chosen].tolist(), tie[chosen].tolist(), strict=True)), chosen


def _receives(state: ShardState, hit: Array, queue: Array, origin: Array, since: int, settings: Settings) -> Array:
    """Return how often each of these dead letters was received, including in its source queue (-1: not known).

    They arrived after `since`. An original that ended then is still stored, even if a step was longer than the lateness.
    """
    rows = state.rows
    count = rows.at("receive_count", hit)
    ordered = state.queues.is_ordered(settings)
    # An ordered queue is in another shard: the message's receives there cannot be looked up here.
    together = nonzero((origin >= 0) & ~ordered[queue] & ~ordered[origin])
    at, found = rows.find(rows.at("parent", hit[together]))
    together, at = together[found], at[found]
    ended = rows.at("ended", at)
    stored = (ended == 0) | (ended >= since)
    together, at = together[stored], at[stored]
    count[together] = np.maximum(count[together], rows.at("receive_count", at))
    return count
