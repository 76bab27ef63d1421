"""A thin client for pulling from Cloudflare Queues over HTTP, which reports deliveries and settlements.

from queuewatch.cloudflare import PullConsumer

with PullConsumer(account_id, queue_id, queue="orders", to="https://queuewatch.example.org/api/v1/events") as consumer:
    for message in consumer.pull():
        work_on(message.body)  # as the API gives it: base64, unless its content type is text
        consumer.settle(acks=[message])
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import quote

from queuewatch.arguments import check_arguments
from queuewatch.clock import now_ms
from queuewatch.consumer_name import consumer_name
from queuewatch.environment import TO_VARIABLE, is_disabled
from queuewatch.events import WIRE_VERSION, Event
from queuewatch.sharing import Limits, SharedSender, acquire, release
from queuewatch.signal_handlers import raise_if_of_signal_handler
from queuewatch.transports import Transport
from queuewatch.transports.http import opener, redirect_target

TOKEN_VARIABLE: Final = "CLOUDFLARE_API_TOKEN"
_BASE: Final = "https://api.cloudflare.com/client/v4"
_LONGEST_DELAY_S: Final = 86_400
_MAX_RESPONSE_BYTES: Final = 32_000_000
"""A pull returns at most 100 messages of 128 kB each, encoded as base64."""


class PullError(Exception):
    """The API refused a call, did not answer or gave an unreadable response; it is unknown whether the call had an effect.

    `status` is the HTTP status of an error response, otherwise None.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Message:
    """One delivery. After `leased_until` (epoch milliseconds) another consumer may get it; `sent_at` is 0 if it is not known.

    `body` is as the API gives it: base64, unless the content type in `metadata["CF-Content-Type"]` is text.
    """

    id: str
    body: Any
    attempts: int
    lease_id: str
    sent_at: int
    leased_until: int
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class Settled:
    """The API's response to a settlement; `warnings` maps a lease to its problem."""

    acked: int
    retried: int
    warnings: Mapping[str, str]


class PullConsumer:
    """Pulls, acknowledges and retries messages of one queue. Not thread-safe.

    The API does not tell a consumer the queue's settings. `max_retries` and `dead_letter_queue` (None: there is none) determine
    the outcome of retrying the last delivery; without `max_retries` it is reported as released, and the service infers the
    rest. `retry_delay_s` is the queue's own delay, for retries that request none.
    """

    def __init__(
        self,
        account_id: str,
        queue_id: str,
        *,
        queue: str,
        to: str | Transport | None = None,
        token: str | None = None,
        consumer: str | None = None,
        visibility_timeout_s: float = 30.0,
        max_retries: int | None = None,
        dead_letter_queue: str | None = None,
        retry_delay_s: int | None = None,
        timeout_s: float | None = 30.0,
        base_url: str = _BASE,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        """`to` defaults to QUEUEWATCH_TO (without it nothing is reported), `token` to CLOUDFLARE_API_TOKEN.

        Raises `ValueError` or `TypeError` for an invalid `to`, name or number of seconds; an invalid QUEUEWATCH_TO is logged, and
        nothing is reported.
        Consumers with the same destination share one sender, as watched clients do; it is also flushed before SIGTERM ends the
        process. `timeout_s` limits each of connecting, sending a request, and receiving its whole response.
        """
        waits = {"visibility_timeout_s": visibility_timeout_s} | ({} if timeout_s is None else {"timeout_s": timeout_s})
        names = {"account_id": account_id, "queue": queue, "consumer": consumer, "dead_letter_queue": dead_letter_queue}
        check_arguments(names, {}, waits)
        self._url = f"{base_url}/accounts/{quote(account_id, safe='')}/queues/{quote(queue_id, safe='')}/messages"
        self._account_id = account_id
        self._queue = queue
        self._token = token
        self._consumer = consumer_name(consumer)
        self._lease_ms = int(visibility_timeout_s * 1000)
        self._max_retries = max_retries
        self._dead_letter_queue = dead_letter_queue
        self._retry_delay_s = retry_delay_s
        self._timeout_s = timeout_s
        self._clock_ms = clock_ms
        self._opener = opener()
        self._shared = _shared_sender(to)
        self.unknown = 0
        """Number of settlements that the API did not attribute to a message; they are not reported."""

    def pull(self, batch_size: int = 10) -> list[Message]:
        """Lease up to `batch_size` messages without waiting for more. Raises `PullError`."""
        began_at = self._clock_ms()
        result = self._post("pull", {"batch_size": batch_size, "visibility_timeout_ms": self._lease_ms})
        # The lease began before the response arrived. An end that is too early does no harm; one that is too late makes the
        # message look held.
        messages = _messages(result.get("messages") or (), began_at + self._lease_ms)
        self._report([self._received(message, began_at) for message in messages])
        return messages

    def settle(self, acks: Iterable[Message] = (), retries: Iterable[Message] = (), *, delay_s: int | None = None) -> Settled:
        """Acknowledge some messages, and return others after `delay_s`. Raises `PullError`."""
        acked, retried = list(acks), list(retries)
        delay = {} if delay_s is None else {"delay_seconds": delay_s}
        body = {
            "acks": [{"lease_id": message.lease_id} for message in acked],
            "retries": [{"lease_id": message.lease_id, **delay} for message in retried],
        }
        result = self._post("ack", body)
        at = self._clock_ms()
        warnings = result.get("warnings")
        said = warnings if isinstance(warnings, dict) else {}
        settled = Settled(_count(result, "ackCount"), _count(result, "retryCount"), said)
        done = self._done(acked, settled.acked, said, at)
        events = [self._about("deleted", message, at) for message in done or ()]
        if done is not None:
            leases = {message.lease_id for message in done}
            refused = (message for message in acked if message.lease_id not in leases)
            events += [self._about("outlived", message, at) for message in refused if at >= message.leased_until]
        wait_s = self._retry_delay_s if delay_s is None else delay_s
        events += [self._given_back(message, wait_s, at) for message in self._done(retried, settled.retried, said, at) or ()]
        self._report(events)
        return settled

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until everything so far is sent; return False on a timeout."""
        return self._shared is None or self._shared.sender.flush(timeout_s)

    def close(self) -> None:
        """Send the remaining events within the sender's exit deadline."""
        shared, self._shared = self._shared, None
        if shared is None:
            return
        if release(shared):
            shared.sender.close()
        else:
            shared.sender.flush(shared.sender.exit_deadline_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _done(self, messages: Sequence[Message], count: int, warnings: Mapping[str, str], at: int) -> list[Message] | None:
        """Return the messages that the API settled, None if its response, a number and the refused leases, does not tell."""
        likely = [message for message in messages if message.lease_id not in warnings]
        if count < len(likely):
            likely = [message for message in likely if at < message.leased_until]
        if count == len(likely):
            return likely
        self.unknown += len(messages)
        return None

    def _received(self, message: Message, at: int) -> Event:
        event = self._about("received", message, at)
        event["receive_count"] = message.attempts
        if message.sent_at:
            event["sent_at"] = message.sent_at
        event["invisible_until"] = message.leased_until
        return event

    def _given_back(self, message: Message, delay_s: int | None, at: int) -> Event:
        if self._max_retries is not None and message.attempts > self._max_retries:
            # The last delivery: the message leaves the queue at once, whatever delay was requested.
            if self._dead_letter_queue is None:
                return self._about("dropped", message, at) | {"reason": "retries used up"}
            return self._about("dead_lettered", message, at) | {"to_queue": self._dead_letter_queue}
        event = self._about("released", message, at)
        if delay_s is not None:
            event["visible_at"] = at + min(delay_s, _LONGEST_DELAY_S) * 1000
        return event

    def _about(self, kind: str, message: Message, at: int) -> Event:
        return {
            "v": WIRE_VERSION,
            "type": kind,
            "at": at,
            "system": "cloudflare_queues",
            "scope": self._account_id,
            "queue": self._queue,
            "message_id": message.id,
            "consumer": self._consumer(),
        }

    def _report(self, events: Sequence[Event]) -> None:
        if self._shared is not None and events:
            self._shared.sender.offer(events)

    def _post(self, action: str, body: Mapping[str, Any]) -> dict[str, Any]:
        token = self._token or os.environ.get(TOKEN_VARIABLE, "")
        if not (token.isascii() and token.isprintable()):
            # The error of http.client would show it.
            raise PullError(f"{action}: the token contains characters that are not allowed in a header, such as a line break")
        request = urllib.request.Request(  # noqa: S310 -- the address is the application's own setting
            f"{self._url}/{action}",
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json", "User-Agent": "queuewatch"},
            method="POST",
        )
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                found = json.loads(answer.read(_MAX_RESPONSE_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                said = _errors_in(_parsed(_body_of(error))) or _redirect(error)
                raise PullError(f"{action}: the API answered {error.code}{said}", error.code) from error
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            raise_if_of_signal_handler(error)
            raise PullError(f"{action}: the API did not answer: {type(error).__name__}") from error
        if not isinstance(found, dict) or not found.get("success"):
            raise PullError(f"{action}: the API refused{_errors_in(found)}")
        result = found.get("result")
        return result if isinstance(result, dict) else {}


def _shared_sender(to: str | Transport | None) -> SharedSender | None:
    if is_disabled() or not (to or os.environ.get(TO_VARIABLE)):
        return None
    return acquire(to or None, Limits())


def _count(result: Mapping[str, Any], name: str) -> int:
    try:
        return int(result.get(name) or 0)
    except (TypeError, ValueError, OverflowError) as error:  # JSON's 1e400 is infinite
        raise PullError(f"ack: the API's response has a {name} that is no number") from error


def _messages(entries: Iterable[Any], leased_until: int) -> list[Message]:
    try:
        return [_message(entry, leased_until) for entry in entries]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise PullError(f"pull: the API's response has a message that cannot be read: {type(error).__name__} {error}") from error


def _message(entry: Mapping[str, Any], leased_until: int) -> Message:
    return Message(
        id=str(entry["id"]),
        body=entry.get("body"),
        attempts=int(entry.get("attempts") or 1),
        lease_id=str(entry["lease_id"]),
        sent_at=int(entry.get("timestamp_ms") or 0),
        leased_until=leased_until,
        metadata=entry.get("metadata") or {},
    )


def _body_of(error: urllib.error.HTTPError) -> bytes:
    """Return the body of an error response, empty if the connection ends within it."""
    try:
        return error.read(_MAX_RESPONSE_BYTES)
    except (OSError, http.client.HTTPException) as problem:
        raise_if_of_signal_handler(problem)
        return b""


def _redirect(error: urllib.error.HTTPError) -> str:
    """Return where a redirect leads as a suffix, empty for another response."""
    target = redirect_target(error.url, error)
    if target is None:
        return ""
    if not target:
        return ": a redirect to an address that cannot be read"
    return f": a redirect to {target}, which is not followed"


def _parsed(body: bytes) -> Any:
    """Return a body's JSON, None if it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _errors_in(answer: Any) -> str:
    """Return the API's error text as a suffix, empty if there is none."""
    errors = answer.get("errors") if isinstance(answer, dict) else None
    if not isinstance(errors, list):
        return ""
    texts = [f"{error.get('code')} {error.get('message')}" for error in errors if isinstance(error, dict)]
    return f": {'; '.join(texts)}" if texts else ""
