"""Convert SQS's answers to the attributes of a `queue_state`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from queuewatch.places import Place, place_of_arn
from sources.events import WIRE_VERSION, Event
from sources.sqs.values import to_number, to_policy

SYSTEM: Final = "aws_sqs"
"""OpenTelemetry's `messaging.system` value."""


def queue_attributes(answer: Mapping[str, str]) -> dict[str, Any]:
    """Return the contract's attributes from GetQueueAttributes' `Attributes`.

    Anything SQS did not report is left out; `dead_letter_queue`, `max_receive_count` and `redrive_allow_policy` are null
    when it reported no policy, so that a removed one is noticed. Times are epoch milliseconds, durations seconds.
    """
    found: dict[str, Any] = {"kind": "fifo" if answer.get("FifoQueue") == "true" else "standard"}
    for name, source in _COUNTS.items():
        value = to_number(answer.get(source))
        if value is not None:
            found[name] = value
    for name, source in _TIMES.items():
        value = to_number(answer.get(source))
        if value is not None:
            found[name] = value * 1000
    redrive = to_policy(answer.get("RedrivePolicy"))
    target = str(redrive.get("deadLetterTargetArn") or "")
    found["dead_letter_queue"] = place_of_arn(target).queue if target else None
    found["max_receive_count"] = to_number(redrive.get("maxReceiveCount")) if target else None
    allow = to_policy(answer.get("RedriveAllowPolicy"))
    found["redrive_allow_policy"] = None
    if allow:
        found["redrive_allow_policy"] = {
            "permission": str(allow.get("redrivePermission", "allowAll")),
            "sources": [str(arn) for arn in allow.get("sourceQueueArns") or ()],
        }
    if found["kind"] == "fifo":
        found["content_based_deduplication"] = answer.get("ContentBasedDeduplication") == "true"
        for name, source in _FIFO_WORDS.items():
            if source in answer:
                found[name] = answer[source]
    return found


def dead_letter_arn(answer: Mapping[str, str]) -> str | None:
    """Return the ARN of the dead-letter queue, None without a redrive policy."""
    return str(to_policy(answer.get("RedrivePolicy")).get("deadLetterTargetArn") or "") or None


def queue_state(place: Place, at: int, attributes: dict[str, Any]) -> Event:
    """Build a `queue_state` event; `at` is when SQS answered, epoch milliseconds."""
    event: Event = {"v": WIRE_VERSION, "type": "queue_state", "at": at, "system": SYSTEM, "queue": place.queue}
    if place.scope:
        event["scope"] = place.scope
    event["attributes"] = attributes
    return event


_COUNTS = {
    "visible": "ApproximateNumberOfMessages",
    "in_flight": "ApproximateNumberOfMessagesNotVisible",
    "delayed": "ApproximateNumberOfMessagesDelayed",
    "visibility_timeout_s": "VisibilityTimeout",
    "retention_s": "MessageRetentionPeriod",
    "delay_s": "DelaySeconds",
    "receive_wait_s": "ReceiveMessageWaitTimeSeconds",
    "max_message_bytes": "MaximumMessageSize",
}
_TIMES = {"created_at": "CreatedTimestamp", "modified_at": "LastModifiedTimestamp"}
_FIFO_WORDS = {"deduplication_scope": "DeduplicationScope", "throughput_limit": "FifoThroughputLimit"}
