"""Whole queues: stalled, stale, misconfigured, or with messages that wait too long."""

from __future__ import annotations

from alerts.checks import activemq, cloudflare, sqs
from alerts.entries import links
from alerts.entry import AlertSpec, Entry, EvidenceField, Limit
from alerts.remedy import Remedy
from alerts.signal_alert import signal_alert
from alerts.templating import QUEUE, at_least, companion, messages_in, oldest, own_value

QUEUE_STALLED = Entry(
    name="QueueStalled",
    group="queues",
    subject="queue",
    meaning=(
        "Messages wait and none is finished. Either nobody receives them any more, or the consumers receive them and never "
        "finish one. Users of systems that depend on this queue notice, or will soon."
    ),
    rule=(
        "Messages are visible: a consumer could receive one now. Delayed messages do not count, and dead-letter queues and "
        "paused queues are not expected to move. Once at least {fewest_failing} messages are poison "
        "suspects, they remain a backlog while consumers hold them again.",
        "Messages in a prefetch window (ActiveMQ) behind the one their consumer works on wait, too. They count as "
        "backlog once the consumer has worked on its current message longer than usual (see below). With fewer than ten finished "
        "messages, the limit of MessageHeldTooLong applies.",
        "Nothing was settled for {stalled_s}. If the consumers work on a schedule, nothing was settled for {pause_factor} times "
        "their longest recent pause, plus a minute. The wait before the first settlement counts as a pause if the consumers then "
        "worked off the backlog. One pause alone is a schedule only if the consumers then worked for less than {most_work} of "
        "its length; otherwise it was an outage.",
        "While messages are in flight, nothing was settled for twice as long as 99% of this queue's messages are held: where "
        "work takes 20 minutes, nothing is settled for that long. Messages in prefetch windows are held for as long as the whole "
        "window takes. So if every consumer that holds messages has such a window, twice the longest time that one of them took "
        "within a day to finish its next message is enough, if that is less. Where no visibility timeout is reported or "
        "configured, messages that seem to have come back may still be in flight, once one was held for longer than the assumed "
        "timeout and then deleted.",
        "If no collector reports on an SQS standard queue, it does not fire while all that seems to wait are poison suspects "
        "and nothing was received for {stalled_s}: most likely SQS moved them to a dead-letter queue, which it does not report.",
        "The reason is no_receives if nothing was received in the last {stalled_s} either and no consumer holds what waits, "
        "otherwise no_progress.",
        "If not all messages are reported, the broker's counts must show the stall: visible messages at every count (of two or "
        "more, unless a tracked message waits too), nothing in flight, and a backlog that never falls. Where counts are "
        "approximate (SQS), a fall of less than a tenth counts as their error, unless there are four without a rise. The "
        "stall begins at the last count that showed messages in flight or messages that had left. For a broker that does not "
        "report messages in flight (Cloudflare), deliveries must have been reported and then stopped, and the backlog must "
        "have grown without ever falling, or contain a message that came back. Where it is reported when the oldest message was "
        "sent, that must stay the same (within 90 s, except for ActiveMQ and Cloudflare). It then fires {count_age} sooner, "
        "because a count is {count_age} old when it arrives.",
    ),
    thresholds=("stalled_s",),
    severity="critical",
    alert=signal_alert(
        "QueueStalled",
        "Messages wait and none is being finished.",
        f"{QUEUE} has {messages_in('visible')} visible message(s) and settles none. Oldest visible: {oldest('visible')}. In "
        f"flight: {messages_in('in_flight')}. Highest receive count: {companion('queuewatch_receive_count_max', 'count')}. "
        f"Open findings: {own_value('count')}.",
    ),
    dashboard="queue",
    evidence=(
        EvidenceField("reason", "no_receives: the consumers stopped; no_progress: they receive but never finish"),
        EvidenceField("visible", "messages a consumer could receive now"),
        EvidenceField("in_flight", "messages held by consumers"),
        EvidenceField("prefetched", "messages that wait in prefetch windows, if any do"),
        EvidenceField(
            "consumers_passed_over",
            "how many consumers are connected and have room in their prefetch windows (ActiveMQ) while messages wait",
        ),
        EvidenceField("stalled_s", "seconds since a message was settled"),
        EvidenceField("last_received_at", "time of the last receive, in milliseconds since 1970"),
        EvidenceField("last_settled_at", "when the last message was settled, in milliseconds since 1970"),
    ),
    checks={
        "aws_sqs": (
            sqs.consumers("State Disabled, or an error in LastProcessingResult"),
            sqs.service("runningCount 0, or tasks that keep restarting"),
            sqs.error_logs("the same failure for every message: no_progress"),
            sqs.lambda_metric("Throttles", "Sum", "above zero: no concurrency left"),
            sqs.changes("SetQueueAttributes", "a policy, key or timeout that was changed just before"),
        ),
        "activemq": (
            activemq.counts("ConsumerCount 0: no_receives; Paused true; DequeueCount not rising"),
            activemq.consumers("full prefetch windows and no acknowledgement: no_progress; a Selector that matches nothing"),
            activemq.broker("memory, store or temporary space at 100%"),
            activemq.connections("missing consumers"),
            activemq.log("what happened when the last message was finished"),
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
        Remedy(
            "If consumers_passed_over are connected, compare their selectors with the waiting messages: start a consumer for "
            "those that none matches, or move them away.",
            systems=("activemq",),
            reasons=("no_receives",),
        ),
        Remedy('If the queue is paused, `amq "exec/$Q/resume()"`.', systems=("activemq",), reasons=("no_receives",)),
        Remedy(
            'If delivery is paused, `npx wrangler queues resume-delivery "$QUEUE"`.',
            systems=("cloudflare_queues",),
            reasons=("no_receives",),
        ),
        Remedy(
            "Roll back the last deployment, or repair the consumer's dependency; then restart the consumer.",
            reasons=("no_progress",),
        ),
        "If a repair takes long, raise the queue's retention now and stop deliveries, so that no messages are lost to retention "
        "or used-up retries.",
    ),
    ignore=(
        "The consumers are stopped for planned work: silence the alert until they are back.",
        "A queue that is drained once a day: raise stalled_s for its pattern.",
    ),
    links=(links.SQS_VISIBILITY, links.ACTIVEMQ_FLOW, links.CLOUDFLARE_PAUSE),
)

QUEUE_MISCONFIGURED = Entry(
    name="QueueMisconfigured",
    group="queues",
    subject="queue",
    meaning=("Sooner or later, the queue's settings will lose messages or hinder its consumers. There is no acute problem."),
    rule=(
        "One of these applies: the dead-letter queue has a different type; its retention is not longer than the source's "
        "(except in SQS FIFO queues, where retention starts again at the move); max_receive_count is 1, or max_retries 0; there "
        "is no dead-letter queue; the redrive allow policy excludes the source or lists more than ten; the visibility timeout "
        "is shorter than processing usually takes, and a delivery has outlived it; a back-off exceeds the maximum delay; one "
        "error fails a whole batch of 100 or more. Findings of the queue's collector are added.",
        "A FIFO queue without high throughput (by its `throughput_limit` and `deduplication_scope`) has used {fifo_limit_ratio} "
        "of {fifo_call_limit} calls per second for {fifo_limit_s} (messages per call: {fifo_messages_per_call}): its settings "
        "limit its throughput. The severity is warning if this holds even for calls with ten messages.",
    ),
    thresholds=("fifo_limit_ratio", "fifo_call_limit", "fifo_messages_per_call", "fifo_limit_s"),
    severity="info",
    alert=signal_alert(
        "QueueMisconfigured",
        "A queue's settings will lose messages or hinder its consumers.",
        f"Wrong settings of {QUEUE}: {own_value('count')}. Dead-lettered so far: "
        f"{companion('queuewatch_messages_dead_lettered_total', 'count')}, expired: "
        f"{companion('queuewatch_messages_expired_total', 'count')}, dropped: "
        f"{companion('queuewatch_messages_dropped_total', 'count')}.",
    ),
    dashboard="queue",
    evidence=(
        EvidenceField(
            "rule",
            (
                "the violated rule: redrive_type_mismatch, dead_letter_retention, single_receive, no_dead_letter_queue, "
                "no_retries, whole_batch_fails, allow_policy, short_visibility, backoff_beyond_cap, fifo_throughput, or a rule "
                "of the collector"
            ),
        ),
        EvidenceField("summary", "the current setting, its effect, and the recommended setting"),
    ),
    checks={
        "aws_sqs": (
            sqs.attributes("RedrivePolicy, MessageRetentionPeriod, VisibilityTimeout, FifoQueue"),
            sqs.dead_letter_attributes(
                "a retention longer than the source's (FIFO: not needed); RedriveAllowPolicy; FifoQueue equal to the source's"
            ),
            sqs.function("Timeout: the visibility timeout should be six times as long"),
            sqs.lambda_metric("Duration", "Maximum", "how long processing really takes"),
            sqs.changes("SetQueueAttributes", "who set it, and when"),
        ),
        "activemq": (
            activemq.options("the dead-letter strategy and options of the destination"),
            activemq.dead_letters("Name: ActiveMQ.DLQ if all queues share it, or if this one never had a dead letter"),
            activemq.counts("whether messages expire"),
            activemq.consumers("prefetch sizes"),
            activemq.times("how long messages really stay"),
        ),
        "cloudflare_queues": (
            cloudflare.consumers("dead_letter_queue, max_retries, batch_size, max_wait_time_ms, retry_delay"),
            cloudflare.settings("message_retention_period, delivery_delay"),
            cloudflare.queues("whether the dead-letter queue exists and has a longer retention"),
            cloudflare.tail("a handler that throws: it repeats the whole batch"),
            cloudflare.deployments("the deployment that introduced the setting"),
        ),
    },
    fix=(
        "Change the setting in the code that creates the queue, not by hand: the next deployment would undo a manual change.",
        "The summary of the signal, on the queue's page, says what to change.",
    ),
    ignore=("A deliberate choice: set `QueueMisconfigured: {exclude_queues: '…'}` in `alerts.rules` of the configuration.",),
    links=(links.SQS_DEAD_LETTERS, links.SQS_VISIBILITY, links.ACTIVEMQ_REDELIVERY, links.CLOUDFLARE_RETRIES),
)

QUEUE_STALE = Entry(
    name="QueueStale",
    group="queues",
    subject="queue",
    meaning=(
        "Nothing reports on this queue any more, so its values are outdated. This alert notifies nobody: it exists to inhibit "
        "the alerts on ages and stalls of this queue, while TelemetryStale names the collector that fell silent."
    ),
    rule=(
        "The queue's status is stale: its messages were counted before, and nothing has been reported on it for "
        "{telemetry_stale_s}. An entry of `queues` may set another time for its queues. Where polls are further apart, the next "
        "count must be overdue: {overdue_factor} times the interval between the last two, if that was no more than 15 minutes.",
    ),
    thresholds=("telemetry_stale_s",),
    severity="info",
    alert=AlertSpec(
        expr=(
            'max by (%(by)s) (last_over_time(queuewatch_queue_status{status="stale"%(match)s}[3m])) > 0 '
            'unless on (%(on)s) max by (%(on)s) (queuewatch_queue_status{status!="stale"}) == 1'
        ),
        why=(
            "The status series is used because TelemetryStale is about a collector and has no queue label: Alertmanager needs "
            "the queue's labels to know which alerts to inhibit. Those outlast a restart of queuewatch, so this one must, too, "
            "until JobDown inhibits them. Another status ends it at once, also where the series of the old one is left out "
            "instead of 0."
        ),
        summary="Nothing reports on a queue any more.",
        description=(
            f"There has been no telemetry about {QUEUE} recently. Its other alerts are inhibited until telemetry arrives again."
        ),
        keep_firing_s=0.0,
    ),
    dashboard="queue",
    evidence=(EvidenceField("queuewatch_queue_status", "1 for the status the queue is in"),),
    checks={
        "aws_sqs": (
            sqs.attributes("whether the queue still exists, and how many messages it holds"),
            sqs.metric("NumberOfMessagesSent", "Sum", "whether the queue is used at all"),
            sqs.metric("NumberOfMessagesReceived", "Sum", "whether the queue is consumed"),
            sqs.service("whether the instrumented application runs"),
            sqs.tags("whether the tag the collector selects by is missing"),
        ),
        "activemq": (
            activemq.counts("whether the queue still exists, and how many messages it holds"),
            activemq.connections("whether the collector's connection is missing"),
            activemq.broker("whether the broker was restarted recently"),
            activemq.options("a policy entry without the advisories"),
            activemq.log("a refused or dropped connection of the collector"),
        ),
        "cloudflare_queues": (
            cloudflare.backlog("whether the queue still exists, and how many messages it holds"),
            cloudflare.settings("its consumers and producers"),
            cloudflare.deployments("a deployment without the telemetry wrapper"),
            cloudflare.tail("failing telemetry requests"),
            cloudflare.queues("a token that no longer sees the queue"),
        ),
    },
    fix=("Follow TelemetryStale: it names the collector.",),
    ignore=("The queue was deleted: it disappears from queuewatch after a while.",),
    links=(links.ACTIVEMQ_ADVISORIES,),
)

_AGE = Limit(900.0, "seconds", "maximum age of the oldest visible message: the limit that QueueLagging forecasts")

MESSAGE_TOO_OLD = Entry(
    name="MessageTooOld",
    group="queues",
    subject="queue",
    meaning=(
        "A message has been waiting for a long time although a consumer could receive it now. Unlike CloudWatch's age, this age "
        "ignores messages in flight, so a long job, or a poison message while a consumer holds it, does not trigger the alert."
    ),
    rule=(
        "For {wait}, the oldest visible message has been older than {limit}.",
        "It does not fire for a dead-letter queue, where messages wait for a person.",
    ),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr=(
            'max by (%(by)s) (queuewatch_oldest_message_age_seconds{scope="visible"%(match)s}) > %(limit)s'
            ' unless on (%(on)s) queuewatch_queue_info{is_dead_letter_queue="true"}'
        ),
        why=(
            "The raw age is used because a service-level objective on waiting time is a separate number, not a fault that the "
            "judge detects."
        ),
        summary="Messages wait too long for a consumer.",
        description=(
            f"The oldest message a consumer could receive from {QUEUE} has waited {at_least('visible')}{own_value('duration')}. "
            f"Visible messages: {messages_in('visible')}. Time to drain: "
            f"{companion('queuewatch_time_to_drain_seconds', 'duration')}. Age CloudWatch would show: {oldest('cloudwatch')}."
        ),
        for_s=300.0,
        limit=_AGE,
    ),
    dashboard="queue",
    evidence=(
        EvidenceField(
            'queuewatch_oldest_message_age_seconds{scope="visible"}', "the age that is compared with the limit, in seconds"
        ),
        EvidenceField("queuewatch_time_to_drain_seconds", "seconds until the backlog is processed; absent unless it shrinks"),
    ),
    checks={
        "aws_sqs": (
            sqs.attributes("how many messages wait, how many are in flight"),
            sqs.metric("NumberOfMessagesSent", "Sum", "a surge of new messages"),
            sqs.metric("NumberOfMessagesDeleted", "Sum", "fewer messages finished than usual"),
            sqs.concurrency("a limit that was reached"),
            sqs.service("fewer running tasks than desired"),
        ),
        "activemq": (
            activemq.counts("producers that are faster than the consumers"),
            activemq.consumers("missing or slow consumers"),
            activemq.times("how much longer messages stay than usual"),
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
        "Add consumers, or raise the limit on their number; then find out why the usual number is no longer enough.",
        "If an alert says that the queue is stalled or a group is stuck, follow that one first: this one is a consequence.",
    ),
    ignore=(
        "A batch queue that fills on purpose: set `exclude_queues`, or a larger `limit`, for MessageTooOld in `alerts.rules`.",
    ),
    links=(links.SQS_QUOTAS, links.CLOUDFLARE_CONCURRENCY, links.ACTIVEMQ_PREFETCH),
)

ENTRIES = (QUEUE_STALLED, QUEUE_MISCONFIGURED, MESSAGE_TOO_OLD, QUEUE_STALE)
