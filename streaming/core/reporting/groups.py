"""Ordering groups: which ones are stuck behind their head, and what a queue's look-ahead hides. Linear, with one sort."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest

import numpy as np

from streaming.core.columns import Array, nonzero, run_starts
from streaming.core.events.events import RELEASED
from streaming.core.reporting.listing import Viewer
from streaming.core.reporting.report import GroupReport, LookAhead, OrderedQueueReport, StuckGroup
from streaming.core.settings import Settings
from streaming.core.state.queues import NEVER, group_stuck_ms, poison_receives
from streaming.core.state.state import ShardState
from streaming.core.tracking.windows import Windows

RETRY_PATIENCE_MS = 60_000
"""How long a consumer may take with a head that was received before, until its group counts as stuck."""
BACKLOG_WAIT_RATIO = 0.25
"""Consumers have a backlog if what they receive has waited for this share of the time after which a group is stuck…"""
FEWEST_IN_TURN = 20
"""…and of this many groups or more, each waits for its turn then."""
BUSIEST_LISTED = 32
"""Of an unordered queue, beyond its oldest groups: only groups with many messages in flight can crowd out others."""


def ordered_queue_reports(
    state: ShardState, w: Windows, viewer: Viewer, now: int, settings: Settings
) -> dict[int, OrderedQueueReport]:
    """Report, per ordered queue (by index), the state of its groups at `now`."""
    rows = state.rows
    if not rows.has("group"):
        return {}
    ordered = state.queues.keeps_order(settings)
    if not ordered.any():
        return {}
    grouped = nonzero(w.live & ordered[rows["queue"]] & (rows["group"] >= 0))
    is_overtaken = rows.at("overtaken_since", grouped) > 0
    overtaken = np.bincount(rows.at("queue", grouped[is_overtaken]), minlength=len(state.queues))
    # One that a later message of its group has overtaken is gone, so it is not the head.
    grouped = grouped[~is_overtaken]
    if not len(grouped):
        return {}
    grouped = grouped[_in_order(state, grouped)]
    queue = rows.at("queue", grouped)
    bounds = nonzero(run_starts(queue))
    out: dict[int, OrderedQueueReport] = {}
    for start, stop in zip(bounds, np.append(bounds[1:], len(grouped)), strict=True):
        number = int(queue[start])
        out[number] = _one_queue(state, w, viewer, number, grouped[start:stop], int(overtaken[number]), now, settings)
    return out


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


def _one_queue(
    state: ShardState, w: Windows, viewer: Viewer, number: int, rows: Array, overtaken: int, now: int, settings: Settings
) -> OrderedQueueReport:
    live = state.rows
    names, head_at, group, unsettled = np.unique(
        live.at("group", rows), return_index=True, return_inverse=True, return_counts=True
    )
    n = len(names)
    # On SQS a failed message blocks its group until its window ends and it is visible again.
    unavailable = w.in_flight[rows] | w.returning[rows]
    in_flight = np.bincount(group, weights=unavailable, minlength=n).astype(np.int64)
    visible = np.bincount(group, weights=w.visible[rows], minlength=n).astype(np.int64)
    oldest = np.full(n, NEVER, dtype=np.int64)
    np.minimum.at(oldest, group, live.at("sent", rows))
    head = rows[head_at]
    settled = state.groups.time[names]
    groups = _Groups(
        state=state,
        viewer=viewer,
        names=names,
        unsettled=unsettled,
        in_flight=in_flight,
        visible=visible,
        oldest=oldest,
        settled=settled,
        waiting=_waiting_behind(state, w, rows, group, head_at, number, settings),
        head=head,
        since=np.maximum(np.maximum(live.at("sent", head), w.delay_end[head]), settled),
        delayed=w.delayed[head],
    )
    stuck, stuck_groups = _stuck(groups, w, number, now, settings)
    look_ahead, hidden = _look_ahead(groups, w, rows, group, number, settings)
    order = _oldest_first(state, names, oldest, settings.top_k + 1)
    top = order[: settings.top_k]
    return OrderedQueueReport(
        groups=n,
        backlog=int((visible > 0).sum()),
        in_flight=int((in_flight > 0).sum()),
        blocked=int(((in_flight > 0) & (visible > 0)).sum()),
        hidden=hidden,
        oldest=groups.some(top),
        others_oldest_at=int(oldest[order[settings.top_k]]) if n > settings.top_k else None,
        stuck=stuck,
        stuck_groups=stuck_groups,
        look_ahead=look_ahead,
        youngest_received_sent_at=state.queues[number].youngest_sent_at,
        overtaken=overtaken,
    )


def _waiting_behind(
    state: ShardState, w: Windows, rows: Array, group: Array, head_at: Array, number: int, settings: Settings
) -> Array:
    """Count the messages of each group that wait behind its head: they are not in flight, and not delayed since they were sent.

    Those in flight are worked on, as a batch may be all of a group. But they come back with a head that fails again and again;
    and a broker that fills prefetch windows has them wait in one.
    """
    waits = w.visible[rows] | w.returning[rows]
    if state.queues.limit("blocks_groups", settings)[number]:
        suspects = state.rows.at("receive_count", rows[head_at]) >= poison_receives(state.queues[number], settings)
        waits |= w.in_flight[rows] & suspects[group]
    else:
        waits |= w.in_flight[rows]
    waits[head_at] = False
    return np.bincount(group, weights=waits, minlength=len(head_at)).astype(np.int64)


def _oldest_first(state: ShardState, names: Array, oldest: Array, n: int) -> list[int]:
    """Return the positions of the `n` oldest groups; ties are ordered by name because numbers differ between shards."""
    n = min(n, len(names))
    limit = np.partition(oldest, n - 1)[n - 1]
    chosen = nonzero(oldest <= limit)
    words = state.groups.words(names[chosen])
    oldest_first = sorted(zip(oldest[chosen].tolist(), words, chosen.tolist(), strict=True))
    return [i for _, _, i in oldest_first[:n]]


@dataclass(frozen=True, slots=True)
class _Groups:
    """The groups of one queue as columns, and conversion of single groups to objects. Times are epoch milliseconds."""

    state: ShardState
    viewer: Viewer
    names: Array
    """Numbers in the state's names of groups."""
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

    def name(self, i: int) -> str:
        return self.state.groups.text(int(self.names[i]))

    def some(self, which: list[int]) -> list[GroupReport]:
        """Return some groups with their heads."""
        if not which:
            return []
        at = np.array(which, dtype=np.int64)
        return [
            GroupReport(
                name=name or "",
                unsettled=unsettled,
                in_flight=in_flight,
                visible=visible,
                oldest_sent_at=oldest,
                last_settled_at=settled,
                head=head,
                standing_since=since,
            )
            for name, unsettled, in_flight, visible, oldest, settled, head, since in zip(
                self.state.groups.words(self.names[at]),
                self.unsettled[at].tolist(),
                self.in_flight[at].tolist(),
                self.visible[at].tolist(),
                self.oldest[at].tolist(),
                self.settled[at].tolist(),
                self.viewer.views(self.head[at], ("head",)),
                np.where(self.delayed[at] | (self.waiting[at] == 0), 0, self.since[at]).tolist(),
                strict=True,
            )
        ]


def _stuck(groups: _Groups, w: Windows, number: int, now: int, settings: Settings) -> tuple[list[StuckGroup], int]:
    """Return the groups stuck longest, and how many a signal may begin about.

    1. A message waits behind the head. 2. The head was not merely sent with a delay. 3. No message of the group was settled, and
    the head was there, for long enough. 4. The head is in flight for longer than a consumer is given time, or failed and not
    visible yet; or it came back; or a younger message was received instead of it, by a consumer that still receives from the
    queue. 5. Nothing of the group was settled after the visibility timeout of a head that is not in flight: then a later message
    was received, and the head is gone although no deletion was reported. A head that was given back may be from the same batch as
    that message. 6. It does not wait for its turn. On SQS, heads that were never received do if there are many groups and
    consumers have a backlog: the youngest message received so far had waited long. One receive takes the older and the younger
    messages of a group, and which group comes next is up to the queue.

    Groups whose head failed before follow by 2, 3 and 5 alone: while their signal fires, it goes on, also while the messages
    behind the head are received with it again. Where no consumer receives at all, the queue is stalled, and none begins.
    """
    state = groups.state
    live, record = state.rows, state.queues[number]
    if record.dead_letter:
        # Dead letters are not expected to be processed, let alone in order.
        return [], 0
    thresholds = settings.thresholds(record.name)
    limit = group_stuck_ms(record, settings)
    since = groups.since
    receives = live.at("receive_count", groups.head)
    passed_over = (record.youngest_sent_at > live.at("sent", groups.head)) & (record.youngest_received_at > since)
    silent_ms = now - record.last_received_at
    # A head that came back is retried now and then: until the queue counts as stalled, a pause between two retries is normal.
    alive = silent_ms < np.where(receives > 1, max(limit, int(thresholds.stalled_s * 1000)), limit)
    poison = poison_receives(record, settings)
    # A consumer that has just received the head, after a pause without consumers, is given time to finish it: less if the head
    # had been received before.
    in_flight, returning = w.in_flight[groups.head], w.returning[groups.head]
    patience = np.where(receives > 1, min(limit // 2, RETRY_PATIENCE_MS), limit // 2)
    held = in_flight & ((receives >= poison) | (now - live.at("last_received", groups.head) >= patience))
    touched = held | returning | (~in_flight & ~groups.delayed & alive & ((receives > 0) | passed_over))
    failed = ((receives > 1) | ((receives > 0) & ~in_flight)) & ~groups.delayed
    given_back = live.at("window_code", groups.head) == RELEASED
    gone = (receives > 0) & ~in_flight & ~given_back & (groups.settled > w.window_end[groups.head])
    begins = touched & (groups.waiting > 0)
    hit = (now - since >= limit) & (begins | (failed & (groups.unsettled > 1))) & ~gone
    waits = hit & (receives == 0) & ~in_flight
    have_backlog = record.youngest_received_at - record.youngest_sent_at >= BACKLOG_WAIT_RATIO * limit
    blocks_groups = state.queues.limit("blocks_groups", settings)[number] > 0
    if waits.any() and blocks_groups and have_backlog and _groups_in_turn(groups, number) >= FEWEST_IN_TURN:
        hit &= ~waits
    out = []
    for i in nonzero(hit).tolist():
        if receives[i] >= poison:
            reason = "poison_head"
        elif in_flight[i] or (returning[i] and receives[i] <= 1):
            reason = "held_head"
        else:
            reason = "poison_head" if receives[i] > 1 else "not_received"
        out.append((not begins[i], int(since[i]), groups.name(i), i, reason))
    out.sort()
    listed = out[: settings.messages_per_queue]
    listed_groups = groups.some([i for _, _, _, i, _ in listed])
    return [
        StuckGroup(group=group, since=since_ms, reason=reason, waiting=int(groups.waiting[i]), may_begin=not only_goes_on)
        for group, (only_goes_on, since_ms, _, i, reason) in zip(listed_groups, listed, strict=True)
    ], int((hit & begins).sum())


def _groups_in_turn(groups: _Groups, number: int) -> int:
    """Return how many groups have messages or had one settled lately."""
    names = groups.state.groups
    active = (names.queue == number) & (names.time > 0)
    active[groups.names] = True
    return int(active.sum())


def _look_ahead(
    groups: _Groups, w: Windows, rows: Array, group: Array, number: int, settings: Settings
) -> tuple[LookAhead | None, int]:
    """Return the look-ahead if it holds blocked groups only while others wait beyond it, and how many groups wait beyond."""
    record = groups.state.queues[number]
    reported = record.number("look_ahead")
    limit = int(reported if reported else settings.thresholds(record.name).look_ahead)
    if len(rows) <= limit:
        return None, 0
    n = len(groups.names)
    seen = np.zeros(n, dtype=bool)
    seen[group[:limit]] = True
    blocked = groups.in_flight > 0
    waiting = (~seen & ~blocked)[group[limit:]] & w.visible[rows[limit:]]
    hidden = int((np.bincount(group[limit:], weights=waiting, minlength=n) > 0).sum())
    if not blocked[seen].all() or not hidden:
        return None, hidden
    ahead = np.bincount(group[:limit], minlength=n)
    first = int(ahead.argmax())
    saturated = LookAhead(
        limit=limit,
        blocking_group=groups.name(first),
        blocking_messages=int(ahead[first]),
        blocked_groups=int(blocked[seen].sum() if seen.any() else 0),
        hidden_messages=int(waiting.sum()),
        hidden_groups=hidden,
    )
    return saturated, hidden


def unordered_groups(state: ShardState, w: Windows, settings: Settings) -> dict[int, tuple[list[GroupReport], int]]:
    """Return, per unordered queue (by index), its oldest groups, those with most in flight, and how many more there are.

    When one was last settled is left out: it may have been in a shard that has no message of the group any more.
    """
    rows = state.rows
    if not rows.has("group"):
        return {}
    ordered = state.queues.keeps_order(settings)
    grouped = nonzero(w.live & ~ordered[rows["queue"]] & (rows["group"] >= 0))
    if not len(grouped):
        return {}
    names, group, unsettled = np.unique(rows.at("group", grouped), return_inverse=True, return_counts=True)
    in_flight, visible = (
        np.bincount(group, weights=those[grouped], minlength=len(names)).astype(np.int64) for those in (w.in_flight, w.visible)
    )
    oldest = np.full(len(names), NEVER, dtype=np.int64)
    np.minimum.at(oldest, group, rows.at("sent", grouped))
    of_queue: dict[int, list[int]] = {}
    for i in _oldest_first(state, names, oldest, len(names)):
        of_queue.setdefault(int(state.groups.queue[names[i]]), []).append(i)
    out: dict[int, tuple[list[GroupReport], int]] = {}
    for number, at in of_queue.items():
        others = at[settings.groups_per_report :]
        listed = at[: settings.groups_per_report] + nlargest(BUSIEST_LISTED, others, key=in_flight.__getitem__)
        reports = [
            GroupReport(
                name=state.groups.text(int(names[i])),
                unsettled=int(unsettled[i]),
                in_flight=int(in_flight[i]),
                visible=int(visible[i]),
                oldest_sent_at=int(oldest[i]),
                last_settled_at=0,
            )
            for i in listed
        ]
        out[number] = (reports, len(at) - len(listed))
    return out
