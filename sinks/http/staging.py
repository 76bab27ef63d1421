"""Durable storage of ingested bodies, before their acceptance is confirmed to the sender."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from streaming.folder import make_folder, sync_folder

BodyKind = Literal["ndjson", "json", "arrow"]
"""One JSON object per line, any other text, or an Arrow stream."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_STALE_PART_S = 3_600.0
_FAILED = "the spool failed; see the log"


class StageFullError(Exception):
    """There is no space; the message says where and what to do."""


class StageUnavailableError(Exception):
    """Writing failed for another reason; the message says which."""


class Stage(Protocol):
    """Stores bodies of events."""

    def put(self, body: bytes, kind: BodyKind) -> None:
        """Make `body` durable before returning. Called from several threads.

        Raises StageFullError or StageUnavailableError.
        """


@dataclass(eq=False)
class _PendingBody:
    body: bytes
    kind: BodyKind
    settled: bool = False
    error: Exception | None = None


class Spool:
    """Files in a folder: complete, fsynced and renamed to `*.ndjson` or `*.arrow` before `put` returns.

    Lines that arrive while a file is being synced share the next file, so many small senders create few files and share the wait
    for the disk. Unfinished files begin with a dot, which readers ignore; those left by a crash are removed an hour later.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_spooled_bytes: int | None = None,
        min_free_bytes: int = 256 * 1024 * 1024,
        max_file_bytes: int = 16 * 1024 * 1024,
    ) -> None:
        """`max_spooled_bytes` limits the bytes waiting in the folder; only useful if its reader removes files."""
        self._folder = folder
        self._max_spooled_bytes = max_spooled_bytes
        self._min_free_bytes = min_free_bytes
        self._max_file_bytes = max_file_bytes
        self._pending: list[_PendingBody] = []
        self._turn = threading.Condition()
        self._writing = False
        make_folder(folder)
        self._remove_stale_parts()

    def put(self, body: bytes, kind: BodyKind) -> None:
        """See Stage."""
        pending = _PendingBody(body, kind)
        with self._turn:
            self._pending.append(pending)
            self._turn.wait_for(lambda: pending.settled or not self._writing)
            # One of the waiting threads writes for all of them.
            batch: list[_PendingBody] = []
            if not pending.settled:
                batch, self._pending = self._pending, batch
                self._writing = bool(batch)
        if batch:
            try:
                self._write(batch)
            finally:
                with self._turn:
                    self._settle_unwritten(batch)
                    self._writing = False
                    self._turn.notify_all()
        if pending.error is not None:
            raise pending.error

    def _write(self, bodies: Sequence[_PendingBody]) -> None:
        for shared in self._shares(bodies):
            failure: Exception | None = StageUnavailableError(_FAILED)
            try:
                self._check_room()
                self._write_file(shared)
                failure = None
            except (StageFullError, StageUnavailableError) as error:
                failure = error
            finally:
                for pending in shared:
                    pending.error, pending.settled = failure, True

    def _settle_unwritten(self, bodies: Sequence[_PendingBody]) -> None:
        # An unforeseen error ends the writing early. The senders of the bodies after it must hear of it too.
        for pending in bodies:
            if not pending.settled:
                pending.error, pending.settled = StageUnavailableError(_FAILED), True

    def _shares(self, bodies: Sequence[_PendingBody]) -> Iterator[list[_PendingBody]]:
        """Return the bodies for the next file: lines of objects together up to the limit, any other alone."""
        yield from ([pending] for pending in bodies if pending.kind != "ndjson")
        share: list[_PendingBody] = []
        size = 0
        for pending in (t for t in bodies if t.kind == "ndjson"):
            if share and size + len(pending.body) > self._max_file_bytes:
                yield share
                share, size = [], 0
            share.append(pending)
            size += len(pending.body)
        if share:
            yield share

    def _write_file(self, bodies: Sequence[_PendingBody]) -> None:
        suffix = "arrow" if bodies[0].kind == "arrow" else "ndjson"
        name = f"{time.time_ns() // 1_000_000:013d}-{uuid.uuid4().hex}.{suffix}"
        part = self._folder / f".{name}.part"
        try:
            with part.open("xb") as file:
                for pending in bodies:
                    file.write(pending.body)
                    if pending.kind != "arrow" and not pending.body.endswith(b"\n"):
                        file.write(b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.rename(part, self._folder / name)
            sync_folder(self._folder)
        except OSError as error:
            with suppress(OSError):  # The disk that refused the file may refuse its removal as well.
                part.unlink(missing_ok=True)
            if error.errno in _FULL:
                raise StageFullError(
                    f"the spool folder {self._folder} is full ({error.strerror}); free space on its disk"
                ) from error
            raise StageUnavailableError(
                f"the spool folder {self._folder} cannot be written ({error.strerror}); "
                "check that it exists and that this user may write to it"
            ) from error

    def _check_room(self) -> None:
        try:
            free = shutil.disk_usage(self._folder).free
            waiting = self._waiting_bytes() if self._max_spooled_bytes is not None else 0
        except OSError as error:
            raise StageUnavailableError(
                f"the spool folder {self._folder} cannot be read ({error.strerror}); create it again"
            ) from error
        if free < self._min_free_bytes:
            raise StageFullError(
                f"the disk of the spool folder {self._folder} has {free >> 20} MiB left of at least "
                f"{self._min_free_bytes >> 20} that must stay free; free space on it"
            )
        if self._max_spooled_bytes is not None and waiting >= self._max_spooled_bytes:
            raise StageFullError(
                f"{waiting >> 20} MiB wait in the spool folder {self._folder}, {self._max_spooled_bytes >> 20} may; "
                "check that the job runs and reads it (source.spool.folder, after_reading)"
            )

    def _waiting_bytes(self) -> int:
        waiting = 0
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # The reader has just removed it.
                    if entry.name.endswith((".ndjson", ".arrow")) and entry.is_file():
                        waiting += entry.stat().st_size
        return waiting

    def _remove_stale_parts(self) -> None:
        for part in self._folder.glob(".*.part"):
            try:
                if time.time() - part.stat().st_mtime > _STALE_PART_S:
                    part.unlink()
            except OSError:
                continue  # Another process that shares the folder was quicker.
