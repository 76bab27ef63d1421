"""Telemetry to a folder of NDJSON files; each gets its visible name only when it is complete."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import socket
import time
from io import FileIO
from pathlib import Path
from typing import Final

from queuewatch.transports.base import SendError, Transport

try:
    import fcntl
except ImportError:  # not on Windows: files of a crashed process stay hidden there
    _lock = None
else:
    _lock = fcntl.flock
    _EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB

_SUFFIX: Final = ".ndjson"
_OPEN_SUFFIX: Final = ".open"
_MEASURE_EVERY_S: Final = 10.0
_ADOPT_AFTER_S: Final = 5.0
"""Younger files may belong to a process that has created but not yet locked them."""
_ADOPT_EVERY_S: Final = 10.0
_sequence = itertools.count(1)
"""Counts the files of all transports of this process: two of them may open a file in one folder in the same millisecond."""


class SpoolTransport(Transport):
    """Appends to a hidden file and renames it to its final name when it is large or old enough.

    A reader that lists `*.ndjson` sees only complete, synced files. A file is renamed at `max_file_bytes` or `max_age_s`. A
    folder with more than `max_folder_bytes` accepts no more until its reader has removed some files. With `durable`, each
    payload is synced to disk before `send` returns. If a process dies, the next process on its host that sends to the folder
    renames the files that it left open, about ten seconds after its first send. If the folder or the open file is removed, both
    are created again, with the same content.
    """

    def __init__(
        self,
        folder: str,
        *,
        max_file_bytes: int = 8 << 20,
        max_age_s: float = 1.0,
        max_folder_bytes: int = 1 << 30,
        durable: bool = False,
    ) -> None:
        self.name = f"spool:{folder}"
        self.max_bytes = max_file_bytes
        self._folder = Path(folder)
        self._max_file_bytes = max_file_bytes
        self._max_age_s = max_age_s
        self._max_folder_bytes = max_folder_bytes
        self._durable = durable
        self._host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:64]
        self._reset()

    def _reset(self) -> None:
        self._file: FileIO | None = None
        self._path = self._folder
        self._size = 0
        self._opened_s = 0.0
        self._adopted_s = float("-inf")
        self._began = ""
        self._left_young = False
        self._folder_bytes = 0
        self._measured_s = float("-inf")

    def send(self, payload: bytes) -> None:
        try:
            if self._is_due():
                self._show()
            self._adopt_in_time()
            file = self._opened()
            self._check_room(len(payload))
            position = self._size
            try:
                _write(file, payload)
                if self._durable:
                    os.fsync(file.fileno())
            except OSError:
                # A partial line would corrupt the first line of the next payload.
                file.truncate(position)
                file.seek(position)
                raise
            self._size += len(payload)
            self._folder_bytes += len(payload)
        except OSError as error:
            raise SendError(f"{self.name}: {error.strerror or error}", retry=True) from error
        if self._is_due():
            # The payload is in the file: after an error, the caller would write it again. The next call shows the file, or fails.
            with contextlib.suppress(OSError):
                self._show()

    def flush(self) -> None:
        try:
            self._show()
            self._adopt_in_time()
        except OSError as error:
            raise SendError(f"{self.name}: {error.strerror or error}", retry=True) from error

    def due_s(self) -> float | None:
        waits_s = []
        if self._file is not None:
            waits_s.append(self._max_age_s - self._age_s())
        if self._left_young:
            waits_s.append(self._adopted_s + _ADOPT_EVERY_S - time.monotonic())
        return max(0.0, min(waits_s)) if waits_s else None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._show()

    def after_fork(self) -> None:
        file = self._file
        self._reset()
        if file is not None:
            # The file is unbuffered and both processes share its lock, so closing it here does not affect the parent.
            with contextlib.suppress(OSError):
                file.close()

    def _age_s(self) -> float:
        return time.monotonic() - self._opened_s

    def _is_due(self) -> bool:
        return self._file is not None and (self._size >= self._max_file_bytes or self._age_s() >= self._max_age_s)

    def _opened(self) -> FileIO:
        """Return the open file; if it no longer has its name, because somebody removed it or its folder, a new one."""
        former = self._file
        if former is not None and self._path.exists():
            return former
        content = b"" if former is None else _removed_content(former)
        self._path, file = self._create(content)
        self._file, self._size = file, len(content)
        if former is None:
            self._opened_s = time.monotonic()
        else:
            former.close()
        return file

    def _create(self, content: bytes) -> tuple[Path, FileIO]:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(self._folder)) from error
        stem = f"{_stamp()}-{self._host}-{os.getpid()}-{next(_sequence):06d}"
        path = self._folder / f".{stem}{_OPEN_SUFFIX}"
        file = path.open("x+b", buffering=0)
        if _lock is not None:
            with contextlib.suppress(OSError):  # some network file systems have no locks
                _lock(file, _EXCLUSIVE)
        try:
            _write(file, content)
            if self._durable:
                os.fsync(file.fileno())
        except OSError:
            file.close()
            path.unlink()
            raise
        if self._durable:
            self._sync_folder()
        return path, file

    def _show(self) -> None:
        """Sync the open file and rename it to its final name."""
        if self._file is None:
            return
        file = self._opened()
        os.fsync(file.fileno())
        if self._size:
            os.rename(self._path, _visible(self._path))
        else:
            self._path.unlink()
        self._file = None
        file.close()
        self._sync_folder()

    def _sync_folder(self) -> None:
        with contextlib.suppress(OSError):  # not every system can open a folder
            descriptor = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _check_room(self, more: int) -> None:
        now = time.monotonic()
        if now - self._measured_s > _MEASURE_EVERY_S or self._folder_bytes + more > self._max_folder_bytes:
            self._folder_bytes = _size_of(self._folder)
            self._measured_s = now
        if self._folder_bytes + more > self._max_folder_bytes:
            raise SendError(
                f"{self.name} holds {self._folder_bytes} bytes, more than max_folder_bytes="
                f"{self._max_folder_bytes}; does anything read it?",
                retry=True,
            )

    def _adopt_in_time(self) -> None:
        """Adopt at the first call and then every ten seconds, because files are still too young after a prompt restart."""
        self._began = self._began or _stamp()
        if time.monotonic() - self._adopted_s >= _ADOPT_EVERY_S:
            self._adopted_s = time.monotonic()
            self._adopt()

    def _adopt(self) -> None:
        """Rename the files of processes that died to their final names.

        Only those of this host: on a shared volume, the lock of a process on another host may be invisible.
        """
        self._left_young = False
        for path in self._folder.glob(f".*-{self._host}-*{_OPEN_SUFFIX}"):
            if path != self._path:
                with contextlib.suppress(OSError):
                    self._adopt_file(path)

    def _adopt_file(self, path: Path) -> None:
        if _lock is None:
            return
        with path.open("r+b") as file:
            # The clock of a network file system may be ahead; after this host's was set back, the age is negative for long.
            if abs(time.time() - path.stat().st_mtime) < _ADOPT_AFTER_S:
                # A younger process may be alive, and this one need not look again because of it.
                self._left_young |= path.name.removeprefix(".") < f"{self._began}."
                return
            _lock(file, _EXCLUSIVE)  # fails while its writer is alive
            content = file.read()
            whole = content.rfind(b"\n") + 1
            if whole:
                file.truncate(whole)
                os.fsync(file.fileno())
                os.rename(path, _visible(path))
            else:
                path.unlink()


def _stamp() -> str:
    """Return the time with which the names of files begin: in the order of time."""
    return f"{time.time_ns() // 1_000_000:013d}"


def _removed_content(file: FileIO) -> bytes:
    """Return what a removed file contained. A file that was moved instead still exists, so its content is not written again."""
    if os.fstat(file.fileno()).st_nlink:
        return b""
    file.seek(0)
    return file.read()


def _write(file: FileIO, payload: bytes) -> None:
    view = memoryview(payload)
    while view:
        view = view[file.write(view) :]


def _visible(path: Path) -> Path:
    return path.with_name(path.name.removeprefix(".").removesuffix(_OPEN_SUFFIX) + _SUFFIX)


def _size_of(folder: Path) -> int:
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                total += entry.stat().st_size
    return total
