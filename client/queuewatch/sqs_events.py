"""From an SQS call and its answer to telemetry events. No clock, no network, no state but the maps handed in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from queuewatch.events import Event
from queuewatch.handles import HandleMap, Receipt
from queuewatch.lineage import Lineage
from queuewatch.move_tasks import started_task
from queuewatch.places import Place, place_of_arn

Answer = Mapping[str, Any]

_COUNTS_AND_TIMES: Final = (
    ("ApproximateReceiveCount", "receive_count"),
    ("SentTimestamp", "sent_at"),
    ("ApproximateFirstReceiveTimestamp", "first_received_at"),
)
"""System attribute → the event's field."""


@dataclass(slots=True)  # not frozen: that costs more to make than all else, and one is made for each call
class Call:
    """One call of the application: its parameters and when it began and ended, epoch milliseconds."""

    operation: str
    params: Mapping[str, Any]
    place: Place
    consumer: str
    began_at: int
    ended_at: int
    retried: bool = False

    @property
    def url(self) -> str:
        return str(self.params.get("QueueUrl", ""))


class Translator:
    """Turns successful calls into events; remembers handles, and own ids when there is a `lineage`."""

    def __init__(self, handles: HandleMap, lineage: Lineage | None = None) -> None:
        self._handles = handles
        self._lineage = lineage
        self.unknown_handles = 0
        """Deletes and visibility changes of messages this process did not receive."""

    def events(self, call: Call, answer: Answer) -> list[Event]:
        """The events of a call that succeeded, in order."""
        return list(_OPERATIONS[call.operation](self, call, answer))

    def _send(self, call: Call, answer: Answer) -> Iterator[Event]:
        yield from self._sent(call, call.params, answer)

    def _send_batch(self, call: Call, answer: Answer) -> Iterator[Event]:
        entries = {entry["Id"]: entry for entry in call.params["Entries"]}
        for done in answer.get("Successful", ()):
            yield from self._sent(call, entries[done["Id"]], done)

    def _sent(self, call: Call, entry: Mapping[str, Any], done: Answer) -> Iterator[Event]:
        # A consumer may have it before the answer is back here; a retried call entered some time in between.
        at = call.ended_at if call.retried else call.began_at
        event = _event("sent", call, at, done["MessageId"])
        _put(event, "group", entry.get("MessageGroupId"))
        _put(event, "sequence", done.get("SequenceNumber"))
        delay_s = int(entry.get("DelaySeconds") or 0)
        if delay_s:
            event["visible_at"] = at + delay_s * 1000
        yield event
        yield from self._follow(call, at, done["MessageId"], entry, receives=0)

    def _receive(self, call: Call, answer: Answer) -> Iterator[Event]:
        timeout_s = call.params.get("VisibilityTimeout")
        for message in answer.get("Messages", ()):
            said = message.get("Attributes", {})
            group = said.get("MessageGroupId")
            self._handles.remember(call.url, message["ReceiptHandle"], Receipt(message["MessageId"], group))
            at = call.ended_at
            event = _event("received", call, at, message["MessageId"], consumer=True)
            for attribute, name in _COUNTS_AND_TIMES:
                text = said.get(attribute)
                if text is not None:
                    event[name] = int(text) if text.isdigit() else int(float(text))  # some stand-ins write a fraction
            if group is not None:
                event["group"] = group
                _put(event, "sequence", said.get("SequenceNumber"))
            if timeout_s is not None:
                event["invisible_until"] = at + int(timeout_s) * 1000
            source = said.get("DeadLetterQueueSourceArn")
            if source:
                event["from_queue"] = place_of_arn(source).queue
                if self._lineage:
                    self._lineage.note_dlq(call.place.queue)
            yield event
            receives = event.get("receive_count", 1)
            yield from self._follow(call, at, message["MessageId"], message, receives=receives)

    def _delete(self, call: Call, _answer: Answer) -> Iterator[Event]:
        yield from self._deleted(call, [call.params["ReceiptHandle"]])

    def _delete_batch(self, call: Call, answer: Answer) -> Iterator[Event]:
        handles = {entry["Id"]: entry["ReceiptHandle"] for entry in call.params["Entries"]}
        yield from self._deleted(call, (handles[done["Id"]] for done in answer.get("Successful", ())))

    def _deleted(self, call: Call, handles: Iterable[str]) -> Iterator[Event]:
        for handle in handles:
            receipt = self._known(call, handle)
            if receipt:
                self._handles.forget(call.url, handle)
                if self._lineage:
                    self._lineage.deleted(receipt.message_id)
                yield _about(receipt, _event("deleted", call, call.ended_at, receipt.message_id, consumer=True))

    def _change(self, call: Call, _answer: Answer) -> Iterator[Event]:
        yield from self._changed(call, call.params)

    def _change_batch(self, call: Call, answer: Answer) -> Iterator[Event]:
        entries = {entry["Id"]: entry for entry in call.params["Entries"]}
        for done in answer.get("Successful", ()):
            yield from self._changed(call, entries[done["Id"]])

    def _changed(self, call: Call, entry: Mapping[str, Any]) -> Iterator[Event]:
        receipt = self._known(call, entry["ReceiptHandle"])
        if receipt is None:
            return
        timeout_s = int(entry.get("VisibilityTimeout") or 0)
        kind = "extended" if timeout_s else "released"
        event = _about(receipt, _event(kind, call, call.ended_at, receipt.message_id, consumer=True))
        if timeout_s:
            event["invisible_until"] = call.ended_at + timeout_s * 1000
        yield event

    def _purge(self, call: Call, _answer: Answer) -> Iterator[Event]:
        yield _event("purged", call, call.ended_at)

    def _move(self, call: Call, answer: Answer) -> Iterator[Event]:
        """A move task has no message to tell of; what is known is a state of the dead-letter queue."""
        if self._lineage:
            self._lineage.note_dlq(call.place.queue)
        event = _event("queue_state", call, call.ended_at)
        event["attributes"] = {"redrive_task": started_task(call.params, answer)}
        yield event

    def _known(self, call: Call, handle: str) -> Receipt | None:
        receipt = self._handles.look_up(call.url, handle)
        if receipt is None:
            self.unknown_handles += 1
        return receipt

    def _follow(self, call: Call, at: int, message_id: str, message: Mapping[str, Any], *, receives: int) -> Iterator[Event]:
        if self._lineage is None:
            return
        own_id = (message.get("MessageAttributes") or {}).get(self._lineage.attribute, {}).get("StringValue")
        if own_id:
            event = self._lineage.seen(own_id, call.place, message_id, receives, at)
            if event:
                yield event


def _event(kind: str, call: Call, at: int, message_id: str | None = None, *, consumer: bool = False) -> Event:
    scope, queue = call.place
    event: Event = {"v": 1, "type": kind, "at": at, "system": "aws_sqs", "queue": queue}
    if scope is not None:
        event["scope"] = scope
    if message_id is not None:
        event["message_id"] = message_id
    if consumer:
        event["consumer"] = call.consumer
    return event


def _about(receipt: Receipt, event: Event) -> Event:
    _put(event, "group", receipt.group)
    return event


def _put(event: dict[str, Any], name: str, value: object) -> None:
    if value is not None:
        event[name] = value


_OPERATIONS: Final[Mapping[str, Callable[[Translator, Call, Answer], Iterator[Event]]]] = {
    "SendMessage": Translator._send,
    "SendMessageBatch": Translator._send_batch,
    "ReceiveMessage": Translator._receive,
    "DeleteMessage": Translator._delete,
    "DeleteMessageBatch": Translator._delete_batch,
    "ChangeMessageVisibility": Translator._change,
    "ChangeMessageVisibilityBatch": Translator._change_batch,
    "PurgeQueue": Translator._purge,
    "StartMessageMoveTask": Translator._move,
}
OPERATIONS: Final = frozenset(_OPERATIONS)
