"""Single messages that fail, hang or are lost."""

from __future__ import annotations

from alerts.checks import activemq, cloudflare, sqs
from alerts.entries import links
from alerts.entry import Entry, EvidenceField
from alerts.remedy import Remedy
from alerts.signal_alert import WHY, signal_alert, totals_alert
from alerts.templating import QUEUE, companion, messages_in, oldest, own_value

POISON_MESSAGE = Entry(
    name="PoisonMessage",
    group="messages",
    subject="message",
    meaning=(
        "A message is delivered again and again but never finished. Every consumer that gets it fails or returns it. This "
        "continues until its deliveries or, if there is no limit on them, its retention run out; then it goes to the dead-letter "
        "queue or, without one, is lost."
    ),
    rule=(
        "The message is not settled: it was not deleted or moved, and has not expired.",
        "It was delivered at least {poison_receives} times, or max_receive_count times if that is less. A first delivery never "
        "counts.",
        "The severity is info, and nothing alerts, while the delivery that made it a suspect may still succeed: those before "
        "were all reported and failed at one consumer, another one has it or has finished messages meanwhile, and it has lasted "
        "no longer than the 99th percentile of the queue's holds. At least ten messages must have been finished, no deletion of "
        "this one refused, and QueueFailing must not fire or be about to.",
        "Of messages in one prefetch window (ActiveMQ), only the first is announced, and none while the consumer finishes "
        "others: a consumer that is killed gives back its whole window, and the broker counts a delivery of each of these.",
    ),
    thresholds=("poison_receives",),
    severity="warning",
    alert=signal_alert(
        "PoisonMessage",
        "A message is delivered again and again but never finished.",
        f"Messages of {QUEUE} that keep coming back: {own_value('count')}. Highest receive count: "
        f"{companion('queuewatch_receive_count_max', 'count')}. Oldest unsettled message: {oldest('all')}, without the "
        f"suspects: {oldest('healthy')}.",
        matchers=',severity!="info"',
        why=f"{WHY} Findings of severity info are messages whose delivery may still succeed. They are shown and never alert.",
    ),
    dashboard="queue",
    evidence=(
        EvidenceField("message_id", "the message; search the consumer's log for it"),
        EvidenceField("receive_count", "deliveries so far"),
        EvidenceField("receives_left", "deliveries left before it is dead-lettered or lost; absent if the limit is unknown"),
        EvidenceField("final_attempt", "true: no delivery is left; next it is dead-lettered or lost"),
        EvidenceField(
            "refused_settlements", "reported deletions that were refused as too late: the work succeeds, but outlasts the window"
        ),
        EvidenceField("has_dead_letter_queue", "false: the queue is reported to have none; absent otherwise"),
        EvidenceField("consumer", "the last consumer that received it, if known"),
        EvidenceField("age_s", "seconds since it was sent"),
        EvidenceField("age_exact", "false: its send time is not reported, so its age is a lower bound; absent otherwise"),
        EvidenceField("usual_limit_s", "with severity info: how long the delivery may take before it alerts, in seconds"),
        EvidenceField(
            "queuewatch_oldest_message_age_seconds",
            "scope `healthy` far below scope `all`: only the suspects are old, the rest of the queue is fine",
        ),
    ),
    checks={
        "aws_sqs": (
            sqs.message_logs("the exception the consumer throws for this message, the same at every delivery"),
            sqs.error_logs("whether other messages fail with the same error: then it is the consumer, not the message"),
            sqs.attributes(
                "RedrivePolicy.maxReceiveCount: how many deliveries are left; without a policy the message is retried for days"
            ),
            sqs.function("LastModified shortly before the first failure: a deployment; Timeout longer than VisibilityTimeout"),
            sqs.metric("NumberOfMessagesDeleted", "Sum", "deletes continue: the other messages are fine"),
        ),
        "activemq": (
            activemq.browse("JMSRedelivered true at the head; its properties show the producer and the type"),
            activemq.consumers("whether one consumer holds it or it moves from consumer to consumer"),
            activemq.log("redelivery and rollback warnings with the message id"),
            activemq.browse_dead_letters("dlqDeliveryFailureCause of earlier messages: whether the cause is the same"),
            activemq.counts("DequeueCount rises: the other messages are fine"),
        ),
        "cloudflare_queues": (
            cloudflare.tail("the exception for this message id; the id stays the same at every delivery"),
            cloudflare.peek("attempts of the message compared with max_retries + 1"),
            cloudflare.consumers("max_retries and dead_letter_queue: without one the message is deleted after the last retry"),
            cloudflare.deployments("a deployment shortly before the first failure"),
            cloudflare.backlog("backlog_count falls: the other messages are fine"),
        ),
    },
    fix=(
        "If every message fails, roll the consumer back: this alert is only the first sign.",
        "If only this message fails, fix it or skip it in the consumer (acknowledge it and store its body elsewhere).",
        Remedy(
            "A single message cannot be removed from the queue from outside.",
            systems=("aws_sqs", "cloudflare_queues"),
        ),
        Remedy(
            "If there is a dead-letter queue, let the message go there; repair the consumer, then redrive it.",
            unless_false="has_dead_letter_queue",
        ),
        Remedy(
            "If processing only needs more time than the visibility timeout, raise the timeout, or extend it from the consumer.",
            systems=("aws_sqs", "cloudflare_queues"),
        ),
    ),
    ignore=(
        "The consumer retries on purpose (it waits for another system): raise poison_receives for the queue's pattern.",
        "A rolling restart returned the messages in flight, and the message is settled a moment later.",
    ),
    links=(links.SQS_PROBLEMATIC, links.ACTIVEMQ_REDELIVERY, links.CLOUDFLARE_RETRIES),
)

MESSAGE_HELD_TOO_LONG = Entry(
    name="MessageHeldTooLong",
    group="messages",
    subject="message",
    meaning=(
        "A consumer received a message long ago and still holds it: it extends the visibility window again and again, or the "
        "broker never takes a message back. The worker may hang without any error; no other consumer can get the message."
    ),
    rule=(
        "The message has been in flight without a break; extending its window does not count as a break. If a window is "
        "extended after it seemed to have ended, it had not ended. Where no delivery of the message is reported, its first "
        "extension counts as one, and so does one after the end of the window before it.",
        "This has lasted longer than the larger of {held_visibility_factor} × the queue's visibility timeout and {held_min_s}.",
        "The limit applies to all work, even if the consumer extends the window regularly. If a slow consumer holds three or "
        "more such messages, or holds three or more messages of any age and has finished none since, they are folded into its "
        "SlowConsumer.",
        "A message may wait in a prefetch window: where a prefetch of more than one is reported (ActiveMQ) and the consumer has "
        "finished others within the limit, the limit is at least twice the 99th percentile of this queue's holds.",
    ),
    thresholds=("held_visibility_factor", "held_min_s"),
    severity="warning",
    alert=signal_alert(
        "MessageHeldTooLong",
        "A consumer has held a message far longer than its visibility timeout.",
        f"Messages of {QUEUE} in flight without a break for too long: {own_value('count')}. Longest hold of a "
        f"consumer: {companion('queuewatch_consumer_oldest_held_seconds', 'duration')}. In flight: {messages_in('in_flight')}.",
    ),
    dashboard="consumers",
    evidence=(
        EvidenceField("message_id", "the held message"),
        EvidenceField("consumer", "the consumer that holds it, if known"),
        EvidenceField("held_s", "how long it has been held without a break, in seconds"),
        EvidenceField("limit_s", "the limit for this queue, in seconds"),
        EvidenceField(
            "extensions",
            ("how often its window was extended: many regular extensions mean a heartbeat that continues although work hangs"),
        ),
        EvidenceField("extensions_exact", "false: the timeline was truncated, so the number is a lower bound"),
        EvidenceField("invisible_until", "when its current window ends, in milliseconds since 1970"),
    ),
    checks={
        "aws_sqs": (
            sqs.message_logs("the last line about the message: where the worker stopped"),
            sqs.service("runningCount equals desiredCount: the process is alive, so it is stuck rather than dead"),
            sqs.attributes("ApproximateNumberOfMessagesNotVisible: one message, or everything in flight"),
            sqs.lambda_metric("Duration", "Maximum", "a maximum at the function's timeout: it hangs until it is killed"),
            sqs.changes("SetQueueAttributes", "a visibility timeout that was changed recently"),
        ),
        "activemq": (
            activemq.consumers("the consumer with MessageCountAwaitingAcknowledge > 0 and a DequeueCounter that does not rise"),
            activemq.connections("its RemoteAddress: the host to check; OldestActiveTransactionDuration: an open transaction"),
            activemq.counts("InFlightCount > 0 while DequeueCount does not rise"),
            activemq.browse("the message itself: size and properties"),
            activemq.log("timeouts or aborts of that connection"),
        ),
        "cloudflare_queues": (
            cloudflare.tail("the invocation that never ends, or one killed by its time limit"),
            cloudflare.consumers("visibility timeout of a pull consumer"),
            cloudflare.peek("attempts: a message that comes back each time the lease ends"),
            cloudflare.deployments("a deployment shortly before it was received"),
            cloudflare.backlog("whether the rest of the queue moves"),
        ),
    },
    fix=(
        "Take a thread dump of the worker before you restart it: it shows what the worker is waiting for.",
        Remedy(
            "Restart the worker. Its message becomes visible when the current window ends, and another consumer gets it.",
            systems=("aws_sqs", "cloudflare_queues"),
        ),
        Remedy(
            "Restart the worker. The broker gives its messages to another consumer when the connection closes.",
            systems=("activemq",),
        ),
        "Set a timeout on every call the worker makes to other services.",
        Remedy("Stop extending the window after a limited number of attempts.", systems=("aws_sqs",)),
    ),
    ignore=(
        "The work really takes that long: raise held_min_s for the queue's pattern.",
        "A debugger or a paused worker in a test environment.",
    ),
    links=(links.SQS_VISIBILITY, links.ACTIVEMQ_SLOW),
)

MESSAGE_DROPPED = Entry(
    name="MessageDropped",
    group="messages",
    subject="message",
    meaning=(
        "A message was lost unprocessed: its retention ran out, or its retries ran out and there is no dead-letter queue. It "
        "cannot be brought back from the queue."
    ),
    rule=(
        "A message expired or was dropped. Either the broker reported this, or the message outlived its queue's retention.",
        "The signal ends {dropped_quiet_s} after the loss.",
    ),
    thresholds=("dropped_quiet_s",),
    severity="critical",
    alert=totals_alert(
        "MessageDropped",
        ("queuewatch_messages_expired_total", "queuewatch_messages_dropped_total"),
        "lost",
        (
            "The signal is joined with the total of losses. The total is the label `lost`, so each further loss is a new alert "
            "and notifies again, which a changed annotation would not."
        ),
        "A message was lost unprocessed.",
        f"Messages of {QUEUE} are being lost: {companion('queuewatch_messages_expired_total', 'count')} expired and "
        f"{companion('queuewatch_messages_dropped_total', 'count')} dropped since counting began. Age of the oldest remaining "
        f"message: {oldest('all')}.",
    ),
    dashboard="queue",
    evidence=(
        EvidenceField("message_id", "the lost message"),
        EvidenceField("kind", "expired: retention ran out; dropped: retries ran out without a dead-letter queue"),
        EvidenceField("reason", "the reason given by the broker, if any"),
        EvidenceField(
            "receive_count",
            "0: it was never delivered; high: it failed every time; absent: its deliveries are not known",
        ),
        EvidenceField("age_s", "its age when it was lost, in seconds"),
        EvidenceField("age_exact", "false: its send time is not reported, so its age is a lower bound; absent otherwise"),
    ),
    checks={
        "aws_sqs": (
            sqs.attributes("MessageRetentionPeriod compared with the age of the backlog; a missing RedrivePolicy"),
            sqs.metric(
                "ApproximateAgeOfOldestMessage",
                "Maximum",
                "a flat line at the retention period: more messages are being lost now",
            ),
            sqs.metric("NumberOfMessagesReceived", "Sum", "zero: nobody consumes; not zero: consumers receive and fail"),
            sqs.consumers("whether State is Enabled; with a disabled mapping nobody consumes"),
            sqs.changes("PurgeQueue", "a purge: then the messages were deleted on purpose"),
        ),
        "activemq": (
            activemq.counts("ExpiredCount rising"),
            activemq.dead_letters("whether expired messages are kept there (processExpired) or discarded"),
            activemq.browse("JMSExpiration of the remaining messages: when the next ones expire"),
            activemq.consumers("no consumer, or consumers that hold messages and do not acknowledge them"),
            activemq.log("discarded or expired messages"),
        ),
        "cloudflare_queues": (
            cloudflare.consumers("an empty dead_letter_queue: a message that fails max_retries + 1 times is deleted"),
            cloudflare.tail("the error that used up the retries"),
            cloudflare.settings("message_retention_period compared with the backlog's age; delivery_paused"),
            cloudflare.backlog("oldest_message_timestamp_ms close to the retention: more messages are being lost now"),
            cloudflare.deployments("a deployment just before the losses began"),
        ),
    },
    fix=(
        Remedy(
            "Stop the loss first: a longer retention also applies to messages already in the queue. `aws sqs "
            "set-queue-attributes "
            '--queue-url "$QUEUE_URL" --attributes MessageRetentionPeriod=1209600` (14 days, the maximum).',
            systems=("aws_sqs",),
        ),
        Remedy(
            'Stop the loss first: `npx wrangler queues update "$QUEUE" --message-retention-period-secs 1209600`.',
            systems=("cloudflare_queues",),
        ),
        Remedy(
            "Stop the loss first: find the producer whose time to live is shorter than the backlog's age, or remove the expiry "
            "policy.",
            systems=("activemq",),
        ),
        "Configure a dead-letter queue, so that failed messages are kept in future.",
        Remedy(
            "Pause delivery while the consumer is broken, so that retries are not used up: disable the event source mapping.",
            systems=("aws_sqs",),
        ),
        Remedy(
            "Pause delivery while the consumer is broken, so that retries are not used up: "
            '`npx wrangler queues pause-delivery "$QUEUE"`.',
            systems=("cloudflare_queues",),
        ),
        "Recreate the lost messages from the producer: their ids are in queuewatch's signal log.",
    ),
    ignore=(
        "Messages that are meant to expire (intentionally short retention or time to live): set `MessageDropped: "
        "{exclude_queues: '…'}` in `alerts.rules`.",
    ),
    links=(links.SQS_QUOTAS, links.SQS_DEAD_LETTERS, links.CLOUDFLARE_DEAD_LETTERS, links.ACTIVEMQ_REDELIVERY),
)

ENTRIES = (POISON_MESSAGE, MESSAGE_HELD_TOO_LONG, MESSAGE_DROPPED)
