"""Builders of views and findings with plausible values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from streaming.core.state.queues import TOTALS
from streaming.judge.findings.signals import Finding, Severity, SignalKey, SignalName
from streaming.judge.snapshot import (
    AGE_BUCKETS_S,
    AGE_SCOPES,
    AgeScope,
    Attempt,
    QueueView,
)

NOW_MS = 1_763_726_400_000
"""2025-11-21 12:00:00 UTC."""

SCOPE = "123456789012/eu-west-1"


def age_counts(ages_s: Sequence[float]) -> tuple[int, ...]:
    """How many of `ages_s` fall into each bucket of AGE_BUCKETS_S and beyond."""
    counts = [0] * (len(AGE_BUCKETS_S) + 1)
    for age_s in ages_s:
        counts[next((i for i, upper in enumerate(AGE_BUCKETS_S) if age_s <= upper), len(AGE_BUCKETS_S))] += 1
    return tuple(counts)


def queue_view(queue: str, now_ms: int = NOW_MS, **known: Any) -> QueueView:
    """A healthy, empty queue; `known` replaces fields."""
    healthy = QueueView(
        system="aws_sqs",
        scope=SCOPE,
        queue=queue,
        status="ok",
        kind="fifo" if queue.endswith(".fifo") else "standard",
        ordered=queue.endswith(".fifo"),
        is_dead_letter_queue=False,
        visible=0,
        in_flight=0,
        delayed=0,
        tracked=0,
        oldest_ms={},
        age_counts=(0,) * (len(AGE_BUCKETS_S) + 1),
        age_sum_s=0.0,
        totals=dict.fromkeys(TOTALS, 0),
        receive_count_max=0,
        poison_messages=0,
        stuck_groups=0,
        groups={},
        top_groups=(),
        other_groups=0,
        other_groups_oldest_ms=None,
        consumers=(),
        other_consumers=0,
        other_consumers_held_since_ms=None,
        dead_letter_expires_at_ms=None,
        time_to_drain_s=None,
        coverage_ratio=1.0,
        messages=(),
        broker={"kind": "standard", "visibility_timeout_s": 30, "retention_s": 345_600},
        last_event_at_ms=now_ms - 400,
        last_settled_at_ms=now_ms - 900,
        last_received_at_ms=now_ms - 700,
    )
    return replace(healthy, **known)


def finding(
    signal: SignalName,
    queue: str,
    severity: Severity,
    since_ms: int,
    summary: str,
    *,
    system: str = "aws_sqs",
    scope: str = SCOPE,
    message_id: str | None = None,
    group: str | None = None,
    consumer: str | None = None,
    part: str | None = None,
    **evidence: Any,
) -> Finding:
    """A firing signal with `summary` as its sentence."""
    key = SignalKey(signal, system, scope, queue, message_id, group, consumer, part)
    return Finding(key, severity, since_ms, {"summary": summary, **evidence})


def receives(first_ms: int, every_ms: int, count: int, window_ms: int, consumer: str) -> tuple[Attempt, ...]:
    """`count` receives, one every `every_ms`, each opening a window of `window_ms`."""
    return tuple(
        Attempt(first_ms + i * every_ms, "received", i + 1, first_ms + i * every_ms + window_ms, consumer) for i in range(count)
    )


def oldest(now_ms: int, **ages_s: float) -> dict[AgeScope, int]:
    return {scope: now_ms - int(ages_s[scope] * 1000) for scope in AGE_SCOPES if scope in ages_s}


def totals(**counts: int) -> dict[str, int]:
    return dict.fromkeys(TOTALS, 0) | counts
