"""How the deliveries of a period ended, and what each consumer had finished and failed at times in the last minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streaming.core.reporting.report import ConsumerResults
from streaming.core.state.queues import as_number
from streaming.judge.conditions.conditions import once
from streaming.judge.conditions.sliding import FAILED

if TYPE_CHECKING:
    from streaming.judge.context import Context

MARK_EVERY_MS = 15_000
MARKS_PER_WINDOW = 20
MARKS_KEPT_MS = 330_000
MARKED_FROM_FAILURES = 1
REPORTED_WITHIN_MS = 15_000


class Outcomes(NamedTuple):
    """How the deliveries that ended in a period ended."""

    failed: int
    finished: int

    @property
    def ended(self) -> int:
        return self.failed + self.finished

    @property
    def failed_ratio(self) -> float:
        """Share of the ended deliveries that ended without a settlement; 0 when none ended."""
        return self.failed / self.ended if self.ended > 0 else 0.0


class ConsumerMark(NamedTuple):
    """Running totals of how each consumer's deliveries had ended at a time (epoch milliseconds)."""

    at: int
    results: dict[str, ConsumerResults]

    def of(self, consumer: str) -> ConsumerResults:
        """Return the totals of one consumer, zeros if it was not known then."""
        return self.results.get(consumer, ConsumerResults(0, 0))


def outcomes(c: Context, window_ms: int, until_ms: int = 0) -> Outcomes:
    """Return the deliveries that ended between `window_ms` ago and `until_ms` ago."""
    # Several rules use the same spans.
    key = (outcomes, window_ms, until_ms)
    if key not in c.computed:
        c.computed[key] = _counted(c, c.now - window_ms, c.now - until_ms)
    known: Outcomes = c.computed[key]
    return known


@once
def _returned_unread(c: Context) -> list[tuple[int, int]]:
    """Return when consumers with a prefetch window left (epoch milliseconds), and how many messages they gave back unread.

    Each worked on one of those that it held; the others waited for their turn.
    """
    found = []
    for state in c.summary.consumer_states.values():
        prefetch, left_at, returned = (as_number(state.attributes.get(name)) for name in ("prefetch", "removed_at", "returned"))
        if left_at is not None and (prefetch or 0) > 1 and returned is not None and returned > 1:
            found.append((int(left_at), int(returned) - 1))
    return found


def _counted(c: Context, since: int, until: int) -> Outcomes:
    """Count failed and finished deliveries between two times (epoch milliseconds)."""
    samples = c.samples_of(c.now - since)
    first, last = max(samples.last_before(since), 0), samples.last_before(until)
    if last < 0:
        return Outcomes(0, 0)
    failed, deleted = (samples.value(field, last) - samples.value(field, first) for field in ("failed", "deleted"))
    if failed > 0:
        # Reports of what was given back may have come later.
        began, ended = samples.times[first] - REPORTED_WITHIN_MS, samples.times[last]
        failed -= sum(unread for left_at, unread in _returned_unread(c) if began < left_at <= ended)
    return Outcomes(max(failed, 0), max(deleted, 0))


@once
def consumer_marks(c: Context) -> list[ConsumerMark]:
    """Return how each consumer's deliveries had ended at times in the last minutes, oldest first; none while none fail."""
    known, results = c.memory.consumer_marks, c.summary.consumer_results
    # In most queues nothing ever failed.
    if not c.summary.total("failed") or not results:
        return []
    window_ms = FAILED.window_ms(c)
    if outcomes(c, window_ms).failed < MARKED_FROM_FAILURES:
        return []
    marks, every_ms = [*known], mark_every_ms(window_ms)
    if not marks or c.now - marks[-1].at >= every_ms:
        marks.append(ConsumerMark(c.now, dict(results)))
    while len(marks) > 1 and marks[1].at <= c.now - max(MARKS_KEPT_MS, window_ms + 2 * every_ms):
        marks.pop(0)
    return marks


def mark_every_ms(window_ms: int) -> int:
    """Return how far marks are apart: a long window has no more of them than one of five minutes."""
    return max(MARK_EVERY_MS, window_ms // MARKS_PER_WINDOW)
