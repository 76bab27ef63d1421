"""The delivery that makes a message a suspect: it may still succeed if only one consumer has failed it, and others work."""

from __future__ import annotations

from streaming.core.reporting.views import MessageView
from streaming.judge.context import Context
from streaming.judge.findings.words import work_time
from streaming.judge.rules.failing import failing_since, pending_since


def usual_attempt_ms(c: Context, message: MessageView) -> int | None:
    """Return how long the delivery that made a message a suspect may take, while it goes on for no longer; None otherwise.

    That is the 99th percentile of the queue's holds, where all deliveries before failed at one consumer and others work: that
    host may be the cause, and not the message. Later deliveries get no time: a message that comes back at once is nearly always
    in flight. Nor do those of a message that was processed, but too late, or of a queue whose deliveries fail.
    """
    if message.state != "in_flight" or message.receive_count != c.poison_receives or message.refused_settlements:
        return None
    usual_ms, received_at = c.long_hold_ms, message.last_received_at_ms
    if usual_ms is None or received_at is None or c.now - received_at > usual_ms or _failed_at(c, message) is None:
        return None
    return usual_ms if failing_since(c) is None and pending_since(c) is None else None


def may_succeed(c: Context, message: MessageView, what: str, usual_ms: int) -> str:
    """Describe such a message, which is called `what`: who failed it, who has it now, for how long, and how long others take."""
    held_ms = c.now - (message.last_received_at_ms or c.now)
    return (
        f"only {_failed_at(c, message)} has failed {what}; {message.consumer} has had it for {work_time(held_ms)} and may "
        f"succeed (99% of this queue's messages are finished within {work_time(usual_ms)})"
    )


def _failed_at(c: Context, message: MessageView) -> str | None:
    """Return the only consumer that failed a message, if another one has it now, or has finished others meanwhile.

    None otherwise, and where not all deliveries are known.
    """
    received = [attempt for attempt in message.attempts if attempt.what == "received"]
    names = [attempt.consumer for attempt in received]
    if len(names) != message.receive_count or None in names or len(set(names[:-1])) != 1:
        return None
    others_work = any(at > received[0].at_ms for consumer, at in c.summary.consumer_acks.items() if consumer != names[0])
    return names[0] if names[-1] != names[0] or others_work else None
