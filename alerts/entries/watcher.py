"""queuewatch itself: while it is down, stuck or too slow, no other alert can be relied on."""

from __future__ import annotations

from alerts.checks import watcher
from alerts.entry import AlertSpec, Entry, EvidenceField, Limit
from alerts.templating import own_value

JOB_DOWN = Entry(
    name="JobDown",
    group="watcher",
    subject="queuewatch",
    meaning=("Prometheus cannot scrape queuewatch. Until it can, no alert rule on a queue can fire, even if queuewatch runs."),
    rule=("The scrape has failed for {wait}.",),
    thresholds=(),
    severity="critical",
    alert=AlertSpec(
        expr='up{job="%(job)s"} == 0',
        why="This series comes from Prometheus itself, so it exists even when all series of queuewatch are missing.",
        summary="queuewatch cannot be scraped, so no queue is being watched.",
        description=(
            "Prometheus cannot scrape {{ $labels.instance }} of {{ $labels.job }}. No queue alert can fire until it is back."
        ),
        identity=("job", "instance"),
        for_s=120.0,
        keep_firing_s=0.0,
    ),
    dashboard="pipeline",
    evidence=(EvidenceField("up", "0: the scrape fails; the targets page of Prometheus says why"),),
    checks={},
    watcher_checks=(
        watcher.scrape("lastError: refused, timed out, not found"),
        watcher.pods("OOMKilled, CrashLoopBackOff, a volume that is not bound"),
        watcher.previous_logs("the last lines before it ended; a refused configuration is named with its line"),
        watcher.logs("if it did not restart: why it does not answer"),
        watcher.ready("any answer: then the problem is the network or the Kubernetes service in between"),
    ),
    fix=(
        "Restart it. It continues from its checkpoint: nothing is lost or counted twice.",
        "If it ran out of memory, raise the limit and spark.driver_memory together; the pipeline dashboard shows the state size.",
        "If the shard count was changed on an existing checkpoint, it refuses to start and says so; restore the old count.",
    ),
    ignore=("A planned restart that takes longer than usual.",),
    links=(),
)

JOB_ABSENT = Entry(
    name="JobAbsent",
    group="watcher",
    subject="queuewatch",
    meaning="Prometheus has no target for queuewatch at all: it was never configured, or service discovery lost it.",
    rule=("There has been no target of the job for {wait}.",),
    thresholds=(),
    severity="critical",
    alert=AlertSpec(
        expr='absent(up{job="%(job)s"})',
        why="An alert on a missing series cannot fire; only an alert on its absence can.",
        summary="Prometheus has no target for queuewatch.",
        description="No target of job {{ $labels.job }} is known to Prometheus. No queue is being watched.",
        identity=("job",),
        for_s=300.0,
        keep_firing_s=0.0,
    ),
    dashboard="pipeline",
    evidence=(EvidenceField("up", "absent: no target of that job"),),
    checks={},
    watcher_checks=(
        watcher.scrape("no row at all"),
        watcher.pods("no pod: it was scaled to zero or never deployed"),
        watcher.ready("if it answers, only the scrape configuration is missing"),
        watcher.logs("whether it runs"),
        watcher.config("the address that it serves"),
    ),
    fix=(
        "Restore the scrape configuration or the ServiceMonitor; its labels must match Prometheus' selector.",
        "If the job has a different name here, set alerts.job in queuewatch's configuration and generate the rules again.",
    ),
    ignore=("queuewatch was removed: remove its rules, too.",),
    links=(),
)

NOT_PUBLISHING = Entry(
    name="NotPublishing",
    group="watcher",
    subject="queuewatch",
    meaning=("queuewatch answers but has not published a single batch since it started. Its page and metrics are empty."),
    rule=("Scrapes have succeeded for {wait}, but there is no timestamp of a last batch.",),
    thresholds=(),
    severity="critical",
    alert=AlertSpec(
        expr='up{job="%(job)s"} == 1 unless on (%(on)s) queuewatch_pipeline_last_batch_timestamp_seconds',
        why="If no batch was ever published, there is no timestamp that could be too old, so NoRecentBatch cannot fire.",
        summary="queuewatch runs but has not published anything yet.",
        description=("{{ $labels.instance }} is up but has published no batch since it started. No queue is being watched."),
        identity=("job", "instance"),
        for_s=600.0,
        keep_firing_s=0.0,
    ),
    dashboard="pipeline",
    evidence=(EvidenceField("queuewatch_pipeline_last_batch_timestamp_seconds", "absent until the first batch"),),
    checks={},
    watcher_checks=(
        watcher.ready("the reason it is not ready"),
        watcher.logs("missing Java, broker or topic; a query that fails and is restarted"),
        watcher.topic("whether the topic exists"),
        watcher.config("the source that it reads"),
        watcher.pods("too little CPU to start Spark"),
    ),
    fix=(
        "Fix the problem named in its log: the broker's address, the topic, credentials, the checkpoint folder.",
        "With a very large backlog at the first start, the first batch takes long; watch the log.",
    ),
    ignore=("A first start on a topic with days of telemetry.",),
    links=(),
)

NO_RECENT_BATCH = Entry(
    name="NoRecentBatch",
    group="watcher",
    subject="queuewatch",
    meaning=(
        "queuewatch answers but publishes nothing new. Ages on the page still grow, because they are computed when they are "
        "read, but no signal begins or ends."
    ),
    rule=(
        (
            "For {wait}, the last batch has been older than {limit}. There are batches even without events, because time alone "
            "can change signals."
        ),
    ),
    thresholds=(),
    severity="critical",
    alert=AlertSpec(
        expr="time() - max by (%(by)s) (queuewatch_pipeline_last_batch_timestamp_seconds) > %(limit)s",
        why="The age of the raw timestamp grows even when nothing is published any more.",
        summary="queuewatch has stopped judging.",
        description=(
            f"The last batch of {{{{ $labels.instance }}}} of {{{{ $labels.job }}}} is {own_value('duration')} old. No signal "
            "begins or ends until the next batch."
        ),
        identity=("job", "instance"),
        for_s=60.0,
        keep_firing_s=0.0,
        limit=Limit(60.0, "seconds", "maximum age of the last batch"),
    ),
    dashboard="pipeline",
    evidence=(EvidenceField("queuewatch_pipeline_last_batch_timestamp_seconds", "when the last batch was published"),),
    checks={},
    watcher_checks=(
        watcher.ready("the age of the last batch, and the reason"),
        watcher.logs("a query that failed and is waiting to be restarted"),
        watcher.pipeline("a batch duration that grew before"),
        watcher.topic("a topic that was deleted or recreated"),
        watcher.pods("a process that is swapping or throttled"),
    ),
    fix=(
        "Restart it: it continues from the checkpoint with the batch that failed.",
        "If the topic was recreated, there is nothing to set: the new topic is read from its beginning. Records of the old one "
        "that were not read are lost.",
        "If one batch takes very long, raise CPU, or lower `source.kafka.max_bytes_per_trigger`.",
    ),
    ignore=("The minutes of a restart.",),
    links=(),
)

PIPELINE_LAGGING = Entry(
    name="PipelineLagging",
    group="watcher",
    subject="queuewatch",
    meaning=("The data queuewatch publishes is older than it should be, so every alert on a queue is late by the same time."),
    rule=(
        "For {wait}, the newest event of each batch has been older than {limit} at publication, and events have arrived in the "
        "last five minutes.",
    ),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr=(
            "max by (%(by)s) (queuewatch_pipeline_lag_seconds) > %(limit)s"
            " and sum by (%(by)s) (increase(queuewatch_events_total[5m])) > 0"
        ),
        why=(
            "The raw lag shows how late every signal is. It is that of the last batch with events: when nothing more is sent, "
            "the job has caught up."
        ),
        summary="Signals are late because queuewatch lags.",
        description=(
            f"Events are {own_value('duration')} old when they are published. Alerts on queues are late by the same time."
        ),
        identity=("job",),
        for_s=300.0,
        limit=Limit(60.0, "seconds", "maximum age of events when they are published"),
    ),
    dashboard="pipeline",
    evidence=(
        EvidenceField("queuewatch_pipeline_lag_seconds", "age of the newest event when its batch was published"),
        EvidenceField("queuewatch_pipeline_batch_duration_seconds", "how long a batch takes"),
    ),
    checks={},
    watcher_checks=(
        watcher.pipeline("batch duration compared with the trigger interval; events per second; state rows"),
        watcher.consumer_lag("a surge of telemetry"),
        watcher.pods("CPU throttling, memory near the limit"),
        watcher.events("duplicates: a sender that sends everything again"),
        watcher.collectors("collectors that deliver events late"),
    ),
    fix=(
        "Give it more CPU. More shards help only up to the number of cores; `queuewatch state reshard` changes their number.",
        "Send many events per record: one record per event costs several times as much.",
        "A single huge FIFO queue is one shard: watch it with a separate queuewatch, which Prometheus scrapes under a job name "
        "of its own (`alerts.job`).",
    ),
    ignore=("Catching up after a restart: the lag falls without action.",),
    links=(),
)

FALLING_BEHIND = Entry(
    name="FallingBehind",
    group="watcher",
    subject="queuewatch",
    meaning="Telemetry arrives faster than queuewatch reads it, and the gap grows.",
    rule=(
        "More than {limit} are waiting in the source.",
        "Their number has been growing for {wait}.",
    ),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr=(
            "max by (%(by)s) (queuewatch_pipeline_lag_records) > %(limit)s and max by (%(by)s) "
            "(deriv(queuewatch_pipeline_lag_records[10m])) > 0"
        ),
        why="The raw number and its slope: a large backlog that shrinks means a restart, one that grows is a problem.",
        summary="Telemetry arrives faster than it is read.",
        description=f"{own_value('number')} records are waiting in the source and their number is growing.",
        identity=("job",),
        for_s=600.0,
        limit=Limit(100_000.0, "records", "maximum number of waiting records while their number grows"),
    ),
    dashboard="pipeline",
    evidence=(EvidenceField("queuewatch_pipeline_lag_records", "records in the source that no batch has read yet"),),
    checks={},
    watcher_checks=(
        watcher.consumer_lag("how fast the topic grows"),
        watcher.pipeline("events processed per second"),
        watcher.topic("partitions: fewer than cores leave cores idle; retention: when unread telemetry is lost"),
        watcher.pods("CPU throttling"),
        watcher.events("a surge of one kind of event"),
    ),
    fix=(
        "Give queuewatch more CPU, and the topic at least as many partitions as cores.",
        "Raise the topic's retention before unread telemetry is deleted.",
        "Send many events per record.",
    ),
    ignore=("A replay into the same topic.",),
    links=(),
)


def _grew(total: str) -> str:
    """Return PromQL that holds while a total has grown within 15 minutes, or since the last scrape of the day before that."""
    latest = f"max by (%(by)s) (sum by (%(by)s, instance) ({total}))"
    before = f"max by (%(by)s) (sum by (%(by)s, instance) (last_over_time({total}[1d] offset 15m)))"
    return f"sum by (%(by)s) (increase({total}[15m])) > 0 or {latest} - {before} > 0"


TELEMETRY_LOST = Entry(
    name="TelemetryLost",
    group="watcher",
    subject="queuewatch",
    meaning=(
        "Telemetry was deleted from Kafka or from the spool folder before queuewatch read it, or a spool file was too large to "
        "be read. The tracked data is incomplete since then: deleted messages may seem unsettled, and sends may be missing."
    ),
    rule=(
        "During the last fifteen minutes, records of a partition or files of the spool folder were deleted before they were "
        "read, or a file of the spool folder was refused because it is too large.",
    ),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr=" or ".join(_grew(f"queuewatch_pipeline_{what}_total") for what in ("lost_records", "offset_resets", "lost_files")),
        why=(
            "Losses are counted from the partitions' start offsets and per spool file; for a recreated topic they are unknown. "
            "Most are found by the first batch after an outage: `increase` sees no rise there, so the total is also compared "
            "with the last one before."
        ),
        summary="Telemetry was lost before it was read.",
        description=(
            "Kafka records or spool files were deleted before queuewatch read them, or a spool file was too large. The data "
            "is incomplete since then."
        ),
        identity=("job",),
    ),
    dashboard="pipeline",
    evidence=(
        EvidenceField("queuewatch_pipeline_lost_records_total", "lost records by topic and partition"),
        EvidenceField("queuewatch_pipeline_offset_resets_total", "partitions of a topic that was deleted and recreated"),
        EvidenceField("queuewatch_pipeline_lost_files_total", "spool files that were gone or refused"),
    ),
    checks={},
    watcher_checks=(
        watcher.logs(
            "kafka_records_lost or kafka_topic_reset: which partitions, and how many records; spool_files_lost or "
            "spool_files_refused: which files"
        ),
        watcher.consumer_lag("how far behind queuewatch is"),
        watcher.topic("retention: if it is shorter than the longest outage of queuewatch, this will happen again"),
        watcher.pipeline("events processed per second"),
        watcher.events("a surge of telemetry"),
    ),
    fix=(
        "Raise the topic's retention above the longest outage you want to survive.",
        "Spool folder: leave the removal of files to source.spool.after_reading. Write one event per line, or smaller files.",
        "Give queuewatch more CPU if it cannot keep up with the telemetry.",
        "Messages that seem unsettled are removed when the broker's own counts say the queue is empty.",
    ),
    ignore=("The topic was deleted and recreated on purpose.",),
    links=(),
)

FINDINGS_CAPPED = Entry(
    name="FindingsCapped",
    group="watcher",
    subject="queuewatch",
    meaning=(
        "A queue has more poison messages than queuewatch lists individually. The counts are still complete, but some ids are "
        "not shown."
    ),
    rule=("During the last fifteen minutes, the cap on messages left some out.",),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr='max by (%(by)s) (increase(queuewatch_folded_total{what="messages"}[15m])) > 0',
        why=("The raw counter is used. Groups and consumers are always folded into `other` by design and do not count here."),
        summary="There are more findings than queuewatch lists individually.",
        description=("queuewatch leaves out {{ $labels.what }} because of a cap. Counts are complete, lists of ids are not."),
        identity=("job", "what"),
    ),
    dashboard="pipeline",
    evidence=(EvidenceField("queuewatch_folded_total", "number of items left out by a cap, by kind"),),
    checks={},
    watcher_checks=(
        watcher.folded("which cap applies, and how much it leaves out"),
        watcher.ready("whether queuewatch is otherwise healthy"),
        watcher.pipeline("state rows: an unusual number of messages"),
        watcher.events("a surge of telemetry"),
        watcher.config("how many messages it lists per queue"),
    ),
    fix=(
        "Follow the alerts on the queues: if this alert fires, a queue has a serious problem.",
        "Raise the cap in the configuration if you need complete lists.",
    ),
    ignore=("A queue whose many poison messages are already being dealt with.",),
    links=(),
)

ENTRIES = (
    JOB_DOWN,
    JOB_ABSENT,
    NOT_PUBLISHING,
    NO_RECENT_BATCH,
    PIPELINE_LAGGING,
    FALLING_BEHIND,
    TELEMETRY_LOST,
    FINDINGS_CAPPED,
)
