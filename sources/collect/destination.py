"""The destination of collectors' events, which are delivered or retried; only those that no destination can take are dropped."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Self

from queuewatch.backoff import Backoff
from queuewatch.events import encode_line
from queuewatch.transports import SendError, Transport, open_transport
from sources.events import Event, unreadable

_log = logging.getLogger(__name__)

_MAX_BATCH: Final = 5_000
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 30.0
_LOG_EVERY_S: Final = 30.0


class DestinationStopped(Exception):
    """The collector was stopped before its events could be delivered: they are not safe."""


class Destination:
    """Delivers events through a transport; call it as a collector's `emit`.

    A call returns when the receiver has every event: with a spool folder, when they are synced to disk. While the
    receiver is unavailable it keeps retrying, until `stop` is set and `patience_s` has passed since. Calls from several
    threads take turns.
    """

    def __init__(self, to: str | Transport, stop: threading.Event, *, patience_s: float = 5.0) -> None:
        """`to` is a URL as for `open_transport`. Raises `ValueError` for an invalid one."""
        self._transport = to if isinstance(to, Transport) else open_transport(to, durable=True)
        self._stop = stop
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._reported_s = float("-inf")
        self._unfit = 0
        """Events that JSON cannot represent, since one was logged."""
        self._unfit_reported_s = float("-inf")
        self._give_up_s: float | None = None
        """When delivery ends after `stop`, by the monotonic clock; None before the first failure after it."""
        self._ticker = threading.Thread(target=self._tick, name="queuewatch-destination", daemon=True)
        self.delivered = 0
        """Events delivered so far."""
        self.unsendable = 0
        """Events dropped because JSON cannot represent them or no record is large enough."""
        self.unreadable = 0
        """Events of which the service said that it cannot read them; it keeps them in quarantine."""

    def __enter__(self) -> Self:
        self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._ticker.join()
        with self._lock:
            self._transport.close()
        if self.unsendable or self.unreadable:
            _log.warning("%d events could not be sent, %d could not be read by the service", self.unsendable, self.unreadable)

    def __call__(self, events: Sequence[Event]) -> None:
        """Deliver events. Raises `DestinationStopped`."""
        if isinstance(events, Mapping):
            raise TypeError("emit takes a list of events, not one event")  # its keys would be sent as events
        with self._lock:
            for lines in self._batches(events):
                self._deliver(lines)

    def _batches(self, events: Sequence[Event]) -> Iterator[list[bytes]]:
        lines: list[bytes] = []
        size = 0
        for event in events:
            line = self._encode(event)
            if line is None:
                continue
            if lines and (len(lines) >= _MAX_BATCH or size + len(line) > self._transport.max_bytes):
                yield lines
                lines, size = [], 0
            lines.append(line)
            size += len(line)
        if lines:
            yield lines

    def _encode(self, event: Event) -> bytes | None:
        try:
            try:
                return encode_line(event)
            except ValueError as error:
                # Half a surrogate pair or NaN, read from JSON that had it. With escapes it can be kept in quarantine.
                self._log_unfit(logging.WARNING, f"an event of type {event.get('type')!r} is passed on as unreadable: {error}")
                return encode_line(unreadable(json.dumps(event)))
        except (TypeError, ValueError, RecursionError) as error:
            self.unsendable += 1
            self._log_unfit(logging.ERROR, f"an event of type {event.get('type')!r} cannot be sent: {error}")
            return None

    def _log_unfit(self, level: int, what: str) -> None:
        """Log an event that JSON cannot represent, now and then: a sender that makes one makes thousands."""
        self._unfit += 1
        now_s = time.monotonic()
        if now_s - self._unfit_reported_s >= _LOG_EVERY_S:
            _log.log(level, "%s%s", what, f" ({self._unfit:,} such events since the last line)" if self._unfit > 1 else "")
            self._unfit, self._unfit_reported_s = 0, now_s

    def _deliver(self, lines: list[bytes]) -> None:
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            try:
                self._transport.send(b"".join(lines))
            except SendError as error:
                if error.too_large:
                    self._split(lines, error)
                    return
                if error.unreadable:
                    # The service would never read them, and the events behind them would wait for ever.
                    self.unreadable += len(lines)
                    _log.warning("%d events are not sent again: %s", len(lines), error)
                    return
                # Any other refusal (of a token, a path), a 400 of another server too, may end when its cause is corrected.
                self._log_failure(error)
                pause_s = backoff.pause_s()
                self._pause(error.retry_after_s or pause_s, error)
            else:
                self.delivered += len(lines)
                return

    def _split(self, lines: list[bytes], error: SendError) -> None:
        if len(lines) == 1:
            self.unsendable += 1
            _log.error("an event of %d bytes is dropped: %s", len(lines[0]), error)
            return
        middle = len(lines) // 2
        self._deliver(lines[:middle])
        self._deliver(lines[middle:])

    def _pause(self, wait_s: float, error: SendError) -> None:
        if not self._stop.wait(wait_s):
            return
        # Stopping: make a few more attempts, at a pace that lets a restarting broker come back.
        if self._give_up_s is None:
            self._give_up_s = time.monotonic() + self._patience_s
        if time.monotonic() >= self._give_up_s:
            raise DestinationStopped(str(error)) from error
        time.sleep(min(wait_s, 0.2))

    def _log_failure(self, error: SendError) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s >= _LOG_EVERY_S:
            self._reported_s = now_s
            _log.warning("events wait: %s", error)

    def _tick(self) -> None:
        """Let a transport that batches payloads send them in time."""
        while True:
            with self._lock:
                due_s = self._transport.due_s()
                if due_s == 0:
                    try:
                        self._transport.flush()
                    except SendError as error:
                        self._log_failure(error)
                    due_s = None
            if self._closed.wait(0.25 if due_s is None else max(0.01, min(due_s, 0.25))):
                return
