"""The description of one metric family: its name, help, labels, and where its samples come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from streaming.judge.metrics.names import MetricKind, MetricName
from streaming.judge.snapshot import QueueView, Snapshot

QUEUE_LABELS = ("system", "scope_id", "queue")
"""The labels of every metric per queue, before its own."""

Part = tuple[str, tuple[str, ...], float]
"""One sample of a family: the suffix of the family's name (`_bucket` of a histogram, else empty), the values of its own labels,
and the value."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family and the source of its samples. `labels` follow the three of every queue metric when `per_queue`.

    `of_queue` returns the samples of one queue; `times` replaces it where the value is an age, and returns the times (epoch
    milliseconds) from which it counts; `of_snapshot` returns samples that do not belong to one queue, or belong to queues by the
    signals that fire there. If all are None, a sink reports the metric itself.
    """

    name: MetricName
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    per_queue: bool = True
    of_queue: Callable[[QueueView], Iterable[Part]] | None = None
    times: Callable[[QueueView], Iterable[tuple[tuple[str, ...], int]]] | None = None
    of_snapshot: Callable[[Snapshot], Iterable[tuple[tuple[str, ...], float]]] | None = None
    """For a metric per queue, the labels begin with the queue's."""
    info: Callable[[QueueView], Mapping[str, str]] | None = None
    """For a series whose value is always 1: its labels, including `labels`."""
    until: bool = False
    """With `times`: the value is the seconds until that time instead of since."""
    by_age: bool = False
    """With `of_queue`: changes as messages grow older, even if nothing else does."""

    def parts(self, queue: QueueView, now_ms: int) -> Iterable[Part]:
        """Yield the samples of one queue, with ages at `now_ms` (epoch milliseconds)."""
        if self.times is None:
            return self.of_queue(queue) if self.of_queue is not None else ()
        # A sender's clock may run ahead of ours: an age is never negative.
        sign = -1 if self.until else 1
        return (("", values, max(0, sign * (now_ms - at_ms)) / 1000) for values, at_ms in self.times(queue))
