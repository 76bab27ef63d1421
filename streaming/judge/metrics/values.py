"""Convert a snapshot to samples: one small function per family, named in the table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from streaming.core.reporting.views import STATES
from streaming.judge.metrics.metric import Times, Values, histogram_series, labelled
from streaming.judge.snapshot import (
    AGE_BUCKETS_S,
    AGE_SCOPES,
    BASES,
    DURATION_BUCKETS_S,
    GROUP_STATES,
    QUEUE_STATUSES,
    PipelineView,
    QueueView,
    Snapshot,
)

OTHER = "other"
"""The name under which groups and consumers beyond the top K are folded."""


def info(queue: QueueView) -> dict[str, str]:
    """Return the labels of the queue's info series."""
    tags = {f"tag_{_NOT_OF_A_LABEL.sub('_', name)}": value for name, value in queue.tags.items()}
    worst = {"worst_queue": queue.worst_member.queue} if queue.worst_member else {}
    return {
        "kind": queue.kind or "",
        "dead_letter_queue": queue.dead_letter_queue or "",
        "is_dead_letter_queue": "true" if queue.is_dead_letter_queue else "",
        **worst,
        **tags,
    }


_NOT_OF_A_LABEL = re.compile(r"[^a-zA-Z0-9_]")


MESSAGE_SERIES = labelled(STATES)
BASIS_SERIES = labelled(BASES)
STATUS_SERIES = labelled(QUEUE_STATUSES)
GROUP_SERIES = labelled(GROUP_STATES)
SCOPE_SERIES = labelled(AGE_SCOPES)
AGE_SERIES = histogram_series(AGE_BUCKETS_S)
DURATION_SERIES = histogram_series(DURATION_BUCKETS_S)


def messages(queue: QueueView) -> Values:
    """Messages by state, where known."""
    return queue.visible, queue.in_flight, queue.delayed


def tracked(queue: QueueView) -> Values:
    """Unsettled messages tracked individually, by state."""
    return _chosen(queue.tracked_states, STATES)


def basis(queue: QueueView) -> Values:
    """1 for the queue's basis, 0 for the others."""
    return _ONE_BASIS[queue.basis]


def status(queue: QueueView) -> Values:
    """1 for the queue's status, 0 for the others."""
    return _ONE_STATUS[queue.status]


_ONE_BASIS = {one: tuple(int(name == one) for name in BASES) for one in BASES}
_ONE_STATUS = {one: tuple(int(name == one) for name in QUEUE_STATUSES) for one in QUEUE_STATUSES}


def groups(queue: QueueView) -> Values:
    """Ordering groups by state."""
    return _chosen(queue.groups, GROUP_STATES)


def _chosen(counts: Mapping[Any, int], names: Sequence[str]) -> Values:
    return tuple(map(counts.get, names)) if counts else ()


def oldest_since(queue: QueueView) -> Times:
    """The times from which the ages of the oldest messages count, by scope."""
    for scope, since_ms in queue.oldest_ms.items():
        yield (scope,), since_ms


def oldest_timestamp(queue: QueueView) -> Values:
    """The same times as Unix timestamps."""
    since_ms = queue.oldest_ms
    return tuple([since_ms[scope] / 1000 if scope in since_ms else None for scope in AGE_SCOPES]) if since_ms else ()


def oldest_exact(queue: QueueView) -> Values:
    """1 for every scope with an exact age, 0 for a lower bound."""
    known, exact = queue.oldest_ms, queue.exact_ages
    return tuple([int(scope in exact) if scope in known else None for scope in AGE_SCOPES]) if known else ()


def _histogram(counts: Sequence[int], sum_s: float) -> Values:
    cumulated = tuple(accumulate(counts))
    return *cumulated, cumulated[-1], sum_s


def age_histogram(queue: QueueView) -> Values:
    """Unsettled messages by age."""
    return _histogram(queue.age_counts, queue.age_sum_s) if queue.tracked and queue.age_counts else ()


def duration(name: str) -> Callable[[QueueView], Values]:
    """Return the samples of one histogram of durations, by its name in DURATIONS."""

    def values(queue: QueueView) -> Values:
        known = queue.durations.get(name)
        return () if known is None else _histogram(known.counts, known.sum_s)

    return values


def value(of: Callable[[QueueView], float | None]) -> Callable[[QueueView], Values]:
    """Return the samples of a family with one value per queue; none where it is unknown."""

    def values(queue: QueueView) -> Values:
        known = of(queue)
        return () if known is None else (known,)

    return values


def total(name: str) -> Callable[[QueueView], Values]:
    """Return the samples of one running total, by its name in TOTALS."""

    def values(queue: QueueView) -> Values:
        known = queue.totals.get(name)
        return () if known is None else (known,)

    return values


def dead_letter_expires(queue: QueueView) -> Times:
    """When the first dead letter is lost to retention."""
    if queue.dead_letter_expires_at_ms is not None:
        yield (), queue.dead_letter_expires_at_ms


def group_since(queue: QueueView) -> Times:
    """Since when the oldest message of each group has been waiting."""
    named = ((group.group, group.oldest_sent_at_ms) for group in queue.top_groups)
    return _with_other(named, queue.other_groups_oldest_ms)


def held_since(queue: QueueView) -> Times:
    """Since when each consumer has held its oldest message."""
    named = ((one.consumer, one.oldest_held_since_ms) for one in queue.consumers)
    return _with_other(named, queue.other_consumers_held_since_ms)


def _with_other(named: Iterable[tuple[str, int | None]], other_ms: int | None) -> Times:
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
