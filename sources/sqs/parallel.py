"""Make calls in several threads, which nobody waits for once the collector is stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from sources.collect.supervise import EitherEvent

Item = TypeVar("Item")
Found = TypeVar("Found")

_SLICE_S: Final = 5.0
_SLICE_ITEMS: Final = 500
_STOP_POLL_S: Final = 0.25


def in_slices(
    items: Iterable[Item], action: Callable[[Item], Found | None], *, threads: int, stop: threading.Event
) -> Iterator[list[Found]]:
    """Run the action for each item; yield what it returned, None left out, as it comes.

    A slice is yielded every few seconds, even an empty one, and when it is large. Once `stop` is set, no further item is begun
    and nothing more is yielded. A call that SQS does not answer takes a minute: its thread is a daemon, left to itself. The
    first exception of an action is raised.
    """
    todo: SimpleQueue[Item] = SimpleQueue()
    done: SimpleQueue[tuple[Found | None, BaseException | None]] = SimpleQueue()
    left = 0
    for item in items:
        todo.put(item)
        left += 1
    ended = EitherEvent(stop, threading.Event())
    for _ in range(min(threads, left)):
        threading.Thread(target=_work, args=(todo, action, done, ended), name="queuewatch-sqs", daemon=True).start()
    try:
        found: list[Found] = []
        due_s = time.monotonic() + _SLICE_S
        while left and not ended.is_set():
            try:
                result, error = done.get(timeout=_STOP_POLL_S)
            except Empty:
                pass
            else:
                left -= 1
                if error is not None:
                    raise error
                if result is not None:
                    found.append(result)
            if not left or len(found) >= _SLICE_ITEMS or time.monotonic() >= due_s:
                yield found
                found = []
                due_s = time.monotonic() + _SLICE_S
    finally:
        ended.second.set()


def _work(
    todo: SimpleQueue[Item],
    action: Callable[[Item], Found | None],
    done: SimpleQueue[tuple[Found | None, BaseException | None]],
    ended: threading.Event,
) -> None:
    while not ended.is_set():
        try:
            item = todo.get_nowait()
        except Empty:
            return
        try:
            done.put((action(item), None))
        except BaseException as error:  # raised again where the results are awaited
            done.put((None, error))
            return
