"""Whether the service's own clock is believed. Pure: numbers in, numbers out.

A machine that was suspended, or a bad step of its time service, makes the clock jump. Time settles things (retention, moves
nobody saw), so a jump is held until something else bears it out: until then `now` goes on from where it was, as fast as
the clock ticks, and nothing is settled by the time that was jumped over.

1. A step of less than an hour forwards, or a quarter of an hour back, is believed: batches take their time.
2. A larger one is believed as soon as more sources (queues, collectors) speak from the time it jumped to than from before.
3. While any source still speaks from before, and as many do, it is not believed.
4. When none speaks at all, it is believed after ten batches and a minute in which it held.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

LARGEST_STEP_MS = 3_600_000
"""Between two batches: a restart, or an outage that was waited for."""
LARGEST_STEP_BACK_MS = 900_000
"""A smaller step back is waited for: `now` stands still until the clock has caught up."""
FRESH_MS = 600_000
"""A source that spoke so long ago or less speaks from now."""
BATCHES_TO_BELIEVE = 10
HELD_TO_BELIEVE_MS = 60_000
LONGEST_TICK_MS = 60_000
"""While the clock is not believed, `now` goes on by no more than this a batch."""
SENDERS_AHEAD_FOR_MS = 600_000
"""For so long after the last event that was dated in the future, senders' clocks count as ahead."""


@dataclass(frozen=True, slots=True)
class Clock:
    """What is known of the clock after a batch. Times are epoch milliseconds, 0 before the first batch."""

    now: int = 0
    """The time that is believed."""
    read: int = 0
    """What the clock read."""
    jumped_at: int = 0
    """Since when (as believed) the clock has not been believed; 0: it is."""
    jumped_to: int = 0
    """What it read then."""
    batches: int = 0
    """Batches since."""
    for_read: int = 0
    """Sources that spoke from the time that was read…"""
    for_now: int = 0
    """…and from the time that is believed."""
    ahead_total: int = 0
    """Events dated in the future so far."""
    ahead_at: int = 0
    """When the last of them came."""

    @property
    def trusted(self) -> bool:
        """Whether `now` is what the clock reads."""
        return self.jumped_at == 0


def tick(clock: Clock, read: int) -> Clock:
    """The clock at the next batch, when it reads `read`."""
    step = read - clock.now
    if not clock.now or -LARGEST_STEP_BACK_MS < step < LARGEST_STEP_MS:
        return _believing(clock, max(read, clock.now), read)
    on = min(max(0, read - clock.read), LONGEST_TICK_MS) if not clock.trusted else 0
    now = clock.now + on
    if clock.trusted or abs(read - clock.read) >= LARGEST_STEP_MS:
        # A jump, or a further one: what was said of the one before does not count.
        return replace(
            clock, now=now, read=read, jumped_at=clock.jumped_at or now, jumped_to=read, batches=1, for_read=0, for_now=0
        )
    held = clock.batches + 1 > BATCHES_TO_BELIEVE and read - clock.jumped_to >= HELD_TO_BELIEVE_MS
    if clock.for_read > clock.for_now or (held and not clock.for_now):
        return _believing(clock, read, read)
    return replace(clock, now=now, read=read, batches=clock.batches + 1)


def heard(clock: Clock, newest: Iterable[int]) -> Clock:
    """What the sources said in a batch: `newest` are the times up to which each was heard."""
    if clock.trusted:
        return clock
    for_read = for_now = 0
    for at in newest:
        for_read += abs(at - clock.read) <= FRESH_MS
        for_now += abs(at - clock.now) <= FRESH_MS
    return replace(clock, for_read=for_read, for_now=for_now)


def counted(clock: Clock, ahead_total: int, now: int) -> Clock:
    """Take in how many events have been dated in the future."""
    if ahead_total <= clock.ahead_total:
        return clock
    return replace(clock, ahead_total=ahead_total, ahead_at=now)


def senders_are_ahead(clock: Clock, now: int) -> bool:
    """Whether events dated in the future came lately."""
    return 0 <= now - clock.ahead_at < SENDERS_AHEAD_FOR_MS


def _believing(clock: Clock, now: int, read: int) -> Clock:
    return replace(clock, now=now, read=read, jumped_at=0, jumped_to=0, batches=0, for_read=0, for_now=0)
