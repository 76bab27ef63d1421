"""Sends reports from a function within a time limit; the rest is sent with the next invocation."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from queuewatch.events import Event, encode_line
from queuewatch.log import log_warning
from queuewatch.transports import SendError, Transport

Report = Callable[[], Sequence[Event]]
"""Creates events only when they are sent, so that encoding a batch of ten thousand messages does not delay the handler."""

_ENCODED_AHEAD: Final = 1_000
"""Maximum number of encoded lines. The rest waits as reports, the oldest of which can still be dropped."""

_LONGEST_QUIET_S: Final = 30.0
_WARN_EVERY_S: Final = 60.0


class Carrier:
    """Sends in a thread; the caller chooses how long to wait for it.

    The platform freezes the process between invocations, even while it is sending. A payload is kept until its delivery is
    confirmed, so it may arrive twice. A destination that keeps failing is tried less and less often.
    """

    def __init__(self, transport: Transport, *, max_events: int = 50_000, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.transport = transport
        self._max_events = max_events
        self._clock_s = clock_s
        self._changed = threading.Condition()
        self._reports: deque[tuple[int, Report]] = deque()
        self._lines: deque[bytes] = deque()
        self._events = 0
        self._dropped = 0
        """The events that were dropped since all were sent."""
        self._attempt = False
        self._running = False
        self._thread: threading.Thread | None = None
        self._misses = 0
        self._quiet_until_s = float("-inf")
        self._warned_s = float("-inf")

    def offer(self, count: int, report: Report) -> None:
        """Take `count` events, which `report` creates later; beyond the limit the oldest reports are dropped."""
        with self._changed:
            dropped_before = self._dropped
            self._reports.append((count, report))
            self._events += count
            while self._events > self._max_events and len(self._reports) > 1:
                dropped, _ = self._reports.popleft()
                self._events -= dropped
                self._dropped += dropped
            begins = self._dropped > dropped_before == 0
        if begins:
            log_warning("more than %d events wait to be sent: the oldest are dropped", self._max_events)

    def start(self) -> None:
        """Start sending without waiting. Raises `RuntimeError` if no thread can be started."""
        with self._changed:
            if self._events and not self._attempt and self._clock_s() >= self._quiet_until_s:
                self._keep_thread()  # first, because it may raise
                self._attempt = True  # even during an attempt, which may already have passed the latest report
                self._changed.notify_all()

    def deliver(self, within_s: float) -> bool:
        """Send pending reports; return whether all were sent within `within_s`. Sending continues while the process runs."""
        self.start()
        end_s = self._clock_s() + within_s
        with self._changed:
            if not self._attempt and not self._running and self._events:  # backing off
                return False
            while self._attempt or self._running:
                left_s = end_s - self._clock_s()
                if left_s <= 0:
                    self._missed()
                    return False
                if self._clock_s() < self._quiet_until_s:
                    return False
                self._changed.wait(left_s)
            return self._events == 0

    def _keep_thread(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="queuewatch-lambda", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._attempt:
                    self._changed.wait()
                self._attempt, self._running = False, True
            try:
                arrived = self._send_all()
            except Exception as error:  # the thread must survive any error
                arrived = False
                self._failed(error)
            dropped = 0
            with self._changed:
                self._running = False
                if arrived:
                    dropped, self._dropped = self._dropped, 0
                    self._misses, self._quiet_until_s = 0, float("-inf")
                else:
                    self._attempt = False
                    self._missed()
                self._changed.notify_all()
            if dropped:
                log_warning("telemetry is sent again; %d events were dropped meanwhile", dropped)

    def _missed(self) -> None:
        """Back off from the second failure on, twice as long each time."""
        self._misses += 1
        if self._misses >= 2:
            self._quiet_until_s = self._clock_s() + min(_LONGEST_QUIET_S, 2.0 ** min(self._misses - 2, 10))

    def _send_all(self) -> bool:
        while True:
            while len(self._lines) < _ENCODED_AHEAD:
                with self._changed:
                    if not self._reports:
                        break
                    count, report = self._reports.popleft()
                made = _encode(report)
                self._lines.extend(made)
                with self._changed:
                    self._events += len(made) - count
            if not self._lines:
                return True
            if not self._send_payload():
                return False

    def _send_payload(self) -> bool:
        """Send as many lines as fit into one payload; they are kept until they have been delivered."""
        size = taken = 0
        for line in self._lines:
            if taken and size + len(line) > self.transport.max_bytes:
                break
            size += len(line)
            taken += 1
        while True:
            try:
                self.transport.send(b"".join(list(self._lines)[:taken]))
            except SendError as error:
                self._failed(error)
                if error.too_large and taken > 1:
                    taken //= 2
                    continue
                if error.retry:
                    return False
            self._forget(taken)
            return True

    def _forget(self, taken: int) -> None:
        with self._changed:
            for _ in range(taken):
                self._lines.popleft()
            self._events -= taken

    def _failed(self, error: Exception) -> None:
        now_s = self._clock_s()
        if now_s - self._warned_s >= _WARN_EVERY_S:
            self._warned_s = now_s
            log_warning("telemetry is not sent: %s", error)


def _encode(report: Report) -> list[bytes]:
    lines = []
    try:
        for event in report():
            lines.append(encode_line(event))
    except Exception as error:
        log_warning("telemetry of an invocation is lost: %r", error)
    return lines
