"""The dashboard of queuewatch itself: is it up, does it keep up, does it get enough telemetry."""

from __future__ import annotations

from alerts.dashboards.promql import JOB, limit_line, of_job, signal_lines, where
from alerts.dashboards.spec import Board, Context, Line, Panel, Query, Row

_QUEUE = "{{system}} {{scope_id}} {{queue}}"


def pipeline(context: Context) -> Board:
    """Return the dashboard of queuewatch itself."""
    return Board(
        "pipeline",
        "queuewatch / Pipeline",
        "queuewatch itself: if this dashboard shows problems, do not trust the others.",
        (
            Row("Alive", _alive(context)),
            Row("Pace", _pace(context)),
            Row("Telemetry", (*_reporting(context), *_results(context), *_doubts(context))),
        ),
        ("job", "instance"),
    )


def _alive(context: Context) -> tuple[Panel, ...]:
    last = of_job("queuewatch_pipeline_last_batch_timestamp_seconds")
    about_telemetry = of_job("queuewatch_signals", ('signal=~"TelemetryStale|TelemetryPartial"'))
    return (
        Panel(
            "timeseries",
            "Successful scrapes",
            "1 while Prometheus can scrape the instance. No line: it has no such target.",
            queries=(Query(f"up{{{JOB}}}", "{{instance}}"),),
            width=8,
            lines=(
                Line("JobDown", 1, below=True),
                Line("JobAbsent", 1, below=True),
                Line("NotPublishing", 1, below=True),
            ),
        ),
        Panel(
            "timeseries",
            "Age of the last batch",
            "Seconds since the last publication. Grows when judging stops.",
            "s",
            (Query(f"time() - max by (job) ({last})", "{{job}}"),),
            width=8,
            lines=(limit_line("NoRecentBatch", context),),
        ),
        Panel(
            "timeseries",
            "Signals about telemetry",
            "Findings that are firing: the exact series these alerts compare with zero.",
            queries=(
                Query(
                    f"max by (signal, severity, system, scope_id, queue) ({about_telemetry})",
                    f"{{{{signal}}}} {{{{severity}}}} {_QUEUE}",
                ),
            ),
            width=8,
            lines=signal_lines("TelemetryStale", "TelemetryPartial"),
        ),
    )


def _pace(context: Context) -> tuple[Panel, ...]:
    def one(metric: str) -> tuple[Query, ...]:
        return (Query(f"max by (job) ({of_job(metric)})", "{{job}}"),)

    return (
        Panel(
            "timeseries",
            "Lag",
            "Age of the newest event when its batch was published: how late every signal is.",
            "s",
            one("queuewatch_pipeline_lag_seconds"),
            width=8,
            lines=(limit_line("PipelineLagging", context),),
        ),
        Panel(
            "timeseries",
            "Records waiting",
            "Telemetry records in the source that no batch has read yet. Above the line and growing: queuewatch falls behind.",
            queries=one("queuewatch_pipeline_lag_records"),
            width=8,
            lines=(limit_line("FallingBehind", context),),
        ),
        Panel(
            "timeseries",
            "Batch duration",
            "Duration of the last batch. Above the trigger interval, batches follow each other without a pause.",
            "s",
            one("queuewatch_pipeline_batch_duration_seconds"),
            width=8,
        ),
        Panel(
            "timeseries",
            "Events per second",
            "Throughput of the last batch.",
            "ops",
            one("queuewatch_pipeline_events_per_second"),
            width=8,
        ),
        Panel(
            "timeseries",
            "Messages in the state",
            "Tracked messages, including recently ended ones, which are remembered for the lateness.",
            queries=one("queuewatch_pipeline_state_rows"),
            width=8,
        ),
        Panel(
            "timeseries",
            "Size of the state",
            "The packed state of all shards: the size in the checkpoint, and part of the memory use.",
            "bytes",
            one("queuewatch_pipeline_state_bytes"),
            width=8,
        ),
    )


def _reporting(context: Context) -> tuple[Panel, ...]:
    """Return what shows whether all that happens is reported."""
    heard = of_job("queuewatch_telemetry_last_event_timestamp_seconds")
    coverage = of_job("queuewatch_telemetry_coverage_ratio")
    limits = context.thresholds
    return (
        Panel(
            "timeseries",
            "Silence of the collectors",
            "Seconds since each collector's last event. At or above the lower line, its queues count as stale.",
            "s",
            (Query(f"time() - max by (collector) ({heard})", "{{collector}}"),),
            lines=(Line("TelemetryStale", limits.telemetry_stale_s), limit_line("CollectorSilent", context)),
        ),
        Panel(
            "timeseries",
            "Coverage, least",
            "Tracked messages divided by the broker's own count, for the ten lowest queues. Values between the lines are fine.",
            "percentunit",
            (Query(f"bottomk(10, max by (system, scope_id, queue) ({coverage}))", _QUEUE),),
            lines=(
                limit_line("CoverageLow", context, below=True),
                Line("TelemetryPartial", limits.coverage_low_ratio, below=True),
            ),
        ),
        Panel(
            "timeseries",
            "Coverage, most",
            "The ten highest queues. Above the line, messages are tracked that the broker no longer has.",
            "percentunit",
            (Query(f"topk(10, max by (system, scope_id, queue) ({coverage}))", _QUEUE),),
            lines=(Line("TelemetryPartial", limits.coverage_high_ratio),),
        ),
    )


def _results(context: Context) -> tuple[Panel, ...]:
    """Return what became of the events that were read."""
    events = "queuewatch_events_total"
    total = f"sum by (job) (rate({of_job(events)}[$__rate_interval]))"

    def share(result: str) -> tuple[Query, ...]:
        part = f"sum by (job) (rate({of_job(events, where('result', result))}[$__rate_interval]))"
        return (Query(f"{part} / ({total} > 0) or {part}", "{{job}}"),)

    return (
        Panel(
            "timeseries",
            "Events by result",
            "Accepted, duplicate, late, ahead (dated in the future) and invalid events, per second.",
            "ops",
            (Query(f"sum by (result) (rate({of_job(events)}[$__rate_interval]))", "{{result}}"),),
            stacked=True,
        ),
        Panel(
            "timeseries",
            "Share of invalid events",
            "Events that are unreadable or beyond a limit, as a share of all events.",
            "percentunit",
            share("invalid"),
            width=8,
            lines=(limit_line("InvalidEvents", context),),
        ),
        Panel(
            "timeseries",
            "Share of late events",
            "Events that arrived later than the lateness allows, as a share of all events.",
            "percentunit",
            share("late"),
            width=8,
            lines=(limit_line("LateEvents", context),),
        ),
        Panel(
            "timeseries",
            "Invalid events by reason",
            "Events that could not be read or are beyond a limit, by reason, per second.",
            "ops",
            (
                Query(
                    f"sum by (reason) (rate({of_job('queuewatch_events_invalid_total')}[$__rate_interval]))",
                    "{{reason}}",
                ),
            ),
            width=8,
        ),
    )


def _doubts(context: Context) -> tuple[Panel, ...]:
    """Return what was lost or left out, and clocks that disagree."""
    return (
        Panel(
            "timeseries",
            "Clock skew",
            "How far the clock of a queue's worst sender runs ahead; no line if none does.",
            "s",
            (
                Query(
                    f"max by (system, scope_id, queue) ({of_job('queuewatch_telemetry_clock_skew_seconds')})",
                    _QUEUE,
                ),
            ),
            lines=(limit_line("ClockSkew", context),),
        ),
        Panel(
            "timeseries",
            "Left out by a cap",
            "Items folded into other or left out, in each interval. For messages the list of ids is incomplete.",
            queries=(Query(f"sum by (what) (increase({of_job('queuewatch_folded_total')}[$__rate_interval]))", "{{what}}"),),
            lines=(Line("FindingsCapped", 1),),
        ),
        Panel(
            "timeseries",
            "Telemetry lost before it was read",
            "Kafka records that were deleted from the topic, and spool files that were gone or refused, in each interval.",
            queries=(
                Query(
                    f"sum by (topic, partition) (increase({of_job('queuewatch_pipeline_lost_records_total')}[$__rate_interval]))",
                    "{{topic}} {{partition}}",
                ),
                Query(
                    f"sum by (reason) (increase({of_job('queuewatch_pipeline_lost_files_total')}[$__rate_interval]))",
                    "spool files: {{reason}}",
                ),
            ),
            lines=(Line("TelemetryLost", 1),),
        ),
        Panel(
            "timeseries",
            "Clocks that are not trusted",
            "1 while queuewatch's own clock is not trusted, or senders date events in the future.",
            queries=(
                Query(f"max by (signal) ({of_job('queuewatch_signals', where('signal', 'ClockUntrusted'))})", "{{signal}}"),
            ),
            lines=(Line("ClockUntrusted", 1),),
        ),
    )
