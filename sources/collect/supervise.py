"""Supervise concurrent loops of one collector: when one fails, all end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence


def supervise(kind: str, parts: Sequence[Callable[[threading.Event], None]], stop: threading.Event) -> None:
    """Run each part in its own thread with a shared stop event, until all have returned. `kind` is the collector's.

    The event is set when `stop` is, and when a part raises; the first exception is raised here.
    """
    ended = EitherEvent(stop, threading.Event())
    failed: list[Exception] = []

    def guarded(part: Callable[[threading.Event], None]) -> None:
        try:
            part(ended)
        except Exception as error:
            failed.append(error)
            ended.second.set()

    threads = [threading.Thread(target=guarded, args=(part,), name=f"queuewatch-{kind}", daemon=True) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


class EitherEvent(threading.Event):
    """An event that is set when either of two events is."""

    def __init__(self, first: threading.Event, second: threading.Event) -> None:
        super().__init__()
        self.first = first
        self.second = second

    def is_set(self) -> bool:
        return self.first.is_set() or self.second.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        end_s = None if timeout is None else time.monotonic() + timeout
        while not self.is_set():
            left_s = 0.25 if end_s is None else min(0.25, end_s - time.monotonic())
            if left_s <= 0:
                return False
            self.first.wait(left_s)
        return True
