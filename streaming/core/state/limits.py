"""The limits that tracking needs for one queue, resolved from its attributes and the settings."""

from __future__ import annotations

from streaming.core.settings import Settings
from streaming.core.state.queues import (
    BLOCKS_GROUPS,
    NEVER,
    Described,
    dead_letter_queue,
    known_visibility_s,
    last_delivery,
    max_receive_count,
    poison_receives,
    retention_ms,
    visibility_ms,
)

LIMITS = (
    "visibility_ms",
    "visibility_known",
    "retention_ms",
    "max_receive_count",
    "last_delivery",
    "poison_receives",
    "ordered",
    "blocks_groups",
    "dead_letter_queue",
    "held_ms",
    "reconcile_after_ms",
    "dead_letter_quiet_ms",
    "dropped_quiet_ms",
    "delay_ms",
)
"""`visibility_known`: 0 where the visibility timeout is assumed. `max_receive_count`: 0 when not known. `last_delivery`: 0 where
a message whose last delivery failed waits for the next receive. `ordered`: KEEPS_ORDER or IN_ONE_SHARD where the settings say so.
`blocks_groups`: 1 where nothing of a group is delivered behind a message that waits or is in flight. `dead_letter_queue`: 1 where
there is one. `held_ms`: when a message counts as held too long. The quiet times: how long after an arrival or a loss its signal
resolves. `delay_ms`: for how long a message is delayed of which the send says nothing else."""

KEEPS_ORDER, IN_ONE_SHARD = 1, 2
"""Where events say that a queue keeps no order, all its messages stay in the shard that its name chooses."""


def limits_of(queue: Described, settings: Settings) -> tuple[int, ...]:
    """Return the values of LIMITS for one queue."""
    thresholds = settings.thresholds(queue.name)
    window = visibility_ms(queue, settings)
    held_ms = 0 if window >= NEVER else thresholds.held_visibility_factor * window
    return (
        window,
        int(known_visibility_s(queue, settings) is not None),
        retention_ms(queue, settings),
        max_receive_count(queue, settings) or 0,
        last_delivery(queue, settings),
        poison_receives(queue, settings),
        _ordered(queue, settings),
        int(queue.name.system in BLOCKS_GROUPS),
        int(dead_letter_queue(queue, settings) is not None),
        int(min(max(held_ms, thresholds.held_min_s * 1000), NEVER)),
        int(thresholds.reconcile_after_s * 1000),
        int(thresholds.dead_letter_quiet_s * 1000),
        int(thresholds.dropped_quiet_s * 1000),
        int((queue.number("delay_s") or queue.number("delivery_delay_s") or 0) * 1000),
    )


def _ordered(queue: Described, settings: Settings) -> int:
    if settings.keeps_order(queue.name, queue.attribute("ordered")):
        return KEEPS_ORDER
    return IN_ONE_SHARD if settings.is_ordered(queue.name) else 0
