"""Criteria for what queuewatch published about a recording whose truth is known.

Each function compares one thing and returns how often it is wrong; `judge` combines them for one cell of the matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lab.harness import Outcome, first_at
from lab.history import Counts, QueueHistory
from lab.recording import Label, Recording
from lab.telemetry import Instrumentation

DEATH_DETECTED_WITHIN_S = 360.0
DEPTH_RATIO = 0.05
DEPTH_SLACK = 1
"""Counts are integers: with ten messages, one more or less is within every tolerance."""
EXACT_S = 1.0
DEAD_AGE_RATIO = 0.9
DEAD_AGE_JUDGED_AFTER_S = 900.0
"""Polls are half a minute apart and may be a minute late: they are a tenth of the age only after a quarter of an hour."""
KEPT_FOR_S = 900.0
"""Messages sent within this time may be tracked beyond those in the queue: the lateness and half as long again."""

AGED_SCOPES = ("all", "visible", "healthy", "cloudwatch")


@dataclass(frozen=True)
class Verdict:
    """The findings of one run: counts of errors, worst values, and None where a criterion does not apply."""

    false_criticals: tuple[str, ...]
    """Critical signals on a healthy queue, or before there was a fault."""
    other_criticals: tuple[str, ...]
    """Critical signals after the fault that neither name it nor follow from it. Reported, but not judged."""
    blamed_healthy: tuple[str, ...]
    """Critical signals that name a message, group or consumer where another one is labelled."""
    detected_after_s: float | None
    """Seconds from the fault to the first signal that names it."""
    detected_in_time: bool | None
    """Judged for dead consumers only."""
    lost_signals: int | None
    """Dead consumers: how often the fault was not firing after it was detected."""
    ok_while_dead: int | None
    """How often the status was `ok` later than six minutes after the consumers died."""
    depth_wrong: int
    """The number of polls at which the published depth was absent, or near neither the broker's count nor the truth."""
    depth_absent: int
    depth_worst_ratio: float
    age_violations: int
    """How often a published age was above the true one."""
    age_worst_excess_s: float
    not_exact: int
    """How often an age that must be exact (full telemetry, or marked as exact) was wrong or absent."""
    dead_age_ratio: float | None
    """The smallest share of the true age published while consumers were dead; None when none was."""
    dead_age_enough: bool | None
    tracked_most: int
    tracked_bound: int

    def broken(self) -> list[str]:
        """The names of the criteria that do not hold."""
        found = {
            "false_criticals": bool(self.false_criticals),
            "blamed_healthy": bool(self.blamed_healthy),
            "detected_in_time": self.detected_in_time is False,
            "lost_signals": bool(self.lost_signals),
            "ok_while_dead": bool(self.ok_while_dead),
            "depth": bool(self.depth_wrong),
            "age_violations": bool(self.age_violations),
            "not_exact": bool(self.not_exact),
            "dead_age": self.dead_age_enough is False,
            "tracked": self.tracked_most > self.tracked_bound,
        }
        return [name for name, wrong in found.items() if wrong]

    def as_json(self) -> dict[str, Any]:
        """Return plain values, with the names of the criteria that do not hold."""
        return {**asdict(self), "broken": self.broken()}


def judge(
    recording: Recording, instrumentation: Instrumentation, outcome: Outcome, polls: Mapping[str, Mapping[int, Counts]]
) -> Verdict:
    """Compare what was published with the truth. `polls` holds the broker's counts of each queue."""
    fault_at = recording.fault_at()
    dead = next((label for label in recording.labels if label.fault == "consumers_dead"), None)
    detected = _detected_after_s(recording, outcome)
    depth = [d for queue, counts in polls.items() for d in depth_errors(recording.history.of(queue), outcome, queue, counts)]
    excess = [x for queue in recording.settings for x in age_excesses(recording.history.of(queue), outcome, queue)]
    ratio = None if dead is None else dead_age_ratio(recording.history.of(dead.queue), outcome, dead.queue, dead.from_ms)
    most, bound = tracked(recording, outcome)
    return Verdict(
        false_criticals=_criticals(outcome, fault_at, None),
        other_criticals=() if fault_at is None else _criticals(outcome, fault_at, recording.allowed),
        blamed_healthy=blamed_healthy(recording.labels, outcome),
        detected_after_s=detected,
        detected_in_time=None if dead is None else detected is not None and detected <= DEATH_DETECTED_WITHIN_S,
        lost_signals=None if dead is None else lost(outcome, "QueueStalled", dead.queue, dead.from_ms),
        ok_while_dead=None if dead is None else ok_while_dead(outcome, dead.queue, dead.from_ms),
        depth_wrong=sum(1 for off in depth if off is None or off > 0),
        depth_absent=sum(1 for off in depth if off is None),
        depth_worst_ratio=round(max((off for off in depth if off is not None), default=0.0), 3),
        age_violations=sum(1 for x in excess if x > EXACT_S),
        age_worst_excess_s=round(max(excess, default=0.0), 1),
        not_exact=sum(not_exact(recording.history.of(q), outcome, q, full=instrumentation.full) for q in recording.settings),
        dead_age_ratio=None if ratio is None else round(ratio, 3),
        dead_age_enough=_age_enough(instrumentation, ratio) if dead is not None else None,
        tracked_most=most,
        tracked_bound=bound,
    )


def _criticals(outcome: Outcome, fault_at: int | None, allowed: frozenset[str] | None) -> tuple[str, ...]:
    """Return critical signals before the fault (or at any time without one); with `allowed`, those since it and not in it."""
    found = set()
    for s in outcome.fired(severity="critical"):
        if s.get("folded") or s.get("alerting") is False:
            continue
        before = fault_at is None or s["at"] < fault_at
        wanted = before if allowed is None else not before and s["signal"] not in allowed
        if wanted:
            found.add(s["signal"])
    return tuple(sorted(found))


def blamed_healthy(labels: Sequence[Label], outcome: Outcome) -> tuple[str, ...]:
    """Return critical signals with a subject that is not the labelled one; not judged where no label names such a subject."""
    found = set()
    for field in ("message_id", "group", "consumer"):
        faulty = {getattr(label, field) for label in labels} - {None}
        for s in outcome.fired(severity="critical"):
            named = s.get(field)
            if faulty and named and named not in faulty and not s.get("folded") and s.get("alerting") is not False:
                found.add(f"{s['signal']} {named}")
    return tuple(sorted(found))


def _detected_after_s(recording: Recording, outcome: Outcome) -> float | None:
    if not recording.labels:
        return None
    label = recording.labels[0]
    at = first_at(outcome.fired(*label.expected), label.from_ms)
    return None if at is None else (at - label.from_ms) / 1000


def lost(outcome: Outcome, name: str, queue: str, since_ms: int) -> int:
    """Count the times at which a signal was not firing although it had begun to and its condition still held."""
    began = first_at(outcome.fired(name, queue=queue), since_ms)
    if began is None:
        return 0
    return sum(1 for at in outcome.times if at >= began and not outcome.firing_at(at, name, queue))


def ok_while_dead(outcome: Outcome, queue: str, since_ms: int) -> int:
    """Count the times at which the status was `ok` after the death of consumers should have been detected."""
    late = since_ms + DEATH_DETECTED_WITHIN_S * 1000
    return sum(1 for at, status in outcome.chosen("queue_status", queue).items() if status == "ok" and at >= late)


def depth_errors(history: QueueHistory, outcome: Outcome, queue: str, counts: Mapping[int, Counts]) -> Iterator[float | None]:
    """Yield how far each published depth is outside the tolerance, as a share of the broker's count.

    0 within it, None where no depth was published. A depth near the truth is also right: it is fresher than a late count.
    """
    states = outcome.labelled("queue_messages", queue)
    for at in outcome.times:
        if at not in counts:
            continue
        values = [series[at] for series in states.values() if at in series]
        if not values:
            yield None
            continue
        yield min(_outside(sum(values), count.unsettled) for count in (counts[at], history.counts(at)))


def _outside(value: float, count: int) -> float:
    off = abs(value - count)
    return 0.0 if off <= max(DEPTH_SLACK, DEPTH_RATIO * count) else off / max(count, 1)


def age_excesses(history: QueueHistory, outcome: Outcome, queue: str) -> Iterator[float]:
    """Yield by how many seconds each published age exceeds the true one; negative for a lower bound."""
    for scope in AGED_SCOPES:
        for at, age_s in outcome.series("oldest_message_age_seconds", queue, scope).items():
            true_s = true_age_s(history, at, scope)
            yield age_s - (true_s or 0.0)


def true_age_s(history: QueueHistory, at: int, scope: str) -> float | None:
    """Return the true age of the oldest message in a scope; None when there is none."""
    oldest = history.oldest_sent_at(at, visible_only=scope == "visible")
    return None if oldest is None else (at - oldest) / 1000


def not_exact(history: QueueHistory, outcome: Outcome, queue: str, *, full: bool) -> int:
    """Count the times at which an age that must be exact was off by more than a second, or absent under full telemetry."""
    wrong = 0
    for scope in ("all", "visible"):
        ages = outcome.series("oldest_message_age_seconds", queue, scope)
        marked = outcome.series("oldest_message_age_exact", queue, scope)
        for at in outcome.times:
            if not full and marked.get(at) != 1:
                continue
            true_s, age_s = true_age_s(history, at, scope), ages.get(at)
            if true_s is None:
                wrong += age_s is not None and age_s > EXACT_S
            else:
                wrong += age_s is None or abs(age_s - true_s) > EXACT_S
    return wrong


def dead_age_ratio(history: QueueHistory, outcome: Outcome, queue: str, since_ms: int) -> float | None:
    """Return the smallest share of the true age published while consumers are dead; None when an age was missing."""
    ages = outcome.series("oldest_message_age_seconds", queue, "all")
    times = [at for at in outcome.times if at >= since_ms + DEAD_AGE_JUDGED_AFTER_S * 1000]
    if not times or any(at not in ages for at in times):
        return None
    return min(ages[at] / (true_age_s(history, at, "all") or 1.0) for at in times)


def _age_enough(instrumentation: Instrumentation, ratio: float | None) -> bool | None:
    """Whether the age was high enough. Not judged if neither side was seen before; with no age, judged only for whole sides."""
    if instrumentation.base in ("attributes", "all_join"):
        return None
    if ratio is None:
        return False if instrumentation.share >= 1 else None
    return ratio >= DEAD_AGE_RATIO


def tracked(recording: Recording, outcome: Outcome) -> tuple[int, int]:
    """Return the most messages tracked at any time and the number allowed, for the queue nearest to its bound."""
    most, bound = 0, 1
    for queue in recording.settings:
        history = recording.history.of(queue)
        states = outcome.labelled("tracked_messages", queue) or outcome.labelled("queue_messages", queue)
        here = round(max((sum(series.get(at, 0) for series in states.values()) for at in outcome.times), default=0))
        depth = max((history.counts(at).unsettled for at in outcome.times), default=0)
        allowed = round(1.5 * depth + history.entered * min(1.0, KEPT_FOR_S / recording.duration_s)) + 10
        if here * bound >= most * allowed:
            most, bound = here, allowed
    return most, bound
