"""Convert the records of an SQS invocation, and its outcome, to telemetry events. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from queuewatch.aws_lambda.outcome import Outcome
from queuewatch.events import WIRE_VERSION, Event
from queuewatch.places import Place, origin_of, place_of_arn


class Record(NamedTuple):
    """The fields of a record that telemetry needs, copied because the handler may change its event."""

    message_id: str
    attributes: Mapping[str, str]


@dataclass(frozen=True)
class Delivery:
    """One invocation's batch. Times are epoch milliseconds."""

    request_id: str
    consumer: str
    place: Place
    records: Sequence[Record]
    began_at: int
    visibility_timeout_ms: int | None = None

    @property
    def message_ids(self) -> frozenset[str]:
        return frozenset(record.message_id for record in self.records)

    def received(self) -> list[Event]:
        """Return the `received` events, which are the same however the invocation ends."""
        return [self._received(record) for record in self.records]

    def ended(self, outcome: Outcome, at: int) -> list[Event]:
        """Return the outcome of each message and of the batch.

        If the visibility timeout is not known, neither is the time when a message becomes visible again. Then no `released` is
        reported, and the service itself infers the end of the message's window.
        """
        events = list(self._settled(outcome, at))
        back = len(self.records) if outcome.whole else sum(r.message_id in outcome.back for r in self.records)
        batch = self._event("batch", at)
        batch["consumer"] = self.consumer
        batch["batch_id"] = self.request_id
        batch["reason"] = outcome.reason
        batch["attributes"] = {
            "size": len(self.records),
            "failed": back if outcome.whole else 0,
            "acked": len(self.records) - back,
            "retried": 0 if outcome.whole else back,
        }
        events.append(batch)
        return events

    def _settled(self, outcome: Outcome, at: int) -> Iterator[Event]:
        for record in self.records:
            back = outcome.whole or record.message_id in outcome.back
            if back and self.visibility_timeout_ms is None:
                continue
            event = self._about(record, "released" if back else "deleted", at)
            event["reason"] = outcome.reason if back else "returned"
            if back and self.visibility_timeout_ms is not None:
                event["visible_at"] = max(at, self._received_at(record) + self.visibility_timeout_ms)
            yield event

    def _received(self, record: Record) -> Event:
        said = record.attributes
        at = self._received_at(record)
        event = self._about(record, "received", at)
        event["batch_id"] = self.request_id
        for name, attribute in _TIMES_AND_COUNTS:
            value = _integer(said.get(attribute))
            if value is not None:
                event[name] = value
        if said.get("SequenceNumber"):
            event["sequence"] = said["SequenceNumber"]
        origin = origin_of(said, self.place.queue)
        if origin is not None:
            event["from_queue"] = origin
        if self.visibility_timeout_ms is not None:
            event["invisible_until"] = at + self.visibility_timeout_ms
        return event

    def _received_at(self, record: Record) -> int:
        """Return when the mapping received it: known for a first receive, otherwise at most the start of the invocation."""
        first = _integer(record.attributes.get("ApproximateFirstReceiveTimestamp"))
        if first is not None and _integer(record.attributes.get("ApproximateReceiveCount")) == 1:
            return min(first, self.began_at)
        return self.began_at

    def _about(self, record: Record, kind: str, at: int) -> Event:
        event = self._event(kind, at)
        event["message_id"] = record.message_id
        event["consumer"] = self.consumer
        group = record.attributes.get("MessageGroupId")
        if group:
            event["group"] = group
        return event

    def _event(self, kind: str, at: int) -> Event:
        event: Event = {"v": WIRE_VERSION, "type": kind, "at": at, "system": "aws_sqs"}
        if self.place.scope is not None:
            event["scope"] = self.place.scope
        event["queue"] = self.place.queue
        return event


_TIMES_AND_COUNTS = (
    ("receive_count", "ApproximateReceiveCount"),
    ("sent_at", "SentTimestamp"),
    ("first_received_at", "ApproximateFirstReceiveTimestamp"),
)


def delivery_of(
    event: Any,
    *,
    request_id: str,
    consumer: str,
    began_at: int,
    scope: str | None = None,
    visibility_timeout_s: float | None = None,
) -> Delivery | None:
    """Return the batch in a Lambda event, or None if the event is not from SQS.

    An event source mapping passes `{"Records": […]}`, EventBridge Pipes the list of the same records by itself.
    """
    found = event.get("Records") if isinstance(event, dict) else event
    if not isinstance(found, list) or not found:
        return None
    if not all(isinstance(r, dict) and r.get("eventSource") == "aws:sqs" and r.get("messageId") for r in found):
        return None
    place = place_of_arn(str(found[0].get("eventSourceARN", "")))
    return Delivery(
        request_id=request_id,
        consumer=consumer,
        place=place if scope is None else Place(scope, place.queue),
        records=tuple(Record(r["messageId"], _copied(r.get("attributes"))) for r in found),
        began_at=began_at,
        visibility_timeout_ms=None if visibility_timeout_s is None else int(visibility_timeout_s * 1000),
    )


def _copied(attributes: Any) -> dict[str, str]:
    """Return the attributes as texts, as SQS writes them. A test event may contain numbers, and others, which are left out."""
    if not isinstance(attributes, dict):
        return {}
    return {name: str(value) for name, value in attributes.items() if isinstance(value, (str, int, float))}


def _integer(text: str | None) -> int | None:
    """Parse a count or a timestamp, None if it is neither; some stand-ins for SQS write a fraction."""
    try:
        return None if text is None else int(float(text))
    except (ValueError, OverflowError):
        return None
