"""What may be said of one queue now: its depth, the ages of its oldest message, and what each rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from streaming.core.reporting.report import AGE_SCOPES, QueueFacts
from streaming.core.state.queues import NEVER, Depth
from streaming.judge.history import Window
from streaming.judge.knowledge.basis import BasisReason
from streaming.judge.knowledge.bounds import send_bound, settlement_bound
from streaming.judge.knowledge.evidence import COUNT_LAG_MS, FEWEST_IN_FLIGHT, Evidence

State = Literal["visible", "in_flight", "delayed"]
STATES: tuple[State, ...] = ("visible", "in_flight", "delayed")

EXACT_COUNTS = 3
"""So many counts in a row must fit to the message before they are taken at their word."""
FROZEN_MS = 250_000
FROZEN_COUNTS = 5
"""A backlog seen unchanged for so long, in so many counts, is called the same messages."""
FRESH_BOUND_MS = 180_000
"""A bound that rests on the latest count goes when that is older than this."""


@dataclass(frozen=True, slots=True)
class Age:
    """From when the age of the oldest message of a scope counts, in epoch milliseconds; not `exact`: it is at least so old."""

    since_ms: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What may be said of a queue. What is not known is absent."""

    reason: BasisReason
    depth: Mapping[State, int] = field(default_factory=dict)
    ages: Mapping[str, Age] = field(default_factory=dict)
    """By scope of AGE_SCOPES."""


NOTHING_KNOWN = Knowledge(BasisReason("unknown", "nothing is reported", ""))


def depth_of(reason: BasisReason, e: Evidence, facts: QueueFacts, counts: Mapping[str, int], recent: Window) -> dict[State, int]:
    """Messages by state: those tracked where that is all there are, else the broker's count; absent when neither is known.

    Until the counts have agreed for a while, it is the latest count and what is tracked to have changed since. Where nobody ever
    counted, what is tracked is all there is.
    """
    if reason.basis == "messages" or (facts.messages_seen and "visible" not in facts.attributes):
        tracked: dict[State, int] = {state: facts.numbers[state] for state in STATES}
        if e.seen_at and "visible" in counts and not e.tracked.is_long(e.counted_at):
            at = max(recent.last_before(e.seen_at), 0)
            then = {state: int(recent[f"tracked_{state}"][at]) for state in STATES}
            return {state: max(counts.get(state, then[state]) + n - then[state], 0) for state, n in tracked.items()}
        return tracked
    return {state: counts[state] for state in STATES if state in counts}


def exact_ages(facts: QueueFacts) -> dict[str, Age]:
    """The ages of the messages tracked.

    A message whose receives are used up and whose window is over moves to the dead-letter queue at the next receive, which
    nobody reports: it counts until somebody received after it. In between the age is at least that of the others.
    """
    over_at = facts.numbers["used_up_last"]
    received = facts.last_received_at
    if not over_at or received <= facts.numbers["used_up_first"]:
        return {scope: Age(at, True) for scope, at in zip(AGE_SCOPES, facts.oldest, strict=True) if at < NEVER}
    sure = received > over_at
    ages = zip(AGE_SCOPES, facts.oldest, facts.oldest_but_used_up, strict=True)
    return {scope: Age(but, sure or but == at) for scope, at, but in ages if but < NEVER}


def least_ages(e: Evidence, facts: QueueFacts, past: Window, latest: Depth | None, now: int) -> dict[str, Age]:
    """Lower bounds of the ages, from every argument whose condition is established; of several the oldest."""
    found: dict[str, list[int]] = {"all": [], "visible": [], "healthy": []}
    counted = latest is not None and now - latest.at <= FRESH_BOUND_MS
    in_flight = int(past["tracked_in_flight"][-1])
    if latest is not None and latest.unsettled == 0 and counted:
        return {}
    if facts.numbers["oldest_held"] < NEVER:
        # Whoever has it reports, or its delivery would not be known; so its end would be known as well.
        found["all"].append(facts.numbers["oldest_held"])
    enough = e.in_flight_sum >= FEWEST_IN_FLIGHT
    if enough and e.ends.holds(now) and (e.ends.is_long(now) or e.exact_ends >= EXACT_COUNTS):
        since = max(e.ends.agreed_since - COUNT_LAG_MS, 1)
        delayed = max(latest.delayed, 0) if latest is not None else 0
        poison, used_up = facts.numbers["poison"], facts.numbers["used_up"]
        exact = e.exact_ends >= EXACT_COUNTS
        for scope, minus in (("all", used_up), ("visible", used_up + in_flight + delayed), ("healthy", used_up + poison)):
            at = settlement_bound(past, since, minus=minus, exact=exact)
            if at is not None:
                found[scope].append(at)
        for scope, name in (("all", "oldest_received"), ("visible", "oldest_received_visible")):
            if facts.numbers[name] < NEVER:
                found[scope].append(facts.numbers[name])
    frozen = e.frozen_counts >= FROZEN_COUNTS and e.seen_at - e.frozen_since >= FROZEN_MS
    prompt = e.exact_sends >= EXACT_COUNTS or e.exact_ends >= EXACT_COUNTS
    # A count that is a minute old says nothing of consumers that have just come back.
    current = counted and (frozen or prompt)
    if current and latest is not None and e.sends.holds(now) and past["sent"][-1] > past["sent"][0]:
        for scope, most in (("all", latest.unsettled), ("visible", latest.visible)):
            at = send_bound(past, most, int(past.at[0]), exact=e.exact_sends >= EXACT_COUNTS)
            if at is not None:
                found[scope].append(at)
    if _rows_are_there(e, past, now):
        found["all"].append(facts.oldest_but_used_up[0])
        found["visible"].append(facts.oldest_but_used_up[1])
    if counted and e.frozen_sure_at and frozen:
        # Nobody has anything and nothing leaves: these are the messages of then.
        found["all"].append(e.frozen_sure_at)
        found["visible"].append(e.frozen_sure_at)
    return {scope: Age(min(times), False) for scope, times in found.items() if times and min(times) < NEVER}


def _rows_are_there(e: Evidence, past: Window, now: int) -> bool:
    """Whether each message that is tracked can be taken to be there still: both its sides are reported, as with sampling by
    message. Never more are tracked than counted, and of those sent a while ago nearly all were heard of again."""
    if not e.rows.holds(now) or not e.rows.is_long(now):
        return False
    sent, touched = past["sent"], past["touched"] - past["touched_unsent"]
    first = max(past.last_before(e.rows.agreed_since), 0)
    return bool(touched[-1] - touched[first] >= 0.9 * (sent[-1] - sent[first]) - 20 or _were_there(e, past))


def _were_there(e: Evidence, past: Window) -> bool:
    """While nobody takes messages none is heard of again: what was true when they did still is."""
    return bool(past.at[-1] - e.life_at > 60_000 and e.frozen_since > 0 and e.tracked_sum < 0.8 * e.counted_sum)
