"""Signals about ordering groups."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from streaming.core.columns import nonzero
from streaming.core.reporting.report import ConsumerHolds, StuckGroup
from streaming.core.reporting.views import MessageView
from streaming.core.state.duration_buckets import quantile_ms
from streaming.judge.conditions.conditions import condition, once
from streaming.judge.context import Context
from streaming.judge.findings import measures
from streaming.judge.findings.measured import Near
from streaming.judge.findings.signals import Finding
from streaming.judge.findings.words import age_s, duration_ms, plural, refused, seconds
from streaming.judge.knowledge.basis import some_went_unseen
from streaming.judge.rules.attempts import may_succeed, usual_attempt_ms
from streaming.judge.rules.group_pauses import BUSY_MS, FEWEST_RECEIVED, waited_for_consumers
from streaming.judge.rules.prefetched import USUAL_FACTOR, full_windows, in_work_since, usual_limit_ms, waits_for_its_turn
from streaming.judge.rules.stalled import is_scheduled_pause

CUT_OFF_MS = 240_000
"""A queue with counts was cut off if neither these nor events arrived for this long…"""
LOSSES_SHOW_MS = 300_000
"""…and this long after it, the counts have shown what was lost."""

FAR_BELOW_RATIO = 0.5
"""Counts below this share of the tracked messages are not only inexact."""

GONE_AFTER_MS = 30_000
GONE_AFTER_GAPS = 5
"""Consumers that received nothing for so long, and for so many times their usual gap, are gone."""

UNSEEN_TURNS = 5
"""Where half of the consumers report, the others receive a head that comes back ten times in a row once in a thousand times: that
takes this many times as long as a group may stand still."""
LONG_UNSEEN_MS = 3_600_000
"""Where that takes longer than this…"""
LONG_UNSEEN_DELIVERIES = 5
"""…so many deliveries of the head are enough: the others receive all of them once in thirty times."""

FRONT_OPEN_MS = 5_000
"""How long the front of a queue may seem open between two deliveries of the group that fills it: consumers that poll receive its
next message at once."""

_REASONS = {
    "poison_head": "its head is received again and again and never deleted",
    "held_head": "its head is in flight and its consumer does not finish",
    "not_received": "its head is not received although it could be",
}
_CULPRITS = {"held_head": "head_consumer", "not_received": "blocking_consumer"}
"""The evidence that names a consumer as the cause. A head that fails may fail anywhere."""


def group_stuck(c: Context) -> Iterator[Finding]:
    """No message of the group was settled for max(2 x visibility timeout, 60 s) while messages wait behind its head.

    It is shown, but does not alert, while a consumer works on the head for no longer than usual, for the first or the third time,
    or while the head waits for room in the prefetch window of a busy consumer: the group only waits its turn. A head that nobody
    has received waits only while other groups flow: the time in which no consumers were there is left out.
    Once announced, it stays so until the group moves, whether or not consumers receive.
    """
    for stuck, waits in standing_groups(c):
        evidence = _stuck(c, stuck)
        blamed = [evidence.get(_CULPRITS[stuck.reason])] if stuck.reason in _CULPRITS else []
        finding = c.finding("GroupStuck", "critical", stuck.since, evidence, blamed=blamed, group=stuck.group.name)
        if waits is not None:
            finding = replace(finding, severity="info", evidence={**finding.evidence, **waits}, alerting=False)
        yield finding


@once
def standing_groups(c: Context) -> list[tuple[StuckGroup, dict[str, Any] | None]]:
    """Return the groups that GroupStuck is about, each with the evidence that it only waits its turn, None where it is stuck."""
    ordered = c.summary.ordered_facts
    if ordered is None or not ordered.stuck:
        return []
    found = []
    cut_off = _was_cut_off(c)
    for stuck in ordered.stuck:
        known = c.firing.get(c.key("GroupStuck", group=stuck.group.name))
        announced = known is not None and known.was_announced
        if not (stuck.may_begin or announced):
            continue
        doubtful = c.basis != "messages" or (known is None and (cut_off or _is_denied(c, stuck)))
        if doubtful and not _is_proved(c, stuck, fires=known is not None):
            continue
        if known is None and (_consumers_are_gone(c, stuck) or _window_may_go_on(c, stuck)):
            continue
        if known is None and stuck.reason == "not_received" and waited_for_consumers(c, stuck, _limit_ms(c, stuck)):
            continue
        found.append((stuck, None if announced else _evidence_of_waiting(c, stuck)))
    return found


def _is_proved(c: Context, stuck: StuckGroup, *, fires: bool) -> bool:
    """Whether a group's head certainly exists, although not every message is reported.

    An instrumented consumer has just received it again or still has it, and a head in flight blocks its group for all consumers.
    Once the signal `fires` it may be the others that receive it for a while: see UNSEEN_TURNS.
    """
    head = stuck.group.head
    if head is None or stuck.reason == "not_received" or not head.last_received_at_ms:
        return False
    unseen_ms = _unseen_ms(head, _limit_ms(c, stuck)) if fires else _limit_ms(c, stuck)
    return head.state == "in_flight" or c.now - head.last_received_at_ms <= unseen_ms


def _unseen_ms(head: MessageView, limit_ms: float) -> float:
    """Return for how long consumers that do not report may be the only ones to receive a head that comes back."""
    longest_ms = UNSEEN_TURNS * limit_ms
    if longest_ms <= LONG_UNSEEN_MS:
        return longest_ms
    deliveries_ms = LONG_UNSEEN_DELIVERIES * _between_deliveries_ms(head, limit_ms)
    return max(limit_ms, LONG_UNSEEN_MS, min(longest_ms, deliveries_ms))


def _between_deliveries_ms(head: MessageView, limit_ms: float) -> float:
    """Return how far the deliveries of a head are apart by its receive counts, which include those that were not reported.

    Where they do not tell, that is half of the time for which a group may stand still: usually its visibility timeout.
    """
    counted = [(a.receive_count, a.at_ms) for a in head.attempts if a.what == "received" and a.receive_count > 0]
    if len(counted) < 2 or counted[-1][0] <= counted[0][0]:
        return limit_ms / 2
    return (counted[-1][1] - counted[0][1]) / (counted[-1][0] - counted[0][0])


def _is_denied(c: Context, stuck: StuckGroup) -> bool:
    """Whether the counts show that a head which seems to wait was received, or deleted, by a consumer that does not report it.

    Its group waits behind it, so a count of the time shows at least these messages as visible, and none in flight that nobody
    received. Where there are no counts, one such message that a later one of its group overtook is enough.
    """
    if stuck.reason != "not_received":
        return False
    if c.memory.evidence.some_in_flight_are_unseen() or (not c.summary.depths and some_went_unseen(c)):
        return True
    counts = [depth for depth in c.summary.depths if depth.at >= stuck.since]
    at = c.recent.last_before(counts[-1].at) if counts else -1
    return at >= 0 and counts[-1].visible < FAR_BELOW_RATIO * c.recent.value("tracked_visible", at)


def _consumers_are_gone(c: Context, stuck: StuckGroup) -> bool:
    """Whether busy consumers have received nothing lately, or since the head came back: the queue stalls, and not one group.

    A deploy that stops them for a minute leaves the heads that they had, and those whose turn had not come.
    """
    head, last_received_at = stuck.group.head, c.summary.last_received_at
    if head is None or stuck.reason != "not_received":
        return False
    received = c.past.change("received", last_received_at - BUSY_MS)
    if not head.last_received_at_ms:
        return received > 0 and c.now - last_received_at >= max(GONE_AFTER_MS, GONE_AFTER_GAPS * BUSY_MS // received)
    ends = [attempt.end_ms for attempt in head.attempts if attempt.what == "received" and attempt.end_ms is not None]
    came_back_at = ends[-1] if ends else head.last_received_at_ms
    return last_received_at <= came_back_at and received >= FEWEST_RECEIVED


def _window_may_go_on(c: Context, stuck: StuckGroup) -> bool:
    """Whether a head that seems to have come back may be in flight, because no visibility timeout is reported or configured.

    SQS refuses to delete a message of a FIFO queue after its window. So if others were held for longer than the timeout that is
    assumed and then deleted, windows are longer.
    """
    head = stuck.group.head
    if c.visibility_is_known or c.visibility_ms is None or head is None or stuck.reason != "not_received":
        return False
    longest_ms = quantile_ms(c.memory.hold_weights, 1.0)
    if longest_ms is None or longest_ms <= c.visibility_ms or head.refused_settlements:
        return False
    return bool(head.last_received_at_ms) and c.now - (head.last_received_at_ms or 0) <= USUAL_FACTOR * longest_ms


def _was_cut_off(c: Context) -> bool:
    """Whether neither events nor counts arrived for a while lately: deletions of that time may be lost."""
    counted_at = c.recent["counted_at"]
    if not len(c.recent) or not counted_at[-1]:
        return False
    totals = c.recent["sent"] + c.recent["received"] + c.recent["departed"]
    heard = nonzero((np.diff(totals) != 0) | (np.diff(counted_at) != 0)) + 1
    times = np.concatenate([c.recent.at[:1], c.recent.at[heard]])
    silences = np.diff(times) >= CUT_OFF_MS
    return bool((silences & (times[1:] >= c.now - LOSSES_SHOW_MS)).any())


def _evidence_of_waiting(c: Context, stuck: StuckGroup) -> dict[str, Any] | None:
    """Return the evidence of a group that only waits its turn: its head is processed, or waits for room in a prefetch window."""
    if stuck.group.head is not None and (usual_ms := usual_attempt_ms(c, stuck.group.head)) is not None:
        return _tried_again(c, stuck, stuck.group.head, usual_ms)
    if (limit_ms := _work_limit_ms(c, stuck)) is not None:
        return _in_work(c, stuck, limit_ms)
    if (limit_ms := _queued_limit_ms(c, stuck)) is not None:
        return _queued(c, stuck, limit_ms)
    return None


def _work_limit_ms(c: Context, stuck: StuckGroup) -> float | None:
    """Return how long the head may be processed before that is unusual; None where it is not, or has been for longer already.

    Processed: in flight on its first delivery, with a window extended by the consumer, or waiting its turn in a prefetch window.
    Where too few messages were finished to know what is usual, the limit is that of MessageHeldTooLong.
    """
    head = stuck.group.head
    if head is None or head.held_since_ms is None or head.receive_count > 1:
        return None
    held_since = head.held_since_ms
    if not _was_extended(head) and not waits_for_its_turn(c, head.consumer, c.now - held_since, _limit_ms(c, stuck)):
        return None
    limit_ms = usual_limit_ms(c)
    if limit_ms == math.inf:
        limit_ms = measures.hold(held_since, c.now, c.summary, c.settings).limit
    return limit_ms if c.now - held_since <= limit_ms else None


def _queued_limit_ms(c: Context, stuck: StuckGroup) -> float | None:
    """Return how long the head may wait for room in a prefetch window; None where it does not, or has for longer already.

    A broker with message groups gives all of a group to one consumer. While that one works on messages of other groups its window
    is full, and nobody else may receive the head, so it waits like one within the window.
    """
    if not _waits_unreceived(stuck) or not full_windows(c) or _hung_window(c, stuck) is not None:
        return None
    limit_ms = measures.hold(stuck.since, c.now, c.summary, c.settings).limit
    return limit_ms if c.now - stuck.since <= limit_ms else None


def _hung_window(c: Context, stuck: StuckGroup) -> ConsumerHolds | None:
    """Return the consumer with a full prefetch window that has worked on one message for longest, if that is unusually long."""
    longest = min(full_windows(c), key=lambda held: in_work_since(c, held), default=None)
    usual_ms = usual_limit_ms(c)
    limit_ms = max(_limit_ms(c, stuck), 0 if usual_ms == math.inf else usual_ms)
    return longest if longest is not None and c.now - in_work_since(c, longest) > limit_ms else None


def _waits_unreceived(stuck: StuckGroup) -> bool:
    head = stuck.group.head
    return stuck.reason == "not_received" and head is not None and not head.last_received_at_ms


def _was_extended(head: MessageView) -> bool:
    held_since = head.held_since_ms or 0
    return any(a.what == "extended" and a.at_ms >= held_since for a in head.attempts)


def _limit_ms(c: Context, stuck: StuckGroup) -> float:
    """Return how long a group of this queue may stand still."""
    return measures.standstill(stuck.since, c.now, c.summary, c.settings).limit


def _in_work(c: Context, stuck: StuckGroup, work_limit_ms: float) -> dict[str, Any]:
    head = stuck.group.head
    assert head is not None
    held_ms = c.now - (head.held_since_ms or c.now)
    work = "works on its head and extends its window" if _was_extended(head) else "finishes others before its prefetched head"
    return {
        "usual_limit_s": seconds(work_limit_ms),
        "summary": (
            f"Group {stuck.group.name} of {c.name.queue} has not moved for {duration_ms(c.now - stuck.since)}: "
            f"{head.consumer or 'a consumer'} {work}, for {duration_ms(held_ms)} so far, within this queue's "
            f"usual limit of {duration_ms(work_limit_ms)}; {_waiting(stuck)}."
        ),
    }


def _tried_again(c: Context, stuck: StuckGroup, head: MessageView, usual_ms: int) -> dict[str, Any]:
    return {
        "usual_limit_s": seconds(usual_ms),
        "summary": (
            f"Group {stuck.group.name} of {c.name.queue} has not moved for {duration_ms(c.now - stuck.since)}: "
            f"{may_succeed(c, head, 'its head', usual_ms)}; {_waiting(stuck)}."
        ),
    }


def _queued(c: Context, stuck: StuckGroup, limit_ms: float) -> dict[str, Any]:
    return {
        "usual_limit_s": seconds(limit_ms),
        "summary": (
            f"Group {stuck.group.name} of {c.name.queue} has not moved for {duration_ms(c.now - stuck.since)}: its head waits "
            f"for room in the prefetch window of a consumer that finishes messages of other groups; {_waiting(stuck)}."
        ),
    }


def _waiting(stuck: StuckGroup) -> str:
    if stuck.waiting:
        return f"{plural(stuck.waiting, 'message')} {'waits' if stuck.waiting == 1 else 'wait'} behind it"
    # A group that was announced stays stuck while the messages behind its head are received with it.
    others = stuck.group.unsettled - 1
    return f"{plural(others, 'other message')} of the group {'is' if others == 1 else 'are'} not visible"


def _stuck(c: Context, stuck: StuckGroup) -> dict[str, Any]:
    head = stuck.group.head
    evidence: dict[str, Any] = {
        "reason": stuck.reason,
        "stuck_s": seconds(c.now - stuck.since),
        "waiting_behind": stuck.waiting,
        "group_in_flight": stuck.group.in_flight,
    }
    if head is not None:
        evidence |= {
            "message_id": head.message_id,
            "head_message_id": head.message_id,
            "head_receive_count": head.receive_count,
            "head_state": head.state,
            "head_age_s": age_s(c.now, head.sent_at_ms),
        }
        if not head.sent_known:
            evidence["head_age_exact"] = False
        if head.consumer is not None:
            evidence["head_consumer"] = head.consumer
        if head.refused_settlements:
            evidence["head_refused_settlements"] = head.refused_settlements
    cause, blocking = _cause(c, stuck)
    evidence |= blocking
    evidence["summary"] = (
        f"Group {stuck.group.name} of {c.name.queue} has not moved for {duration_ms(c.now - stuck.since)}: "
        f"{cause}; {_waiting(stuck)}.{_too_late(c, head)}"
    )
    return evidence


def _too_late(c: Context, head: MessageView | None) -> str:
    if head is None or not head.refused_settlements:
        return ""
    return f" The deletion of its head {refused(head.refused_settlements, c.visibility_window)}."


def _cause(c: Context, stuck: StuckGroup) -> tuple[str, dict[str, Any]]:
    """Describe why a group does not move; with the evidence of the message that blocks its consumer, if there is one."""
    if not _waits_unreceived(stuck) or not full_windows(c):
        return _REASONS[stuck.reason], {}
    hung = _hung_window(c, stuck)
    if hung is None:
        return "its head is not received, and the prefetch window of the group's consumer seems to be full", {}
    words = (
        f"its head is not received; most likely it waits for {hung.consumer}, whose prefetch window is full and which "
        f"has worked on {hung.message_id} for {duration_ms(c.now - in_work_since(c, hung))}"
    )
    return words, {"blocking_consumer": hung.consumer, "blocking_message_id": hung.message_id}


def _front_is_blocked(c: Context) -> bool:
    ordered = c.summary.ordered_facts
    return ordered is not None and ordered.look_ahead is not None


@condition("look_ahead_open")
def open_since(c: Context) -> int | None:
    """The signal fires, and as many messages wait, but one within the look-ahead could be received."""
    fired = c.firing_here("LookAheadSaturated")
    filled = bool(fired) and c.tracked > int(fired[0].evidence["look_ahead"])
    return c.now if filled and not _front_is_blocked(c) else None


@condition("look_ahead")
def saturated_since(c: Context) -> int | None:
    """The queue delivers nothing behind its first messages, or did not until a moment ago."""
    opened = open_since(c)
    return c.now if _front_is_blocked(c) or (opened is not None and c.now - opened < FRONT_OPEN_MS) else None


def look_ahead_saturated(c: Context) -> Iterator[Finding]:
    """All of the first `look_ahead` messages belong to blocked groups, so the queue delivers none of the groups behind them.

    It lasts between two deliveries of the group that fills the front, of its next message or of the same one again.
    """
    ordered, since = c.summary.ordered_facts, saturated_since(c)
    if ordered is None or since is None:
        return
    if ordered.look_ahead is None:
        yield from c.firing_here("LookAheadSaturated")
        return
    hidden = ordered.look_ahead
    evidence: dict[str, Any] = {
        "look_ahead": hidden.limit,
        "group": hidden.blocking_group,
        "blocking_group": hidden.blocking_group,
        "blocking_messages": hidden.blocking_messages,
        "blocked_groups": hidden.blocked_groups,
        "hidden_messages": hidden.hidden_messages,
        "hidden_groups": hidden.hidden_groups,
        "summary": (
            f"The first {hidden.limit} messages of {c.name.queue} all belong to blocked groups, "
            f"{hidden.blocking_messages} of them to {hidden.blocking_group}: "
            f"{plural(hidden.hidden_messages, 'message')} of {plural(hidden.hidden_groups, 'other group')} cannot be received."
        ),
    }
    yield c.finding("LookAheadSaturated", "critical", since, evidence)


@condition("collapsed")
def collapsed_since(c: Context) -> int | None:
    """Hardly a group is in flight while several have a backlog. Delayed messages are no backlog.

    Where receives are not reported, groups that seem to wait may be in flight.
    """
    ordered = c.summary.ordered_facts
    collapsed = (
        ordered is not None
        and ordered.in_flight <= c.thresholds.collapsed_groups_in_flight
        and ordered.backlog >= c.thresholds.collapsed_groups_backlog
        and not c.paused
        and not c.is_dead_letter_queue
        and c.knowledge.in_flight_is_known
    )
    return c.now if collapsed else None


@condition("collapsed_at_work")
def collapsed_at_work_since(c: Context) -> int | None:
    """The same, while consumers that work on a schedule are not away."""
    return c.now if collapsed_since(c) is not None and not is_scheduled_pause(c) else None


def concurrency_collapsed(c: Context) -> Iterator[Finding | Near]:
    """At most 1 group in flight for 5 min while at least 5 groups have backlog.

    While consumers that work on a schedule are away it is shown, but does not alert.
    """
    ordered, since, at_work = c.summary.ordered_facts, collapsed_since(c), collapsed_at_work_since(c)
    if ordered is None or since is None:
        return
    lasted = measures.collapse(since, c.now, c.thresholds)
    yield Near("ConcurrencyCollapsed", lasted)
    if not lasted.reached:
        return
    works = c.summary.last_received_at >= since or c.samples_of(c.now - since).change("deleted", since) > 0
    evidence = {
        "groups_in_flight": ordered.in_flight,
        "groups_backlog": ordered.backlog,
        "collapsed_s": seconds(c.now - since),
        "summary": (
            f"For {duration_ms(c.now - since)}, at most {c.thresholds.collapsed_groups_in_flight} of {ordered.groups} groups of "
            f"{c.name.queue} in flight while {ordered.backlog} have messages waiting: "
            f"{'consumers work one group at a time' if works else 'consumers receive nothing'}."
        ),
    }
    finding = c.finding("ConcurrencyCollapsed", "warning", since, evidence)
    if at_work is None or not measures.collapse(at_work, c.now, c.thresholds).reached:
        finding = replace(finding, severity="info", alerting=False)
    yield finding
