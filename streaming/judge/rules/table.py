"""All rules about queues, in the order in which they are tried. A rule is a pure function of a queue's context.

Each yields the signals that hold now, and how near the queue is to those that do not; the same context gives the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from streaming.judge.context import Context
from streaming.judge.findings.measured import Near
from streaming.judge.findings.signals import Finding
from streaming.judge.rules import (
    config,
    consumers,
    dead_letters,
    failing,
    groups,
    lagging,
    losses,
    messages,
    noisy,
    purges,
    redrive,
    retry_storm,
    short_window,
    silent,
    stalled,
    telemetry,
)

Rule = Callable[[Context], Iterator[Finding] | Iterator[Finding | Near]]

RULES: tuple[Rule, ...] = (
    # 1. "A message that keeps coming back fails whoever receives it."
    messages.poison_message,
    # 2. "A message that is held for ever looks like work to the broker."
    messages.message_held_too_long,
    # 3. "A dead letter is work that was given up, even if a job drains its queue at once or nobody reported it."
    dead_letters.dead_letters_counted,
    dead_letters.dead_letter_arrived,
    # 4. "Nobody reads a dead-letter queue before its messages expire unless somebody says when they do."
    dead_letters.dead_letter_expiring,
    # 5. "A message that was dropped is gone, and no queue shows it."
    losses.message_dropped,
    # 6. "A purge removes what nobody had processed, and no queue shows that either."
    purges.queue_purged,
    # 7. "One message blocks its group, and the queue's own figures hide it behind the other groups."
    groups.group_stuck,
    # 8. "A queue looks for deliverable messages among its first ones only."
    groups.look_ahead_saturated,
    # 9. "Consumers that work one group at a time are as slow as one consumer."
    groups.concurrency_collapsed,
    # 10. "One group's jobs take the consumers of all others."
    noisy.noisy_group,
    # 11. "A backlog of which nothing is finished has no consumers, or only some that hang."
    stalled.queue_stalled,
    # 12. "A message that fails with its whole batch makes the consumers do good work again."
    retry_storm.batch_retry_storm,
    # 13. "If most deliveries fail, a consumer is broken, not a message."
    failing.queue_failing,
    # 14. "Work that outlasts its window is done twice."
    short_window.window_too_short,
    # 15. "A queue that falls behind misses its limit at a time that can be computed."
    lagging.queue_lagging,
    # 16. "No news from a busy producer is bad news."
    silent.queue_silent,
    # 17. "A consumer is slow by how long it holds a message, not by how many it was given."
    consumers.slow_consumer,
    consumers.broker_strategies,
    consumers.zombie_consumer,
    # 18. "A redrive that fails or stops leaves the dead letters where they are, and blocks the next one."
    redrive.redrive_failed,
    redrive.redrive_stalled,
    # 19. "Some settings cause trouble only on the day of the incident."
    config.queue_misconfigured,
    # 20. "A monitor must say what it cannot see."
    telemetry.telemetry_partial,
)
