"""A shard's state as of `now` in numbers per queue, and the messages, groups and consumers worth naming."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from streaming.core.columns import Array
from streaming.core.expire import expiry
from streaming.core.groups import ordered_facts, unordered_groups
from streaming.core.listing import (
    Viewer,
    consumer_results,
    held_by_consumers,
    held_since,
    last_acks,
    list_messages,
    recent_arrivals,
    recent_losses,
)
from streaming.core.packet import Quarantined
from streaming.core.queues import NEVER, ConsumerState, dead_letter_queue, max_receive_count, poison_receives, visibility_ms
from streaming.core.report import (
    AGE_BUCKETS_S,
    AGE_SCOPES,
    OLDEST_LISTED,
    QueueFacts,
    ShardReport,
    no_numbers,
    per_queue_min,
)
from streaming.core.rows import F_DEAD_LETTERED, F_DROPPED, F_SENT_KNOWN
from streaming.core.settings import Settings
from streaming.core.state import ShardState
from streaming.core.sweep import SILENT_MEMORY_MS
from streaming.core.windows import Windows, windows

LOST_LATELY_MS = 300_000
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
    for number, results in consumer_results(state, settings).items():
        queues[number].consumer_results = results
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
        now=now,
        rows=state.messages,
        queues={facts.name: facts for facts in queues},
        arrivals=recent_arrivals(state, since, settings) if len(state.rows) else [],
        events_total=Counter(state.events_total),
        invalid_total=Counter(state.invalid_total),
        collectors={name: at for name, at in state.collectors.items() if at >= state.high_water - SILENT_MEMORY_MS},
        quarantine=quarantine,
        high_water=state.high_water,
    )


def _consumers(state: ShardState) -> dict[int, dict[str, ConsumerState]]:
    """Per queue (by index) what was told of its consumers lately."""
    out: dict[int, dict[str, ConsumerState]] = {}
    for (number, consumer), told in state.consumer_states.items():
        if told.at >= state.high_water - SILENT_MEMORY_MS:
            out.setdefault(number, {})[consumer] = told
    return out


def _facts(state: ShardState, number: int, consumers: dict[str, ConsumerState]) -> QueueFacts:
    q = state.queues[number]
    return QueueFacts(
        name=q.name,
        attributes=dict(q.attributes),
        totals=list(q.totals),
        holds=dict(q.holds),
        depths=list(q.depths),
        ordered=q.ordered,
        dead_letter=q.dead_letter,
        messages_seen=q.messages_seen,
        last_event_at=q.last_event_at,
        last_received_at=q.last_received_at,
        last_settled_at=q.last_settled_at,
        last_state_at=q.last_state_at,
        skew_ms=q.skew_ms,
        numbers=no_numbers(),
        oldest=[NEVER] * len(AGE_SCOPES),
        oldest_but_used_up=[NEVER] * len(AGE_SCOPES),
        age_counts=[0] * (len(AGE_BUCKETS_S) + 1),
        consumer_states=consumers,
    )


@dataclass(slots=True)
class _Singled:
    """Rows that are counted and listed apart, as indices; and per queue the send time of its oldest message."""

    poison: Array
    dead: Array
    """Dead letters."""
    oldest_at: Array
    received: Array
    """Mask: unsettled, delivered at least once, and when it was sent is known. Without those of `used_up`."""
    used_up: Array
    """Messages whose receives are used up and whose last window is over: the next receive moves them."""


def _singled(state: ShardState, w: Windows, settings: Settings) -> _Singled:
    rows = state.rows
    queue = rows["queue"]
    of_dead = np.array([q.dead_letter for q in state.queues], dtype=bool)[queue]
    used_up = _used_up(state, w, settings)
    received = w.live & (rows["last_received"] > 0) & ((rows["flags"] & F_SENT_KNOWN) != 0)
    received[used_up] = False
    return _Singled(
        poison=_poison(state, w, of_dead, settings),
        dead=np.flatnonzero(w.live & (of_dead | (rows["arrived"] > 0))),
        oldest_at=per_queue_min(queue, rows["sent"], w.live, len(state.queues)),
        received=received,
        used_up=used_up,
    )


def _used_up(state: ShardState, w: Windows, settings: Settings) -> Array:
    rows = state.rows
    limits = [max_receive_count(q, settings) if dead_letter_queue(q, settings) else None for q in state.queues]
    if not any(limits):
        return np.zeros(0, dtype=np.int64)
    near = np.flatnonzero(w.visible & (rows["receive_count"] >= min(filter(None, limits))))
    limit = np.array([n or NEVER for n in limits], dtype=np.int64)[rows.at("queue", near)]
    result: Array = near[rows.at("receive_count", near) >= limit]
    return result


def _lost_at_receives(state: ShardState, now: int, n: int) -> Array:
    """Per queue the highest receive count at which a message was dead-lettered or dropped in the last five minutes."""
    rows = state.rows
    out = np.zeros(n, dtype=np.int64)
    lost = np.flatnonzero(
        ((rows["flags"] & np.uint32(F_DEAD_LETTERED | F_DROPPED)) != 0) & (rows["ended"] > now - LOST_LATELY_MS)
    )
    np.maximum.at(out, rows.at("queue", lost), rows.at("receive_count", lost).astype(np.int64))
    return out


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
        "used_up": np.bincount(queue[singled.used_up], minlength=n),
        "dead_letters": np.bincount(queue[singled.dead], minlength=n),
        "age_sum_ms": np.bincount(of_live, weights=age_ms, minlength=n).astype(np.int64),
        "receive_count_max": receives_max,
        "expires_at": expires_at,
        "visible_since": per_queue_min(queue, w.visible_since, w.visible, n),
        "lost_at_receives": _lost_at_receives(state, now, n),
        "used_up_last": np.zeros(n, dtype=np.int64),
        "used_up_first": np.full(n, NEVER, dtype=np.int64),
        "oldest_received": per_queue_min(queue, sent, singled.received, n),
        "oldest_held": per_queue_min(queue, sent, singled.received & w.in_flight, n),
        "oldest_received_visible": per_queue_min(queue, sent, singled.received & w.visible, n),
    }
    oldest = _oldest(state, w, singled, now, settings)
    but_used_up = oldest
    if len(singled.used_up):
        over = w.window_end[singled.used_up]
        np.maximum.at(columns["used_up_last"], queue[singled.used_up], over)
        np.minimum.at(columns["used_up_first"], queue[singled.used_up], over)
        but_used_up = _oldest(state, *_without(state, w, singled), now, settings)
    lists = {name: values.tolist() for name, values in columns.items()}
    counts = histogram.tolist()
    for number, facts in enumerate(queues):
        facts.numbers = {name: values[number] for name, values in lists.items()}
        facts.oldest = oldest[number]
        facts.oldest_but_used_up = but_used_up[number]
        facts.age_counts = counts[number]


def _oldest(state: ShardState, w: Windows, singled: _Singled, now: int, settings: Settings) -> list[list[int]]:
    """Per queue and scope of AGE_SCOPES the time its age counts from."""
    scopes: list[list[int]] = np.stack(
        [
            singled.oldest_at,
            per_queue_min(state.rows["queue"], state.rows["sent"], w.visible, len(state.queues)),
            _cloudwatch_oldest(state, w, singled, now, settings),
            _oldest_without(state, w, singled, singled.poison),
        ],
        axis=1,
    ).tolist()
    return scopes


def _without(state: ShardState, w: Windows, singled: _Singled) -> tuple[Windows, _Singled]:
    """The same as if the messages whose receives are used up were gone."""
    live, visible = w.live.copy(), w.visible.copy()
    live[singled.used_up] = visible[singled.used_up] = False
    oldest_at = per_queue_min(state.rows["queue"], state.rows["sent"], live, len(state.queues))
    poison = singled.poison[~np.isin(singled.poison, singled.used_up)]
    return replace(w, live=live, visible=visible), replace(singled, poison=poison, oldest_at=oldest_at)


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
