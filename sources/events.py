"""The vocabulary of telemetry events: types, fields and who must carry what.

Standard library only: an instrumented application imports this module and must gain nothing else by it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, get_args

Event = dict[str, Any]
"""One telemetry event in the wire format: integer epoch milliseconds, absent fields left out."""

Emit = Callable[[Sequence[Event]], None]
"""Where a collector or a hook hands its events on."""

WIRE_VERSION: Final = 1

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
    "purged",
    "batch",
    "queue_state",
    "consumer_state",
    "heartbeat",
]
EVENT_TYPES: Final[tuple[str, ...]] = get_args(EventType)

MESSAGE_TYPES: Final = frozenset(
    (
        "sent",
        "received",
        "extended",
        "released",
        "deleted",
        "dead_lettered",
        "redriven",
        "expired",
        "dropped",
    )
)
"""The types that tell of one message and therefore carry `message_id`."""

REQUIRED: Final[Mapping[str, frozenset[str]]] = {
    "type": frozenset(EVENT_TYPES),
    "at": frozenset(EVENT_TYPES),
    # A heartbeat tells of a collector, which may watch several systems at once.
    "system": frozenset(EVENT_TYPES) - {"heartbeat"},
    "queue": MESSAGE_TYPES | {"purged", "batch", "queue_state"},
    "message_id": MESSAGE_TYPES,
    "consumer": frozenset(("heartbeat", "consumer_state")),
    "attributes": frozenset(("queue_state", "consumer_state")),
}
"""Field → the event types that are not valid without it."""

EARLIEST_MS: Final = 978_307_200_000  # 2001-01-01; a time given in seconds is far below it
LATEST_MS: Final = 4_102_444_800_000  # 2100-01-01; a time given in microseconds is far above it
MAX_NAME_CHARS: Final = 512
MAX_REASON_CHARS: Final = 512
MAX_ATTRIBUTES_BYTES: Final = 65_536


def encode_ndjson(events: Iterable[Mapping[str, Any]]) -> bytes:
    """Encode events as newline-delimited JSON, UTF-8, one object per line, a newline after each.

    Raises `ValueError` or `TypeError` for a value JSON cannot carry.
    """
    lines = [json.dumps(event, ensure_ascii=False, separators=(",", ":"), allow_nan=False) for event in events]
    lines.append("")
    return "\n".join(lines).encode("utf-8")
