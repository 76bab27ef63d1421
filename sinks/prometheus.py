"""A snapshot as Prometheus exposition text, quick enough for ten thousand queues.

What does not change until the next snapshot is rendered once for it, on the first scrape (batches come far
more often than scrapes). Ages are computed for every scrape: a gauge that was right at the last batch is
wrong now. What every series is and where its value comes from stands in `streaming.judge.metrics`.

`queuewatch_message_age_seconds` describes the messages waiting now, so its buckets fall as well as rise. It
is exposed as a plain histogram all the same: OpenMetrics' `gaugehistogram` names its series `_gcount` and
`_gsum`, which would make a series' name depend on the negotiated format, and the text format has no such
type. `histogram_quantile` and heat maps take the buckets as they are; only `rate()` over them is meaningless.
"""

from __future__ import annotations

import gzip
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from platform import python_version
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import generate_latest as _text_of
from prometheus_client.openmetrics import exposition as _openmetrics

from streaming.judge.metrics import METRIC_BY_NAME, METRICS, QUEUE_LABELS, Metric, MetricName
from streaming.judge.snapshot import QueueView, Snapshot

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_openmetrics_of: Callable[[CollectorRegistry], bytes] = _openmetrics.generate_latest


@dataclass(frozen=True, slots=True)
class Family:
    """A metric family a sink reports about itself (one of SINK_METRICS), its samples as (labels, value)."""

    name: MetricName
    samples: Sequence[tuple[Mapping[str, str], float]]


class _Fixed(NamedTuple):
    """What of a snapshot's exposition stays the same until the next one."""

    snapshot: Snapshot
    named: list[tuple[str, QueueView]]
    """Each queue with its labels' text."""
    lines: dict[str, str]
    """Family name -> the lines of all its samples."""


class Exposition:
    """Renders snapshots, keeping the unchanging part of the latest one. Safe to call from several threads."""

    def __init__(
        self,
        *,
        about_sinks: Sequence[Callable[[], Iterable[Family]]] = (),
        process_metrics: bool = True,
        version: str | None = None,
    ) -> None:
        """`about_sinks` are asked at every scrape; `version=None` asks the installed package."""
        self._about_sinks = tuple(about_sinks)
        self._version = version or _installed_version()
        self._process = CollectorRegistry() if process_metrics else None
        if self._process is not None:
            ProcessCollector(registry=self._process)
        self._lock = threading.Lock()
        self._fixed: _Fixed | None = None

    def render(self, snapshot: Snapshot | None, now_ms: int, *, openmetrics: bool = False) -> bytes:
        """The exposition as of `now_ms` (epoch ms); before the first snapshot only this program itself."""
        blocks = [self._build_info(openmetrics)]
        if snapshot is not None:
            fixed = self._fixed_part(snapshot)
            for metric in METRICS:
                lines = (
                    "".join(_queue_lines(metric, fixed.named, now_ms)) if metric.times is not None else fixed.lines[metric.name]
                )
                if lines:
                    blocks += (_header(metric, openmetrics), lines)
        for source in self._about_sinks:
            for family in source():
                blocks += (_header(METRIC_BY_NAME[family.name], openmetrics), _family_lines(family))
        # A name may hold half of a surrogate pair, which JSON can carry and UTF-8 cannot.
        body = "".join(blocks).encode("utf-8", "replace")
        if self._process is None:
            return body + b"# EOF\n" if openmetrics else body
        return body + (_openmetrics_of(self._process) if openmetrics else _text_of(self._process))

    def _fixed_part(self, snapshot: Snapshot) -> _Fixed:
        with self._lock:
            if self._fixed is None or self._fixed.snapshot is not snapshot:
                named = [(_id_labels(queue.system, queue.scope, queue.queue), queue) for queue in snapshot.queues]
                fixed: dict[str, str] = {m.name: "".join(_fixed_lines(m, snapshot, named)) for m in METRICS if m.times is None}
                self._fixed = _Fixed(snapshot, named, fixed)
            return self._fixed

    def _build_info(self, openmetrics: bool) -> str:
        name = "queuewatch_build_info"
        family, kind = ("queuewatch_build", "info") if openmetrics else (name, "gauge")
        labels = _labels({"version": self._version, "python": python_version()})
        help_line = f"# HELP {family} Version of queuewatch and of its Python.\n"
        return f"{help_line}# TYPE {family} {kind}\n{name}{labels} 1\n"


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header prefers OpenMetrics to the text format; a tie or silence means text."""
    quality = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for offer in accept.lower().split(","):
        media, *parameters = (part.strip() for part in offer.split(";"))
        q = next((_quality(p[2:]) for p in parameters if p.startswith("q=")), 1.0)
        if media in quality:
            quality[media] = max(quality[media], q)
    return quality["application/openmetrics-text"] > quality["text/plain"]


def compress(body: bytes) -> bytes:
    """gzip at level 1: higher levels cost a scrape of many queues seconds for a few per cent."""
    return gzip.compress(body, compresslevel=1, mtime=0)


def escape_label(value: str) -> str:
    """A label's value as it stands between quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _queue_lines(metric: Metric, named: Iterable[tuple[str, QueueView]], now_ms: int) -> Iterator[str]:
    """The lines of a family that each queue has samples of; `named`: each queue with its labels' text."""
    name, label = metric.name, f',{metric.labels[0]}="' if metric.labels else ""
    for labels, queue in named:
        if metric.info is not None:
            own = "".join(f',{key}="{escape_label(word)}"' for key, word in metric.info(queue).items())
            yield f"{name}{{{labels}{own}}} 1\n"
        for suffix, values, value in metric.parts(queue, now_ms):
            if math.isfinite(value):
                own = f'{label}{escape_label(values[0])}"' if values else ""
                yield f"{name}{suffix}{{{labels}{own}}} {value}\n"


def _fixed_lines(metric: Metric, snapshot: Snapshot, named: Iterable[tuple[str, QueueView]]) -> Iterator[str]:
    """The lines of a family whose values stand until the next snapshot."""
    if metric.of_snapshot is None:
        yield from _queue_lines(metric, named, snapshot.at_ms)
        return
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
