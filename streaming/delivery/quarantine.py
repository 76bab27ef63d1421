"""Format unreadable events for the quarantine, where they are kept for inspection."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

from sinks.records import Record
from streaming.core.events.packet import Quarantined


def quarantine_records(invalid: Iterable[Quarantined], batch_id: int, stream: str) -> list[Record]:
    """Return one line per event, with its batch and the checkpoint (`stream`)."""
    return [
        Record(f"{stream}/{batch_id}/{index}", json.dumps(_line(event, batch_id, stream))) for index, event in enumerate(invalid)
    ]


def _line(event: Quarantined, batch_id: int, stream: str) -> dict[str, Any]:
    try:
        raw = {"raw": event.raw.decode("utf-8")}
    except UnicodeDecodeError:
        raw = {"raw_base64": base64.b64encode(event.raw).decode("ascii")}
    place = {"origin": event.origin, "line": event.line}
    return {"batch_id": batch_id, "stream": stream, "reason": event.reason, "detail": event.detail, **place, **raw}
