"""The state of a queue, message, group or consumer, in a sentence with its numbers. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from sinks.explain.formatting import count, duration, duration_ms
from streaming.judge.findings.words import at_least
from streaming.judge.snapshot import ConsumerView, GroupView, MessageView, QueueView

_STATUS_WORDS: Mapping[str, str] = {
    "ok": "is fine",
    "lagging": "is lagging: its backlog gets older while consumers work",
    "stalled": "is stalled: messages wait and none is finished",
    "stopped": "has stopped: messages wait and nobody receives them",
    "stale": "is stale: nothing reports on it any more",
    "failing": "is failing: consumers receive its messages, but many deliveries fail",
    "unknown": "is not known well enough to be judged",
}


def queue_sentence(queue: QueueView, now_ms: int, *, firing: bool) -> str:
    """Describe a queue with its numbers; unknown values are left out.

    If `firing`, a signal fires for something in the queue, so it is not described as fine.
    """
    parts = []
    if queue.visible is not None:
        parts.append(f"{count(queue.visible, 'message')} visible")
    if queue.in_flight is not None:
        parts.append(f"{queue.in_flight:,} in flight")
    if queue.delayed:
        parts.append(f"{queue.delayed:,} delayed")
    # While nothing is counted, the age is that of a message which was just sent or finished.
    if "all" in queue.oldest_ms and not queue.is_empty:
        least = "" if "all" in queue.exact_ages else "at least "
        parts.append(f"the oldest {least}{duration_ms(now_ms - queue.oldest_ms['all'])} old")
    if queue.receive_count_max and queue.receive_count_max > 1:
        parts.append(f"one was received {queue.receive_count_max:,} times")
    if queue.last_settled_at_ms is not None:
        parts.append(f"the last was finished {duration_ms(now_ms - queue.last_settled_at_ms)} ago")
    if queue.time_to_drain_s is not None:
        parts.append(f"at this rate it will be empty in {duration(queue.time_to_drain_s)}")
    how = _STATUS_WORDS[queue.status]
    if queue.status == "ok":
        if queue.is_dead_letter_queue and (queue.visible or queue.in_flight):
            how = "holds dead letters"
        elif firing:
            how = "is OK as a whole"
    kind = "Dead-letter queue" if queue.is_dead_letter_queue else "Queue"
    numbers = "; ".join(parts)
    rests_on = ""
    if queue.basis != "messages" and queue.basis_reason:
        step = f": {queue.next_step}" if queue.next_step else ""
        rests_on = f" {queue.basis_reason[0].upper()}{queue.basis_reason[1:]}{step}."
    name = queue.queue
    if queue.worst_member is not None:
        name += f" ({count(len(queue.members), 'queue')}, the worst of them {queue.worst_member.queue})"
    return f"{kind} {name} {how}" + (f": {numbers}." if numbers else ".") + rests_on


def message_sentence(queue: QueueView, message: MessageView, now_ms: int) -> str:
    """Describe the state of a message, its age, and how often it was received."""
    where = {
        "visible": "waits to be received",
        "delayed": "is delayed and not yet visible",
        "in_flight": "is in flight" + (f" at {message.consumer}" if message.consumer else ""),
    }[message.state]
    parts = [
        f"Message {message.message_id} of {queue.queue} {where}",
        f"it was sent {at_least(exact=message.sent_known)}{duration_ms(now_ms - message.sent_at_ms)} ago",
    ]
    if message.receive_count:
        parts.append(f"received {count(message.receive_count, 'time')}")
    elif message.arrived_at_ms is None and not message.attempts:
        # The receives of a dead letter in its source queue are not known here. What was extended or given back was received.
        parts.append("never received")
    if message.refused_settlements:
        parts.append(f"its deletion was refused {count(message.refused_settlements, 'time')} because its window had ended")
    if message.state == "in_flight" and message.invisible_until_ms is not None:
        parts.append(f"its window ends in {duration_ms(message.invisible_until_ms - now_ms)}")
    if message.arrived_at_ms is not None:
        how = {
            "event": "",
            "first_receive": ", known by its first receive here",
            "inferred": ", which is inferred",
        }
        parts.append(
            f"it arrived in this dead-letter queue {duration_ms(now_ms - message.arrived_at_ms)} ago"
            + how.get(message.arrival_known_by or "event", "")
        )
    if message.expires_at_ms is not None and message.arrived_at_ms is not None:
        parts.append(f"retention deletes it in {duration_ms(message.expires_at_ms - now_ms)}")
    if message.group is not None:
        head = " and is its head" if "head" in message.why else ""
        parts.append(f"it belongs to group {message.group}{head}")
    return "; ".join(parts) + "."


def group_sentence(queue: QueueView, group: GroupView, now_ms: int) -> str:
    """Describe the depth of a group and its head."""
    parts = [
        f"Group {group.group} of {queue.queue} {'is stuck' if group.stuck else 'flows'}",
        f"{count(group.unsettled, 'message')} unsettled, {group.in_flight:,} in flight",
        f"the oldest {duration_ms(now_ms - group.oldest_sent_at_ms)} old",
    ]
    if group.head_message_id is not None:
        parts.append(f"its head {group.head_message_id} was received {count(group.head_receive_count, 'time')}")
    if group.last_settled_at_ms is not None:
        parts.append(f"the last was finished {duration_ms(now_ms - group.last_settled_at_ms)} ago")
    return "; ".join(parts) + "."


def consumer_sentence(queue: QueueView, consumer: ConsumerView, now_ms: int) -> str:
    """Describe what a consumer holds, and since when."""
    held = f"holds {count(consumer.held, 'message') if consumer.held else 'no message'}"
    if not consumer.held and queue.other_consumers:
        held = "is not among the consumers with the longest holds"
    parts = [f"Consumer {consumer.consumer} of {queue.queue} {held}"]
    if consumer.oldest_held_since_ms is not None:
        parts.append(f"the oldest for {duration_ms(now_ms - consumer.oldest_held_since_ms)}")
    if consumer.prefetch is not None:
        parts.append(f"its prefetch is {consumer.prefetch:,}")
    if consumer.connected is not None:
        parts.append("it is connected" if consumer.connected else "it is not connected")
    return "; ".join(parts) + "."
