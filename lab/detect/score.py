"""Score a rule in one run: whether and when it detected the fault, what it named, and its false alarms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from lab.detect.alarms import Alarm
from lab.detect.run import Rule, Run
from lab.recording import Label, Recording
from lab.simulation import T0_MS

SAME_WITHIN_MS = 60_000
"""Alarms of one kind on one queue that start within a minute of each other's end count as one notification."""
TOLERANCE_S = 0.5
"""A detection may seem to be this much earlier than its minimum, which is derived from other times."""


@dataclass(frozen=True)
class Score:
    """One rule in one run. Seconds; None where a value does not apply."""

    rule: str
    fault: str | None
    minimum_s: float | None
    """From the fault to the earliest time at which it could be detected."""
    detected_s: float | None
    culprit: bool | None
    """Whether it named the message, group or consumer at fault; None where there is none, or nothing was detected."""
    true: int
    unrelated: int
    """Alarms since the cause that are about something else: they detect nothing, and are not true."""
    false: int
    false_pages: int
    quiet_s: float
    """How long there was no fault."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def score(rule: Rule, run: Run) -> Score:
    """Compare what a rule detected with the run's label."""
    recording = run.recording
    cause = recording.cause_ms()
    found = rule.alarms(run)
    alarms = episodes(found)
    false = [a for a in alarms if cause is None or a.from_ms < cause]
    if cause is None:
        false = [a for a in false if not _by_design(a, run)]
    if recording.learning_s:
        false = _without_first(false, T0_MS + round(recording.learning_s * 1000))
    quiet_s = ((recording.ends_at if cause is None else cause) - T0_MS) / 1000
    pages = sum(1 for a in false if a.pages)
    if cause is None:
        return Score(
            rule=rule.name,
            fault=None,
            minimum_s=None,
            detected_s=None,
            culprit=None,
            true=0,
            unrelated=0,
            false=len(false),
            false_pages=pages,
            quiet_s=quiet_s,
        )
    label = recording.labels[0]
    since = [a for a in found if a.from_ms >= cause]
    true = episodes([a for a in since if about(a, recording)])
    detected_ms = detected(true, label)
    culprit = None if detected_ms is None or not culprits(label) else any(a.names & culprits(label) for a in true)
    return Score(
        rule=rule.name,
        fault=label.fault,
        minimum_s=(label.detectable_ms - label.from_ms) / 1000,
        detected_s=None if detected_ms is None else (detected_ms - label.from_ms) / 1000,
        culprit=culprit,
        true=len(true),
        unrelated=len(episodes([a for a in since if not about(a, recording)])),
        false=len(false),
        false_pages=pages,
        quiet_s=quiet_s,
    )


def detected(alarms: Iterable[Alarm], label: Label) -> int | None:
    """Return the start of the first alarm that is active during the fault; one about its cause may start earlier."""
    ends = 1 << 62 if label.to_ms is None else label.to_ms
    there = (a for a in alarms if a.from_ms <= ends and (a.to_ms is None or a.to_ms > label.from_ms))
    return min((max(a.from_ms, label.from_ms) for a in there), default=None)


def about(alarm: Alarm, recording: Recording) -> bool:
    """Whether an alarm is about the fault: it names the fault or an effect of it, and blames no other consumer than the label."""
    label = recording.labels[0]
    if alarm.says_what and alarm.what not in recording.allowed.union(label.expected):
        return False
    return None in (alarm.consumer, label.consumer) or alarm.consumer == label.consumer


def too_early(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows whose fault was detected before it could be distinguished from health: a label or rule is wrong."""
    faults = (row for row in rows if row["detected_s"] is not None)
    return [row for row in faults if row["detected_s"] < row["minimum_s"] - TOLERANCE_S]


def culprits(label: Label) -> frozenset[str]:
    """Return what the label blames besides the queue."""
    return frozenset(name for name in (label.message_id, label.group, label.consumer) if name)


def episodes(alarms: Sequence[Alarm]) -> list[Alarm]:
    """Merge alarms of one kind on one queue that overlap or follow closely, with all their names."""
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
    """Whether an alarm only reports messages that a healthy run dead-letters by design."""
    allowed = run.recording.allowed
    return alarm.what in allowed or ("DeadLetterArrived" in allowed and run.is_dead_letter_queue(alarm.queue))


def _without_first(alarms: list[Alarm], until_ms: int) -> list[Alarm]:
    first = next((a for a in alarms if a.from_ms < until_ms), None)
    return [a for a in alarms if a is not first]
