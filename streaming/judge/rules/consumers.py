"""Signals about consumers: who sits on a message, and what the broker's own strategies would say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streaming.judge.context import Context, duration, seconds
from streaming.judge.signals import Finding


def slow_consumer(c: Context) -> Iterator[Finding]:
    """It has held its oldest message longer than max(30 s, 10 x what this queue's messages usually take)."""
    usual = c.median_hold_ms
    limit_ms = int(max(c.thresholds.slow_hold_min_s * 1000, c.thresholds.slow_hold_factor * (usual or 0)))
    for held in c.facts.consumers[: c.settings.messages_per_queue]:
        held_ms = c.now - held.since
        if held_ms <= limit_ms:
            # They are listed longest first.
            return
        evidence: dict[str, Any] = {
            "strategy": "hold",
            "message_id": held.message_id,
            "held_s": seconds(held_ms),
            "limit_s": seconds(limit_ms),
            "held_messages": held.held,
        }
        if usual is not None:
            evidence["usual_hold_s"] = round(usual / 1000, 3)
        compared = f"; usual here is {usual / 1000:.3g} s" if usual is not None else ""
        evidence["summary"] = (
            f"Consumer {held.consumer} of {c.name[2]} has held message {held.message_id} for {duration(held_ms)}{compared}."
        )
        yield c.finding("SlowConsumer", "warning", held.since, evidence, consumer=held.consumer)
