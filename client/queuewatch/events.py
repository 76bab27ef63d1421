"""Events in the wire format, as written by this library."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

Event = dict[str, Any]
"""One telemetry event in the wire format: integer epoch milliseconds, absent fields left out."""

Unbuilt = tuple[Any, ...]
"""A function and its arguments. The sender's thread calls it to create the event, which saves time in the application's thread.

The arguments are copies: nothing that the application may change afterwards, and no message body.
"""

WIRE_VERSION: Final = 1


def built(offered: Event | Unbuilt) -> Event:
    """Create the event."""
    if isinstance(offered, dict):
        return offered
    build: Callable[..., Event] = offered[0]
    return build(*offered[1:])


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def encode_line(event: Mapping[str, Any]) -> bytes:
    """Encode an event as one line of newline-delimited JSON, UTF-8.

    Raises `ValueError` or `TypeError` for a value JSON cannot carry.
    """
    return f"{_ENCODER.encode(event)}\n".encode()


def encode_ndjson(events: Iterable[Mapping[str, Any]]) -> bytes:
    """Encode events as newline-delimited JSON, as `encode_line` does."""
    return b"".join([encode_line(event) for event in events])
