"""ActiveMQ's two strategies for slow consumers, with their defaults.

https://activemq.apache.org/components/classic/documentation/slow-consumer-handling, AbortSlowConsumerStrategy and
AbortSlowAckConsumerStrategy. The first never aborts a consumer of a queue, so its input counts instead: the broker's mark of a
consumer whose window is full while more messages wait. The second counts when it would abort.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from lab.detect.alarms import Alarm, spans
from lab.detect.run import Run
from lab.history import Delivery
from streaming.judge.slow_consumer import ConsumerReport, StrategyMemory, StrategyParams, judge_ack, judge_prefetch

LOOK_S = 5.0
ACKNOWLEDGED = ("deleted", "dropped")
"""A NACK is an acknowledgement, too: PrefetchSubscription.acknowledge notes the time of any kind."""


@dataclass(frozen=True)
class SlowConsumers:
    """One of the two strategies."""

    by: Literal["prefetch", "ack"]

    @property
    def name(self) -> str:
        return "ActiveMQ: window full (prefetch)" if self.by == "prefetch" else "ActiveMQ: no ack for 30 s (ack)"

    @property
    def source(self) -> str:
        return "AbortSlowConsumerStrategy" if self.by == "prefetch" else "AbortSlowAckConsumerStrategy"

    def applies(self, run: Run) -> bool:
        """ActiveMQ only."""
        return run.recording.system == "activemq"

    def alarms(self, run: Run) -> list[Alarm]:
        times = run.every(LOOK_S)
        found = []
        for consumer, reports in _consumer_reports(run, times).items():
            memory: StrategyMemory | None = None
            slow = []
            for at, detected in zip(times, reports, strict=True):
                judge = judge_prefetch if self.by == "prefetch" else judge_ack
                verdict, memory = judge(detected, StrategyParams(), memory, at)
                slow.append(verdict.slow if self.by == "prefetch" else verdict.would_abort)
            found += [Alarm(a, b, run.main, self.by, frozenset({consumer}), consumer=consumer) for a, b in spans(times, slow)]
        return found


def _consumer_reports(run: Run, times: list[int]) -> dict[str, list[ConsumerReport]]:
    history = run.recording.history.of(run.main)
    states: dict[str, list[tuple[int, bool, int]]] = {}
    for report in run.recording.reports:
        event = report.event
        if event["type"] == "consumer_state" and event["queue"] == run.main:
            detected = event["attributes"]
            states.setdefault(event["consumer"], []).append((event["at"], detected["connected"], detected["prefetch"]))
    waiting = [history.counts(at).visible for at in times]
    return {c: list(_of(c, s, history.deliveries, times, waiting)) for c, s in states.items()}


def _of(
    consumer: str, states: list[tuple[int, bool, int]], deliveries: list[Delivery], times: list[int], waiting: list[int]
) -> Iterator[ConsumerReport]:
    mine = [d for d in deliveries if d.consumer == consumer]
    begins = sorted(d.at for d in mine)
    ends = sorted(d.ended_at for d in mine)
    acks = sorted(d.ended_at for d in mine if d.outcome in ACKNOWLEDGED)
    since = [at for at, _, _ in states]
    joined = [at for n, (at, connected, _) in enumerate(states) if connected and not (n and states[n - 1][1])]
    for at, more in zip(times, waiting, strict=True):
        known = bisect_right(since, at) - 1
        _, connected, prefetch = states[max(known, 0)]
        connected_at = joined[bisect_right(joined, at) - 1] if connected and known >= 0 else None
        held = bisect_right(begins, at) - bisect_right(ends, at)
        first, acked = bisect_left(acks, connected_at or 0), bisect_right(acks, at)
        yield ConsumerReport(
            consumer=consumer,
            connected=connected and known >= 0,
            prefetch=prefetch,
            dispatched=held,
            held_from_ms=0,  # it is judged more often than it is checked
            network=False,
            last_ack_at_ms=acks[acked - 1] if acked > first else None,
            connected_at_ms=connected_at,
            oldest_held_since_ms=None,
            queue_waiting=more,
            median_hold_ms=None,
        )
