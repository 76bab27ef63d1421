"""A shard's state as of `now` in numbers per queue, and the messages, groups and consumers worth naming."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from streaming.core.columns import Array
from streaming.core.expire import expiry
from streaming.core.groups import ordered_facts, unordered_groups
from streaming.core.listing import Viewer, held_by_consumers, held_since, last_acks, list_messages, recent_arrivals, recent_losses
from streaming.core.packet import Quarantined
from streaming.core.queues import NEVER, poison_receives, visibility_ms
from streaming.core.report import (
    AGE_BUCKETS_S,
    OLDEST_LISTED,
    QueueFacts,
    ShardReport,
    no_numbers,
    per_queue_min,
)
from streaming.core.settings import Settings
from streaming.core.state import ShardState
from streaming.core.sweep import SILENT_MEMORY_MS
from streaming.core.windows import Windows, windows

_BOUNDS_MS = np.array([int(b * 1000) for b in AGE_BUCKETS_S], dtype=np.int64)


def report(state: ShardState, now: int, before: int, quarantine: list[Quarantined], settings: Settings) -> ShardReport:
    """What the shard says as of `now` (epoch milliseconds). Its last report was as of `before`, 0 when this is the first."""
    # After a long silence, what happened in between has not been told yet however long ago it was.
    since = min(state.high_water - settings.lateness_ms, before)
    w = windows(state, now, settings)
    consumers = _consumers(state)
    queues = [_facts(state, number, consumers.get(number, {})) for number in range(len(state.queues))]
    for number, acks in last_acks(state, settings).items():
        queues[number].consumer_acks = acks
    if len(state.rows):
        singled = _singled(state, w, settings)
        _numbers(state, w, singled, queues, now, settings)
        viewer = Viewer(state, w, settings)
        _listings(state, w, singled, viewer, queues, now, settings)
        for number, facts in ordered_facts(state, w, viewer, now, settings).items():
            queues[number].ordered_facts = facts
        for number, (groups, folded) in unordered_groups(state, w, settings).items():
            queues[number].groups, queues[number].folded_groups = groups, folded
        for number, losses in recent_losses(state, since, settings).items():
            queues[number].losses = losses
        for number, held in held_by_consumers(state, w, settings).items():
            queues[number].consumers = held
    return ShardReport(
        now,
        state.messages,
        {facts.name: facts for facts in queues},
        recent_arrivals(state, since, settings) if len(state.rows) else [],
        Counter(state.events_total),
        Counter(state.invalid_total),
        {name: at for name, at in state.collectors.items() if at >= state.high_water - SILENT_MEMORY_MS},
        quarantine,
        state.high_water,
    )


def _consumers(state: ShardState) -> dict[int, dict[str, list[Any]]]:
    """Per queue (by index) what was told of its consumers lately."""
    out: dict[int, dict[str, list[Any]]] = {}
    for (number, consumer), told in state.consumer_states.items():
        if told[0] >= state.high_water - SILENT_MEMORY_MS:
            out.setdefault(number, {})[consumer] = told
    return out


def _facts(state: ShardState, number: int, consumers: dict[str, list[Any]]) -> QueueFacts:
    q = state.queues[number]
    return QueueFacts(
        q.name,
        dict(q.attributes),
        list(q.totals),
        dict(q.holds),
        list(q.depths),
        q.ordered,
        q.dead_letter,
        q.messages_seen,
        q.last_event_at,
        q.last_received_at,
        q.last_settled_at,
        q.last_state_at,
        q.skew_ms,
        no_numbers(),
        [NEVER] * 4,
        [0] * (len(AGE_BUCKETS_S) + 1),
        consumer_states=consumers,
    )


@dataclass(slots=True)
class _Singled:
    """Rows that are counted and listed apart, as indices; and per queue the send time of its oldest message."""

    poison: Array
    dead: Array
    """Dead letters."""
    oldest_at: Array


def _singled(state: ShardState, w: Windows, settings: Settings) -> _Singled:
    rows = state.rows
    queue = rows["queue"]
    of_dead = np.array([q.dead_letter for q in state.queues], dtype=bool)[queue]
    return _Singled(
        _poison(state, w, of_dead, settings),
        np.flatnonzero(w.live & (of_dead | (rows["arrived"] > 0))),
        per_queue_min(queue, rows["sent"], w.live, len(state.queues)),
    )


def _poison(state: ShardState, w: Windows, of_dead: Array, settings: Settings) -> Array:
    """Poison suspects. A dead letter is one only by deliveries in its dead-letter queue: its receive count goes on from the
    queue it came from."""
    rows = state.rows
    limit = np.array([poison_receives(q, settings) for q in state.queues], dtype=np.int64)
    # Hardly any message comes near the lowest limit of all.
    near = np.flatnonzero(w.live & ((rows["receive_count"] >= limit.min()) | of_dead))
    seen = np.bitwise_count(rows.at("seen", near)) + rows.at("seen_uncounted", near)
    receives = np.where(of_dead[near], seen, rows.at("receive_count", near))
    return near[receives >= limit[rows.at("queue", near)]]


def _numbers(state: ShardState, w: Windows, singled: _Singled, queues: list[QueueFacts], now: int, settings: Settings) -> None:
    rows, n = state.rows, len(queues)
    queue, sent = rows["queue"], rows["sent"]
    live = np.flatnonzero(w.live)
    of_live = queue[live]
    received = np.flatnonzero(w.live & (rows["receive_count"] > 0))
    receives_max = np.zeros(n, dtype=np.int64)
    # Of one type: numpy compares mixed ones twenty times slower.
    np.maximum.at(receives_max, queue[received], rows.at("receive_count", received).astype(np.int64))
    expires_at = np.full(n, NEVER, dtype=np.int64)
    np.minimum.at(expires_at, queue[singled.dead], expiry(state, singled.dead, settings))
    age_ms = np.maximum(now - sent[live], 0)
    bucket = np.searchsorted(_BOUNDS_MS, age_ms, side="left")
    buckets = len(_BOUNDS_MS) + 1
    histogram = np.bincount(of_live * buckets + bucket, minlength=n * buckets).reshape(n, buckets)
    # Sums of whole milliseconds stay exact in a double up to 2^53: 28 years over ten million messages.
    columns: dict[str, Array] = {
        "visible": np.bincount(queue[w.visible], minlength=n),
        "in_flight": np.bincount(queue[w.in_flight], minlength=n),
        "delayed": np.bincount(queue[w.delayed], minlength=n),
        "poison": np.bincount(queue[singled.poison], minlength=n),
        "dead_letters": np.bincount(queue[singled.dead], minlength=n),
        "age_sum_ms": np.bincount(of_live, weights=age_ms, minlength=n).astype(np.int64),
        "receive_count_max": receives_max,
        "expires_at": expires_at,
        "visible_since": per_queue_min(queue, w.visible_since, w.visible, n),
    }
    oldest = np.stack(
        [
            singled.oldest_at,
            per_queue_min(queue, sent, w.visible, n),
            _cloudwatch_oldest(state, w, singled, now, settings),
            _oldest_without(state, w, singled, singled.poison),
        ],
        axis=1,
    ).tolist()
    lists = {name: values.tolist() for name, values in columns.items()}
    counts = histogram.tolist()
    for number, facts in enumerate(queues):
        facts.numbers = {name: values[number] for name, values in lists.items()}
        facts.oldest = oldest[number]
        facts.age_counts = counts[number]


def _oldest_without(state: ShardState, w: Windows, singled: _Singled, apart: Array) -> Array:
    """Per queue the send time of the oldest message that is not one of `apart`."""
    if not len(apart):
        return singled.oldest_at
    others = w.live.copy()
    others[apart] = False
    return per_queue_min(state.rows["queue"], state.rows["sent"], others, len(state.queues))


def _cloudwatch_oldest(state: ShardState, w: Windows, singled: _Singled, now: int, settings: Settings) -> Array:
    """Per queue the earliest time from which ApproximateAgeOfOldestMessage counts: the send; on a standard queue the end of the
    latest third receive; in a dead-letter queue the arrival, whatever receives the message brought along or had since."""
    rows = state.rows
    told = [rows[name] > 0 for name in ("restart", "restart_before", "arrived") if rows.has(name)]
    apart = np.flatnonzero(w.live & np.logical_or.reduce(told)) if told else np.zeros(0, dtype=np.int64)
    oldest = _oldest_without(state, w, singled, apart)
    queue = rows.at("queue", apart)
    ordered = np.array([q.ordered or settings.is_ordered(q.name) for q in state.queues], dtype=bool)[queue]
    last, before, arrived = rows.at("restart", apart), rows.at("restart_before", apart), rows.at("arrived", apart)
    restart = np.where((last > 0) & (last <= now), last, np.where(before <= now, before, 0))
    base = rows.at("sent", apart)
    base = np.where(arrived > 0, arrived, np.where(ordered, base, np.maximum(base, restart)))
    # Without any to put apart these are the oldest of all, which others look at too.
    oldest = oldest.copy()
    np.minimum.at(oldest, queue, base)
    return oldest


def _listings(
    state: ShardState, w: Windows, singled: _Singled, viewer: Viewer, queues: list[QueueFacts], now: int, settings: Settings
) -> None:
    rows, poison, dead = state.rows, singled.poison, singled.dead
    receives, sent = rows.at("receive_count", poison).astype(np.int64), rows.at("sent", poison)
    listings = [("poison", list_messages(viewer, "poison", poison, (-receives, sent), settings))]
    held = np.flatnonzero(w.in_flight)
    limits = np.array([_held_limit_ms(state, number, settings) for number in range(len(queues))], dtype=np.int64)
    since = held_since(state, held)
    long = now - since > limits[rows.at("queue", held)]
    listings.append(("held", list_messages(viewer, "held", held[long], (since[long],), settings)))
    listings.append(("dead_letter", list_messages(viewer, "dead_letter", dead, (expiry(state, dead, settings),), settings)))
    oldest = np.flatnonzero(w.live & (rows["sent"] == singled.oldest_at[rows["queue"]]))
    listings.append(("oldest", list_messages(viewer, "oldest", oldest, (rows.at("sent", oldest),), settings)))
    for kind, listed in listings:
        for number, messages in listed.items():
            queues[number].messages[kind] = messages[:OLDEST_LISTED] if kind == "oldest" else messages


def _held_limit_ms(state: ShardState, number: int, settings: Settings) -> int:
    record = state.queues[number]
    thresholds = settings.thresholds(record.name)
    window = visibility_ms(record, settings)
    factor_ms = 0 if window >= NEVER else thresholds.held_visibility_factor * window
    return int(max(factor_ms, thresholds.held_min_s * 1000))
