"""Senders that write events into a spool folder at a steady rate, and know how many."""

from __future__ import annotations

import json
import threading
import time
import uuid
from pathlib import Path

_EVERY_S = 0.5


class Load:
    """A thread that writes a file of `sent` events twice a second; every tenth file also moves one message towards poison."""

    def __init__(self, spool: Path, events_per_s: int, *, deletes: bool = False) -> None:
        """With `deletes` half of the events delete what the file before sent."""
        self.events = 0
        """Written so far."""
        self._spool = spool
        self._each = int(events_per_s * _EVERY_S)
        self._deletes = deletes
        self._before: list[str] = []
        self._over = threading.Event()
        spool.mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """No more; how many there were."""
        self._over.set()
        self._thread.join()
        return self.events

    def _run(self) -> None:
        number = 0
        begin_s = time.monotonic()
        while not self._over.wait(max(0.0, begin_s + number * _EVERY_S - time.monotonic())):
            number += 1
            self._write(number)

    def _write(self, number: int) -> None:
        at = time.time_ns() // 1_000_000
        common = {"v": 1, "at": at, "system": "aws_sqs", "queue": "orders"}
        lines = [
            json.dumps({**common, "type": "sent", "message_id": f"{number}-{n}", "sent_at": at}) for n in range(self._each - 1)
        ]
        poison = {**common, "type": "received", "message_id": f"bad-{number // 40}", "queue": "work", "sent_at": at - 60_000}
        lines.append(json.dumps({**poison, "receive_count": number % 40 // 10 + 1, "invisible_until": at + 5_000}))
        name = f"{at}-{uuid.uuid4().hex}.ndjson"
        part = self._spool / f".{name}"
        part.write_text("\n".join(lines) + "\n")
        part.rename(self._spool / name)
        self.events += len(lines)
