"""The state that the events describe by the contract's rules, without any knowledge of ActiveMQ."""

from collections import Counter
from collections.abc import Iterable

from sources.events import Event

_ENDS = ("deleted", "dead_lettered", "expired", "dropped", "redriven")
# The order of one message's events within a millisecond: sent, received, released, settled.
_RANK = {"sent": 1, "received": 2, "released": 3}

MessageKey = tuple[str, str]


def unsettled(events: Iterable[Event]) -> dict[MessageKey, str | None]:
    """Return the messages that have not ended and the consumer that holds each, or None. Events may come in any order."""
    found: dict[MessageKey, str | None] = {}
    ended: set[MessageKey] = set()
    for event in sorted(events, key=lambda event: (event["at"], _RANK.get(event["type"], 4))):
        if "message_id" not in event:
            continue
        key = (event["queue"], event["message_id"])
        kind = event["type"]
        if kind in _ENDS:
            found.pop(key, None)
            ended.add(key)
        elif kind == "received":
            ended.discard(key)
            found[key] = event["consumer"]
        elif key not in ended:
            if kind == "released":
                found[key] = None
            else:
                found.setdefault(key, None)
        if kind == "dead_lettered" and "to_queue" in event:
            found.setdefault((event["to_queue"], event["message_id"]), None)
        if kind == "redriven":
            there = (event["to_queue"], event["new_message_id"])
            ended.discard(there)
            found.setdefault(there, None)
    return found


def depths(events: Iterable[Event]) -> Counter[str]:
    """Return the number of messages in each queue."""
    return Counter(queue for queue, _ in unsettled(events))


def outstanding(events: Iterable[Event]) -> Counter[str]:
    """Return the number of messages each consumer holds."""
    return Counter(consumer for consumer in unsettled(events).values() if consumer is not None)
