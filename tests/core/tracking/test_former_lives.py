"""A message that was redriven under its own id starts over, whenever the events of its life before are read."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import QueueName
from tests.core.driving import T0, event, run_steps
from tests.judge.driving import SETTINGS

Wire = dict[str, Any]
ORDERS = QueueName("aws_sqs", "", "orders")
STATES = [
    event("queue_state", 0, attributes={"kind": "standard", "visibility_timeout_s": 30, "dead_letter_queue": "dead"}),
    event("queue_state", 0, "dead", attributes={"kind": "standard"}),
]
FIRST_LIFE = [
    event("sent", 1_000, message_id="m"),
    event("received", 2_000, message_id="m", receive_count=1, sent_at=T0 + 1_000),
    event("extended", 2_500, message_id="m", invisible_until=T0 + 900_000),
    event("dead_lettered", 3_000, message_id="m", to_queue="dead"),
]
BACK = event("redriven", 200_000, "dead", message_id="m", to_queue="orders", new_message_id="m")


def life_now(steps: list[list[Wire]]) -> tuple[dict[str, int], dict[str, int]]:
    """Return what is tracked in the source queue after these steps, and its totals."""
    *_, merged = run_steps([(210_000, step) for step in steps], SETTINGS, restart=True)
    summary = merged.queues[ORDERS]
    numbers = {name: summary.numbers[name] for name in ("visible", "in_flight", "receive_count_max")}
    return numbers | {"sent": int(summary.oldest[0]) - T0}, {
        name: summary.total(name) for name in ("sent", "received", "dead_lettered")
    }


@pytest.mark.parametrize("late", [[0], [1], [2], [0, 1], [0, 1, 2, 3]], ids=str)
def test_events_of_the_life_before_its_redrive_change_nothing_of_its_life_since(late: list[int]) -> None:
    """Read before it or after it, alone or with an event of the life since, they count once."""
    before = [one for n, one in enumerate(FIRST_LIFE) if n not in late]
    after = [FIRST_LIFE[n] for n in late]
    new = [{"visible": 1, "in_flight": 0, "receive_count_max": 0, "sent": 200_000}]
    new.append({"visible": 0, "in_flight": 1, "receive_count_max": 1, "sent": 200_000})
    again = event("received", 205_000, message_id="m", receive_count=1)
    for tracked, last in zip(new, ([], [again]), strict=True):
        totals = {"sent": 1, "received": 1 + len(last), "dead_lettered": 1}
        assert life_now([[*STATES, *before], [BACK], [*after, *last], after]) == (tracked, totals)
