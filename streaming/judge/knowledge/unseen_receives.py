"""Whether receives are not reported: then what is in flight seems to wait, and nothing is known of who receives what."""

from __future__ import annotations

from streaming.core.reporting.report import QueueSummary
from streaming.judge.knowledge.evidence import Evidence

FEWEST_ENDS = 5
"""Fewer deletions may be of messages that were received before anything was reported."""


def receives_are_unseen(summary: QueueSummary) -> bool:
    """Whether consumers report that they delete messages, and never reported a receive."""
    return summary.total("deleted") >= FEWEST_ENDS and not summary.total("received")


def in_flight_is_known(summary: QueueSummary, e: Evidence) -> bool:
    """Whether the messages tracked as in flight are those that consumers have: not if receives happened and none was reported.

    Where receives are reported, more in flight than is tracked may be a late count of before the deletions.
    """
    return summary.total("received") > 0 or not (receives_are_unseen(summary) or e.some_in_flight_are_unseen())
