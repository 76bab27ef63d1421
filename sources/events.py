"""The vocabulary of telemetry events: types, fields, and which fields each type requires."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, get_args

# Explicit re-exports: writers and readers of events import the vocabulary from one place.
from queuewatch.events import WIRE_VERSION as WIRE_VERSION
from queuewatch.events import Event as Event
from queuewatch.events import encode_ndjson as encode_ndjson

_KEPT_CHARS: Final = 2_000
"""How much of what is no event is kept for inspection."""


def heartbeat(system: str, collector: str, at_ms: int) -> Event:
    """Build the event that says that a collector is alive; `at_ms` is epoch milliseconds."""
    return {"v": WIRE_VERSION, "type": "heartbeat", "at": at_ms, "system": system, "consumer": collector}


def unreadable(content: object) -> Event:
    """Build an event that every reader refuses, of something that is no event.

    So it is counted and kept with the other invalid events, instead of being lost or coming again for ever. Of long content only
    the beginning is kept.
    """
    return {"unreadable": str(content)[:_KEPT_CHARS]}


def is_telemetry(event: Event) -> bool:
    """Return whether something read from a queue was meant as an event, valid or not."""
    return event.get("type") in EVENT_TYPES and "at" in event


Emit = Callable[[Sequence[Event]], None]
"""The function to which a collector or hook passes its events."""

EventType = Literal[
    "sent",
    "received",
    "extended",
    "released",
    "deleted",
    "dead_lettered",
    "redriven",
    "expired",
    "dropped",
    "outlived",
    "purged",
    "batch",
    "queue_state",
    "consumer_state",
    "heartbeat",
]
EVENT_TYPES: Final[tuple[str, ...]] = get_args(EventType)

MESSAGE_TYPES: Final = frozenset(EVENT_TYPES) - {"purged", "batch", "queue_state", "consumer_state", "heartbeat"}
"""The types about one message, which therefore carry `message_id`."""

REQUIRED: Final[Mapping[str, frozenset[str]]] = {
    "type": frozenset(EVENT_TYPES),
    "at": frozenset(EVENT_TYPES),
    # A heartbeat is about a collector, which may watch several systems.
    "system": frozenset(EVENT_TYPES) - {"heartbeat"},
    "queue": MESSAGE_TYPES | {"purged", "batch", "queue_state"},
    "message_id": MESSAGE_TYPES,
    "consumer": frozenset(("heartbeat", "consumer_state")),
    "attributes": frozenset(("queue_state", "consumer_state")),
}
"""Field → the event types that require it."""

EARLIEST_MS: Final = 978_307_200_000  # 2001-01-01; a time given in seconds is far below it
LATEST_MS: Final = 4_102_444_800_000  # 2100-01-01; a time given in microseconds is far above it
MAX_NAME_CHARS: Final = 512
MAX_REASON_CHARS: Final = 512
MAX_ATTRIBUTES_BYTES: Final = 65_536
