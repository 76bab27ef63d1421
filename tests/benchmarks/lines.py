"""Records of newline-delimited JSON from single events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

EVENTS_PER_RECORD: Final = 500


def message_id(queue: int, number: int) -> str:
    """Return the id of a queue's n-th message, in the form of a UUID."""
    return f"{queue:08x}-0000-4000-8000-{number:012x}"


def json_records(events: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Return records of up to EVENTS_PER_RECORD events."""
    lines = [json.dumps(event, separators=(",", ":")).encode() for event in events]
    return [b"\n".join(lines[i : i + EVENTS_PER_RECORD]) for i in range(0, len(lines), EVENTS_PER_RECORD)]
