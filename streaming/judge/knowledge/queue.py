"""What is known about a queue now: its depth, the ages of its oldest message, and the evidence for each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from streaming.core.reporting.report import AGE_SCOPES, QueueSummary
from streaming.core.reporting.views import STATES, State
from streaming.core.state.queues import NEVER, Depth
from streaming.judge.broker_counts import COUNT_LAG_MS, COUNTS_FRESH_MS
from streaming.judge.findings.measured import Measured
from streaming.judge.findings.signals import SignalName
from streaming.judge.history.window import Window
from streaming.judge.knowledge.basis import BasisReason
from streaming.judge.knowledge.bounds import send_bound, settlement_bound
from streaming.judge.knowledge.compare import FEWEST_IN_FLIGHT, samples_around
from streaming.judge.knowledge.evidence import EXACT_COUNTS, REPORTS_LAG_MS, Evidence

FEWEST_SENDS = 20
"""Of fewer messages, most may have gone to the consumers that report by chance."""
MANY_EXACT_COUNTS = 10
"""Counts in flight are small: fewer consecutive matches than this may be chance."""
FROZEN_MS = 250_000
FROZEN_COUNTS = 5
"""A backlog unchanged for this long, over this many counts, is taken to be the same messages."""
RECEIVING_MS = 60_000
"""Consumers that received within this time are taken to receive now."""
FRESH_BOUND_MS = 180_000
"""A bound that rests on the latest count is dropped when that is older than this."""


class Age(NamedTuple):
    """The time in epoch milliseconds from which the oldest age of a scope counts; if not `exact`, the age is a lower bound."""

    since_ms: int
    exact: bool


_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


class Knowledge(NamedTuple):
    """What is known about a queue. What is unknown is absent."""

    reason: BasisReason
    depth: Mapping[State, int] = _NOTHING
    ages: Mapping[str, Age] = _NOTHING
    """Ages by scope of AGE_SCOPES."""
    near: Mapping[SignalName, Measured] = _NOTHING
    """How near signals are to firing that only their rules can measure."""
    in_flight_is_known: bool = True
    """False: some receives are not reported, so what seems to wait may be in flight."""
    groups_are_known: bool = True
    """False: messages of a group that seem to wait may have left, because not everything is reported."""
    waiting_is_known: bool = True
    """False: messages may wait that nobody reported."""
    holds_are_known: bool = True
    """False: deletions are not reported, so consumers seem to hold what they have finished."""


NOTHING_KNOWN = Knowledge(BasisReason("unknown", "nothing is reported", ""))


def depth_of(
    reason: BasisReason, e: Evidence, summary: QueueSummary, counts: Mapping[str, int], recent: Window, *, doubtful: bool
) -> dict[State, int]:
    """Return messages by state: the tracked ones where these are all, else the broker's count; absent when neither is known.

    It is the latest count plus the tracked changes since then until the counts have agreed for a while, when messages start to
    arrive without reported sends, when some may have been received unseen (`doubtful`), and where the counts are exact. Where
    there are no counts, it is what is tracked.
    """
    if reason.basis == "messages" or (summary.messages_seen and "visible" not in summary.attributes):
        tracked: dict[State, int] = {state: summary.numbers[state] for state in STATES}
        unsent = recent.change("touched_unsent", e.seen_at - COUNT_LAG_MS) > 0
        distrusted = unsent or doubtful or not e.is_established(e.counted_at)
        # The latest count may be one without the messages in flight: it is not compared in this way.
        whole = e.seen_at > 0 and e.seen_at >= e.backlog_at
        if whole and "visible" in counts and (distrusted or e.counts_are_exact()):
            at_count = _tracked_at_count(e, sum(counts.values()), recent)
            return {state: max(counts.get(state, at_count[state]) + n - at_count[state], 0) for state, n in tracked.items()}
        return tracked
    return {state: counts[state] for state in STATES if state in counts}


def _tracked_at_count(e: Evidence, counted: int, recent: Window) -> dict[State, int]:
    """Return what was tracked at the time of the latest count; where reports are late, in the sample that matches it best.

    While the job catches up with its source, what was tracked at the time of a count is what was tracked once it arrived.
    """
    at_count, after_count = samples_around(e, e.seen_at, recent)
    after_count = max(after_count, recent.last_before(e.arrived_at))
    off = np.abs(recent["unsettled"][at_count : after_count + 1] - counted)
    exact = e.tracked_at(e.seen_at)
    if exact is not None and abs(sum(exact) - counted) <= off.min():
        return dict(zip(STATES, exact, strict=True))
    at = at_count + int(np.argmin(off))
    return {state: int(recent[f"tracked_{state}"][at]) for state in STATES}


def unheard_from(summary: QueueSummary) -> int | None:
    """Return from when on a counted queue counts as unheard of: after ten minutes without a count or an event.

    Where its polls are further apart than that, one must be overdue. None for a queue that was never counted: there, no event
    means that nothing happens.
    """
    counted = summary.attributes.get("visible")
    if counted is None:
        return None
    depths = summary.depths
    between_ms = depths[-1].at - depths[-2].at if len(depths) > 1 else 0
    return max(counted.at, summary.last_event_at) + max(COUNTS_FRESH_MS, between_ms + REPORTS_LAG_MS)


def exact_ages(summary: QueueSummary, visibility_ms: int, now: int) -> dict[str, Age]:
    """Return the ages of the tracked messages.

    A message whose receives are used up and whose window is over moves to the dead-letter queue at the next receive, which is not
    reported. It counts if nobody seems to receive: if nobody received after its own last receive, or for a minute. Otherwise the
    age of the other messages is a lower bound: a receive of another message does not prove that this one has moved.
    So it is while the send time of a message is not known, which then counts from its first event (`send_unknown`),
    and CloudWatch's age where it restarted with a receive that was not seen (`restarts_unseen`).
    """
    found = _ages_of_tracked(summary, visibility_ms, now)
    if summary.numbers["restarts_unseen"] and "cloudwatch" in found:
        found["cloudwatch"] = found["cloudwatch"]._replace(exact=False)
    if not summary.numbers["send_unknown"]:
        return found
    # CloudWatch counts the age of a dead letter from its arrival.
    return {scope: Age(age.since_ms, age.exact and scope == "cloudwatch" and summary.dead_letter) for scope, age in found.items()}


def _ages_of_tracked(summary: QueueSummary, visibility_ms: int, now: int) -> dict[str, Age]:
    first, received = summary.numbers["used_up_first"], summary.last_received_at
    nobody = received <= first - visibility_ms or now - received > RECEIVING_MS
    if not summary.numbers["used_up"] or (received <= first and nobody):
        return {scope: Age(at, True) for scope, at in zip(AGE_SCOPES, summary.oldest, strict=True) if at < NEVER}
    ages = zip(AGE_SCOPES, summary.oldest, summary.oldest_but_used_up, strict=True)
    return {scope: Age(but, but == at) for scope, at, but in ages if but < NEVER}


def least_ages(
    e: Evidence,
    summary: QueueSummary,
    past: Window,
    latest: Depth | None,
    now: int,
    *,
    ends_reported: bool,
    ends_missing: bool = False,
    retention_ms: int = NEVER,
) -> dict[str, Age]:
    """Return lower bounds of the ages: the oldest from all arguments whose condition is established.

    What counts prove is at most as old as the retention: an equal backlog consists of other messages by then. Tracked messages
    expire one by one. `ends_reported`: the end of every recent delivery was seen. `ends_missing`: deletions are not reported, so
    counts in flight that match what is tracked match by chance.
    """
    found: dict[str, list[int]] = {"all": [], "visible": [], "healthy": []}
    kept_from = now - retention_ms
    counted = latest is not None and now - latest.at <= FRESH_BOUND_MS
    in_flight = int(past["tracked_in_flight"][-1])
    if latest is not None and latest.unsettled == 0 and counted:
        return {}
    if ends_reported and summary.numbers["oldest_held"] < NEVER:
        # A message whose deletion is not reported seems to be held until its window ends.
        found["all"].append(summary.numbers["oldest_held"])
    enough = e.in_flight_sum >= FEWEST_IN_FLIGHT
    if enough and not ends_missing and e.ends.holds(now) and (e.ends.is_long(now) or e.exact_ends >= EXACT_COUNTS):
        since = max(e.ends.agreed_since - COUNT_LAG_MS, 1)
        delayed = max(latest.delayed, 0) if latest is not None else 0
        poison, used_up = summary.numbers["poison"], summary.numbers["used_up"]
        # The number in flight is small and often constant: it matches counts that are late, or wrong by some per cent, as well.
        exact = e.exact_ends >= EXACT_COUNTS and e.exact_sends >= EXACT_COUNTS
        for scope, minus in (("all", used_up), ("visible", used_up + in_flight + delayed), ("healthy", used_up + poison)):
            at = settlement_bound(past, since, minus=minus, exact=exact)
            if at is not None:
                found[scope].append(max(at, kept_from))
        # A message received earlier may have ended unseen.
        all_seen = summary.numbers["returned_since"] >= e.ends.agreed_since
        for scope, name in (("all", "oldest_received"), ("visible", "oldest_received_visible")):
            if all_seen and summary.numbers[name] < NEVER:
                found[scope].append(summary.numbers[name])
    frozen = e.frozen_counts >= FROZEN_COUNTS and e.seen_at - e.frozen_since >= FROZEN_MS
    # A count that is a minute old does not show consumers that have just come back.
    sends_hold = counted and e.sends.holds(now) and past["sent"][-1] > past["sent"][0]
    if sends_hold and latest is not None and (e.exact_sends >= EXACT_COUNTS or _all_in_flight_are_tracked(e, latest)):
        for scope, most in (("all", latest.unsettled), ("visible", latest.visible)):
            at = send_bound(past, most, max(int(past.at[0]), e.sends.agreed_since), exact=e.exact_sends >= EXACT_COUNTS)
            if at is not None:
                found[scope].append(max(at, kept_from))
    if _rows_are_there(e, past, now, dead_letters=summary.dead_letter):
        found["all"].append(summary.oldest_but_used_up[0])
        found["visible"].append(summary.oldest_but_used_up[1])
    if counted and e.frozen_sure_at and frozen:
        # No message is in flight and none leaves: these are the messages of that time.
        found["all"].append(max(e.frozen_sure_at, kept_from))
        found["visible"].append(max(e.frozen_sure_at, kept_from))
        if e.standstill_at > e.sends.agreed_since and e.sends.holds(now):
            found["all"].append(max(e.standstill_at, kept_from))
            found["visible"].append(max(e.standstill_at, kept_from))
    # A message that is visible, or no poison suspect, is one of all: their bound may be known where that of all is not.
    found["all"] += found["visible"] + found["healthy"]
    return {scope: Age(min(times), False) for scope, times in found.items() if times and min(times) < NEVER}


def _all_in_flight_are_tracked(e: Evidence, latest: Depth) -> bool:
    """Whether the number in flight matched so often that the messages in flight are all reported, not some of them by chance.

    If half of the messages are reported, then in one count of four both of two in flight are. Ten in a row are not chance.
    """
    return e.exact_in_flight >= MANY_EXACT_COUNTS and latest.in_flight > 1


def _rows_are_there(e: Evidence, past: Window, now: int, *, dead_letters: bool) -> bool:
    """Whether every tracked message can be assumed to exist still, because both sides are reported.

    This also holds when messages are sampled: no more are tracked than counted, and nearly all of those sent a while ago had a
    later event.
    """
    if not e.rows.holds(now) or not e.rows.is_long(now):
        return False
    sent, touched = past["sent"], past["touched"] - past["touched_unsent"]
    if sent[max(past.last_before(e.life_at), 0)] and not touched[-1]:
        # Only sends are reported: a message that was sent while consumers worked may be long gone.
        return False
    # Of some, the later event is still to come; dead letters have none while nobody looks after them.
    return dead_letters or _had_later_events(past, past.last_before(e.rows.agreed_since), -1) or _were_there(e, past)


def _had_later_events(past: Window, first: int, last: int) -> bool:
    """Whether nearly all messages sent between two samples had a later event."""
    sent, touched = past["sent"], past["touched"] - past["touched_unsent"]
    first = max(first, 0)
    sends, later = sent[last] - sent[first], touched[last] - touched[first]
    return bool(sends >= FEWEST_SENDS and later >= 0.9 * sends - min(0.2 * sends, 20))


def _were_there(e: Evidence, past: Window) -> bool:
    """Whether consumers are idle, so that no later events arrive: the messages that existed when they stopped still do.

    This holds only if the messages sent before had later events: otherwise some consumers do not report.
    """
    idle = past.at[-1] - e.life_at > 60_000 and e.frozen_since > 0 and e.tracked_sum < 0.8 * e.counted_sum
    return bool(idle and _had_later_events(past, 0, max(past.last_before(e.life_at), 0)))
