"""Render the durations of a snapshot as native histograms: length-delimited `io.prometheus.client.MetricFamily` messages.

Only these histograms are rendered, without classic buckets. Everything else, the same histograms with classic buckets
included, is in the text exposition. See docs/metrics.md for the reasons.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from sinks.accept import quality
from sinks.gzip_blocks import Piece, gzipped, in_blocks, joined
from sinks.protobuf import block, double, integer, packed, varint, zigzag
from sinks.queue_lines import encoded
from streaming.core.settings import QueueName
from streaming.core.state.duration_buckets import NATIVE_SCHEMA, NATIVE_ZERO
from streaming.judge.metrics import METRIC_BY_NAME, QUEUE_LABELS, MetricName
from streaming.judge.snapshot import Duration, Snapshot

PROTOBUF: Final = "application/vnd.google.protobuf"
PROTOBUF_TYPE: Final = f"{PROTOBUF}; proto=io.prometheus.client.MetricFamily; encoding=delimited"

NATIVE: Final[dict[MetricName, str]] = {
    "queuewatch_wait_seconds": "wait",
    "queuewatch_processing_seconds": "processing",
    "queuewatch_sojourn_seconds": "sojourn",
}
"""The metrics with native histograms, by their name in DURATIONS."""

ZERO_THRESHOLD: Final = 2.0**-128
"""The usual width of the zero bucket, so that these histograms can be added to others."""

_HISTOGRAM_TYPE: Final = 4
_BLOCK_METRICS: Final = 256
"""Histograms that are compressed together: about 64 kB."""


class _Encoded(NamedTuple):
    duration: Duration
    metric: bytes


class NativeExposition:
    """Renders snapshots; the histogram of a queue is encoded again only when it changed. Thread-safe."""

    def __init__(self, *, left_out: Collection[str] = ()) -> None:
        """`left_out` names metrics that are not shown."""
        self._lock = threading.Lock()
        self._metrics = [name for name in NATIVE if name not in left_out]
        self._known: dict[MetricName, dict[QueueName, _Encoded]] = {name: {} for name in self._metrics}
        self._pieces: dict[MetricName, list[Piece]] = {name: [] for name in self._metrics}

    def render(self, snapshot: Snapshot | None) -> bytes:
        """Render the exposition; nothing before the first snapshot."""
        return joined(self._families(snapshot))

    def render_gzip(self, snapshot: Snapshot | None) -> bytes:
        """Render the same, compressed."""
        return gzipped(self._families(snapshot))

    def _families(self, snapshot: Snapshot | None) -> list[Piece]:
        if snapshot is None:
            return []
        with self._lock:
            return [piece for name in self._metrics for piece in self._family(name, snapshot)]

    def _family(self, name: MetricName, snapshot: Snapshot) -> Iterator[Piece]:
        known, found = self._known[name], dict[QueueName, _Encoded]()
        for view in snapshot.rows():
            duration = view.durations.get(NATIVE[name])
            if duration is not None and duration.native.counts:
                before = known.get(view.name)
                if before is None or before.duration != duration:
                    before = _Encoded(duration, _metric(view.name, duration))
                found[view.name] = before
        self._known[name] = found
        if found:
            metrics = [one.metric for one in found.values()]
            self._pieces[name] = in_blocks(metrics, _BLOCK_METRICS, self._pieces[name])
            start = _start(name)
            yield varint(len(start) + sum(map(len, metrics))) + start
            yield from self._pieces[name]


def wants_protobuf(accept: str) -> bool:
    """Whether an Accept header names the protobuf format; `*/*` does not: Prometheus sends it without knowing the format, too."""
    for offer in accept.lower().split(","):
        media, *parameters = (part.strip() for part in offer.split(";"))
        given = dict(parameter.partition("=")[::2] for parameter in parameters)
        if media == PROTOBUF and given.get("encoding", "delimited") == "delimited" and quality(given.get("q", "1")) > 0:
            return True
    return False


def _start(name: MetricName) -> bytes:
    """Encode the fields of a MetricFamily before its metrics."""
    return block(1, name.encode()) + block(2, METRIC_BY_NAME[name].help.encode()) + integer(3, _HISTOGRAM_TYPE)


def _metric(queue: QueueName, duration: Duration) -> bytes:
    """Encode a queue's Metric, as a field of its MetricFamily."""
    pairs = zip(QUEUE_LABELS, queue, strict=True)
    labels = b"".join([block(1, block(1, label.encode()) + block(2, encoded(text))) for label, text in pairs])
    return block(4, labels + block(7, _histogram(duration)))


def _histogram(duration: Duration) -> bytes:
    buckets = duration.native.to_dict()
    zero, total = buckets.pop(NATIVE_ZERO, 0), sum(buckets.values())
    return b"".join(
        (
            integer(1, zero + total),
            double(2, duration.native_sum_s),
            integer(5, zigzag(NATIVE_SCHEMA)),
            double(6, ZERO_THRESHOLD),
            integer(7, zero),
            *(block(12, integer(1, zigzag(offset)) + integer(2, length)) for offset, length in _spans(list(buckets))),
            packed(13, (after - before for before, after in pairwise((0, *buckets.values())))),
        )
    )


def _spans(indexes: Sequence[int]) -> list[tuple[int, int]]:
    """Return runs of consecutive buckets: the distance from the end of the run before (or from 0), and the length."""
    spans: list[tuple[int, int]] = []
    end = 0
    for index in indexes:
        if spans and index == end:
            spans[-1] = spans[-1][0], spans[-1][1] + 1
        else:
            spans.append((index - end, 1))
        end = index + 1
    return spans
