"""The receive count of a message is the highest that any event reports, not only those of its receives."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from streaming.core.reporting.merge import Merged
from streaming.core.settings import QueueName
from tests.core.driving import event, run_steps
from tests.judge.driving import SETTINGS

Wire = dict[str, Any]
ORDERS, DEAD = QueueName("aws_sqs", "", "orders"), QueueName("aws_sqs", "", "dead")
LIFE = [event("sent", 0, message_id="m"), event("received", 1_000, message_id="m", receive_count=1)]


def after(events: list[Wire], shards: int = 1) -> Merged:
    """Return the report half a minute after the last of these events, each reported in a step of its own."""
    steps = [(60_000 + n, [one]) for n, one in enumerate(events)]
    return run_steps([*steps, (90_000, [])], SETTINGS, shards=shards, restart=True)[-1]


@pytest.mark.parametrize("kind", ["extended", "released"])
@pytest.mark.parametrize("received", [True, False], ids=["received once", "receives not reported"])
def test_a_live_message_has_been_received_as_often_as_any_event_says(kind: str, received: bool) -> None:
    *_, summary = [
        after([*(LIFE if received else LIFE[:1]), event(kind, 20_000, message_id="m", receive_count=4)]).queues[ORDERS]
    ]
    assert summary.numbers["receive_count_max"] == 4
    assert [one.view.message_id for one in summary.messages["poison"]] == ["m"]


@pytest.mark.parametrize("kind", ["dropped", "expired"])
def test_a_lost_message_has_been_received_as_often_as_its_end_says(kind: str) -> None:
    [loss] = after([*LIFE, event(kind, 20_000, message_id="m", receive_count=4)]).queues[ORDERS].losses
    assert loss.receive_count == 4


def test_a_dead_letter_has_been_received_as_often_as_its_move_says() -> None:
    """A JMS client delivers a message again by itself; the broker counts those deliveries when it moves the message."""
    moved = event("dead_lettered", 20_000, message_id="m", to_queue="dead", receive_count=5)
    [arrival] = after([*LIFE, moved]).arrivals
    assert arrival.receive_count == 5


def test_a_sender_says_nothing_about_receives() -> None:
    merged = after([event("sent", 0, message_id="m", receive_count=9)])
    assert merged.queues[ORDERS].numbers["receive_count_max"] == 0


@pytest.mark.parametrize("total", [7, 70])
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_deliveries_that_only_the_end_counts_are_not_missing_receives(order: tuple[int, ...], total: int) -> None:
    """Nobody could have reported them. A receive that counts more than were reported does show that some are missing."""
    reports = [
        event("received", 1_000, message_id="m", receive_count=1),
        event("received", 2_000, message_id="m", receive_count=3),
        event("dead_lettered", 20_000, message_id="m", to_queue="dead", receive_count=total),
    ]
    merged = after([LIFE[0], *(reports[n] for n in order)], shards=3)
    assert merged.queues[ORDERS].total("unseen_receives") == 1


@pytest.mark.parametrize("origin", [{}, {"from_queue": "orders"}], ids=["its queue alone shows it", "it names its source"])
@pytest.mark.parametrize("apart", [True, False], ids=["step by step", "at once"])
def test_receives_of_a_dead_letter_in_its_source_are_not_missing_in_its_own_queue(origin: dict[str, str], apart: bool) -> None:
    """Its count goes on from its source queue's. Who moved it there is not known where no event says so."""
    attributes = {"dead_letter_queue": "dead", "max_receive_count": 4, "visibility_timeout_s": 4}
    events = [event("queue_state", 0, "orders", attributes=attributes), event("sent", 0, "orders", message_id="m")]
    events += [event("received", 5_000 * n, "orders", message_id="m", receive_count=n) for n in range(1, 5)]
    events += [event("received", 30_000, "dead", message_id="m", receive_count=5, **origin)]
    events += [event("deleted", 31_000, "dead", message_id="m")]
    merged = after(events) if apart else run_steps([(60_000, events), (90_000, [])], SETTINGS)[-1]
    totals = {name: merged.queues[DEAD].total(name) for name in ("received", "arrived", "unseen_receives", "touched_unsent")}
    assert totals == {"received": 1, "arrived": 1, "unseen_receives": 0, "touched_unsent": 1}


@pytest.mark.parametrize("order", list(permutations(range(2))))
def test_a_move_that_is_read_after_a_receive_of_its_dead_letter_shows_that_none_are_missing(order: tuple[int, ...]) -> None:
    """Until then the receives before it may have been in that queue."""
    reports = [
        event("dead_lettered", 80_000, "orders", message_id="m", to_queue="dead"),
        event("received", 90_000, "dead", message_id="m", receive_count=3),
    ]
    assert after([reports[n] for n in order]).queues[DEAD].total("unseen_receives") == 0


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_receives_are_missing_again_in_a_queue_that_proves_to_be_no_dead_letter_queue(order: tuple[int, ...]) -> None:
    """Whenever that is known: `x` seems to be a dead letter; `y`, received once, shows that messages are redriven there."""
    reports = [
        event("sent", 0, "work", message_id="m"),
        event("received", 1_000, "work", message_id="m", receive_count=3),
        event("received", 2_000, "work", message_id="x", receive_count=2, from_queue="orders"),
        event("received", 3_000, "work", message_id="y", receive_count=1, from_queue="orders"),
    ]
    work = after([reports[n] for n in order]).queues[QueueName("aws_sqs", "", "work")]
    assert work.total("unseen_receives") == 3
