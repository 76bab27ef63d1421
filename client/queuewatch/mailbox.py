"""Passes events from the application's threads to the sender's thread, without locks that could block a signal handler.

A signal handler can interrupt its thread anywhere, even within `offer`, and would deadlock on a lock taken there. So every
operation of an application's thread is a single step of a deque or of a `SimpleQueue`, whose `put` is reentrant.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from queuewatch.events import Event, Unbuilt
from queuewatch.signal_handlers import suppress


class Mailbox:
    """A bounded buffer of events that wakes its one reader, and lets callers wait until it is empty."""

    def __init__(self, max_events: int, full_at: int) -> None:
        self._max_events = max_events
        self._full_at = full_at
        self._events: deque[Event | Unbuilt] = deque()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._rung = False
        self._rung_full = False
        self._waiters: deque[Any] = deque()
        self.in_hand = 0
        """Number of events taken but not yet delivered; maintained by the reader, and counted against the limit."""
        self.closed = False
        self.overflow = 0
        """Number of events dropped because the buffer was full. It is approximate, to avoid a lock."""

    def __len__(self) -> int:
        return len(self._events)

    def offer(self, events: Sequence[Event | Unbuilt]) -> bool:
        """Add the events that fit; return whether any was added."""
        room = 0 if self.closed else self._max_events - len(self._events) - self.in_hand
        if room < len(events):
            room = max(0, room)
            self.overflow += len(events) - room
            events = events[:room]
            if not events:
                return False
        self._events.extend(events)
        if not self._rung:
            self.ring()
        elif not self._rung_full and len(self._events) >= self._full_at:
            self._rung_full = True
            self._bell.put(None)
        return True

    def ring(self) -> None:
        """Wake the reader."""
        self._rung = True
        self._bell.put(None)

    def wait_until_empty(self, timeout_s: float) -> bool:
        """Wait until the reader calls `emptied`; return False on a timeout."""
        waiter = threading.Lock()  # one per waiter, including a signal handler that interrupts another waiter
        waiter.acquire()
        self._waiters.append(waiter)
        self.ring()
        done = waiter.acquire(timeout=min(max(0.0, timeout_s), threading.TIMEOUT_MAX))
        with suppress(ValueError, RuntimeError):
            self._waiters.remove(waiter)
        return done

    def hurry(self) -> None:
        """Have the reader send without lingering, and do not wait for it."""
        if not self._waiters:
            # It stays until something was sent, also where nothing can be.
            self._waiters.append(threading.Lock())
        self.ring()

    # For the reader

    def renew_bell(self) -> None:
        """Wait with the `SimpleQueue` of this moment, which gevent and eventlet replace; call it before the reader starts.

        After such a replacement, the reader is a green thread of the application's own thread: if it waited with the original
        class, the application would stop.
        """
        if type(self._bell) is not queue.SimpleQueue:
            self._bell = queue.SimpleQueue()
            self.ring()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for events or a waiter; return False on a timeout."""
        if timeout_s is not None:
            timeout_s = min(timeout_s, threading.TIMEOUT_MAX)  # a longer one, such as a folder's `max_age_s`, is an OverflowError
        try:
            self._bell.get(timeout=timeout_s)
        except queue.Empty:
            return False
        return True

    def linger(self, linger_s: float) -> None:
        """Wait for more events until a record is full, there is a waiter, or `linger_s` has passed."""
        end_s = time.monotonic() + linger_s
        while not (self.closed or self._waiters or len(self._events) >= self._full_at):
            left_s = end_s - time.monotonic()
            if left_s <= 0 or not self.wait(left_s):
                return

    def clear_bell(self) -> None:
        """Re-arm the wake-up before the events are taken, so that later events wake the reader again."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._bell.get_nowait()
        self._rung = self._rung_full = False

    def take(self, most: int) -> list[Event | Unbuilt]:
        """Take the oldest events; they count as `in_hand` until the reader changes that."""
        events = [self._events.popleft() for _ in range(min(most, len(self._events)))]
        self.in_hand = len(events)
        return events

    def clear(self) -> int:
        """Drop all events; return their number."""
        dropped = len(self._events)
        self._events.clear()
        return dropped

    def waiters(self) -> list[Any]:
        """Return the current waiters, to be passed to `emptied`."""
        return list(self._waiters)

    def emptied(self, waiters: list[Any]) -> None:
        """Notify these waiters that every event offered before they began to wait is sent."""
        for waiter in waiters:
            with contextlib.suppress(ValueError):
                self._waiters.remove(waiter)
            with contextlib.suppress(RuntimeError):  # the waiter has timed out in the meantime, or does not wait
                waiter.release()
