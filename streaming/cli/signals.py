"""Convert SIGTERM and SIGINT to a stop event."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import structlog

_log = structlog.get_logger(__name__)


@contextmanager
def stopped_by_signals(stop: threading.Event) -> Iterator[Callable[[], None]]:
    """Set `stop` on SIGTERM and SIGINT within the block; a second signal interrupts at once.

    Yields a function to call once Spark is up, because PySpark installs its own handler.
    """

    def handle(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        _log.info("stopping", signal=signal.Signals(number).name)
        stop.set()

    def listen() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, handle)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    listen()
    try:
        yield listen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
