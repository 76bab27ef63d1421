"""What queuewatch is told: a collector that fell silent, messages it cannot account for, telemetry it cannot read."""

from __future__ import annotations

from alerts.checks import watcher
from alerts.entries import links
from alerts.entry import AlertSpec, Entry, EvidenceField, Limit
from alerts.signal_alert import signal_alert
from alerts.templating import QUEUE, companion, own_value
from alerts.units import number
from streaming.core.thresholds import Thresholds

SILENT_COLLECTORS = (
    "{{ range $i, $silent := printf "
    f'"sort_desc(time() - queuewatch_telemetry_last_event_timestamp_seconds{{job=%q}} '
    f'> {number(Thresholds().telemetry_stale_s)})" $labels.job | query }}}}'
    '{{ if $i }}, {{ end }}{{ $silent | label "collector" }} ({{ $silent | value | humanizeDuration }})'
    "{{ else }}unknown{{ end }}"
)
"""Names of the collectors that have been silent for longer than the default threshold, each with how long."""

TELEMETRY_STALE = Entry(
    name="TelemetryStale",
    group="telemetry",
    subject="collector",
    meaning=(
        "A collector or an instrumented application stopped reporting. Ages still grow, because a window "
        "ends by time, but "
        "nobody knows what was settled meanwhile: believe no age of its queues until it is back."
    ),
    rule=("Nothing was heard of the collector for {telemetry_stale_s}, not even its heartbeat.",),
    thresholds=("telemetry_stale_s",),
    severity="warning",
    alert=signal_alert(
        "TelemetryStale",
        "A collector stopped reporting, so the figures of its queues are no longer true.",
        f"{own_value('count')} collector(s) are silent: {SILENT_COLLECTORS}. Ages and stalls of their "
        f"queues are not to be "
        "trusted until they report again.",
        identity=("job",),
    ),
    dashboard="pipeline",
    evidence=(
        EvidenceField("collector", "its name"),
        EvidenceField("silent_s", "seconds since it was last heard of"),
        EvidenceField("last_event_at", "its last sign of life, in milliseconds since 1970"),
    ),
    checks={},
    watcher_checks=(
        watcher.collectors("which one is silent, and since when"),
        watcher.collector_logs("refused credentials, an unreachable broker, a full spool"),
        watcher.newest_events("whether anything arrives in the topic at all"),
        watcher.ready("whether queuewatch itself reads"),
        watcher.topic("the topic exists and keeps records long enough"),
    ),
    fix=(
        "Restart the collector; its log names the reason (credentials, network, permission).",
        "If the application was stopped on purpose, nothing is wrong: its queues vanish after a while.",
        "If the topic is unreachable for all of them, repair Kafka first.",
    ),
    ignore=(("An application that only runs now and then and sends no heartbeat in between: raise telemetry_stale_s."),),
    links=(links.ACTIVEMQ_ADVISORIES,),
)

TELEMETRY_PARTIAL = Entry(
    name="TelemetryPartial",
    group="telemetry",
    subject="queue",
    meaning=(
        "queuewatch tracks clearly fewer or more messages of the queue than the broker counts. Somewhere a "
        "producer or "
        "consumer is not instrumented, or events are lost. Per-message signals of this queue may be "
        "missing or stale."
    ),
    rule=(
        ("The tracked messages are less than {coverage_low_ratio} or more than {coverage_high_ratio} of the broker's count."),
        "That lasts for {coverage_s}.",
    ),
    thresholds=("coverage_low_ratio", "coverage_high_ratio", "coverage_s"),
    severity="info",
    alert=signal_alert(
        "TelemetryPartial",
        "Tracked messages and the broker's own count disagree.",
        f"queuewatch tracks {companion('queuewatch_telemetry_coverage_ratio', 'percent')} of what the "
        f"broker counts in "
        f"{QUEUE}. Given up because the broker said empty: "
        f"{companion('queuewatch_messages_reconciled_total', 'count')}. Signals: {own_value('count')}.",
    ),
    dashboard="pipeline",
    evidence=(
        EvidenceField("tracked", "messages known one by one"),
        EvidenceField("broker_count", "messages the broker counts"),
        EvidenceField("coverage_ratio", "their ratio; 1 is right"),
        EvidenceField("off_s", "for how many seconds"),
    ),
    checks={},
    watcher_checks=(
        watcher.coverage("which queues, and whether too few (missing sends) or too many (missing deletes)"),
        watcher.collectors("whether all producers and consumers of the queue report"),
        watcher.events("late or invalid events: telemetry that arrives and is not used"),
        watcher.reconciled("a growing number: deletes that are never reported"),
        watcher.collector_logs("dropped events of a full buffer, permission errors"),
    ),
    fix=(
        ("Too few: find the producer or consumer that is not instrumented. A message is known from whichever event comes first."),
        ("Too many: a consumer deletes without reporting it. Its messages are given up once the broker says empty."),
        "Events dropped by a full buffer: give the sender a larger one, or a faster transport.",
    ),
    ignore=(("Right after the first start on a queue with a backlog: what was there before is not known until it is received."),),
    links=(links.SQS_QUOTAS,),
)

COLLECTOR_SILENT = Entry(
    name="CollectorSilent",
    group="telemetry",
    subject="collector",
    meaning=(
        "A collector's last sign of life is long ago. This alert reads the raw time stamp: it fires even "
        "when the job that "
        "would judge it hangs, which TelemetryStale cannot."
    ),
    rule=("The collector's last sign of life is older than {limit}, and has been for {wait}.",),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr="time() - max by (%(by)s) (queuewatch_telemetry_last_event_timestamp_seconds) > %(limit)s",
        why="The raw time stamp, because it grows old by itself, also while nothing is judged.",
        summary="A collector has been silent for long.",
        description=(
            f"Collector {{{{ $labels.collector }}}} was last heard of {own_value('duration')} ago. "
            f"Whatever its queues "
            "show is as old as that."
        ),
        identity=("job", "collector"),
        for_s=60.0,
        limit=Limit(600.0, "seconds", "how long a collector may be silent"),
    ),
    dashboard="pipeline",
    evidence=(EvidenceField("queuewatch_telemetry_last_event_timestamp_seconds", ("the time of its last sign of life")),),
    checks={},
    watcher_checks=(
        watcher.collectors("one silent collector, or all of them"),
        watcher.pipeline("queuewatch_pipeline_last_batch_timestamp_seconds recent: the job is fine, the collector is not"),
        watcher.collector_logs("the reason it stopped"),
        watcher.newest_events("whether it still writes"),
        watcher.pods("a collector that was killed or cannot be scheduled"),
    ),
    fix=(
        "Restart the collector.",
        "All silent at once: repair the topic or the network between them and queuewatch.",
    ),
    ignore=(("A collector that was taken away for good: its series ends with the next restart of queuewatch."),),
    links=(links.ACTIVEMQ_ADVISORIES,),
)

COVERAGE_LOW = Entry(
    name="CoverageLow",
    group="telemetry",
    subject="queue",
    meaning=(
        "So little of the queue is tracked, or so much that is not there any more, that its per-message signals say next to "
        "nothing. Counts and the broker's own figures still hold."
    ),
    rule=(
        "Tracked messages have been less than {limit} of the broker's count, or the count less than {limit} of them, for {wait}.",
        "Not for a queue of which only counts are known (basis `counts`): nothing is tracked there, and nobody expects it.",
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
        why="The raw ratio, as a second step far outside the signal's band, with a wait of its own.",
        summary="What is tracked of a queue is far from what the broker counts.",
        description=(
            f"The messages of {QUEUE} that are tracked one by one are {own_value('percent')} of those the broker counts, "
            f"{companion('queuewatch_queue_messages', 'count', function='sum')}. Poison messages, stuck "
            f"groups and ages of "
            "this queue are incomplete."
        ),
        for_s=1800.0,
        limit=Limit(0.5, "ratio", "the least tracked share of the broker's count"),
    ),
    dashboard="pipeline",
    evidence=(EvidenceField("queuewatch_telemetry_coverage_ratio", ("tracked messages divided by the broker's count")),),
    checks={},
    watcher_checks=(
        watcher.coverage("which queues are concerned"),
        watcher.collectors("whether its producers report"),
        watcher.events("events that arrive and are not used"),
        watcher.reconciled("messages given up"),
        watcher.config("whether the queue's consumers are meant to be instrumented"),
    ),
    fix=(
        "Instrument the producers and consumers that are missing; the documentation of each source says how.",
        "If that cannot be: leave the queue to its counts, and exclude it from this alert.",
    ),
    ignore=("A queue that is watched through its attributes only.",),
    links=(links.SQS_QUOTAS,),
)

INVALID_EVENTS = Entry(
    name="InvalidEvents",
    group="telemetry",
    subject="telemetry",
    meaning=(
        "A noticeable part of the telemetry cannot be read. It is counted and kept aside, the rest goes "
        "on; but what it "
        "would have said is missing."
    ),
    rule=("More than {limit} of all events of the last ten minutes could not be read, and that for {wait}.",),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr="job:queuewatch_events_invalid:ratio_rate10m > %(limit)s",
        why="A ratio of raw counters, recorded once and plotted as it is alerted on.",
        summary="Part of the telemetry cannot be read.",
        description=(
            f"{own_value('percent')} of the events cannot be read. The reasons are in "
            "queuewatch_events_invalid_total, the events themselves in the quarantine."
        ),
        identity=("job",),
        for_s=300.0,
        limit=Limit(0.01, "ratio", "the largest share of events that may be unreadable"),
    ),
    dashboard="pipeline",
    evidence=(EvidenceField("queuewatch_events_invalid_total", "unreadable events by reason"),),
    checks={},
    watcher_checks=(
        watcher.events("the reason that grows"),
        watcher.newest_events("what a record looks like"),
        watcher.logs("the first bad events, with the reason and where they came from"),
        watcher.collector_logs("a sender of another version"),
        watcher.config("the quarantine's place: look at what is in it"),
    ),
    fix=(
        "Find the sender by the quarantined event, and repair or update it.",
        "Another program writes to the topic: give the telemetry a topic of its own.",
    ),
    ignore=("A test that sends broken events on purpose.",),
    links=(),
)

LATE_EVENTS = Entry(
    name="LateEvents",
    group="telemetry",
    subject="telemetry",
    meaning=(
        "Telemetry arrives too late to be used and is dropped. What it reported, a delete for instance, "
        "stays unknown, so "
        "messages may look older than they are."
    ),
    rule=(("More than {limit} of all events of the last ten minutes were beyond the lateness, and that for {wait}."),),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr="job:queuewatch_events_late:ratio_rate10m > %(limit)s",
        why="A ratio of raw counters, recorded once and plotted as it is alerted on.",
        summary="Telemetry is dropped because it arrives too late.",
        description=(
            f"{own_value('percent')} of the events come later than the configured lateness and are "
            f"dropped. Ages and "
            "coverage suffer."
        ),
        identity=("job",),
        for_s=300.0,
        limit=Limit(0.01, "ratio", "the largest share of events that may come too late"),
    ),
    dashboard="pipeline",
    evidence=(EvidenceField('queuewatch_events_total{result="late"}', "events dropped for being late"),),
    checks={},
    watcher_checks=(
        watcher.events("late against accepted"),
        watcher.skew("senders whose clocks run ahead make all others look late"),
        watcher.collectors("a collector that was away and now sends what it had kept"),
        watcher.consumer_lag("a topic that is read far behind"),
        watcher.clocks("whether this host's own clock is right"),
    ),
    fix=(
        "A sender that catches up after an outage: it ends by itself.",
        "A clock that runs ahead: repair its time synchronisation.",
        ("A path that is always this slow: raise the lateness in the configuration, at the price of more state."),
    ),
    ignore=("Just after a long outage of Kafka or of a collector.",),
    links=(),
)

CLOCK_SKEW = Entry(
    name="ClockSkew",
    group="telemetry",
    subject="queue",
    meaning=("A sender's clock runs ahead. Its messages look younger than they are, and events of others look late."),
    rule=("A sender of the queue has been ahead by more than {limit} for {wait}.",),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr='max by (%(by)s) (queuewatch_telemetry_clock_skew_seconds{queue!=""%(match)s}) > %(limit)s',
        why="The raw figure: clock skew is no signal of the judge.",
        summary="A sender's clock runs ahead.",
        description=(f"A sender of {QUEUE} is {own_value('duration')} ahead. Its ages are too small by that much."),
        for_s=900.0,
        limit=Limit(60.0, "seconds", "how far a sender's clock may run ahead"),
    ),
    dashboard="pipeline",
    evidence=(EvidenceField("queuewatch_telemetry_clock_skew_seconds", ("how far the worst sender is ahead, in seconds")),),
    checks={},
    watcher_checks=(
        watcher.skew("the queues concerned: their senders are the suspects"),
        watcher.clocks("whether it is this host that lags behind"),
        watcher.newest_events("`at` of the newest events, by consumer"),
        watcher.collectors("a time stamp in the future"),
        watcher.events("late events as a consequence"),
    ),
    fix=("Switch time synchronisation on where the clock is wrong.",),
    ignore=("A virtual machine that was just resumed.",),
    links=(),
)

CLOCK_UNTRUSTED = Entry(
    name="ClockUntrusted",
    group="telemetry",
    subject="clock",
    meaning=(
        "The clock of the machine queuewatch runs on jumped, or senders date their events in the future. What ends by time "
        "(retention, moves nobody reported) is not concluded from a time that nothing bears out, so it may be shown late."
    ),
    rule=(
        "The clock moved by an hour or more between two batches, or a quarter of an hour back, and neither the sources' own "
        "times nor a minute of silence bears it out; or",
        "an event was dated more than the skew allowance in the future within the last ten minutes.",
    ),
    thresholds=(),
    severity="warning",
    alert=signal_alert(
        "ClockUntrusted",
        "A clock cannot be trusted: queuewatch's own jumped, or senders are ahead.",
        "The clock of the machine queuewatch runs on jumped, or senders date events in the future. Signals that wait for time to "
        "pass may come late.",
        identity=("job",),
    ),
    dashboard="pipeline",
    evidence=(
        EvidenceField("jump_s", "how far the clock reads from the time that is believed, in seconds"),
        EvidenceField("batches", "how many batches it has held"),
        EvidenceField("sources_for", "sources that speak from the time the clock reads"),
        EvidenceField("sources_against", "sources that speak from the time that is believed"),
        EvidenceField("ahead_total", "events dated in the future so far"),
        EvidenceField("allowance_s", "how far in the future an event may be dated"),
    ),
    checks={},
    watcher_checks=(
        watcher.clocks("whether this host's own clock is right"),
        watcher.skew("the queues whose senders are ahead"),
        watcher.events("how many events are ahead"),
        watcher.newest_events("`at` of the newest events, by consumer"),
        watcher.collectors("whether the collectors report again"),
    ),
    fix=(
        "Repair the time synchronisation of the machine, or of the senders. What was held back is made up for by itself.",
        "After a planned stop of more than an hour nothing is to be done: it ends as soon as the collectors report again.",
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
