"""Convert SIGTERM and SIGINT to a stop event."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import structlog

_log = structlog.get_logger(__name__)


@contextmanager
def stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` on SIGTERM and SIGINT within the block; a second signal interrupts at once."""

    def handle(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        _log.info("stopping", signal=signal.Signals(number).name)
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
