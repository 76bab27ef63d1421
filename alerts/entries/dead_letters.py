"""Dead letters: their arrival, and the time until they expire."""

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
        "A message arrived in a dead-letter queue: its consumers failed to process it. Arrivals are counted, not depth, so a "
        "dead letter that is drained a second later is still reported. Each further arrival notifies again."
    ),
    rule=(
        "A message arrived in a dead-letter queue. The arrival was seen as a move, seen as a first receive there that names its "
        "source queue, inferred because the deliveries and the last window ran out and the source's count fell, or counted "
        "because the dead-letter queue's depth rose and no message was reported that explains it within two minutes.",
        "The signal ends {dead_letter_quiet_s} after the last arrival.",
    ),
    thresholds=("dead_letter_quiet_s",),
    severity="warning",
    alert=arrivals_alert(
        "DeadLetterArrived",
        "arrivals",
        (
            "The signal, with the number of arrivals as the label `arrivals`: each new dead letter is a new alert and notifies "
            "again, which a changed annotation would not. All arrivals end together, so the number never falls while it fires. "
            "It stops at the number of findings listed one by one (100 by default)."
        ),
        "A message arrived in a dead-letter queue.",
        f"Messages that arrived in {QUEUE} recently: {own_value('count')}. Waiting there now: {messages_in('visible')}. Time "
        f"until retention deletes the first: {companion('queuewatch_dead_letter_expiry_seconds', 'duration', function='min')}.",
    ),
    dashboard="dead-letters",
    evidence=(
        EvidenceField("message_id", "the dead letter; in SQS it keeps the id it had in the source queue"),
        EvidenceField("from_queue", "its source queue"),
        EvidenceField("known_by", "event, first_receive, inferred or counts: how the arrival is known"),
        EvidenceField("receive_count", "deliveries before it was dead-lettered, if known"),
        EvidenceField("dead_letters_now", "how many messages are known to be in the dead-letter queue"),
    ),
    checks={
        "aws_sqs": (
            sqs.dead_letter_sources("the source queue: `use_queue NAME` with its name for the next checks"),
            sqs.message_logs("why every delivery failed"),
            sqs.error_logs("whether one message fails or all of them"),
            sqs.function("LastModified just before the first arrival: a deployment"),
            sqs.move_tasks("a redrive that is already running, or one that failed"),
        ),
        "activemq": (
            activemq.dead_letters("QueueSize and how fast EnqueueCount grows"),
            activemq.browse_dead_letters(
                "dlqDeliveryFailureCause and originalExpiration: failed, or expired; OriginalDestination is the source queue: "
                '`use_queue NAME "$DLQ"` with its name for the next checks'
            ),
            activemq.log("the exception at the last delivery"),
            activemq.consumers("a consumer that sends NACK: over STOMP this moves a message to the dead-letter queue at once"),
            activemq.counts("whether the source queue works normally"),
        ),
        "cloudflare_queues": (
            cloudflare.backlog("QUEUE is the dead-letter queue here: how many messages wait, and since when the oldest"),
            cloudflare.dead_letter_sources("the source queue: `use_queue NAME` with its name for the next checks"),
            cloudflare.consumers("max_retries: 0 dead-letters at the first failure; its Worker: set WORKER for the next checks"),
            cloudflare.tail("the exception that used up the retries"),
            cloudflare.deployments("a deployment just before the first arrival"),
        ),
    },
    fix=(
        "Use the message ids (listed on queuewatch's page) to find the cause, and repair the consumer first: a redrive to a "
        "broken consumer only dead-letters them again.",
        Remedy(
            'Then redrive: `aws sqs start-message-move-task --source-arn "$DLQ_ARN"`; the messages get new ids and a new '
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
        "If they are worthless, let them expire; purging destroys the evidence.",
    ),
    ignore=(
        "Dead letters are expected here (rejected input kept for inspection): set `DeadLetterArrived: {exclude_queues: '…'}` in "
        "`alerts.rules`.",
    ),
    links=(links.SQS_DEAD_LETTERS, links.SQS_REDRIVE, links.ACTIVEMQ_REDELIVERY, links.CLOUDFLARE_DEAD_LETTERS),
)

DEAD_LETTER_EXPIRING = Entry(
    name="DeadLetterExpiring",
    group="messages",
    subject="dead-letter queue",
    meaning=(
        "Retention will soon delete the oldest message of a dead-letter queue. After that, nobody can inspect or redrive it."
    ),
    rule=(
        "The queue is a dead-letter queue and holds a message whose deletion time is known.",
        "The time left is less than {dead_letter_expiring_s} or less than {dead_letter_expiring_ratio} of the retention, "
        "whichever is smaller.",
        "Retention is counted as the broker does: from the original send in a standard SQS queue, from the move in a FIFO "
        "queue. CloudWatch's age of a dead-letter queue counts from the move, which makes the time left look longer than it is.",
        "Where the retention is neither reported nor configured, the system's default is assumed, and the severity is warning.",
    ),
    thresholds=("dead_letter_expiring_s", "dead_letter_expiring_ratio"),
    severity="critical",
    alert=signal_alert(
        "DeadLetterExpiring",
        "Dead letters are about to be deleted by retention.",
        f"Time until retention deletes the first message of {QUEUE}: "
        f"{companion('queuewatch_dead_letter_expiry_seconds', 'duration', function='min')}. Waiting there: "
        f"{messages_in('visible')}. Open findings: {own_value('count')}.",
    ),
    dashboard="dead-letters",
    evidence=(
        EvidenceField("message_id", "the message that will be deleted first"),
        EvidenceField("time_left_s", "seconds until it is deleted"),
        EvidenceField("time_left_exact", "false: its send time is not reported, so it may be deleted sooner; absent otherwise"),
        EvidenceField("retention_s", "the dead-letter queue's retention"),
        EvidenceField("retention_assumed", "the retention is neither reported nor configured: it is the system's default"),
        EvidenceField("clock", "the start of the retention period: original send or arrival"),
        EvidenceField("dead_letters_now", "how many messages are known to be in the dead-letter queue"),
        EvidenceField(
            "may_be_gone", "older ones that may have been received unseen, as the broker counts fewer than are tracked"
        ),
    ),
    checks={
        "aws_sqs": (
            sqs.attributes("QUEUE is the dead-letter queue here: MessageRetentionPeriod, and how many messages wait"),
            sqs.dead_letter_sources("which queue these dead letters come from"),
            sqs.tags("whom to ask if the messages matter"),
            sqs.move_tasks("a redrive in progress: then the number falls without further action"),
            sqs.metric("ApproximateNumberOfMessagesVisible", "Maximum", "whether more keep arriving"),
        ),
        "activemq": (
            activemq.counts("QUEUE is the dead-letter queue here: QueueSize, ExpiredCount"),
            activemq.browse("JMSExpiration and originalExpiration of the oldest message"),
            activemq.options("an expiry policy of the dead-letter queue"),
            activemq.log("why they were dead-lettered"),
            activemq.consumers("whether somebody already drains it"),
        ),
        "cloudflare_queues": (
            cloudflare.settings("QUEUE is the dead-letter queue here: message_retention_period"),
            cloudflare.backlog("oldest_message_timestamp_ms and backlog_count"),
            cloudflare.peek("what the messages are"),
            cloudflare.queues("whether the dead-letter queue has a consumer at all"),
            cloudflare.dead_letter_sources("which queue these dead letters come from"),
        ),
    },
    fix=(
        Remedy(
            "Gain time now: raise the dead-letter queue's retention. `aws sqs set-queue-attributes --queue-url "
            '"$QUEUE_URL" --attributes MessageRetentionPeriod=1209600` (14 days, the maximum).',
            systems=("aws_sqs",),
        ),
        Remedy(
            "Gain time now: raise the dead-letter queue's retention. "
            '`npx wrangler queues update "$QUEUE" --message-retention-period-secs 1209600`.',
            systems=("cloudflare_queues",),
        ),
        "Redrive once the consumer is repaired.",
        Remedy("A redriven message gets a new retention period.", systems=("aws_sqs",)),
        "To prevent this, keep the dead-letter queue's retention longer than the source queue's (SQS FIFO "
        "queues excepted: there, retention starts again at the move).",
    ),
    ignore=("The messages were examined and may be deleted: silence the alert until they are gone.",),
    links=(links.SQS_DLQ_RETENTION, links.SQS_REDRIVE, links.CLOUDFLARE_LIMITS),
)

ENTRIES = (DEAD_LETTER_ARRIVED, DEAD_LETTER_EXPIRING)
