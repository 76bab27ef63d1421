"""Drain the service's own telemetry queue: events are received, delivered, and only then deleted."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from botocore.exceptions import BotoCoreError, ClientError

from queuewatch.backoff import Backoff
from queuewatch.clock import now_ms
from queuewatch.places import Place, place_of_url, region_of_url
from sources.collect.base import CollectorRefused
from sources.events import Emit, Event, heartbeat, is_telemetry, unreadable
from sources.sqs.attributes import SYSTEM
from sources.sqs.clients import make_clients
from sources.sqs.config import SqsCollectorConfig, TelemetryQueueConfig

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageTypeDef

_log = logging.getLogger(__name__)

_EMPTY_PAUSE_S: Final = 1.0
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_HEARTBEAT_EVERY_MS: Final = 30_000


class SqsTelemetryCollector:
    """Receives from one queue until it is stopped.

    Telemetry that was delivered but could not be deleted comes again: its events are duplicated, which is harmless. A
    queue whose messages are not telemetry, or whose telemetry is about the queue itself, is refused before anything is
    deleted, because it has another purpose.
    """

    kind: ClassVar[str] = "sqs-telemetry"

    def __init__(self, config: SqsCollectorConfig, client: SQSClient | None = None) -> None:
        """Raises `CollectorRefused` when `config` names no telemetry queue."""
        if config.telemetry is None:
            raise CollectorRefused("collect.sqs.telemetry.queue is not set: there is nothing to drain")
        self._queue: TelemetryQueueConfig = config.telemetry
        self._name = f"sqs-telemetry/{self._queue.name}"
        self._client = client or _client_for(config, self._queue)
        self._url: str | None = None
        self._trusted = False
        self._heartbeat_at = 0

    @classmethod
    def from_config(cls, config: SqsCollectorConfig) -> Self:
        """Create a collector from the `telemetry` section of the SQS collector's configuration."""
        return cls(config)

    @property
    def region(self) -> str:
        """The region in which the queue is read."""
        return self._client.meta.region_name

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Drain until `stop` is set, with a back-off when SQS fails. Raises `CollectorRefused`, and whatever `emit` raises."""
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while not stop.is_set():
            try:
                received = self.drain_once(emit)
                backoff.reset()
                if not received and self._queue.wait_s == 0:
                    stop.wait(_EMPTY_PAUSE_S)  # otherwise SQS has waited for messages
            except (ClientError, BotoCoreError) as error:
                pause_s = backoff.pause_s()
                _log.warning("telemetry queue %s: %s; next attempt in %.0f s", self._queue.name, error, pause_s)
                stop.wait(pause_s)

    def drain_once(self, emit: Emit) -> int:
        """Receive once, deliver, delete; returns how many messages came."""
        url = self._resolve()
        answer = self._client.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=self._queue.wait_s,
            VisibilityTimeout=self._queue.lease_s,
        )
        messages = answer.get("Messages", [])
        events = [event for message in messages for event in events_of(message.get("Body", ""))]
        if messages:
            self._refuse_foreign(url, events)
        at = now_ms()
        if abs(at - self._heartbeat_at) >= _HEARTBEAT_EVERY_MS:  # the clock may be set back
            self._heartbeat_at = at
            events.append(heartbeat(SYSTEM, self._name, at))
        if events:
            emit(events)
        if messages:
            self._delete(url, messages)
        return len(messages)

    def _resolve(self) -> str:
        if self._url is None:
            if "/" in self._queue.queue:
                self._url = self._queue.queue
            else:
                self._url = self._client.get_queue_url(QueueName=self._queue.queue)["QueueUrl"]
        return self._url

    def _refuse_foreign(self, url: str, events: Sequence[Event]) -> None:
        place = place_of_url(url, self._client.meta.region_name)
        if any(_is_about(event, place) for event in events):
            raise CollectorRefused(
                f"the telemetry queue {place.queue!r} is itself watched by an instrumented application or a collector: "
                "draining it would take that application's messages. Nothing was deleted. Send telemetry to a queue "
                "that is used for nothing else, and name that one in collect.sqs.telemetry.queue"
            )
        if not self._trusted and not any(is_telemetry(event) for event in events):
            raise CollectorRefused(
                f"the messages of {place.queue!r} are not telemetry. Nothing was deleted. "
                "Name the queue that applications send telemetry to in collect.sqs.telemetry.queue"
            )
        self._trusted = True

    def _delete(self, url: str, messages: Sequence[MessageTypeDef]) -> None:
        answer = self._client.delete_message_batch(
            QueueUrl=url,
            Entries=[{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages)],
        )
        failed = answer.get("Failed", [])
        if failed:
            _log.info("telemetry queue %s: %d messages will be delivered again", self._queue.name, len(failed))


def _client_for(config: SqsCollectorConfig, queue: TelemetryQueueConfig) -> SQSClient:
    """Return a client of the region in the queue's URL, or else of the first one: in another one the queue does not exist."""
    region = region_of_url(queue.queue)
    if region is not None:
        config = config.model_copy(update={"regions": (region,)})
    return make_clients(config, read_timeout_s=queue.wait_s + 15.0)[0]


def events_of(body: str) -> list[Event]:
    """Return the events of a message: NDJSON, an array, or one object. Anything else becomes an `unreadable` event."""
    try:
        whole = [json.loads(body)]
    except (ValueError, RecursionError):
        # Not `splitlines`: a queue or group name may contain U+2028, which JSON does not escape.
        whole = [_load(line) for line in body.split("\n") if line.strip()]
    found = whole[0] if len(whole) == 1 and isinstance(whole[0], list) else whole
    return [event if isinstance(event, dict) else unreadable(event) for event in found]


def _load(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line


def _is_about(event: Event, place: Place) -> bool:
    return event.get("system") == SYSTEM and event.get("queue") == place.queue and event.get("scope") in (None, place.scope)
