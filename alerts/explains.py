"""One page per incident: which alert of a queue explains, and replaces, which others.

The example configuration of Alertmanager and the direct push both follow this table. The judge itself already folds signals about
single messages, groups and consumers, and dead letters (`streaming.judge.folding`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from alerts.entry import AlertName

EXPLAINS: Mapping[AlertName, tuple[AlertName, ...]] = {
    # The queue has no active consumer: its groups, consumers and ages are consequences.
    "QueueStalled": (
        "GroupStuck",
        "ConcurrencyCollapsed",
        "LookAheadSaturated",
        "SlowConsumer",
        "MessageHeldTooLong",
        "MessageTooOld",
        "QueueLagging",
        "QueueFailing",
        "ErrorBudgetBurning",
    ),
    # The consumer finishes nothing: redeliveries and waiting messages are consequences. So are dead letters, but their alerts are
    # about another queue: the judge folds those.
    "QueueFailing": (
        "PoisonMessage",
        "BatchRetryStorm",
        "GroupStuck",
        "ConcurrencyCollapsed",
        "SlowConsumer",
        "WindowTooShort",
        "MessageTooOld",
        "QueueLagging",
        "ErrorBudgetBurning",
    ),
    # Blocked groups at the front are the reason why hardly any group is processed.
    "LookAheadSaturated": ("GroupStuck", "ConcurrencyCollapsed", "MessageTooOld", "QueueLagging", "ErrorBudgetBurning"),
    # The head of one group blocks it: the age of the queue is the age of that group.
    "GroupStuck": ("MessageTooOld", "QueueLagging", "SlowConsumer"),
    # The queue falls behind: old messages are a later sign of the same problem.
    "QueueLagging": ("MessageTooOld",),
    # A whole batch comes back: each of its messages is received again and again.
    "BatchRetryStorm": ("PoisonMessage",),
    # Nothing reports on this queue: its ages, stalls and slow consumers are outdated.
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
    """Return the first alert firing on a queue that explains `name`, or None."""
    present = set(firing)
    return next((cause for cause, effects in EXPLAINS.items() if cause in present and name in effects), None)
