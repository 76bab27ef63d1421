"""A shop's bad afternoon, and the quarter of an hour before it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from streaming.judge.snapshot import PipelineView, QueueView, Snapshot
from tests.sinks.fakes.shop_findings import shop_findings
from tests.sinks.fakes.shop_messages import shop_messages
from tests.sinks.fakes.shop_queues import shop_queues
from tests.sinks.fakes.views import NOW_MS


def shop_snapshot(now_ms: int = NOW_MS) -> Snapshot:
    """A shop's bad afternoon: a poison order, a stuck group, a stalled queue, expiring dead letters."""
    messages = shop_messages(now_ms)
    return Snapshot(
        at_ms=now_ms,
        queues=shop_queues(now_ms, messages),
        firing=shop_findings(now_ms, messages),
        events_total={"accepted": 5_120_334, "duplicate": 1_204, "late": 3, "invalid": 12},
        invalid_total={"not_json": 9, "missing_queue": 3},
        collectors={"sqs-eu": now_ms - 4_000, "sqs-us": now_ms - 190_000},
        folded={"groups": 204},
        pipeline=PipelineView(812, 0.31, now_ms - 300, 0, 0.42, 31_000_000, 3_001, 2_440.0),
    )


def shop_past(now_ms: int = NOW_MS, steps: int = 90, step_ms: int = 10_000) -> Iterator[Snapshot]:
    """The quarter of an hour that led to `shop_snapshot(now_ms)`, oldest first, to draw trends from."""
    rng = random.Random(11)
    shop = shop_snapshot(now_ms)
    for step in range(steps):
        at_ms = now_ms - (steps - step) * step_ms
        gone = step / steps
        queues = tuple(_as_it_was(queue, at_ms, _LEVELS.get(queue.queue, _steady)(gone), now_ms, rng) for queue in shop.queues)
        yield replace(shop, at_ms=at_ms, queues=queues)


def _steady(gone: float) -> float:
    return 1 + 0.15 * math.sin(gone * 17)


_LEVELS: dict[str, Callable[[float], float]] = {
    "invoice-mail": lambda gone: max(0.0, (gone - 0.16) / 0.84),
    "payments.fifo": lambda gone: 0.15 + 0.05 * math.sin(gone * 30) if gone < 0.55 else 0.15 + (gone - 0.55) * 1.85,
    "orders": lambda gone: 0.45 + 0.25 * math.sin(gone * 9) + 0.4 * gone * gone,
    "newsletter": lambda gone: max(0.0, 1 - abs(gone - 0.3) * 6) * 300,
    "orders-dlq": lambda gone: 0.6 + 0.1 * int(gone * 4),
    "ORDERS.EU": lambda gone: 0.5 if gone < 0.93 else 0.5 + (gone - 0.93) * 7,
    "search-index": lambda gone: 1 + 0.8 * math.sin(gone * 41),
}


def _as_it_was(queue: QueueView, at_ms: int, level: float, now_ms: int, rng: random.Random) -> QueueView:
    if queue.visible is None:
        return queue
    if not queue.is_dead_letter_queue:
        level *= rng.uniform(0.92, 1.08)
    visible = round(max(queue.visible, 1) * level)
    ages_ms = {scope: max(0.0, (now_ms - since_ms) * level) for scope, since_ms in queue.oldest_ms.items()}
    oldest_ms = {scope: at_ms - int(age_ms) for scope, age_ms in ages_ms.items()} if visible else {}
    return replace(queue, visible=visible, oldest_ms=oldest_ms)
