"""A message that comes back after it was forgotten starts over, whether or not its row was evicted meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.state.queues import TOTALS
from streaming.core.state.state import ShardState
from tests.core.driving import T0, event, run_steps

MINUTE_MS = 60_000


@pytest.mark.parametrize("beside", [0, 200], ids=["evicted", "its row is still there"])
def test_deliveries_of_its_former_life_are_not_its_own(beside: int) -> None:
    """A message is dead-lettered after three deliveries, and comes back under its id an hour later."""

    def received(at_ms: int, count: int, consumer: str) -> tuple[int, list[dict[str, Any]]]:
        about: dict[str, Any] = {
            "message_id": "m",
            "receive_count": count,
            "consumer": consumer,
            "invisible_until": T0 + at_ms + 500,
        }
        return at_ms + 1_000, [event("received", at_ms, **about)]

    hour = 60 * MINUTE_MS
    states: list[ShardState] = []
    others = [event("sent", 0, message_id=f"other-{n}") for n in range(beside)]
    run_steps(
        [
            (1_000, [*others, event("sent", 0, message_id="m")]),
            *(received(count * 2_000, count, f"old-{count}") for count in (1, 2, 3)),
            (9_000, [event("dead_lettered", 8_000, message_id="m", to_queue="d")]),
            (20 * MINUTE_MS, [event("heartbeat", 20 * MINUTE_MS, consumer="c")]),
            (hour, [event("redriven", hour, "d", message_id="m", to_queue="orders", new_message_id="m")]),
            *(received(hour + count * MINUTE_MS, count, f"new-{count}") for count in (1, 2)),
            (hour + 3 * MINUTE_MS, [event("deleted", hour + 2 * MINUTE_MS + 100, message_id="m", consumer="new-2")]),
        ],
        states=states,
    )
    [state] = states
    assert [state.consumers.text(number) for number in state.attempts["consumer"].tolist()] == ["new-1", "new-2"]
    totals = dict(zip(TOTALS, state.queues.totals.sum(axis=0).tolist(), strict=True))
    assert {name: totals[name] for name in ("received", "failed", "deleted")} == {"received": 5, "failed": 4, "deleted": 1}
    assert min(state.consumers.failed.tolist()) >= 0


def test_the_reason_of_a_loss_ends_with_it() -> None:
    """A message that was dropped is delivered again, and expires."""
    about = {"message_id": "m"}
    *_, last = run_steps(
        [
            (1_000, [event("queue_state", 0, attributes={"retention_s": 60}), event("sent", 500, **about)]),
            (2_500, [event("dropped", 2_000, reason="retries exhausted", **about)]),
            (3_500, [event("received", 3_000, receive_count=2, **about)]),
            (200_000, []),
        ]
    )
    [summary] = last.queues.values()
    assert [(loss.kind, loss.reason) for loss in summary.losses] == [("expired", "retention ran out")]
