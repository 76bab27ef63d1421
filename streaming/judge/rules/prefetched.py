"""Messages in prefetch windows: to the broker they are in flight, but all that a consumer does not work on yet wait.

A consumer takes messages in the order in which they were dispatched to it. So the oldest it holds is the one it works on, and it
began when it finished the one before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from streaming.core.reporting.report import ConsumerHolds
from streaming.judge.conditions.conditions import condition, conditions, once
from streaming.judge.context import FEWEST_HOLDS, Context
from streaming.judge.findings import measures
from streaming.judge.knowledge.unconfirmed_holds import unconfirmed
from streaming.judge.turns import longest_turn_ms

STATES_RECENT_MS = 300_000
"""A collector repeats the state of its consumers: one not reported for so long may be gone."""

USUAL_FACTOR = 2
"""A hold, or a pause of consumers that hold messages, is unusual from this many times the 99th percentile of holds on."""


def usual_limit_ms(c: Context) -> float:
    """Return how long a hold may last before it is unusual for this queue; infinite while too few were finished."""
    return math.inf if c.long_hold_ms is None else USUAL_FACTOR * c.long_hold_ms


def unusual_turn_ms(c: Context) -> float:
    """Return from when on it is unusual that consumers which take messages ahead of their work finish none; infinite if unknown.

    Their messages are held for as long as the whole window takes, which says little about the work on one.
    """
    longest_ms = longest_turn_ms(c.memory.turns)
    if longest_ms is None or c.memory.turns_seen < FEWEST_HOLDS:
        return math.inf
    holders = c.summary.consumers
    return USUAL_FACTOR * longest_ms if holders and all(has_window(c, held.consumer) for held in holders) else math.inf


def has_window(c: Context, consumer: str) -> bool:
    """Whether a consumer takes messages ahead of its work."""
    state = c.summary.consumer_states.get(consumer)
    prefetch = state.attributes.get("prefetch") if state is not None else None
    return isinstance(prefetch, int) and prefetch > 1


def waits_for_its_turn(c: Context, consumer: str | None, held_ms: float, within_ms: float) -> bool:
    """Whether a message that is held no longer than usual waits in the prefetch window of a consumer that finished one lately.

    Such a consumer takes messages ahead of its work: no more is wrong than the size of the window.
    """
    if consumer is None or not has_window(c, consumer) or not held_ms <= usual_limit_ms(c) < math.inf:
        return False
    return c.now - c.summary.consumer_acks.get(consumer, 0) <= within_ms


def full_windows(c: Context) -> list[ConsumerHolds]:
    """Return the consumers that can be given nothing more before they finish a message: their prefetch windows are full.

    A broker that pushes messages gives them to a consumer as long as its window has room. So where each consumer reports its
    window, a message that waits for its group's consumer waits for one of these.
    """
    return [held for held in c.summary.consumers if _is_full(c, held) and held.consumer not in unconfirmed(c)]


def passed_over(c: Context) -> int:
    """Return how many consumers are connected and have free prefetch capacity, if all have; 0 if one has none, or if unknown.

    A broker that pushes messages gives them whatever they may have. So none of them may have what has waited for a while.
    How full a window is follows from the receives: where not all are reported, it only seems to have room.
    """
    if c.basis != "messages" or not c.summary.last_received_at:
        return 0
    windows = {
        name: state.attributes.get("prefetch")
        for name, state in c.summary.consumer_states.items()
        if state.attributes.get("connected") is True and c.now - state.at <= STATES_RECENT_MS
    }
    held = {held.consumer: held.messages for held in c.summary.consumers}
    room = all(isinstance(size, int) and size > held.get(name, 0) for name, size in windows.items())
    return len(windows) if room else 0


def _is_full(c: Context, held: ConsumerHolds) -> bool:
    state = c.summary.consumer_states.get(held.consumer)
    prefetch = state.attributes.get("prefetch") if state is not None else None
    return isinstance(prefetch, int) and 0 < prefetch <= held.messages


@conditions("working")
def working_since(c: Context) -> Mapping[str, int]:
    """Return `consumer@message` -> since when a consumer with a prefetch window has worked on its oldest message.

    For those that finished others since it was dispatched to them: at most since the latest of these. Once it is known, it stands
    while the message is the oldest: others that overtake it do not make it younger.
    """
    finished = c.summary.consumer_acks
    return {
        _part(held): finished[held.consumer]
        for held in c.summary.consumers
        if finished.get(held.consumer, 0) > held.since and has_window(c, held.consumer)
    }


def in_work_since(c: Context, held: ConsumerHolds) -> int:
    """Return since when a consumer has worked on the oldest message it holds, as far as that is known."""
    return max(held.since, working_since(c).get(_part(held), 0))


@condition("prefetched")
def prefetched_since(c: Context) -> int | None:
    """Messages wait in prefetch windows behind others."""
    return c.now if any(_with_waiting(c)) and not c.is_dead_letter_queue and not c.paused else None


def waiting_in_windows(c: Context) -> int:
    """Return how many messages wait in prefetch windows behind the one that their consumer works on."""
    return sum(held.messages - 1 for held in _with_waiting(c))


def stuck_windows_since(c: Context) -> int | None:
    """Return since when messages have waited in windows whose consumers work on one for longer than is usual; None: none do."""
    stuck_from = windows_stuck_from(c)
    return prefetched_since(c) if stuck_from is not None and c.now > stuck_from else None


@once
def windows_stuck_from(c: Context) -> int | None:
    """Return after when a consumer works on its message for longer than is usual while others wait in its window; None: none do.

    Where too few messages were finished to know what is usual, the limit is that of MessageHeldTooLong.
    """
    if prefetched_since(c) is None:
        return None
    limit_ms = min(usual_limit_ms(c), unusual_turn_ms(c))
    if limit_ms == math.inf:
        limit_ms = measures.hold(0, 0, c.summary, c.settings).limit
    return math.floor(min(in_work_since(c, held) for held in _with_waiting(c)) + limit_ms)


def _with_waiting(c: Context) -> Iterator[ConsumerHolds]:
    for held in c.summary.consumers:
        if held.messages > 1 and has_window(c, held.consumer) and held.consumer not in unconfirmed(c):
            yield held


def _part(held: ConsumerHolds) -> str:
    return f"{held.consumer}@{held.message_id}"
