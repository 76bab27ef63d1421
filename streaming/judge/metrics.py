"""Every metric queuewatch publishes, and how a snapshot becomes samples. The only place where a metric is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from streaming.core.settings import QueueName
from streaming.judge.snapshot import AGE_BUCKETS_S, BASES, QUEUE_STATUSES, TOTALS, QueueView, Snapshot

MetricName = Literal[
    "queuewatch_queue_messages",
    "queuewatch_tracked_messages",
    "queuewatch_telemetry_basis",
    "queuewatch_oldest_message_age_seconds",
    "queuewatch_oldest_message_timestamp_seconds",
    "queuewatch_oldest_message_age_exact",
    "queuewatch_message_age_seconds",
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


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family. `labels` come after the three of every queue metric when `per_queue`."""

    name: MetricName
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    per_queue: bool = True
    ages: bool = False
    """True: the value is an age, computed when it is read."""


OTHER = "other"
"""The name under which groups and consumers beyond the top K are folded."""

QUEUE_LABELS = ("system", "scope_id", "queue")

METRICS: tuple[Metric, ...] = (
    Metric(
        "queuewatch_queue_messages",
        "gauge",
        "Messages of the queue by state: those tracked where all are reported, else the broker's own count.",
        ("state",),
    ),
    Metric("queuewatch_tracked_messages", "gauge", "Unsettled messages known one by one, by state.", ("state",)),
    Metric(
        "queuewatch_telemetry_basis",
        "gauge",
        "1 for the kind of knowledge there is of the queue, 0 for the others.",
        ("basis",),
    ),
    Metric(
        "queuewatch_oldest_message_age_seconds",
        "gauge",
        "Age of the oldest unsettled message: all; visible to a consumer now; as CloudWatch would show; without poison suspects.",
        ("scope",),
        ages=True,
    ),
    Metric(
        "queuewatch_oldest_message_timestamp_seconds",
        "gauge",
        "Unix time from which the age of the oldest unsettled message counts, per scope.",
        ("scope",),
    ),
    Metric(
        "queuewatch_oldest_message_age_exact",
        "gauge",
        "1 where the age of the oldest message is exact, 0 where it is at least so old.",
        ("scope",),
    ),
    Metric(
        "queuewatch_message_age_seconds",
        "histogram",
        "Ages of the unsettled messages as of the last batch.",
        ("le",),
    ),
    Metric("queuewatch_messages_sent_total", "counter", "Messages that entered the queue."),
    Metric("queuewatch_messages_received_total", "counter", "Deliveries to consumers, redeliveries included."),
    Metric("queuewatch_messages_deleted_total", "counter", "Messages acknowledged."),
    Metric(
        "queuewatch_messages_dead_lettered_total",
        "counter",
        "Messages moved from this queue to its dead-letter queue.",
    ),
    Metric(
        "queuewatch_messages_redriven_total",
        "counter",
        "Messages moved from this dead-letter queue back to another queue.",
    ),
    Metric("queuewatch_messages_expired_total", "counter", "Messages lost because their retention ran out."),
    Metric(
        "queuewatch_messages_dropped_total",
        "counter",
        "Messages lost because their retries ran out without a dead-letter queue.",
    ),
    Metric(
        "queuewatch_messages_reconciled_total",
        "counter",
        "Messages no longer tracked because the broker's own counts said empty.",
    ),
    Metric("queuewatch_receive_count_max", "gauge", "Highest receive count of an unsettled message."),
    Metric(
        "queuewatch_poison_messages",
        "gauge",
        "Unsettled messages received so often that they are poison suspects.",
    ),
    Metric("queuewatch_stuck_groups", "gauge", "Ordering groups in which nothing moves behind a stuck head."),
    Metric(
        "queuewatch_group_oldest_message_age_seconds",
        "gauge",
        "Age of the oldest unsettled message per ordering group: the oldest groups by name, the rest as other.",
        ("group",),
        ages=True,
    ),
    Metric("queuewatch_groups", "gauge", "Ordering groups by state; a group can be in several.", ("state",)),
    Metric(
        "queuewatch_dead_letter_expiry_seconds",
        "gauge",
        "Seconds until the first message of this dead-letter queue is lost to retention.",
        ages=True,
    ),
    Metric(
        "queuewatch_time_to_drain_seconds",
        "gauge",
        "Seconds until the backlog is gone at the present rate; absent unless draining.",
    ),
    Metric("queuewatch_queue_status", "gauge", "1 for the status the queue is in, 0 for the others.", ("status",)),
    Metric(
        "queuewatch_consumer_oldest_held_seconds",
        "gauge",
        "How long a consumer has held its oldest message: the longest by name, the rest as other.",
        ("consumer",),
        ages=True,
    ),
    Metric(
        "queuewatch_signals",
        "gauge",
        "Signals firing now, without those that another signal of the queue explains.",
        ("signal", "severity"),
    ),
    Metric(
        "queuewatch_signals_folded",
        "gauge",
        "Signals firing now that another signal explains: counted and listed, not announced by themselves.",
        ("signal", "folded_into"),
    ),
    Metric(
        "queuewatch_telemetry_coverage_ratio",
        "gauge",
        "Tracked messages as a share of the broker's own count.",
    ),
    Metric(
        "queuewatch_telemetry_last_event_timestamp_seconds",
        "gauge",
        "Unix time of the last sign of life of a collector.",
        ("collector",),
        per_queue=False,
    ),
    Metric(
        "queuewatch_telemetry_clock_skew_seconds",
        "gauge",
        "How far senders' clocks ran ahead at worst; absent when they did not.",
    ),
    Metric(
        "queuewatch_events_total",
        "counter",
        "Telemetry events read, by what became of them.",
        ("result",),
        per_queue=False,
    ),
    Metric(
        "queuewatch_events_invalid_total",
        "counter",
        "Telemetry events that could not be read, by reason.",
        ("reason",),
        per_queue=False,
    ),
    Metric(
        "queuewatch_folded_total",
        "counter",
        "Things folded into other or left out by a cap.",
        ("what",),
        per_queue=False,
    ),
    Metric("queuewatch_pipeline_lag_events", "gauge", "Telemetry records waiting in the source.", per_queue=False),
    Metric(
        "queuewatch_pipeline_lag_seconds",
        "gauge",
        "Age of the newest event when its batch was published.",
        per_queue=False,
    ),
    Metric("queuewatch_pipeline_batch_duration_seconds", "gauge", "Duration of the last batch.", per_queue=False),
    Metric("queuewatch_pipeline_state_bytes", "gauge", "Size of the packed state of all shards.", per_queue=False),
    Metric(
        "queuewatch_pipeline_state_rows",
        "gauge",
        "Messages in the state, recently ended ones included.",
        per_queue=False,
    ),
    Metric(
        "queuewatch_pipeline_events_per_second",
        "gauge",
        "Events per second in the last batch.",
        per_queue=False,
    ),
    Metric(
        "queuewatch_pipeline_last_batch_timestamp_seconds",
        "gauge",
        "Unix time of the last batch published.",
        per_queue=False,
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
    """Every sample of `snapshot`, with ages as of `now_ms` (epoch milliseconds). What is not known has no sample."""
    firing: dict[tuple[str, str, str], dict[tuple[str, str], int]] = {}
    for finding in snapshot.firing:
        key = finding.key
        if finding.folded is not None:
            continue
        counts = firing.setdefault((key.system, key.scope, key.queue), {})
        counts[key.signal, finding.severity] = counts.get((key.signal, finding.severity), 0) + 1
    for queue in snapshot.queues:
        base = {"system": queue.system, "scope_id": queue.scope, "queue": queue.queue}
        yield from _queue_samples(queue, base, now_ms)
        yield from _signal_samples(firing.pop((queue.system, queue.scope, queue.queue), {}), base)
    for (system, scope, name), counts in firing.items():
        yield from _signal_samples(counts, {"system": system, "scope_id": scope, "queue": name})
    yield from _folded_samples(snapshot)
    yield from _watcher_samples(snapshot)


def _folded_samples(snapshot: Snapshot) -> Iterator[Sample]:
    for (queue, signal, folded), count in sorted(folded_counts(snapshot).items()):
        labels = dict(zip(QUEUE_LABELS, queue, strict=True)) | {"signal": signal, "folded_into": folded}
        yield Sample("queuewatch_signals_folded", labels, count)


def folded_counts(snapshot: Snapshot) -> Counter[tuple[QueueName, str, str]]:
    """By queue, signal and the signal that explains it: how many fire."""
    counts: Counter[tuple[QueueName, str, str]] = Counter()
    for finding in snapshot.firing:
        if finding.folded is not None:
            counts[finding.key.queue_name, finding.key.signal, finding.folded] += 1
    return counts


def _age_s(now_ms: int, since_ms: int) -> float:
    # A sender's clock may run ahead of ours: an age is never negative.
    return max(0, now_ms - since_ms) / 1000


def _queue_samples(queue: QueueView, base: dict[str, str], now_ms: int) -> Iterator[Sample]:
    for state, count in (
        ("visible", queue.visible),
        ("in_flight", queue.in_flight),
        ("delayed", queue.delayed),
    ):
        if count is not None:
            yield Sample("queuewatch_queue_messages", base | {"state": state}, count)
    for state, count in queue.tracked_states.items():
        yield Sample("queuewatch_tracked_messages", base | {"state": state}, count)
    for basis in BASES:
        yield Sample("queuewatch_telemetry_basis", base | {"basis": basis}, int(basis == queue.basis))
    for scope, since_ms in queue.oldest_ms.items():
        yield Sample("queuewatch_oldest_message_age_exact", base | {"scope": scope}, int(scope in queue.exact_ages))
        yield Sample("queuewatch_oldest_message_age_seconds", base | {"scope": scope}, _age_s(now_ms, since_ms))
        yield Sample("queuewatch_oldest_message_timestamp_seconds", base | {"scope": scope}, since_ms / 1000)
    if queue.tracked and queue.age_counts:
        cumulated = 0
        for upper_s, count in zip((*AGE_BUCKETS_S, float("inf")), queue.age_counts, strict=True):
            cumulated += count
            yield Sample("queuewatch_message_age_seconds_bucket", base | {"le": le_label(upper_s)}, cumulated)
        yield Sample("queuewatch_message_age_seconds_count", base, cumulated)
        yield Sample("queuewatch_message_age_seconds_sum", base, queue.age_sum_s)
    for total in TOTALS:
        if total in queue.totals:
            yield Sample(f"queuewatch_messages_{total}_total", base, queue.totals[total])
    for name, number in (
        ("queuewatch_receive_count_max", queue.receive_count_max),
        ("queuewatch_poison_messages", queue.poison_messages),
    ):
        if number is not None:
            yield Sample(name, base, number)
    if queue.groups:
        yield Sample("queuewatch_stuck_groups", base, queue.stuck_groups)
        for group_state, count in queue.groups.items():
            yield Sample("queuewatch_groups", base | {"state": group_state}, count)
    for name, since_ms in _with_other(
        ((group.group, group.oldest_sent_at_ms) for group in queue.top_groups), queue.other_groups_oldest_ms
    ):
        age_s = _age_s(now_ms, since_ms)
        yield Sample("queuewatch_group_oldest_message_age_seconds", base | {"group": name}, age_s)
    if queue.dead_letter_expires_at_ms is not None:
        left_s = _age_s(queue.dead_letter_expires_at_ms, now_ms)
        yield Sample("queuewatch_dead_letter_expiry_seconds", base, left_s)
    if queue.time_to_drain_s is not None:
        yield Sample("queuewatch_time_to_drain_seconds", base, queue.time_to_drain_s)
    for status in QUEUE_STATUSES:
        yield Sample("queuewatch_queue_status", base | {"status": status}, int(status == queue.status))
    held = ((one.consumer, one.oldest_held_since_ms) for one in queue.consumers)
    for name, since_ms in _with_other(held, queue.other_consumers_held_since_ms):
        held_s = _age_s(now_ms, since_ms)
        yield Sample("queuewatch_consumer_oldest_held_seconds", base | {"consumer": name}, held_s)
    if queue.coverage_ratio is not None:
        yield Sample("queuewatch_telemetry_coverage_ratio", base, queue.coverage_ratio)
    if queue.clock_skew_s:
        yield Sample("queuewatch_telemetry_clock_skew_seconds", base, queue.clock_skew_s)


def _with_other(named: Iterable[tuple[str, int | None]], other_ms: int | None) -> Iterator[tuple[str, int]]:
    """Names with their times, and `other` once: a group or consumer that is really called so is counted in it."""
    for name, since_ms in named:
        if name == OTHER and since_ms is not None:
            other_ms = since_ms if other_ms is None else min(since_ms, other_ms)
        elif since_ms is not None:
            yield name, since_ms
    if other_ms is not None:
        yield OTHER, other_ms


def _signal_samples(counts: Mapping[tuple[str, str], int], base: dict[str, str]) -> Iterator[Sample]:
    for (signal, severity), count in sorted(counts.items()):
        yield Sample("queuewatch_signals", base | {"signal": signal, "severity": severity}, count)


def _watcher_samples(snapshot: Snapshot) -> Iterator[Sample]:
    for collector, last_ms in sorted(snapshot.collectors.items()):
        name = "queuewatch_telemetry_last_event_timestamp_seconds"
        yield Sample(name, {"collector": collector}, last_ms / 1000)
    for result in ("accepted", "duplicate", "late", "ahead", "invalid"):
        yield Sample("queuewatch_events_total", {"result": result}, snapshot.events_total.get(result, 0))
    for reason, count in sorted(snapshot.invalid_total.items()):
        yield Sample("queuewatch_events_invalid_total", {"reason": reason}, count)
    for what, count in sorted(snapshot.folded.items()):
        yield Sample("queuewatch_folded_total", {"what": what}, count)
    pipeline = snapshot.pipeline
    optional: tuple[tuple[MetricName, float | None], ...] = (
        ("queuewatch_pipeline_lag_events", pipeline.lag_events),
        ("queuewatch_pipeline_lag_seconds", pipeline.lag_s),
        ("queuewatch_pipeline_batch_duration_seconds", pipeline.batch_duration_s),
        ("queuewatch_pipeline_state_bytes", pipeline.state_bytes),
        ("queuewatch_pipeline_state_rows", pipeline.state_rows),
        ("queuewatch_pipeline_events_per_second", pipeline.events_per_s),
        (
            "queuewatch_pipeline_last_batch_timestamp_seconds",
            None if pipeline.last_batch_at_ms is None else pipeline.last_batch_at_ms / 1000,
        ),
    )
    for name, value in optional:
        if value is not None:
            yield Sample(name, {}, value)


def le_label(upper_s: float) -> str:
    """A bucket's bound as Prometheus' own clients write it: `1.0`, `+Inf`."""
    return "+Inf" if upper_s == float("inf") else str(float(upper_s))
