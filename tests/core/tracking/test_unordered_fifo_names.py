"""A queue whose name ends in `.fifo` keeps no order if its events say so."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import QueueName, QueueRule, Settings
from streaming.core.state.state import ShardState
from tests.core.driving import event, run_steps

NAME = QueueName("aws_sqs", "", "q.fifo")
STATE = event("queue_state", 6_000, "q.fifo", attributes={"visibility_timeout_s": 20, "visible": 3})


def sent(n: int, **more: Any) -> dict[str, Any]:
    return event("sent", n, "q.fifo", message_id=f"m{n}", group="g", sequence=str(n), **more)


@pytest.mark.parametrize("restart", [False, True])
def test_it_stays_in_one_shard_and_is_reported_as_unordered(restart: bool) -> None:
    """One event says so, before or after others, and it is known from then on: also after a restart and the broker's reports."""
    states: list[ShardState] = []
    steps = [
        (5_000, [sent(1), sent(2)]),
        (6_000, [sent(3, ordered=False), STATE]),
        (60_000, []),
        (70_000, [sent(4), STATE | {"at": STATE["at"] + 60_000}]),
    ]
    before, *after = run_steps(steps, shards=3, restart=restart, states=states)
    assert before.queues[NAME].ordered_facts is not None
    for merged in after:
        summary = merged.queues[NAME]
        assert summary.ordered_facts is None
        assert [(group.name, group.unsettled) for group in summary.groups] == [("g", summary.numbers["visible"])]
    assert sorted(len(state.rows) for state in states) == [0, 0, 4]


def test_the_configuration_decides() -> None:
    """`ordered: true` under `queues` holds, whatever the events say."""
    settings = Settings(rules=(QueueRule("q.*", ordered=True),))
    (merged,) = run_steps([(5_000, [sent(1, ordered=False), sent(2, ordered=False)])], settings)
    assert merged.queues[NAME].ordered_facts is not None
