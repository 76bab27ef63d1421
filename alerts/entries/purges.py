"""Purges that destroyed messages."""

from __future__ import annotations

from alerts.checks import activemq, cloudflare, sqs
from alerts.entries import links
from alerts.entry import Entry, EvidenceField
from alerts.remedy import Remedy
from alerts.signal_alert import signal_alert
from alerts.templating import QUEUE, companion, messages_in, own_value

QUEUE_PURGED = Entry(
    name="QueuePurged",
    group="messages",
    subject="queue",
    meaning=(
        "Somebody purged the queue, and messages that nobody had processed were destroyed. They cannot be brought back from the "
        "queue. An intended purge looks the same, so nobody is notified: the signal explains later where the messages went."
    ),
    rule=(
        "A purge of the queue was reported, and at least one tracked message was in it: sent, delivered or moved there before "
        "the purge, and not settled. A purge of an empty queue does not count.",
        "A message in flight counts only once its window is over and it was not deleted: its consumer may still "
        "finish it. A message delivered after the purge does not count: it was not destroyed.",
        "Where sends are not reported, only messages that had been delivered count, so the number is a lower bound. Where "
        "deletions or part of the deliveries are not reported, the signal does not fire.",
        "The signal covers all purges of the queue and ends {dropped_quiet_s} after the last one.",
    ),
    thresholds=("dropped_quiet_s",),
    severity="info",
    alert=signal_alert(
        "QueuePurged",
        "A purge removed messages that nobody had processed.",
        f"A purge of {QUEUE} removed messages that nobody had processed. Visible messages now: {messages_in('visible')}. "
        f"Messages sent so far: {companion('queuewatch_messages_sent_total', 'count')}. Open findings: {own_value('count')}.",
        why="The signal is used because no total counts what a purge removes.",
    ),
    dashboard="queue",
    evidence=(
        EvidenceField("purged", "how many messages were removed unprocessed"),
        EvidenceField("purged_exact", "false: not all messages are reported, so the number is a lower bound"),
        EvidenceField("received", "how many of them had been delivered at least once"),
        EvidenceField("purges", "how many purges there were"),
        EvidenceField("purged_at", "when the last of them was, in milliseconds since 1970: look for this time in audit logs"),
        EvidenceField("oldest_age_s", "the age of the oldest removed message, in seconds: nothing older has to be sent again"),
    ),
    checks={
        "aws_sqs": (
            sqs.changes("PurgeQueue", "the user or role, and whether the call was meant for this queue"),
            sqs.metric(
                "ApproximateNumberOfMessagesVisible", "Maximum", "the value just before it fell: how much was in the queue"
            ),
            sqs.metric("NumberOfMessagesSent", "Sum", "how much was sent since the oldest removed message"),
            sqs.attributes("the counts now: messages sent since the purge are there; Policy: who may call sqs:PurgeQueue"),
            sqs.tags("the owner, who knows whether the purge was meant"),
        ),
        "activemq": (
            activemq.audit("purge, with the user and the time; without the audit log nothing says who it was"),
            activemq.counts("QueueSize now, and DequeueCount, which rises by the number of messages purged"),
            activemq.browse("messages that arrived after the purge"),
            activemq.connections("which producers are connected: who can send the messages again"),
            activemq.dead_letters("whether the messages are in the dead-letter queue instead; a purge puts none there"),
        ),
        "cloudflare_queues": (
            cloudflare.last_purge("started_at: whether it is the purge of `purged_at`"),
            cloudflare.backlog("backlog_count now"),
            cloudflare.settings("the producers bound to the queue: who can send the messages again"),
            cloudflare.deployments("a deployment at the time of the purge: a script of it may purge the queue"),
            cloudflare.peek("messages that arrived after the purge"),
        ),
    },
    fix=(
        "Find out who purged the queue and stop them: a script, a test, or a person who meant another queue.",
        "Send the messages again from their source: those sent in the `oldest_age_s` before `purged_at` and not processed.",
        Remedy(
            "Deny sqs:PurgeQueue to everybody who does not need it: it cannot be undone and takes no confirmation.",
            systems=("aws_sqs",),
        ),
        Remedy("Restrict the console and JMX to administrators, and turn the audit log on.", systems=("activemq",)),
        Remedy("Give tokens of applications no Queues Write permission: it includes the purge.", systems=("cloudflare_queues",)),
    ),
    ignore=(
        "The purge was intended: maintenance, a test environment, a backlog nobody needs, dead letters already looked into.",
    ),
    links=(links.SQS_PURGE, links.ACTIVEMQ_AUDIT, links.CLOUDFLARE_PAUSE),
)

ENTRIES = (QUEUE_PURGED,)
