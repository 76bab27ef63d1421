"""Telemetry problems: silent collectors, messages that are not tracked, events that cannot be read."""

from __future__ import annotations

from alerts.checks import watcher
from alerts.entries import links
from alerts.entry import AlertSpec, Entry, EvidenceField, Limit
from alerts.signal_alert import arrivals_alert, signal_alert
from alerts.templating import QUEUE, companion, own_value

SILENT_COLLECTORS = (
    "{{ range $i, $silent := printf "
    '"sort_desc(topk(%%.0f, time() - queuewatch_telemetry_last_event_timestamp_seconds{job=%%q%(kept_matchers)s}))" '
    "$value $labels.job%(kept_values)s | query }}"
    '{{ if $i }}, {{ end }}{{ $silent | label "collector" }} ({{ $silent | value | humanizeDuration }})'
    "{{ else }}unknown{{ end }}"
)
"""Names of the collectors that have been silent longest, as many as the signal counts, each with how long."""

TELEMETRY_STALE = Entry(
    name="TelemetryStale",
    group="telemetry",
    subject="collector",
    meaning=(
        "A collector stopped sending heartbeats. Ages still grow, because windows end by time, but it is unknown which messages "
        "were settled in the meantime: do not trust the ages of its queues until it is back. Instrumented applications send no "
        "heartbeats, so this alert does not notice when one of them falls silent. Each further silent collector notifies again."
    ),
    rule=(
        "The collector has sent nothing for {telemetry_stale_s}, not even a heartbeat. Only `judge.thresholds` sets this time: a "
        "collector belongs to no queue, so an entry of `queues` has no effect here.",
    ),
    thresholds=("telemetry_stale_s",),
    severity="warning",
    alert=arrivals_alert(
        "TelemetryStale",
        "collectors",
        (
            "The signal, with the number of silent collectors as the label `collectors`: one that falls silent while another is "
            "known to be silent notifies too, which a changed annotation would not. QueueStale inhibits the alerts of its queues."
        ),
        "A collector stopped reporting, so the values of its queues are outdated.",
        f"Silent collectors: {own_value('count')} ({SILENT_COLLECTORS}). Do not trust ages and stalls of their queues until "
        "they report again.",
        identity=("job",),
    ),
    dashboard="pipeline",
    evidence=(
        EvidenceField("collector", "its name"),
        EvidenceField("silent_s", "seconds since its last event"),
        EvidenceField("last_event_at", "time of its last event, in milliseconds since 1970"),
    ),
    checks={},
    watcher_checks=(
        watcher.collectors("which one is silent, and since when"),
        watcher.collector_logs("refused credentials, an unreachable broker, a full spool"),
        watcher.newest_events("whether anything arrives in the topic at all"),
        watcher.ready("whether queuewatch itself reads events"),
        watcher.topic("whether the topic exists and keeps records long enough"),
    ),
    fix=(
        "Check the collector's log for the reason (credentials, network, permissions), then restart it.",
        "If the collector was stopped on purpose, nothing is wrong: it is forgotten a day after its last heartbeat.",
        "If no collector can reach the topic, repair Kafka first.",
    ),
    ignore=("A collector that runs only occasionally: raise telemetry_stale_s under `judge.thresholds`.",),
    links=(links.ACTIVEMQ_ADVISORIES,),
)

TELEMETRY_PARTIAL = Entry(
    name="TelemetryPartial",
    group="telemetry",
    subject="queue",
    meaning=(
        "queuewatch tracks clearly fewer or more messages of the queue than the broker counts. A producer or consumer is not "
        "instrumented, or events are lost. Signals about single messages of this queue may be missing or outdated."
    ),
    rule=(
        "The tracked messages are less than {coverage_low_ratio} or more than {coverage_high_ratio} of the broker's count.",
        "This has lasted for {coverage_s}.",
    ),
    thresholds=("coverage_low_ratio", "coverage_high_ratio", "coverage_s"),
    severity="info",
    alert=signal_alert(
        "TelemetryPartial",
        "Tracked messages and the broker's own count disagree.",
        f"queuewatch tracks {companion('queuewatch_telemetry_coverage_ratio', 'percent')} of the messages that the broker "
        f"counts in {QUEUE}. Removed from tracking without a reported end: "
        f"{companion('queuewatch_messages_reconciled_total', 'count')}. Open findings: {own_value('count')}.",
    ),
    dashboard="pipeline",
    evidence=(
        EvidenceField("tracked", "messages that are tracked individually"),
        EvidenceField("broker_count", "messages counted by the broker"),
        EvidenceField("coverage_ratio", "tracked messages divided by the broker's count; 1 is correct"),
        EvidenceField("off_s", "seconds outside the allowed range"),
    ),
    checks={},
    watcher_checks=(
        watcher.coverage("which queues, and whether too few (missing sends) or too many (missing deletes)"),
        watcher.collectors("whether all producers and consumers of the queue report"),
        watcher.events("late or invalid events: telemetry that arrives but is not used"),
        watcher.reconciled("a growing number: deletions that are never reported"),
        watcher.collector_logs("events dropped because of a full buffer, permission errors"),
    ),
    fix=(
        "Too few tracked: find the producer or consumer that is not instrumented. A message is tracked from its first event on.",
        "Too many tracked: a consumer deletes without reporting it. Its messages are removed once the broker reports an empty "
        "queue.",
        "Moves to a dead-letter queue are not seen yet: no action is needed. SQS does not report them; they are inferred, most "
        "of them once a failing consumer has recovered.",
        "Events dropped because of a full buffer: use a larger buffer in the sender, or a faster transport.",
    ),
    ignore=("Right after the first start on a queue with a backlog: earlier messages are unknown until they are received.",),
    links=(links.SQS_QUOTAS,),
)

COLLECTOR_SILENT = Entry(
    name="CollectorSilent",
    group="telemetry",
    subject="collector",
    meaning=(
        "A collector has sent nothing for a long time. This alert reads the raw timestamp, so unlike TelemetryStale it fires "
        "even if the job itself hangs."
    ),
    rule=(
        "For {wait}, the collector's last event has been older than {limit}.",
        "It does not fire while queuewatch itself is more than a minute behind its source: the collector's newer events have "
        "not been read yet.",
    ),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr=(
            "time() - max by (%(by)s) (queuewatch_telemetry_last_event_timestamp_seconds unless ignoring (collector)"
            " (queuewatch_pipeline_lag_seconds > 60 and sum without (result) (increase(queuewatch_events_total[5m])) > 0))"
            " > %(limit)s"
        ),
        why="The raw timestamp is used because its age grows even while nothing is judged.",
        summary="A collector has been silent for a long time.",
        description=(
            f"Collector {{{{ $labels.collector }}}} sent its last event {own_value('duration')} ago. The values of its queues "
            "are equally old."
        ),
        identity=("job", "collector"),
        for_s=60.0,
        limit=Limit(600.0, "seconds", "maximum silence of a collector"),
    ),
    dashboard="pipeline",
    evidence=(EvidenceField("queuewatch_telemetry_last_event_timestamp_seconds", "the time of its last event"),),
    checks={},
    watcher_checks=(
        watcher.collectors("one silent collector, or all of them"),
        watcher.pipeline(
            "if queuewatch_pipeline_last_batch_timestamp_seconds is recent, the job is fine and the collector is not"
        ),
        watcher.collector_logs("the reason it stopped"),
        watcher.newest_events("whether it still writes"),
        watcher.collector_pods("a collector that was killed or cannot be scheduled"),
    ),
    fix=(
        "Restart the collector.",
        "If all are silent at once, repair the topic or the network between them and queuewatch.",
    ),
    ignore=("A collector that was removed for good: its series ends a day after its last heartbeat.",),
    links=(links.ACTIVEMQ_ADVISORIES,),
)

COVERAGE_LOW = Entry(
    name="CoverageLow",
    group="telemetry",
    subject="queue",
    meaning=(
        "Too few messages of the queue are tracked, or too many tracked messages no longer exist, for signals about single "
        "messages to be reliable. Counts and the broker's own values are still valid."
    ),
    rule=(
        "For {wait}, the tracked messages have been less than {limit} of the broker's count, or the count less than {limit} of "
        "the tracked messages.",
        "It does not fire for a queue with only broker counts (basis `counts`), because nothing is tracked there.",
    ),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr=(
            "max by (%(by)s) ("
            '(queuewatch_telemetry_coverage_ratio{queue!=""%(match)s} < %(limit)s'
            ' or queuewatch_telemetry_coverage_ratio{queue!=""%(match)s} > 1 / %(limit)s)'
            ' unless on (%(on)s) queuewatch_telemetry_basis{basis="counts"%(match)s} == 1)'
        ),
        why="A second step after TelemetryPartial: the raw ratio, with a limit far outside that signal's range and its own wait.",
        summary="The tracked messages of a queue differ widely from the broker's count.",
        description=(
            f"The {companion('queuewatch_tracked_messages', 'count', function='sum')} tracked message(s) of {QUEUE} are "
            f"{own_value('percent')} of the broker's count. Poison messages, stuck groups and ages of this "
            "queue are incomplete."
        ),
        for_s=1800.0,
        limit=Limit(0.5, "ratio", "minimum ratio of tracked messages to the broker's count"),
    ),
    dashboard="pipeline",
    evidence=(EvidenceField("queuewatch_telemetry_coverage_ratio", "tracked messages divided by the broker's count"),),
    checks={},
    watcher_checks=(
        watcher.coverage("which queues are affected"),
        watcher.collectors("whether its producers report"),
        watcher.events("events that arrive but are not used"),
        watcher.reconciled("messages that were removed"),
        watcher.collector_logs("events dropped because of a full buffer, permission errors"),
    ),
    fix=(
        "Instrument the missing producers and consumers; the documentation of each source says how.",
        "If that is not possible, rely on the queue's counts and set `exclude_queues` for this alert in `alerts.rules` of the "
        "configuration.",
    ),
    ignore=("A queue that is watched through its attributes only.",),
    links=(links.SQS_QUOTAS,),
)

INVALID_EVENTS = Entry(
    name="InvalidEvents",
    group="telemetry",
    subject="telemetry",
    meaning=(
        "A noticeable part of the telemetry cannot be read, or is about more queues, messages or collectors than the limits "
        "allow. It is counted, what cannot be read is quarantined, and the rest is processed; but its information is missing."
    ),
    rule=("For {wait}, more than {limit} of all events of the last ten minutes could not be read, or were beyond a limit.",),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr="job:queuewatch_events_invalid:ratio_rate10m > %(limit)s",
        why="A recording rule computes the ratio of raw counters, so the dashboard shows exactly the value the alert compares.",
        summary="Part of the telemetry cannot be read or is beyond a limit.",
        description=(
            f"{own_value('percent')} of the events cannot be read or are beyond a limit. The reasons are in "
            "queuewatch_events_invalid_total: those beginning with too_many are limits. Unreadable events are in quarantine."
        ),
        identity=("job",),
        for_s=300.0,
        limit=Limit(0.01, "ratio", "maximum share of events that are unreadable or beyond a limit"),
    ),
    dashboard="pipeline",
    evidence=(EvidenceField("queuewatch_events_invalid_total", "events that were not processed, by reason"),),
    checks={},
    watcher_checks=(
        watcher.events("the reason that grows"),
        watcher.newest_events("what a record looks like"),
        watcher.logs("the first bad events, with the reason and where they came from"),
        watcher.collector_logs("a sender of another version"),
        watcher.config("where unreadable events are kept: look at them"),
    ),
    fix=(
        "Use the quarantined event to find the sender, and repair or update it.",
        "If another program writes to the topic, use a separate topic for telemetry.",
        "If the reason is too_many_queues or too_many_collectors, find the sender that invents names; if they are real, raise "
        "judge.max_queues or judge.max_collectors.",
        "If the reason is too_many_messages, a backlog is larger than the workers may track: drain it, or give them more "
        "memory and raise judge.max_messages_per_shard. If it is far smaller than that, its message ids or names of "
        "groups are long: raise spark.shards, because a shard stores 1 GiB of ids and 256 MiB of names at most. Ages of its "
        "queue are lower bounds until then.",
        "If the reason is reused_id, a sender uses one message id for many messages: the log, and the quarantine where one is "
        "configured, name the queue and the id. Give each message an id of its own. Until then, totals of the queue are too low.",
    ),
    ignore=("A test that sends broken events on purpose.",),
    links=(),
)

LATE_EVENTS = Entry(
    name="LateEvents",
    group="telemetry",
    subject="telemetry",
    meaning=(
        "A noticeable part of the telemetry arrives later than the lateness allows. Such an event still updates a message that "
        "is known. A message with only late events is not tracked: totals and coverage are too low."
    ),
    rule=("For {wait}, more than {limit} of all events of the last ten minutes arrived later than the lateness allows.",),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr="job:queuewatch_events_late:ratio_rate10m > %(limit)s",
        why="A recording rule computes the ratio of raw counters, so the dashboard shows exactly the value the alert compares.",
        summary="Part of the telemetry arrives too late.",
        description=(
            f"{own_value('percent')} of the events arrive later than the configured lateness. Messages with only late events are "
            "not tracked."
        ),
        identity=("job",),
        for_s=300.0,
        limit=Limit(0.01, "ratio", "maximum share of late events"),
    ),
    dashboard="pipeline",
    evidence=(EvidenceField('queuewatch_events_total{result="late"}', "events that arrived too late"),),
    checks={},
    watcher_checks=(
        watcher.events("late events compared with accepted ones"),
        watcher.skew("senders whose clocks run ahead make all others look late"),
        watcher.collectors("a collector that was down and now sends its buffered events"),
        watcher.consumer_lag("a large lag on the topic"),
        watcher.clocks("whether this host's own clock is right"),
    ),
    fix=(
        "If a sender is catching up after an outage, wait: the alert resolves without action.",
        "If a clock runs ahead, repair its time synchronisation.",
        "If some telemetry always takes this long to arrive, raise judge.lateness_s; this makes the state larger.",
    ),
    ignore=("Just after a long outage of Kafka or of a collector.",),
    links=(),
)

CLOCK_SKEW = Entry(
    name="ClockSkew",
    group="telemetry",
    subject="queue",
    meaning=("A sender's clock runs ahead. Its messages look younger than they are, and events of other senders look late."),
    rule=("A sender of the queue has been ahead by more than {limit} for {wait}.",),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr='max by (%(by)s) (max_over_time(queuewatch_telemetry_clock_skew_seconds{queue!=""%(match)s}[15m])) > %(limit)s',
        why="The judge only reports leads beyond the skew allowance. The value restarts every hour: its latest maximum counts.",
        summary="A sender's clock runs ahead.",
        description=(
            f"The clock of a sender of {QUEUE} is {own_value('duration')} ahead. The ages of its messages are too low by the "
            "same amount."
        ),
        for_s=900.0,
        limit=Limit(60.0, "seconds", "maximum lead of a sender's clock"),
    ),
    dashboard="pipeline",
    evidence=(EvidenceField("queuewatch_telemetry_clock_skew_seconds", "how far the worst sender is ahead, in seconds"),),
    checks={},
    watcher_checks=(
        watcher.skew("the affected queues: check the clocks of their senders"),
        watcher.clocks("whether it is this host that lags behind"),
        watcher.newest_events("`at` of the newest events, by consumer"),
        watcher.collectors("a timestamp in the future"),
        watcher.events("late events as a consequence"),
    ),
    fix=("Turn on time synchronisation on the machine whose clock is wrong.",),
    ignore=("A virtual machine that was just resumed.",),
    links=(),
)

CLOCK_UNTRUSTED = Entry(
    name="ClockUntrusted",
    group="telemetry",
    subject="clock",
    meaning=(
        "The clock of the machine queuewatch runs on jumped, or senders date their events in the future. Outcomes that depend on "
        "time (retention, unreported moves) are not inferred from an unconfirmed time, so they may be shown late."
    ),
    rule=(
        "Between two batches the clock moved forward by an hour or more, or back by a quarter of an hour or more, and neither "
        "the sources' timestamps nor a minute of silence confirms it; or",
        "an event was dated more than the skew allowance in the future within the last ten minutes.",
    ),
    thresholds=(),
    severity="warning",
    alert=signal_alert(
        "ClockUntrusted",
        "A clock cannot be trusted: queuewatch's own jumped, or senders are ahead.",
        "The clock of the machine queuewatch runs on jumped, or senders date events in the future. Signals that depend on "
        "elapsed time may be late.",
        identity=("job",),
    ),
    dashboard="pipeline",
    evidence=(
        EvidenceField("jump_s", "difference between the clock and the time that queuewatch uses, in seconds"),
        EvidenceField("batches", "for how many batches this has lasted"),
        EvidenceField("sources_for", "sources whose timestamps support the clock"),
        EvidenceField("sources_against", "sources whose timestamps support the time that queuewatch uses"),
        EvidenceField("ahead_total", "total number of events dated in the future"),
        EvidenceField("allowance_s", "how far in the future an event may be dated, in seconds"),
    ),
    checks={},
    watcher_checks=(
        watcher.clocks("whether this host's own clock is right"),
        watcher.skew("which queues, and by how many seconds"),
        watcher.events("how many events are ahead"),
        watcher.newest_events("`at` of the newest events, by consumer"),
        watcher.collectors("whether the collectors report again"),
    ),
    fix=(
        "Repair the time synchronisation of the machine, or of the senders. queuewatch then catches up without further action.",
        "After a planned stop of more than an hour, do nothing: the alert ends as soon as the collectors report again.",
    ),
    ignore=("The first minute after a long stop of the service.",),
    links=(),
)

ENTRIES = (
    TELEMETRY_STALE,
    TELEMETRY_PARTIAL,
    CLOCK_UNTRUSTED,
    COLLECTOR_SILENT,
    COVERAGE_LOW,
    INVALID_EVENTS,
    LATE_EVENTS,
    CLOCK_SKEW,
)
