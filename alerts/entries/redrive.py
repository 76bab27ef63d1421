"""Redrive tasks, which move dead letters back to their source queue."""

from __future__ import annotations

from alerts.checks import sqs
from alerts.entries import links
from alerts.entry import Entry, EvidenceField, QueueSystem
from alerts.remedy import Remedy
from alerts.signal_alert import signal_alert
from alerts.templating import QUEUE, messages_in, own_value

_ONLY_SQS: dict[QueueSystem, str] = {
    "activemq": "It has no move tasks; messages are moved by an operation that finishes immediately.",
    "cloudflare_queues": "It has no move tasks.",
}
_CHECKS = (
    sqs.move_tasks("Status, FailureReason, ApproximateNumberOfMessagesMoved"),
    sqs.attributes("how many dead letters are left, and their retention"),
    sqs.dead_letter_sources("whether the destination still exists"),
    sqs.changes("StartMessageMoveTask", "who started it, and with which destination"),
    sqs.changes("SetQueueAttributes", "a policy or key of the destination changed just before"),
)

REDRIVE_FAILED = Entry(
    name="RedriveFailed",
    group="messages",
    subject="dead-letter queue",
    meaning="A task that moves dead letters back has failed. The messages it did not move continue to age.",
    rule=(
        "The dead-letter queue's last move task has the status FAILED. The signal lasts for a day, or until another task starts. "
        "A later task that fails (identified by its start time) is a new signal.",
    ),
    thresholds=(),
    severity="warning",
    alert=signal_alert(
        "RedriveFailed",
        "A redrive of dead letters failed.",
        f"The last redrive of {QUEUE} failed. Messages left: {messages_in('visible')}. Open findings: {own_value('count')}.",
    ),
    dashboard="dead-letters",
    evidence=(
        EvidenceField("reason", "why it failed, as the broker names it"),
        EvidenceField("moved", "messages it has moved"),
        EvidenceField("to_queue", "its destination"),
    ),
    checks={"aws_sqs": _CHECKS},
    fix=(
        Remedy(
            "Grant the caller who starts the task sqs:SendMessage on the destination, and kms:Decrypt and kms:GenerateDataKey "
            "on the key.",
            reasons=("AccessDenied",),
        ),
        Remedy("Specify the destination when you start the task.", reasons=("CouldNotDetermineMessageSource",)),
        "Start the task again; it moves the remaining messages.",
    ),
    ignore=("A task that was started to test the permissions.",),
    links=(links.SQS_DEAD_LETTERS,),
    not_applicable=_ONLY_SQS,
)

REDRIVE_STALLED = Entry(
    name="RedriveStalled",
    group="messages",
    subject="dead-letter queue",
    meaning="A move task is running but moves nothing. Only one can run per queue, so it also prevents others from starting.",
    rule=(
        "A move task is RUNNING, has messages left to move, and moved none for {redrive_stalled_s}.",
        "A report since the last message was moved shows it, and the latest report is less than {progress_known} old, or the "
        "next one is not overdue. Without reports the signal ends after {redrive_stalled_s}, {progress_known} at least: the "
        "collector is gone.",
    ),
    thresholds=("redrive_stalled_s",),
    severity="warning",
    alert=signal_alert(
        "RedriveStalled",
        "A redrive of dead letters has stopped moving messages.",
        f"The redrive of {QUEUE} is running but moves nothing. Messages left: {messages_in('visible')}. Open findings: "
        f"{own_value('count')}.",
    ),
    dashboard="dead-letters",
    evidence=(
        EvidenceField("stalled_s", "seconds since a message was moved"),
        EvidenceField("moved", "messages it has moved"),
        EvidenceField("to_move", "messages it has to move"),
    ),
    checks={"aws_sqs": _CHECKS},
    fix=("Cancel the task (CancelMessageMoveTask), fix what prevents it from sending, and start it again.",),
    ignore=("A rate limit of a few messages a second on a large queue: raise redrive_stalled_s for the pattern.",),
    links=(links.SQS_DEAD_LETTERS,),
    not_applicable=_ONLY_SQS,
)

ENTRIES = (REDRIVE_FAILED, REDRIVE_STALLED)
