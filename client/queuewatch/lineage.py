"""Tracks a message through a redrive by the sender's own id.

SQS gives a redriven message a new id without any link to the old one. If the sender puts its own id into a message attribute, a
client that sees this id again under a new message id can report the link.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from queuewatch.events import WIRE_VERSION, Event
from queuewatch.places import Place
from queuewatch.signal_handlers import suppress

_MAX_IDS: Final = 50_000


@dataclass(frozen=True)
class _Sighting:
    place: Place
    message_id: str
    receives: int
    in_dlq: bool
    deleted: bool = False


class Lineage:
    """Remembers where each sender id was last seen, for the 50,000 ids seen last.

    A new message id counts as a redrive only with evidence, and never after the old message was deleted here. Seeing the old
    message in a dead-letter queue is enough. Otherwise it must have been received at least twice from the same queue, the
    queue's dead-letter queue must be configured, and the new message must be at its first receive. Without evidence, it is a
    duplicate send.
    """

    def __init__(self, attribute: str, dead_letter_queues: Mapping[str, str]) -> None:
        self.attribute = attribute
        self._dead_letter_queues = dict(dead_letter_queues)
        self._dlqs = set(dead_letter_queues.values())
        self._apparent_dlqs: set[str] = set()
        self._redriven_to: set[str] = set()
        self._seen: OrderedDict[tuple[str | None, str], _Sighting] = OrderedDict()
        self._own_ids: dict[str, tuple[str | None, str]] = {}

    def note_dlq(self, queue: str) -> None:
        """Record that a queue is a dead-letter queue."""
        self._dlqs.add(queue)

    def note_origin(self, queue: str, receives: int) -> None:
        """Record that a message received there names another queue as its source, at its receive number `receives`.

        SQS keeps the receive count of a message that it dead-letters, and resets that of one that is redriven. A redriven message
        may still name the source. Its later receives do not differ from those of a dead letter, so that its first one decides.
        """
        (self._redriven_to if receives == 1 else self._apparent_dlqs).add(queue)

    def _is_dlq(self, queue: str) -> bool:
        return queue in self._dlqs or (queue in self._apparent_dlqs and queue not in self._redriven_to)

    def seen(self, own_id: str, place: Place, message_id: str, receives: int, at: int) -> Event | None:
        """Record a sent (`receives` 0) or received message with a sender id; return the `redriven` event it proves, if any."""
        key = (place.scope, own_id)
        now = _Sighting(place, message_id, receives, in_dlq=self._is_dlq(place.queue))
        # No lock, because a signal handler could interrupt code that holds it: each step is atomic.
        before = self._seen.pop(key, None)
        self._seen[key] = now
        self._own_ids[message_id] = key
        with suppress(KeyError):
            while len(self._seen) > _MAX_IDS:
                _, oldest = self._seen.popitem(last=False)
                self._own_ids.pop(oldest.message_id, None)
        if before is None or before.message_id == message_id:
            return None
        self._own_ids.pop(before.message_id, None)
        source = self._redriven_from(before, now)
        if source is None:
            return None
        return {
            "v": WIRE_VERSION,
            "type": "redriven",
            "at": at,
            "system": "aws_sqs",
            **({"scope": place.scope} if place.scope else {}),
            "queue": source,
            "message_id": before.message_id,
            "to_queue": place.queue,
            "new_message_id": message_id,
        }

    def deleted(self, message_id: str) -> None:
        """Record a deletion: a later message with the same sender id is a different one."""
        key = self._own_ids.get(message_id)
        seen = self._seen.get(key) if key is not None else None
        if key is not None and seen is not None:
            self._seen[key] = replace(seen, deleted=True)

    def _redriven_from(self, before: _Sighting, now: _Sighting) -> str | None:
        if now.in_dlq or before.deleted:
            return None
        if before.in_dlq:
            # Redriven by a task, or by an application that sends the message again and then deletes it from the DLQ.
            return before.place.queue
        if before.receives >= 2 and now.receives == 1 and before.place == now.place:
            return self._dead_letter_queues.get(now.place.queue)
        return None
