"""Render a snapshot as Prometheus exposition text, fast enough for ten thousand queues.

Lines are rendered when they are first scraped and cached per queue until the queue changes, which few queues do
between two scrapes. Ages are computed for every scrape: a gauge that was right at the last batch is wrong now.
`streaming.judge.metrics` defines every series and where its value comes from.

`queuewatch_message_age_seconds` describes the messages waiting now, so its buckets can fall as well as rise. It is
nevertheless exposed as a plain histogram: OpenMetrics' `gaugehistogram` names its series `_gcount` and
`_gsum`, which would make a series' name depend on the negotiated format, and the text format has no such
type. `histogram_quantile` and heat maps work with these buckets; only `rate()` over them is meaningless.
"""

from __future__ import annotations

import gzip
import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import metadata
from platform import python_version
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import generate_latest as _text_of
from prometheus_client.openmetrics import exposition as _openmetrics

from streaming.core.settings import QueueName
from streaming.judge.metrics import METRIC_BY_NAME, METRICS, QUEUE_LABELS, Metric, MetricName
from streaming.judge.snapshot import QueueView, Snapshot

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_openmetrics_of: Callable[[CollectorRegistry], bytes] = _openmetrics.generate_latest


@dataclass(frozen=True, slots=True)
class Family:
    """A metric family a sink reports about itself (one of SINK_METRICS), with its samples as (labels, value)."""

    name: MetricName
    samples: Sequence[tuple[Mapping[str, str], float]]


class _QueueText(NamedTuple):
    """The part of one queue's exposition that is constant until the queue changes."""

    view: QueueView
    labels: str
    lines: tuple[str, ...]
    """The lines of each family that is constant until the queue changes, in the order of the metrics."""


class _Fixed(NamedTuple):
    """The part of a snapshot's exposition that is constant until the next snapshot."""

    snapshot: Snapshot
    queues: list[_QueueText]
    lines: dict[str, str]
    """Family name -> the lines of samples that belong to no single queue, or that age with every batch."""


class Exposition:
    """Renders snapshots, and caches the constant part of the latest one. Thread-safe."""

    def __init__(
        self,
        *,
        about_sinks: Sequence[Callable[[], Iterable[Family]]] = (),
        process_metrics: bool = True,
        left_out: Collection[str] = (),
        version: str | None = None,
    ) -> None:
        """`about_sinks` are collected at every scrape; `left_out` names metrics that are not shown.

        `version=None` uses that of the installed package.
        """
        self._left_out = frozenset(left_out)
        self._metrics = tuple(metric for metric in METRICS if metric.name not in self._left_out)
        self._lasting = tuple(metric for metric in self._metrics if (metric.of_queue or metric.info) and not metric.by_age)
        self._place = {metric.name: place for place, metric in enumerate(self._lasting)}
        self._about_sinks = tuple(about_sinks)
        self._version = version or _installed_version()
        self._process = CollectorRegistry() if process_metrics else None
        if self._process is not None:
            ProcessCollector(registry=self._process)
        self._lock = threading.Lock()
        self._fixed: _Fixed | None = None
        self._texts: dict[QueueName, _QueueText] = {}

    def render(self, snapshot: Snapshot | None, now_ms: int, *, openmetrics: bool = False) -> bytes:
        """Render the exposition at `now_ms` (epoch ms); before the first snapshot, only metrics of this process."""
        blocks = [self._build_info(openmetrics)]
        if snapshot is not None:
            fixed = self._fixed_part(snapshot)
            for metric in self._metrics:
                if lines := self._family(metric, fixed, now_ms):
                    blocks += (_header(metric, openmetrics), lines)
        for source in self._about_sinks:
            for family in (found for found in source() if found.name not in self._left_out):
                blocks += (_header(METRIC_BY_NAME[family.name], openmetrics), _family_lines(family))
        # A name may hold half of a surrogate pair, which JSON can represent and UTF-8 cannot.
        body = "".join(blocks).encode("utf-8", "replace")
        if self._process is None:
            return body + b"# EOF\n" if openmetrics else body
        return body + (_openmetrics_of(self._process) if openmetrics else _text_of(self._process))

    def _fixed_part(self, snapshot: Snapshot) -> _Fixed:
        with self._lock:
            if self._fixed is None or self._fixed.snapshot is not snapshot:
                self._texts = {view.name: self._text(view) for view in snapshot.rows()}
                queues = list(self._texts.values())
                lines: dict[str, str] = {
                    m.name: "".join(_snapshot_lines(m, snapshot)) for m in self._metrics if m.of_snapshot is not None
                }
                lines |= {m.name: _queues_lines(m, queues, snapshot.at_ms) for m in self._metrics if m.by_age}
                self._fixed = _Fixed(snapshot, queues, lines)
            return self._fixed

    def _text(self, view: QueueView) -> _QueueText:
        known = self._texts.get(view.name)
        if known is not None and view.revision and known.view.revision == view.revision:
            return known._replace(view=view)
        labels = _id_labels(view.system, view.scope, view.queue)
        lines = tuple("".join(_queue_lines(metric, labels, view, 0)) for metric in self._lasting)
        return _QueueText(view, labels, lines)

    def _family(self, metric: Metric, fixed: _Fixed, now_ms: int) -> str:
        """Render the lines of all samples of one family."""
        if metric.times is not None:
            return _queues_lines(metric, fixed.queues, now_ms)
        place = self._place.get(metric.name)
        return fixed.lines[metric.name] if place is None else "".join([text.lines[place] for text in fixed.queues])

    def _build_info(self, openmetrics: bool) -> str:
        name = "queuewatch_build_info"
        family, kind = ("queuewatch_build", "info") if openmetrics else (name, "gauge")
        labels = _labels({"version": self._version, "python": python_version()})
        help_line = f"# HELP {family} Version of queuewatch and of its Python.\n"
        return f"{help_line}# TYPE {family} {kind}\n{name}{labels} 1\n"


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header prefers OpenMetrics to the text format; a tie or no preference means text."""
    quality = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for offer in accept.lower().split(","):
        media, *parameters = (part.strip() for part in offer.split(";"))
        q = next((_quality(p[2:]) for p in parameters if p.startswith("q=")), 1.0)
        if media in quality:
            quality[media] = max(quality[media], q)
    return quality["application/openmetrics-text"] > quality["text/plain"]


def compress(body: bytes) -> bytes:
    """Compress with gzip level 1: higher levels cost a scrape of many queues seconds for a few per cent."""
    return gzip.compress(body, compresslevel=1, mtime=0)


@lru_cache(maxsize=4096)
def escape_label(value: str) -> str:
    """Escape a label's value for use between quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _queues_lines(metric: Metric, queues: Iterable[_QueueText], now_ms: int) -> str:
    return "".join([line for text in queues for line in _queue_lines(metric, text.labels, text.view, now_ms)])


def _queue_lines(metric: Metric, labels: str, queue: QueueView, now_ms: int) -> Iterator[str]:
    """Yield the lines of a family for one queue; `labels` is the text of the queue's own labels."""
    name, label = metric.name, f',{metric.labels[0]}="' if metric.labels else ""
    if metric.info is not None:
        own = "".join(f',{key}="{escape_label(word)}"' for key, word in metric.info(queue).items())
        yield f"{name}{{{labels}{own}}} 1\n"
    for suffix, values, value in metric.parts(queue, now_ms):
        if math.isfinite(value):
            own = f'{label}{escape_label(values[0])}"' if values else ""
            yield f"{name}{suffix}{{{labels}{own}}} {value}\n"


def _snapshot_lines(metric: Metric, snapshot: Snapshot) -> Iterator[str]:
    """Yield the lines of a family that belongs to no queue, or to queues by their firing signals."""
    assert metric.of_snapshot is not None
    names = (*QUEUE_LABELS, *metric.labels) if metric.per_queue else metric.labels
    for values, value in metric.of_snapshot(snapshot):
        yield f"{metric.name}{_labels(dict(zip(names, values, strict=True)))} {value}\n"


def _id_labels(system: str, scope: str, queue: str) -> str:
    return f'system="{escape_label(system)}",scope_id="{escape_label(scope)}",queue="{escape_label(queue)}"'


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{escape_label(value)}"' for name, value in labels.items()) + "}" if labels else ""


def _family_lines(family: Family) -> str:
    return "".join(f"{family.name}{_labels(labels)} {value}\n" for labels, value in family.samples)


def _header(metric: Metric, openmetrics: bool) -> str:
    # OpenMetrics names a counter's family without the `_total` of its samples.
    family = metric.name.removesuffix("_total") if openmetrics and metric.kind == "counter" else metric.name
    text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {family} {text}\n# TYPE {family} {metric.kind}\n"


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


@cache
def _installed_version() -> str:
    try:
        return metadata.version("queuewatch-service")
    except metadata.PackageNotFoundError:
        return "unknown"
