"""Where events that could not be read are kept: a bounded file, or a topic. The same batch twice leaves one copy."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from streaming.core.packet import Quarantined

_ANSWER_WITHIN_S = 30.0


class Quarantine(Protocol):
    """Keeps invalid events for inspection."""

    def keep(self, invalid: Sequence[Quarantined], batch_id: int) -> None:
        """Keep the invalid events of one batch durably. Raises `OSError` when they cannot be."""

    def close(self) -> None:
        """Let go of files and connections."""


class QuarantineFile:
    """NDJSON in one file, and in `<file>.1` what filled it before: together at most about `max_bytes`.

    Each line names its batch and the checkpoint (`stream`); the lines of a batch that runs again are cut off first.
    """

    def __init__(self, path: Path, stream: str, *, max_bytes: int) -> None:
        self._path = path
        self._stream = stream
        self._half = max(1, max_bytes // 2)
        self._batch_id: int | None = None
        """The batch that wrote last; None until the file has been looked at."""
        self._batch_begins = 0

    def keep(self, invalid: Sequence[Quarantined], batch_id: int) -> None:
        """Append one line per event and fsync."""
        if self._batch_id is None:
            self._find_last_batch()
        if self._batch_id is not None and self._batch_id >= batch_id:
            self._cut()
        if not invalid:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lines = self._lines(invalid, batch_id)
        if self._size() and self._size() + len(lines) > self._half:
            self._path.replace(self._path.with_name(self._path.name + ".1"))
        begins = self._size()
        with self._path.open("ab") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        self._batch_id, self._batch_begins = batch_id, begins

    def close(self) -> None:
        """Nothing stays open between batches."""

    def _lines(self, invalid: Sequence[Quarantined], batch_id: int) -> bytes:
        """As many whole lines as fit one file."""
        lines = bytearray()
        for event in invalid:
            line = json.dumps(_line(event, batch_id, self._stream)).encode() + b"\n"
            if len(lines) + len(line) > self._half:
                break
            lines += line
        return bytes(lines)

    def _find_last_batch(self) -> None:
        """Where the lines of the latest batch of this checkpoint begin, and the end of what is whole."""
        self._batch_id, self._batch_begins = -1, 0
        if not self._size():
            return
        at = 0
        with self._path.open("rb") as file:
            for line in file:
                found = _batch_of(line, self._stream)
                if found is not None and found != self._batch_id:
                    self._batch_id, self._batch_begins = found, at
                if not line.endswith(b"\n"):
                    break
                at += len(line)
        if at < self._size():
            self._truncate(at)

    def _cut(self) -> None:
        self._truncate(self._batch_begins)
        self._batch_id = -1

    def _truncate(self, size: int) -> None:
        if size < self._size():
            os.truncate(self._path, size)

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0


class QuarantineTopic:
    """One record per event; the key tells copies apart should a batch run twice. `producer` is kafka-python's."""

    def __init__(self, producer: Any, topic: str, stream: str) -> None:
        self._producer = producer
        self._topic = topic
        self._stream = stream

    def keep(self, invalid: Sequence[Quarantined], batch_id: int) -> None:
        """Send all and wait for the acknowledgements."""
        try:
            sent = [
                self._producer.send(
                    self._topic,
                    key=f"{self._stream}/{batch_id}/{index}".encode(),
                    value=json.dumps(_line(event, batch_id, self._stream)).encode(),
                )
                for index, event in enumerate(invalid)
            ]
            for record in sent:
                record.get(timeout=_ANSWER_WITHIN_S)
        except Exception as error:  # kafka-python's errors have no common base that is an OSError
            raise OSError(f"the quarantine topic {self._topic} does not take records: {error}") from error

    def close(self) -> None:
        """Close the producer."""
        self._producer.close()


def _line(event: Quarantined, batch_id: int, stream: str) -> dict[str, Any]:
    try:
        raw = {"raw": event.raw.decode("utf-8")}
    except UnicodeDecodeError:
        raw = {"raw_base64": base64.b64encode(event.raw).decode("ascii")}
    place = {"origin": event.origin, "line": event.line}
    return {"batch_id": batch_id, "stream": stream, "reason": event.reason, "detail": event.detail, **place, **raw}


def _batch_of(line: bytes, stream: str) -> int | None:
    try:
        body = json.loads(line)
        return int(body["batch_id"]) if body["stream"] == stream else None
    except (ValueError, KeyError, TypeError):
        return None
