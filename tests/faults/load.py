"""Senders that produce events at a steady rate and count them."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_EVERY_S = 0.5


Put = Callable[[Sequence[dict[str, Any]]], None]
"""Sends some events; when it returns, they have arrived."""


def into_folder(spool: Path) -> Put:
    """Return a function that writes each call's events as one file of a spool folder."""
    spool.mkdir(parents=True, exist_ok=True)

    def put(events: Sequence[dict[str, Any]]) -> None:
        name = f"{time.time_ns() // 1_000_000}-{uuid.uuid4().hex}.ndjson"
        part = spool / f".{name}"
        part.write_text("".join(json.dumps(event) + "\n" for event in events))
        part.rename(spool / name)

    return put


class Load:
    """A thread that sends events twice a second."""

    def __init__(self, put: Put, events_per_s: int, *, deletes: bool = False) -> None:
        """Start to send; `deletes` is passed to `events_of`."""
        self.events = 0
        """The number of events sent so far."""
        self.messages = 0
        """The number of those that are messages entering a queue."""
        self._put = put
        self._each = int(events_per_s * _EVERY_S)
        self._deletes = deletes
        self._over = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Stop sending and return the number of events. Raises the error that ended the sending, if there was one."""
        self._over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self.events

    def _run(self) -> None:
        number = 0
        begin_s = time.monotonic()
        try:
            while not self._over.wait(max(0.0, begin_s + number * _EVERY_S - time.monotonic())):
                number += 1
                self._send(number)
        except Exception as error:
            # What was sent is not known any more, so nothing can be said about what was lost.
            self._error = error

    def _send(self, number: int) -> None:
        events = events_of(number, time.time_ns() // 1_000_000, self._each, deletes=self._deletes)
        self._put(events)
        self.events += len(events)
        self.messages += sum(event["type"] == "sent" for event in events)


def events_of(number: int, at: int, count: int, *, deletes: bool) -> list[dict[str, Any]]:
    """Return the events of the `number`th step: `count` sends, or with `deletes` half of them deletions of earlier messages.

    Every tenth step also receives one message again, which makes it poison in time. No event is sent twice, so each one counts
    as accepted exactly once.
    """
    common = {"v": 1, "at": at, "system": "aws_sqs", "queue": "orders"}
    sends = range(count // 2 if deletes else count)
    events: list[dict[str, Any]] = []
    if deletes and number > 1:
        events += [{**common, "type": "deleted", "message_id": f"{number - 1}-{n}"} for n in sends]
    events += [{**common, "type": "sent", "message_id": f"{number}-{n}", "sent_at": at} for n in sends]
    if number % 10 == 0:
        receive = {"receive_count": number % 40 // 10 + 1, "sent_at": at - 60_000, "invisible_until": at + 5_000}
        events.append({**common, **receive, "type": "received", "message_id": f"bad-{number // 40}", "queue": "work"})
    return events
