"""Render a snapshot as Prometheus exposition text, fast enough for ten thousand queues.

A queue's lines are rendered when they are first scraped and kept until the queue changes, which few queues do between two
scrapes; so are compressed blocks of lines. Ages are computed for every scrape: a gauge that was right at the last batch is
wrong now.
`streaming.judge.metrics` defines every series and where its value comes from.

`queuewatch_message_age_seconds` describes the messages waiting now, so its buckets can fall as well as rise. It is
nevertheless exposed as a plain histogram: OpenMetrics' `gaugehistogram` names its series `_gcount` and
`_gsum`, which would make a series' name depend on the negotiated format, and the text format has no such
type. `histogram_quantile` and heat maps work with these buckets; only `rate()` over them is meaningless.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from platform import python_version
from typing import Final, NamedTuple, TypeVar

import numpy as np
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import generate_latest as _text_of
from prometheus_client.openmetrics import exposition as _openmetrics

from sinks.accept import quality
from sinks.gzip_blocks import Piece, gzipped, in_blocks, joined
from sinks.queue_lines import AgeLines, QueueLines, age_lines, encoded, info_line, labels_text, queue_labels, with_sum
from streaming.core.columns import Array
from streaming.core.settings import QueueName
from streaming.judge.metrics import METRIC_BY_NAME, METRICS, QUEUE_LABELS, Metric, MetricName
from streaming.judge.snapshot import QueueView, Snapshot
from streaming.release import own_version

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_BLOCK_LINES: Final = 512
"""Lines of a metric that are compressed together: about 64 kB."""

Cell = TypeVar("Cell")

_openmetrics_of: Callable[[CollectorRegistry], bytes] = _openmetrics.generate_latest


@dataclass(frozen=True, slots=True)
class Family:
    """A metric family a sink reports about itself (one of SINK_METRICS), with its samples as (labels, value)."""

    name: MetricName
    samples: Sequence[tuple[Mapping[str, str], float]]


_BUILD_INFO = METRIC_BY_NAME["queuewatch_build_info"]


@dataclass(slots=True)
class _Queue:
    """What is kept of one queue from scrape to scrape."""

    name: QueueName
    view: QueueView
    labels: str
    lasting: tuple[bytes, ...]
    """The lines of each metric that is constant until the queue changes…"""
    aging: list[bytes]
    """…and of each that changes when messages grow older."""
    ages: tuple[AgeLines, ...]


class _Fixed(NamedTuple):
    """The part of a snapshot's exposition that is constant until the next snapshot."""

    snapshot: Snapshot
    pieces: dict[str, list[Piece]]
    """Family name -> its lines."""
    ages: dict[str, tuple[list[str], Array]]
    """Family name -> its lines without the ages, and the times from or until which those count."""


class Exposition:
    """Renders snapshots, and caches the constant part of the latest one. Thread-safe."""

    def __init__(
        self,
        *,
        about_sinks: Sequence[Callable[[], Iterable[Family]]] = (),
        process_metrics: bool = True,
        left_out: Collection[str] = (),
        zero_states: bool = True,
        version: str | None = None,
    ) -> None:
        """`about_sinks` are collected at every scrape; `left_out` names metrics that are not shown.

        Without `zero_states`, a queue has a series for the status and the basis it is in only.
        `version=None` uses that of the installed package.
        """
        self._left_out = frozenset(left_out)
        shown = (metric for metric in METRICS if metric.name not in self._left_out)
        self._metrics = tuple(metric if zero_states else metric.current_state_only() for metric in shown)
        self._aging = QueueLines(metric for metric in self._metrics if metric.by_age)
        self._lasting = [metric for metric in self._metrics if metric.of_queue is not None and not metric.by_age]
        self._lines = QueueLines((*self._aging.metrics, *self._lasting))
        self._infos = [metric for metric in self._metrics if metric.info is not None]
        self._ages = [metric for metric in self._metrics if metric.times is not None]
        self._about_sinks = tuple(about_sinks)
        self._version = version or own_version()
        self._process = CollectorRegistry() if process_metrics else None
        if self._process is not None:
            ProcessCollector(registry=self._process)
        self._lock = threading.Lock()
        self._rendering = threading.Lock()
        """Held while a body is put together: as many bodies at once as clients ask for would not fit into memory."""
        self._fixed = _Fixed(Snapshot(0, (), (), {}), {}, {})
        self._queues: dict[QueueName, _Queue] = {}

    def render(self, snapshot: Snapshot | None, now_ms: int, *, openmetrics: bool = False) -> bytes:
        """Render the exposition at `now_ms` (epoch ms); before the first snapshot, only metrics of this process."""
        with self._rendering:
            return joined(self._pieces(snapshot, now_ms, openmetrics))

    def render_gzip(self, snapshot: Snapshot | None, now_ms: int, *, openmetrics: bool = False) -> bytes:
        """Render the same, compressed."""
        with self._rendering:
            return gzipped(self._pieces(snapshot, now_ms, openmetrics))

    def _pieces(self, snapshot: Snapshot | None, now_ms: int, openmetrics: bool) -> Iterator[Piece]:
        if _BUILD_INFO.name not in self._left_out:
            yield self._build_info(openmetrics)
        if snapshot is not None:
            fixed = self._fixed_part(snapshot)
            for metric in self._metrics:
                if metric.name in fixed.ages:
                    lines: list[Piece] = [_with_values(metric, *fixed.ages[metric.name], now_ms)]
                else:
                    lines = fixed.pieces.get(metric.name, [])
                if any(lines):
                    yield _header(metric, openmetrics)
                    yield from lines
        for source in self._about_sinks:
            for family in (found for found in source() if found.name not in self._left_out):
                yield _header(METRIC_BY_NAME[family.name], openmetrics)
                yield encoded("".join([f"{family.name}{labels_text(labels)} {value}\n" for labels, value in family.samples]))
        if self._process is not None:
            yield _openmetrics_of(self._process) if openmetrics else _text_of(self._process)
        elif openmetrics:
            yield b"# EOF\n"

    def _fixed_part(self, snapshot: Snapshot) -> _Fixed:
        with self._lock:
            if self._fixed.snapshot is not snapshot:
                self._queues = {queue.name: queue for queue in map(self._queue, snapshot.rows())}
                queues, known = self._queues.values(), self._fixed.pieces
                pieces: dict[str, list[Piece]] = {
                    metric.name: [encoded("".join(_snapshot_lines(metric, snapshot)))]
                    for metric in self._metrics
                    if metric.of_snapshot is not None
                }
                for metric, lines in chain(
                    _columns((*self._infos, *self._lasting), (queue.lasting for queue in queues)),
                    _columns(self._aging.metrics, (queue.aging for queue in queues)),
                ):
                    size = max(1, _BLOCK_LINES // len(metric.series))
                    pieces[metric.name] = in_blocks(lines, size, known.get(metric.name, ()))
                ages: dict[str, tuple[list[str], Array]] = {
                    metric.name: _without_values(of_metric)
                    for metric, of_metric in _columns(self._ages, (queue.ages for queue in queues))
                }
                self._fixed = _Fixed(snapshot, pieces, ages)
            return self._fixed

    def _queue(self, view: QueueView) -> _Queue:
        name = view.name
        known = self._queues.get(name)
        if known is not None and view.revision and known.view.revision == view.revision:
            # Nothing is allocated for a queue that only aged: ten thousand new objects would start the garbage collector.
            if view.age_counts != known.view.age_counts:
                known.aging[:] = self._aging.of(view, known.labels)
            elif view.age_sum_s != known.view.age_sum_s:
                known.aging[:] = [with_sum(lines, view.age_sum_s) for lines in known.aging]
            known.view = view
            return known
        labels = queue_labels(view)
        lines, aging = self._lines.of(view, labels), len(self._aging.metrics)
        lasting = (*[info_line(metric, view, labels) for metric in self._infos], *lines[aging:])
        if known is not None:
            # Lines that are equal are kept as they are: to compare them with those of a block takes no time then.
            lasting = tuple([old if old == new else new for old, new in zip(known.lasting, lasting, strict=True)])
        ages = tuple([age_lines(metric, view, labels) for metric in self._ages])
        return _Queue(name=name, view=view, labels=labels, lasting=lasting, aging=lines[:aging], ages=ages)

    def _build_info(self, openmetrics: bool) -> bytes:
        name, versions = _BUILD_INFO.name, (self._version, python_version())
        labels = labels_text(dict(zip(_BUILD_INFO.labels, versions, strict=True)))
        family, kind = (name.removesuffix("_info"), "info") if openmetrics else (name, _BUILD_INFO.kind)
        return encoded(f"# HELP {family} {_BUILD_INFO.help}\n# TYPE {family} {kind}\n{name}{labels} 1\n")


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header prefers OpenMetrics to the text format; a tie or no preference means text."""
    preferred = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for offer in accept.lower().split(","):
        media, *parameters = (part.strip() for part in offer.split(";"))
        q = next((quality(p[2:]) for p in parameters if p.startswith("q=")), 1.0)
        if media in preferred:
            preferred[media] = max(preferred[media], q)
    return preferred["application/openmetrics-text"] > preferred["text/plain"]


def _columns(metrics: Sequence[Metric], rows: Iterable[Sequence[Cell]]) -> Iterable[tuple[Metric, tuple[Cell, ...]]]:
    """Return each metric with what each queue has of it; `rows` has what each queue has of all of them."""
    columns: list[tuple[Cell, ...]] = list(zip(*rows, strict=True))
    return zip(metrics, columns, strict=True) if columns else ()


def _without_values(lines: Sequence[AgeLines]) -> tuple[list[str], Array]:
    starts = list(chain.from_iterable([of_queue.starts for of_queue in lines]))
    return starts, np.fromiter(chain.from_iterable([of_queue.times_ms for of_queue in lines]), dtype=np.int64, count=len(starts))


def _with_values(metric: Metric, starts: Sequence[str], times_ms: Array, now_ms: int) -> bytes:
    ages_s = metric.ages_s(times_ms, now_ms)
    return encoded("".join([f"{start}{age_s}\n" for start, age_s in zip(starts, ages_s, strict=True)]))


def _snapshot_lines(metric: Metric, snapshot: Snapshot) -> Iterator[str]:
    """Yield the lines of a family that belongs to no queue, or to queues by their firing signals."""
    assert metric.of_snapshot is not None
    names = (*QUEUE_LABELS, *metric.labels) if metric.per_queue else metric.labels
    for values, value in metric.of_snapshot(snapshot):
        yield f"{metric.name}{labels_text(dict(zip(names, values, strict=True)))} {value}\n"


@cache
def _header(metric: Metric, openmetrics: bool) -> bytes:
    # OpenMetrics names a counter's family without the `_total` of its samples.
    family = metric.name.removesuffix("_total") if openmetrics and metric.kind == "counter" else metric.name
    text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
    return encoded(f"# HELP {family} {text}\n# TYPE {family} {metric.kind}\n")
