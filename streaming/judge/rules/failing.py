"""The signal about deliveries that fail: a broken consumer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from streaming.core.columns import nonzero
from streaming.core.reporting.views import MessageView
from streaming.core.thresholds import Thresholds
from streaming.judge.conditions.conditions import condition, once
from streaming.judge.conditions.outcomes import ConsumerMark, Outcomes, consumer_marks, mark_every_ms, outcomes
from streaming.judge.conditions.sliding import FAILED
from streaming.judge.context import Context
from streaming.judge.findings import measures
from streaming.judge.findings.measured import Near
from streaming.judge.findings.signals import Finding
from streaming.judge.findings.words import duration_ms, leaving, seconds
from streaming.judge.knowledge.windows import failures_are_proved, failures_are_proved_of
from streaming.judge.memory.queue_memory import QueueMemory

QUICK_SLICE_MS = 10_000
QUICK_APART_MS = 20_000
QUICK_FAILURES = 3
QUICK_SIGMAS = 2.0
"""A clear case fires before the long window shows it: more deliveries fail than chance explains, in a time whose first and last
10 s both have failures. The two are at least 20 s apart, and further than a restart of all consumers can cause."""
FIRING_MS = 60_000
"""Once it fires it is looked at over times up to a minute, or the visibility timeout plus 40 s if that is longer: a lull does not
end it, and neither do deliveries that were finished before it began."""
LONGER_FACTOR = 1.5

NOBODY_RECEIVES_MS = 120_000
"""When nothing was received for this long, nor for half as long beyond the visibility timeout, the consumers are gone, not
broken."""

PENDING_MS = (10_000, 60_000)
PENDING_FAILURES = 3
PENDING_RATIO = 0.5
"""QueueFailing may be about to fire when, in ten seconds or a minute, three deliveries failed besides those of the worst message,
and their share is at least half of the one at which a queue is failing."""

USUAL_BATCH = 10
"""The default of Cloudflare, and of Lambda, for the largest batch, where nobody reports it."""
BATCHES_MS = 900_000
"""Messages that came back within this time show whether whole batches fail."""

LOST_SPAN_MS = 30_000
"""The shortest time over which the rate of lost messages is measured."""

TOLERATED_RATIO = 0.5
"""Failures stand out where more fail than this part of the share at which a queue is failing."""

CULPRIT_DELIVERIES = 10
OTHERS_DELIVERIES = 5
OTHERS_RATIO = 0.1
CULPRITS_NAMED = 5
GONE_MS = 60_000
"""A consumer that crashes again and again is back within this time."""


@once
def is_failing(c: Context) -> bool:
    """At least half of the deliveries that ended in 5 min (20 or more) ended without a settlement, or clearly more recently.

    They are not those of one message that comes back again and again: PoisonMessage reports it.
    """
    return _most_fail(c) and failures_are_proved(c, FAILED.window_ms(c))


def _most_fail(c: Context) -> bool:
    if c.is_dead_letter_queue or not len(c.recent) or not c.summary.total("failed"):
        return False
    if _nobody_receives(c):
        return False
    limits = c.thresholds
    whole = outcomes(c, FAILED.window_ms(c))
    began = bool(c.firing_here("QueueFailing"))
    ratio = limits.failing_ratio * (measures.HYSTERESIS if began else 1)
    enough = measures.COUNT_HYSTERESIS if began else 1
    reached = measures.failing(whole.ended, whole.failed_ratio, ratio, limits, hysteresis=enough).reached
    if reached and not _is_one_message(c, whole, FAILED.window_ms(c)):
        return True
    if began:
        return _failing_span_ms(c) is not None
    span_ms = _quick_span_ms(c)
    if span_ms >= FAILED.window_ms(c):
        return False
    lately = outcomes(c, span_ms)
    if lately.ended < limits.failing_min_deliveries or _is_one_message(c, lately, span_ms):
        return False
    chance = QUICK_SIGMAS * math.sqrt(lately.ended * _fail_as_one(c) * limits.failing_ratio * (1 - limits.failing_ratio))
    slices = outcomes(c, span_ms, span_ms - QUICK_SLICE_MS), outcomes(c, QUICK_SLICE_MS)
    return lately.failed >= limits.failing_ratio * lately.ended + chance and all(
        part.failed >= QUICK_FAILURES and part.failed_ratio >= measures.HYSTERESIS * limits.failing_ratio for part in slices
    )


def _fail_as_one(c: Context) -> float:
    """Return how many deliveries may fail because of one message: where a handler throws, all of its batch.

    Where messages came back lately and none of them from a batch that failed as a whole, each fails by itself.
    """
    batches_fail, size = _batches_fail(c), c.summary.number("max_batch_size")
    if size is None and (batches_fail or c.name.system == "cloudflare_queues"):
        size = USUAL_BATCH
    return 1 if size is None or batches_fail is False else max(size, 1)


def _batches_fail(c: Context) -> bool | None:
    """Whether batches failed as a whole within a quarter of an hour; None where nothing shows yet how deliveries fail."""
    throws = c.summary.attribute("throws_on_error")
    if throws is not None:
        return bool(throws)
    samples, since = c.samples_of(BATCHES_MS), c.now - BATCHES_MS
    if samples.change("retried", since) > 0:
        return True
    again = samples.change("received", since) - samples.change("touched", since)
    return None if again < PENDING_FAILURES else False


def _is_one_message(c: Context, lately: Outcomes, span_ms: int) -> bool:
    """Whether a single message that comes back again and again explains the failed deliveries of this period, but for a few.

    Its latest deliveries are kept, not their rate over the period, so all that were ever seen are allowed for. Others show
    themselves all the same: they are suspects or dead letters soon, and before that they were received and not finished.
    """
    suspects, moved = c.messages("poison"), _moved(c, span_ms)
    if len(suspects) + len(moved) != 1:
        return False
    deliveries = suspects[0].deliveries_seen if suspects else moved[0]
    samples, since = c.samples_of(span_ms), c.now - span_ms
    unfinished = samples.change("touched", since) - samples.change("departed", since) - c.summary.numbers["in_flight"]
    return max(lately.failed - deliveries, unfinished) < PENDING_FAILURES


def _nobody_receives(c: Context) -> bool:
    return c.now - c.summary.last_received_at > max(NOBODY_RECEIVES_MS, _window_ms(c) + NOBODY_RECEIVES_MS // 2)


def _quick_span_ms(c: Context) -> int:
    """Return over how many ms a clear case is looked at."""
    return 2 * QUICK_SLICE_MS + max(QUICK_APART_MS, _restart_ms(c))


@once
def _failing_span_ms(c: Context) -> int | None:
    """Return the longest time, in ms up to now, over which a queue goes on failing; None if there is none.

    With a long visibility timeout the longest time that is looked at reaches back to when all was well.
    """
    limits = c.thresholds
    span_ms = min(max(FIRING_MS, _window_ms(c) + 2 * QUICK_APART_MS), FAILED.window_ms(c))
    while span_ms >= 2 * QUICK_SLICE_MS + QUICK_APART_MS:
        lately = outcomes(c, span_ms)
        most_fail = lately.failed_ratio >= measures.HYSTERESIS * limits.failing_ratio
        if lately.ended >= limits.failing_min_deliveries and most_fail and not _is_one_message(c, lately, span_ms):
            return span_ms
        span_ms = int(span_ms / LONGER_FACTOR)
    return None


def _restart_ms(c: Context) -> int:
    """Return over how many ms what consumers held fails, if all of them are killed at once: the time over which they received it.

    Consumers that work received it within the time for which they hold a message. Those that hang may have received it over a
    whole visibility timeout, and receive nothing any more.
    """
    if c.long_hold_ms is None or c.now - c.summary.last_received_at > QUICK_SLICE_MS:
        return _window_ms(c)
    return min(c.long_hold_ms, _window_ms(c))


def failure_pending(memory: QueueMemory, now: int, thresholds: Thresholds) -> bool:
    """Whether QueueFailing may be about to fire: the signals it would explain are held back, for at most its window.

    They are held back again only after a whole window in which it was not about to fire.
    """
    since = memory.since.get(pending_since.name)
    return memory.pending_at == now and since is not None and now - since <= thresholds.failing_window_s * 1000


@condition("failing_making")
def pending_since(c: Context) -> int | None:
    """QueueFailing may be about to fire, or was within its window: a few poison messages make it seem so again and again."""
    window_ms = FAILED.window_ms(c)
    return c.now if is_pending(c) or 0 < c.now - c.memory.pending_at <= window_ms else None


@once
def is_pending(c: Context) -> bool:
    """Whether several messages failed lately, and by then enough deliveries ended for QueueFailing."""
    limits = c.thresholds
    if not c.summary.total("failed") or c.is_dead_letter_queue or not len(c.recent):
        return False
    whole = outcomes(c, FAILED.window_ms(c))
    return whole.ended >= limits.failing_min_deliveries and any(_fail_together(c, span_ms) for span_ms in PENDING_MS)


def _fail_together(c: Context, span_ms: int) -> bool:
    """Whether several messages failed recently: one poison message, however fast it comes back, is not a failing consumer."""
    lately = outcomes(c, span_ms)
    if lately.failed < PENDING_FAILURES:
        return False
    others = lately.failed - _most_failures_of_one(c, span_ms)
    # Where redeliveries are not reported, a dead letter may have more receives than failures seen; it still counts as one.
    others = max(others, len(_moved(c, span_ms)) - 1)
    share = PENDING_RATIO * c.thresholds.failing_ratio
    return others >= PENDING_FAILURES and others >= share * (others + lately.finished)


def _most_failures_of_one(c: Context, span_ms: int) -> int:
    """Return how many of the failed deliveries in this period a single message may account for."""
    since = c.now - span_ms - _window_ms(c)
    return max([*(_deliveries_since(m, since, c.now) for m in c.messages("poison")), *_moved(c, span_ms)], default=0)


def _deliveries_since(message: MessageView, since: int, now: int) -> int:
    """Return how many times a message was received since then: by its present rate where the first of these are not kept."""
    kept = [a.at_ms for a in message.attempts if a.what == "received"]
    if len(kept) < message.deliveries_seen and min(kept, default=since) >= since:
        at_this_rate = len(kept) * (now - since) / max(now - min(kept, default=now), 1)
        return min(message.deliveries_seen, math.ceil(at_this_rate))
    return sum(at >= since for at in kept)


def _moved(c: Context, span_ms: int) -> list[int]:
    """Return the receive counts of the messages that were dead-lettered in this period."""
    arrivals = c.merged.arrivals_by_queue.get(c.name.sibling(c.dead_letter_queue), ()) if c.dead_letter_queue else ()
    return [a.receive_count for a in arrivals if a.at >= c.now - span_ms]


def _window_ms(c: Context) -> int:
    return c.visibility_ms or 0


@condition("failing")
def failing_since(c: Context) -> int | None:
    """The deliveries of the queue fail, or those of some of its consumers while the others finish theirs."""
    if not c.summary.total("failed"):
        # In most queues nothing ever failed.
        return None
    culprit = _culprit(c) if not _nobody_receives(c) else None
    blamed = culprit is not None and (culprit.sustained or bool(c.firing_here("QueueFailing")))
    return _began(c) if is_failing(c) or blamed else None


def queue_failing(c: Context) -> Iterator[Finding | Near]:
    """The consumer is broken, not a message: at least half of the deliveries that ended did so without a settlement.

    The deliveries counted are those of the queue, or those of some of its consumers while the others finish theirs.
    """
    if not c.summary.total("failed"):
        return
    window_ms = FAILED.window_ms(c)
    whole = outcomes(c, window_ms)
    if whole.failed and not c.is_dead_letter_queue and not _is_one_message(c, whole, window_ms):
        yield Near("QueueFailing", measures.failing(whole.ended, whole.failed_ratio, c.thresholds.failing_ratio, c.thresholds))
    since = failing_since(c)
    if since is None:
        return
    lately, span_ms = whole, window_ms
    # Where only some consumers fail, that is not more recent than the whole window.
    if whole.failed_ratio < c.thresholds.failing_ratio and is_failing(c):
        if not c.firing_here("QueueFailing"):
            span_ms = _quick_span_ms(c)
        elif (failing_span_ms := _failing_span_ms(c)) is not None:
            span_ms = failing_span_ms
        lately = outcomes(c, span_ms)
    samples = c.samples_of(window_ms)
    # While all was well nothing was lost: the rate is that since the failures began.
    lost_since = max(min(since, c.now - LOST_SPAN_MS), c.now - window_ms)
    lost = samples.change("departed", lost_since) - samples.change("deleted", lost_since)
    lost_per_hour = round(max(lost, 0) * 3_600_000 / (c.now - lost_since))
    evidence: dict[str, Any] = {
        "failed_ratio": round(lately.failed_ratio, 3),
        "deliveries": lately.ended,
        "failed_deliveries": lately.failed,
        "window_s": seconds(span_ms),
        "failing_since": since,
        "lost_or_dead_lettered_per_hour": lost_per_hour,
    }
    if c.summary.numbers["lost_at_receives"]:
        evidence["leave_at_receive_count"] = c.summary.numbers["lost_at_receives"]
    culprit = _culprit(c)
    blamed: tuple[str, ...] = ()
    if culprit is not None and culprit.evidence["others_failed_ratio"] < OTHERS_RATIO:
        evidence |= culprit.evidence
        blamed = culprit.consumers
    outlived = c.past.change("outlived", c.now - span_ms)
    if outlived:
        evidence["outlived_deliveries"] = outlived
    evidence["summary"] = _failing_sentence(c, lately, since, evidence)
    yield c.finding("QueueFailing", "critical", since, evidence, blamed=blamed)


def _failing_sentence(c: Context, lately: Outcomes, since: int, evidence: dict[str, Any]) -> str:
    who = "Its consumers fail"
    outlived = evidence.get("outlived_deliveries", 0)
    if "consumer" in evidence:
        who = (
            f"Consumer {evidence['consumer']} fails {evidence['consumer_failed_ratio']:.0%} of its deliveries, "
            f"the others {evidence['others_failed_ratio']:.0%}: look at that host"
        )
    elif "consumers" in evidence:
        who = (
            f"Consumers {evidence['consumers']} fail {evidence['consumer_failed_ratio']:.0%} of their deliveries, "
            f"the others {evidence['others_failed_ratio']:.0%}"
        )
    elif outlived and 2 * outlived >= lately.failed:
        who = (
            f"{outlived} deliveries were finished, but only after their {c.visibility_window} had ended: raise the visibility "
            "timeout"
        )
    return (
        f"{lately.failed_ratio:.0%} of the deliveries of {c.name.queue} have failed for {duration_ms(c.now - since)} "
        f"({lately.failed} of {lately.ended} ended without a settlement). "
        f"{who}{leaving(evidence['lost_or_dead_lettered_per_hour'])}."
    )


def _began(c: Context) -> int:
    """Return since when deliveries fail: the last settlement if there was none after it, else the first failure.

    The first failure is that of the time in which failures stand out most, up to now: a healthy time before is left out, with its
    few failures. Where only some consumers fail, it is the first one remembered.
    """
    samples = c.samples_of(FAILED.window_ms(c))
    failed, finished = np.diff(samples["failed"]), np.diff(samples["deleted"])
    failing = nonzero(failed > 0)
    if not len(failing):
        return c.now
    first = failing[0]
    if is_failing(c):
        tolerated = TOLERATED_RATIO * c.thresholds.failing_ratio
        beyond = np.cumsum(((1 - tolerated) * failed - tolerated * finished)[::-1])[::-1]
        first = failing[np.argmax(beyond[failing])]
        settled = nonzero(finished > 0)
        if len(settled) and settled[-1] <= first:
            return max(int(samples.at[settled[-1] + 1]), int(samples.at[failing[0]]))
    return int(samples.at[first])


class Culprit(NamedTuple):
    """Consumers that fail at least half of their deliveries while others do not."""

    consumers: tuple[str, ...]
    """Those with the most failures first."""
    evidence: dict[str, Any]
    sustained: bool
    """One of them has failed for longer than the windows of the messages held by a killed consumer would last."""


@once
def _culprit(c: Context) -> Culprit | None:
    """Return the consumers to blame, if there are any."""
    window_ms = FAILED.window_ms(c)
    marks = [mark for mark in consumer_marks(c) if mark.at >= c.now - window_ms - mark_every_ms(window_ms)]
    if not marks or c.is_dead_letter_queue:
        return None
    limits, began = c.thresholds, bool(c.firing_here("QueueFailing"))
    there = (name for name in c.summary.consumer_results if not _is_gone(c, name))
    changed = {name: o for name in there if (o := _since_mark(c, name, marks[0])).ended}
    ratio = limits.failing_ratio * (measures.HYSTERESIS if began else 1)
    bad = {
        name: o
        for name, o in changed.items()
        if o.ended >= CULPRIT_DELIVERIES
        and o.failed_ratio >= ratio
        and failures_are_proved_of(c, name, o.failed, window_ms)
        and not _is_one_message(c, o, c.now - marks[0].at)
    }
    others = [o for name, o in changed.items() if name not in bad]
    rest, worst = _sum(others), _sum(list(bad.values()))
    if not bad or rest.ended < OTHERS_DELIVERIES or (rest.failed_ratio >= OTHERS_RATIO and not began):
        return None
    named = sorted(bad, key=lambda name: (-bad[name].failed, name))
    more = f" and {len(named) - CULPRITS_NAMED} more" if len(named) > CULPRITS_NAMED else ""
    who = {"consumer": named[0]} if len(named) == 1 else {"consumers": ", ".join(named[:CULPRITS_NAMED]) + more}
    evidence = {
        **who,
        "consumer_failed_ratio": round(worst.failed_ratio, 3),
        "others_failed_ratio": round(rest.failed_ratio, 3),
        "other_consumers": len(others),
    }
    sustained = any(o.ended >= limits.failing_min_deliveries and _goes_on(c, name, marks) for name, o in bad.items())
    return Culprit(tuple(named), evidence, sustained)


def _is_gone(c: Context, consumer: str) -> bool:
    """Whether a consumer has been disconnected for a while: there is no host to look at any more."""
    state = c.summary.consumer_states.get(consumer)
    return state is not None and state.attributes.get("connected") is False and c.now - state.at > GONE_MS


def _since_mark(c: Context, consumer: str, mark: ConsumerMark) -> Outcomes:
    """Return how the deliveries of a consumer have ended since a mark."""
    known, results = mark.of(consumer), c.summary.consumer_results[consumer]
    return Outcomes(max(results.failed - known.failed, 0), max(results.finished - known.finished, 0))


def _goes_on(c: Context, consumer: str, marks: list[ConsumerMark]) -> bool:
    """Whether deliveries of a consumer still failed more than a visibility timeout after its first failure, or than 20 s.

    What a consumer held when it was killed or disconnected fails by then, also where a disconnection ends its deliveries at once:
    they are reported one by one.
    """
    failed = [mark.of(consumer).failed for mark in marks]
    first = next((mark.at for mark, n in zip(marks[1:], failed[1:], strict=True) if n > failed[0]), None)
    if first is None:
        return False
    later = [n for mark, n in zip(marks, failed, strict=True) if mark.at >= first + max(_window_ms(c), QUICK_APART_MS)]
    return bool(later) and c.summary.consumer_results[consumer].failed > later[0]


def _sum(parts: list[Outcomes]) -> Outcomes:
    return Outcomes(sum(o.failed for o in parts), sum(o.finished for o in parts))
