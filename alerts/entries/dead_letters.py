"""Messages that were given up on, and the time left to rescue them."""

from __future__ import annotations

from alerts.checks import activemq, cloudflare, sqs
from alerts.entries import links
from alerts.entry import Entry, EvidenceField
from alerts.remedy import Remedy
from alerts.signal_alert import arrivals_alert, signal_alert
from alerts.templating import QUEUE, companion, messages_in, own_value

DEAD_LETTER_ARRIVED = Entry(
    name="DeadLetterArrived",
    group="messages",
    subject="dead-letter queue",
    meaning=(
        "A message arrived in a dead-letter queue: its consumers gave it up. Arrivals are counted, not "
        "depth, so one that "
        "is drained a second later is still reported. Each further arrival notifies again."
    ),
    rule=(
        "A message arrived in a queue that is a dead-letter queue: seen as a move, as a first receive "
        "there that names its "
        "source queue, or inferred because its deliveries and its last window ran out and the source's "
        "count fell.",
        "The signal ends {dead_letter_quiet_s} after the last arrival.",
    ),
    thresholds=("dead_letter_quiet_s",),
    severity="warning",
    alert=arrivals_alert(
        "DeadLetterArrived",
        "arrivals",
        (
            "The signal, with the number of arrivals as the label `arrivals`: each new dead letter is a "
            "new alert and "
            "notifies again, which a changed annotation would not. All arrivals end together, so the "
            "number never falls "
            "while it fires. It stops at the number of findings listed one by one (100 by default)."
        ),
        "A message arrived in a dead-letter queue.",
        f"{own_value('count')} message(s) arrived in {QUEUE} without a longer pause. Waiting there now: "
        f"{messages_in('visible')}. The first of them is lost to retention in "
        f"{companion('queuewatch_dead_letter_expiry_seconds', 'duration', function='min')}.",
    ),
    dashboard="dead-letters",
    evidence=(
        EvidenceField("message_id", "the dead letter; on SQS it keeps the id it had in the source queue"),
        EvidenceField("from_queue", "the queue that gave it up"),
        EvidenceField("known_by", "event, first_receive or inferred: how sure the arrival is"),
        EvidenceField("receive_count", "deliveries before it was given up"),
        EvidenceField("dead_letters_now", "how many are known to be there"),
    ),
    checks={
        "aws_sqs": (
            sqs.dead_letter_sources(
                "the source queue, if the alert names the dead-letter queue: set QUEUE to it for the next checks"
            ),
            sqs.message_logs("why every delivery failed"),
            sqs.error_logs("one message or all of them"),
            sqs.function("LastModified just before the first arrival: a deployment"),
            sqs.move_tasks("a redrive that runs already, or one that failed"),
        ),
        "activemq": (
            activemq.browse_dead_letters("dlqDeliveryFailureCause and originalExpiration: failed, or expired"),
            activemq.dead_letters("QueueSize and how fast EnqueueCount grows"),
            activemq.log("the exception at the last delivery"),
            activemq.consumers("a consumer that answers NACK: over STOMP that goes to the dead-letter queue at once"),
            activemq.counts("whether the source queue goes on normally"),
        ),
        "cloudflare_queues": (
            cloudflare.dead_letter_backlog("how many wait there and how old the oldest is"),
            cloudflare.tail("the exception that used up the retries"),
            cloudflare.consumers("max_retries: 0 dead-letters at the first failure"),
            cloudflare.deployments("a deployment just before the first arrival"),
            cloudflare.preview("attempts of what is left in the source queue: who is next"),
        ),
    },
    fix=(
        "Find out why with the ids (queuewatch's page lists them), and repair the consumer first: a redrive into a broken "
        "consumer only brings them back.",
        Remedy(
            'Then redrive: `aws sqs start-message-move-task --source-arn "$DLQ_ARN"`; it gives new message ids and a new '
            "retention.",
            systems=("aws_sqs",),
        ),
        Remedy(
            'Then redrive: `amq "exec/$B,destinationType=Queue,destinationName=$DLQ/retryMessages()"`.',
            systems=("activemq",),
        ),
        Remedy(
            "Then redrive with a small Worker that consumes the dead-letter queue and sends to the source queue.",
            systems=("cloudflare_queues",),
        ),
        "If they are worthless, let them expire; purging loses the evidence.",
    ),
    ignore=(("The queue's dead-letter queue is a normal outlet (rejected input kept for inspection): exclude its name."),),
    links=(links.SQS_DEAD_LETTERS, links.SQS_REDRIVE, links.ACTIVEMQ_REDELIVERY, links.CLOUDFLARE_DEAD_LETTERS),
)

DEAD_LETTER_EXPIRING = Entry(
    name="DeadLetterExpiring",
    group="messages",
    subject="dead-letter queue",
    meaning=(
        "The oldest message of a dead-letter queue will soon be deleted by retention. Nobody has looked at "
        "it so far, and "
        "after that nobody can."
    ),
    rule=(
        "The queue is a dead-letter queue and holds a message whose time of deletion is known.",
        ("Less is left than the smaller of {dead_letter_expiring_s} and {dead_letter_expiring_ratio} of the retention."),
        "The clock is the broker's: a standard SQS queue counts from the original send, a FIFO queue from "
        "the move. "
        "CloudWatch's age of a dead-letter queue counts from the move and so shows too much time.",
    ),
    thresholds=("dead_letter_expiring_s", "dead_letter_expiring_ratio"),
    severity="critical",
    alert=signal_alert(
        "DeadLetterExpiring",
        "Dead letters are about to be deleted by retention.",
        f"The first message of {QUEUE} is deleted in "
        f"{companion('queuewatch_dead_letter_expiry_seconds', 'duration', function='min')}. Waiting there: "
        f"{messages_in('visible')}. Signals: {own_value('count')}.",
    ),
    dashboard="dead-letters",
    evidence=(
        EvidenceField("message_id", "the message that goes first"),
        EvidenceField("time_left_s", "seconds left"),
        EvidenceField("retention_s", "the dead-letter queue's retention"),
        EvidenceField("clock", "from which moment the retention counts: original send or arrival"),
        EvidenceField("dead_letters_now", "how many are known to be there"),
    ),
    checks={
        "aws_sqs": (
            sqs.attributes("QUEUE is the dead-letter queue here: MessageRetentionPeriod, and how many messages wait"),
            sqs.dead_letter_sources("which queue's failures these are"),
            sqs.tags("whom to ask whether the messages matter"),
            sqs.move_tasks("a redrive under way: then the number falls by itself"),
            sqs.metric("ApproximateNumberOfMessagesVisible", "Maximum", "whether more keep arriving"),
        ),
        "activemq": (
            activemq.counts("QUEUE is the dead-letter queue here: QueueSize, ExpiredCount"),
            activemq.browse("JMSExpiration and originalExpiration of the oldest"),
            activemq.options("an expiry policy of the dead-letter queue"),
            activemq.log("what put them there"),
            activemq.consumers("whether somebody already drains it"),
        ),
        "cloudflare_queues": (
            cloudflare.settings("QUEUE is the dead-letter queue here: message_retention_period"),
            cloudflare.backlog("oldest_message_timestamp_ms and backlog_count"),
            cloudflare.preview("what the messages are"),
            cloudflare.queues("whether the dead-letter queue has a consumer at all"),
            cloudflare.info("its producers: which queue's failures these are"),
        ),
    },
    fix=(
        Remedy(
            "Win time now: raise the dead-letter queue's retention. `aws sqs set-queue-attributes --queue-url "
            '"$QUEUE_URL" --attributes MessageRetentionPeriod=1209600` (14 days, the most).',
            systems=("aws_sqs",),
        ),
        Remedy(
            "Win time now: raise the dead-letter queue's retention. "
            '`npx wrangler queues update "$QUEUE" --message-retention-period-secs 1209600`.',
            systems=("cloudflare_queues",),
        ),
        "Redrive if the consumer is repaired.",
        Remedy("A redriven message starts a new retention.", systems=("aws_sqs",)),
        "Set the dead-letter queue's retention longer than the source queue's for good.",
    ),
    ignore=("The messages were looked at and may go: silence the alert until they are gone.",),
    links=(links.SQS_DLQ_RETENTION, links.SQS_REDRIVE, links.CLOUDFLARE_LIMITS),
)

ENTRIES = (DEAD_LETTER_ARRIVED, DEAD_LETTER_EXPIRING)
