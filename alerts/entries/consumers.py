"""Slow consumers, and batches that are retried again and again."""

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
        "A consumer holds a message much longer than this queue's messages usually take. It may hang, or wait for a resource; "
        "other consumers cannot get the messages it holds."
    ),
    rule=(
        "The consumer has held its oldest message since that message was handed to it (not since its last acknowledgement).",
        "That is longer than the larger of {slow_hold_min_s} and {slow_hold_factor} × the queue's median hold.",
        "A consumer that extended the window and holds the message beyond the visibility timeout claims to be working. Such a "
        "hold must also be longer than twice the 99th percentile of the queue's holds, and at least ten messages must have been "
        "finished before; the same is true of a dead-letter queue, where somebody may look at its messages. A long window that "
        "was requested with the receive is not an extension. "
        "MessageHeldTooLong covers holds that are too long for any work.",
        "A message that is given back again and again, such as one that serves as a lock, must also have been held for "
        "{slow_hold_factor} × the median time after which it was given back, once it has been at least twice and is a poison "
        "suspect.",
        "It is folded into NoisyGroup if the message belongs to the noisy group and the consumer is well: it finished others "
        "meanwhile, or has not held this one more than {held_longer_factor} times as long as another that did. Not if it holds "
        "a message for so long that MessageHeldTooLong fires.",
        "The verdicts of the broker's own strategies (full prefetch window, time since the last acknowledgement) are reported "
        "as information and do not alert.",
    ),
    thresholds=("slow_hold_min_s", "slow_hold_factor"),
    severity="warning",
    alert=signal_alert(
        "SlowConsumer",
        "A consumer holds a message much longer than usual.",
        f"Slow consumers of {QUEUE}: {own_value('count')}. Longest hold: "
        f"{companion('queuewatch_consumer_oldest_held_seconds', 'duration')}. In flight: {messages_in('in_flight')}, visible: "
        f"{messages_in('visible')}.",
        matchers=',severity!="info"',
        why=(
            f"{WHY} Findings of severity info are the verdicts of the broker's own strategies: they are shown, but never alert."
        ),
    ),
    dashboard="consumers",
    evidence=(
        EvidenceField("consumer", "the slow consumer"),
        EvidenceField("client_id", "the client id of its connection, if the broker reports it (ActiveMQ)"),
        EvidenceField("message_id", "the message it holds"),
        EvidenceField(
            "held_messages",
            "how many messages it holds; MessageHeldTooLong for three or more of them is folded into this signal",
        ),
        EvidenceField(
            "finished_meanwhile",
            "false: it has finished nothing since it received that message, so the whole process hangs, not just one thread",
        ),
        EvidenceField("held_s", "how long it has held the message, in seconds"),
        EvidenceField("limit_s", "the limit that applies here, in seconds"),
        EvidenceField("usual_hold_s", "how long this queue's messages are usually held, in seconds"),
        EvidenceField("message_group", "the message's group, if it has one"),
        EvidenceField("noisy_group", "the group that crowds the queue meanwhile (see NoisyGroup), if there is one"),
        EvidenceField("strategy", "hold: this rule; prefetch or ack: the verdict of one of ActiveMQ's own strategies"),
    ),
    checks={
        "aws_sqs": (
            sqs.message_logs("the last line about the message it holds"),
            sqs.lambda_metric("Duration", "Maximum", "near the function's timeout"),
            sqs.service("tasks restarting, or fewer than desired"),
            sqs.error_logs("timeouts of a database or another service"),
            sqs.metric("NumberOfMessagesDeleted", "Sum", "whether the other consumers still make progress"),
        ),
        "activemq": (
            activemq.consumers("the consumer: DispatchedQueueSize, MessageCountAwaitingAcknowledge, PrefetchSize, SlowConsumer"),
            activemq.connections("its host; an old open transaction; Blocked"),
            activemq.times("AverageEnqueueTime, to compare with how long the consumer has held its message"),
            activemq.options("a slow-consumer strategy that may abort it soon, and how often it checks"),
            activemq.log("an abort: the client may remain as a zombie whose acknowledgements are dropped"),
        ),
        "cloudflare_queues": (
            cloudflare.tail("long invocations, CPU or wall-time limits"),
            cloudflare.consumers("max_concurrency and batch_size: a big batch holds all its messages until the last is done"),
            cloudflare.backlog("whether the backlog grows at the same time"),
            cloudflare.deployments("a deployment that made it slow"),
            cloudflare.info("how many consumers there are"),
        ),
    },
    fix=(
        "Take a thread dump of the consumer, then restart it. The messages it held are delivered to other consumers.",
        Remedy(
            'Close its connection with `amq "exec/$B,connector=clientConnectors,connectorName=$CONNECTOR,'
            'connectionViewType=clientId,connectionName=$CLIENT/stop()"` (the check of connections shows both names); check '
            "that the client reconnects.",
            systems=("activemq",),
        ),
        Remedy("Lower the prefetch, so that a slow consumer holds fewer messages.", systems=("activemq",)),
        Remedy("Lower the batch size, so that a slow consumer holds fewer messages.", systems=("aws_sqs", "cloudflare_queues")),
        "Set timeouts shorter than the visibility timeout for its calls to other services.",
    ),
    ignore=("A message that naturally takes long in a queue of short ones: raise slow_hold_min_s for the queue's pattern.",),
    links=(links.ACTIVEMQ_SLOW, links.ACTIVEMQ_PREFETCH, links.SQS_VISIBILITY, links.CLOUDFLARE_CONCURRENCY),
)

BATCH_RETRY_STORM = Entry(
    name="BatchRetryStorm",
    group="consumers",
    subject="queue",
    meaning=(
        "Many deliveries repeat messages whose batch failed because of another message. Good messages are processed again and "
        "again, including their side effects, and use up their own retries."
    ),
    rule=(
        "Within {retry_storm_window_s} at least {retry_storm_min_deliveries} deliveries were made.",
        "At least {retry_storm_ratio} of them were redeliveries of messages from failed batches. It ends below "
        "four fifths of that.",
    ),
    thresholds=("retry_storm_ratio", "retry_storm_window_s", "retry_storm_min_deliveries"),
    severity="warning",
    alert=signal_alert(
        "BatchRetryStorm",
        "Many deliveries repeat messages of failed batches.",
        f"Many deliveries of {QUEUE} repeat messages of failed batches. Received so far: "
        f"{companion('queuewatch_messages_received_total', 'count')}, acknowledged: "
        f"{companion('queuewatch_messages_deleted_total', 'count')}. Highest receive count: "
        f"{companion('queuewatch_receive_count_max', 'count')}. Open findings: {own_value('count')}.",
    ),
    dashboard="consumers",
    evidence=(
        EvidenceField("deliveries", "deliveries in the window"),
        EvidenceField("redeliveries_from_failed_batches", "how many of them repeated messages from failed batches"),
        EvidenceField("wasted_ratio", "their share, 0 to 1"),
        EvidenceField("window_s", "the window, in seconds"),
    ),
    checks={
        "aws_sqs": (
            sqs.consumers("FunctionResponseTypes without ReportBatchItemFailures: one failure returns the whole batch"),
            sqs.error_logs("the one exception that fails the batches"),
            sqs.lambda_metric("Errors", "Sum", "invocations that fail as a whole"),
            sqs.metric("NumberOfMessagesReceived", "Sum", "many more receives than deletes"),
            sqs.function("Timeout: a batch that is killed fails as a whole; LastModified: a deployment"),
        ),
        "activemq": (
            activemq.counts("DispatchCount growing much faster than DequeueCount"),
            activemq.consumers("transacted sessions with a large prefetch: one rollback returns all messages"),
            activemq.connections("ActiveTransactionCount and how old the transactions are"),
            activemq.browse("JMSRedelivered true on most messages"),
            activemq.log("rollbacks and the exception behind them"),
        ),
        "cloudflare_queues": (
            cloudflare.tail("the exception thrown by queue(): it retries the whole batch"),
            cloudflare.consumers("batch_size: 100 with throw on error wastes up to 99 deliveries per failure"),
            cloudflare.peek("attempts rising on every message of the sample"),
            cloudflare.deployments("a deployment just before it began"),
            cloudflare.dead_letter_backlog("good messages dead-lettered together with the bad one"),
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
        "Until then, use a smaller batch size, so that a failure costs less.",
        "Make the handler idempotent: the good messages have been processed several times already.",
    ),
    ignore=("A dependency was down and every message failed: the redeliveries are correct; look for its own alert.",),
    links=(links.CLOUDFLARE_RETRIES, links.LAMBDA_SQS),
)

ENTRIES = (SLOW_CONSUMER, BATCH_RETRY_STORM)
