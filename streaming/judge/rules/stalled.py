"""A backlog of which nothing is finished: since when, whether that is usual here, and whether consumers receive at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from streaming.core.columns import nonzero
from streaming.core.state.duration_buckets import quantile_ms
from streaming.core.state.queues import NEVER
from streaming.judge.broker_counts import COUNT_LAG_MS, overdue_from
from streaming.judge.conditions.conditions import condition, once
from streaming.judge.context import DAY_MS, Context
from streaming.judge.findings import measures
from streaming.judge.findings.measured import Measured, Near
from streaming.judge.findings.signals import Finding
from streaming.judge.findings.words import duration_ms, plural, seconds
from streaming.judge.history.window import Bools, Ints
from streaming.judge.knowledge.pauses import longest_of_schedule, may_be_schedule
from streaming.judge.knowledge.unseen_receives import receives_are_unseen
from streaming.judge.rules.prefetched import USUAL_FACTOR, passed_over, stuck_windows_since, unusual_turn_ms, waiting_in_windows

COUNTS_RECENT_MS = 300_000
"""A stall inferred from counts needs a count this recent."""
SCHEDULE_MS = DAY_MS
LATEST_PAUSES = 3
PAUSE_MARGIN = 1.25
FEWEST_FAILING = 3
"""One or two messages that come back again and again may be bad themselves; of more, the consumer is."""


def queue_stalled(c: Context) -> Iterator[Finding | Near]:
    """A visible backlog, and nothing settled for 5 min: consumers stopped, or receive and never finish."""
    since = stalled_since(c)
    if since is None:
        return
    stalled = _stall(c, since)
    yield Near("QueueStalled", stalled)
    if not stalled.reached:
        return
    visible = c.knowledge.depth.get("visible", c.summary.numbers["visible"])
    if not visible and _by_counts(c):
        # A single count of zero is not believed, the one before it is.
        visible = max((depth.visible for depth in c.summary.depths[-2:]), default=0)
    prefetched = waiting_in_windows(c) if stuck_windows_since(c) is not None else 0
    reason = "no_progress" if prefetched or _receives(c, since) else "no_receives"
    passed = passed_over(c) if reason == "no_receives" else 0
    waiting = f"{plural(visible, 'message')} visible"
    if not visible and not prefetched:
        waiting = f"{plural(_in_flight(c), 'message')} in flight again"
    if prefetched:
        waiting = f"{f'{waiting} and ' if visible else ''}{plural(prefetched, 'message')} waiting in prefetch windows"
    what = _what_consumers_do(c, since, prefetched=prefetched, passed=passed)
    evidence: dict[str, Any] = {
        "reason": reason,
        "stalled_s": seconds(c.now - since),
        "visible": visible,
        "in_flight": _in_flight(c),
        "summary": f"No message of {c.name.queue} has been settled for {duration_ms(c.now - since)}, with {waiting}: {what}.",
    }
    if prefetched:
        evidence["prefetched"] = prefetched
    if passed:
        evidence["consumers_passed_over"] = passed
    if c.summary.last_received_at:
        evidence["last_received_at"] = c.summary.last_received_at
    if c.summary.last_settled_at:
        evidence["last_settled_at"] = c.summary.last_settled_at
    yield c.finding("QueueStalled", "critical", since, evidence)


def _receives(c: Context, since: int) -> bool:
    """Whether consumers received lately: those that left half an hour ago do not, whatever they did when the stall began."""
    return c.summary.last_received_at >= max(since, c.now - int(c.thresholds.stalled_s * 1000))


def _in_flight(c: Context) -> int:
    return c.knowledge.depth.get("in_flight", c.summary.numbers["in_flight"])


def _what_consumers_do(c: Context, since: int, *, prefetched: int, passed: int) -> str:
    """Describe what the consumers of a stalled queue do.

    `prefetched`: messages that wait in prefetch windows; `passed`: consumers with free capacity that are given nothing.
    """
    received = c.summary.last_received_at
    if prefetched:
        return f"consumers hold {plural(c.summary.numbers['in_flight'], 'message')} and finish nothing"
    if _receives(c, since):
        return f"consumers receive (last {duration_ms(c.now - received)} ago) but finish nothing"
    if passed:
        are, have, them = ("is", "has", "it") if passed == 1 else ("are", "have", "them")
        who = f"{plural(passed, 'consumer')} {are} connected and {have} free prefetch capacity"
        return f"{who}, but the broker dispatches nothing to {them}: no selector matches these messages, or the queue is paused"
    if received:
        in_flight = _in_flight(c)
        held = f", and {plural(in_flight, 'message')} still in flight" if in_flight else ""
        return f"no consumer receives any more; the last receive was {duration_ms(c.now - received)} ago{held}"
    if receives_are_unseen(c.summary):
        return f"nothing was finished for {duration_ms(c.now - c.summary.last_settled_at)}; receives are not reported"
    if c.basis in ("messages", "consumers", "partial"):
        return "no consumer received anything"
    return "nothing is in flight and the backlog does not fall, by the broker's own counts"


def is_long_stalled(c: Context, since: int) -> bool:
    """Whether a stall has lasted long enough to fire."""
    return _stall(c, since).reached


def is_usual_work(c: Context) -> bool:
    """Whether nothing is settled because consumers hold messages, for no longer than usual: their work takes that long."""
    since = stalled_since(c)
    return since is not None and c.now - since < _usual_work_ms(c)


def _stall(c: Context, since: int) -> Measured:
    """Return how long the stall has lasted. A longer limit is looked up only where it matters: that costs more than the rest."""
    stalled = measures.stall(since, c.now, c.thresholds, by_counts=_by_counts(c))
    return stalled._replace(limit=max(stalled.limit, _expected_ms(c))) if stalled.reached else stalled


def _expected_ms(c: Context) -> int:
    """Return for how long it is usual here that nothing is settled; 0 where consumers work off messages all the time."""
    return max(scheduled_ms(c), _usual_work_ms(c))


def _usual_work_ms(c: Context) -> int:
    """Return for how long consumers that hold messages may finish none of them; 0 where none is held."""
    if not c.summary.numbers["in_flight"] and not _may_be_in_work(c):
        return 0
    return int(min(USUAL_FACTOR * (quantile_ms(c.memory.hold_weights, 0.99) or 0), unusual_turn_ms(c)))


def _may_be_in_work(c: Context) -> bool:
    """Whether messages that seem to have come back may be in flight, because no visibility timeout is reported or configured.

    That is so if others were held for longer than the timeout that is assumed, and then deleted.
    """
    if c.visibility_is_known or c.visibility_ms is None or c.summary.numbers["oldest_received_visible"] >= NEVER:
        return False
    longest_ms = quantile_ms(c.memory.hold_weights, 1.0)
    return longest_ms is not None and longest_ms > c.visibility_ms


@once
def scheduled_ms(c: Context) -> int:
    """Return how long a stall must last where consumers work on a schedule; 0 where they do not.

    That is the longest of the last pauses plus a quarter of it and a minute. Consumers work on a schedule when, since the first
    pause that ended within the day, they paused for at least half of the time. A single pause may be an outage: see
    `may_be_schedule`. The pauses in the broker's counts count as well: samples of hours ago are too far apart to show those
    of a few minutes.
    """
    longest_ms = _longest_pause_ms(c)
    if c.memory.pauses:
        known_since, day_began_at, worked_until = int(c.past.at[0]), c.now - SCHEDULE_MS, c.memory.evidence.life_at
        counted_ms = longest_of_schedule(c.memory.pauses, known_since, day_began_at, LATEST_PAUSES, worked_until)
        longest_ms = max(longest_ms, counted_ms)
    return int(longest_ms * PAUSE_MARGIN) + 60_000 if longest_ms else 0


def _longest_pause_ms(c: Context) -> int:
    """Return the longest of the last pauses between reported deletions, 0 if there is no schedule.

    A wait before the first settlement is a pause if the consumers then caught up with its messages: those that leave some behind
    may have failed again.
    """
    past = c.past.since(c.now - SCHEDULE_MS)
    # Messages that expire depart as well, with no consumer there.
    grew = nonzero(np.diff(past["deleted"]) > 0)
    if not len(grew):
        return 0
    begin, end = past.at[grew[:-1] + 1], past.at[grew[1:]]
    waited = (past["oldest_visible_at"] > 0) | (past["counted_visible"] > 0)
    pauses = (end - begin >= c.thresholds.stalled_s * 1000) & waited[grew[1:]]
    lengths = (end - begin)[pauses]
    began_ms = int(past.at[grew[0]])
    first_ended_at = int(end[pauses][0]) if len(lengths) else 0
    if past["deleted"][0] == 0:
        oldest = past["oldest_visible_at"][grew[0] + 1 :]
        behind = np.where(oldest > 0, oldest <= began_ms, past["counted_visible"][grew[0] + 1 :] > 0)
        first_ms = began_ms - _waiting_since(past.at[: grew[0] + 1], waited[: grew[0] + 1])
        if first_ms >= c.thresholds.stalled_s * 1000 and not behind.all():
            first_ended_at = began_ms
            began_ms, lengths = began_ms - first_ms, np.append(first_ms, lengths)
    if not len(lengths):
        return 0
    worked_until = int(past.at[grew[-1] + 1])
    if 2 * int(lengths.sum()) < worked_until - began_ms:
        return 0
    if len(lengths) == 1 and not may_be_schedule(int(lengths[0]), worked_until - first_ended_at):
        return 0
    return int(lengths[-LATEST_PAUSES:].max())


def _waiting_since(at: Ints, waited: Bools) -> int:
    """Return the first of the last samples in which messages waited without a break; the last one if they do not wait."""
    empty = nonzero(~waited)
    return int(at[min(int(empty[-1]) + 1, len(at) - 1)] if len(empty) else at[0])


def is_scheduled_pause(c: Context) -> bool:
    """Whether messages wait because consumers that work on a schedule are away, for no longer than usual."""
    since = stalled_since(c)
    return since is not None and not c.summary.numbers["in_flight"] and c.now - since < scheduled_ms(c)


@condition("backlog")
def backlog_since(c: Context) -> int | None:
    """Messages that are tracked wait for consumers: dead-letter queues need none, and paused queues are left out."""
    if not c.summary.numbers["visible"] or c.is_dead_letter_queue or c.paused:
        return None
    if not c.summary.numbers["poison"] or not _moves_go_unseen(c):
        return c.summary.numbers["visible_since"]
    # Something seems to wait for as long as a suspect does. The others began to wait when they first outnumber the suspects.
    return None if _only_suspects_wait(c) else c.now


def _moves_go_unseen(c: Context) -> bool:
    """Whether a move to a dead-letter queue leaves no trace: SQS reports it to no one, and no collector the limit or counts.

    In an ordered queue a later message of the group shows that a message is gone.
    """
    return c.name.system == "aws_sqs" and not c.ordered and c.max_receive_count is None and not c.summary.depths


def _only_suspects_wait(c: Context) -> bool:
    """Whether all that seems to wait are poison suspects that nobody has received for a while: most likely they were moved."""
    numbers, silent_ms = c.summary.numbers, c.now - c.summary.last_received_at
    others = numbers["visible"] + numbers["in_flight"] - numbers["poison"]
    return others <= 0 and silent_ms >= c.thresholds.stalled_s * 1000 and not c.firing_here("QueueStalled")


@condition("failing_again")
def failing_again_since(c: Context) -> int | None:
    """Several messages have been received again and again: they are the same backlog while all of them are in flight."""
    if c.summary.numbers["poison"] < FEWEST_FAILING or c.is_dead_letter_queue or c.paused:
        return None
    if _moves_go_unseen(c) and _only_suspects_wait(c):
        return None
    began = sorted(message.attempts[0].at_ms for message in c.messages("poison") if message.attempts)
    return began[FEWEST_FAILING - 1] if len(began) >= FEWEST_FAILING else c.now


def _failing_backlog_since(c: Context) -> int | None:
    """Return since when messages have failed that are visible now, or were when the stall was noticed."""
    waits = c.summary.numbers["visible"] or c.firing_here("QueueStalled")
    return failing_again_since(c) if waits else None


@once
def stalled_since(c: Context) -> int | None:
    """Return since when there has been a visible backlog without a settlement; None where there is no such backlog.

    What waits in prefetch windows behind messages that their consumers do not finish is a backlog too, and so is what consumers
    receive again and again. Dead-letter queues need no consumer and paused queues are left out. Where not all messages are
    reported, the broker's own counts must show the same.
    """
    if not _by_counts(c):
        backlog, windows = backlog_since(c), stuck_windows_since(c)
        if backlog is not None:
            backlog = max(backlog, _none_visible_at(c))
        waits = [since for since in (backlog, windows, _failing_backlog_since(c)) if since is not None]
        # Where ends are not reported, a receive is all that shows a consumer at work.
        worked_at = c.summary.last_settled_at if c.knowledge.holds_are_known else c.summary.last_received_at
        return max(min(waits), worked_at, c.summary.last_settled_at) if waits else None
    return None if c.is_dead_letter_queue or c.paused else _stalled_by_counts(c)


def _none_visible_at(c: Context) -> int:
    """Return until when the broker's counts show that nothing was visible (epoch milliseconds), 0 where none does.

    What seemed to wait then had been received, and that is reported later: by a Lambda function whose mapping gathers a batch for
    minutes, for example.
    """
    empty_at = [depth.at for depth in c.summary.depths if not depth.visible]
    return max(empty_at) - COUNT_LAG_MS if empty_at else 0


def _by_counts(c: Context) -> bool:
    """Whether the broker's counts must show a stall."""
    return c.basis != "messages" and "visible" in c.summary.attributes


def _stalled_by_counts(c: Context) -> int | None:
    """Return since when the counts show a stall: always visible, never falling, none in flight, no delivery or end reported."""
    e = c.memory.evidence
    active = max(c.summary.last_received_at, c.summary.last_settled_at)
    if e.backlog_at > e.seen_at and c.now - e.backlog_at <= COUNTS_RECENT_MS:
        return _stalled_by_backlog(c, active)
    if _counts_ended(c):
        # The conclusion stands until a consumer is seen to work.
        fired = c.firing_here("QueueStalled")
        return fired[0].since_ms if fired and active < fired[0].since_ms else None
    # All consumers are instrumented: messages they have in flight and never finish are seen. The counts of one that receives now
    # and then, and fails, stand still in between: this comes first, or the stall would begin again with every such receive.
    ends_are_seen = c.knowledge.holds_are_known and e.ends.holds(c.now) and e.ends.is_long(c.now)
    if e.visible_since and ends_are_seen and c.basis == "consumers":
        return max(e.visible_since, c.summary.last_settled_at, c.memory.paused_at)
    # A single count shows that messages wait, not that nobody takes them, unless tracked ones wait too: where nobody reports
    # receives, all seem to.
    waits = active > 0 and c.summary.numbers["visible"] > 0
    if e.frozen_since and e.visible_since and (e.frozen_counts > 1 or waits):
        return max(e.visible_since, e.life_at, active, c.memory.paused_at)
    return None


def _counts_ended(c: Context) -> bool:
    """Whether the latest count no longer says what happens now: consumers may have come back since.

    Where no consumer reports, nothing else would show them, so that is so as soon as the next count is overdue.
    """
    age_ms, overdue_at = c.now - c.memory.evidence.seen_at, overdue_from(c.summary)
    if c.basis in ("counts", "producers") and age_ms > COUNT_LAG_MS and overdue_at is not None and c.now > overdue_at:
        return True
    return age_ms > COUNTS_RECENT_MS


def _stalled_by_backlog(c: Context, active: int) -> int | None:
    """Return since when a queue whose broker does not report what is in flight (Cloudflare) has been stalled.

    Deliveries were reported once and no longer are, and the backlog has grown since, or a redelivered message waits in it. A
    backlog without either may consist of delayed sends. A batch in progress may take its time; after twice the 99th percentile of
    holds it is taken as lost.
    """
    e, numbers = c.memory.evidence, c.summary.numbers
    if not e.backlog_since or not active:
        return None
    # Where the broker counts fewer than are tracked, what seems to wait was taken by consumers that do not report.
    waits = numbers["visible"] > 0 and numbers["visible_since"] <= e.backlog_since and not e.visible_below
    if e.backlog <= e.backlog_first and not waits:
        return None
    slowest_ms = _usual_work_ms(c)
    if numbers["in_flight"] and c.now - c.summary.last_received_at <= max(slowest_ms, c.thresholds.stalled_s * 1000):
        return None
    delay_ms = int((c.summary.number("delivery_delay_s") or 0) * 1000)
    since = max(e.backlog_since + delay_ms, active)
    return since if since <= c.now else None
