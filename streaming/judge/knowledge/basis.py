"""Which kind of knowledge there is of a queue, worked out from what arrives and never from a setting.

`messages`: sends, deliveries and ends are reported, and the broker's counts agree (or nobody counts). `consumers`: deliveries and
ends, no sends. `producers`: sends and nothing else. `partial`: some of everything. `counts`: the broker's counts only. `unknown`:
nothing lately.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from streaming.judge.history import Window
from streaming.judge.knowledge.evidence import Evidence

Basis = Literal["messages", "consumers", "producers", "partial", "counts", "unknown"]
BASES: tuple[Basis, ...] = get_args(Basis)

COUNTS_FRESH_MS = 600_000
"""Counts older than this say nothing of now."""
SIDES_MS = 900_000
"""Which sides report is judged by the events of so long."""
MOST_UNSENT_RATIO = 0.1
"""Of the messages that are delivered or end, no more than this part may lack its send where producers are called instrumented."""
FEWEST_SENDS_RATIO = 0.1
FEWEST_COUNTED = 20
FEWEST_PASSED = 5
"""So many younger messages were received before the oldest that waits: chance and best-effort order explain fewer."""
QUIET_MS = 3_600_000
"""Message events older than this say nothing of who is instrumented now."""


@dataclass(frozen=True, slots=True)
class BasisReason:
    """The kind of knowledge, why it is that one, and what would improve it (empty when nothing has to)."""

    basis: Basis
    why: str
    next_step: str


@dataclass(frozen=True, slots=True)
class Sides:
    """Which events of a queue arrive."""

    sends: bool
    """Or moves into it."""
    takes: bool
    """Deliveries or ends."""
    unsent_ratio: float | None
    """Part of the messages delivered or ended lately whose send was not reported; None when none was."""


def sides(past: Window, now: int) -> Sides:
    """What arrived lately; where that is nothing, what ever did."""
    touched, unsent = past.change("touched", now - SIDES_MS), past.change("touched_unsent", now - SIDES_MS)
    sent = past.change("sent", now - SIDES_MS) + past.change("arrived", now - SIDES_MS)
    if not touched and len(past):
        # A quiet queue, or only just begun: all that is known of it.
        touched, unsent = int(past["touched"][-1]), int(past["touched_unsent"][-1])
    ever_sent = bool(len(past)) and past["sent"][-1] + past["arrived"][-1] > 0
    ever_touched = bool(len(past)) and past["touched"][-1] > 0
    takes = touched > 0 if sent else ever_touched
    return Sides(ever_sent if not sent else True, takes, max(unsent, 0) / touched if touched > 0 else None)


def passed_over(past: Window, came_back: int) -> bool:
    """Whether the oldest message that seems to wait was passed over by several younger ones: somebody unseen may have it.

    `came_back` is when the oldest visible message that was received before was sent: such a one waits for its next turn.
    """
    oldest = int(past["oldest_visible_at"][-1]) if len(past) else 0
    if not oldest or came_back <= oldest:
        return False
    received = int(past["touched"][-1] - past["touched_unsent"][-1])
    # Sends between two samples may have come in any order of time: half of them are allowed for.
    sent, after = past["sent"], min(past.last_before(oldest) + 1, len(past) - 1)
    before = float(np.interp(oldest, past.at, sent)) + float(sent[after] - sent[max(after - 1, 0)]) / 2
    return received - before > max(FEWEST_PASSED, 0.1 * received)


def basis_of(
    e: Evidence, seen: Sides, name: str, *, counts_fresh: bool, messages_seen: bool, passed: bool, now: int
) -> BasisReason:
    """The kind of knowledge there is, by the first rule that applies. `passed`: messages that seem to wait were passed over."""
    # 1. "Where nobody reports messages, the broker's counts are all there is."
    if not messages_seen:
        if counts_fresh:
            return BasisReason("counts", "only the broker's counts are reported", f"instrument the consumers of {name}")
        return BasisReason("unknown", "nothing is reported any more", f"start a collector, or instrument the consumers of {name}")
    few_sends = seen.unsent_ratio is not None and seen.unsent_ratio > MOST_UNSENT_RATIO
    # 2. "Where nothing contradicts that all is reported, it is."
    # Before anything was delivered, sends and counts agree by chance as long as there are few.
    demonstrated = seen.takes or (e.tracked.is_long(now) and e.counted_sum >= FEWEST_COUNTED)
    # Nor does it tell at first who else receives: few counts agree by chance, and may be a minute old.
    early = e.seen_at > 0 and not e.tracked.is_long(now)
    agree = demonstrated and (e.tracked.holds(now) or not e.counted_at) and not (early and passed)
    if not few_sends and seen.sends and (agree or not e.seen_at):
        return BasisReason("messages", _agreement(counts_fresh), "")
    # 3. "Deliveries without their sends: the producers are missing."
    if few_sends and (not seen.sends or (seen.unsent_ratio or 0) > 1 - FEWEST_SENDS_RATIO):
        return BasisReason("consumers", f"sends of {name} are not seen", "instrument its producers")
    # 4. "Sends of which nobody ever hears again: the consumers are missing."
    if seen.sends and not seen.takes:
        return BasisReason("producers", f"deliveries and deletions of {name} are not seen", "instrument its consumers")
    # 5. "The rest is seen in part."
    if seen.takes or seen.sends:
        return BasisReason("partial", _missing(e, seen, name), _next_step(e, seen, name))
    return BasisReason(
        "counts" if counts_fresh else "unknown", "no message was reported lately", f"instrument the consumers of {name}"
    )


def _agreement(counts_fresh: bool) -> str:
    if counts_fresh:
        return "sends and ends are seen, and the broker's counts agree"
    return "sends and ends are seen; no broker's count says otherwise"


def _missing(e: Evidence, seen: Sides, name: str) -> str:
    if seen.unsent_ratio is not None and seen.unsent_ratio > MOST_UNSENT_RATIO:
        return f"sends of {seen.unsent_ratio:.0%} of the messages of {name} are not seen"
    if e.tracked_sum < e.counted_sum:
        part = e.tracked_sum / e.counted_sum if e.counted_sum else 0.0
        return f"about {part:.0%} of the messages the broker counts are seen"
    return f"ends of some messages of {name} are not seen"


def _next_step(e: Evidence, seen: Sides, name: str) -> str:
    if seen.unsent_ratio is not None and seen.unsent_ratio > MOST_UNSENT_RATIO:
        return f"instrument the remaining producers of {name}"
    if e.tracked_sum < e.counted_sum:
        return f"switch sampling off, or instrument the remaining producers and consumers of {name}"
    return f"instrument the remaining consumers of {name}"
