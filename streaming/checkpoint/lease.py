"""Which job works on a checkpoint behind a URI: a file in it that the job renews. On a local disk, a lock says it."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import structlog

from streaming.errors import CheckpointInUse
from streaming.folder import Folder

NAME: Final = "lease.json"
RENEW_EVERY_S: Final = 10.0
GONE_AFTER_S: Final = 30.0
"""A job that has not renewed its lease for so long is gone. It is watched for that time, as machines' clocks differ."""
STOP_AFTER_S: Final = 25.0
"""A job that could not renew its lease for so long stops, some time before another one may take the lease."""
_LOOK_EVERY_S: Final = 1.0
_TRACE_AGAIN_S: Final = 60.0
_FIX: Final = "Stop it, or give this one its own spark.checkpoint_dir"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Holder:
    """The content of the lease file."""

    id: str
    machine: str
    """Identifies a running kernel and its process table, in which another process can be looked up."""
    pid: int
    renewals: int

    def is_dead(self) -> bool:
        """Whether it ran where this process runs, and does no more."""
        if self.machine != _machine() or self.pid == os.getpid():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


class Lease:
    """On the checkpoint in `folder`, at `uri`."""

    def __init__(
        self,
        folder: Folder,
        uri: str,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._folder = folder
        self._uri = uri
        self._clock_s = clock_s
        self._wait = wait
        self._own = _Holder(uuid.uuid4().hex, _machine(), os.getpid(), 0)
        self._lost = False
        self._renewed_s = clock_s()
        """When the latest renewal that succeeded began: a job that watches may have seen it from then on."""

    def take(self) -> None:
        """Take it. One that was not released is watched first. Raises `CheckpointInUse` when somebody renews it."""
        found = self._read()
        if found is not None and not found.is_dead():
            _log.info("lease_watched", checkpoint=self._uri, at_most_s=GONE_AFTER_S)
        until_s = self._clock_s() + GONE_AFTER_S
        while found is not None and not found.is_dead() and self._clock_s() < until_s:
            self._wait(_LOOK_EVERY_S)
            now = self._read()
            if now is not None and now != found:
                raise CheckpointInUse(f"another queuewatch is using the checkpoint {self._uri}", _FIX)
            found = now
        self._write()

    def renew(self) -> None:
        """Say that this job is still there, unless another one has taken the lease."""
        found = self._read()
        if found is not None and found.id != self._own.id:
            self._lost = True
        if not self._lost:
            self._own = replace(self._own, renewals=self._own.renewals + 1)
            self._write()

    def check(self) -> None:
        """Raise `CheckpointInUse` when another job has taken the lease, or soon may because this one could not renew it."""
        if self._lost:
            raise CheckpointInUse(f"another queuewatch has taken over the checkpoint {self._uri}", _FIX)
        silent_s = self._clock_s() - self._renewed_s
        if silent_s > STOP_AFTER_S:
            raise CheckpointInUse(
                f"this job could not renew its lease on the checkpoint {self._uri} for {silent_s:.0f} s; another may take it",
                "Start it again once the checkpoint's file system answers: it goes on from its checkpoint",
            )

    def release(self) -> None:
        """Let the next job start at once."""
        found = self._read()
        if found is not None and found.id == self._own.id:
            self._folder.delete(NAME)

    @contextmanager
    def held(self) -> Iterator[Lease]:
        """Take it, renew it while the block lasts, and release it. Raises `CheckpointInUse`."""
        self.take()
        over = threading.Event()
        thread = threading.Thread(target=self._keep, args=(over,), name="lease", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join(RENEW_EVERY_S)
            # The file system may be away, or Java dead: then the next job waits until this one counts as gone.
            with suppress(Exception):
                self.release()

    def _keep(self, over: threading.Event) -> None:
        traced_at_s: float | None = None
        while not over.wait(RENEW_EVERY_S):
            try:
                self.renew()
            except Exception as error:  # of any file system, through Java
                traced = not isinstance(error, OSError) and (
                    traced_at_s is None or self._clock_s() - traced_at_s >= _TRACE_AGAIN_S
                )
                if traced:
                    traced_at_s = self._clock_s()
                # Not as text: an error of Java's asks Java for it, which may be dead.
                _log.warning("lease_not_renewed", error=repr(error), exc_info=traced)

    def _read(self) -> _Holder | None:
        content = self._folder.read(NAME)
        try:
            return _Holder(**json.loads(content)) if content is not None else None
        except (ValueError, TypeError):
            return _Holder("", "", 0, 0)

    def _write(self) -> None:
        began_s = self._clock_s()
        self._folder.write(NAME, json.dumps(asdict(self._own)).encode())
        self._renewed_s = began_s


def _machine() -> str:
    """Return the same text for processes that can look each other up, and a unique one where that is unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return uuid.uuid4().hex
