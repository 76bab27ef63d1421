"""A snapshot in which every name from outside tries to be something else."""

from __future__ import annotations

from streaming.judge.snapshot import (
    Attempt,
    ConsumerView,
    GroupView,
    MessageView,
    PipelineView,
    Snapshot,
)
from tests.sinks.fakes.views import NOW_MS, age_counts, finding, oldest, queue_view

HOSTILE_NAMES = (
    '<img src=x onerror="window.hacked=1">',
    "</script><script>window.hacked=1</script>",
    'a"b\\c\nd',
    "orders/eu/../../metrics?x=1#y&z=%2F",
    "javascript:window.hacked=1",
    "\u202egnirts-desrever",
    "naïve-очередь-队列-🧵",
    "x" * 200,
    "lone\ud800surrogate",
    "messages/messages",
)


def hostile_snapshot(now_ms: int = NOW_MS) -> Snapshot:
    """Every name from outside tries to be something else."""
    queues = tuple(
        queue_view(
            name,
            now_ms,
            system="aws_sqs",
            scope=name,
            visible=1,
            tracked=1,
            receive_count_max=3,
            poison_messages=1,
            ordered=True,
            kind=name,
            groups={"backlog": 1, "in_flight": 0, "blocked": 0, "hidden": 0},
            oldest_ms=oldest(now_ms, all=9),
            age_counts=age_counts([9.0]),
            age_sum_s=9.0,
            top_groups=(GroupView(name, 1, 0, now_ms - 9_000, name, 3, None, True),),
            consumers=(ConsumerView(name, 1, now_ms - 5_000, name),),
            messages=(
                MessageView(
                    name,
                    "visible",
                    now_ms - 9_000,
                    3,
                    ("poison",),
                    group=name,
                    consumer=name,
                    attempts=(Attempt(now_ms - 5_000, "received", 3, None, name),),
                ),
            ),
            broker={"kind": name, name: name},
        )
        for name in HOSTILE_NAMES
    )
    firing = tuple(
        finding(
            "PoisonMessage",
            name,
            "warning",
            now_ms - 1_000,
            f"{name} was received 3 times.",
            scope=name,
            message_id=name,
            group=name,
            consumer=name,
            receive_count=3,
            note=name,
        )
        for name in HOSTILE_NAMES
    )
    return Snapshot(
        now_ms,
        queues,
        firing,
        {"accepted": 10},
        {HOSTILE_NAMES[0]: 1},
        {HOSTILE_NAMES[0]: now_ms},
        pipeline=PipelineView(batch_id=1, last_batch_at_ms=now_ms),
    )
