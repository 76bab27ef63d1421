"""Waiting for something that another thread, process or machine does: the one loop for it in all tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    found: Callable[[], T],
    what: str,
    within_s: float = 30.0,
    *,
    every_s: float = 0.02,
    despite: type[Exception] | tuple[type[Exception], ...] = (),
    shows: Callable[[], object] | None = None,
) -> T:
    """Call `found` until its answer is true, and return that answer.

    The limit is for a machine on which something hangs: no test waits for it, so it is generous. Nothing is proved by how long
    it took.

    Args:
        found: what is asked; errors that are not in `despite` end the wait at once.
        what: what is waited for, as a sentence, for the failure.
        within_s: when to give up.
        every_s: the pause between two questions.
        despite: errors that only mean "not yet", for example of a server that does not listen.
        shows: what else a failure shows, for example a log.

    Raises:
        AssertionError: it did not come true in time; names what was waited for and the last answer or error.
    """
    end_s = time.monotonic() + within_s
    while True:
        late = time.monotonic() > end_s  # read before the question, so that a pause of the machine leaves one more try
        try:
            answer = found()
        except despite as error:
            last = f"error: {error!r}"
        else:
            if answer:
                return answer
            last = f"answer: {answer!r}"
        if late:
            more = f"; {shows()}" if shows is not None else ""
            raise AssertionError(f"not within {within_s:g} s: {what}; last {last}{more}")
        time.sleep(every_s)
