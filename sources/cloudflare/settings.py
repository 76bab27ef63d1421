"""Derive from a queue's settings the attributes of its `queue_state`, and the findings about them.

Pure: numbers in, plain values out. Durations are seconds (`_s`), the rest are counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

MAX_DELAY_S: Final = 86_400
"""The longest delay of a message when it is sent or retried."""
MAX_ATTEMPTS: Final = 101
"""Deliveries of a message with the maximum number of retries."""

LIMITS: Final[Mapping[str, tuple[float, float]]] = {
    "max_batch_size": (1, 100),
    "max_batch_timeout_s": (0, 60),
    "max_retries": (0, 100),
    "retry_delay_s": (0, MAX_DELAY_S),
    "delivery_delay_s": (0, MAX_DELAY_S),
    "visibility_timeout_s": (0, 43_200),
    "retention_s": (60, 1_209_600),
}
"""Attribute → the minimum and maximum the platform accepts."""

OMITTED_SETTINGS: Final = (
    "consumer_script",
    "max_batch_timeout_s",
    "retry_delay_s",
    "max_concurrency",
    "visibility_timeout_s",
    "wrangler_differs",
)
"""What the description of a consumer has only where it applies or is set. The API always gives the others: if one is missing, it
is unknown, and may be known from elsewhere, as from the options of a Worker."""
CONSUMER_SETTINGS: Final = (
    *OMITTED_SETTINGS,
    "consumer_type",
    "max_batch_size",
    "max_retries",
    "max_receive_count",
    "dead_letter_queue",
    "has_dead_letter_queue",
    "backoff_cap_exceeded_at_attempt",
)
"""What a queue without a consumer does not have."""


@dataclass(frozen=True, slots=True)
class Consumer:
    """A queue's consumer as configured; `None` means unknown, not a default."""

    type: Literal["worker", "http_pull"] = "worker"
    script: str | None = None
    max_batch_size: int | None = None
    max_batch_timeout_s: float | None = None
    max_retries: int | None = None
    retry_delay_s: float | None = None
    max_concurrency: int | None = None
    visibility_timeout_s: float | None = None
    """How long a pulled message is leased; a Worker has no such window."""
    dead_letter_queue: str | None = None
    """Its name; empty: there is none."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue's own settings; `None` means unknown."""

    delivery_delay_s: float | None = None
    retention_s: float | None = None
    paused: bool | None = None


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delays that a handler requests: `first_s` at the first attempt, multiplied by `factor` at each further one."""

    first_s: float
    factor: float

    def delay_s(self, attempt: int) -> float:
        """Return the delay requested at the end of attempt 1, 2, 3 and so on."""
        try:
            return self.first_s * self.factor ** (attempt - 1)
        except OverflowError:
            return float("inf")


@dataclass(frozen=True, slots=True)
class Finding:
    """A setting that will cause trouble. `rule` identifies it for programs, `summary` states the effect and the fix."""

    rule: str
    summary: str


def backoff_cap_exceeded_at_attempt(backoff: Backoff, max_retries: int | None) -> int | None:
    """Return the first attempt whose delay exceeds the platform's limit; None when its retries end before.

    The last attempt is not retried, so its delay does not count.
    """
    last = MAX_ATTEMPTS - 1 if max_retries is None else max_retries
    return next((n for n in range(1, last + 1) if backoff.delay_s(n) > MAX_DELAY_S), None)


def attributes_of(queue: Queue, consumer: Consumer | None, backoff: Backoff | None = None) -> dict[str, Any]:
    """Return the `queue_state` attributes of a queue's settings. `consumer` None: the queue has none.

    Unknown settings are left out; a dead-letter queue that is known not to exist is empty.
    """
    attributes: dict[str, Any] = {
        "kind": "standard",
        "retention_s": queue.retention_s,
        "delivery_delay_s": queue.delivery_delay_s,
        "paused": queue.paused,
        "has_consumer": consumer is not None,
    }
    if consumer is not None:
        retries = consumer.max_retries
        attributes |= {
            "consumer_type": consumer.type,
            "consumer_script": consumer.script,
            "max_batch_size": consumer.max_batch_size,
            "max_batch_timeout_s": consumer.max_batch_timeout_s,
            "max_retries": retries,
            "max_receive_count": None if retries is None else retries + 1,
            "retry_delay_s": consumer.retry_delay_s,
            "max_concurrency": consumer.max_concurrency,
            "visibility_timeout_s": consumer.visibility_timeout_s,
            "dead_letter_queue": consumer.dead_letter_queue,
        }
        if consumer.dead_letter_queue is not None:
            attributes["has_dead_letter_queue"] = consumer.dead_letter_queue != ""
        if backoff is not None:
            attributes["backoff_cap_exceeded_at_attempt"] = backoff_cap_exceeded_at_attempt(backoff, retries)
    return {name: value for name, value in attributes.items() if value is not None}


def findings(queue: str, attributes: Mapping[str, Any]) -> list[Finding]:
    """Return all findings about a queue's `queue_state` attributes, worst first.

    `throws_on_error`, an attribute of the module for Workers, means that a handler's error fails its whole batch.
    """
    found = [Finding(rule, words) for rule, check in _RULES.items() if (words := check(queue, attributes))]
    return [*found, *_beyond_limits(attributes)]


def _no_dead_letter_queue(queue: str, attributes: Mapping[str, Any]) -> str | None:
    if attributes.get("dead_letter_queue") != "":
        return None
    return f"{queue} has no dead-letter queue: a message whose retries run out is deleted. Set dead_letter_queue on its consumer."


def _dead_letters_to_itself(queue: str, attributes: Mapping[str, Any]) -> str | None:
    if attributes.get("dead_letter_queue") != queue:
        return None
    return (
        f"{queue} is its own dead-letter queue: a message that always fails starts again for ever. "
        "Name another queue as dead_letter_queue."
    )


def _no_retries(queue: str, attributes: Mapping[str, Any]) -> str | None:
    if attributes.get("max_retries") != 0:
        return None
    lost = "deletes it" if attributes.get("dead_letter_queue") == "" else "is its last delivery"
    return f"{queue} retries nothing: the first failure of a message {lost}. Set max_retries to 3 or more."


def _whole_batch_fails(queue: str, attributes: Mapping[str, Any]) -> str | None:
    size = attributes.get("max_batch_size")
    if not attributes.get("throws_on_error") or not isinstance(size, int) or size < LIMITS["max_batch_size"][1]:
        return None
    return (
        f"An error in the consumer of {queue} fails its whole batch of up to {size}: each bad message has "
        f"{size - 1} good ones delivered again, and uses up their retries. Acknowledge or retry each message "
        "by itself, or make batches smaller."
    )


def _backoff_beyond_cap(queue: str, attributes: Mapping[str, Any]) -> str | None:
    attempt = attributes.get("backoff_cap_exceeded_at_attempt")
    if attempt is None:
        return None
    return (
        f"The back-off of {queue} asks for more than {MAX_DELAY_S} s at attempt {attempt}, the longest delay "
        "there is. Cap the delay in the handler."
    )


def _retries_outlive_retention(queue: str, attributes: Mapping[str, Any]) -> str | None:
    retention_s, retries = attributes.get("retention_s"), attributes.get("max_retries")
    delay_s = attributes.get("retry_delay_s")
    if not retention_s or not retries or not delay_s or delay_s * retries < retention_s:
        return None
    return (
        f"{queue} keeps messages {retention_s:.0f} s, and {retries} retries {delay_s:.0f} s apart take longer: a "
        "message expires before its last retry and never reaches the dead-letter queue. Raise the retention or "
        "lower retry_delay."
    )


def _paused(queue: str, attributes: Mapping[str, Any]) -> str | None:
    if not attributes.get("paused"):
        return None
    return f"Delivery of {queue} is paused: messages wait and expire. Resume it when that is not meant."


def _beyond_limits(attributes: Mapping[str, Any]) -> Iterator[Finding]:
    for name, (least, most) in LIMITS.items():
        value = attributes.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and not least <= value <= most:
            summary = f"{name} is {value:g}; the platform takes {least:g} to {most:g}. Change it before it is deployed."
            yield Finding("beyond_limits", summary)


_RULES: Final[dict[str, Callable[[str, Mapping[str, Any]], str | None]]] = {
    "dead_letters_to_itself": _dead_letters_to_itself,
    "no_dead_letter_queue": _no_dead_letter_queue,
    "no_retries": _no_retries,
    "whole_batch_fails": _whole_batch_fails,
    "backoff_beyond_cap": _backoff_beyond_cap,
    "retries_outlive_retention": _retries_outlive_retention,
    "delivery_paused": _paused,
}
