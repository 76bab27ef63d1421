"""Every sample of a snapshot individually, as replay prints them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from streaming.judge.metrics.metric import QUEUE_LABELS, Metric
from streaming.judge.metrics.table import METRICS
from streaming.judge.snapshot import Snapshot


class Sample(NamedTuple):
    """One line of exposition: `name` is the series' name (histograms carry `_bucket`, `_count` or `_sum`)."""

    name: str
    labels: dict[str, str]
    value: float


def samples(snapshot: Snapshot, now_ms: int) -> Iterator[Sample]:
    """Yield every sample of `snapshot`, with ages at `now_ms` (epoch milliseconds): queue by queue, then the others.

    What is unknown has no sample.
    """
    for queue in snapshot.rows():
        own = tuple(queue.name)
        for metric in METRICS:
            if metric.info is not None:
                labels = dict(zip(QUEUE_LABELS, own, strict=True)) | dict(metric.info(queue))
                yield Sample(metric.name, labels, 1)
            for series, value in metric.samples(queue, now_ms):
                yield _sample(metric, metric.name + series.suffix, own + series.labels, value)
    for metric in METRICS:
        if metric.of_snapshot is not None:
            for values, value in metric.of_snapshot(snapshot):
                yield _sample(metric, metric.name, values, value)


def _sample(metric: Metric, name: str, values: tuple[str, ...], value: float) -> Sample:
    names = (*QUEUE_LABELS, *metric.labels) if metric.per_queue else metric.labels
    return Sample(name, dict(zip(names, values, strict=False)), value)
