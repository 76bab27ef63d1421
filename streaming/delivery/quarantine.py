"""Name events that could not be used: all that are kept for inspection in the quarantine, and the first ones in the log."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import structlog

from sinks.explain.formatting import printable
from sinks.records import Record
from streaming.core.events.packet import Quarantined

_log = structlog.get_logger(__name__)
LOGGED_EVERY_S = 60.0


class InvalidEventLog:
    """Names invalid events in the log, one a minute for each reason: without a quarantine there are only counters of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds."""
        self._clock = clock
        self._next_at: dict[str, float] = {}

    def say(self, invalid: Sequence[Quarantined], batch_id: int) -> None:
        """Log the first of a batch's invalid events for each reason that was not logged in the last minute."""
        now = self._clock()
        for event in invalid:
            if now < self._next_at.get(event.reason, now):
                continue
            self._next_at[event.reason] = now + LOGGED_EVERY_S
            place = {name: value for name, value in (("origin", event.origin), ("line", event.line)) if value}
            _log.warning("invalid_event", reason=event.reason, detail=printable(event.detail), batch_id=batch_id, **place)


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
