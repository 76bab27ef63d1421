"""A snapshot of many queues."""

from __future__ import annotations

import math
import random

from streaming.judge.findings.signals import Finding
from streaming.judge.snapshot import (
    ConsumerView,
    GroupView,
    MessageView,
    PipelineView,
    QueueView,
    Snapshot,
)
from tests.sinks.fakes.views import NOW_MS, age_counts, finding, oldest, queue_view, totals


def many_queues(count: int, now_ms: int = NOW_MS) -> Snapshot:
    """`count` queues: one in a hundred has a poison message, one in ten is FIFO with ten named groups."""
    rng = random.Random(7)
    queues: list[QueueView] = []
    firing: list[Finding] = []
    for i in range(count):
        fifo = i % 10 == 3
        name = f"tenant-{i:05d}-jobs" + (".fifo" if fifo else "")
        backlog = int(rng.paretovariate(1.1)) - 1
        oldest_s = round(backlog and math.sqrt(backlog) * rng.uniform(0.5, 9), 3)
        poison = i % 100 == 42
        message_id = f"{i:08x}-0000-4000-8000-000000000001"
        suspect = MessageView(message_id, "visible", now_ms - int(oldest_s * 1000), 4, ("poison",))
        queues.append(
            queue_view(
                name,
                now_ms,
                visible=backlog,
                in_flight=i % 4,
                tracked=backlog + i % 4,
                status="lagging" if backlog > 300 else "ok",
                oldest_ms=oldest(now_ms, all=oldest_s, visible=oldest_s, cloudwatch=oldest_s, healthy=oldest_s)
                if backlog
                else {},
                age_counts=age_counts([oldest_s] * min(backlog, 50)),
                age_sum_s=oldest_s * backlog,
                totals=totals(sent=i * 100 + backlog, received=i * 100, deleted=i * 100),
                receive_count_max=4 if poison else 1,
                poison_messages=int(poison),
                messages=(suspect,) if poison else (),
                groups={"backlog": 10, "in_flight": 1, "blocked": 0, "hidden": 0} if fifo else {},
                top_groups=tuple(
                    GroupView(f"g{g}", 3, 0, now_ms - int(oldest_s * 1000) + g, f"{g}", 1, None, False) for g in range(10)
                )
                if fifo
                else (),
                consumers=(ConsumerView(f"worker-{i % 7}", i % 4, now_ms - 800, None),),
            )
        )
        if poison:
            firing.append(
                finding(
                    "PoisonMessage",
                    name,
                    "warning",
                    now_ms - 60_000,
                    "A message was received 4 times.",
                    message_id=message_id,
                    receive_count=4,
                )
            )
    return Snapshot(
        now_ms,
        tuple(queues),
        tuple(firing),
        {"accepted": count * 200},
        collectors={"sqs": now_ms - 900},
        pipeline=PipelineView(3, 0.3, now_ms - 200, 0, 0.3, 1_000_000, count * 5, 10_000.0),
    )
