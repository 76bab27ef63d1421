"""The signal log: every change of every signal, once, in a file or a Kafka topic.

A batch may run twice after a crash. The file then holds one copy of its lines; a topic may hold two with
the same key, the announcement, which a reader or the topic's compaction takes for one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from sinks.lines import signal_line, to_json
from streaming.judge.signals import SignalChange


class SignalLogError(Exception):
    """The log could not be written; the message names it and the fix."""


class SignalLog(Protocol):
    """Where changes of signals are kept."""

    def append(self, changes: Sequence[SignalChange], batch_id: int) -> None:
        """Keep `changes` durably before returning. The same batch again leaves what one run leaves."""

    def close(self) -> None:
        """Let go of connections; nothing is waiting to be written."""


class SignalLogFile:
    """NDJSON lines of `signal_line` in one file.

    Beside it stands `<file>.batch`: the last batch and where its lines begin. It is written before the
    lines, so whatever a crash leaves behind that point is cut off when the batch runs again. `stream` names
    the checkpoint (the query's id): a new one counts its batches from zero and must not cut off the old
    one's lines.

    A file of `max_bytes` or more is moved to `<file>.1` (and that to `.2`, up to `keep_files`) before the
    next batch that has something to say. Moving it away from outside (logrotate) is fine too.
    """

    def __init__(self, path: Path, stream: str = "", *, max_bytes: int | None = None, keep_files: int = 5) -> None:
        self._path = path
        self._mark = path.with_name(path.name + ".batch")
        self._stream = stream
        self._max_bytes = max_bytes
        self._keep_files = keep_files
        path.parent.mkdir(parents=True, exist_ok=True)

    def append(self, changes: Sequence[SignalChange], batch_id: int) -> None:
        """Append the lines of one batch and fsync; raises SignalLogError when the disk does not take them."""
        lines = "".join(to_json(signal_line(change)) + "\n" for change in changes).encode()
        try:
            self._begin(batch_id, bool(lines))
            if lines:
                with self._path.open("ab") as log:
                    log.write(lines)
                    log.flush()
                    os.fsync(log.fileno())
        except OSError as error:
            raise SignalLogError(
                f"the signal log {self._path} cannot be written: {error.strerror}; "
                "free space or fix its permissions, or set another signal_log.path"
            ) from error

    def position(self) -> int:
        """Where the next line will begin, in bytes."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def truncate(self, position: int) -> None:
        """Forget everything from `position` (bytes) on; a shorter file stays as it is."""
        if position < self.position():
            with self._path.open("rb+") as log:
                log.truncate(position)
                os.fsync(log.fileno())

    def close(self) -> None:
        """Nothing stays open between batches."""

    def _begin(self, batch_id: int, has_lines: bool) -> None:
        mark = self._read_mark()
        if mark.get("stream") == self._stream and mark.get("batch_id") == batch_id:
            self.truncate(int(mark["position"]))
            return
        if not has_lines:
            return
        self._cut_torn_line()
        if self._max_bytes is not None and self.position() >= self._max_bytes:
            self._rotate()
        mark = {"stream": self._stream, "batch_id": batch_id, "position": self.position()}
        part = self._mark.with_name(self._mark.name + ".part")
        with part.open("w") as new:
            json.dump(mark, new)
            new.flush()
            os.fsync(new.fileno())
        os.replace(part, self._mark)
        _fsync_folder(self._path.parent)

    def _read_mark(self) -> dict[str, Any]:
        try:
            mark = json.loads(self._mark.read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        return mark if isinstance(mark, dict) else {}

    def _rotate(self) -> None:
        kept = [
            self._path,
            *(self._path.with_name(f"{self._path.name}.{n}") for n in range(1, self._keep_files + 1)),
        ]
        for newer, older in reversed(list(pairwise(kept))):
            if newer.exists():
                os.replace(newer, older)

    def _cut_torn_line(self) -> None:
        """A crash whose batch never ran again (its checkpoint was deleted) may leave half a line."""
        size = self.position()
        if size == 0:
            return
        with self._path.open("rb") as log:
            tail = b""
            start = size
            while start > 0 and b"\n" not in tail:
                start = max(0, start - 65_536)
                log.seek(start)
                tail = log.read(size - start)
        whole = start + tail.rfind(b"\n") + 1
        if whole != size:
            self.truncate(whole)


class SignalLogTopic:
    """Lines of `signal_line` in a Kafka topic, keyed by the announcement.

    `producer` is a kafka-python KafkaProducer, best made by `signal_log_producer`. The same change twice
    has the same key and value: compaction keeps one, and so does a reader that remembers the keys it saw.
    """

    def __init__(self, producer: Any, topic: str, *, timeout_s: float = 30.0) -> None:
        self._producer = producer
        self._topic = topic
        self._timeout_s = timeout_s

    def append(self, changes: Sequence[SignalChange], batch_id: int) -> None:
        """Send the changes and wait until every one is acknowledged; else raises SignalLogError."""
        del batch_id  # A second run's records carry the first one's keys.
        try:
            sent = [
                self._producer.send(
                    self._topic,
                    key=change.announcement.encode(),
                    value=to_json(signal_line(change)).encode(),
                )
                for change in changes
            ]
            for record in sent:
                record.get(timeout=self._timeout_s)
        except Exception as error:
            raise SignalLogError(
                f"the signal log topic {self._topic!r} did not take {len(changes)} changes: {error}; "
                "check that the brokers answer, that the topic exists and that this user may write to it"
            ) from error

    def close(self) -> None:
        """Close the producer."""
        self._producer.close(timeout=self._timeout_s)


def signal_log_producer(connection: Mapping[str, Any]) -> Any:
    """A KafkaProducer that counts as sent only what all replicas hold.

    `connection` holds kafka-python's own settings, `bootstrap_servers` and those of the login.
    """
    from kafka import KafkaProducer

    durable = {
        "acks": "all",
        "enable_idempotence": True,
        "client_id": "queuewatch-signal-log",
        "linger_ms": 5,
    }
    return KafkaProducer(**{**durable, **connection})


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
