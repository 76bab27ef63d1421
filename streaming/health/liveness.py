"""Check that the job makes progress, and end processes that hang."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog

_LOOK_EVERY_S: Final = 1.0
_LOG_AGAIN_S: Final = 60.0
_log = structlog.get_logger(__name__)


class Liveness:
    """When the last batch was committed, by a monotonic clock. Thread-safe."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._last_s = self._watched_since_s = clock_s()
        self.doing = "starting"
        """What the job is doing or waiting for, as far as known."""

    def progressed(self) -> None:
        """Record that a batch was committed."""
        self._last_s = self._clock_s()
        self.doing = "running"

    def watch_from_now(self) -> None:
        """Record that a query was started: earlier silence does not count against it."""
        self._watched_since_s = self._clock_s()

    @property
    def silent_s(self) -> float:
        """Return the seconds since the last commit, or since the process started."""
        return self._clock_s() - self._last_s

    @property
    def query_silent_s(self) -> float:
        """Return the seconds since the running query started or last committed a batch."""
        return self._clock_s() - max(self._last_s, self._watched_since_s)

    def fault(self, within_s: float) -> str | None:
        """Return why the process should be restarted (no progress for longer than `within_s`), or None."""
        silent_s = self.silent_s
        if silent_s <= within_s:
            return None
        return f"no batch has been committed for {silent_s:.0f} s (limit: {within_s:.0f} s): {self.doing}"


class Watchdog:
    """Ends hung processes: first Spark's Python workers, so that the query fails and restarts; if that does not help, Java.

    It makes no calls into Java, which may be what hangs. `java_pid` returns its process id, None once it is gone.
    """

    def __init__(
        self,
        liveness: Liveness,
        java_pid: Callable[[], int | None],
        *,
        deadline_s: float,
        look_every_s: float = _LOOK_EVERY_S,
    ) -> None:
        self._liveness = liveness
        self._java_pid = java_pid
        self._deadline_s = deadline_s
        self._look_every_s = look_every_s
        self.ended_java: str | None = None
        """Why Java was ended, if it was."""
        self._ended_workers = False
        """Whether the workers were ended since the last commit, or since the query was started."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the query inside the block."""
        over = threading.Event()
        self._ended_workers = False
        self._liveness.watch_from_now()
        thread = threading.Thread(target=self._watch, args=(over,), name="queuewatch-watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _watch(self, over: threading.Event) -> None:
        logged_at_s: float | None = None
        while not over.wait(self._look_every_s):
            try:
                self._look()
            except Exception:
                # Without this thread, a batch that hangs would hang for ever.
                if logged_at_s is None or time.monotonic() - logged_at_s >= _LOG_AGAIN_S:
                    logged_at_s = time.monotonic()
                    _log.exception("watchdog_failed", effect=f"it looks again every {self._look_every_s:g} s")

    def _look(self) -> None:
        silent_s = self._liveness.query_silent_s
        pid = self._java_pid()
        if silent_s <= self._deadline_s:
            self._ended_workers = False
        elif pid is not None and not self._ended_workers:
            # Also if this fails: then Java is ended next.
            self._ended_workers = True
            workers = _workers_of(pid)
            _log.error(
                "batch_deadline_exceeded",
                silent_s=round(silent_s),
                doing=self._liveness.doing,
                action="ending Spark's Python workers",
                workers={worker: state_of(worker) for worker in workers},
            )
            for worker in workers:
                _kill(worker)
        elif pid is not None and silent_s > 1.5 * self._deadline_s and self.ended_java is None:
            self.ended_java = f"no batch was committed for {silent_s:.0f} s, and ending the Python workers did not help"
            _log.error("batch_deadline_exceeded", silent_s=round(silent_s), action="ending Spark's Java process")
            _kill(pid)


def descendants(pid: int, *, without: int | None = None) -> list[int]:
    """Return the processes below `pid`, but not `without` and those below it; none where the system does not report them."""
    below: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(folder.name))
        if fields is not None:
            below.setdefault(int(fields[1]), []).append(int(folder.name))
    found, look = [], [pid]
    while look:
        own = [child for child in below.get(look.pop(), []) if child != without]
        found += own
        look += own
    return found


def _workers_of(pid: int) -> list[int]:
    """Return Spark's Python workers below Java. The process that forks them is spared while it works: Java still uses it.

    Under `spark-submit` this process is below Java, too, and no worker.
    """
    below = descendants(pid, without=os.getpid())
    forking = {
        process for process in below if _parent_of(process) == pid and any(_parent_of(other) == process for other in below)
    }
    return [process for process in below if process not in forking or state_of(process) == "T"]


def _parent_of(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[1]) if fields is not None else None


def state_of(pid: int) -> str:
    """Return the state letter of a process (T is stopped), `?` when it is gone."""
    fields = _stat(pid)
    return fields[0] if fields is not None else "?"


def _stat(pid: int) -> list[str] | None:
    """Return the state, the parent and so on: the fields after the name, which may contain any byte."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode("ascii").split()
    except OSError:
        return None


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError as error:
        _log.warning("process_not_ended", pid=pid, error=str(error))
