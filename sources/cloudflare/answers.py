"""Parse answers of Cloudflare's Queues API defensively: a field is used only when it matches the schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sources.cloudflare.errors import BadAnswer
from sources.cloudflare.settings import Consumer, Queue
from sources.events import EARLIEST_MS, LATEST_MS, MAX_NAME_CHARS

_SURROGATES: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ListedQueue:
    """One queue of an account."""

    id: str
    name: str
    settings: Queue = field(default_factory=Queue)
    consumers: tuple[Consumer, ...] | None = None
    """None: the list did not include them; they have to be requested."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of queues; `bad` describes the entries that could not be read."""

    queues: tuple[ListedQueue, ...]
    entries: int
    """The number of entries on the page, unreadable ones included."""
    total_pages: int | None
    bad: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Backlog:
    """A queue's metrics: unacknowledged messages and bytes, and when the oldest was sent (None: not known)."""

    count: int
    size_bytes: int | None
    oldest_sent_at_ms: int | None


@dataclass(frozen=True, slots=True)
class SampledMessage:
    """A message that was sampled and left in the queue."""

    id: str
    attempts: int
    sent_at_ms: int


@dataclass(frozen=True, slots=True)
class PulledMessage:
    """A message leased by the collector until it is acknowledged by its `lease_id`."""

    lease_id: str
    body: str
    content_type: str


def result_of(what: str, answer: Any) -> Any:
    """Return the `result` of an answer. Raises `BadAnswer` when there is none, or the answer reports errors."""
    if not isinstance(answer, dict):
        raise BadAnswer(what, f"the answer is not an object but {_kind(answer)}")
    if answer.get("success") is not True:
        raise BadAnswer(what, f"not successful: {error_text(answer)}")
    return answer.get("result")


def error_text(answer: Any) -> str:
    """Return the errors of an answer in words, with their codes."""
    errors = answer.get("errors") if isinstance(answer, dict) else None
    reasons = [_error(error) for error in errors[:3]] if isinstance(errors, list) else []
    return "; ".join(reasons) or "no reason given"


def page_of(what: str, answer: Any) -> Page:
    """Parse a page of the list of queues. An unreadable entry is left out and described. Raises `BadAnswer`."""
    entries = result_of(what, answer)
    if entries is None:
        entries = []
    if not isinstance(entries, list):
        raise BadAnswer(what, f"result is no list but {_kind(entries)}")
    queues, bad = [], []
    for i, entry in enumerate(entries):
        try:
            queues.append(_queue(what, entry))
        except BadAnswer as error:
            bad.append(f"result[{i}]: {error.problem}")
    info = answer.get("result_info")
    pages = _whole(info.get("total_pages")) if isinstance(info, dict) else None
    return Page(tuple(queues), len(entries), pages, tuple(bad))


def consumers_of(what: str, answer: Any) -> tuple[Consumer, ...]:
    """Parse a queue's consumers. Raises `BadAnswer`."""
    entries = result_of(what, answer)
    if not isinstance(entries, list):
        raise BadAnswer(what, f"result is no list but {_kind(entries)}")
    return tuple(_consumer(what, entry) for entry in entries)


def backlog_of(what: str, answer: Any) -> Backlog:
    """Parse a queue's metrics. Raises `BadAnswer` even if only a part is missing."""
    result = _object(what, "result", result_of(what, answer))
    count = _whole(result.get("backlog_count"))
    if count is None:
        raise BadAnswer(what, f"backlog_count is {_kind(result.get('backlog_count'))}")
    # The API reports an unknown time as 0.
    return Backlog(count, _whole(result.get("backlog_bytes")), _time(result.get("oldest_message_timestamp_ms")))


def sample_of(what: str, answer: Any) -> tuple[SampledMessage, ...]:
    """Parse the messages of a preview that have an id and a date. Raises `BadAnswer`."""
    sampled = []
    for message in _messages(what, answer):
        sent_at_ms, attempts = _time(message.get("timestamp_ms")), _whole(message.get("attempts"))
        if _is_name(message.get("id")) and sent_at_ms is not None:
            sampled.append(SampledMessage(message["id"], attempts or 0, sent_at_ms))
    return tuple(sampled)


def pulled_of(what: str, answer: Any) -> tuple[PulledMessage, ...]:
    """Parse the messages of a pull. One without a lease cannot be acknowledged and is left out. Raises `BadAnswer`."""
    pulled = []
    for message in _messages(what, answer):
        lease, body, metadata = (message.get(name) for name in ("lease_id", "body", "metadata"))
        if not isinstance(lease, str) or not lease:
            continue
        kind = metadata.get("CF-Content-Type") if isinstance(metadata, dict) else None
        pulled.append(PulledMessage(lease, body if isinstance(body, str) else "", kind if isinstance(kind, str) else ""))
    return tuple(pulled)


def acknowledged_of(what: str, answer: Any) -> int | None:
    """Return how many leases an acknowledgement reached; None when it does not report that. Raises `BadAnswer`."""
    result = result_of(what, answer)
    return _whole(result.get("ackCount")) if isinstance(result, dict) else None


def _messages(what: str, answer: Any) -> Iterator[Mapping[str, Any]]:
    result = result_of(what, answer)
    # Older answers consisted of the list itself.
    messages = result.get("messages") if isinstance(result, dict) else result
    if messages is None:
        messages = []
    if not isinstance(messages, list):
        raise BadAnswer(what, f"messages is no list but {_kind(messages)}")
    return (message for message in messages if isinstance(message, dict))


def _queue(what: str, entry: Any) -> ListedQueue:
    values = _object(what, "queue", entry)
    for key in ("queue_id", "queue_name"):
        if not _is_name(values.get(key)):
            raise BadAnswer(what, f"{key} is {_kind(values.get(key))}")
    given = values.get("settings")
    settings = given if isinstance(given, dict) else {}
    paused = settings.get("delivery_paused")
    return ListedQueue(
        values["queue_id"],
        values["queue_name"],
        Queue(
            delivery_delay_s=_number(settings.get("delivery_delay")),
            retention_s=_number(settings.get("message_retention_period")),
            paused=paused if isinstance(paused, bool) else None,
        ),
        _listed_consumers(what, values),
    )


def _listed_consumers(what: str, values: Mapping[str, Any]) -> tuple[Consumer, ...] | None:
    """Return the listed consumers, if the list has all of them with their settings."""
    entries, total = values.get("consumers"), _whole(values.get("consumers_total_count"))
    if entries is None and total == 0:
        return ()
    if not isinstance(entries, list) or (total is not None and total > len(entries)):
        return None
    if not all(isinstance(entry, dict) and isinstance(entry.get("settings"), dict) for entry in entries):
        return None
    return tuple(_consumer(what, entry) for entry in entries)


def _consumer(what: str, entry: Any) -> Consumer:
    values = _object(what, "consumer", entry)
    given = values.get("settings")
    settings = given if isinstance(given, dict) else {}
    wait_ms, lease_ms = (_number(settings.get(name)) for name in ("max_wait_time_ms", "visibility_timeout_ms"))
    dead_letters = values.get("dead_letter_queue", "")
    is_pull = values.get("type") == "http_pull"
    script = next((v for k in ("script_name", "script", "service") if isinstance(v := values.get(k), str) and v), None)
    return Consumer(
        type="http_pull" if is_pull else "worker",
        script=script,
        max_batch_size=_whole(settings.get("batch_size")),
        max_batch_timeout_s=None if wait_ms is None else wait_ms / 1000,
        max_retries=_whole(settings.get("max_retries")),
        retry_delay_s=_number(settings.get("retry_delay")),
        max_concurrency=_whole(settings.get("max_concurrency")),
        visibility_timeout_s=lease_ms / 1000 if is_pull and lease_ms is not None else None,
        dead_letter_queue=(dead_letters or "") if isinstance(dead_letters, str | None) else None,
    )


def _error(error: Any) -> str:
    if not isinstance(error, dict):
        return _short(error)
    return f"{_short(error.get('message', ''))} (code {_short(error.get('code', 'unknown'))})"


def _object(what: str, name: str, value: Any) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    raise BadAnswer(what, f"{name} is not an object but {_kind(value)}")


def _number(value: Any) -> float | None:
    """Parse a number from 0 to what 64 bits hold; numbers are never given as text."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value < 1 << 63 else None


def _whole(value: Any) -> int | None:
    """Parse a count, which the schema defines as a JSON number: 3.0 is 3, and 3.5 is invalid."""
    number = _number(value)
    return int(number) if number is not None and float(number).is_integer() else None


def _time(value: Any) -> int | None:
    milliseconds = _whole(value)
    return milliseconds if milliseconds is not None and EARLIEST_MS <= milliseconds <= LATEST_MS else None


def _is_name(value: Any) -> bool:
    # JSON may hold half a surrogate pair, which neither a URL nor an event can.
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME_CHARS and not _SURROGATES.search(value)


def _kind(value: Any) -> str:
    return "missing" if value is None else f"{type(value).__name__} {_short(value)}"


def _short(value: Any) -> str:
    text = str(value) if not isinstance(value, Sequence) or isinstance(value, str) else f"of {len(value)} items"
    return text if len(text) <= 100 else text[:97] + "..."
