"""A snapshot as Prometheus exposition text, quick enough for ten thousand queues.

What does not change until the next snapshot is rendered once for it, on the first scrape (batches come far
more often than scrapes). Ages are computed for every scrape: a gauge that was right at the last batch is
wrong now. What every series means stands in `streaming.judge.metrics`; what is written equals its `samples`.

`queuewatch_message_age_seconds` describes the messages waiting now, so its buckets fall as well as rise. It
is exposed as a plain histogram all the same: OpenMetrics' `gaugehistogram` names its series `_gcount` and
`_gsum`, which would make a series' name depend on the negotiated format, and the text format has no such
type. `histogram_quantile` and heat maps take the buckets as they are; only `rate()` over them is meaningless.
"""

from __future__ import annotations

import gzip
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from itertools import accumulate
from platform import python_version
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import generate_latest as _text_of
from prometheus_client.openmetrics import exposition as _openmetrics

from streaming.core.settings import QueueName
from streaming.judge.metrics import METRIC_BY_NAME, METRICS, Metric, MetricName, folded_counts, le_label
from streaming.judge.snapshot import AGE_BUCKETS_S, BASES, QUEUE_STATUSES, TOTALS, QueueView, Snapshot

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
                lines = "".join(_age_lines(metric.name, fixed.named, now_ms)) if metric.ages else fixed.lines[metric.name]
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
                self._fixed = _Fixed(snapshot, named, _fixed_lines(snapshot, named))
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


# One line of a queue: what follows the family's name, the extra label's text, the value.
_Part = tuple[str, str, float]


def _messages(queue: QueueView) -> Iterator[_Part]:
    for state, count in (
        ("visible", queue.visible),
        ("in_flight", queue.in_flight),
        ("delayed", queue.delayed),
    ):
        if count is not None:
            yield "", f',state="{state}"', count


def _oldest_timestamp(queue: QueueView) -> Iterator[_Part]:
    for scope, since_ms in queue.oldest_ms.items():
        yield "", f',scope="{scope}"', since_ms / 1000


_LE_LABELS = tuple(f',le="{le_label(upper_s)}"' for upper_s in (*AGE_BUCKETS_S, math.inf))


def _age_histogram(queue: QueueView) -> Iterator[_Part]:
    if queue.tracked and queue.age_counts:
        cumulated = tuple(accumulate(queue.age_counts))
        for le, count in zip(_LE_LABELS, cumulated, strict=True):
            yield "_bucket", le, count
        yield "_count", "", cumulated[-1]
        yield "_sum", "", queue.age_sum_s


def _groups(queue: QueueView) -> Iterator[_Part]:
    for state, count in queue.groups.items():
        yield "", f',state="{state}"', count


def _status(queue: QueueView) -> Iterator[_Part]:
    for status in QUEUE_STATUSES:
        yield "", f',status="{status}"', int(status == queue.status)


def _tracked(queue: QueueView) -> Iterator[_Part]:
    for state, count in queue.tracked_states.items():
        yield "", f',state="{state}"', count


def _basis(queue: QueueView) -> Iterator[_Part]:
    for basis in BASES:
        yield "", f',basis="{basis}"', int(basis == queue.basis)


def _oldest_exact(queue: QueueView) -> Iterator[_Part]:
    for scope in queue.oldest_ms:
        yield "", f',scope="{scope}"', int(scope in queue.exact_ages)


def _scalar(value: Callable[[QueueView], float | None]) -> Callable[[QueueView], Iterator[_Part]]:
    def parts(queue: QueueView) -> Iterator[_Part]:
        known = value(queue)
        if known is not None:
            yield "", "", known

    return parts


def _total(name: str) -> Callable[[QueueView], Iterator[_Part]]:
    return _scalar(lambda queue: queue.totals.get(name))


_FIXED: Mapping[str, Callable[[QueueView], Iterator[_Part]]] = {
    "queuewatch_queue_messages": _messages,
    "queuewatch_tracked_messages": _tracked,
    "queuewatch_telemetry_basis": _basis,
    "queuewatch_oldest_message_timestamp_seconds": _oldest_timestamp,
    "queuewatch_oldest_message_age_exact": _oldest_exact,
    "queuewatch_message_age_seconds": _age_histogram,
    **{f"queuewatch_messages_{name}_total": _total(name) for name in TOTALS},
    "queuewatch_receive_count_max": _scalar(lambda queue: queue.receive_count_max),
    "queuewatch_poison_messages": _scalar(lambda queue: queue.poison_messages),
    "queuewatch_stuck_groups": _scalar(lambda queue: queue.stuck_groups if queue.groups else None),
    "queuewatch_groups": _groups,
    "queuewatch_time_to_drain_seconds": _scalar(lambda queue: queue.time_to_drain_s),
    "queuewatch_queue_status": _status,
    "queuewatch_telemetry_coverage_ratio": _scalar(lambda queue: queue.coverage_ratio),
    "queuewatch_telemetry_clock_skew_seconds": _scalar(lambda queue: queue.clock_skew_s or None),
}


def _oldest_age(queue: QueueView) -> Iterator[tuple[str, int]]:
    for scope, since_ms in queue.oldest_ms.items():
        yield f',scope="{scope}"', since_ms


def _group_age(queue: QueueView) -> Iterator[tuple[str, int]]:
    named = ((group.group, group.oldest_sent_at_ms) for group in queue.top_groups)
    yield from _with_other("group", named, queue.other_groups_oldest_ms)


def _held_age(queue: QueueView) -> Iterator[tuple[str, int]]:
    named = (
        (consumer.consumer, consumer.oldest_held_since_ms)
        for consumer in queue.consumers
        if consumer.oldest_held_since_ms is not None
    )
    yield from _with_other("consumer", named, queue.other_consumers_held_since_ms)


def _with_other(label: str, named: Iterable[tuple[str, int]], other_ms: int | None) -> Iterator[tuple[str, int]]:
    """Named ones and the folded rest; one really called `other` shares its series, the older counts."""
    for name, since_ms in named:
        if name == "other" and other_ms is not None:
            other_ms = min(other_ms, since_ms)
        else:
            yield f',{label}="{escape_label(name)}"', since_ms
    if other_ms is not None:
        yield f',{label}="other"', other_ms


_AGES: Mapping[str, Callable[[QueueView], Iterator[tuple[str, int]]]] = {
    "queuewatch_oldest_message_age_seconds": _oldest_age,
    "queuewatch_group_oldest_message_age_seconds": _group_age,
    "queuewatch_consumer_oldest_held_seconds": _held_age,
}


def _age_lines(name: MetricName, named: Iterable[tuple[str, QueueView]], now_ms: int) -> Iterator[str]:
    """Lines whose value is a time away from now, never below zero: senders' clocks may run ahead of ours."""
    if name == "queuewatch_dead_letter_expiry_seconds":
        for labels, queue in named:
            if queue.dead_letter_expires_at_ms is not None:
                yield f"{name}{{{labels}}} {max(0, queue.dead_letter_expires_at_ms - now_ms) / 1000}\n"
        return
    since = _AGES[name]
    for labels, queue in named:
        for extra, since_ms in since(queue):
            yield f"{name}{{{labels}{extra}}} {max(0, now_ms - since_ms) / 1000}\n"


def _fixed_lines(snapshot: Snapshot, named: Iterable[tuple[str, QueueView]]) -> dict[str, str]:
    lines = {
        name: "".join(
            f"{name}{suffix}{{{labels}{extra}}} {value}\n"
            for labels, queue in named
            for suffix, extra, value in parts(queue)
            if math.isfinite(value)
        )
        for name, parts in _FIXED.items()
    }
    lines["queuewatch_signals"] = "".join(_signal_lines(snapshot))
    lines["queuewatch_signals_folded"] = "".join(_folded_lines(snapshot))
    for metric in METRICS:
        if not metric.per_queue:
            lines[metric.name] = "".join(_watcher_lines(metric, snapshot))
    return lines


def _signal_lines(snapshot: Snapshot) -> Iterator[str]:
    counts: Counter[tuple[QueueName, str, str]] = Counter()
    for finding in snapshot.firing:
        if finding.folded is not None:
            continue
        key = finding.key
        counts[key.queue_name, key.signal, finding.severity] += 1
    for (queue, signal, severity), count in sorted(counts.items()):
        labels = f'{_id_labels(*queue)},signal="{signal}",severity="{severity}"'
        yield f"queuewatch_signals{{{labels}}} {count}\n"


def _folded_lines(snapshot: Snapshot) -> Iterator[str]:
    for (queue, signal, folded), count in sorted(folded_counts(snapshot).items()):
        labels = f'{_id_labels(*queue)},signal="{signal}",folded_into="{folded}"'
        yield f"queuewatch_signals_folded{{{labels}}} {count}\n"


def _watcher_lines(metric: Metric, snapshot: Snapshot) -> Iterator[str]:
    pipeline = snapshot.pipeline
    counted: Mapping[str, Mapping[str, float]] = {
        "queuewatch_telemetry_last_event_timestamp_seconds": {
            name: last_ms / 1000 for name, last_ms in snapshot.collectors.items()
        },
        "queuewatch_events_total": {
            result: snapshot.events_total.get(result, 0) for result in ("accepted", "duplicate", "late", "ahead", "invalid")
        },
        "queuewatch_events_invalid_total": snapshot.invalid_total,
        "queuewatch_folded_total": snapshot.folded,
    }
    single: Mapping[str, float | None] = {
        "queuewatch_pipeline_lag_events": pipeline.lag_events,
        "queuewatch_pipeline_lag_seconds": pipeline.lag_s,
        "queuewatch_pipeline_batch_duration_seconds": pipeline.batch_duration_s,
        "queuewatch_pipeline_state_bytes": pipeline.state_bytes,
        "queuewatch_pipeline_state_rows": pipeline.state_rows,
        "queuewatch_pipeline_events_per_second": pipeline.events_per_s,
        "queuewatch_pipeline_last_batch_timestamp_seconds": (
            None if pipeline.last_batch_at_ms is None else pipeline.last_batch_at_ms / 1000
        ),
    }
    if metric.labels:
        for value, count in sorted(counted[metric.name].items()):
            yield f"{metric.name}{_labels({metric.labels[0]: value})} {count}\n"
    elif (number := single[metric.name]) is not None:
        yield f"{metric.name} {number}\n"


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
