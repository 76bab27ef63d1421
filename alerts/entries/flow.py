"""How a queue flows: deliveries that come to nothing, a backlog that will pass its limit, a window too short, silence."""

from __future__ import annotations

from alerts.checks import activemq, cloudflare, sqs
from alerts.entries import links
from alerts.entry import Entry, EvidenceField
from alerts.signal_alert import signal_alert
from alerts.templating import QUEUE, companion, messages_in, oldest, own_value

QUEUE_FAILING = Entry(
    name="QueueFailing",
    group="queues",
    subject="queue",
    meaning=(
        "Consumers receive messages and do not finish them: the consumer is broken, not a message. Usually a deployment, or "
        "something the consumer depends on. Every message comes back until it is dead-lettered or lost."
    ),
    rule=(
        "Of the deliveries that ended in the last {failing_window_s}, at least {failing_ratio} ended without a settlement: the "
        "visibility window ran out, the message was released, dead-lettered or dropped.",
        "At least {failing_min_deliveries} deliveries ended; with fewer, PoisonMessage carries it.",
        "Sooner when it is clear: over a minute, or the visibility timeout and 40 s where that is longer, more failed than "
        "chance explains, in its first and in its last 20 s too.",
        "Or some consumers fail at least {failing_ratio} of their own deliveries (at least {failing_min_deliveries}) for longer "
        "than a visibility timeout, while the others fail fewer than a tenth: then they are named.",
        "Somebody received in the last two minutes; where nobody does, the consumers are gone and QueueStalled says so.",
        "The PoisonMessage, DeadLetterArrived and BatchRetryStorm it explains are folded into it until it ends. New "
        "PoisonMessage and DeadLetterArrived are held back for {failing_window_s} at most while several messages fail together.",
    ),
    thresholds=("failing_ratio", "failing_window_s", "failing_min_deliveries"),
    severity="critical",
    alert=signal_alert(
        "QueueFailing",
        "Consumers receive messages and finish hardly any.",
        f"At least half of the deliveries of {QUEUE} end without being settled. Poison suspects: "
        f"{companion('queuewatch_poison_messages', 'count')}. Dead-lettered so far: "
        f"{companion('queuewatch_messages_dead_lettered_total', 'count')}. Visible: {messages_in('visible')}. "
        f"Signals: {own_value('count')}.",
    ),
    dashboard="queue",
    evidence=(
        EvidenceField("failed_ratio", "part of the ended deliveries that ended without a settlement"),
        EvidenceField("deliveries", "deliveries that ended in window_s"),
        EvidenceField("consumer", "the one consumer that fails while the others do not: a bad host, not a bad deployment"),
        EvidenceField("consumers", "several such: a deployment that is rolling out"),
        EvidenceField("leave_at_receive_count", "the receive count at which messages are dead-lettered or dropped"),
        EvidenceField("lost_or_dead_lettered_per_hour", "messages an hour that leave unprocessed at this rate"),
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
            activemq.counts("DispatchCount rising while DequeueCount stands still"),
            activemq.dead_letters("the dead-letter queue filling"),
            activemq.connections("consumers that reconnect again and again"),
        ),
        "cloudflare_queues": (
            cloudflare.tail("every invocation throwing, or calling retry()"),
            cloudflare.deployments("the deployment at the time of failing_since"),
            cloudflare.consumers("max_retries and dead_letter_queue: where messages go from here"),
            cloudflare.dead_letter_backlog("how fast the dead-letter queue fills"),
            cloudflare.backlog("backlog_count growing"),
        ),
    },
    fix=(
        "Roll the consumer back, or repair what it depends on. If the evidence names one consumer, take that host out instead.",
        "If that takes long, stop the deliveries (pause, or scale the consumers to zero): messages then keep their receives.",
        "Afterwards redrive the dead letters that came in meanwhile.",
    ),
    ignore=("A consumer that hands most messages back on purpose: raise failing_ratio for its pattern.",),
    links=(links.SQS_DEAD_LETTERS, links.SQS_VISIBILITY, links.CLOUDFLARE_RETRIES, links.ACTIVEMQ_REDELIVERY),
)

QUEUE_LAGGING = Entry(
    name="QueueLagging",
    group="queues",
    subject="queue",
    meaning=(
        "The consumers work and do not keep up. At the present rates the oldest waiting message passes the queue's limit soon, "
        "or has passed it. Usually slower consumers after a deployment, fewer of them, or more traffic."
    ),
    rule=(
        "The status has been lagging for {lagging_for_s}: over five minutes the oldest visible message grew older and the "
        "backlog did not shrink.",
        "At this rate the oldest visible message passes {lag_limit_s} (`lag_limit_s`, per queue pattern: set it to the queue's "
        "objective) within {lag_forecast_s}, or has passed it.",
        "Not while what waits will be worked off before the limit and the backlog has not grown for two minutes, as after a "
        "nightly batch.",
        "It is critical when half of the retention will be passed within a day.",
    ),
    thresholds=("lag_limit_s", "lag_forecast_s", "lagging_for_s"),
    severity="warning",
    alert=signal_alert(
        "QueueLagging",
        "A queue falls behind and will pass its limit.",
        f"{QUEUE} does not keep up. Visible messages: {messages_in('visible')}. Oldest visible: {oldest('visible')}. "
        f"Signals: {own_value('count')}.",
    ),
    dashboard="queue",
    evidence=(
        EvidenceField("oldest_visible_s", "age of the oldest message a consumer could take; `exact` says if it is one"),
        EvidenceField("limit_s", "the age it must not reach"),
        EvidenceField("passes_limit_in_s", "seconds until then at this rate; with the earliest and the latest"),
        EvidenceField("rate_in_per_s", "messages a second that come"),
        EvidenceField("rate_out_per_s", "messages a second that are settled"),
        EvidenceField("cause", "what changed against the hour before: processing time, arrivals, or consumers that fell silent"),
        EvidenceField("silent_consumers", "who finished messages within the hour and finishes none any more"),
    ),
    checks={
        "aws_sqs": (
            sqs.metric("NumberOfMessagesSent", "Sum", "more arrives than usual"),
            sqs.metric("NumberOfMessagesDeleted", "Sum", "less is finished than arrives"),
            sqs.concurrency("a limit that was reached"),
            sqs.lambda_metric("Duration", "Average", "each message takes longer than before"),
            sqs.service("fewer running tasks than desired"),
        ),
        "activemq": (
            activemq.counts("EnqueueCount growing faster than DequeueCount"),
            activemq.consumers("how evenly the work is spread"),
            activemq.times("messages staying longer and longer"),
            activemq.memory("limits that slow dispatch"),
            activemq.broker("a broker at its limits"),
        ),
        "cloudflare_queues": (
            cloudflare.backlog("backlog_count, twice, a minute apart"),
            cloudflare.consumers("max_concurrency and batch_size"),
            cloudflare.tail("invocations that fail or take long"),
            cloudflare.deployments("a deployment that made it slower"),
            cloudflare.info("producers that were added"),
        ),
    },
    fix=(
        "If processing takes longer than before, roll back or repair what became slow; else add consumers.",
        "If arrivals have doubled, ask the producers before you scale: it may be a loop.",
    ),
    ignore=("A backfill that was announced: raise lag_limit_s for the queue's pattern.",),
    links=(links.CLOUDFLARE_CONCURRENCY, links.ACTIVEMQ_PREFETCH, links.SQS_QUOTAS),
)

WINDOW_TOO_SHORT = Entry(
    name="WindowTooShort",
    group="queues",
    subject="queue",
    meaning=(
        "Messages are still being worked on when their visibility window ends, so somebody else gets them too: the same work is "
        "done twice, and every such message moves towards the dead-letter queue."
    ),
    rule=(
        "In {short_window_s}, at least {short_window_ratio} of the deliveries, and at least {short_window_min_deliveries}, "
        "outlived their visibility window: the message was deleted after it, by a consumer that no longer had it, or twice.",
    ),
    thresholds=("short_window_ratio", "short_window_s", "short_window_min_deliveries"),
    severity="warning",
    alert=signal_alert(
        "WindowTooShort",
        "Messages are worked on longer than their visibility window, and so twice.",
        f"Deliveries of {QUEUE} outlive their visibility window. Highest receive count: "
        f"{companion('queuewatch_receive_count_max', 'count')}. Signals: {own_value('count')}.",
    ),
    dashboard="queue",
    evidence=(
        EvidenceField("outlived_ratio", "part of the deliveries that outlived their window"),
        EvidenceField("work_p95_s", "how long 95 % of the messages are worked on at most"),
        EvidenceField("timeout_that_fits_s", "a visibility timeout that would fit"),
    ),
    checks={
        "aws_sqs": (
            sqs.attributes("VisibilityTimeout"),
            sqs.function("Timeout: the visibility timeout should be six times as long"),
            sqs.lambda_metric("Duration", "Maximum", "how long processing really takes"),
            sqs.error_logs("the same message id processed twice"),
            sqs.changes("SetQueueAttributes", "a visibility timeout that was lowered"),
        ),
    },
    fix=(
        "Raise the visibility timeout to the value the evidence names, or extend it while working (ChangeMessageVisibility).",
        "Make the work idempotent: at-least-once delivery will repeat some of it anyway.",
    ),
    ignore=("Work that is cheap and idempotent: raise short_window_ratio for the pattern.",),
    links=(links.SQS_VISIBILITY,),
    not_applicable={
        "activemq": "a message stays with its consumer until it is acknowledged or the connection ends",
        "cloudflare_queues": "a batch ends with its invocation",
    },
)

QUEUE_SILENT = Entry(
    name="QueueSilent",
    group="queues",
    subject="queue",
    meaning="A queue that always has traffic receives nothing: whatever sends to it has stopped, or sends elsewhere.",
    rule=(
        "Something came in each ten minutes of the last hour, or of half an hour at least.",
        "Since then at least {silent_messages} messages were due by the rate of that hour, and by the same time yesterday "
        "where it is known, and none came.",
        "It is info, and critical where `silent_pages` is 1 for the queue's pattern instead of {silent_pages}.",
    ),
    thresholds=("silent_messages", "silent_pages"),
    severity="info",
    alert=signal_alert(
        "QueueSilent",
        "A queue that always has traffic receives nothing.",
        f"Nothing comes to {QUEUE} any more. Messages sent so far: "
        f"{companion('queuewatch_messages_sent_total', 'count')}. Signals: {own_value('count')}.",
    ),
    dashboard="queue",
    evidence=(
        EvidenceField("silent_s", "seconds since the last message"),
        EvidenceField("messages_due", "messages that should have come by now"),
        EvidenceField("last_message_at", "when the last one came, in milliseconds since 1970"),
    ),
    checks={
        "aws_sqs": (
            sqs.metric("NumberOfMessagesSent", "Sum", "zero: the producers stopped; not zero: their telemetry did"),
            sqs.attributes("the policy still lets the producers in"),
            sqs.changes("SetQueueAttributes", "a policy changed just before"),
            sqs.service("the producing service runs"),
            sqs.tags("who owns the producers"),
        ),
        "activemq": (
            activemq.counts("EnqueueCount standing still"),
            activemq.connections("producers missing that should be there"),
            activemq.broker("memory or store at 100 %: producers are blocked"),
            activemq.memory("producer flow control"),
            activemq.log("refused connections"),
        ),
        "cloudflare_queues": (
            cloudflare.info("the producers bound to the queue"),
            cloudflare.deployments("a deployment of the producer just before"),
            cloudflare.tail("the producer's errors"),
            cloudflare.settings("delivery_paused does not stop sends; a deleted and recreated queue does"),
            cloudflare.backlog("nothing waiting"),
        ),
    },
    fix=("Find what sends to the queue and see why it stopped.",),
    ignore=("A producer that was switched off on purpose.",),
    links=(links.SQS_QUOTAS, links.ACTIVEMQ_FLOW),
)

ENTRIES = (QUEUE_FAILING, QUEUE_LAGGING, WINDOW_TOO_SHORT, QUEUE_SILENT)
