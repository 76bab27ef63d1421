"""Convert SIGTERM and SIGINT to a stop event."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType

import structlog

_log = structlog.get_logger(__name__)


@contextmanager
def stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` on SIGTERM and SIGINT within the block; a second signal interrupts at once."""
    received: SimpleQueue[int | None] = SimpleQueue()
    asked = False

    # It may interrupt this thread while it writes to the log, or holds the lock of `stop`: it must do neither itself.
    def handle(number: int, _: FrameType | None) -> None:
        nonlocal asked
        if asked or stop.is_set():
            raise KeyboardInterrupt
        asked = True
        received.put(number)

    thread = threading.Thread(target=_stop_when_received, args=(received, stop), name="queuewatch-signals", daemon=True)
    thread.start()
    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        received.put(None)
        thread.join()


def _stop_when_received(received: SimpleQueue[int | None], stop: threading.Event) -> None:
    number = received.get()
    if number is not None:
        stop.set()
        _log.info("stopping", signal=signal.Signals(number).name)
