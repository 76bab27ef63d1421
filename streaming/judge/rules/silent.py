"""The signal about a queue to which no messages come any more."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from streaming.core.columns import nonzero
from streaming.core.state.queues import NEVER
from streaming.judge.broker_counts import COUNT_LAG_MS
from streaming.judge.conditions.conditions import condition, once
from streaming.judge.context import DAY_MS, HOUR_MS, Context
from streaming.judge.findings import measures
from streaming.judge.findings.measured import Measured, Near
from streaming.judge.findings.signals import Finding
from streaming.judge.findings.words import duration_ms, seconds
from streaming.judge.history.history import SAMPLE_EVERY_MS
from streaming.judge.history.window import Window
from streaming.judge.rules.stalled import stalled_since

SLOT_MS = 600_000
FEWEST_SLOTS = 3
"""A queue has steady traffic when messages came in each ten minutes of the last hour, or of half an hour at least."""

RATE_CHANGES_RATIO = 0.1
"""A steady rate hardly changes by more than this as its samples thin out: the hour is then measured from an older one."""


class Expected(NamedTuple):
    """When the last message came (epoch milliseconds), and how many were due since, by each of two rates."""

    last_at: int
    known_until: int
    """Until when it is known that none came."""
    due: float
    """Until then, by the rate of the hour before."""
    due_as_yesterday: float


def _silence(c: Context) -> Measured | None:
    """Return how long no message has come to a queue with steady traffic; None where nothing is expected."""
    expected = _expected(c)
    if expected is None:
        return None
    due = min(expected.due, expected.due_as_yesterday)
    return measures.silence(expected.last_at, expected.known_until, due, c.thresholds)


@condition("messages_expected")
def expected_since(c: Context) -> int | None:
    """Traffic was steady up to the last message: more are expected."""
    expected = _expected(c)
    return None if expected is None else expected.last_at


@condition("silent")
def silent_since(c: Context) -> int | None:
    """As many messages are missing as a silence takes."""
    silence = _silence(c)
    if silence is None or not silence.reached:
        return None
    expected = _expected(c)
    return None if expected is None else expected.last_at


def queue_silent(c: Context) -> Iterator[Finding | Near]:
    """A queue with steady traffic, of which at least 20 messages were due by its own rates, received none."""
    silence = _silence(c)
    if silence is None:
        return
    if silence.limit < math.inf:
        yield Near("QueueSilent", silence)
    expected, since = _expected(c), silent_since(c)
    if since is None or expected is None:
        return
    due = round(min(expected.due, expected.due_as_yesterday))
    evidence = {
        "silent_s": seconds(c.now - expected.last_at),
        "messages_due": due,
        "last_message_at": expected.last_at,
        "summary": (
            f"No message has arrived in {c.name.queue} for {duration_ms(c.now - expected.last_at)}; at its usual rate {due} were "
            "due. Check its producers."
        ),
    }
    if not c.summary.total("sent") and "visible" not in c.summary.attributes:
        evidence["summary"] = (
            f"No message of {c.name.queue} has been received for {duration_ms(c.now - expected.last_at)}; at its usual rate "
            f"{due} were due. Neither its sends nor counts are reported: check its producers and its consumers."
        )
    yield c.finding("QueueSilent", "critical" if c.thresholds.silent_pages else "info", since, evidence)


def silent_from(c: Context) -> int:
    """Return the earliest time at which `queue_silent` can fire if no message comes; NEVER where it cannot.

    Once it has passed, see `is_overdue`.
    """
    if (
        c.is_dead_letter_queue
        or c.paused
        or max(c.summary.total("sent"), c.summary.total("received")) < c.thresholds.silent_messages
    ):
        return NEVER
    expected = _expected(c)
    if expected is None:
        # The last message is too recent, or there is no rate, and there will be none until a message comes.
        came = last_change(c.recent, "sent" if c.summary.total("sent") else "received")
        return NEVER if came is None else max(c.recent.times[came], _unreported_at(c)) + 60_000
    return _overdue_from(c, expected)


def is_overdue(c: Context) -> bool:
    """Whether nearly enough is due by the rate of the hour before: then that of yesterday decides, which changes with time."""
    expected = _expected(c)
    return expected is not None and _overdue_from(c, expected) <= c.now


def _overdue_from(c: Context, expected: Expected) -> int:
    """Return when nearly enough is due by the rate of the hour before (epoch milliseconds)."""
    if expected.due <= 0:
        return NEVER
    limit_ms = measures.silence(expected.last_at, expected.known_until, expected.due, c.thresholds).limit
    return expected.last_at + math.ceil((1 - RATE_CHANGES_RATIO) * limit_ms)


def last_change(window: Window, field: str) -> int | None:
    """Return the index of the latest sample in which a field differs from the sample before; None where it never does."""
    # Nearly always the last one, where a queue has just been touched…
    last = len(window) - 1
    if last > 0 and window.value(field, last) != window.value(field, last - 1):
        return last
    # …or one of the last few: from the end, a list takes a fifth of the time of numpy.
    values = window[field].tolist()
    return next((i for i in range(len(values) - 1, 0, -1) if values[i] != values[i - 1]), None)


@once
def _expected(c: Context) -> Expected | None:
    """Return what was due; None for a queue without steady traffic, a paused one and a dead-letter queue."""
    if c.is_dead_letter_queue or c.paused:
        return None
    if stalled_since(c) is not None and c.summary.total("sent") == 0:
        # Only receives are reported, and there are none: arrivals are unknown.
        return None
    field = "sent" if c.summary.total("sent") else "received"
    if c.recent.change(field, c.now - 60_000) > 0:
        # A message came within the minute: most queues most of the time.
        return None
    past = c.past
    came = past[field]
    steps = nonzero(np.diff(came) > 0)
    if not len(steps):
        return None
    before, known_by = past.times[steps[-1]], past.times[steps[-1] + 1]
    remembered_at = c.memory.since.get(expected_since.name)
    # The samples thin out around it: a message that came between these two is still the one that was the last before.
    came_at = remembered_at if remembered_at is not None and before < remembered_at <= known_by else known_by
    last_at, known_until = max(came_at, _unreported_at(c)), _known_until(c)
    if known_until - last_at < 60_000 or past.change("touched_unsent", max(last_at, known_by)) > 0:
        # In the second case messages come, but their sends are not reported.
        return None
    start = past.last_before(last_at - HOUR_MS)
    # Once samples are ten minutes apart, or the first ones gone, they cannot show it any more: it is asked until it was shown.
    if last_at != remembered_at:
        # Where samples have thinned out, traffic may seem to have lasted until the next one: that alone shows nothing new.
        lasted_until = before if last_at == known_by and known_by - before > SAMPLE_EVERY_MS else last_at
        slots = (lasted_until - max(last_at - HOUR_MS, int(past.at[0]))) // SLOT_MS
        bounds = [max(past.last_before(last_at - i * SLOT_MS), 0) for i in range(slots + 1)]
        if slots < FEWEST_SLOTS or any(came[later] <= came[earlier] for later, earlier in pairwise(bounds)):
            return None
    # The samples thin out: the one from before the hour is ever older.
    rate = (int(came[steps[-1] + 1]) - int(came[max(start, 0)])) / (last_at - int(past.times[max(start, 0)]))
    due = rate * (known_until - last_at)
    yesterday = due
    if int(past.at[0]) <= last_at - DAY_MS:
        yesterday = float(came[past.last_before(known_until - DAY_MS)] - came[max(past.last_before(last_at - DAY_MS), 0)])
    return Expected(last_at, known_until, due, yesterday)


def _known_until(c: Context) -> int:
    """Return until when it is known whether messages came (epoch milliseconds).

    If sends are not reported, nothing may be received because the consumers are away. Only a count shows that nothing waits for
    them, and it may be late.
    """
    counted = c.summary.attributes.get("visible")
    return c.now if c.summary.total("sent") or counted is None else min(counted.at - COUNT_LAG_MS, c.now)


def _unreported_at(c: Context) -> int:
    """Return when the broker last counted messages that nobody reported (epoch milliseconds), 0 where sends are reported."""
    return 0 if c.summary.total("sent") else c.memory.evidence.unreported_at
