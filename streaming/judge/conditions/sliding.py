"""Running totals that rules read over a window which slides with time, each with its window."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streaming.judge.history.history import AGE_TO_GAP

if TYPE_CHECKING:
    from streaming.judge.context import Context


class SlidingTotal(NamedTuple):
    """A total whose growth over the last minutes decides about a signal."""

    field: str
    """A column of the samples; the total of a queue's summary has the same name."""
    window_s: str
    """The name of the threshold that says how long the window is."""

    def window_ms(self, c: Context) -> int:
        """Return the length of the window for this queue."""
        return int(getattr(c.thresholds, self.window_s) * 1000)

    def slides(self, c: Context) -> bool:
        """Whether the total grew within the window, so that time alone may change what the rule finds."""
        return self.growth(c) > 0

    def growth(self, c: Context) -> int:
        """Return by how much the total grew within the window at most, whichever samples it begins with from now on.

        Older samples are further apart, and more so with age: a window may begin earlier than one that was looked at before.
        """
        if not c.summary.total(self.field):
            # In most queues nothing of it ever happened.
            return 0
        window_ms = self.window_ms(c)
        samples = c.samples_of(window_ms + window_ms // AGE_TO_GAP)
        return samples.value(self.field, -1) - samples.value(self.field, 0)


FAILED = SlidingTotal("failed", "failing_window_s")
OUTLIVED = SlidingTotal("outlived", "short_window_s")
RETRIED = SlidingTotal("retried", "retry_storm_window_s")
FIFO_CALLS = tuple(SlidingTotal(calls, "fifo_limit_s") for calls in ("sent", "received", "deleted"))
