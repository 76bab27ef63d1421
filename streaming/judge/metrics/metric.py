"""The description of one metric family: its name, help, labels, and where its samples come from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from streaming.core.columns import Array
from streaming.judge.metrics.names import MetricKind, MetricName
from streaming.judge.snapshot import QueueView, Snapshot

QUEUE_LABELS = ("system", "scope_id", "queue")
"""The labels of every metric per queue, before its own."""

Values = Sequence[float | None]
"""The values of one queue's samples, in the order of `Metric.series`; None where unknown. Empty: none is known."""

Times = Iterable[tuple[tuple[str, ...], int]]
"""The values of a sample's own labels, and the time (epoch milliseconds) from which or until which it counts."""


class Series(NamedTuple):
    """What tells one sample of a queue from the family's others."""

    suffix: str = ""
    """Of the family's name: `_bucket`, `_count` or `_sum` of a histogram."""
    labels: tuple[str, ...] = ()
    """The values of the family's own labels."""


def labelled(values: Iterable[str]) -> tuple[Series, ...]:
    """Return one series for each value of the family's only label."""
    return tuple(Series("", (value,)) for value in values)


def histogram_series(bounds_s: Iterable[float]) -> tuple[Series, ...]:
    """Return the series of a histogram: cumulative buckets, count, sum."""
    buckets = (Series("_bucket", (le_label(bound_s),)) for bound_s in (*bounds_s, math.inf))
    return *buckets, Series("_count"), Series("_sum")


def le_label(upper_s: float) -> str:
    """A bucket's bound as Prometheus' own clients write it: `1.0`, `+Inf`."""
    return "+Inf" if upper_s == math.inf else str(float(upper_s))


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family and the source of its samples. `labels` follow the three of every queue metric when `per_queue`.

    `of_queue` returns the values of one queue's `series`; `times` replaces both where the value is an age, and returns the times
    (epoch milliseconds) from which it counts; `of_snapshot` returns samples that do not belong to one queue, or belong to queues
    by the signals that fire there. If all are None, a sink reports the metric itself.
    """

    name: MetricName
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    per_queue: bool = True
    of_queue: Callable[[QueueView], Values] | None = None
    series: tuple[Series, ...] = (Series(),)
    times: Callable[[QueueView], Times] | None = None
    of_snapshot: Callable[[Snapshot], Iterable[tuple[tuple[str, ...], float]]] | None = None
    """For a metric per queue, the labels begin with the queue's."""
    info: Callable[[QueueView], Mapping[str, str]] | None = None
    """For a series whose value is always 1: its labels, including `labels`."""
    until: bool = False
    """With `times`: the value is the seconds until that time instead of since."""
    by_age: bool = False
    """With `of_queue`: changes as messages grow older, even if nothing else does."""
    is_state: bool = False
    """With `of_queue`: one of the series is 1, the state that the queue is in, and the others are 0."""

    def samples(self, queue: QueueView, now_ms: int) -> Iterator[tuple[Series, float]]:
        """Yield the samples of one queue, with ages at `now_ms` (epoch milliseconds)."""
        if self.times is not None:
            found = list(self.times(queue))
            ages_s = self.ages_s(np.array([at_ms for _, at_ms in found], dtype=np.int64), now_ms)
            yield from ((Series("", labels), age_s) for (labels, _), age_s in zip(found, ages_s, strict=True))
        elif self.of_queue is not None and (values := self.of_queue(queue)):
            yield from ((series, value) for series, value in zip(self.series, values, strict=True) if value is not None)

    def current_state_only(self) -> Metric:
        """Return the metric without the series of states that a queue is not in; itself if it is no state."""
        of_queue = self.of_queue
        if not self.is_state or of_queue is None:
            return self
        return replace(self, of_queue=lambda queue: [value or None for value in of_queue(queue)])

    def ages_s(self, times_ms: Array, now_ms: int) -> list[float]:
        """Return the values at `now_ms` of samples that count from, or until, `times_ms` (epoch milliseconds)."""
        # A sender's clock may run ahead of ours: an age is never negative.
        ages: list[float] = (np.maximum(times_ms - now_ms if self.until else now_ms - times_ms, 0) / 1000).tolist()
        return ages
