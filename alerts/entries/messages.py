"""Single messages that fail, hang or are lost."""

from __future__ import annotations

from alerts.checks import activemq, cloudflare, sqs
from alerts.entries import links
from alerts.entry import Entry, EvidenceField
from alerts.remedy import Remedy
from alerts.signal_alert import signal_alert, totals_alert
from alerts.templating import QUEUE, companion, messages_in, oldest, own_value

POISON_MESSAGE = Entry(
    name="PoisonMessage",
    group="messages",
    subject="message",
    meaning=(
        "A message is delivered again and again and never finished. Whoever gets it fails or gives it "
        "back. It will go on "
        "like this until its deliveries run out, and then it goes to the dead-letter queue or, without "
        "one, is lost."
    ),
    rule=(
        "The message is not settled: it was not deleted, moved or expired.",
        "It was delivered at least {poison_receives} times, or as often as the queue's max_receive_count "
        "allows where that "
        "is less, but never on a first delivery.",
    ),
    thresholds=("poison_receives",),
    severity="warning",
    alert=signal_alert(
        "PoisonMessage",
        "A message is delivered again and again and never finished.",
        f"{own_value('count')} message(s) of {QUEUE} keep coming back. Highest receive count: "
        f"{companion('queuewatch_receive_count_max', 'count')}. Oldest unsettled message: "
        f"{oldest('all')}, without the "
        f"suspects: {oldest('healthy')}.",
    ),
    dashboard="queue",
    evidence=(
        EvidenceField("message_id", "the message; search the consumer's log for it"),
        EvidenceField("receive_count", "deliveries so far"),
        EvidenceField("receives_left", ("deliveries left before it is dead-lettered or lost; absent when the limit is unknown")),
        EvidenceField("final_attempt", ("true: no delivery is left, the next step is the dead-letter queue or the loss")),
        EvidenceField("consumer", "who had it last, when that is known"),
        EvidenceField("age_s", "seconds since it was sent"),
        EvidenceField(
            "queuewatch_oldest_message_age_seconds",
            "scope `healthy` far below scope `all`: only the suspects are old, the rest of the queue is fine",
        ),
    ),
    checks={
        "aws_sqs": (
            sqs.message_logs("the exception the consumer throws for this one message, the same at every delivery"),
            sqs.error_logs("whether other messages fail with the same error: then it is the consumer, not the message"),
            sqs.attributes(
                "RedrivePolicy.maxReceiveCount: how many deliveries are left; a missing policy means it retries for days"
            ),
            sqs.function("LastModified shortly before the first failure: a deployment; Timeout longer than VisibilityTimeout"),
            sqs.metric("NumberOfMessagesDeleted", "Sum", "deletes go on: the other messages are fine"),
        ),
        "activemq": (
            activemq.browse("JMSRedelivered true at the head; its properties tell which producer and type"),
            activemq.consumers("whether one consumer holds it or it wanders from consumer to consumer"),
            activemq.log("redelivery and rollback warnings with the message id"),
            activemq.browse_dead_letters("dlqDeliveryFailureCause of earlier messages: the same cause?"),
            activemq.counts("DequeueCount rises: the other messages are fine"),
        ),
        "cloudflare_queues": (
            cloudflare.tail("the exception for this message id; the same id at every delivery"),
            cloudflare.preview("attempts of the message against max_retries + 1"),
            cloudflare.consumers("max_retries and dead_letter_queue: without one the message is deleted after the last retry"),
            cloudflare.deployments("a deployment shortly before the first failure"),
            cloudflare.backlog("backlog_count falls: the other messages are fine"),
        ),
    },
    fix=(
        "If every message fails: roll the consumer back, this alert is only the first sign.",
        "If only this one fails: fix or skip it in the consumer (acknowledge it and store its body elsewhere).",
        Remedy(
            "Nothing can take a single message out of the queue from outside.",
            systems=("aws_sqs", "cloudflare_queues"),
        ),
        "Let it go to the dead-letter queue if there is one; repair the consumer and redrive it from there.",
        Remedy(
            "If it only needs longer than the visibility timeout: raise it, or extend it from the consumer while it works.",
            systems=("aws_sqs", "cloudflare_queues"),
        ),
    ),
    ignore=(
        ("The consumer retries on purpose (waiting for another system): raise poison_receives for the queue's pattern."),
        "A rolling restart gave back what was in flight, and the message is settled a moment later.",
    ),
    links=(links.SQS_PROBLEMATIC, links.ACTIVEMQ_REDELIVERY, links.CLOUDFLARE_RETRIES),
)

MESSAGE_HELD_TOO_LONG = Entry(
    name="MessageHeldTooLong",
    group="messages",
    subject="message",
    meaning=(
        "A consumer took a message long ago and keeps it: it extends the visibility window over and over, "
        "or its broker "
        "never takes a message back. The worker may hang with no error anywhere; nobody else can get the "
        "message."
    ),
    rule=(
        "The message has been in flight without a break; extending its window does not count as a break.",
        ("That lasts longer than the larger of {held_visibility_factor} × the queue's visibility timeout and {held_min_s}."),
        "It is a limit for any work, also where the consumer extends the window faithfully. Where a slow consumer holds three or "
        "more such messages, or several and finishes nothing, they are folded into its SlowConsumer.",
    ),
    thresholds=("held_visibility_factor", "held_min_s"),
    severity="warning",
    alert=signal_alert(
        "MessageHeldTooLong",
        "A consumer has held a message far longer than its visibility timeout.",
        f"{own_value('count')} message(s) of {QUEUE} have been in flight without a break for too long. "
        f"Longest hold of a "
        f"consumer: {companion('queuewatch_consumer_oldest_held_seconds', 'duration')}. In flight: "
        f"{messages_in('in_flight')}.",
    ),
    dashboard="consumers",
    evidence=(
        EvidenceField("message_id", "the message that is held"),
        EvidenceField("consumer", "who holds it, when that is known"),
        EvidenceField("held_s", "how long, in seconds, without a break"),
        EvidenceField("limit_s", "how long is too long for this queue, in seconds"),
        EvidenceField(
            "extensions", ("how often its window was extended: many and regular means a heartbeat that outlives the work")
        ),
        EvidenceField("extensions_exact", "false: the timeline was cut, so it was extended at least so often"),
        EvidenceField("invisible_until", "when its present window ends, in milliseconds since 1970"),
    ),
    checks={
        "aws_sqs": (
            sqs.message_logs("the last line about it: where the worker stopped"),
            sqs.service("runningCount equals desiredCount: the process lives, so it is stuck rather than dead"),
            sqs.attributes("ApproximateNumberOfMessagesNotVisible: one message, or everything in flight"),
            sqs.lambda_metric("Duration", "Maximum", ("a maximum at the function's timeout: it hangs until it is killed")),
            sqs.changes("SetQueueAttributes", "a visibility timeout that somebody changed lately"),
        ),
        "activemq": (
            activemq.consumers("the consumer with MessageCountAwaitingAcknowledge > 0 and a DequeueCounter that stands still"),
            activemq.connections("its RemoteAddress: the host to look at; OldestActiveTransactionDuration: an open transaction"),
            activemq.counts("InFlightCount > 0 while DequeueCount does not move"),
            activemq.browse("the message itself: size and properties"),
            activemq.log("timeouts or aborts of that connection"),
        ),
        "cloudflare_queues": (
            cloudflare.tail("the invocation that never ends, or one killed by its time limit"),
            cloudflare.consumers("visibility timeout of a pull consumer"),
            cloudflare.preview("attempts: a message that comes back each time the lease ends"),
            cloudflare.deployments("a deployment shortly before it was taken"),
            cloudflare.backlog("whether the rest of the queue moves"),
        ),
    },
    fix=(
        "Take a thread dump of the worker before you restart it: it shows what it waits for.",
        Remedy(
            "Restart the worker. Its message becomes visible when the present window ends, and another consumer gets it.",
            systems=("aws_sqs", "cloudflare_queues"),
        ),
        Remedy(
            "Restart the worker. The broker gives its messages to another consumer when its connection is closed.",
            systems=("activemq",),
        ),
        "Give every outside call of the worker a timeout.",
        Remedy("Stop extending the window after a limit of attempts.", systems=("aws_sqs",)),
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
        "A message was lost unprocessed: its retention ran out, or its retries ran out and there is no "
        "dead-letter queue. "
        "It cannot be brought back from the queue."
    ),
    rule=(
        ("A message ended as expired or dropped, whether the broker said so or it outlived its queue's retention."),
        "The signal ends {dropped_quiet_s} after the last loss.",
    ),
    thresholds=("dropped_quiet_s",),
    severity="critical",
    alert=totals_alert(
        "MessageDropped",
        ("queuewatch_messages_expired_total", "queuewatch_messages_dropped_total"),
        "lost",
        (
            "The signal joined with the total of losses: the total is the label `lost`, so each further "
            "loss is a new "
            "alert and notifies again, which a changed annotation would not."
        ),
        "A message was lost unprocessed.",
        f"Messages of {QUEUE} are being lost: {companion('queuewatch_messages_expired_total', 'count')} "
        f"expired and "
        f"{companion('queuewatch_messages_dropped_total', 'count')} dropped since counting began. Oldest "
        f"message still "
        f"there: {oldest('all')}.",
    ),
    dashboard="queue",
    evidence=(
        EvidenceField("message_id", "the lost message"),
        EvidenceField("kind", ("expired: retention ran out; dropped: retries ran out without a dead-letter queue")),
        EvidenceField("reason", "the broker's own word for it, when there is one"),
        EvidenceField("receive_count", "0: nobody ever tried it; high: it failed every time"),
        EvidenceField("age_s", "how old it was, in seconds"),
    ),
    checks={
        "aws_sqs": (
            sqs.attributes("MessageRetentionPeriod against the age of the backlog; RedrivePolicy missing"),
            sqs.metric("ApproximateAgeOfOldestMessage", "Maximum", ("a line at the retention period: more are being lost now")),
            sqs.metric("NumberOfMessagesReceived", "Sum", ("zero: nobody consumes; not zero: they receive and fail")),
            sqs.consumers("State Enabled; a disabled mapping means nobody consumes"),
            sqs.changes("PurgeQueue", "a purge: then it was no accident of the queue"),
        ),
        "activemq": (
            activemq.counts("ExpiredCount rising"),
            activemq.dead_letters("whether expired messages are kept there (processExpired) or thrown away"),
            activemq.browse("JMSExpiration of what is left: how soon the next ones go"),
            activemq.consumers("no consumer, or consumers that hold and do not acknowledge"),
            activemq.log("discarded or expired messages"),
        ),
        "cloudflare_queues": (
            cloudflare.consumers("dead_letter_queue empty: what fails max_retries + 1 times is deleted"),
            cloudflare.tail("the error that used the retries up"),
            cloudflare.settings("message_retention_period against the backlog's age; delivery_paused"),
            cloudflare.backlog("oldest_message_timestamp_ms close to the retention: more go now"),
            cloudflare.deployments("a deployment just before the losses began"),
        ),
    },
    fix=(
        Remedy(
            "Stop the loss first: a longer retention also helps what is already there. `aws sqs set-queue-attributes "
            '--queue-url "$QUEUE_URL" --attributes MessageRetentionPeriod=1209600` (14 days, the most).',
            systems=("aws_sqs",),
        ),
        Remedy(
            'Stop the loss first: `npx wrangler queues update "$QUEUE" --message-retention-period-secs 1209600`.',
            systems=("cloudflare_queues",),
        ),
        Remedy(
            "Stop the loss first: find who gives messages a time to live shorter than the backlog, or remove the expiry policy.",
            systems=("activemq",),
        ),
        "Give the queue a dead-letter queue, so that the next failure is kept.",
        Remedy(
            "Pause delivery while the consumer is broken, so that retries are not used up: disable the event source mapping.",
            systems=("aws_sqs",),
        ),
        Remedy(
            "Pause delivery while the consumer is broken, so that retries are not used up: "
            '`npx wrangler queues pause-delivery "$QUEUE"`.',
            systems=("cloudflare_queues",),
        ),
        "Rebuild what was lost from the producer: the message ids are in queuewatch's signal log.",
    ),
    ignore=(
        ("Messages that are meant to lapse (short retention or a time to live on purpose): switch the alert off for the queue."),
    ),
    links=(links.SQS_QUOTAS, links.SQS_DEAD_LETTERS, links.CLOUDFLARE_DEAD_LETTERS, links.ACTIVEMQ_REDELIVERY),
)

ENTRIES = (POISON_MESSAGE, MESSAGE_HELD_TOO_LONG, MESSAGE_DROPPED)
