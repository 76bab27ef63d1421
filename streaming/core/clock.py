"""Decide whether the service's own clock can be trusted. Pure: numbers in, numbers out.

A machine that was suspended, or a bad step of its time service, makes the clock jump. Time settles messages (retention, unseen
moves), so a jump is not trusted until other evidence confirms it. Until then `now` continues from where it was, at the rate at
which the clock ticks, and nothing is settled because of the time that was jumped over.

1. A step of less than an hour forwards, or a quarter of an hour back, is trusted: batches take time.
2. A larger step is trusted as soon as more sources (queues, collectors) report times near the new reading than near the old.
3. While any source still reports times near the old reading, and at least as many as near the new, it is not trusted.
4. When no source reports at all, it is trusted after it has held for ten batches and a minute.

A job that is behind its source does not yet know what happened up to the present: `time_of_step` is how far it has read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

CLOCKS_DIFFER_MS = 60_000
"""By how much two senders' clocks may differ: what each of them dates within this is in no certain order."""
LARGEST_STEP_MS = 3_600_000
"""Between two batches. Steps up to this may be a restart, or an outage that the job waited out."""
LARGEST_STEP_BACK_MS = 900_000
"""On a smaller step back, `now` stands still until the clock has caught up."""
FRESH_MS = 600_000
"""A source whose newest event is at most this old counts as reporting the current time."""
BATCHES_TO_TRUST = 10
HELD_TO_TRUST_MS = 60_000
LONGEST_TICK_MS = 60_000
"""While the clock is not trusted, `now` advances by at most this per batch."""
BEHIND_MS = 15_000
"""Where the newest event just read is older than this, the job is behind its source. Clients and collectors report within ten
seconds, and a batch takes a few."""
SENDERS_AHEAD_FOR_MS = 600_000
"""Senders' clocks count as ahead for this long after the last event that was dated in the future."""


@dataclass(frozen=True, slots=True)
class Clock:
    """What is known about the clock after a batch. Times are epoch milliseconds, 0 before the first batch."""

    now: int = 0
    """The time that is trusted."""
    read: int = 0
    """The clock's latest reading."""
    jumped_at: int = 0
    """The trusted time at which the clock stopped being trusted; 0: it is trusted."""
    jumped_to: int = 0
    """The reading it jumped to."""
    batches: int = 0
    """Batches since the jump."""
    for_read: int = 0
    """Sources whose times agree with the clock's reading…"""
    for_now: int = 0
    """…and those whose times agree with `now`."""
    ahead_total: int = 0
    """Events dated in the future so far."""
    ahead_at: int = 0
    """When the last of them arrived."""

    @property
    def trusted(self) -> bool:
        """Whether `now` equals the clock's reading."""
        return self.jumped_at == 0


def tick(clock: Clock, read: int) -> Clock:
    """Return the clock at the next batch, when its reading is `read`."""
    step = read - clock.now
    if not clock.now or -LARGEST_STEP_BACK_MS < step < LARGEST_STEP_MS:
        return _trust(clock, max(read, clock.now), read)
    on = min(max(0, read - clock.read), LONGEST_TICK_MS) if not clock.trusted else 0
    now = clock.now + on
    if clock.trusted or abs(read - clock.read) >= LARGEST_STEP_MS:
        # A jump, or a further one: evidence about the previous jump does not count.
        return replace(
            clock, now=now, read=read, jumped_at=clock.jumped_at or now, jumped_to=read, batches=1, for_read=0, for_now=0
        )
    held = clock.batches + 1 > BATCHES_TO_TRUST and read - clock.jumped_to >= HELD_TO_TRUST_MS
    if clock.for_read > clock.for_now or (held and not clock.for_now):
        return _trust(clock, read, read)
    return replace(clock, now=now, read=read, batches=clock.batches + 1)


def count_confirmations(clock: Clock, newest: Iterable[int]) -> Clock:
    """Count which sources confirm the jump: `newest` holds the time up to which each source has reported."""
    if clock.trusted:
        return clock
    for_read = for_now = 0
    for at in newest:
        for_read += abs(at - clock.read) <= FRESH_MS
        for_now += abs(at - clock.now) <= FRESH_MS
    return replace(clock, for_read=for_read, for_now=for_now)


def record_future_events(clock: Clock, ahead_total: int, now: int) -> Clock:
    """Record how many events have been dated in the future so far."""
    if ahead_total <= clock.ahead_total:
        return clock
    return replace(clock, ahead_total=ahead_total, ahead_at=now)


def time_of_step(now: int, newest: int | None, before: int) -> int:
    """Return the time at which a batch is tracked and judged, in epoch milliseconds.

    It is `now`, except where the newest event of the batch is more than `BEHIND_MS` older: then what happened since is still in
    the source, and at `now` every message would seem to wait and every consumer to be silent. So it is the time of that event,
    but not earlier than the step before, which was at `before`. `newest` is None where the batch has no event: nothing is waiting
    to be read.
    """
    if newest is None or now - newest <= BEHIND_MS:
        return now
    return min(now, max(newest, before))


def senders_are_ahead(clock: Clock, now: int) -> bool:
    """Whether events dated in the future arrived recently."""
    return clock.ahead_total > 0 and 0 <= now - clock.ahead_at < SENDERS_AHEAD_FOR_MS


def _trust(clock: Clock, now: int, read: int) -> Clock:
    return replace(clock, now=now, read=read, jumped_at=0, jumped_to=0, batches=0, for_read=0, for_now=0)
