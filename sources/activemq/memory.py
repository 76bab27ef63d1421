"""The lifecycle's bounded memory of messages.

Messages that only wait in a queue are not remembered: everything needed arrives again with their dispatch. Kept
are the messages in flight (as many as the consumers' prefetch windows hold) and, for a while, those whose stay
at a consumer has ended, because the broker may yet contradict the end.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

_LOOK_BACK = 20_000
"""How many ended messages are searched for those of one consumer."""

_SET_BACK_MS = 5_000
"""A clock that was set back by less only delays what waits, by as much."""

Key = tuple[str, str]
"""(queue, message id): a message moved to a dead-letter queue keeps its id there."""

End = Literal["deleted", "expired", "dead_lettered"]


@dataclass(slots=True)
class Message:
    """One message that was dispatched or is about to be reported as gone. Times are the broker's."""

    queue: str
    message_id: str
    in_ms: int | None = None
    out_ms: int | None = None
    """Its last dispatch, None while none was seen."""
    redeliveries: int = 0
    receive_count: int = 0
    consumer: str | None = None
    """The consumer that holds it or, once it has ended, that held it last."""
    rival: str | None = None
    """Another consumer to which it was dispatched, as reported, at the very time of its last dispatch."""
    group: str | None = None
    position: int | None = None
    sent_at_ms: int | None = None
    last_at_ms: int = 0
    """Time of its latest event: later events must not be earlier."""
    ending: End | None = None
    """An end that was seen but not reported yet: it is reported if nothing contradicts it before `due_ms`."""
    ending_at_ms: int = 0
    ending_out_ms: int | None = None
    """The dispatch that the end belongs to: only a later one contradicts it. 0: it was never dispatched."""
    due_ms: int = 0
    """In local time."""
    held_at_ending: bool = False
    to_queue: str | None = None
    reason: str | None = None
    ended: End | Literal["released"] | None = None
    """How its last stay at a consumer ended, as reported."""
    ended_local_ms: int = 0

    @property
    def key(self) -> Key:
        return (self.queue, self.message_id)


class Memory:
    """Messages in flight, messages whose end is pending, and recently ended ones; all bounded."""

    def __init__(self, max_in_flight: int, max_ended: int, keep_ended_ms: int) -> None:
        self._max_in_flight = max_in_flight
        self._max_ended = max_ended
        self._keep_ended_ms = keep_ended_ms
        self._live: dict[Key, Message] = {}
        self._pending: OrderedDict[Key, Message] = OrderedDict()
        self._ended: OrderedDict[Key, Message] = OrderedDict()
        self._held: dict[str, dict[Key, Message]] = {}

    def find(self, key: Key) -> Message | None:
        """Return the message, if it is in flight or ended recently."""
        return self._live.get(key) or self._pending.get(key) or self._ended.get(key)

    def is_held(self, message: Message) -> bool:
        """Whether it is in flight without a pending end."""
        return self._live.get(message.key) is message

    def hold(self, message: Message, consumer: str) -> None:
        """Mark the message as in flight at `consumer`, wherever it was before."""
        key = message.key
        self.let_go(message)
        for table in (self._live, self._pending, self._ended):
            table.pop(key, None)
        message.consumer, message.ending, message.ended = consumer, None, None
        self._live[key] = message
        self._held.setdefault(consumer, {})[key] = message
        if len(self._live) > self._max_in_flight:
            self._forget_oldest(self._live)

    def let_go(self, message: Message) -> None:
        """Mark it as not held; `message.consumer` remains its last consumer."""
        if message.consumer is not None and (held := self._held.get(message.consumer)) is not None:
            if held.get(message.key) is message:
                del held[message.key]
            if not held:
                del self._held[message.consumer]

    def await_end(self, message: Message, how: End, due_ms: int) -> None:
        """Mark its end as pending until `due_ms` (local time); until then it can be found, but is not held."""
        key = message.key
        self.let_go(message)
        for table in (self._live, self._pending, self._ended):
            table.pop(key, None)
        message.ending, message.due_ms, message.ended = how, due_ms, None
        self._pending[key] = message
        if len(self._pending) > self._max_in_flight:
            self._forget_oldest(self._pending)

    def end(self, message: Message, how: End | Literal["released"], now_ms: int) -> None:
        """Mark its stay as over, as reported; it is remembered for a while."""
        key = message.key
        self.let_go(message)
        self._live.pop(key, None)
        self._pending.pop(key, None)
        message.ending, message.ended, message.ended_local_ms = None, how, now_ms
        self._ended[key] = message
        self._ended.move_to_end(key)
        while len(self._ended) > self._max_ended:
            self._ended.popitem(last=False)

    def drop(self, message: Message) -> None:
        """Forget it: a message with the same id starts anew."""
        key = message.key
        self.let_go(message)
        for table in (self._live, self._pending, self._ended):
            if table.get(key) is message:
                del table[key]

    def due(self, now_ms: int, grace_ms: int) -> list[Message]:
        """Return the messages whose end may now be reported, in the order it was seen.

        One that is due much later than `grace_ms` from now was seen before this machine's clock was set back: it has waited.
        """
        found = []
        for message in self._pending.values():
            if now_ms < message.due_ms <= now_ms + grace_ms + _SET_BACK_MS:
                break
            found.append(message)
        return found

    def expire(self, now_ms: int) -> None:
        """Forget messages that ended longer ago than they are remembered."""
        while self._ended:
            message = next(iter(self._ended.values()))
            if now_ms - message.ended_local_ms <= self._keep_ended_ms:
                break
            del self._ended[message.key]

    def held_by(self, consumer: str) -> list[Message]:
        """Return the messages `consumer` holds, in order of dispatch."""
        return list(self._held.get(consumer, {}).values())

    def held_count(self, consumer: str) -> int:
        """Return how many messages `consumer` holds."""
        return len(self._held.get(consumer, ()))

    def lately_deleted_by(self, consumer: str, at_most: int) -> list[Message]:
        """Return the messages last reported as acknowledged by `consumer`, latest first."""
        found: list[Message] = []
        for message in itertools.islice(reversed(self._ended.values()), _LOOK_BACK):
            if len(found) == at_most:
                break
            if message.ended == "deleted" and message.consumer == consumer:
                found.append(message)
        return found

    def __len__(self) -> int:
        return len(self._live) + len(self._pending) + len(self._ended)

    def _forget_oldest(self, table: Mapping[Key, Message]) -> None:
        self.drop(next(iter(table.values())))
