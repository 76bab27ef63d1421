"""Converts an SQS call and its response to telemetry events. No clock, no network, no state except the given maps and a warning.

The work has two steps, so that the application waits as little as possible: its thread copies the few strings that an event
needs, and the sender's thread builds the event from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from queuewatch.events import WIRE_VERSION, Event, Unbuilt
from queuewatch.handles import HandleMap
from queuewatch.lineage import Lineage
from queuewatch.log import log_warning
from queuewatch.move_tasks import started_task
from queuewatch.places import Place, origin_of, place_of_arn, place_of_url

Answer = Mapping[str, Any]

_HANDLE_INVALID: Final = "ReceiptHandleIsInvalid"
_EXPIRED: Final = "handle has expired"
"""How SQS says that a message of a FIFO queue is not deleted because its visibility window has ended: `InvalidParameterValue`
with this text, or `ReceiptHandleIsInvalid`, which for a handle that it gave out itself can mean nothing else."""

_COUNTS_AND_TIMES: Final = (
    ("ApproximateReceiveCount", "receive_count"),
    ("SentTimestamp", "sent_at"),
    ("ApproximateFirstReceiveTimestamp", "first_received_at"),
)
"""Maps system attributes to event fields."""


@dataclass(slots=True)  # not frozen: one is created per call, and freezing would dominate its cost
class Call:
    """One call of the application: its parameters and when it began and ended, epoch milliseconds."""

    operation: str
    params: Mapping[str, Any]
    region: str | None
    began_at: int
    ended_at: int = 0
    retried: bool = False

    @property
    def url(self) -> str:
        """The queue's URL, or the ARN of a move task's source, which has no URL."""
        return str(self.params.get("QueueUrl") or self.params.get("SourceArn", ""))


class Translator:
    """Turns calls into events; remembers handles, and sender ids if there is a `lineage`.

    `scope` replaces the `account/region` of the queue's URL.
    """

    def __init__(
        self, handles: HandleMap, consumer: Callable[[], str], *, scope: str | None = None, lineage: Lineage | None = None
    ) -> None:
        self._handles = handles
        self._consumer = consumer
        self._scope = scope
        self._lineage = lineage
        self.unknown_handles = 0
        """Number of deletes and visibility changes of messages that this process did not receive."""

    def observe(self, call: Call, answer: Answer) -> list[Unbuilt | Event]:
        """Return the events of a successful call, in order; most are built later."""
        return _OPERATIONS[call.operation](self, call, answer)

    def observe_refusal(self, call: Call, error: Mapping[str, Any]) -> list[Unbuilt | Event]:
        """Return the events of a call that was refused with this error (`Code`, `Message`)."""
        if call.operation != "DeleteMessage":
            return []
        return self._outlived(call, ((call.params["ReceiptHandle"], error),))

    # In the application's thread

    def _send(self, call: Call, answer: Answer) -> list[Unbuilt | Event]:
        return self._sent(call, call.params, answer)

    def _send_batch(self, call: Call, answer: Answer) -> list[Unbuilt | Event]:
        entries = {entry["Id"]: entry for entry in call.params["Entries"]}
        return [event for done in answer.get("Successful") or () for event in self._sent(call, entries[done["Id"]], done)]

    def _sent(self, call: Call, entry: Mapping[str, Any], done: Answer) -> list[Unbuilt | Event]:
        # The start of the call, because a consumer may receive the message before the response arrives here. If the call was
        # retried, its end, because SQS may have accepted only the last attempt.
        at = call.ended_at if call.retried else call.began_at
        message_id, get = done["MessageId"], entry.get
        said = (get("MessageGroupId"), done.get("SequenceNumber"), get("DelaySeconds"))
        found: list[Unbuilt | Event] = [(self._sent_event, call.params["QueueUrl"], call.region, at, message_id, *said)]
        if self._lineage is not None:
            found += self._follow(self._lineage, call, at, message_id, entry, receives=0)
        return found

    def _receive(self, call: Call, answer: Answer) -> list[Unbuilt | Event]:
        params, at = call.params, call.ended_at
        url, timeout_s = params["QueueUrl"], params.get("VisibilityTimeout")
        found: list[Unbuilt | Event] = []
        for message in answer.get("Messages") or ():
            message_id, said = message["MessageId"], message.get("Attributes")
            # Copy now, because the application may change its response.
            said = said.copy() if said else {}
            self._handles.remember(message["ReceiptHandle"], message_id, said.get("MessageGroupId"))
            found.append((self._received_event, url, call.region, at, message_id, said, timeout_s))
            if self._lineage is not None:
                receives = int(float(said.get("ApproximateReceiveCount", 1)))
                queue = self._place(call.url, call.region).queue
                if origin_of(said, queue) is not None:
                    self._lineage.note_origin(queue, receives)
                found += self._follow(self._lineage, call, at, message_id, message, receives=receives)
        return found

    def _delete(self, call: Call, _answer: Answer) -> list[Unbuilt | Event]:
        return self._deleted(call, (call.params["ReceiptHandle"],))

    def _delete_batch(self, call: Call, answer: Answer) -> list[Unbuilt | Event]:
        handles = {entry["Id"]: entry["ReceiptHandle"] for entry in call.params["Entries"]}
        found = self._deleted(call, [handles[done["Id"]] for done in answer.get("Successful") or ()])
        return found + self._outlived(call, [(handles[error["Id"]], error) for error in answer.get("Failed") or ()])

    def _outlived(self, call: Call, refused: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Unbuilt | Event]:
        """Return an event for each message that was not deleted because its visibility window had ended."""
        url = call.params["QueueUrl"]
        found: list[Unbuilt | Event] = []
        for handle, error in refused:
            if str(error.get("Code")).endswith(_HANDLE_INVALID) or _EXPIRED in str(error.get("Message")):
                # The handle is of no use any more, and an application that tries again is reported once.
                receipt = self._handles.forget(handle)
                if receipt is not None:
                    found.append((self._settled_event, "outlived", url, call.region, call.ended_at, receipt, None))
        return found

    def _deleted(self, call: Call, handles: Iterable[str]) -> list[Unbuilt | Event]:
        url = call.params["QueueUrl"]
        found: list[Unbuilt | Event] = []
        for handle in handles:
            receipt = self._handles.forget(handle)
            if receipt is None:
                self.unknown_handles += 1
                continue
            if self._lineage is not None:
                self._lineage.deleted(receipt[0])
            found.append((self._settled_event, "deleted", url, call.region, call.ended_at, receipt, None))
        return found

    def _change(self, call: Call, _answer: Answer) -> list[Unbuilt | Event]:
        return self._changed(call, (call.params,))

    def _change_batch(self, call: Call, answer: Answer) -> list[Unbuilt | Event]:
        entries = {entry["Id"]: entry for entry in call.params["Entries"]}
        return self._changed(call, [entries[done["Id"]] for done in answer.get("Successful") or ()])

    def _changed(self, call: Call, entries: Iterable[Mapping[str, Any]]) -> list[Unbuilt | Event]:
        url = call.params["QueueUrl"]
        found: list[Unbuilt | Event] = []
        for entry in entries:
            receipt = self._handles.look_up(entry["ReceiptHandle"])
            if receipt is None:
                self.unknown_handles += 1
                continue
            timeout_s = int(entry.get("VisibilityTimeout") or 0)
            until = call.ended_at + timeout_s * 1000 if timeout_s else None
            kind = "extended" if timeout_s else "released"
            found.append((self._settled_event, kind, url, call.region, call.ended_at, receipt, until))
        return found

    def _purge(self, call: Call, _answer: Answer) -> list[Unbuilt | Event]:
        return [self._event("purged", call.url, call.region, call.ended_at)]

    def _move(self, call: Call, answer: Answer) -> list[Unbuilt | Event]:
        """Return the state of the dead-letter queue, because a move task concerns no single message."""
        event = self._event("queue_state", call.url, call.region, call.ended_at)
        if self._lineage is not None:
            self._lineage.note_dlq(event["queue"])
        event["attributes"] = {"redrive_task": started_task(call.params, answer)}
        return [event]

    def _follow(
        self, lineage: Lineage, call: Call, at: int, message_id: str, message: Mapping[str, Any], *, receives: int
    ) -> list[Event]:
        own_id = (message.get("MessageAttributes") or {}).get(lineage.attribute, {}).get("StringValue")
        event = lineage.seen(own_id, self._place(call.url, call.region), message_id, receives, at) if own_id else None
        return [event] if event else []

    # In the sender's thread

    def _sent_event(
        self,
        url: str,
        region: str | None,
        at: int,
        message_id: str,
        group: str | None,
        sequence: str | None,
        delay_s: int | str | None,
    ) -> Event:
        event = self._event("sent", url, region, at)
        event["message_id"] = message_id
        _put(event, "group", group)
        _put(event, "sequence", sequence)
        # Zero too, for the queue may have a delay of its own; on a FIFO queue that is the only one.
        if delay_s is not None and (int(delay_s) or not event["queue"].endswith(".fifo")):
            event["visible_at"] = at + int(delay_s) * 1000
        return event

    def _received_event(
        self, url: str, region: str | None, at: int, message_id: str, said: Mapping[str, str], timeout_s: int | str | None
    ) -> Event:
        event = self._event("received", url, region, at)
        event["message_id"] = message_id
        event["consumer"] = self._consumer()
        for attribute, name in _COUNTS_AND_TIMES:
            text = said.get(attribute)
            if text is not None:
                event[name] = int(text) if text.isdigit() else int(float(text))  # some stand-ins for SQS write a fraction
        group = said.get("MessageGroupId")
        if group is not None:
            event["group"] = group
            _put(event, "sequence", said.get("SequenceNumber"))
        if timeout_s is not None:
            event["invisible_until"] = at + int(timeout_s) * 1000
        _put(event, "from_queue", origin_of(said, event["queue"]))
        return event

    def _settled_event(
        self, kind: str, url: str, region: str | None, at: int, receipt: tuple[str, str | None], until: int | None
    ) -> Event:
        event = self._event(kind, url, region, at)
        event["message_id"], group = receipt
        event["consumer"] = self._consumer()
        _put(event, "group", group)
        _put(event, "invisible_until", until)
        return event

    def _event(self, kind: str, url: str, region: str | None, at: int) -> Event:
        scope, queue = self._place(url, region)
        event: Event = {"v": WIRE_VERSION, "type": kind, "at": at, "system": "aws_sqs", "queue": queue}
        if scope is not None:
            event["scope"] = scope
        return event

    def _place(self, url: str, region: str | None) -> Place:
        place = place_of_arn(url) if url.startswith("arn:") else place_of_url(url, region)
        if self._scope is not None:
            return Place(self._scope, place.queue)
        if place.scope is None and url and place.queue == url:
            _warn_of_name(url)
        return place


_called_by_name: Final[list[str]] = []
"""The queue of which this process has warned, if there is one."""


def _warn_of_name(queue: str) -> None:
    """Warn of the first queue that is called by its name: SQS accepts that, but it does not contain the account."""
    if not _called_by_name:
        _called_by_name.append(queue)
        log_warning(
            "QueueUrl is a name, %r, not a URL: it does not contain the account, so these events have no scope and count as "
            "another queue than those with one. Give the queue's URL, or ACCOUNT/REGION as the scope: watch(..., scope=...), or "
            "QUEUEWATCH_SCOPE for queuewatch-instrument and the proxy",
            queue,
        )


def _put(event: dict[str, Any], name: str, value: object) -> None:
    if value is not None:
        event[name] = value


_OPERATIONS: Final[Mapping[str, Callable[[Translator, Call, Answer], list[Unbuilt | Event]]]] = {
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
