"""Drain telemetry that Workers send to a separate queue: messages are pulled, delivered, and only then acknowledged."""

from __future__ import annotations

import base64
import binascii
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from queuewatch.clock import now_ms
from sources.cloudflare.answers import PulledMessage
from sources.cloudflare.api import CloudflareApi
from sources.cloudflare.budget import Budget
from sources.cloudflare.config import DrainConfig
from sources.cloudflare.errors import ApiError, RateLimited
from sources.cloudflare.event_builder import SYSTEM
from sources.cloudflare.watched import backoff_s
from sources.collect.base import CollectorRefused
from sources.events import Emit, Event, heartbeat, is_telemetry, unreadable

log = logging.getLogger(__name__)

_HEARTBEAT_S: Final = 30.0


class TelemetryDrain:
    """Reads one queue over HTTP pull until it is stopped.

    A message is acknowledged once `emit` has returned for all of its events, so nothing is lost in between. Messages that
    were delivered but could not be acknowledged come again, and their events are duplicated. A queue whose messages are not
    telemetry is refused before anything is acknowledged, because it has another purpose.

    It sends heartbeats of its own, only while the queue can be read: the collector's say only that the account can.
    """

    def __init__(self, config: DrainConfig, api: CloudflareApi, queue_id: Callable[[], str | None], collector: str) -> None:
        """`queue_id` returns the queue's id once it is known. `collector` is the name of the collector that it is a part of."""
        self._config = config
        self._name = f"{collector}/{config.queue}"
        self._heard_s = float("-inf")
        """When the last heartbeat was sent (monotonic)."""
        self._api = api
        self._queue_id = queue_id
        self._trusted = False
        # Pulls are not limited like the other requests; this budget only applies the pauses the API asks for.
        self._budget = Budget(1_000_000)

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Drain until `stop` is set. Raises only `CollectorRefused`, never because of the API, the network or `emit`."""
        failures = 0
        while not stop.is_set():
            queue_id = self._queue_id()
            wait_s = self._config.idle_s if queue_id is None else self._budget.wait_s()
            if queue_id is not None and wait_s == 0:
                try:
                    taken = self.drain_once(queue_id, emit)
                    self._beat(emit)
                    failures = 0
                    # After a full pull, more messages are waiting.
                    wait_s = 0.0 if taken >= self._config.batch_size else self._config.idle_s
                except RateLimited as error:
                    self._budget.pause(error.retry_after_s)
                except ApiError as error:
                    wait_s = backoff_s(self._config.idle_s, failures)
                    failures += 1
                    log.warning("Cloudflare: telemetry queue %s: %s; next in %.0f s", self._config.queue, error, wait_s)
                except CollectorRefused:
                    raise
                except Exception:
                    # Whatever is wrong with the destination: nothing was acknowledged, so nothing is lost.
                    wait_s = backoff_s(self._config.idle_s, failures)
                    failures += 1
                    log.exception("Cloudflare: events could not be handed on; next in %.0f s", wait_s)
            stop.wait(wait_s)

    def drain_once(self, queue_id: str, emit: Emit) -> int:
        """Pull once, deliver, acknowledge; returns how many messages came.

        Raises `ApiError`, `CollectorRefused`, and whatever `emit` raises.
        """
        pulled = self._api.pull(queue_id, self._config.batch_size, self._config.lease_s)
        if not pulled:
            return 0
        events = [event for message in pulled for event in events_of(message)]
        self._refuse_foreign(events)
        if events:
            emit(events)
        acknowledged = self._api.acknowledge(queue_id, [message.lease_id for message in pulled])
        if acknowledged is not None and acknowledged < len(pulled):
            log.info("Cloudflare: %d of %d leases had ended; they come again", len(pulled) - acknowledged, len(pulled))
        return len(pulled)

    def _beat(self, emit: Emit) -> None:
        if time.monotonic() - self._heard_s >= _HEARTBEAT_S:
            emit([heartbeat(SYSTEM, self._name, now_ms())])
            self._heard_s = time.monotonic()

    def _refuse_foreign(self, events: Sequence[Event]) -> None:
        if not self._trusted and not any(is_telemetry(event) for event in events):
            raise CollectorRefused(
                f"the messages of {self._config.queue!r} are not telemetry. Nothing was acknowledged. "
                "Name the queue that Workers send telemetry to in collect.cloudflare.drain.queue"
            )
        self._trusted = True


def events_of(message: PulledMessage) -> list[Event]:
    """Return the events in a message: a JSON array or a single JSON object. Anything else becomes an `unreadable` event."""
    for text in _texts(message):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            return [document]
        if isinstance(document, list):
            return [entry if isinstance(entry, dict) else unreadable(entry) for entry in document]
    return [unreadable(message.body)]


def _texts(message: PulledMessage) -> Iterator[str]:
    """Yield the body as text: unchanged if it was sent as text, else decoded from base64; then the other way as a fallback."""
    plain, decoded = message.body, _from_base64(message.body)
    if message.content_type == "text" or decoded is None:
        yield plain
    if decoded is not None:
        yield decoded
    if message.content_type != "text" and decoded is not None:
        yield plain


def _from_base64(body: str) -> str | None:
    try:
        return base64.b64decode(body, validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
