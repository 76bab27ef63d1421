"""Whole queues: nothing moves, too old, falling behind, configured to fail."""

from __future__ import annotations

from alerts.checks import activemq, cloudflare, sqs
from alerts.entries import links
from alerts.entry import AlertSpec, Entry, EvidenceField, Limit
from alerts.remedy import Remedy
from alerts.signal_alert import signal_alert
from alerts.templating import QUEUE, companion, messages_in, oldest, own_value

QUEUE_STALLED = Entry(
    name="QueueStalled",
    group="queues",
    subject="queue",
    meaning=(
        "Messages wait and nothing is finished. Either nobody takes them any more, or the consumers take "
        "them and never "
        "complete one. Users of whatever hangs on this queue notice, or will soon."
    ),
    rule=(
        "Messages are visible: a consumer could receive one now. Delayed messages are waiting, not "
        "stalled; dead-letter "
        "queues and paused queues are not expected to move.",
        "Nothing was settled for {stalled_s}.",
        "The reason is no_receives when nothing was received in the last {stalled_s} either, else no_progress.",
        "Where messages are not all reported, the broker's counts must show it: visible at every count, nothing in flight, never "
        "falling. A broker that does not say what is in flight (Cloudflare): deliveries were reported and are no more, and the "
        "backlog never fell and grew, or a message that came back waits in it.",
    ),
    thresholds=("stalled_s",),
    severity="critical",
    alert=signal_alert(
        "QueueStalled",
        "Messages wait and nothing is being finished.",
        f"{QUEUE} has {messages_in('visible')} visible message(s) and "
        f"settles none. Oldest visible: "
        f"{oldest('visible')}. In flight: "
        f"{messages_in('in_flight')}. Highest receive count: "
        f"{companion('queuewatch_receive_count_max', 'count')}. Signals: {own_value('count')}.",
    ),
    dashboard="queue",
    evidence=(
        EvidenceField("reason", ("no_receives: the consumers stopped; no_progress: they receive and never finish")),
        EvidenceField("visible", "messages a consumer could receive now"),
        EvidenceField("in_flight", "messages somebody has"),
        EvidenceField("stalled_s", "seconds since anything was settled"),
        EvidenceField("last_received_at", "the last receive, in milliseconds since 1970"),
        EvidenceField("last_settled_at", "the last message finished, in milliseconds since 1970"),
    ),
    checks={
        "aws_sqs": (
            sqs.consumers("State: Disabled, or LastProcessingResult with a problem"),
            sqs.service("runningCount 0, or tasks that keep restarting"),
            sqs.error_logs("the same failure at every message: no_progress"),
            sqs.lambda_metric("Throttles", "Sum", "above zero: no concurrency left"),
            sqs.changes("SetQueueAttributes", "a policy, key or timeout that somebody changed just before"),
        ),
        "activemq": (
            activemq.counts("ConsumerCount 0: no_receives; Paused true; DequeueCount standing still"),
            activemq.consumers("full prefetch windows and no acknowledgement: no_progress; a Selector that matches nothing"),
            activemq.broker("memory, store or temporary space at 100 %"),
            activemq.connections("consumers missing that should be there"),
            activemq.log("what happened at the last moment something was finished"),
        ),
        "cloudflare_queues": (
            cloudflare.settings("delivery_paused true; no consumers"),
            cloudflare.tail("every invocation failing: no_progress; none at all: no_receives"),
            cloudflare.deployments("a deployment just before it stopped"),
            cloudflare.consumers("max_concurrency, and retry_delay: messages that wait for their retry are not stalled"),
            cloudflare.backlog("backlog_count growing"),
        ),
    },
    fix=(
        Remedy("Start the consumers.", reasons=("no_receives",)),
        Remedy("Enable the event source mapping if Lambda consumes.", systems=("aws_sqs",), reasons=("no_receives",)),
        Remedy('If the queue is paused, `amq "exec/$Q/resume()"`.', systems=("activemq",), reasons=("no_receives",)),
        Remedy(
            'If delivery is paused, `npx wrangler queues resume-delivery "$QUEUE"`.',
            systems=("cloudflare_queues",),
            reasons=("no_receives",),
        ),
        Remedy(
            "Roll back the last deployment, or repair what the consumer depends on; then restart it.",
            reasons=("no_progress",),
        ),
        "If a repair takes long: raise the queue's retention now and stop deliveries, so that neither retention nor retries "
        "cost messages.",
    ),
    ignore=(
        "The consumers are stopped for planned work: silence it until then.",
        "A queue that is drained once a day: raise stalled_s for its pattern.",
    ),
    links=(links.SQS_VISIBILITY, links.ACTIVEMQ_FLOW, links.CLOUDFLARE_PAUSE),
)

QUEUE_MISCONFIGURED = Entry(
    name="QueueMisconfigured",
    group="queues",
    subject="queue",
    meaning=("The queue's settings will lose messages or work against its consumers, sooner or later. Nothing is on fire now."),
    rule=(
        "One of these holds: the dead-letter queue is of another type; its retention is not longer than "
        "the source's; "
        "max_receive_count is 1; there is no dead-letter queue; the redrive allow policy excludes the "
        "source or lists more "
        "than ten; the visibility timeout is shorter than processing usually takes; a back-off exceeds the "
        "longest delay.",
        "A FIFO queue without high throughput (by its `throughput_limit` and `deduplication_scope`) has had {fifo_limit_ratio} "
        "of {fifo_call_limit} calls a second, at {fifo_messages_per_call} message(s) a call, for {fifo_limit_s}: its settings "
        "limit it. It is a warning when that is true of calls with ten messages.",
    ),
    thresholds=("fifo_limit_ratio", "fifo_call_limit", "fifo_messages_per_call", "fifo_limit_s"),
    severity="info",
    alert=signal_alert(
        "QueueMisconfigured",
        "A queue's settings will lose messages or work against its consumers.",
        f"{own_value('count')} setting(s) of {QUEUE} are wrong. Dead-lettered so far: "
        f"{companion('queuewatch_messages_dead_lettered_total', 'count')}, expired: "
        f"{companion('queuewatch_messages_expired_total', 'count')}, dropped: "
        f"{companion('queuewatch_messages_dropped_total', 'count')}.",
    ),
    dashboard="queue",
    evidence=(
        EvidenceField(
            "rule",
            (
                "which of the rules is broken: redrive_type_mismatch, dead_letter_retention, "
                "single_receive, no_dead_letter_queue, allow_policy, short_visibility, backoff_beyond_cap"
            ),
        ),
        EvidenceField("summary", "what is set, what it leads to, and what to set instead"),
    ),
    checks={
        "aws_sqs": (
            sqs.attributes("RedrivePolicy, MessageRetentionPeriod, VisibilityTimeout, FifoQueue"),
            sqs.dead_letter_attributes(
                "a retention longer than the source's; RedriveAllowPolicy; FifoQueue equal to the source's"
            ),
            sqs.function("Timeout: the visibility timeout should be six times as long"),
            sqs.lambda_metric("Duration", "Maximum", "how long processing really takes"),
            sqs.changes("SetQueueAttributes", "who set it, and when"),
        ),
        "activemq": (
            activemq.options("the dead-letter strategy and options of the destination"),
            activemq.dead_letters("whether the queue has a dead-letter queue of its own"),
            activemq.counts("whether messages expire"),
            activemq.consumers("prefetch sizes"),
            activemq.times("how long messages really stay"),
        ),
        "cloudflare_queues": (
            cloudflare.consumers("dead_letter_queue, max_retries, batch_size, max_wait_time_ms, retry_delay"),
            cloudflare.settings("message_retention_period, delivery_delay"),
            cloudflare.queues("whether the dead-letter queue exists and has a longer retention"),
            cloudflare.tail("a handler that throws: with a large batch it repeats all of it"),
            cloudflare.deployments("the deployment that brought the setting"),
        ),
    },
    fix=(
        ("Change the setting in the code that creates the queue, not by hand: the next deployment would put it back."),
        "The evidence names the value to set; queuewatch's page shows it beside the queue.",
    ),
    ignore=("A choice that was made knowingly: switch the rule off for the queue's pattern.",),
    links=(links.SQS_DEAD_LETTERS, links.SQS_VISIBILITY, links.ACTIVEMQ_REDELIVERY, links.CLOUDFLARE_RETRIES),
)

QUEUE_STALE = Entry(
    name="QueueStale",
    group="queues",
    subject="queue",
    meaning=(
        "Nobody reports on this queue any more, so its figures are guesses. It tells nobody by itself: it "
        "is there to hold "
        "back the alerts on ages and stalls of this queue, while TelemetryStale names the collector that "
        "fell silent."
    ),
    rule=("The queue's status is stale: whoever reports on it has been silent.",),
    thresholds=(),
    severity="info",
    alert=AlertSpec(
        expr='max by (%(by)s) (queuewatch_queue_status{status="stale"%(match)s}) > 0',
        why=(
            "The status series, because TelemetryStale is about a collector and carries no queue: "
            "Alertmanager needs the "
            "queue's labels to know which alerts to hold back."
        ),
        summary="Nobody reports on a queue any more.",
        description=(f"Nothing has been heard about {QUEUE} lately. Its other alerts are held back until it is reported on."),
        keep_firing_s=0.0,
    ),
    dashboard="queue",
    evidence=(EvidenceField("queuewatch_queue_status", "1 for the status the queue is in"),),
    checks={
        "aws_sqs": (
            sqs.attributes("the queue still exists, and how much it holds"),
            sqs.metric("NumberOfMessagesSent", "Sum", "whether anything happens in it at all"),
            sqs.metric("NumberOfMessagesReceived", "Sum", "whether it is consumed"),
            sqs.service("the instrumented application runs"),
            sqs.tags("a tag the collector selects by that is gone"),
        ),
        "activemq": (
            activemq.counts("the queue still exists, and how much it holds"),
            activemq.connections("the collector's connection is missing"),
            activemq.broker("the broker was restarted lately"),
            activemq.options("a policy entry without the advisories"),
            activemq.log("a refused or dropped connection of the collector"),
        ),
        "cloudflare_queues": (
            cloudflare.backlog("the queue still exists, and how much it holds"),
            cloudflare.settings("its consumers and producers"),
            cloudflare.deployments("a deployment without the telemetry wrapper"),
            cloudflare.tail("failing telemetry requests"),
            cloudflare.queues("a token that no longer sees the queue"),
        ),
    },
    fix=("Follow TelemetryStale: it names the collector.",),
    ignore=("The queue was deleted: it vanishes after a while.",),
    links=(links.ACTIVEMQ_ADVISORIES,),
)

_AGE = Limit(900.0, "seconds", "how old the oldest visible message may get: the limit QueueLagging looks ahead to")

MESSAGE_TOO_OLD = Entry(
    name="MessageTooOld",
    group="queues",
    subject="queue",
    meaning=(
        "A message has been waiting for a consumer for long, and a consumer could take it now. Unlike "
        "CloudWatch's age it "
        "does not count what is in flight, so neither a poison message nor a long job sets it off."
    ),
    rule=("The oldest visible message is older than {limit}, and has been for {wait}.",),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr=('max by (%(by)s) (queuewatch_oldest_message_age_seconds{scope="visible"%(match)s}) > %(limit)s'),
        why=(
            "The raw age, because a service-level objective on waiting time is a number of its own, not a fault the judge knows."
        ),
        summary="Messages wait longer for a consumer than they should.",
        description=(
            f"The oldest message a consumer could take from {QUEUE} has waited {own_value('duration')}. "
            f"Visible messages: "
            f"{messages_in('visible')}. Time to drain: "
            f"{companion('queuewatch_time_to_drain_seconds', 'duration')}. Age CloudWatch would show: "
            f"{oldest('cloudwatch')}."
        ),
        for_s=300.0,
        limit=_AGE,
    ),
    dashboard="queue",
    evidence=(
        EvidenceField('queuewatch_oldest_message_age_seconds{scope="visible"}', ("the age compared with the limit, in seconds")),
        EvidenceField("queuewatch_time_to_drain_seconds", ("seconds until it is worked off; absent unless it shrinks")),
    ),
    checks={
        "aws_sqs": (
            sqs.attributes("how much waits, how much is in flight"),
            sqs.metric("NumberOfMessagesSent", "Sum", "a surge of new messages"),
            sqs.metric("NumberOfMessagesDeleted", "Sum", "fewer finished than usual"),
            sqs.concurrency("a limit that was reached"),
            sqs.service("fewer running tasks than desired"),
        ),
        "activemq": (
            activemq.counts("producers outrunning consumers"),
            activemq.consumers("consumers missing or slow"),
            activemq.times("how much longer than usual"),
            activemq.memory("paging or memory limits that slow dispatch"),
            activemq.broker("a broker at its limits"),
        ),
        "cloudflare_queues": (
            cloudflare.backlog("backlog_count and the oldest message"),
            cloudflare.consumers("max_concurrency: a fixed number stops it from scaling"),
            cloudflare.tail("failing or long invocations"),
            cloudflare.deployments("a deployment that made it slower"),
            cloudflare.settings("delivery_paused, delivery_delay"),
        ),
    },
    fix=(
        ("Add consumers, or lift the limit on their number; then find out why the usual number no longer does."),
        "If the queue also stalls or a group is stuck, follow that alert: this one is its consequence.",
    ),
    ignore=("A batch queue that fills on purpose: exclude it, or raise the limit.",),
    links=(links.SQS_QUOTAS, links.CLOUDFLARE_CONCURRENCY, links.ACTIVEMQ_PREFETCH),
)

ENTRIES = (QUEUE_STALLED, QUEUE_MISCONFIGURED, MESSAGE_TOO_OLD, QUEUE_STALE)
