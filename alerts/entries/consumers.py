"""Consumers that are slow, and batches that are delivered for nothing."""

from __future__ import annotations

from alerts.checks import activemq, cloudflare, sqs
from alerts.entries import links
from alerts.entry import Entry, EvidenceField
from alerts.remedy import Remedy
from alerts.signal_alert import WHY, signal_alert
from alerts.templating import QUEUE, companion, messages_in, own_value

SLOW_CONSUMER = Entry(
    name="SlowConsumer",
    group="consumers",
    subject="consumer",
    meaning=(
        "A consumer sits on a message much longer than this queue's messages usually take. It may hang, or "
        "starve for "
        "something; what it holds is out of reach for the others."
    ),
    rule=(
        ("The consumer has held its oldest message since that message was handed to it (not since its last acknowledgement)."),
        ("That is longer than the larger of {slow_hold_min_s} and {slow_hold_factor} × the queue's median hold."),
        "A hold beyond the visibility timeout was extended, so the consumer says that it works: it must also be longer than "
        "twice the slowest hundredth of the queue, and nothing is said before ten messages were finished. However long is too "
        "long anywhere is the business of MessageHeldTooLong.",
        "What the broker's own strategies would say (full prefetch window, time since the last "
        "acknowledgement) is reported "
        "beside it as information and does not alert.",
    ),
    thresholds=("slow_hold_min_s", "slow_hold_factor"),
    severity="warning",
    alert=signal_alert(
        "SlowConsumer",
        "A consumer holds a message much longer than usual.",
        f"{own_value('count')} consumer(s) of {QUEUE} are slow. Longest hold: "
        f"{companion('queuewatch_consumer_oldest_held_seconds', 'duration')}. In flight: "
        f"{messages_in('in_flight')}, visible: "
        f"{messages_in('visible')}.",
        matchers=',severity!="info"',
        why=(f"{WHY} Findings of severity info are what the broker's own strategies would say: shown, never alerted on."),
    ),
    dashboard="consumers",
    evidence=(
        EvidenceField("consumer", "who is slow"),
        EvidenceField("message_id", "the message it sits on"),
        EvidenceField("held_messages", "how many it holds; MessageHeldTooLong of three or more are folded into this signal"),
        EvidenceField("finished_meanwhile", "false: it has finished nothing since, so the process hangs, not one thread"),
        EvidenceField("held_s", "for how many seconds"),
        EvidenceField("limit_s", "the limit that applies here, in seconds"),
        EvidenceField("usual_hold_s", "how long this queue's messages are usually held, in seconds"),
        EvidenceField("held_messages", "how many messages it holds in all"),
        EvidenceField("strategy", ("hold: this rule; prefetch or ack: what ActiveMQ's own strategies would say")),
    ),
    checks={
        "aws_sqs": (
            sqs.message_logs("the last line about the message it sits on"),
            sqs.lambda_metric("Duration", "Maximum", "near the function's timeout"),
            sqs.service("tasks restarting, or fewer than desired"),
            sqs.error_logs("timeouts of a database or another service"),
            sqs.metric("NumberOfMessagesDeleted", "Sum", "whether the other consumers carry on"),
        ),
        "activemq": (
            activemq.consumers("the consumer: DispatchedQueueSize, MessageCountAwaitingAcknowledge, PrefetchSize, SlowConsumer"),
            activemq.connections("its host; an old open transaction; Blocked"),
            activemq.times("what is usual for this queue, in milliseconds"),
            activemq.options("a slow-consumer strategy that may abort it soon, and how often it checks"),
            activemq.log("an abort: the client may live on as a zombie whose acknowledgements are dropped"),
        ),
        "cloudflare_queues": (
            cloudflare.tail("long invocations, CPU or wall-time limits"),
            cloudflare.consumers("max_concurrency and batch_size: a big batch holds all its messages until the last is done"),
            cloudflare.backlog("whether the backlog grows meanwhile"),
            cloudflare.deployments("a deployment that made it slow"),
            cloudflare.info("how many consumers there are"),
        ),
    },
    fix=(
        "Take a thread dump of the consumer, then restart it. What it held is delivered to another one.",
        Remedy(
            'Close its connection with `amq "exec/$B,connector=clientConnectors,connectorName=$CONNECTOR,'
            'connectionViewType=clientId,connectionName=$CLIENT/stop()"`; check that the client reconnects.',
            systems=("activemq",),
        ),
        Remedy("Lower the prefetch, so that a slow one holds fewer messages.", systems=("activemq",)),
        Remedy("Lower the batch size, so that a slow one holds fewer messages.", systems=("aws_sqs", "cloudflare_queues")),
        "Give its outside calls timeouts shorter than the visibility timeout.",
    ),
    ignore=(("One naturally long message in a queue of short ones: raise slow_hold_min_s for the queue's pattern."),),
    links=(links.ACTIVEMQ_SLOW, links.ACTIVEMQ_PREFETCH, links.SQS_VISIBILITY, links.CLOUDFLARE_CONCURRENCY),
)

BATCH_RETRY_STORM = Entry(
    name="BatchRetryStorm",
    group="consumers",
    subject="queue",
    meaning=(
        "Most deliveries are repeats of messages whose batch failed because of a neighbour. Good messages "
        "are processed "
        "again and again, side effects included, and use up their own retries."
    ),
    rule=(
        "Within {retry_storm_window_s} at least {retry_storm_min_deliveries} deliveries were made.",
        "At least {retry_storm_ratio} of them were redeliveries of messages out of failed batches.",
    ),
    thresholds=("retry_storm_ratio", "retry_storm_window_s", "retry_storm_min_deliveries"),
    severity="warning",
    alert=signal_alert(
        "BatchRetryStorm",
        "Most deliveries repeat messages of failed batches.",
        f"Deliveries of {QUEUE} are mostly repeats. Received so far: "
        f"{companion('queuewatch_messages_received_total', 'count')}, acknowledged: "
        f"{companion('queuewatch_messages_deleted_total', 'count')}. Highest receive count: "
        f"{companion('queuewatch_receive_count_max', 'count')}. Signals: {own_value('count')}.",
    ),
    dashboard="consumers",
    evidence=(
        EvidenceField("deliveries", "deliveries in the window"),
        EvidenceField("redeliveries_from_failed_batches", ("how many of them repeated messages out of failed batches")),
        EvidenceField("wasted_ratio", "their share, 0 to 1"),
        EvidenceField("window_s", "the window, in seconds"),
    ),
    checks={
        "aws_sqs": (
            sqs.consumers("FunctionResponseTypes without ReportBatchItemFailures: one failure gives back the whole batch"),
            sqs.error_logs("the one exception that fails the batches"),
            sqs.lambda_metric("Errors", "Sum", "invocations that fail as a whole"),
            sqs.metric("NumberOfMessagesReceived", "Sum", "many more receives than deletes"),
            sqs.function("Timeout: a batch that is killed fails as a whole; LastModified: a deployment"),
        ),
        "activemq": (
            activemq.counts("DispatchCount growing much faster than DequeueCount"),
            activemq.consumers("transacted sessions with a large prefetch: one rollback gives back all of them"),
            activemq.connections("ActiveTransactionCount and how old the transactions are"),
            activemq.browse("JMSRedelivered true on most"),
            activemq.log("rollbacks and the exception behind them"),
        ),
        "cloudflare_queues": (
            cloudflare.tail("the exception thrown out of queue(): it retries the whole batch"),
            cloudflare.consumers("batch_size: 100 with throw on error wastes up to 99 deliveries per failure"),
            cloudflare.preview("attempts rising on every message of the sample"),
            cloudflare.deployments("a deployment just before it began"),
            cloudflare.dead_letter_backlog("good messages dead-lettered along with the bad one"),
        ),
    },
    fix=(
        Remedy(
            "Settle message by message: return batchItemFailures from the Lambda function and set ReportBatchItemFailures.",
            systems=("aws_sqs",),
        ),
        Remedy(
            "Settle message by message: call msg.ack() for each finished message and msg.retry() only for the failed one; never "
            "let the handler throw.",
            systems=("cloudflare_queues",),
        ),
        Remedy("Settle message by message instead of in one transaction.", systems=("activemq",)),
        "Meanwhile make the batch smaller, so that a failure costs less.",
        "Make the handler idempotent: the good messages have been processed several times already.",
    ),
    ignore=(("A dependency was down and every message failed: then the redeliveries are right; look for that alert."),),
    links=(links.CLOUDFLARE_RETRIES, links.LAMBDA_SQS),
)

ENTRIES = (SLOW_CONSUMER, BATCH_RETRY_STORM)
