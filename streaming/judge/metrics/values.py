"""Convert a snapshot to samples: one small function per family, named in the table."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

from streaming.judge.metrics.metric import Part
from streaming.judge.snapshot import AGE_BUCKETS_S, BASES, DURATION_BUCKETS_S, QUEUE_STATUSES, PipelineView, QueueView, Snapshot

OTHER = "other"
"""The name under which groups and consumers beyond the top K are folded."""


def info(queue: QueueView) -> dict[str, str]:
    """Return the labels of the queue's info series."""
    tags = {f"tag_{_NOT_OF_A_LABEL.sub('_', name)}": value for name, value in queue.tags.items()}
    worst = {"worst_queue": queue.worst_member.queue} if queue.worst_member else {}
    return {"kind": queue.kind or "", "dead_letter_queue": queue.dead_letter_queue or "", **worst, **tags}


_NOT_OF_A_LABEL = re.compile(r"[^a-zA-Z0-9_]")


def messages(queue: QueueView) -> Iterator[Part]:
    """Messages by state, where known."""
    for state, count in (("visible", queue.visible), ("in_flight", queue.in_flight), ("delayed", queue.delayed)):
        if count is not None:
            yield "", (state,), count


def tracked(queue: QueueView) -> Iterator[Part]:
    """Unsettled messages tracked individually, by state."""
    for state, count in queue.tracked_states.items():
        yield "", (state,), count


def basis(queue: QueueView) -> Iterator[Part]:
    """1 for the queue's basis, 0 for the others."""
    for name in BASES:
        yield "", (name,), int(name == queue.basis)


def status(queue: QueueView) -> Iterator[Part]:
    """1 for the queue's status, 0 for the others."""
    for name in QUEUE_STATUSES:
        yield "", (name,), int(name == queue.status)


def groups(queue: QueueView) -> Iterator[Part]:
    """Ordering groups by state."""
    for state, count in queue.groups.items():
        yield "", (state,), count


_Times = Iterator[tuple[tuple[str, ...], int]]


def oldest_since(queue: QueueView) -> _Times:
    """The times from which the ages of the oldest messages count, by scope."""
    for scope, since_ms in queue.oldest_ms.items():
        yield (scope,), since_ms


def oldest_timestamp(queue: QueueView) -> Iterator[Part]:
    """The same times as Unix timestamps."""
    for scope, since_ms in queue.oldest_ms.items():
        yield "", (scope,), since_ms / 1000


def oldest_exact(queue: QueueView) -> Iterator[Part]:
    """1 for every scope with an exact age, 0 for a lower bound."""
    for scope in queue.oldest_ms:
        yield "", (scope,), int(scope in queue.exact_ages)


def _histogram(bounds_s: Sequence[float], counts: Sequence[int], sum_s: float) -> Iterator[Part]:
    cumulated = 0
    for upper_s, count in zip((*bounds_s, math.inf), counts, strict=True):
        cumulated += count
        yield "_bucket", (le_label(upper_s),), cumulated
    yield "_count", (), cumulated
    yield "_sum", (), sum_s


def age_histogram(queue: QueueView) -> Iterator[Part]:
    """Unsettled messages by age."""
    if queue.tracked and queue.age_counts:
        yield from _histogram(AGE_BUCKETS_S, queue.age_counts, queue.age_sum_s)


def duration(name: str) -> Callable[[QueueView], Iterator[Part]]:
    """Return the samples of one histogram of durations, by its name in DURATIONS."""

    def parts(queue: QueueView) -> Iterator[Part]:
        if name in queue.durations:
            yield from _histogram(DURATION_BUCKETS_S, *queue.durations[name])

    return parts


def value(of: Callable[[QueueView], float | None]) -> Callable[[QueueView], Iterator[Part]]:
    """Return the samples of a family with one value per queue; none where it is unknown."""

    def parts(queue: QueueView) -> Iterator[Part]:
        known = of(queue)
        if known is not None:
            yield "", (), known

    return parts


def total(name: str) -> Callable[[QueueView], Iterator[Part]]:
    """Return the samples of one running total, by its name in TOTALS."""
    return value(lambda queue: queue.totals.get(name))


def dead_letter_expires(queue: QueueView) -> _Times:
    """When the first dead letter is lost to retention."""
    if queue.dead_letter_expires_at_ms is not None:
        yield (), queue.dead_letter_expires_at_ms


def group_since(queue: QueueView) -> _Times:
    """Since when the oldest message of each group has been waiting."""
    named = ((group.group, group.oldest_sent_at_ms) for group in queue.top_groups)
    return _with_other(named, queue.other_groups_oldest_ms)


def held_since(queue: QueueView) -> _Times:
    """Since when each consumer has held its oldest message."""
    named = ((one.consumer, one.oldest_held_since_ms) for one in queue.consumers)
    return _with_other(named, queue.other_consumers_held_since_ms)


def _with_other(named: Iterable[tuple[str, int | None]], other_ms: int | None) -> _Times:
    """Yield names with their times, and `other` once: a group or consumer with that name is included in it."""
    for name, since_ms in named:
        if name == OTHER and since_ms is not None:
            other_ms = since_ms if other_ms is None else min(since_ms, other_ms)
        elif since_ms is not None:
            yield (name,), since_ms
    if other_ms is not None:
        yield (OTHER,), other_ms


def signals(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
    """Firing signals by queue, signal and severity, without folded ones."""
    counts = Counter((*f.key.queue_name, f.key.signal, f.severity) for f in snapshot.firing if f.folded is None)
    yield from sorted(counts.items())


def signals_folded(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
    """Folded signals by queue, signal and the signal that explains them."""
    counts = Counter((*f.key.queue_name, f.key.signal, f.folded) for f in snapshot.firing if f.folded is not None)
    yield from sorted(counts.items())


def by_label(counts: Mapping[str, float]) -> Iterator[tuple[tuple[str, ...], float]]:
    """One sample per label, in alphabetical order."""
    for label, count in sorted(counts.items()):
        yield (label,), count


def collectors(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
    """The last heartbeat of each collector."""
    return by_label({name: last_ms / 1000 for name, last_ms in snapshot.collectors.items()})


def events(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
    """Telemetry events by result."""
    for result in ("accepted", "duplicate", "late", "ahead", "invalid"):
        yield (result,), snapshot.events_total.get(result, 0)


def pipeline(of: Callable[[PipelineView], float | None]) -> Callable[[Snapshot], Iterator[tuple[tuple[str, ...], float]]]:
    """Return the samples of a value of the pipeline itself; none where it has no such value."""

    def parts(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
        known = of(snapshot.pipeline)
        if known is not None:
            yield (), known

    return parts


@cache
def le_label(upper_s: float) -> str:
    """A bucket's bound as Prometheus' own clients write it: `1.0`, `+Inf`."""
    return "+Inf" if upper_s == math.inf else str(float(upper_s))
