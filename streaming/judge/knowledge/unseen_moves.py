"""Which moves to a dead-letter queue are probably missing from a queue's telemetry: SQS does not report them.

They are inferred, but only when nothing else explains that a message is gone. Until then the source queue seems to have more
messages than the broker counts, and its dead-letter queue fewer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streaming.judge.context import Context

SYSTEM = "aws_sqs"
GROWING_MS = 900_000
"""A dead-letter queue that grew by the broker's counts within this time receives messages."""


def unseen_moves(c: Context) -> str:
    """Return in words which moves explain that the broker counts other messages than are tracked; empty where none do."""
    ratio = c.coverage_ratio
    if c.name.system != SYSTEM or ratio is None:
        return ""
    if c.is_dead_letter_queue:
        return f"moves to {c.name.queue} are not seen yet: SQS does not report them" if ratio < 1 else ""
    if ratio > 1 and c.dead_letter_queue and (c.firing_here("QueueFailing") or _grows(c, c.dead_letter_queue)):
        return f"some messages have probably been moved to {c.dead_letter_queue}"
    return ""


def _grows(c: Context, dead_letter_queue: str) -> bool:
    """Whether the broker counted more messages in the dead-letter queue than a while before."""
    past = c.history.window(c.name.sibling(dead_letter_queue)).since(c.now - GROWING_MS)
    counted = past["counted_visible"][past["counted_at"] > 0]
    return len(counted) > 1 and bool(counted[-1] > counted[0])
