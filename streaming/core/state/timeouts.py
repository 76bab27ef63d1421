"""The visibility timeout that a queue had before the one of now: a change applies to receives from then on, as in SQS.

One earlier value is kept. It is found from the reports by their times, whatever the order in which they arrive.
"""

from __future__ import annotations

from collections.abc import Callable

from streaming.core.state.queues import Reported, TimeoutChange, as_number, is_later

VISIBILITY_TIMEOUT = "visibility_timeout_s"


def learn_timeout(
    change: TimeoutChange, known: Reported | None, reported: Reported, next_count: Callable[[int], int]
) -> TimeoutChange:
    """Return the change of a queue's timeout after a report of it, which may be late.

    `known`: the latest report of the timeout before this one. `next_count`: the time of the broker's first count after a time.
    """
    if known is None:
        return TimeoutChange(since=reported.at)
    value = _milliseconds(reported)
    if value == _milliseconds(known):
        is_earlier = change.before_at < reported.at < change.since
        return change._replace(since=reported.at) if is_earlier else change
    if is_later(reported, known):
        return TimeoutChange(reported.at, known.at, _milliseconds(known))
    if reported.at <= change.before_at:
        return change
    since = change.since
    if is_later(reported, known._replace(at=since)):
        # Since the first report after this one. Collectors report the timeout with the counts, and the times of these are kept.
        since = min(next_count(reported.at), known.at)
    return TimeoutChange(since, reported.at, value)


def _milliseconds(reported: Reported) -> int:
    seconds = as_number(reported.value)
    return -1 if seconds is None else int(seconds * 1000)
