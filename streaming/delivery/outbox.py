"""The outbox: records waiting for a destination, kept in the checkpoint by batch, in order and bounded."""

from __future__ import annotations

import json
import re
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from sinks.records import Record
from streaming.folder import Folder

FOLDER: Final = "outbox"
"""The folder of the checkpoint with one outbox for each destination."""
OUTBOX_VERSION: Final = 1
"""The format version of an entry."""
MOST_RECORDS: Final = 100_000
"""The most records kept for a destination that is unavailable; beyond that the oldest batches are dropped."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""The most bytes kept for such a destination, compressed."""

_NAME = re.compile(r"(-?\d{11,12})-(\d+)\.out")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Entry:
    """What waits of one batch. A batch that is put again has another one, even if it is equal."""

    records: int
    size: int


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
        self._changing = threading.Lock()
        """Held while a file and its entry change together; `_lock` only while entries are looked up, never while a disk works."""
        self._waiting = {batch_id: _Entry(n, len(folder.read(_name(batch_id, n)) or b"")) for batch_id, n in _entries(folder)}
        self._taken: tuple[int, _Entry] | None = None
        """What `oldest` returned last."""
        self.given_up = 0
        """Records dropped since the process started because the outbox was full or an entry was unreadable."""

    @property
    def records(self) -> int:
        """The number of waiting records."""
        with self._lock:
            return sum(entry.records for entry in self._waiting.values())

    def put(self, batch_id: int, records: Sequence[Record]) -> None:
        """Store the records of a batch durably. Entries that a rolled-back run left under this id or a later one are removed."""
        content = zlib.compress(json.dumps({"version": OUTBOX_VERSION, "records": records}).encode(), 1)
        with self._changing:
            with self._lock:
                undone = [(known, entry) for known, entry in self._waiting.items() if known >= batch_id]
            # First: a crash after the write would leave two files of one batch, and one of them for a later start.
            for known, entry in undone:
                if (known, entry.records) != (batch_id, len(records)):
                    self._delete(known, entry)
            self._folder.write(_name(batch_id, len(records)), content)
            with self._lock:
                self._waiting[batch_id] = _Entry(len(records), len(content))
        self._keep_within_bounds()

    def oldest(self) -> tuple[int, list[Record]] | None:
        """Return the next batch to deliver; None when none waits. An unreadable entry is dropped and logged as an error."""
        while True:
            with self._lock:
                first = next(iter(self._waiting.items()), None)
            if first is None:
                return None
            batch_id, entry = first
            try:
                records = _records(self._folder.read(_name(batch_id, entry.records)))
            except ValueError as error:
                self._give_up(batch_id, entry, str(error))
            else:
                self._taken = first
                return batch_id, records

    def delivered(self) -> None:
        """Remove what `oldest` returned, unless the batch was put again in the meantime."""
        if self._taken is not None:
            self._remove(*self._taken)

    def _keep_within_bounds(self) -> None:
        while True:
            with self._lock:
                entries = self._waiting.values()
                many = sum(e.records for e in entries) > self._most_records or sum(e.size for e in entries) > self._most_bytes
                # The thread that takes may have emptied it since.
                if not many or len(self._waiting) <= 1:
                    return
                first = next(iter(self._waiting.items()))
            self._give_up(*first, "it has been away for too long")

    def _give_up(self, batch_id: int, entry: _Entry, why: str) -> None:
        if self._remove(batch_id, entry):
            n = entry.records
            self.given_up += n
            _log.error("undelivered_records_lost", destination=self._destination, batch_id=batch_id, records=n, reason=why)

    def _remove(self, batch_id: int, entry: _Entry) -> bool:
        """Remove an entry and its file; False when it is gone, or the batch was put again: then the file may be the new one."""
        with self._changing:
            with self._lock:
                if self._waiting.get(batch_id) is not entry:
                    return False
            self._delete(batch_id, entry)
            return True

    def _delete(self, batch_id: int, entry: _Entry) -> None:
        self._folder.delete(_name(batch_id, entry.records))
        with self._lock:
            del self._waiting[batch_id]


def carry_over(source: Folder, target: Folder, last_batch: int) -> None:
    """Copy what waits of the batches up to `last_batch` to the outbox of a new checkpoint, which counts its batches from zero.

    There the copies have negative batch ids: they are delivered first, and no batch of the new checkpoint replaces them. Batch
    -1 is `last_batch`, so that a destination knows a batch that it has stored already.
    """
    for batch_id, records in _entries(source):
        content = source.read(_name(batch_id, records)) if batch_id <= last_batch and records else None
        if content is not None:
            target.write(_name(batch_id - last_batch - 1, records), content)


def waiting_records(folder: Folder) -> int:
    """Return how many records wait in an outbox, without opening it."""
    return sum(records for _, records in _entries(folder))


def _entries(folder: Folder) -> list[tuple[int, int]]:
    """Return the batches of which something waits, in order, and the number of their records."""
    return sorted((int(match[1]), int(match[2])) for name in folder.names() if (match := _NAME.fullmatch(name)))


def _name(batch_id: int, records: int) -> str:
    return f"{batch_id:012d}-{records}.out"


def _records(content: bytes | None) -> list[Record]:
    """Return the records of an entry. Raises `ValueError` when it cannot be read."""
    if content is None:
        raise ValueError("its file has been deleted")
    try:
        body = json.loads(zlib.decompress(content))
        version = body["version"]
        if version != OUTBOX_VERSION:
            raise ValueError(f"it has version {version}, this release reads {OUTBOX_VERSION}")
        return [_record(*pair) for pair in body["records"]]
    except (zlib.error, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise ValueError(f"its file cannot be read: {error!r}") from error


def _record(key: str, line: str) -> Record:
    if not (isinstance(key, str) and isinstance(line, str)):
        raise TypeError(f"a record is two strings, not {type(key).__name__} and {type(line).__name__}")
    return Record(key, line)
