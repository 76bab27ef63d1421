"""The flow of a queue: failing deliveries, a backlog that will pass its limit, a visibility timeout too short, silence."""

from __future__ import annotations

from alerts.checks import activemq, cloudflare, sqs
from alerts.entries import links
from alerts.entry import Entry, EvidenceField
from alerts.remedy import Remedy
from alerts.signal_alert import signal_alert
from alerts.templating import QUEUE, companion, messages_in, oldest, own_value

QUEUE_FAILING = Entry(
    name="QueueFailing",
    group="queues",
    subject="queue",
    meaning=(
        "Consumers receive messages but do not finish them: the consumer is broken, not a single message. The usual cause is a "
        "deployment, or a dependency of the consumer. Every message comes back until it is dead-lettered or lost."
    ),
    rule=(
        "Of the deliveries that ended in the last {failing_window_s}, at least {failing_ratio} ended without a settlement: the "
        "visibility window ran out, the message was released, dead-lettered or dropped. Of what a consumer with a prefetch "
        "window (ActiveMQ) gives back when it leaves, only one counts: the others waited for their turn.",
        "At least {failing_min_deliveries} deliveries ended, or half as many while it fires; with fewer, PoisonMessage reports "
        "the failures. PoisonMessage also reports them where nearly all are those of a single message that comes back again "
        "and again.",
        "It fires sooner if the failure is clear: over {quick_time}, more deliveries failed than chance explains, and the first "
        "and the last {quick_slice} of that time have failures. The time is longer where a restart of all consumers could look "
        "the same: what they held when they were stopped fails within the 99th percentile of the queue's holding times, or "
        "within a visibility timeout if nothing was received in the last {quick_slice}. Where one bad message fails its whole "
        "batch, more failures can be chance. That is assumed where batches failed as a whole within 15 minutes, and on "
        "Cloudflare until three messages came back one by one. A batch is `max_batch_size` messages, or ten "
        "where that is not reported.",
        "It also fires if some consumers fail at least {failing_ratio} of their own deliveries (at least "
        "{failing_min_deliveries}) for longer than a visibility timeout, while the others fail less than a tenth. The failing "
        "consumers are then named.",
        "There was a receive in the last two minutes; otherwise the consumers are gone and QueueStalled fires.",
        "The PoisonMessage, DeadLetterArrived, BatchRetryStorm and SlowConsumer signals that it explains, WindowTooShort unless "
        "it was announced before, GroupStuck where the heads of three or more groups failed, and QueueStalled with reason "
        "no_progress are folded into it until it ends. While several messages fail together, new PoisonMessage, "
        "DeadLetterArrived and GroupStuck signals are held back for at most {failing_window_s}, and again only after as long "
        "without such failures.",
        "It is folded into WindowTooShort if that was announced before and at least half of the failed deliveries were finished "
        "after their window, unless it names consumers.",
    ),
    thresholds=("failing_ratio", "failing_window_s", "failing_min_deliveries"),
    severity="critical",
    alert=signal_alert(
        "QueueFailing",
        "Consumers receive messages, but many deliveries fail.",
        f"Many deliveries of {QUEUE} end without being settled. Poison suspects: "
        f"{companion('queuewatch_poison_messages', 'count')}. Dead-lettered so far: "
        f"{companion('queuewatch_messages_dead_lettered_total', 'count')}. Visible: {messages_in('visible')}. Open findings: "
        f"{own_value('count')}.",
    ),
    dashboard="queue",
    evidence=(
        EvidenceField("failed_ratio", "share of the ended deliveries that ended without a settlement"),
        EvidenceField("deliveries", "deliveries that ended in window_s"),
        EvidenceField("consumer", "the only consumer that fails: a bad host, not a bad deployment"),
        EvidenceField("consumers", "the failing consumers, if there are several: a deployment that is rolling out"),
        EvidenceField(
            "outlived_deliveries", "deliveries in window_s reported as finished after their window: the timeout is too short"
        ),
        EvidenceField("leave_at_receive_count", "the receive count at which messages are dead-lettered or dropped"),
        EvidenceField("lost_or_dead_lettered_per_hour", "messages per hour that leave the queue unprocessed at this rate"),
        EvidenceField("failing_since", "when deliveries began to fail, in milliseconds since 1970"),
    ),
    checks={
        "aws_sqs": (
            sqs.error_logs("the same error for every message"),
            sqs.service("a deployment at the time of failing_since; tasks that restart"),
            sqs.changes("SetQueueAttributes", "a permission, key or timeout changed just before"),
            sqs.lambda_metric("Errors", "Sum", "errors from failing_since on"),
            sqs.dead_letter_attributes("how fast the dead-letter queue fills"),
        ),
        "activemq": (
            activemq.log("rollbacks and exceptions of the consumers"),
            activemq.consumers("one connection with all the redeliveries: a bad host"),
            activemq.counts("DispatchCount rising while DequeueCount does not"),
            activemq.dead_letters("the dead-letter queue filling"),
            activemq.connections("consumers that reconnect again and again"),
        ),
        "cloudflare_queues": (
            cloudflare.tail("every invocation throwing, or calling retry()"),
            cloudflare.deployments("the deployment at the time of failing_since"),
            cloudflare.consumers("max_retries and dead_letter_queue: what happens to failing messages"),
            cloudflare.dead_letter_backlog("how fast the dead-letter queue fills"),
            cloudflare.backlog("backlog_count growing"),
        ),
    },
    fix=(
        "Roll the consumer back, or repair its dependency. If the evidence names one consumer, take that host out of service "
        "instead. If the evidence says that deliveries outlived their window, raise the visibility timeout.",
        "If that takes long, stop the deliveries (pause, or scale the consumers to zero), so that messages do not use up their "
        "receives.",
        "Then redrive the dead letters that arrived in the meantime.",
    ),
    ignore=("A consumer that returns most messages on purpose: raise failing_ratio for its pattern.",),
    links=(links.SQS_DEAD_LETTERS, links.SQS_VISIBILITY, links.CLOUDFLARE_RETRIES, links.ACTIVEMQ_REDELIVERY),
)

QUEUE_LAGGING = Entry(
    name="QueueLagging",
    group="queues",
    subject="queue",
    meaning=(
        "The consumers work but do not keep up. At the current rates the oldest waiting message will soon pass the queue's "
        "limit, or has already passed it. The usual causes are slower consumers after a deployment, fewer consumers, or more "
        "traffic."
    ),
    rule=(
        "The status has been lagging for {lagging_for_s}: over five minutes the oldest visible message got older and the "
        "backlog did not shrink. One or two poison suspects do not count where nothing else waits.",
        "At this rate the oldest visible message passes {lag_limit_s} (`lag_limit_s`, per queue pattern: set it to the queue's "
        "objective) within {lag_forecast_s}, or has already passed it.",
        "Within {lag_forecast_lost_s} if consumers fell silent and were not replaced: for five minutes nothing was finished by a "
        "consumer that worked within the hour, fewer messages leave than before, arrivals have not risen, and every consumer "
        "that still works was there before.",
        "It does not fire while the waiting messages will be processed before the limit and the backlog has not grown for two "
        "minutes, for example after a nightly batch.",
        "It is critical if the age will pass half of the retention within a day.",
    ),
    thresholds=("lag_limit_s", "lag_forecast_s", "lag_forecast_lost_s", "lagging_for_s"),
    severity="warning",
    severity_rises="critical, pages somebody, if the age will pass half of the retention within a day",
    alert=signal_alert(
        "QueueLagging",
        "A queue is falling behind and will pass its limit.",
        f"The consumers of {QUEUE} do not keep up. Visible messages: {messages_in('visible')}. Oldest visible: "
        f"{oldest('visible')}. Open findings: {own_value('count')}.",
    ),
    dashboard="queue",
    evidence=(
        EvidenceField("oldest_visible_s", "age of the oldest message a consumer could receive; `exact` says whether it is exact"),
        EvidenceField("limit_s", "the limit for that age"),
        EvidenceField(
            "passes_limit_in_s", "seconds until the limit is reached at this rate, with the earliest and latest estimate"
        ),
        EvidenceField("rate_in_per_s", "messages arriving per second"),
        EvidenceField("rate_out_per_s", "messages settled per second"),
        EvidenceField(
            "cause",
            "the stuck groups that most waiting messages belong to; or what changed compared with the hour before: processing "
            "time, arrivals, or consumers that fell silent",
        ),
        EvidenceField(
            "consumers_passed_over",
            "how many consumers are connected and have room in their prefetch windows (ActiveMQ) while messages wait",
        ),
        EvidenceField("silent_consumers", "consumers that finished messages within the last hour but no longer do"),
    ),
    checks={
        "aws_sqs": (
            sqs.metric("NumberOfMessagesSent", "Sum", "more messages arrive than usual"),
            sqs.metric("NumberOfMessagesDeleted", "Sum", "fewer messages are finished than arrive"),
            sqs.concurrency("a concurrency limit that was reached"),
            sqs.lambda_metric("Duration", "Average", "each message takes longer than before"),
            sqs.service("fewer running tasks than desired"),
        ),
        "activemq": (
            activemq.counts("EnqueueCount growing faster than DequeueCount"),
            activemq.consumers("how evenly the work is spread"),
            activemq.times("messages staying longer and longer in the queue"),
            activemq.memory("limits that slow dispatch"),
            activemq.broker("a broker at its limits"),
        ),
        "cloudflare_queues": (
            cloudflare.backlog("backlog_count: read it twice, a minute apart"),
            cloudflare.consumers("max_concurrency and batch_size"),
            cloudflare.tail("invocations that fail or take long"),
            cloudflare.deployments("a deployment that made it slower"),
            cloudflare.info("new producers"),
        ),
    },
    fix=(
        "If processing takes longer than before, roll back or repair whatever became slow; otherwise add consumers.",
        "If the cause is a stuck group, follow GroupStuck: neither a rollback nor more consumers empty it.",
        "If arrivals have doubled, ask the producers' owners before you scale: it may be a loop.",
    ),
    ignore=("A planned backfill: raise lag_limit_s for the queue's pattern.",),
    links=(links.CLOUDFLARE_CONCURRENCY, links.ACTIVEMQ_PREFETCH, links.SQS_QUOTAS),
)

WINDOW_TOO_SHORT = Entry(
    name="WindowTooShort",
    group="queues",
    subject="queue",
    meaning=(
        "Messages are still being processed when their visibility window ends, so another consumer gets them too: the same work "
        "is done twice, and every such message gets closer to the dead-letter queue."
    ),
    rule=(
        "In {short_window_s}, at least {short_window_ratio} of the deliveries, and at least {short_window_min_deliveries}, "
        "outlived their visibility window: the message was deleted after its window, deleted by a consumer that no longer held "
        "it, or deleted twice; or its deletion was refused because the window had ended, as SQS does for FIFO queues and "
        "Cloudflare for pull consumers. While it fires, four fifths of the share and half of the number are enough.",
        "The queue's visibility timeout is known: from its collector or the configuration, or SQS's default is assumed. Workers "
        "of Cloudflare have none: a batch ends with its invocation.",
        "PoisonMessage about a message of which a deletion was refused, and GroupStuck about a group with such a head, are "
        "folded into it, and so is QueueFailing if most deliveries fail because of the window. Once it explains a stuck group or "
        "a failing queue, it is critical until it ends, and QueueLagging is folded into it.",
    ),
    thresholds=("short_window_ratio", "short_window_s", "short_window_min_deliveries"),
    severity="warning",
    severity_rises="critical, pages somebody, once ordering groups are stuck or most deliveries fail because of it",
    alert=signal_alert(
        "WindowTooShort",
        "Messages are processed longer than their visibility window, and therefore twice.",
        f"Deliveries of {QUEUE} outlive their visibility window. Highest receive count: "
        f"{companion('queuewatch_receive_count_max', 'count')}. Open findings: {own_value('count')}.",
    ),
    dashboard="queue",
    evidence=(
        EvidenceField("outlived_ratio", "share of the deliveries that outlived their window"),
        EvidenceField("work_p95_s", "95th percentile of the processing time, from the last receive of a message to its deletion"),
        EvidenceField(
            "longest_work_s",
            "longest work of the last 15 minutes that ended after its window, timed from the receive by the consumer that did it "
            "(at most a fifth too long); absent if not known",
        ),
        EvidenceField("timeout_that_fits_s", "a visibility timeout that would be long enough; absent if none is"),
        EvidenceField("late_messages", "poison suspects of which deletions were refused because the window had ended"),
        EvidenceField("stuck_groups", "groups that are stuck behind such a message"),
    ),
    checks={
        "aws_sqs": (
            sqs.attributes("VisibilityTimeout"),
            sqs.function("Timeout: the visibility timeout should be six times as long"),
            sqs.lambda_metric("Duration", "Maximum", "how long processing really takes"),
            sqs.error_logs("errors about work that was already done"),
            sqs.changes("SetQueueAttributes", "a visibility timeout that was lowered"),
        ),
        "cloudflare_queues": (
            cloudflare.consumers("type http_pull, and its visibility_timeout_ms"),
            cloudflare.peek("attempts above 1: messages that were delivered again"),
            cloudflare.backlog("a backlog that does not fall although consumers work"),
            cloudflare.dead_letter_backlog("messages dead-lettered although their work was done"),
            cloudflare.settings("modified_on: whether a setting was changed just before"),
        ),
    },
    fix=(
        "Raise the visibility timeout to the value the evidence names.",
        Remedy("Or extend the window while working (ChangeMessageVisibility).", systems=("aws_sqs",)),
        Remedy(
            "A `PullConsumer` requests its own leases: raise its `visibility_timeout_s`, or pull fewer messages at a time, "
            "because all leases of a pull begin at once.",
            systems=("cloudflare_queues",),
        ),
        "Make the work idempotent: at-least-once delivery will repeat some of it anyway.",
    ),
    ignore=("Work that is cheap and idempotent: raise short_window_ratio for the pattern.",),
    links=(links.SQS_VISIBILITY,),
    not_applicable={"activemq": "A message stays with its consumer until it is acknowledged or the connection ends."},
)

QUEUE_SILENT = Entry(
    name="QueueSilent",
    group="queues",
    subject="queue",
    meaning="A queue that normally has traffic gets no new messages: its producers have stopped, or send elsewhere.",
    rule=(
        "Messages arrived in every ten-minute interval of the hour before the last message (of at least half an hour, if the "
        "queue is that new).",
        "Since then at least {silent_messages} messages were due at the rate of that hour, and at the rate of the same time "
        "yesterday if it is known, but none arrived.",
        "If sends are not reported but the broker's counts are, it is known only until 90 s before the latest count that none "
        "arrived: messages may wait for consumers that are away.",
        "Its severity is info, or critical if `silent_pages` is set to 1 for the queue's pattern (default {silent_pages}).",
    ),
    thresholds=("silent_messages", "silent_pages"),
    severity="info",
    alert=signal_alert(
        "QueueSilent",
        "A queue that normally has traffic gets no new messages.",
        f"No messages arrive in {QUEUE} any more. Messages sent so far: {companion('queuewatch_messages_sent_total', 'count')}. "
        f"Open findings: {own_value('count')}.",
    ),
    dashboard="queue",
    evidence=(
        EvidenceField("silent_s", "seconds since the last message"),
        EvidenceField("messages_due", "messages that should have arrived by now"),
        EvidenceField("last_message_at", "when the last message arrived, in milliseconds since 1970"),
    ),
    checks={
        "aws_sqs": (
            sqs.metric("NumberOfMessagesSent", "Sum", "zero: the producers stopped; not zero: only their telemetry stopped"),
            sqs.attributes("whether the policy still allows the producers"),
            sqs.changes("SetQueueAttributes", "a policy changed just before"),
            sqs.service("whether the producing service runs: first set SERVICE, and CLUSTER, to it"),
            sqs.tags("who owns the producers"),
        ),
        "activemq": (
            activemq.counts("EnqueueCount not rising"),
            activemq.connections("missing producers"),
            activemq.broker("memory or store at 100%: producers are blocked"),
            activemq.memory("producer flow control"),
            activemq.log("refused connections"),
        ),
        "cloudflare_queues": (
            cloudflare.info("the producers bound to the queue"),
            cloudflare.deployments("a deployment of the producer just before: first set WORKER to the producer"),
            cloudflare.tail("the producer's errors, with the same WORKER"),
            cloudflare.settings("delivery_paused does not stop sends; a deleted and recreated queue does"),
            cloudflare.backlog("whether the backlog is empty"),
        ),
    },
    fix=("Find the producers of the queue and check why they stopped.",),
    ignore=("A producer that was turned off on purpose.",),
    links=(links.SQS_QUOTAS, links.ACTIVEMQ_FLOW),
)

ENTRIES = (QUEUE_FAILING, QUEUE_LAGGING, WINDOW_TOO_SHORT, QUEUE_SILENT)
