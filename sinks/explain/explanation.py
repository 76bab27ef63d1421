"""Why signals fire or do not fire for a queue, message, group or consumer, with all numbers. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import nlargest
from itertools import pairwise
from typing import Literal

from sinks.explain.advice import Advice, advice
from sinks.explain.formatting import duration
from sinks.explain.near_misses import NearMiss, NearMisses
from sinks.explain.sentences import consumer_sentence, group_sentence, message_sentence, queue_sentence
from streaming.core.settings import Settings
from streaming.judge.findings.signals import SEVERITY_RANK, Finding, SignalName
from streaming.judge.snapshot import ConsumerView, GroupView, MessageView, QueueView, Snapshot

MAX_SUBJECTS = 10
"""The maximum number of subjects with one name, for example the same queue name in many regions."""
MOST_COMPARED = 100
"""With how many queue names an unknown name is compared letter by letter."""

SubjectKind = Literal["queue", "message", "group", "consumer"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One firing signal, with what to do about it."""

    finding: Finding
    firing_s: float
    advice: Advice


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing with the requested name."""

    kind: SubjectKind
    name: str
    queue: QueueView
    sentence: str
    """Its state, in one or two sentences."""
    reasons: tuple[Reason, ...]
    """Firing signals about it, the worst first."""
    near_misses: tuple[NearMiss, ...]
    """Signals that do not fire, the nearest to its limit first."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to one question, as of `now_ms` (epoch milliseconds)."""

    what: str
    now_ms: int
    subjects: tuple[Subject, ...]
    more: int
    """The number of further subjects with this name."""
    hint: str
    """If nothing has the name: what that means and similar names; or what is known of a collector that has it."""

    @property
    def firing(self) -> bool:
        """Whether any signal fires for any of the subjects."""
        return any(subject.reasons for subject in self.subjects)


def explain(
    snapshot: Snapshot,
    what: str,
    now_ms: int,
    *,
    settings: Settings | None = None,
    runbook_base_url: str | None = None,
) -> Explanation:
    """Explain every queue (also as `system/scope/queue`), message id, group or consumer called `what`.

    `settings` are the judge's settings; None means the defaults. It does not raise for an unknown name.
    """
    context = _Context(snapshot, now_ms, settings or Settings(), runbook_base_url)
    subjects = tuple(context.subjects(what))
    hint = "" if subjects else context.about_collector(what) or _hint(snapshot, what)
    return Explanation(
        what=what, now_ms=now_ms, subjects=subjects[:MAX_SUBJECTS], more=max(0, len(subjects) - MAX_SUBJECTS), hint=hint
    )


@dataclass(frozen=True, slots=True)
class _Context:
    snapshot: Snapshot
    now_ms: int
    settings: Settings
    runbook_base_url: str | None

    def subjects(self, what: str) -> Iterator[Subject]:
        # A consumer that fell silent holds nothing, so it is only known by the signals that name it.
        named = {f.key.queue_name for f in self.snapshot.firing if what in (f.key.consumer, *f.blamed)}
        for queue in self.snapshot.queues:
            if what in (queue.queue, f"{queue.system}/{queue.scope}/{queue.queue}"):
                yield self.queue(queue)
            for message in queue.messages:
                if message.message_id == what:
                    yield self.message(queue, message)
            for group in queue.top_groups:
                if group.group == what:
                    yield self.group(queue, group)
            consumers = [consumer for consumer in queue.consumers if consumer.consumer == what]
            if not consumers and queue.name in named:
                consumers = [ConsumerView(consumer=what, held=0, oldest_held_since_ms=None, oldest_message_id=None)]
            for consumer in consumers:
                yield self.consumer(queue, consumer)

    def queue(self, queue: QueueView) -> Subject:
        reasons = self.reasons(queue, lambda _: True)
        sentence = queue_sentence(queue, self.now_ms, firing=bool(reasons))
        return Subject(
            kind="queue",
            name=queue.queue,
            queue=queue,
            sentence=sentence,
            reasons=reasons,
            near_misses=self.near_misses(queue).of_queue(_firing(reasons)),
        )

    def message(self, queue: QueueView, message: MessageView) -> Subject:
        name = message.message_id
        reasons = self.reasons(queue, lambda f: name in (f.key.message_id, f.evidence.get("head_message_id")))
        near = self.near_misses(queue).of_message(message, _firing(reasons))
        return Subject(
            kind="message",
            name=name,
            queue=queue,
            sentence=message_sentence(queue, message, self.now_ms),
            reasons=reasons,
            near_misses=near,
        )

    def group(self, queue: QueueView, group: GroupView) -> Subject:
        reasons = self.reasons(queue, lambda f: f.key.group == group.group)
        near = self.near_misses(queue).of_group(group, _firing(reasons))
        return Subject(
            kind="group",
            name=group.group,
            queue=queue,
            sentence=group_sentence(queue, group, self.now_ms),
            reasons=reasons,
            near_misses=near,
        )

    def consumer(self, queue: QueueView, consumer: ConsumerView) -> Subject:
        reasons = self.reasons(queue, lambda f: consumer.consumer in (f.key.consumer, *f.blamed))
        near = self.near_misses(queue).of_consumer(consumer, _firing(reasons))
        return Subject(
            kind="consumer",
            name=consumer.consumer,
            queue=queue,
            sentence=consumer_sentence(queue, consumer, self.now_ms),
            reasons=reasons,
            near_misses=near,
        )

    def about_collector(self, name: str) -> str:
        """Return what is known of a collector, which belongs to no queue; nothing if there is none of this name."""
        last_ms = self.snapshot.collectors.get(name)
        if last_ms is None:
            return ""
        firing = [f for f in self.snapshot.firing if f.key.signal == "TelemetryStale" and f.key.consumer == name]
        signals = [f"FIRING TelemetryStale: {f.summary} {' '.join(advice(f).to_do)}" for f in firing]
        heard = f"{name} is a collector: its last event came {duration(max(0, self.now_ms - last_ms) / 1000)} ago."
        return " ".join((heard, *(signals or ("No signal fires for it.",))))

    def near_misses(self, queue: QueueView) -> NearMisses:
        return NearMisses(queue, self.settings, self.now_ms)

    def reasons(self, queue: QueueView, concerns: Callable[[Finding], bool]) -> tuple[Reason, ...]:
        found = [
            Reason(f, max(0, self.now_ms - f.since_ms) / 1000, advice(f, self.runbook_base_url))
            for f in self.snapshot.firing
            if f.key.queue_name == queue.name and concerns(f)
        ]
        return tuple(sorted(found, key=lambda r: (-SEVERITY_RANK[r.finding.severity], r.finding.since_ms)))


def _firing(reasons: tuple[Reason, ...]) -> frozenset[SignalName]:
    return frozenset(reason.finding.key.signal for reason in reasons)


def _hint(snapshot: Snapshot, what: str) -> str:
    near = _similar(what, {queue.queue for queue in snapshot.queues})
    tail = f" Similar: {', '.join(near)}." if near else ""
    return (
        f"No queue, message, group or consumer is called {what}. "
        "A message is known by its id only while it is a suspect, held, a group's head, a "
        f"dead letter or among the oldest: a message that is not listed was settled, is healthy, or was never seen.{tail}"
    )


def _similar(what: str, names: Iterable[str]) -> list[str]:
    """Return up to three of the names that are like `what`, the most similar first.

    Comparing two long names takes 0.2 ms, so of ten thousand only those that share most of their pairs of letters are compared.
    """
    pairs = _pairs(what)
    likely = nlargest(MOST_COMPARED, names, key=lambda name: (2 * len(pairs & _pairs(name)) / (len(what) + len(name)), name))
    return difflib.get_close_matches(what, likely, n=3, cutoff=0.6)


def _pairs(name: str) -> set[str]:
    return {first + second for first, second in pairwise(name)}
