"""Sends events from a thread of its own, bounded in memory and in time: the application never waits for it."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import random
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sources.client.transports import SendError, Transport
from sources.events import Event

_log = logging.getLogger("queuewatch.client")
_log.addHandler(logging.NullHandler())

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 30.0
_WARN_EVERY_S: Final = 60.0


@dataclass
class SenderStats:
    """What became of the events offered; a snapshot.

    `dropped_overflow`: the buffer was full; `dropped_refused`: the other side will never take them;
    `dropped_at_exit`: the time to leave came first.
    """

    accepted: int = 0
    sent: int = 0
    records: int = 0
    dropped_overflow: int = 0
    dropped_refused: int = 0
    dropped_at_exit: int = 0
    send_errors: int = 0
    buffered: int = 0
    last_error: str | None = None


class BackgroundSender:
    """Gathers events into records of NDJSON and sends them in a daemon thread.

    `offer` never blocks, waits or raises: beyond `max_buffered` events it drops and counts. A record goes out when
    it holds `max_batch` events, or `linger_s` after its first. While the other side is down the sender backs off
    and keeps trying; at exit it gets `exit_deadline_s` for what is left. The thread starts with the first event,
    and anew in the child of a fork, which leaves the parent's events to the parent.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        max_buffered: int = 20_000,
        max_batch: int = 1_000,
        linger_s: float = 0.2,
        exit_deadline_s: float = 2.0,
    ) -> None:
        self.transport = transport
        self._max_buffered = max_buffered
        self._max_batch = max_batch
        self._linger_s = linger_s
        self._exit_deadline_s = exit_deadline_s
        self._stats = SenderStats()
        self._warned_s = float("-inf")
        self._reset()
        _senders.add(self)

    def _reset(self) -> None:
        """A state without a thread: at the start, and in a forked child."""
        self._lock = threading.Lock()
        self._buffer: deque[Event] = deque()
        self._in_hand = 0
        self._work = threading.Event()
        self._hurry = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._flush_wanted = False
        self._give_up_s: float | None = None
        self._thread: threading.Thread | None = None
        self._exit_registered = False

    def offer(self, events: Sequence[Event]) -> None:
        """Take events to be sent, or count them as dropped; a few microseconds, whatever the transport does."""
        with self._lock:
            room = self._max_buffered - len(self._buffer) - self._in_hand
            if self._closing():
                room = 0
            taken = events if len(events) <= room else events[: max(0, room)]
            self._buffer.extend(taken)
            self._stats.accepted += len(taken)
            self._stats.dropped_overflow += len(events) - len(taken)
            if taken:
                self._idle.clear()
            full = len(self._buffer) >= self._max_batch
        if taken and not self._work.is_set():
            self._work.set()
        if full and not self._hurry.is_set():
            self._hurry.set()
        if taken and (self._thread is None or not self._thread.is_alive()):
            self._start()

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until everything offered so far is sent and visible; False when the time was not enough."""
        with self._lock:
            if self._thread is None and not self._buffer:
                return True
            self._idle.clear()
            self._flush_wanted = True
        self._work.set()
        self._hurry.set()
        if self._thread is None or not self._thread.is_alive():
            self._start()
        return self._idle.wait(timeout_s)

    def close(self, deadline_s: float | None = None) -> None:
        """Send what is left within `deadline_s` (default: the exit deadline) and count the rest as dropped.

        What is offered afterwards is dropped.
        """
        deadline_s = self._exit_deadline_s if deadline_s is None else deadline_s
        thread = self._thread
        self._give_up_s = time.monotonic() + deadline_s
        if thread is not None and thread.is_alive():
            self._flush_wanted = True
            self._work.set()
            self._hurry.set()
            thread.join(deadline_s + 0.5)
        elif self._buffer:
            self._run()  # no thread can be started any more at the end of the interpreter
        with self._lock:
            self._stats.dropped_at_exit += len(self._buffer)
            self._buffer.clear()
            self._idle.set()
        atexit.unregister(self._close_at_exit)

    def stats(self) -> SenderStats:
        """The counters now."""
        with self._lock:
            buffered = len(self._buffer) + self._in_hand
            return replace(self._stats, buffered=buffered)

    def _start(self) -> None:
        with self._lock:
            if self._give_up_s is not None or (self._thread is not None and self._thread.is_alive()):
                return
            thread = threading.Thread(target=self._run, name="queuewatch-sender", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter is shutting down: the exit flush takes what is left
                return
            self._thread = thread
        if not self._exit_registered:
            self._register_exit()

    def _register_exit(self) -> None:
        self._exit_registered = True
        atexit.unregister(self._close_at_exit)
        atexit.register(self._close_at_exit)
        # Children of multiprocessing leave without running atexit.
        util = sys.modules.get("multiprocessing.util")
        process = sys.modules.get("multiprocessing.process")
        if util is not None and process is not None and process.parent_process() is not None:
            util.Finalize(self, _close_weakly, args=(weakref.ref(self),), exitpriority=100)

    def _close_at_exit(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    # In the thread

    def _run(self) -> None:
        while True:
            if not self._work.wait(self._due_s()):
                self._try(self.transport.flush)
                continue
            if not self._closing() and not self._flush_wanted:
                self._hurry.wait(self._linger_s)
            self._work.clear()
            self._hurry.clear()
            self._drain()
            self._rest()
            if self._closing():
                self._try(self.transport.flush)
                self.transport.close()
                return

    def _drain(self) -> None:
        """Send what is there. What was offered meanwhile and fills no record waits its own linger: under load the application
        offers as fast as this thread sends, and every record would hold a handful."""
        while self._send_some():
            with self._lock:
                left = len(self._buffer)
            if 0 < left < self._max_batch and not self._flush_wanted and not self._closing():
                self._work.set()
                return

    def _rest(self) -> None:
        """Everything is sent: make it visible if somebody waits for that, and tell them."""
        if self._flush_wanted:
            self._flush_wanted = not self._try(self.transport.flush)
            if self._flush_wanted:
                self._work.set()
                return
        with self._lock:
            if not self._buffer and not self._in_hand:
                self._idle.set()

    def _send_some(self) -> bool:
        """Send up to one record; False when nothing is left to send."""
        with self._lock:
            events = [self._buffer.popleft() for _ in range(min(self._max_batch, len(self._buffer)))]
            self._in_hand = len(events)
        if not events:
            return False
        lines = [line for event in events if (line := _encode(event)) is not None]
        self._count(dropped_refused=len(events) - len(lines))
        for record in _records(lines, self.transport.max_bytes):
            self._deliver(record)
        with self._lock:
            self._in_hand = 0
        return True

    def _deliver(self, lines: list[bytes]) -> None:
        """Send one record until it arrives, is refused for good, or time is up."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                self.transport.send(b"".join(lines))
            except SendError as error:
                self._report(error)
                if error.too_large and len(lines) > 1:
                    middle = len(lines) // 2
                    self._deliver(lines[:middle])
                    self._deliver(lines[middle:])
                    return
                if not error.retry:
                    break
                wait_s = error.retry_after_s or pause_s * random.uniform(0.5, 1.0)
                if not self._pause(wait_s):
                    self._count(dropped_at_exit=len(lines))
                    return
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            except Exception as error:  # a transport's own fault costs its payload, not the thread
                self._report(error)
                break
            else:
                self._count(sent=len(lines), records=1)
                return
        self._count(dropped_refused=len(lines))

    def _pause(self, wait_s: float) -> bool:
        """Wait before the next attempt; False when the time to leave comes first."""
        end_s = time.monotonic() + wait_s
        while (now_s := time.monotonic()) < end_s:
            give_up_s = self._give_up_s
            if give_up_s is not None and now_s >= give_up_s:
                return False
            time.sleep(min(0.05 if give_up_s is not None else 0.25, end_s - now_s))
        return self._give_up_s is None or time.monotonic() < self._give_up_s

    def _closing(self) -> bool:
        return self._give_up_s is not None

    def _due_s(self) -> float | None:
        try:
            return self.transport.due_s()
        except Exception:
            return None

    def _try(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except Exception as error:
            self._report(error)
            time.sleep(_FIRST_PAUSE_S)
            return False
        return True

    def _count(self, *, sent: int = 0, records: int = 0, dropped_refused: int = 0, dropped_at_exit: int = 0) -> None:
        with self._lock:
            first = sent > 0 and self._stats.sent == 0
            self._stats.sent += sent
            self._stats.records += records
            self._stats.dropped_refused += dropped_refused
            self._stats.dropped_at_exit += dropped_at_exit
        if first and not self._closing():
            # kafka-python registers an exit handler when it connects; handlers run last first, and ours must
            # run while its producer still lives.
            self._register_exit()

    def _report(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        with self._lock:
            self._stats.send_errors += 1
            self._stats.last_error = text
        now_s = time.monotonic()
        if now_s - self._warned_s >= _WARN_EVERY_S:
            self._warned_s = now_s
            _log.warning("telemetry is not sent: %s", text)


def _encode(event: Event) -> bytes | None:
    try:
        text = json.dumps(event, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode("utf-8") + b"\n"
    except (TypeError, ValueError, RecursionError):  # an encoding error is a ValueError
        return None


def _records(lines: list[bytes], max_bytes: int) -> list[list[bytes]]:
    """Cut lines into records of at most `max_bytes`; a longer line is a record of its own."""
    records: list[list[bytes]] = []
    size = max_bytes
    for line in lines:
        if size + len(line) > max_bytes:
            records.append([])
            size = 0
        records[-1].append(line)
        size += len(line)
    return records


def _close_weakly(reference: weakref.ref[BackgroundSender]) -> None:
    sender = reference()
    if sender is not None:
        sender._close_at_exit()


_senders: weakref.WeakSet[BackgroundSender] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for sender in list(_senders):
        with contextlib.suppress(Exception):
            sender.transport.after_fork()
            sender._reset()
            sender._stats = SenderStats()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
