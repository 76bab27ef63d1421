"""An event in the wire format, as this library writes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

Event = dict[str, Any]
"""One telemetry event in the wire format: integer epoch milliseconds, absent fields left out."""

Unbuilt = tuple[Any, ...]
"""A function and its arguments, which make an event: in the sender's thread, as the application's has other things to do.

What it holds is its own: nothing that the application may change afterwards, and no message body.
"""

WIRE_VERSION: Final = 1


def built(offered: Event | Unbuilt) -> Event:
    """The event itself."""
    if isinstance(offered, dict):
        return offered
    build: Callable[..., Event] = offered[0]
    return build(*offered[1:])


def encode_ndjson(events: Iterable[Mapping[str, Any]]) -> bytes:
    """Encode events as newline-delimited JSON, UTF-8, one object per line, a newline after each.

    Raises `ValueError` or `TypeError` for a value JSON cannot carry.
    """
    lines = [json.dumps(event, ensure_ascii=False, separators=(",", ":"), allow_nan=False) for event in events]
    lines.append("")
    return "\n".join(lines).encode("utf-8")
