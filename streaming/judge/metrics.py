"""Every metric queuewatch publishes, and how a snapshot becomes samples. The only place where a metric is named."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple, get_args

from streaming.judge.snapshot import AGE_BUCKETS_S, BASES, DURATION_BUCKETS_S, QUEUE_STATUSES, PipelineView, QueueView, Snapshot

MetricName = Literal[
    "queuewatch_queue_info",
    "queuewatch_queue_messages",
    "queuewatch_tracked_messages",
    "queuewatch_telemetry_basis",
    "queuewatch_oldest_message_age_seconds",
    "queuewatch_oldest_message_timestamp_seconds",
    "queuewatch_oldest_message_age_exact",
    "queuewatch_message_age_seconds",
    "queuewatch_wait_seconds",
    "queuewatch_processing_seconds",
    "queuewatch_sojourn_seconds",
    "queuewatch_messages_sent_total",
    "queuewatch_messages_received_total",
    "queuewatch_messages_deleted_total",
    "queuewatch_messages_dead_lettered_total",
    "queuewatch_messages_redriven_total",
    "queuewatch_messages_expired_total",
    "queuewatch_messages_dropped_total",
    "queuewatch_messages_reconciled_total",
    "queuewatch_receive_count_max",
    "queuewatch_poison_messages",
    "queuewatch_stuck_groups",
    "queuewatch_group_oldest_message_age_seconds",
    "queuewatch_groups",
    "queuewatch_dead_letter_expiry_seconds",
    "queuewatch_time_to_drain_seconds",
    "queuewatch_queue_status",
    "queuewatch_consumer_oldest_held_seconds",
    "queuewatch_signals",
    "queuewatch_signals_folded",
    "queuewatch_telemetry_coverage_ratio",
    "queuewatch_telemetry_last_event_timestamp_seconds",
    "queuewatch_telemetry_clock_skew_seconds",
    "queuewatch_events_total",
    "queuewatch_events_invalid_total",
    "queuewatch_folded_total",
    "queuewatch_pipeline_lag_events",
    "queuewatch_pipeline_lag_seconds",
    "queuewatch_pipeline_batch_duration_seconds",
    "queuewatch_pipeline_state_bytes",
    "queuewatch_pipeline_state_rows",
    "queuewatch_pipeline_events_per_second",
    "queuewatch_pipeline_last_batch_timestamp_seconds",
    "queuewatch_ingest_requests_total",
    "queuewatch_ingest_events_total",
    "queuewatch_http_connections",
    "queuewatch_http_refused_total",
    "queuewatch_alertmanager_posts_total",
    "queuewatch_alertmanager_alerts",
    "queuewatch_pipeline_lost_records_total",
    "queuewatch_pipeline_lost_files_total",
    "queuewatch_pipeline_offset_resets_total",
    "queuewatch_outbox_records",
    "queuewatch_outbox_lost_records_total",
    "queuewatch_outbox_deliveries_total",
]

MetricKind = Literal["gauge", "counter", "histogram"]


Part = tuple[str, tuple[str, ...], float]
"""One sample of a family: what follows the family's name (`_bucket` of a histogram, nothing else), the values of its own labels,
the value."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family, and where its samples come from. `labels` come after the three of every queue metric when `per_queue`.

    `of_queue` gives the samples of one queue; `times` does where the value is an age, with the times (epoch milliseconds) they
    count from; `of_snapshot` gives those that are of no queue, or of queues by the signals that fire there. None of them: a sink
    says it of itself.
    """

    name: MetricName
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    per_queue: bool = True
    of_queue: Callable[[QueueView], Iterable[Part]] | None = None
    times: Callable[[QueueView], Iterable[tuple[tuple[str, ...], int]]] | None = None
    of_snapshot: Callable[[Snapshot], Iterable[tuple[tuple[str, ...], float]]] | None = None
    """Of a metric per queue the labels begin with the queue's."""
    info: Callable[[QueueView], Mapping[str, str]] | None = None
    """Of a series whose value is always 1: its labels, `labels` among them."""
    until: bool = False
    """Of `times`: the seconds until then, and not since then."""

    def parts(self, queue: QueueView, now_ms: int) -> Iterable[Part]:
        """The samples of one queue, ages as of `now_ms` (epoch milliseconds)."""
        if self.times is None:
            return self.of_queue(queue) if self.of_queue is not None else ()
        # A sender's clock may run ahead of ours: an age is never negative.
        sign = -1 if self.until else 1
        return (("", values, max(0, sign * (now_ms - at_ms)) / 1000) for values, at_ms in self.times(queue))


OTHER = "other"
"""The name under which groups and consumers beyond the top K are folded."""

QUEUE_LABELS = ("system", "scope_id", "queue")


def _info(queue: QueueView) -> dict[str, str]:
    tags = {f"tag_{_NOT_OF_A_LABEL.sub('_', name)}": value for name, value in queue.tags.items()}
    return {"kind": queue.kind or "", "dead_letter_queue": queue.dead_letter_queue or "", **tags}


_NOT_OF_A_LABEL = re.compile(r"[^a-zA-Z0-9_]")


def _messages(queue: QueueView) -> Iterator[Part]:
    for state, count in (("visible", queue.visible), ("in_flight", queue.in_flight), ("delayed", queue.delayed)):
        if count is not None:
            yield "", (state,), count


def _tracked(queue: QueueView) -> Iterator[Part]:
    for state, count in queue.tracked_states.items():
        yield "", (state,), count


def _basis(queue: QueueView) -> Iterator[Part]:
    for basis in BASES:
        yield "", (basis,), int(basis == queue.basis)


def _status(queue: QueueView) -> Iterator[Part]:
    for status in QUEUE_STATUSES:
        yield "", (status,), int(status == queue.status)


def _groups(queue: QueueView) -> Iterator[Part]:
    for state, count in queue.groups.items():
        yield "", (state,), count


_Times = Iterator[tuple[tuple[str, ...], int]]


def _oldest_since(queue: QueueView) -> _Times:
    for scope, since_ms in queue.oldest_ms.items():
        yield (scope,), since_ms


def _oldest_timestamp(queue: QueueView) -> Iterator[Part]:
    for scope, since_ms in queue.oldest_ms.items():
        yield "", (scope,), since_ms / 1000


def _oldest_exact(queue: QueueView) -> Iterator[Part]:
    for scope in queue.oldest_ms:
        yield "", (scope,), int(scope in queue.exact_ages)


def _histogram(bounds_s: Sequence[float], counts: Sequence[int], sum_s: float) -> Iterator[Part]:
    cumulated = 0
    for upper_s, count in zip((*bounds_s, math.inf), counts, strict=True):
        cumulated += count
        yield "_bucket", (le_label(upper_s),), cumulated
    yield "_count", (), cumulated
    yield "_sum", (), sum_s


def _age_histogram(queue: QueueView) -> Iterator[Part]:
    if queue.tracked and queue.age_counts:
        yield from _histogram(AGE_BUCKETS_S, queue.age_counts, queue.age_sum_s)


def _duration(name: str) -> Callable[[QueueView], Iterator[Part]]:
    def parts(queue: QueueView) -> Iterator[Part]:
        if name in queue.durations:
            yield from _histogram(DURATION_BUCKETS_S, *queue.durations[name])

    return parts


def _value(of: Callable[[QueueView], float | None]) -> Callable[[QueueView], Iterator[Part]]:
    def parts(queue: QueueView) -> Iterator[Part]:
        known = of(queue)
        if known is not None:
            yield "", (), known

    return parts


def _total(name: str) -> Callable[[QueueView], Iterator[Part]]:
    return _value(lambda queue: queue.totals.get(name))


def _dead_letter_expires(queue: QueueView) -> _Times:
    if queue.dead_letter_expires_at_ms is not None:
        yield (), queue.dead_letter_expires_at_ms


def _group_since(queue: QueueView) -> _Times:
    named = ((group.group, group.oldest_sent_at_ms) for group in queue.top_groups)
    return _with_other(named, queue.other_groups_oldest_ms)


def _held_since(queue: QueueView) -> _Times:
    named = ((one.consumer, one.oldest_held_since_ms) for one in queue.consumers)
    return _with_other(named, queue.other_consumers_held_since_ms)


def _with_other(named: Iterable[tuple[str, int | None]], other_ms: int | None) -> _Times:
    """Names with their times, and `other` once: a group or consumer that is really called so is counted in it."""
    for name, since_ms in named:
        if name == OTHER and since_ms is not None:
            other_ms = since_ms if other_ms is None else min(since_ms, other_ms)
        elif since_ms is not None:
            yield (name,), since_ms
    if other_ms is not None:
        yield (OTHER,), other_ms


def _signals(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
    counts = Counter((*f.key.queue_name, f.key.signal, f.severity) for f in snapshot.firing if f.folded is None)
    yield from sorted(counts.items())


def _signals_folded(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
    counts = Counter((*f.key.queue_name, f.key.signal, f.folded) for f in snapshot.firing if f.folded is not None)
    yield from sorted(counts.items())


def _by_label(counts: Mapping[str, float]) -> Iterator[tuple[tuple[str, ...], float]]:
    for label, count in sorted(counts.items()):
        yield (label,), count


def _collectors(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
    return _by_label({name: last_ms / 1000 for name, last_ms in snapshot.collectors.items()})


def _events(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
    for result in ("accepted", "duplicate", "late", "ahead", "invalid"):
        yield (result,), snapshot.events_total.get(result, 0)


def _pipeline(of: Callable[[PipelineView], float | None]) -> Callable[[Snapshot], Iterator[tuple[tuple[str, ...], float]]]:
    def parts(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
        known = of(snapshot.pipeline)
        if known is not None:
            yield (), known

    return parts


@cache
def le_label(upper_s: float) -> str:
    """A bucket's bound as Prometheus' own clients write it: `1.0`, `+Inf`."""
    return "+Inf" if upper_s == math.inf else str(float(upper_s))


METRICS: tuple[Metric, ...] = (
    Metric(
        "queuewatch_queue_info",
        "gauge",
        "1, with what is known of the queue in labels: join it to others by queue. `tag_…`: tags chosen in `judge.tag_labels`.",
        ("kind", "dead_letter_queue"),
        info=_info,
    ),
    Metric(
        "queuewatch_queue_messages",
        "gauge",
        "Messages of the queue by state: those tracked where all are reported, else the broker's own count.",
        ("state",),
        of_queue=_messages,
    ),
    Metric(
        "queuewatch_tracked_messages", "gauge", "Unsettled messages known one by one, by state.", ("state",), of_queue=_tracked
    ),
    Metric(
        "queuewatch_telemetry_basis",
        "gauge",
        "1 for the kind of knowledge there is of the queue, 0 for the others.",
        ("basis",),
        of_queue=_basis,
    ),
    Metric(
        "queuewatch_oldest_message_age_seconds",
        "gauge",
        "Age of the oldest unsettled message: all; visible to a consumer now; as CloudWatch would show; without poison suspects.",
        ("scope",),
        times=_oldest_since,
    ),
    Metric(
        "queuewatch_oldest_message_timestamp_seconds",
        "gauge",
        "Unix time from which the age of the oldest unsettled message counts, per scope.",
        ("scope",),
        of_queue=_oldest_timestamp,
    ),
    Metric(
        "queuewatch_oldest_message_age_exact",
        "gauge",
        "1 where the age of the oldest message is exact, 0 where it is at least so old.",
        ("scope",),
        of_queue=_oldest_exact,
    ),
    Metric(
        "queuewatch_message_age_seconds",
        "histogram",
        "Ages of the unsettled messages as of the last batch.",
        ("le",),
        of_queue=_age_histogram,
    ),
    Metric(
        "queuewatch_wait_seconds",
        "histogram",
        "How long messages that were deleted had waited: from their send to their first delivery.",
        ("le",),
        of_queue=_duration("wait"),
    ),
    Metric(
        "queuewatch_processing_seconds",
        "histogram",
        "How long messages that were deleted were worked on: from their last delivery to the deletion.",
        ("le",),
        of_queue=_duration("processing"),
    ),
    Metric(
        "queuewatch_sojourn_seconds",
        "histogram",
        "How long messages that were deleted took in all: from their send to the deletion.",
        ("le",),
        of_queue=_duration("sojourn"),
    ),
    Metric("queuewatch_messages_sent_total", "counter", "Messages that entered the queue.", of_queue=_total("sent")),
    Metric(
        "queuewatch_messages_received_total",
        "counter",
        "Deliveries to consumers, redeliveries included.",
        of_queue=_total("received"),
    ),
    Metric("queuewatch_messages_deleted_total", "counter", "Messages acknowledged.", of_queue=_total("deleted")),
    Metric(
        "queuewatch_messages_dead_lettered_total",
        "counter",
        "Messages moved from this queue to its dead-letter queue.",
        of_queue=_total("dead_lettered"),
    ),
    Metric(
        "queuewatch_messages_redriven_total",
        "counter",
        "Messages moved from this dead-letter queue back to another queue.",
        of_queue=_total("redriven"),
    ),
    Metric(
        "queuewatch_messages_expired_total",
        "counter",
        "Messages lost because their retention ran out.",
        of_queue=_total("expired"),
    ),
    Metric(
        "queuewatch_messages_dropped_total",
        "counter",
        "Messages lost because their retries ran out without a dead-letter queue.",
        of_queue=_total("dropped"),
    ),
    Metric(
        "queuewatch_messages_reconciled_total",
        "counter",
        "Messages no longer tracked because the broker's own counts said empty.",
        of_queue=_total("reconciled"),
    ),
    Metric(
        "queuewatch_receive_count_max",
        "gauge",
        "Highest receive count of an unsettled message.",
        of_queue=_value(lambda queue: queue.receive_count_max),
    ),
    Metric(
        "queuewatch_poison_messages",
        "gauge",
        "Unsettled messages received so often that they are poison suspects.",
        of_queue=_value(lambda queue: queue.poison_messages),
    ),
    Metric(
        "queuewatch_stuck_groups",
        "gauge",
        "Ordering groups in which nothing moves behind a stuck head.",
        of_queue=_value(lambda queue: queue.stuck_groups if queue.groups else None),
    ),
    Metric(
        "queuewatch_group_oldest_message_age_seconds",
        "gauge",
        "Age of the oldest unsettled message per ordering group: the oldest groups by name, the rest as other.",
        ("group",),
        times=_group_since,
    ),
    Metric("queuewatch_groups", "gauge", "Ordering groups by state; a group can be in several.", ("state",), of_queue=_groups),
    Metric(
        "queuewatch_dead_letter_expiry_seconds",
        "gauge",
        "Seconds until the first message of this dead-letter queue is lost to retention.",
        times=_dead_letter_expires,
        until=True,
    ),
    Metric(
        "queuewatch_time_to_drain_seconds",
        "gauge",
        "Seconds until the backlog is gone at the present rate; absent unless draining.",
        of_queue=_value(lambda queue: queue.time_to_drain_s),
    ),
    Metric(
        "queuewatch_queue_status", "gauge", "1 for the status the queue is in, 0 for the others.", ("status",), of_queue=_status
    ),
    Metric(
        "queuewatch_consumer_oldest_held_seconds",
        "gauge",
        "How long a consumer has held its oldest message: the longest by name, the rest as other.",
        ("consumer",),
        times=_held_since,
    ),
    Metric(
        "queuewatch_signals",
        "gauge",
        "Signals firing now, without those that another signal of the queue explains.",
        ("signal", "severity"),
        of_snapshot=_signals,
    ),
    Metric(
        "queuewatch_signals_folded",
        "gauge",
        "Signals firing now that another signal explains: counted and listed, not announced by themselves.",
        ("signal", "folded_into"),
        of_snapshot=_signals_folded,
    ),
    Metric(
        "queuewatch_telemetry_coverage_ratio",
        "gauge",
        "Tracked messages as a share of the broker's own count.",
        of_queue=_value(lambda queue: queue.coverage_ratio),
    ),
    Metric(
        "queuewatch_telemetry_last_event_timestamp_seconds",
        "gauge",
        "Unix time of the last sign of life of a collector.",
        ("collector",),
        per_queue=False,
        of_snapshot=_collectors,
    ),
    Metric(
        "queuewatch_telemetry_clock_skew_seconds",
        "gauge",
        "How far senders' clocks ran ahead at worst; absent when they did not.",
        of_queue=_value(lambda queue: queue.clock_skew_s or None),
    ),
    Metric(
        "queuewatch_events_total",
        "counter",
        "Telemetry events read, by what became of them.",
        ("result",),
        per_queue=False,
        of_snapshot=_events,
    ),
    Metric(
        "queuewatch_events_invalid_total",
        "counter",
        "Telemetry events that could not be read, by reason.",
        ("reason",),
        per_queue=False,
        of_snapshot=lambda snapshot: _by_label(snapshot.invalid_total),
    ),
    Metric(
        "queuewatch_folded_total",
        "counter",
        "Things folded into other or left out by a cap.",
        ("what",),
        per_queue=False,
        of_snapshot=lambda snapshot: _by_label(snapshot.folded),
    ),
    Metric(
        "queuewatch_pipeline_lag_events",
        "gauge",
        "Telemetry records waiting in the source.",
        per_queue=False,
        of_snapshot=_pipeline(lambda view: view.lag_events),
    ),
    Metric(
        "queuewatch_pipeline_lag_seconds",
        "gauge",
        "Age of the newest event when its batch was published.",
        per_queue=False,
        of_snapshot=_pipeline(lambda view: view.lag_s),
    ),
    Metric(
        "queuewatch_pipeline_batch_duration_seconds",
        "gauge",
        "Duration of the last batch.",
        per_queue=False,
        of_snapshot=_pipeline(lambda view: view.batch_duration_s),
    ),
    Metric(
        "queuewatch_pipeline_state_bytes",
        "gauge",
        "Size of the packed state of all shards.",
        per_queue=False,
        of_snapshot=_pipeline(lambda view: view.state_bytes),
    ),
    Metric(
        "queuewatch_pipeline_state_rows",
        "gauge",
        "Messages in the state, recently ended ones included.",
        per_queue=False,
        of_snapshot=_pipeline(lambda view: view.state_rows),
    ),
    Metric(
        "queuewatch_pipeline_events_per_second",
        "gauge",
        "Events per second in the last batch.",
        per_queue=False,
        of_snapshot=_pipeline(lambda view: view.events_per_s),
    ),
    Metric(
        "queuewatch_pipeline_last_batch_timestamp_seconds",
        "gauge",
        "Unix time of the last batch published.",
        per_queue=False,
        of_snapshot=_pipeline(lambda view: None if view.last_batch_at_ms is None else view.last_batch_at_ms / 1000),
    ),
)

SINK_METRICS: tuple[Metric, ...] = (
    Metric(
        "queuewatch_ingest_requests_total",
        "counter",
        "Requests to POST /api/v1/events, by status of the answer.",
        ("code",),
        per_queue=False,
    ),
    Metric(
        "queuewatch_ingest_events_total",
        "counter",
        "Events received over HTTP, before the job reads them.",
        ("result",),
        per_queue=False,
    ),
    Metric(
        "queuewatch_http_connections",
        "gauge",
        "Connections to the page, metrics, API and ingest now.",
        per_queue=False,
    ),
    Metric(
        "queuewatch_http_refused_total",
        "counter",
        "Connections refused (total, per_address) or ended (slow_headers, slow_reader) by a limit.",
        ("reason",),
        per_queue=False,
    ),
    Metric(
        "queuewatch_alertmanager_posts_total",
        "counter",
        "Requests to an Alertmanager: ok, rejected (it did not take an alert) or failed (tried again).",
        ("destination", "result"),
        per_queue=False,
    ),
    Metric(
        "queuewatch_alertmanager_alerts",
        "gauge",
        "Alerts firing by direct push, and findings left out because there are too many.",
        ("state",),
        per_queue=False,
    ),
    Metric(
        "queuewatch_pipeline_lost_records_total",
        "counter",
        "Kafka records that were deleted before they were read, since the checkpoint began.",
        ("topic", "partition"),
        per_queue=False,
    ),
    Metric(
        "queuewatch_pipeline_lost_files_total",
        "counter",
        "Files of the spool folder that were gone before they were read, since the checkpoint began.",
        per_queue=False,
    ),
    Metric(
        "queuewatch_pipeline_offset_resets_total",
        "counter",
        "Kafka partitions found to begin anew because their topic was created again; they are read from their beginning.",
        per_queue=False,
    ),
    Metric(
        "queuewatch_outbox_records",
        "gauge",
        "Records in the checkpoint that a destination (signal log, quarantine) has not taken yet.",
        ("destination",),
        per_queue=False,
    ),
    Metric(
        "queuewatch_outbox_lost_records_total",
        "counter",
        "Records given up because their destination was away for too long.",
        ("destination",),
        per_queue=False,
    ),
    Metric(
        "queuewatch_outbox_deliveries_total",
        "counter",
        "Batches of records sent to a destination: ok, or failed (tried again).",
        ("destination", "result"),
        per_queue=False,
    ),
)
"""What the sinks say of themselves, since their process began: no snapshot carries it."""

METRIC_BY_NAME: Mapping[str, Metric] = {m.name: m for m in (*METRICS, *SINK_METRICS)}
assert tuple(METRIC_BY_NAME) == get_args(MetricName)


class Sample(NamedTuple):
    """One line of exposition: `name` is the series' name (histograms carry `_bucket`, `_count` or `_sum`)."""

    name: str
    labels: dict[str, str]
    value: float


def samples(snapshot: Snapshot, now_ms: int) -> Iterator[Sample]:
    """Every sample of `snapshot`, with ages as of `now_ms` (epoch milliseconds): queue by queue, then the others.

    What is not known has no sample.
    """
    for queue in snapshot.queues:
        own = tuple(queue.name)
        for metric in METRICS:
            if metric.info is not None:
                labels = dict(zip(QUEUE_LABELS, own, strict=True)) | dict(metric.info(queue))
                yield Sample(metric.name, labels, 1)
            for suffix, values, value in metric.parts(queue, now_ms):
                yield _sample(metric, metric.name + suffix, own + values, value)
    for metric in METRICS:
        if metric.of_snapshot is not None:
            for values, value in metric.of_snapshot(snapshot):
                yield _sample(metric, metric.name, values, value)


def _sample(metric: Metric, name: str, values: tuple[str, ...], value: float) -> Sample:
    names = (*QUEUE_LABELS, *metric.labels) if metric.per_queue else metric.labels
    return Sample(name, dict(zip(names, values, strict=False)), value)
