"""Aggregate a shard's state at `now`: numbers per queue, and the messages, groups and consumers worth naming."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.events.packet import Quarantined
from streaming.core.reporting.at_counts import tracked_at_counts
from streaming.core.reporting.consumers import consumer_results, held_by_consumers, last_acks
from streaming.core.reporting.groups import ordered_queues
from streaming.core.reporting.listing import (
    Viewer,
    list_messages,
    recent_arrivals,
    recent_losses,
)
from streaming.core.reporting.message_columns import ListedMessages
from streaming.core.reporting.purges import recent_purges
from streaming.core.reporting.queue_columns import FLAGS, LATEST_COUNT, REPORT_TIMES, REPORTED, QueueColumns
from streaming.core.reporting.report import AGE_BUCKETS_S, OLDEST_LISTED, listed_per_queue, per_queue_min
from streaming.core.reporting.shard_report import ShardReport
from streaming.core.reporting.tenants import unordered_groups
from streaming.core.settings import Settings
from streaming.core.state.queues import NEVER
from streaming.core.state.rows import F_DEAD_LETTERED, F_DROPPED, F_SENT_KNOWN
from streaming.core.state.state import SILENT_MEMORY_MS, ShardState
from streaming.core.tracking.apply_deliveries import COUNTED_RECEIVES, unseen_receives
from streaming.core.tracking.attempts import RESTART_EVERY
from streaming.core.tracking.holds import held_since
from streaming.core.tracking.retention import expiry
from streaming.core.tracking.windows import Windows, windows

LOST_LATELY_MS = 300_000
SENDS_FOLLOW_MS = 10_000
"""A producer may report a send this much later than consumers report the message."""
_BOUNDS_MS = np.array([int(b * 1000) for b in AGE_BUCKETS_S], dtype=np.int64)


def report(state: ShardState, now: int, before: int, quarantine: list[Quarantined], settings: Settings) -> ShardReport:
    """Report the shard's state at `now` (epoch milliseconds). `before` is the time of its last report, 0 for the first."""
    # After a long silence, events since the last report may be unreported, however old they are.
    since = min(state.oldest_timely_at(settings), before)
    arrivals, arrivals_per_queue = recent_arrivals(state, since, settings)
    return ShardReport(
        now=now,
        rows=state.messages,
        queues=_queues(state, now, before, since, settings),
        arrivals=arrivals,
        arrivals_per_queue=arrivals_per_queue,
        events_total=Counter(state.events_total),
        invalid_total=Counter(state.invalid_total),
        collectors={name: at for name, at in state.collectors.items() if at >= state.high_water - SILENT_MEMORY_MS},
        quarantine=quarantine,
        high_water=state.high_water,
    )


def _queues(state: ShardState, now: int, before: int, since: int, settings: Settings) -> QueueColumns:
    table = state.queues
    w = windows(state, now, settings)
    selected = _select(state, w, settings)
    viewer = Viewer(state, w, settings)
    columns = _numbers(state, w, selected, now, settings)
    columns |= {name: table.column(name).copy() for name in (*FLAGS, *REPORT_TIMES, *LATEST_COUNT, *REPORTED)}
    depths = table.flat_depths()
    groups, folded_groups = unordered_groups(state, w, settings)
    losses, losses_per_queue = recent_losses(state, since, settings)
    oldest = but_used_up = _oldest(state, w, selected, now, settings)
    if len(selected.used_up):
        but_used_up = _oldest(state, *_without(state, w, selected), now, settings)
    return QueueColumns(
        names=table.packed_names(),
        columns=columns,
        totals=table.totals.copy(order="K"),
        oldest=oldest,
        oldest_but_used_up=but_used_up,
        age_counts=_age_counts(state, w, now),
        attributes=table.attribute_texts(),
        durations=table.durations,
        depths=depths,
        tracked_at_counts=tracked_at_counts(state, w, depths, columns, now, before, settings),
        acks=last_acks(state, settings),
        results=consumer_results(state, settings),
        listed=_listings(state, w, selected, viewer, now, settings),
        groups=groups,
        folded_groups=folded_groups,
        ordered=ordered_queues(state, w, viewer, now, settings),
        consumers=held_by_consumers(state, w, settings),
        consumer_states=state.consumer_states.only(state.consumer_states.at >= state.high_water - SILENT_MEMORY_MS),
        losses=losses,
        losses_per_queue=losses_per_queue,
        purges=recent_purges(state, w, now, since, settings),
    )


@dataclass(slots=True)
class _Selected:
    """Rows that are counted and listed separately, as indices; and per queue the send time of its oldest message."""

    poison: Array
    dead: Array
    """Dead letters."""
    oldest_at: Array
    received: Array
    """Mask: unsettled, delivered at least once, and with a known send time. Excludes those of `used_up`."""
    used_up: Array
    """Messages that have no receives left and whose last window has ended: the next receive dead-letters them."""
    held: Array
    """Messages in flight…"""
    held_since: Array
    """…and since when each has been held without a break."""


def _select(state: ShardState, w: Windows, settings: Settings) -> _Selected:
    rows = state.rows
    queue = rows["queue"]
    of_dead = state.queues.column("dead_letter")[queue]
    used_up = _used_up(state, w, settings)
    received = w.live & (rows["last_received"] > 0) & ((rows["flags"] & F_SENT_KNOWN) != 0)
    received[used_up] = False
    held = nonzero(w.in_flight)
    return _Selected(
        poison=_poison(state, w, of_dead, settings),
        dead=nonzero(w.live & (of_dead | (rows["arrived"] > 0))),
        oldest_at=per_queue_min(queue, rows["sent"], w.live, len(state.queues)),
        received=received,
        used_up=used_up,
        held=held,
        held_since=held_since(state, held, settings),
    )


def _used_up(state: ShardState, w: Windows, settings: Settings) -> Array:
    rows = state.rows
    most = state.queues.limit("max_receive_count", settings)
    limits = np.where((most > 0) & (state.queues.limit("dead_letter_queue", settings) > 0), most, NEVER)
    if not (limits < NEVER).any():
        return np.zeros(0, dtype=np.int64)
    near = nonzero(w.visible & (rows["receive_count"] >= limits.min()))
    limit = limits[rows.at("queue", near)]
    result: Array = near[rows.at("receive_count", near) >= limit]
    return result


def _send_is_unknown(state: ShardState, rows: Array, now: int) -> Array:
    """Whether it is not known when these messages were sent, and a report of it is no longer due."""
    unknown: Array = (state.rows.at("flags", rows) & F_SENT_KNOWN) == 0
    # Until then `sent` is the time of the first event.
    return unknown & (state.rows.at("sent", rows) <= now - SENDS_FOLLOW_MS)


def _lost_at_receives(state: ShardState, now: int, n: int, settings: Settings) -> Array:
    """Return, per queue, the highest receive count at which a message was dead-lettered or dropped in the last five minutes.

    With a shorter lateness the window is that: how much longer a row is kept depends on when rows are compacted.
    """
    rows = state.rows
    out = np.zeros(n, dtype=np.int64)
    since = now - min(LOST_LATELY_MS, settings.lateness_ms)
    lost = nonzero(((rows["flags"] & np.uint32(F_DEAD_LETTERED | F_DROPPED)) != 0) & (rows["ended"] > since))
    np.maximum.at(out, rows.at("queue", lost), rows.at("receive_count", lost).astype(np.int64))
    return out


def _poison(state: ShardState, w: Windows, of_dead: Array, settings: Settings) -> Array:
    """Return the poison suspects.

    A dead letter is one only by deliveries in its dead-letter queue: its receive count continues from the source queue.
    """
    rows = state.rows
    limit = state.queues.limit("poison_receives", settings)
    # Hardly any message comes near the lowest limit of all queues.
    near = nonzero(w.live & ((rows["receive_count"] >= limit.min(initial=NEVER)) | of_dead))
    if not len(near):
        return near
    seen = np.bitwise_count(rows.at("seen", near)) + rows.at("seen_uncounted", near)
    receives = np.where(of_dead[near], seen, rows.at("receive_count", near))
    return near[receives >= limit[rows.at("queue", near)]]


def _numbers(state: ShardState, w: Windows, selected: _Selected, now: int, settings: Settings) -> dict[str, Array]:
    """Return a value per queue for each name of NUMBERS."""
    rows, n = state.rows, len(state.queues)
    queue, sent = rows["queue"], rows["sent"]
    live = nonzero(w.live)
    received = nonzero(w.live & (rows["receive_count"] > 0))
    receives_max = np.zeros(n, dtype=np.int64)
    # Use one type: numpy compares mixed types twenty times slower.
    np.maximum.at(receives_max, queue[received], rows.at("receive_count", received).astype(np.int64))
    expires_at, used_up_first, held_first = (np.full(n, NEVER, dtype=np.int64) for _ in range(3))
    expires_last = np.zeros(n, dtype=np.int64)
    expires = expiry(state, selected.dead, settings)
    np.minimum.at(expires_at, queue[selected.dead], expires)
    np.maximum.at(expires_last, queue[selected.dead], expires)
    np.minimum.at(used_up_first, queue[selected.used_up], w.window_end[selected.used_up])
    np.minimum.at(held_first, queue[selected.held], selected.held_since)
    # Sums of integer milliseconds stay exact in a double up to 2^53: 28 years over ten million messages.
    age_sum_ms = np.bincount(queue[live], weights=np.maximum(now - sent[live], 0), minlength=n).astype(np.int64)
    return {
        "visible": np.bincount(queue[w.visible], minlength=n),
        "in_flight": np.bincount(queue[w.in_flight], minlength=n),
        "delayed": np.bincount(queue[w.delayed], minlength=n),
        "poison": np.bincount(queue[selected.poison], minlength=n),
        "used_up": np.bincount(queue[selected.used_up], minlength=n),
        "dead_letters": np.bincount(queue[selected.dead], minlength=n),
        "send_unknown": np.bincount(queue[live[_send_is_unknown(state, live, now)]], minlength=n),
        "restarts_unseen": _restarts_unseen(state, w, now, settings),
        "age_sum_ms": age_sum_ms,
        "receive_count_max": receives_max,
        "expires_at": expires_at,
        "visible_since": per_queue_min(queue, w.visible_since, w.visible, n),
        "lost_at_receives": _lost_at_receives(state, now, n, settings),
        "expires_last": expires_last,
        "late_work_ms": _late_work(state),
        "used_up_first": used_up_first,
        "oldest_received": per_queue_min(queue, sent, selected.received, n),
        "returned_since": per_queue_min(queue, rows["last_received"], selected.received & w.visible, n),
        "oldest_held": per_queue_min(queue, sent, selected.received & w.in_flight, n),
        "oldest_received_visible": per_queue_min(queue, sent, selected.received & w.visible, n),
        "held_since": held_first,
    }


def _restarts_unseen(state: ShardState, w: Windows, now: int, settings: Settings) -> Array:
    """Count, per queue, the messages of which CloudWatch's age restarted with a receive that was not seen.

    That receive ended at an unknown time before the next one, from which the age counts here.
    """
    rows, n = state.rows, len(state.queues)
    if not rows.has("restart"):
        return np.zeros(n, dtype=np.int64)
    at = nonzero(w.live & (rows["restart"] > 0) & (rows["arrived"] == 0))
    at = at[~state.queues.keeps_order(settings)[rows.at("queue", at)]]
    count = rows.at("receive_count", at).astype(np.int64)
    # The third receive may be in flight, or its window not be over yet: then the one before it counts.
    third = count - count % RESTART_EVERY - np.where(rows.at("restart", at) > now, RESTART_EVERY, 0)
    numbered = (third > 0) & (third <= COUNTED_RECEIVES)
    seen = rows.at("seen", at) >> np.where(numbered, third - 1, 0).astype(np.uint64) & np.uint64(1) == 1
    # Receives that are reported without a count are numbered in their order.
    unseen = numbered & ~seen & (unseen_receives(rows, at) > 0)
    return np.bincount(rows.at("queue", at[unseen]), minlength=n)


def _late_work(state: ShardState) -> Array:
    """Return, per queue, the longest work of this step that ended after its visibility window; 0 where none did."""
    longest_ms = np.zeros(len(state.queues), dtype=np.int64)
    if state.late_work_ms:
        longest_ms[list(state.late_work_ms)] = list(state.late_work_ms.values())
    return longest_ms


def _age_counts(state: ShardState, w: Windows, now: int) -> Array:
    """Count unsettled messages per queue and age bucket."""
    rows, live = state.rows, nonzero(w.live)
    bucket = np.searchsorted(_BOUNDS_MS, np.maximum(now - rows.at("sent", live), 0), side="left")
    n, buckets = len(state.queues), len(_BOUNDS_MS) + 1
    counts: Array = np.bincount(bucket * n + rows.at("queue", live), minlength=n * buckets).reshape(buckets, n).T
    return counts


def _oldest(state: ShardState, w: Windows, selected: _Selected, now: int, settings: Settings) -> Array:
    """Return, per queue and scope of AGE_SCOPES, the time from which its age counts."""
    scopes: Array = np.stack(
        [
            selected.oldest_at,
            _oldest_without(state, w, selected, nonzero(w.live & ~w.visible)),
            _cloudwatch_oldest(state, w, selected, now, settings),
            _oldest_without(state, w, selected, selected.poison),
        ]
    ).T
    return scopes


def _without(state: ShardState, w: Windows, selected: _Selected) -> tuple[Windows, _Selected]:
    """Return the same inputs without the messages that have no receives left."""
    live, visible = w.live.copy(), w.visible.copy()
    live[selected.used_up] = visible[selected.used_up] = False
    oldest_at = _oldest_without(state, w, selected, selected.used_up)
    poison = selected.poison[~np.isin(selected.poison, selected.used_up)]
    return replace(w, live=live, visible=visible), replace(selected, poison=poison, oldest_at=oldest_at)


def _oldest_without(state: ShardState, w: Windows, selected: _Selected, apart: Array) -> Array:
    """Return, per queue, the send time of the oldest message that is not in `apart`.

    Where that of all is not in it, which is nearly everywhere, the others need not be looked at.
    """
    if not len(apart):
        return selected.oldest_at
    queue, sent = state.rows["queue"], state.rows["sent"]
    oldest = apart[sent[apart] <= selected.oldest_at[queue[apart]]]
    if not len(oldest):
        return selected.oldest_at
    again = np.zeros(len(selected.oldest_at), dtype=bool)
    again[queue[oldest]] = True
    others = w.live & again[queue]
    others[apart] = False
    return np.where(again, per_queue_min(queue, sent, others, len(again)), selected.oldest_at)


def _cloudwatch_oldest(state: ShardState, w: Windows, selected: _Selected, now: int, settings: Settings) -> Array:
    """Return, per queue, the earliest time from which ApproximateAgeOfOldestMessage counts.

    That is the send; on a standard queue the end of the latest third receive; in a dead-letter queue the arrival, regardless of
    the receives in its source queue or since.
    """
    rows = state.rows
    marks = [rows[name] > 0 for name in ("restart", "restart_before", "arrived") if rows.has(name)]
    apart = nonzero(w.live & np.logical_or.reduce(marks)) if marks else np.zeros(0, dtype=np.int64)
    oldest = _oldest_without(state, w, selected, apart)
    if not len(apart):
        return oldest
    queue = rows.at("queue", apart)
    ordered = state.queues.keeps_order(settings)[queue]
    last, before, arrived = rows.at("restart", apart), rows.at("restart_before", apart), rows.at("arrived", apart)
    restart = np.where((last > 0) & (last <= now), last, np.where(before <= now, before, 0))
    base = rows.at("sent", apart)
    base = np.where(arrived > 0, arrived, np.where(ordered, base, np.maximum(base, restart)))
    # With nothing to leave out this is the shared array of oldest times, which must not be changed.
    oldest = oldest.copy()
    np.minimum.at(oldest, queue, base)
    return oldest


def _listings(
    state: ShardState, w: Windows, selected: _Selected, viewer: Viewer, now: int, settings: Settings
) -> tuple[ListedMessages, ...]:
    rows, poison, dead, most = state.rows, selected.poison, selected.dead, settings.messages_per_queue
    receives, sent = rows.at("receive_count", poison).astype(np.int64), rows.at("sent", poison)
    held, since = selected.held, selected.held_since
    long = now - since > state.queues.limit("held_ms", settings)[rows.at("queue", held)]
    oldest = nonzero(w.live & (rows["sent"] == selected.oldest_at[rows["queue"]]))
    return (
        list_messages(viewer, "poison", poison, (-receives, sent), listed_per_queue(rows.at("queue", poison), most)),
        list_messages(viewer, "held", held[long], (since[long],), listed_per_queue(rows.at("queue", held[long]), most)),
        list_messages(viewer, "dead_letter", dead, (expiry(state, dead, settings), rows.at("sent", dead)), most),
        list_messages(viewer, "oldest", oldest, (rows.at("sent", oldest),), OLDEST_LISTED),
    )
