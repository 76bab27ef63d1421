"""A redrive proves that its message had left its source queue: SQS reports no moves, and the redrive may be all that is known."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any
from unittest.mock import patch

import pytest

from streaming.core.settings import QueueName, QueueRule, Settings
from streaming.core.state.queue_row import QueueRow
from streaming.core.state.queues import dead_letter_queue
from streaming.core.tracking import dead_letters
from tests.core.driving import event, run_steps
from tests.judge.driving import SETTINGS

SOURCE, DEAD = QueueName("aws_sqs", "", "orders"), QueueName("aws_sqs", "", "dead")
STATE = event("queue_state", 0, attributes={"kind": "standard", "dead_letter_queue": "dead", "visibility_timeout_s": 30})
FIRST_LIFE = [
    event("sent", 0, message_id="m"),
    *(event("received", at, message_id="m", receive_count=n) for n, at in ((1, 1_000), (2, 32_000), (3, 63_000))),
]
NEW_ID = event("redriven", 200_000, "dead", message_id="m", to_queue="orders", new_message_id="m2")
SECOND_LIFE = [
    event("received", 210_000, message_id="m2", receive_count=1),
    event("deleted", 215_000, message_id="m2"),
]


def totals(steps: list[list[dict[str, Any]]], shards: int = 1) -> tuple[dict[str, int], dict[str, int]]:
    """Return the totals of the source queue, and what is in it after these steps."""
    *_, merged = run_steps([(300_000, step) for step in steps], SETTINGS, shards=shards, restart=True)
    summary = merged.queues[SOURCE]
    names = ("received", "dead_lettered", "deleted", "failed")
    return {name: summary.total(name) for name in names}, {s: summary.numbers[s] for s in ("visible", "in_flight")}


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
def test_a_redrive_ends_the_original_whose_move_nobody_reported(order: tuple[int, ...], shards: int) -> None:
    """In whatever order the attributes that name the dead-letter queue, the two lives and the redrive are read."""
    parts = [[STATE], FIRST_LIFE, [NEW_ID], SECOND_LIFE]
    expected = {"received": 4, "dead_lettered": 1, "deleted": 1, "failed": 3}, {"visible": 0, "in_flight": 0}
    assert totals([parts[i] for i in order], shards) == expected
    assert totals([[event for i in order for event in parts[i]]], shards) == expected


def test_a_redrive_without_a_new_id_ends_the_original_too() -> None:
    """Nothing comes back that could be followed, but the message is no longer where it was."""
    unknown = {name: value for name, value in NEW_ID.items() if name != "new_message_id"}
    assert totals([[STATE, *FIRST_LIFE], [unknown]])[1] == {"visible": 0, "in_flight": 0}


@pytest.mark.parametrize(
    "other",
    [
        event("received", 250_000, message_id="m", receive_count=4),
        event("sent", 100, "dead", message_id="m"),
        event("queue_state", 1, attributes={"dead_letter_queue": "others"}),
    ],
    ids=["delivered after the redrive", "sent to the dead-letter queue", "another dead-letter queue"],
)
def test_what_a_redrive_does_not_prove_stays(other: dict[str, Any]) -> None:
    """The message that was redriven is another one then, or another one of the same id."""
    (numbers, depth) = totals([[STATE, *FIRST_LIFE], [NEW_ID, other]])
    assert numbers["dead_lettered"] == 0
    assert sum(depth.values()) == 2


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("later_ms", [1, 30_000])
def test_a_second_report_of_a_redrive_does_not_revive_the_message(later_ms: int, shards: int) -> None:
    """Either end may report it, by its own clock. The message has a new id, so it is redriven once."""
    parts = [[STATE, *FIRST_LIFE], [NEW_ID], SECOND_LIFE, [NEW_ID | {"at": NEW_ID["at"] + later_ms}]]
    for order in permutations(range(1, 4)):
        in_order = [parts[i] for i in (0, *order)]
        for steps in (in_order, [[one for part in in_order for one in part]]):
            assert totals(steps, shards)[1] == {"visible": 0, "in_flight": 0}


@pytest.mark.parametrize("configured", [False, True])
def test_only_sources_of_its_dead_letter_queue_are_searched_for_an_original(configured: bool) -> None:
    """It may never be found, and there may be thousands of queues, whose attributes are parsed for their dead-letter queue."""
    settings = replace(SETTINGS, rules=(QueueRule("orders", dead_letter_queue="dead"),)) if configured else SETTINGS
    state = {"kind": "standard", "visible": 0} | ({} if configured else {"dead_letter_queue": "dead"})
    others = [
        event("queue_state", 0, f"other-{n}", attributes={"kind": "standard", "dead_letter_queue": f"dead-{n}"}) for n in range(9)
    ]
    searched: list[str] = []

    def dead_letter_queue_of(record: QueueRow, settings: Settings) -> str | None:
        searched.append(record.name.queue)
        return dead_letter_queue(record, settings)

    with patch.object(dead_letters, "dead_letter_queue", dead_letter_queue_of):
        steps = [(300_000, [event("queue_state", 0, attributes=state), *others, NEW_ID]), (301_000, FIRST_LIFE), (302_000, [])]
        *_, merged = run_steps(steps, settings, restart=True)
    assert merged.queues[SOURCE].total("dead_lettered") == 1
    assert "orders" in searched
    assert configured or set(searched) == {"orders"}
