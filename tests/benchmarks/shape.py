"""The shape of a load: how many queues, how skewed, how many failures. Parameters only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """A load of message lifecycles. Ratios are 0..1, times are event time.

    `live` is the backlog: this many messages wait in the standard queues at any moment, all equally long, before their first
    delivery. The load starts with those messages already sent.
    """

    seed: int = 1
    start_ms: int = 1_700_000_000_000
    events_per_s: float = 10_000.0
    live: int = 0

    queues: int = 200
    queue_skew: float = 1.05
    """Zipf exponent: the share of the n-th busiest queue is proportional to n ** -queue_skew."""
    hot_ratio: float = 0.0
    """The share of the first queue, which is a standard one; the others share the rest. 0: its share by `queue_skew`."""
    fifo_every: int = 4
    """Every n-th queue keeps order within groups."""
    groups_per_queue: int = 2_000
    consumers_per_queue: int = 4

    redelivered_ratio: float = 0.05
    """Messages that need a second delivery; of the failed deliveries half are released, half end by time."""
    poison_ratio: float = 0.002
    """Messages that fail every time; they are moved to the dead-letter queue if there is one."""
    extended_ratio: float = 0.03
    held_ratio: float = 0.00002
    """Messages whose consumer extends the window again and again and never finishes."""
    redriven_ratio: float = 0.3
    """Dead letters that are later moved back, under a new id, and then processed."""

    window_ms: int = 5_000
    poll_every_ms: int = 30_000
    """How often the broker's own counts are reported for every queue."""
    heartbeat_every_ms: int = 15_000

    @property
    def events_per_message(self) -> float:
        """Mean number of events per message: send, deliveries, their outcomes, and the end."""
        failed = self.redelivered_ratio + 4 * self.poison_ratio
        return 3 + failed * 1.5 + self.extended_ratio

    @property
    def messages_per_s(self) -> float:
        """Messages sent per second of event time."""
        return self.events_per_s / self.events_per_message
