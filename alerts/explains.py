"""One incident, one page: which alert of a queue explains which others, and is told instead of them.

The sample configuration of Alertmanager and the direct push both follow this table. What explains single messages, dead letters
above all, is folded by the judge already (`streaming.judge.folding`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from alerts.entry import AlertName

EXPLAINS: Mapping[AlertName, tuple[AlertName, ...]] = {
    # Nobody works on the queue: its groups, consumers and ages are consequences.
    "QueueStalled": (
        "GroupStuck",
        "ConcurrencyCollapsed",
        "LookAheadSaturated",
        "SlowConsumer",
        "MessageHeldTooLong",
        "MessageTooOld",
        "QueueLagging",
        "QueueFailing",
    ),
    # The consumer finishes nothing: what comes back, waits and is dead-lettered follows from it.
    "QueueFailing": (
        "PoisonMessage",
        "DeadLetterArrived",
        "BatchRetryStorm",
        "GroupStuck",
        "ConcurrencyCollapsed",
        "SlowConsumer",
        "WindowTooShort",
        "MessageTooOld",
        "QueueLagging",
    ),
    # Blocked groups in front are why hardly any group is worked on.
    "LookAheadSaturated": ("GroupStuck", "ConcurrencyCollapsed", "MessageTooOld", "QueueLagging"),
    # One group's head stands in its way: the age of the queue is the age of that group.
    "GroupStuck": ("MessageTooOld", "QueueLagging", "SlowConsumer"),
    # The queue falls behind: that its messages are old is the same thing later.
    "QueueLagging": ("MessageTooOld",),
    # A whole batch comes back: each of its messages is received again and again.
    "BatchRetryStorm": ("PoisonMessage",),
    # Nobody reports on this queue: its ages, stalls and slow consumers are guesses.
    "QueueStale": (
        "MessageTooOld",
        "QueueLagging",
        "QueueStalled",
        "QueueFailing",
        "MessageHeldTooLong",
        "SlowConsumer",
        "GroupStuck",
        "ConcurrencyCollapsed",
        "LookAheadSaturated",
        "QueueSilent",
    ),
}


def explained_by(name: AlertName, firing: Iterable[AlertName]) -> AlertName | None:
    """The first alert of those that fire on a queue which explains `name`, or None."""
    present = set(firing)
    return next((cause for cause, effects in EXPLAINS.items() if cause in present and name in effects), None)
