"""queuewatch itself: when it is down, stuck or too slow, every other alert is silent."""

from __future__ import annotations

from alerts.checks import watcher
from alerts.entry import AlertSpec, Entry, EvidenceField, Limit
from alerts.templating import own_value

JOB_DOWN = Entry(
    name="JobDown",
    group="watcher",
    subject="queuewatch",
    meaning=("Prometheus cannot scrape queuewatch. No queue is watched meanwhile, and no other alert of it can fire."),
    rule=("The scrape has failed for {wait}.",),
    thresholds=(),
    severity="critical",
    alert=AlertSpec(
        expr='up{job="%(job)s"} == 0',
        why="Prometheus' own series: it is there exactly when everything of queuewatch is not.",
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
        watcher.logs("the last lines before it ended"),
        watcher.ready("an answer at all: then it is the network or the service between"),
        watcher.config("a configuration that is refused at start"),
    ),
    fix=(
        "Restart it. It goes on from its checkpoint: nothing is lost, nothing is counted twice.",
        ("Killed for memory: raise the limit and spark.driver_memory together; the state's size is on the pipeline dashboard."),
        "Changed shard count on an old checkpoint: it refuses to start and says so; put the count back.",
    ),
    ignore=("A planned restart that takes longer than usual.",),
    links=(),
)

JOB_ABSENT = Entry(
    name="JobAbsent",
    group="watcher",
    subject="queuewatch",
    meaning="Prometheus has no target for queuewatch at all: it was never configured, or discovery lost it.",
    rule=("There has been no target of the job for {wait}.",),
    thresholds=(),
    severity="critical",
    alert=AlertSpec(
        expr='absent(up{job="%(job)s"})',
        why="An alert on a series that is gone cannot fire; only its absence can.",
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
        watcher.ready("it answers: then only the scrape configuration is missing"),
        watcher.logs("whether it runs"),
        watcher.config("the port it listens on"),
    ),
    fix=(
        ("Put the scrape configuration or the ServiceMonitor back; its labels must match what Prometheus selects."),
        ("The job has another name here: set alerts.job in queuewatch's configuration and generate the rules again."),
    ),
    ignore=("queuewatch was taken away: take its rules away, too.",),
    links=(),
)

NOT_PUBLISHING = Entry(
    name="NotPublishing",
    group="watcher",
    subject="queuewatch",
    meaning=("queuewatch answers but has not published a single batch since it started. Its page and series are empty."),
    rule=("It has been scraped well for {wait}, and there is no time of a last batch.",),
    thresholds=(),
    severity="critical",
    alert=AlertSpec(
        expr=('up{job="%(job)s"} == 1 unless on (job, instance) queuewatch_pipeline_last_batch_timestamp_seconds'),
        why="What was never published cannot be too old: this is the case NoRecentBatch cannot see.",
        summary="queuewatch runs but has not published anything yet.",
        description=("{{ $labels.instance }} is up and has published no batch since it started. No queue is being watched."),
        identity=("job", "instance"),
        for_s=600.0,
        keep_firing_s=0.0,
    ),
    dashboard="pipeline",
    evidence=(EvidenceField("queuewatch_pipeline_last_batch_timestamp_seconds", ("absent until the first batch")),),
    checks={},
    watcher_checks=(
        watcher.ready("the reason it is not ready"),
        watcher.logs("Java, a broker or a topic that is missing; a query that fails and is started again"),
        watcher.topic("the topic exists"),
        watcher.config("the source it reads"),
        watcher.pods("too little CPU to get Spark started"),
    ),
    fix=(
        "Repair what its log names: the broker's address, the topic, credentials, the checkpoint's folder.",
        "A very large backlog at the first start: the first batch takes long; watch the log.",
    ),
    ignore=("A first start on a topic with days of telemetry.",),
    links=(),
)

NO_RECENT_BATCH = Entry(
    name="NoRecentBatch",
    group="watcher",
    subject="queuewatch",
    meaning=(
        "queuewatch answers but publishes nothing new. Ages on the page still grow, since they are "
        "computed when they are "
        "read, but no signal begins or ends."
    ),
    rule=(
        (
            "The last batch is older than {limit}, and has been for {wait}. Batches come without events, "
            "too: "
            "time itself is judged."
        ),
    ),
    thresholds=(),
    severity="critical",
    alert=AlertSpec(
        expr="time() - max by (%(by)s) (queuewatch_pipeline_last_batch_timestamp_seconds) > %(limit)s",
        why="The raw time stamp grows old by itself when nothing is published any more.",
        summary="queuewatch has stopped judging.",
        description=(
            f"The last batch of {{{{ $labels.job }}}} is {own_value('duration')} old. No signal begins or ends until it goes on."
        ),
        identity=("job",),
        for_s=60.0,
        keep_firing_s=0.0,
        limit=Limit(60.0, "seconds", "how old the last batch may get"),
    ),
    dashboard="pipeline",
    evidence=(EvidenceField("queuewatch_pipeline_last_batch_timestamp_seconds", ("when the last batch was published")),),
    checks={},
    watcher_checks=(
        watcher.ready("how old the last batch is, and why"),
        watcher.logs("a query that failed and waits to be started again"),
        watcher.pipeline("a batch duration that had been growing"),
        watcher.topic("a topic that was deleted or recreated"),
        watcher.pods("a process that swaps or is throttled"),
    ),
    fix=(
        "Restart it: it goes on from the checkpoint with the batch that failed.",
        ("The topic was recreated: its offsets no longer exist; the log names the setting to go on with what is there."),
        "One batch takes for ever: raise CPU, or lower the records per batch.",
    ),
    ignore=("The minutes of a restart.",),
    links=(),
)

PIPELINE_LAGGING = Entry(
    name="PipelineLagging",
    group="watcher",
    subject="queuewatch",
    meaning=("What queuewatch publishes is older than it should be: every alert on a queue comes that much later."),
    rule=("The newest event of a batch has been older than {limit} at publication for {wait}.",),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr="max by (%(by)s) (queuewatch_pipeline_lag_seconds) > %(limit)s",
        why="The raw lag: it says how late every signal is.",
        summary="Signals come late because queuewatch lags.",
        description=(f"Events are {own_value('duration')} old when they are published. Alerts on queues come that much later."),
        identity=("job",),
        for_s=300.0,
        limit=Limit(60.0, "seconds", "how old events may be when they are published"),
    ),
    dashboard="pipeline",
    evidence=(
        EvidenceField("queuewatch_pipeline_lag_seconds", ("age of the newest event when its batch was published")),
        EvidenceField("queuewatch_pipeline_batch_duration_seconds", "how long a batch takes"),
    ),
    checks={},
    watcher_checks=(
        watcher.pipeline("batch duration against the trigger interval; events per second; state rows"),
        watcher.consumer_lag("a surge of telemetry"),
        watcher.pods("CPU throttling, memory near the limit"),
        watcher.events("duplicates: a sender that repeats everything"),
        watcher.collectors("collectors that deliver late themselves"),
    ),
    fix=(
        ("Give it more CPU. More shards help only up to the number of cores, and their number is fixed for a checkpoint."),
        "Send many events per record: one record per event costs several times as much.",
        "A single huge FIFO queue is one shard: watch it with a queuewatch of its own.",
    ),
    ignore=("Catching up after a restart: the lag falls by itself.",),
    links=(),
)

FALLING_BEHIND = Entry(
    name="FallingBehind",
    group="watcher",
    subject="queuewatch",
    meaning="Telemetry arrives faster than queuewatch reads it, and the gap grows.",
    rule=(
        "More than {limit} wait in the source.",
        "Their number has been growing for {wait}.",
    ),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr=(
            "max by (%(by)s) (queuewatch_pipeline_lag_events) > %(limit)s and "
            "max by (%(by)s) (deriv(queuewatch_pipeline_lag_events[10m])) > 0"
        ),
        why="The raw number and its slope: a large backlog that shrinks is a restart, one that grows is not.",
        summary="Telemetry arrives faster than it is read.",
        description=f"{own_value('number')} records wait in the source and their number grows.",
        identity=("job",),
        for_s=600.0,
        limit=Limit(100_000.0, "events", "how many records may wait while their number grows"),
    ),
    dashboard="pipeline",
    evidence=(EvidenceField("queuewatch_pipeline_lag_events", "records of the source no batch has taken"),),
    checks={},
    watcher_checks=(
        watcher.consumer_lag("how fast the topic grows"),
        watcher.pipeline("events per second that are managed"),
        watcher.topic("partitions: fewer than cores leave cores idle; retention: when unread telemetry is lost"),
        watcher.pods("CPU throttling"),
        watcher.events("one kind of event that surges"),
    ),
    fix=(
        "Give it more CPU, and the topic at least as many partitions as cores.",
        "Raise the topic's retention before unread telemetry is deleted.",
        "Send many events per record.",
    ),
    ignore=("A replay into the same topic.",),
    links=(),
)

TELEMETRY_LOST = Entry(
    name="TelemetryLost",
    group="watcher",
    subject="queuewatch",
    meaning=(
        "Telemetry was deleted from Kafka before queuewatch read it. What was tracked since is incomplete: messages may seem "
        "unsettled that were deleted, and sends may be missing."
    ),
    rule=("Records of a partition were gone before they were read, during the last fifteen minutes.",),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr=(
            "sum by (%(by)s) (increase(queuewatch_pipeline_lost_records_total[15m])) > 0 or "
            "sum by (%(by)s) (increase(queuewatch_pipeline_offset_resets_total[15m])) > 0"
        ),
        why="Counted per partition against what the brokers still hold; a topic that was created again loses an unknown number.",
        summary="Telemetry was lost in Kafka before it was read.",
        description="Records were deleted from Kafka before queuewatch read them. What it tracks since then is incomplete.",
        identity=("job",),
    ),
    dashboard="pipeline",
    evidence=(
        EvidenceField("queuewatch_pipeline_lost_records_total", "by topic and partition"),
        EvidenceField("queuewatch_pipeline_offset_resets_total", "partitions of a topic that was deleted and created again"),
    ),
    checks={},
    watcher_checks=(
        watcher.logs("kafka_records_lost or kafka_topic_reset: which partitions, and how many records"),
        watcher.consumer_lag("how far behind it is"),
        watcher.topic("retention: shorter than the longest outage of queuewatch, and it will happen again"),
        watcher.pipeline("events per second that are managed"),
        watcher.events("a surge of telemetry"),
    ),
    fix=(
        "Raise the topic's retention above the longest outage you want to survive.",
        "Give it more CPU when it cannot keep up with what is sent.",
        "Messages that seem unsettled are reconciled away when the broker's own counts say the queue is empty.",
    ),
    ignore=("The topic was deleted and created again on purpose.",),
    links=(),
)

FINDINGS_CAPPED = Entry(
    name="FindingsCapped",
    group="watcher",
    subject="queuewatch",
    meaning=(
        "There are more findings or suspects than queuewatch lists one by one. The counts are still whole, "
        "but some ids are "
        "not shown."
    ),
    rule=("A cap on messages or signals left something out during the last fifteen minutes.",),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr='max by (%(by)s) (increase(queuewatch_folded_total{what=~"messages|signals"}[15m])) > 0',
        why=("The raw counter. Groups and consumers fold into `other` all the time by design and do not count here."),
        summary="More is wrong than queuewatch lists one by one.",
        description=("queuewatch leaves out {{ $labels.what }} because of a cap. Counts are whole, lists of ids are not."),
        identity=("job", "what"),
    ),
    dashboard="pipeline",
    evidence=(EvidenceField("queuewatch_folded_total", "things left out by a cap, by kind"),),
    checks={},
    watcher_checks=(
        watcher.folded("which cap, and how much it leaves out"),
        watcher.ready("whether it is well otherwise"),
        watcher.pipeline("state rows: an unusual number of messages"),
        watcher.events("a surge of telemetry"),
        watcher.config("the caps that are set"),
    ),
    fix=(
        "Follow the alerts on the queues: when this one fires, one of them is in real trouble.",
        "Raise the cap in the configuration if the lists are needed whole.",
    ),
    ignore=("A dead-letter queue with thousands of messages that everybody knows about.",),
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
