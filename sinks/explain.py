"""Why a queue, message, group or consumer is firing or not, in words and numbers. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from sinks.advice import Advice, advice
from sinks.near_misses import NearMiss, message_near_misses, queue_near_misses
from sinks.sentences import consumer_sentence, group_sentence, message_sentence, queue_sentence
from sinks.store import SEVERITY_RANK
from sinks.words import duration, printable
from streaming.core.settings import QueueName
from streaming.core.thresholds import Thresholds
from streaming.judge.signals import Finding
from streaming.judge.snapshot import ConsumerView, GroupView, MessageView, QueueView, Snapshot

MAX_SUBJECTS = 10
"""One name may be many things: the same queue name in many regions."""

SubjectKind = Literal["queue", "message", "group", "consumer"]
ThresholdsOf = Callable[[QueueName], Thresholds]
"""The limits of a queue, by (system, scope, queue)."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One firing signal, with what to do about it."""

    finding: Finding
    firing_s: float
    advice: Advice


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing that bears the name asked for."""

    kind: SubjectKind
    name: str
    queue: QueueView
    sentence: str
    """How it is, in one sentence or two."""
    reasons: tuple[Reason, ...]
    """Firing signals about it, the worst first."""
    near_misses: tuple[NearMiss, ...]
    """Signals that do not fire: how far the numbers are from the limit."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to one question, as of `now_ms` (epoch milliseconds)."""

    what: str
    now_ms: int
    subjects: tuple[Subject, ...]
    more: int
    """How many further subjects bear the name."""
    hint: str
    """When nothing does: what that means, and the nearest names."""

    @property
    def firing(self) -> bool:
        """Whether any signal fires about any of the subjects."""
        return any(subject.reasons for subject in self.subjects)


def explain(
    snapshot: Snapshot,
    what: str,
    now_ms: int,
    *,
    thresholds: ThresholdsOf | None = None,
    runbook_base_url: str | None = None,
) -> Explanation:
    """Explain everything called `what`: a queue (also as `system/scope/queue`), message id, group or
    consumer.

    `thresholds` are those the judge uses; without them the defaults. Never raises for an unknown name.
    """
    context = _Context(snapshot, now_ms, thresholds or (lambda _: Thresholds()), runbook_base_url)
    subjects = tuple(context.subjects(what))
    hint = "" if subjects else _hint(snapshot, what)
    return Explanation(what, now_ms, subjects[:MAX_SUBJECTS], max(0, len(subjects) - MAX_SUBJECTS), hint)


@dataclass(frozen=True, slots=True)
class _Context:
    snapshot: Snapshot
    now_ms: int
    thresholds: ThresholdsOf
    runbook_base_url: str | None

    def subjects(self, what: str) -> Iterator[Subject]:
        for queue in self.snapshot.queues:
            if what in (queue.queue, f"{queue.system}/{queue.scope}/{queue.queue}"):
                yield self.queue(queue)
            for message in queue.messages:
                if message.message_id == what:
                    yield self.message(queue, message)
            for group in queue.top_groups:
                if group.group == what:
                    yield self.group(queue, group)
            for consumer in queue.consumers:
                if consumer.consumer == what:
                    yield self.consumer(queue, consumer)

    def queue(self, queue: QueueView) -> Subject:
        reasons = self.reasons(queue, lambda _: True)
        near = queue_near_misses(queue, self.limits(queue), self.now_ms)
        firing = {reason.finding.key.signal for reason in reasons}
        return Subject(
            "queue",
            queue.queue,
            queue,
            queue_sentence(queue, self.now_ms, firing=bool(reasons)),
            reasons,
            tuple(n for n in near if n.signal not in firing),
        )

    def message(self, queue: QueueView, message: MessageView) -> Subject:
        name = message.message_id
        reasons = self.reasons(queue, lambda f: name in (f.key.message_id, f.evidence.get("head_message_id")))
        near = message_near_misses(queue, message, self.limits(queue), self.now_ms)
        firing = {reason.finding.key.signal for reason in reasons}
        return Subject(
            "message",
            name,
            queue,
            message_sentence(queue, message, self.now_ms),
            reasons,
            tuple(n for n in near if n.signal not in firing),
        )

    def group(self, queue: QueueView, group: GroupView) -> Subject:
        reasons = self.reasons(queue, lambda f: f.key.group == group.group)
        return Subject("group", group.group, queue, group_sentence(queue, group, self.now_ms), reasons, ())

    def consumer(self, queue: QueueView, consumer: ConsumerView) -> Subject:
        reasons = self.reasons(queue, lambda f: f.key.consumer == consumer.consumer)
        sentence = consumer_sentence(queue, consumer, self.now_ms)
        return Subject("consumer", consumer.consumer, queue, sentence, reasons, ())

    def limits(self, queue: QueueView) -> Thresholds:
        return self.thresholds(queue.name)

    def reasons(self, queue: QueueView, concerns: Callable[[Finding], bool]) -> tuple[Reason, ...]:
        found = [
            Reason(f, max(0, self.now_ms - f.since_ms) / 1000, advice(f.key.signal, self.runbook_base_url))
            for f in self.snapshot.firing
            if f.key.queue_name == queue.name and concerns(f)
        ]
        return tuple(sorted(found, key=lambda r: (-SEVERITY_RANK[r.finding.severity], r.finding.since_ms)))


def to_text(explanation: Explanation) -> str:
    """For a terminal: paragraphs, no colours, control characters of foreign names made visible."""
    if not explanation.subjects:
        return printable(explanation.hint) + "\n"
    lines: list[str] = []
    for subject in explanation.subjects:
        lines += [subject.sentence, f"  {subject.queue.system}, {subject.queue.scope or 'no scope'}", ""]
        for signal, of_signal in groupby(
            sorted(subject.reasons, key=lambda r: r.finding.key.signal), key=lambda r: r.finding.key.signal
        ):
            lines += _signal_lines(signal, tuple(of_signal))
        if not subject.reasons:
            lines += ["  No signal fires about it.", ""]
        lines += [f"  not firing: {near.signal}: {near.sentence}" for near in subject.near_misses]
        lines.append("")
    if explanation.more:
        lines.append(f"{explanation.more} more bear this name; ask for system/scope/queue.")
    return "\n".join(printable(line) for line in lines).rstrip("\n") + "\n"


def _signal_lines(signal: str, reasons: Sequence[Reason]) -> Iterator[str]:
    for reason in reasons:
        finding = reason.finding
        yield f"  FIRING {signal} ({finding.severity}, for {duration(reason.firing_s)})"
        yield f"    {finding.evidence.get('summary', '')}"
        numbers = [f"{name}={value}" for name, value in finding.evidence.items() if name != "summary"]
        if numbers:
            yield f"    Evidence: {', '.join(numbers)}"
    yield f"    It means: {reasons[0].advice.meaning}"
    yield "    What to do:"
    yield from (f"    - {step}" for step in reasons[0].advice.to_do)
    if reasons[0].advice.runbook_url:
        yield f"    Runbook: {reasons[0].advice.runbook_url}"
    yield ""


def to_dict(explanation: Explanation) -> dict[str, Any]:
    """The same as plain values for JSON."""
    return {
        "what": explanation.what,
        "now": explanation.now_ms,
        "firing": explanation.firing,
        "hint": explanation.hint,
        "more": explanation.more,
        "subjects": [_subject_dict(subject) for subject in explanation.subjects],
    }


def _subject_dict(subject: Subject) -> dict[str, Any]:
    queue = subject.queue
    return {
        "kind": subject.kind,
        "name": subject.name,
        "system": queue.system,
        "scope": queue.scope,
        "queue": queue.queue,
        "status": queue.status,
        "sentence": subject.sentence,
        "firing": [
            {
                "signal": reason.finding.key.signal,
                "severity": reason.finding.severity,
                "since": reason.finding.since_ms,
                "firing_s": reason.firing_s,
                "evidence": dict(reason.finding.evidence),
                "meaning": reason.advice.meaning,
                "to_do": list(reason.advice.to_do),
                "runbook_url": reason.advice.runbook_url,
            }
            for reason in subject.reasons
        ],
        "not_firing": [
            {
                "signal": near.signal,
                "value": near.value,
                "limit": near.limit,
                "unit": near.unit,
                "sentence": near.sentence,
            }
            for near in subject.near_misses
        ],
    }


def _hint(snapshot: Snapshot, what: str) -> str:
    near = difflib.get_close_matches(what, [queue.queue for queue in snapshot.queues], n=3, cutoff=0.6)
    tail = f" Similar: {', '.join(near)}." if near else ""
    return (
        f"Nothing watched is called {what}. A message is only known by its id while it is a suspect, held, "
        "a head, a dead letter or among the oldest: one that is not listed was settled, is healthy, or was "
        f"never seen.{tail}"
    )
