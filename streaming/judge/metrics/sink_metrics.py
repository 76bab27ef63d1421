"""Metrics the sinks report about themselves since their process started: no snapshot carries them."""

from __future__ import annotations

from streaming.judge.metrics.metric import Metric

SINK_METRICS: tuple[Metric, ...] = (
    Metric(
        "queuewatch_build_info",
        "gauge",
        "Always 1; the labels are the versions of queuewatch and of its Python.",
        ("version", "python"),
        per_queue=False,
    ),
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
        "Connections refused (total, per_address) or ended (slow_headers, slow_body, slow_reader) by a limit.",
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
        "Files of the spool folder that were gone before they were read, or refused because they are too large, since the "
        "checkpoint began.",
        ("reason",),
        per_queue=False,
    ),
    Metric(
        "queuewatch_pipeline_offset_resets_total",
        "counter",
        "Kafka partitions whose offsets were reset because the topic was recreated; they are read from the beginning.",
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
"""Metrics the sinks report about themselves since their process started: no snapshot carries them."""
