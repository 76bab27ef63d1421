"""What a rule did in one run: whether and when it told the fault, whom it named, and what it told for nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from lab.detect.alarms import Alarm
from lab.detect.run import Rule, Run
from lab.recording import Label
from lab.simulation import T0_MS

SAME_WITHIN_MS = 60_000
"""Alarms of one kind on one queue that begin within a minute of one another's end are one: a person gets one message."""


@dataclass(frozen=True)
class Judged:
    """One rule in one run. Seconds; None where a question does not arise."""

    rule: str
    fault: str | None
    minimum_s: float | None
    """From the fault to the earliest instant at which it could be told."""
    told_s: float | None
    culprit: bool | None
    """Whether it named the message, group or consumer that is at fault; None where there is none, or nothing was told."""
    true: int
    false: int
    false_pages: int
    quiet_s: float
    """How long nothing was wrong."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def judge(rule: Rule, run: Run) -> Judged:
    """Compare what a rule told with the label of the run."""
    recording = run.recording
    cause = recording.cause_ms()
    alarms = episodes(rule.alarms(run))
    false = [a for a in alarms if cause is None or a.from_ms < cause]
    if cause is None:
        false = [a for a in false if not _by_design(a, run)]
    if recording.learning_s:
        false = _without_first(false, T0_MS + round(recording.learning_s * 1000))
    quiet_s = ((recording.ends_at if cause is None else cause) - T0_MS) / 1000
    pages = sum(1 for a in false if a.pages)
    if cause is None:
        return Judged(rule.name, None, None, None, None, 0, len(false), pages, quiet_s)
    label = recording.labels[0]
    true = [a for a in alarms if a.from_ms >= cause]
    told_ms = told(true, label)
    culprit = None if told_ms is None or not culprits(label) else any(a.names & culprits(label) for a in true)
    return Judged(
        rule.name,
        label.fault,
        (label.tellable_ms - label.from_ms) / 1000,
        None if told_ms is None else (told_ms - label.from_ms) / 1000,
        culprit,
        len(true),
        len(false),
        pages,
        quiet_s,
    )


def told(alarms: Iterable[Alarm], label: Label) -> int | None:
    """When the first alarm that is there while the fault is, was there; one about what led to the fault may be there before."""
    ends = 1 << 62 if label.to_ms is None else label.to_ms
    there = (a for a in alarms if a.from_ms <= ends and (a.to_ms is None or a.to_ms > label.from_ms))
    return min((max(a.from_ms, label.from_ms) for a in there), default=None)


def culprits(label: Label) -> frozenset[str]:
    """Whom the label blames beside the queue."""
    return frozenset(name for name in (label.message_id, label.group, label.consumer) if name)


def episodes(alarms: Sequence[Alarm]) -> list[Alarm]:
    """Alarms of one kind on one queue that overlap or follow closely as one, with the names of all."""
    found: list[Alarm] = []
    last: dict[tuple[str, str], int] = {}
    for alarm in sorted(alarms, key=lambda a: a.from_ms):
        key = (alarm.queue, alarm.what)
        n = last.get(key)
        if n is not None and (found[n].to_ms is None or alarm.from_ms <= (found[n].to_ms or 0) + SAME_WITHIN_MS):
            before = found[n]
            to_ms = None if None in (before.to_ms, alarm.to_ms) else max(before.to_ms or 0, alarm.to_ms or 0)
            found[n] = replace(before, to_ms=to_ms, names=before.names | alarm.names, pages=before.pages or alarm.pages)
        else:
            last[key] = len(found)
            found.append(alarm)
    return found


def _by_design(alarm: Alarm, run: Run) -> bool:
    """Of a healthy run in which some messages are meant to end as dead letters: an alarm that says no more than that."""
    allowed = run.recording.allowed
    return alarm.what in allowed or ("DeadLetterArrived" in allowed and run.is_dead_letter_queue(alarm.queue))


def _without_first(alarms: list[Alarm], until_ms: int) -> list[Alarm]:
    first = next((a for a in alarms if a.from_ms < until_ms), None)
    return [a for a in alarms if a is not first]
