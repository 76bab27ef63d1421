"""Ordering groups: which ones are stuck behind their head, and what a queue's look-ahead hides. Linear, with one sort."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.events.events import RELEASED
from streaming.core.reporting.listing import Viewer
from streaming.core.reporting.ordered_queues import (
    NO_OTHERS,
    REASONS,
    GroupColumns,
    OrderedQueues,
    StuckColumns,
    no_ordered_queues,
)
from streaming.core.reporting.ranking import in_order, place_in_queue
from streaming.core.reporting.report import LookAhead, listed_per_queue
from streaming.core.settings import Settings
from streaming.core.state.queues import NEVER, group_stuck_ms
from streaming.core.state.state import ShardState
from streaming.core.tracking.holds import held_since
from streaming.core.tracking.windows import Windows

RETRY_PATIENCE_MS = 60_000
"""How long a consumer may take with a head that was received before, until its group counts as stuck."""
BACKLOG_WAIT_RATIO = 0.25
"""Consumers have a backlog if what they receive has waited for this share of the time after which a group is stuck…"""
FEWEST_IN_TURN = 20
"""…and of this many groups or more, each waits for its turn then."""


def ordered_queues(state: ShardState, w: Windows, viewer: Viewer, now: int, settings: Settings) -> OrderedQueues:
    """Report the state of the groups of all ordered queues at `now`."""
    rows = state.rows
    if not rows.has("group"):
        return no_ordered_queues()
    ordered = state.queues.keeps_order(settings)
    if not ordered.any():
        return no_ordered_queues()
    grouped = nonzero(w.live & ordered[rows["queue"]] & (rows["group"] >= 0))
    is_overtaken = rows.at("overtaken_since", grouped) > 0
    overtaken = np.bincount(rows.at("queue", grouped[is_overtaken]), minlength=len(state.queues))
    # One that a later message of its group has overtaken is gone, so it is not the head.
    grouped = grouped[~is_overtaken]
    if not len(grouped):
        return no_ordered_queues()
    grouped = grouped[_in_order(state, grouped)]
    groups = _groups_of(state, w, grouped, settings)
    number, first = np.unique(groups.queue, return_index=True)
    limits = _Limits.of(state, number, settings)
    may_begin, hit = _stuck(groups, w, limits, now)
    look_ahead, hidden = _look_aheads(groups, w, number, limits)
    shown, others_oldest_at = _oldest(groups, first, settings.top_k)
    blocks, has_backlog = groups.in_flight > 0, groups.visible > 0
    return OrderedQueues(
        queue=number,
        figures={
            "groups": np.diff(np.append(first, len(groups.names))),
            "backlog": np.add.reduceat(has_backlog, first, dtype=np.int64),
            "in_flight": np.add.reduceat(blocks, first, dtype=np.int64),
            "blocked": np.add.reduceat(blocks & has_backlog, first, dtype=np.int64),
            "hidden": hidden,
            "stuck_groups": np.add.reduceat(hit & may_begin, first, dtype=np.int64),
            "overtaken": overtaken[number],
            "youngest_received_sent_at": state.queues.column("youngest_sent_at")[number],
            "others_oldest_at": others_oldest_at,
        },
        oldest=_columns(groups, shown, viewer),
        stuck=_listed_stuck(groups, w, limits, may_begin, hit, viewer, settings),
        look_ahead=look_ahead,
    )


def _in_order(state: ShardState, rows: Array) -> Array:
    """Return the order in which the queues would deliver these rows, queue by queue: the only definition of that order.

    By sequence where every message of the queue has one; else by send time, as a message without one would always come first.
    Of messages whose position and send time are equal, those that were received stand before those that never were, as nothing
    behind the head is delivered: first the one received most often, then the one received first.
    """
    live = state.rows
    queue, kind = live.at("queue", rows), live.at("seq_kind", rows)
    hi, lo, sent = live.at("seq_hi", rows), live.at("seq_lo", rows), live.at("sent", rows)
    unsequenced = np.zeros(len(state.queues), dtype=bool)
    unsequenced[queue[kind == 0]] = True
    by_sent = np.where(unsequenced[queue], sent, 0)
    receives, received_at = live.at("receive_count", rows), live.at("last_received", rows)
    never = (receives == 0) & (live.at("window_at", rows) == 0)
    keys = (live.key[rows], received_at, -receives, never, sent, lo, hi, kind, by_sent, queue)
    varying = [k for k in keys if len(k) and not (k == k[0]).all()]
    return np.lexsort(varying) if varying else np.arange(len(rows))


@dataclass(frozen=True, slots=True)
class _Groups:
    """The groups of all ordered queues as columns, queue by queue. Times are epoch milliseconds."""

    state: ShardState
    rows: Array
    """The rows of their messages, in the order of `_in_order`…"""
    of: Array
    """…and the place of each one's group."""
    names: Array
    """Numbers in the state's names of groups."""
    queue: Array
    unsettled: Array
    in_flight: Array
    visible: Array
    oldest: Array
    """When the oldest message was sent."""
    settled: Array
    """When a message was last settled; 0 where none was."""
    waiting: Array
    """Messages that wait behind the head."""
    head: Array
    """The rows of the first messages."""
    since: Array
    """Since when the head could be received, and nothing was settled."""
    delayed: Array
    """Whether the head was sent with a delay that has not ended."""
    held_since: Array
    """Since when the head has been held without a break, where it is in flight."""


def _groups_of(state: ShardState, w: Windows, rows: Array, settings: Settings) -> _Groups:
    """Return the groups of these rows, which are in the order of `_in_order`."""
    live = state.rows
    names, head_at, of, unsettled = np.unique(live.at("group", rows), return_index=True, return_inverse=True, return_counts=True)
    queue = state.groups.queue[names]
    if not (queue[1:] >= queue[:-1]).all():
        order = np.argsort(queue, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        names, head_at, of, unsettled, queue = names[order], head_at[order], place[of], unsettled[order], queue[order]
    n = len(names)
    # On SQS a failed message blocks its group until its window ends and it is visible again.
    unavailable = w.in_flight[rows] | w.returning[rows]
    oldest = np.full(n, NEVER, dtype=np.int64)
    np.minimum.at(oldest, of, live.at("sent", rows))
    head, settled = rows[head_at], state.groups.time[names]
    return _Groups(
        state=state,
        rows=rows,
        of=of,
        names=names,
        queue=queue,
        unsettled=unsettled,
        in_flight=np.bincount(of, weights=unavailable, minlength=n).astype(np.int64),
        visible=np.bincount(of, weights=w.visible[rows], minlength=n).astype(np.int64),
        oldest=oldest,
        settled=settled,
        waiting=_waiting_behind(state, w, rows, of, head_at, queue, settings),
        head=head,
        since=np.maximum(np.maximum(live.at("sent", head), w.delay_end[head]), settled),
        delayed=w.delayed[head],
        held_since=held_since(state, head, settings),
    )


def _waiting_behind(
    state: ShardState, w: Windows, rows: Array, of: Array, head_at: Array, queue: Array, settings: Settings
) -> Array:
    """Count the messages of each group that wait behind its head: they are not in flight, and not delayed since they were sent.

    Those in flight are worked on, as a batch may be all of a group. But they come back with a head that fails again and again;
    and a broker that fills prefetch windows has them wait in one. `of`: the group of each row; `queue`: the queue of each group.
    """
    waits = w.visible[rows] | w.returning[rows]
    in_flight = nonzero(w.in_flight[rows])
    if len(in_flight):
        limits = state.queues
        suspects = state.rows.at("receive_count", rows[head_at]) >= limits.limit("poison_receives", settings)[queue]
        come_back = suspects | (limits.limit("blocks_groups", settings)[queue] == 0)
        waits[in_flight] |= come_back[of[in_flight]]
    waits[head_at] = False
    return np.bincount(of, weights=waits, minlength=len(head_at)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits of ordered queues: columns with a value for every queue of the shard, 0 where it is not ordered."""

    stuck_ms: Array
    stalled_ms: Array
    look_ahead: Array
    poison_receives: Array
    blocks_groups: Array

    @classmethod
    def of(cls, state: ShardState, numbers: Array, settings: Settings) -> _Limits:
        """Return the limits of the queues with these numbers."""
        queues = state.queues
        thresholds = [settings.thresholds(queues.names[number]) for number in numbers.tolist()]
        stuck_ms, stalled_ms, look_ahead = (np.zeros(len(queues), dtype=np.int64) for _ in range(3))
        windows_ms = queues.limit("visibility_ms", settings)[numbers].tolist()
        stuck_ms[numbers] = [group_stuck_ms(limits, window) for limits, window in zip(thresholds, windows_ms, strict=True)]
        stalled_ms[numbers] = [int(limits.stalled_s * 1000) for limits in thresholds]
        look_ahead[numbers] = [limits.look_ahead for limits in thresholds]
        for number in nonzero(queues.attribute_texts().containing(b'"look_ahead"')).tolist():
            reported = queues[number].number("look_ahead")
            look_ahead[number] = int(reported) if reported else look_ahead[number]
        return cls(
            stuck_ms=stuck_ms,
            stalled_ms=stalled_ms,
            look_ahead=look_ahead,
            poison_receives=queues.limit("poison_receives", settings),
            blocks_groups=queues.limit("blocks_groups", settings) > 0,
        )


def _oldest(groups: _Groups, first: Array, most: int) -> tuple[Array, Array]:
    """Return the places of the `most` oldest groups of each queue, and when the oldest of its others was sent.

    Ties are ordered by name, because numbers differ between shards. `first`: the place of each queue's first group.
    """
    lengths = np.diff(np.append(first, len(groups.names)))
    by_age = np.lexsort((groups.oldest, groups.queue))
    # The one after the last that is listed: groups as old as that one may be listed instead, by their names.
    last = by_age[first + np.minimum(lengths, most + 1) - 1]
    chosen = nonzero(groups.oldest <= np.repeat(groups.oldest[last], lengths))
    chosen = chosen[in_order((groups.queue[chosen], groups.oldest[chosen]), groups.state.groups, groups.names[chosen])]
    return chosen[place_in_queue(groups.queue[chosen]) < most], np.where(lengths > most, groups.oldest[last], NO_OTHERS)


def _columns(groups: _Groups, places: Array, viewer: Viewer) -> GroupColumns:
    """Return some groups as they are reported."""
    standing = ~(groups.delayed[places] | (groups.waiting[places] == 0))
    return GroupColumns(
        queue=groups.queue[places],
        names=groups.state.groups.taken(groups.names[places]),
        numbers={
            "unsettled": groups.unsettled[places],
            "in_flight": groups.in_flight[places],
            "visible": groups.visible[places],
            "oldest_sent_at": groups.oldest[places],
            "last_settled_at": groups.settled[places],
            "standing_since": np.where(standing, groups.since[places], 0),
        },
        heads=viewer.columns(groups.head[places]),
    )


def _stuck(groups: _Groups, w: Windows, limits: _Limits, now: int) -> tuple[Array, Array]:
    """Return of which groups a signal may begin to say that they are stuck, and which groups are stuck.

    1. A message waits behind the head. 2. The head was not merely sent with a delay. 3. No message of the group was settled, and
    the head was there, for long enough. 4. The head is in flight for longer than a consumer is given time, or failed and not
    visible yet; or it came back; or a younger message was received instead of it, by a consumer that still receives from the
    queue. 5. Nothing of the group was settled after the visibility timeout of a head that is not in flight: then a later message
    was received, and the head is gone although no deletion was reported. A head that was given back may be from the same batch as
    that message. 6. It does not wait for its turn. On SQS, heads that were never received do if there are many groups and
    consumers have a backlog: the youngest message received so far had waited long. One receive takes the older and the younger
    messages of a group, and which group comes next is up to the queue. Where consumers receive in batches, what is in flight may
    show it of any number of groups: then no signal begins. See `_wait_for_their_turn`.

    Groups whose head failed before follow by 2, 3 and 5 alone: while their signal fires, it goes on, also while the messages
    behind the head are received with it again. Where no consumer receives at all, the queue is stalled, and none begins.
    """
    live, queues, queue = groups.state.rows, groups.state.queues, groups.queue
    limit, since, poison = limits.stuck_ms[queue], groups.since, limits.poison_receives[queue]
    receives = live.at("receive_count", groups.head)
    youngest_sent_at, youngest_received_at = (queues.column(name) for name in ("youngest_sent_at", "youngest_received_at"))
    passed_over = (youngest_sent_at[queue] > live.at("sent", groups.head)) & (youngest_received_at[queue] > since)
    silent_ms = now - queues.column("last_received_at")[queue]
    # A head that came back is retried now and then: until the queue counts as stalled, a pause between two retries is normal.
    alive = silent_ms < np.where(receives > 1, np.maximum(limit, limits.stalled_ms[queue]), limit)
    # A consumer that has just received the head, after a pause without consumers, is given time to finish it: less if the head
    # had been received before.
    in_flight, returning = w.in_flight[groups.head], w.returning[groups.head]
    patience = np.where(receives > 1, np.minimum(limit // 2, RETRY_PATIENCE_MS), limit // 2)
    held = in_flight & ((receives >= poison) | (now - groups.held_since >= patience))
    touched = held | returning | (~in_flight & ~groups.delayed & alive & ((receives > 0) | passed_over))
    failed = ((receives > 1) | ((receives > 0) & ~in_flight)) & ~groups.delayed
    given_back = live.at("window_code", groups.head) == RELEASED
    gone = (receives > 0) & ~in_flight & ~given_back & (groups.settled > w.window_end[groups.head])
    begins = touched & (groups.waiting > 0)
    hit = (now - since >= limit) & (begins | (failed & (groups.unsettled > 1))) & ~gone
    # Dead letters are not expected to be processed, let alone in order.
    hit &= ~queues.column("dead_letter")[queue]
    waits = hit & (receives == 0) & ~in_flight
    if waits.any():
        have_backlog = youngest_received_at - youngest_sent_at >= BACKLOG_WAIT_RATIO * limits.stuck_ms
        in_turn = limits.blocks_groups & have_backlog & (_groups_in_turn(groups) >= FEWEST_IN_TURN)
        hit &= ~(waits & in_turn[queue])
        places = nonzero(hit & waits & limits.blocks_groups[queue])
        begins[places[_wait_for_their_turn(groups, w, places, limits)]] = False
    return begins, hit


def _wait_for_their_turn(groups: _Groups, w: Windows, places: Array, limits: _Limits) -> Array:
    """Return which of these groups, whose heads were never received, wait for their turn by what is in flight of the others.

    1. Consumers receive in batches, so the youngest message received may not have been the head of its group. 2. What was
    received last is in flight: consumers take more as soon as they have finished. 3. No head in flight passed over the group: it
    is younger, and could be received only clearly later. A message in flight after a settlement of its group was received with
    an older one, so it was no head.
    """
    queue, since, live = groups.queue, groups.since, groups.state.rows
    sent, received = live.at("sent", groups.head), live.at("last_received", groups.head)
    worked_on = w.in_flight[groups.head] & (live.at("receive_count", groups.head) == 1)
    rest_of_batch = worked_on & (received < groups.settled)
    at_work = _at_work_in_batches(groups, w, queue[rest_of_batch])
    waits = np.zeros(len(places), dtype=bool)
    for number in np.unique(queue[places][at_work[queue[places]]]).tolist():
        start, stop = queue.searchsorted(number), queue.searchsorted(number, "right")
        of_queue = slice(queue[places].searchsorted(number), queue[places].searchsorted(number, "right"))
        mine, heads = places[of_queue], start + nonzero((worked_on & ~rest_of_batch)[start:stop])
        heads = heads[np.argsort(sent[heads])]
        # Beside each head: when the last one of those no older could be received. Behind them all stands none.
        free_at = np.append(np.maximum.accumulate(since[heads][::-1])[::-1], 0)
        younger = sent[heads].searchsorted(sent[mine], "right")
        waits[of_queue] = free_at[younger] <= since[mine] + BACKLOG_WAIT_RATIO * limits.stuck_ms[number]
    return waits


def _at_work_in_batches(groups: _Groups, w: Windows, besides: Array) -> Array:
    """Return for each queue of the shard whether what it delivered last is in flight, and two messages were delivered at once.

    `besides`: queues of which the latter is known.
    """
    live, queues = groups.state.rows, groups.state.queues
    taken = groups.rows[w.in_flight[groups.rows]]
    queue, taken_at = live.at("queue", taken), live.at("last_received", taken)
    order = np.lexsort((taken_at, queue))
    queue, taken_at = queue[order], taken_at[order]
    in_batches = np.zeros(len(queues), dtype=bool)
    in_batches[queue[1:][(queue[1:] == queue[:-1]) & (taken_at[1:] == taken_at[:-1])]] = True
    in_batches[besides] = True
    latest = np.zeros(len(queues), dtype=np.int64)
    latest[queue] = taken_at
    found: Array = in_batches & (latest >= queues.column("last_received_at"))
    return found


def _groups_in_turn(groups: _Groups) -> Array:
    """Return, for every queue of the shard, how many groups have messages or had one settled lately."""
    names = groups.state.groups
    active = names.time > 0
    active[groups.names] = True
    return np.bincount(names.queue[active], minlength=len(groups.state.queues))


def _listed_stuck(
    groups: _Groups, w: Windows, limits: _Limits, may_begin: Array, hit: Array, viewer: Viewer, settings: Settings
) -> StuckColumns:
    """Return the groups stuck longest of each queue: those that a signal may begin about, then the others."""
    places = nonzero(hit)
    if not len(places):
        return no_ordered_queues().stuck
    keys = groups.queue[places], ~may_begin[places], groups.since[places]
    most = listed_per_queue(groups.queue[places], settings.messages_per_queue)
    places = places[in_order(keys, groups.state.groups, groups.names[places])]
    places = places[place_in_queue(groups.queue[places]) < most]
    head = groups.head[places]
    receives, in_flight = groups.state.rows.at("receive_count", head), w.in_flight[head]
    reasons = (
        ("poison_head", receives >= limits.poison_receives[groups.queue[places]]),
        ("held_head", in_flight | (w.returning[head] & (receives <= 1))),
        ("poison_head", receives > 1),
    )
    return StuckColumns(
        groups=_columns(groups, places, viewer),
        since=groups.since[places],
        reason=np.select(
            [applies for _, applies in reasons], [REASONS.index(name) for name, _ in reasons], REASONS.index("not_received")
        ),
        waiting=groups.waiting[places],
        may_begin=may_begin[places],
    )


def _look_aheads(groups: _Groups, w: Windows, numbers: Array, limits: _Limits) -> tuple[dict[int, LookAhead], Array]:
    """Return the look-aheads that hold blocked groups only while others wait beyond, and how many groups wait beyond each.

    `numbers`: the queues; the second result has a value for each of them.
    """
    saturated: dict[int, LookAhead] = {}
    hidden = np.zeros(len(numbers), dtype=np.int64)
    bounds = np.append(groups.queue[groups.of].searchsorted(numbers), len(groups.rows))
    for i in nonzero(np.diff(bounds) > limits.look_ahead[numbers]).tolist():
        of_queue = slice(int(bounds[i]), int(bounds[i + 1]))
        number = int(numbers[i])
        found, hidden[i] = _look_ahead(groups, w, of_queue, int(limits.look_ahead[number]))
        if found is not None:
            saturated[number] = found
    return saturated, hidden


def _look_ahead(groups: _Groups, w: Windows, of_queue: slice, limit: int) -> tuple[LookAhead | None, int]:
    """Return one queue's look-ahead if it is saturated, and how many groups wait beyond. `of_queue`: its part of the rows."""
    rows, of = groups.rows[of_queue], groups.of[of_queue]
    # The groups of a queue stand together.
    first, last = int(of.min()), int(of.max())
    group, blocked = of - first, groups.in_flight[first : last + 1] > 0
    n = len(blocked)
    seen = np.zeros(n, dtype=bool)
    seen[group[:limit]] = True
    waiting = (~seen & ~blocked)[group[limit:]] & w.visible[rows[limit:]]
    hidden = int((np.bincount(group[limit:], weights=waiting, minlength=n) > 0).sum())
    if not blocked[seen].all() or not hidden:
        return None, hidden
    ahead = np.bincount(group[:limit], minlength=n)
    busiest = int(ahead.argmax())
    saturated = LookAhead(
        limit=limit,
        blocking_group=groups.state.groups.text(int(groups.names[first + busiest])),
        blocking_messages=int(ahead[busiest]),
        blocked_groups=int(blocked[seen].sum() if seen.any() else 0),
        hidden_messages=int(waiting.sum()),
        hidden_groups=hidden,
    )
    return saturated, hidden
