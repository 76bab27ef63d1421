"""What a shard knows about a queue as a whole: its reported attributes, running totals and the times of its last events.

Every value is a maximum, a sum, or the value with the latest time, so the order in which events arrive does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, get_args

import numpy as np

from streaming.core.settings import (
    DEFAULT_RETENTION_S,
    DEFAULT_VISIBILITY_S,
    QueueName,
    Settings,
)
from streaming.core.thresholds import Thresholds

TOTALS = (
    "sent",
    "received",
    "deleted",
    "dead_lettered",
    "redriven",
    "expired",
    "dropped",
    "reconciled",
    "arrived",
    "retried",
    "touched",
    "touched_unsent",
    "unseen_receives",
    "failed",
    "outlived",
    "wait_ms",
    "processing_ms",
    "sojourn_ms",
    "found_later",
    "processed",
)
"""Running totals by index.

`arrived`: dead letters that arrived. `retried`: redeliveries from failed batches. `touched`: messages with a reported delivery
or end; `touched_unsent`: those of them without a reported send. `unseen_receives`: deliveries known only from a later receive
count. `failed`: deliveries that ended without a settlement. `outlived`: messages settled after the visibility window of the
delivery that settled them had ended, and deliveries whose settlement was refused for that. `wait_ms`, `processing_ms`,
`sojourn_ms`: the sums of the times that `durations` counts. `found_later`: those reconciled away of which a delivery or
end was reported later, and those expired by time of which a later report shows that they had not expired. `processed`: those
whose time from the last receive to the deletion is in `processing_ms`.
"""
(
    T_SENT,
    T_RECEIVED,
    T_DELETED,
    T_DEAD_LETTERED,
    T_REDRIVEN,
    T_EXPIRED,
    T_DROPPED,
    T_RECONCILED,
    T_ARRIVED,
    T_RETRIED,
    T_TOUCHED,
    T_TOUCHED_UNSENT,
    T_UNSEEN_RECEIVES,
    T_FAILED,
    T_OUTLIVED,
    T_WAIT_MS,
    T_PROCESSING_MS,
    T_SOJOURN_MS,
    T_FOUND_LATER,
    T_PROCESSED,
) = range(len(TOTALS))

END_TOTALS = ("deleted", "dead_lettered", "redriven", "expired", "dropped", "reconciled")
"""The totals of ended messages, by how they ended."""

MOST_ATTRIBUTES = 200
"""The number of attributes kept per queue (latest first) and consumer: a sender must not fill the memory with invented names…"""
MOST_ATTRIBUTE_BYTES = 1 << 16
"""…nor with long values: the length of a queue's attributes as JSON…"""
FEW_ATTRIBUTE_BYTES = 1 << 11
"""…and of those that are shortened…"""
MOST_SHARD_ATTRIBUTE_BYTES = 1 << 25
"""…where all queues of a shard together have more than this: they are part of its report after every step."""

Attribute = Literal[
    "backoff_cap_exceeded_at_attempt",
    "dead_letter_queue",
    "dead_letter_sources",
    "deduplication_scope",
    "delay_s",
    "delayed",
    "delivery_delay_s",
    "findings",
    "has_consumer",
    "has_dead_letter_queue",
    "in_flight",
    "is_dead_letter_queue",
    "kind",
    "look_ahead",
    "max_batch_size",
    "max_receive_count",
    "max_retries",
    "max_retry_delay_s",
    "oldest_sent_at",
    "ordered",
    "paused",
    "redrive_allow_policy",
    "redrive_task",
    "retention_s",
    "retry_delay_s",
    "tags",
    "throughput_limit",
    "throws_on_error",
    "visibility_timeout_s",
    "visible",
]
"""An attribute of a queue that tracking or rules read. The type checker refuses to read another one."""
READ_ATTRIBUTES: Final = frozenset(get_args(Attribute))
"""They are kept whatever else is reported."""

READ_OF_CONSUMERS = frozenset(
    {
        "client_id",
        "connected",
        "connected_at",
        "connection_open",
        "dispatched",
        "last_ack_at",
        "network",
        "prefetch",
        "removed_at",
        "returned",
        "returned_since",
    }
)
"""The attributes of a consumer that are kept."""

DEFAULT_DELIVERIES: Mapping[str, int] = {"cloudflare_queues": 4}
"""Systems that end a message after its last delivery and tell nobody, and how often they deliver it if the limit is not known."""

BLOCKS_GROUPS = frozenset({"aws_sqs"})
"""Systems that deliver nothing of a group behind a message that waits or is in flight. ActiveMQ does, up to its prefetch."""

NEVER = np.iinfo(np.int64).max // 4
"""Later than any time: the end of a window that only an acknowledgement ends."""


class Depth(NamedTuple):
    """One count by the broker: messages by state at a time (epoch milliseconds)."""

    at: int
    visible: int
    in_flight: int
    delayed: int
    """-1: not reported."""

    @property
    def unsettled(self) -> int:
        """All messages the broker counted."""
        # Read some dozen times for each queue that is judged.
        return self.visible + self.in_flight + (self.delayed if self.delayed > 0 else 0)


class Refusals(NamedTuple):
    """How often the settlement of a message was refused because its window had ended, and the last time (epoch milliseconds)."""

    times: int
    last_at: int


class Reported(NamedTuple):
    """The value that an attribute of a queue was reported to have, and when (epoch milliseconds)."""

    at: int
    value: Any


class TimeoutChange(NamedTuple):
    """When the visibility timeout of a queue changed, and what it was before (epoch milliseconds, 0: never)."""

    since: int = 0
    """The first report of the timeout of now, since the latest of another one."""
    before_at: int = 0
    """The latest report of another one…"""
    before_ms: int = 0
    """…and that one; -1: none, the value reported before was withdrawn."""

    @property
    def until(self) -> int:
        """Receives before this time have the timeout of before; 0: none has."""
        return self.since if self.before_at and self.before_ms >= 0 else 0


def is_later(reported: Reported, known: Reported) -> bool:
    """Whether a report replaces a known one.

    Of two values reported at the same time, the one whose text sorts last is kept, so that no order of arrival matters.
    """
    return reported.at > known.at or (reported.at == known.at and repr(reported.value) >= repr(known.value))


def keep_latest(known: dict[str, Reported], attributes: Mapping[str, Reported]) -> None:
    """Add to the known attributes of a queue those of `attributes` that were reported later."""
    for name, reported in attributes.items():
        before = known.get(name)
        if before is None or is_later(reported, before):
            known[name] = reported


def without_excess(known: dict[str, Reported]) -> dict[str, Reported]:
    """Return the attributes of a queue to keep: those that are read, and the latest of the others."""
    if len(known) <= MOST_ATTRIBUTES:
        return known
    kept = sorted(known, key=lambda name: (name in READ_ATTRIBUTES, known[name].at, name))[-MOST_ATTRIBUTES:]
    return {name: known[name] for name in kept}


@dataclass(slots=True)
class QueueRecord:
    """Everything one shard knows about one queue, as plain values. Times are epoch milliseconds, 0 for never."""

    name: QueueName
    attributes: dict[str, Reported] = field(default_factory=dict)
    totals: list[int] = field(default_factory=lambda: [0] * len(TOTALS))
    depths: list[Depth] = field(default_factory=list)
    """Recent counts by the broker, oldest first."""
    durations: dict[int, int] = field(default_factory=dict)
    """Key of `duration_buckets` -> deleted messages."""
    empty_from: int = 0
    """Since when the broker's counts have been empty, as of the oldest of `depths` (0: they were not)."""
    ordered: bool = False
    dead_letter: bool = False
    dead_letter_reported: bool = False
    dead_letter_apparent: bool = False
    redrive_target: bool = False
    messages_seen: bool = False
    purged_at: int = 0
    last_event_at: int = 0
    last_received_at: int = 0
    last_settled_at: int = 0
    last_state_at: int = 0
    skew_ms: int = 0
    youngest_sent_at: int = 0
    """When the youngest message received so far was sent…"""
    youngest_received_at: int = 0
    """…and when it was last received."""
    left_out_at: int = 0
    """The latest event of a message that is not tracked, because as many are tracked as the limit allows."""
    timeout: TimeoutChange = field(default_factory=TimeoutChange)
    """When its visibility timeout changed."""


def latest_value(attributes: Mapping[str, Reported], name: Attribute) -> Any:
    """Return the latest value of an attribute, or None when it was never reported."""
    found = attributes.get(name)
    return None if found is None else found.value


def latest_number(attributes: Mapping[str, Reported], name: Attribute) -> float | None:
    """Return the latest value of a numeric attribute."""
    found = attributes.get(name)
    return None if found is None else as_number(found.value)


def as_number(value: Any) -> float | None:
    """Return a reported value if it is a number."""
    return value if isinstance(value, (int, float)) and value is not True and value is not False else None


class Described(Protocol):
    """Anything that carries a queue's attributes: a shard's record, or the merged summary."""

    @property
    def name(self) -> QueueName: ...

    def attribute(self, name: Attribute) -> Any: ...

    def number(self, name: Attribute) -> float | None: ...


def visibility_ms(record: Described, settings: Settings) -> int:
    """Return the visibility timeout of now. NEVER where the system has no such window."""
    known = known_visibility_s(record, settings)
    if known is None:
        known = DEFAULT_VISIBILITY_S.get(record.name.system)
    return NEVER if known is None else int(known * 1000)


def known_visibility_s(record: Described, settings: Settings) -> float | None:
    """Return the visibility timeout that is reported or configured; None where the system's default can only be assumed."""
    return _known(record, settings, "visibility_timeout_s")


def known_retention_s(record: Described, settings: Settings) -> float | None:
    """Return the retention that is reported or configured; None where the system's default can only be assumed."""
    return _known(record, settings, "retention_s")


def _known(record: Described, settings: Settings, name: Literal["visibility_timeout_s", "retention_s"]) -> float | None:
    """Return an attribute that is reported, or else configured for the queue; None where it is neither."""
    reported = record.number(name)
    if reported is not None:
        return reported
    rule = settings.rule(record.name)
    configured: float | None = getattr(rule, name, None)
    return configured


def retention_ms(record: Described, settings: Settings) -> int:
    """Return how long a message lives. NEVER where the system keeps messages until they are settled."""
    known = known_retention_s(record, settings)
    if known is None:
        known = DEFAULT_RETENTION_S.get(record.name.system)
    return NEVER if known is None else int(known * 1000)


def max_receive_count(record: Described, settings: Settings) -> int | None:
    """Return the deliveries a message gets before it is dead-lettered, or None when not known."""
    reported = record.number("max_receive_count")
    if reported is None:
        rule = settings.rule(record.name)
        reported = rule.max_receive_count if rule else None
    return None if reported is None or reported <= 0 else int(reported)


def last_delivery(queue: Described, settings: Settings) -> int:
    """Return after which delivery the platform at once moves or deletes a message that fails; 0 where it waits for a receive."""
    default = DEFAULT_DELIVERIES.get(queue.name.system, 0)
    return default and (max_receive_count(queue, settings) or default)


def dead_letter_queue(record: Described, settings: Settings) -> str | None:
    """Return the name of the queue's dead-letter queue, or None when it has none or none is known.

    The pattern of an entry of the settings may match that queue too: none is its own dead-letter queue.
    """
    reported = record.attribute("dead_letter_queue")
    if not isinstance(reported, str):
        rule = settings.rule(record.name)
        reported = rule.dead_letter_queue if rule else None
    return reported if reported and reported != record.name.queue else None


def reports_no_dead_letter_queue(attributes: Mapping[str, Reported]) -> bool:
    """Whether a queue is reported to have no dead-letter queue, by an empty name or by `null` where a name would be."""
    has_one = latest_value(attributes, "has_dead_letter_queue")
    named = attributes.get("dead_letter_queue")
    return has_one is False or (named is not None and (named.value == "" or (named.value is None and has_one is not True)))


def poison_receives(record: Described, settings: Settings) -> int:
    """Return the receive count that makes a message a poison suspect: min(configured, max(2, max_receive_count))."""
    configured = settings.thresholds(record.name).poison_receives
    limit = max_receive_count(record, settings)
    return configured if limit is None else min(configured, max(2, limit))


def group_stuck_ms(thresholds: Thresholds, window_ms: int) -> int:
    """Return how long nothing may be settled in a group, with messages behind its head, until it counts as stuck.

    `window_ms`: the queue's visibility timeout, NEVER where it has none.
    """
    by_window = 0 if window_ms >= NEVER else thresholds.group_stuck_visibility_factor * window_ms
    return int(min(max(by_window, thresholds.group_stuck_min_s * 1000), NEVER))
