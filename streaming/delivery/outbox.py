"""The outbox: records waiting for a destination, kept in the checkpoint by batch, in order and bounded."""

from __future__ import annotations

import json
import re
import threading
import zlib
from collections.abc import Sequence
from typing import Final

import structlog

from sinks.records import Record
from streaming.folder import Folder

OUTBOX_VERSION: Final = 1
"""The format version of an entry."""
MOST_RECORDS: Final = 100_000
"""The most records kept for a destination that is unavailable; beyond that the oldest batches are dropped."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""The most bytes kept for such a destination, compressed."""

_NAME = re.compile(r"(\d{12})-(\d+)\.out")
_log = structlog.get_logger(__name__)


class Outbox:
    """The batches of records waiting for one destination. Safe for one thread that puts and one that takes."""

    def __init__(
        self, folder: Folder, destination: str, *, most_records: int = MOST_RECORDS, most_bytes: int = MOST_BYTES
    ) -> None:
        self._folder = folder
        self._destination = destination
        self._most_records = most_records
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        found = [(int(match[1]), int(match[2])) for name in folder.names() if (match := _NAME.fullmatch(name))]
        self._waiting: dict[int, int] = dict(sorted(found))
        """Number of records by batch id."""
        self._bytes = {batch_id: len(folder.read(_name(batch_id, n)) or b"") for batch_id, n in self._waiting.items()}
        self.given_up = 0
        """Records dropped since the process started because the outbox was full or an entry was unreadable."""

    @property
    def records(self) -> int:
        """The number of waiting records."""
        with self._lock:
            return sum(self._waiting.values())

    def put(self, batch_id: int, records: Sequence[Record]) -> None:
        """Store the records of a batch durably. Entries that a rolled-back run left under this id or a later one are removed."""
        with self._lock:
            undone = [(known, n) for known, n in self._waiting.items() if known >= batch_id]
        content = zlib.compress(json.dumps({"version": OUTBOX_VERSION, "records": records}).encode(), 1)
        self._folder.write(_name(batch_id, len(records)), content)
        for known, n in undone:
            if (known, n) != (batch_id, len(records)):
                self._remove(known, n)
        with self._lock:
            self._waiting[batch_id] = len(records)
            self._bytes[batch_id] = len(content)
        self._keep_within_bounds()

    def oldest(self) -> tuple[int, list[Record]] | None:
        """Return the next batch to deliver; None when none waits. An unreadable entry is dropped and logged as an error."""
        while True:
            with self._lock:
                first = next(iter(self._waiting.items()), None)
            if first is None:
                return None
            batch_id, n = first
            try:
                return batch_id, _records(self._folder.read(_name(batch_id, n)))
            except ValueError as error:
                self._give_up(batch_id, n, str(error))

    def delivered(self, batch_id: int, records: Sequence[Record]) -> None:
        """Remove the delivered records of a batch, unless the batch was put again in the meantime."""
        with self._lock:
            n = self._waiting.get(batch_id)
        if n == len(records):
            self._remove(batch_id, n)

    def _keep_within_bounds(self) -> None:
        while True:
            with self._lock:
                many = sum(self._waiting.values()) > self._most_records or sum(self._bytes.values()) > self._most_bytes
                # The thread that takes may have emptied it since.
                if not many or len(self._waiting) <= 1:
                    return
                first = next(iter(self._waiting.items()))
            self._give_up(*first, "it has been away for too long")

    def _give_up(self, batch_id: int, n: int, why: str) -> None:
        self._remove(batch_id, n)
        self.given_up += n
        _log.error("undelivered_records_lost", destination=self._destination, batch_id=batch_id, records=n, reason=why)

    def _remove(self, batch_id: int, n: int) -> None:
        self._folder.delete(_name(batch_id, n))
        with self._lock:
            self._waiting.pop(batch_id, None)
            self._bytes.pop(batch_id, None)


def _name(batch_id: int, records: int) -> str:
    return f"{batch_id:012d}-{records}.out"


def _records(content: bytes | None) -> list[Record]:
    if content is None:
        raise ValueError("its file has been deleted")
    try:
        body = json.loads(zlib.decompress(content))
    except (zlib.error, ValueError) as error:
        raise ValueError(f"its file is damaged: {error}") from error
    if body["version"] != OUTBOX_VERSION:
        raise ValueError(f"its file has version {body['version']}, this release reads {OUTBOX_VERSION}")
    return [Record(key, line) for key, line in body["records"]]
