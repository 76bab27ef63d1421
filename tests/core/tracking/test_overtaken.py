"""A message of a FIFO queue is gone once a later one of its group was received long after it was last heard of."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.core.settings import QueueName, QueueRule, Settings
from tests.core.driving import event, run_steps

Wire = dict[str, Any]
FIRST = str(18_882_222_222_222_222_222)
"""Positions in SQS have twenty digits, which do not fit 64 bits."""
LATER = str(18_882_222_222_222_478_222)


def left(events: list[Wire], settings: Settings | None = None, queue: str = "q.fifo", system: str = "aws_sqs") -> tuple[int, int]:
    """Return how many messages were dropped, and how many are tracked, after steps of a minute each."""
    start = event("x", 0)["at"]
    events = [one | {"system": system, "queue": queue} for one in events]
    steps = [(at, [e for e in events if at - 60_000 < e["at"] - start <= at]) for at in range(0, 1_200_000, 60_000)]
    summary = run_steps(steps, settings or Settings(), restart=True)[-1].queues[QueueName(system, "", queue)]
    return summary.total("reconciled"), sum(summary.numbers[state] for state in ("visible", "in_flight", "delayed"))


def one(type_: str, at_s: int, position: str, group: str = "g", **fields: Any) -> Wire:
    """Return an event about the message at a position of a group."""
    return event(type_, at_s * 1_000, message_id=f"{group}{position}", group=group, sequence=position, **fields)


RECEIVED = [one("sent", 0, FIRST), one("received", 10, FIRST, receive_count=1)]
SOON_DONE = [one("sent", 20, LATER), one("received", 30, LATER, receive_count=1), one("deleted", 31, LATER)]
LATER_DONE = [one("sent", 20, LATER), one("received", 310, LATER, receive_count=1), one("deleted", 311, LATER)]


@pytest.mark.simulation
def test_a_message_whose_deletion_was_lost_is_gone_when_a_later_one_is_received() -> None:
    """Five minutes after it was last heard of, whether it seems to wait or to be in flight."""
    assert left([*RECEIVED, *LATER_DONE]) == (1, 0)
    held = one("extended", 10, FIRST, invisible_until=event("x", 43_200_000)["at"])
    assert left([*RECEIVED, held, *LATER_DONE]) == (1, 0)


def test_a_message_that_no_consumer_reported_is_gone_at_once() -> None:
    """Half of the consumers report nothing. It cannot be of the same batch, as the report of that would name both."""
    assert left([RECEIVED[0], *SOON_DONE]) == (1, 0)


def test_until_its_report_may_have_come_it_stays() -> None:
    """Another consumer's reports may be some seconds older; until then it is not taken for the head of its group."""
    waiting = [one("sent", 21, str(int(LATER) + n)) for n in (1, 2)]
    reported = [e | {"queue": "q.fifo"} for e in (RECEIVED[0], *SOON_DONE, *waiting)]
    late = [e | {"queue": "q.fifo"} for e in (RECEIVED[1], one("deleted", 12, FIRST))]
    reports = run_steps([(32_000, reported), (41_000, late), (60_000, [])], restart=True)
    found = [step.queues[QueueName("aws_sqs", "", "q.fifo")] for step in reports]
    assert [summary.total("reconciled") for summary in found] == [0, 0, 0]
    assert [summary.numbers["visible"] for summary in found] == [3, 2, 2]
    heads = [summary.ordered_facts.oldest[0].head for summary in found if summary.ordered_facts]
    assert [head.sequence for head in heads if head] == [waiting[0]["sequence"]] * 3
    assert run_steps([(32_000, reported), (42_000, [])])[-1].queues[QueueName("aws_sqs", "", "q.fifo")].total("reconciled") == 1


@pytest.mark.parametrize(
    "later",
    [
        [one("sent", 20, LATER), one("received", 309, LATER)],
        [one("sent", 20, LATER)],
        [one("sent", 20, LATER, "h"), one("received", 600, LATER, "h")],
        [one("received", 600, "18882222222222222221")],
        [one("released", 200, FIRST), *LATER_DONE],
        [one("received", 310, FIRST, receive_count=2), *LATER_DONE],
        [event("received", 310_000, message_id="a", group="g", sent_at=event("x", 20_000)["at"])],
    ],
    ids=["too soon", "not received", "another group", "an earlier one", "given back since", "in one batch", "no position"],
)
def test_otherwise_it_stays(later: list[Wire]) -> None:
    """A later message may be from the same batch, and proves nothing about other groups."""
    assert left([*RECEIVED, *later])[0] == 0


@pytest.mark.simulation
def test_what_does_not_hold_back_its_group_stays() -> None:
    """A delayed message; one of a broker that delivers several of a group; a dead letter; longer where the settings say so."""
    delayed = one("sent", 0, FIRST, visible_at=event("x", 300_000)["at"])
    assert left([delayed, *LATER_DONE])[0] == 0
    assert left([*RECEIVED, *LATER_DONE], system="activemq")[0] == 0
    assert left([*RECEIVED, *LATER_DONE], queue="q")[0] == 0
    arrived = event("dead_lettered", 0, "source.fifo", message_id="x", to_queue="q.fifo")
    steps = [(0, [arrived]), (400_000, [e | {"queue": "q.fifo"} for e in (*RECEIVED, *LATER_DONE)])]
    assert run_steps(steps)[-1].queues[QueueName("aws_sqs", "", "q.fifo")].total("reconciled") == 0
    assert left([*RECEIVED, *LATER_DONE], Settings(rules=(QueueRule("q.fifo", {"reconcile_after_s": 900}),)))[0] == 0


def test_it_is_tracked_again_once_it_is_received_again() -> None:
    """Its consumers do not keep to the order that SQS promises."""
    assert left([*RECEIVED, *LATER_DONE, one("received", 700, FIRST, receive_count=2)]) == (1, 1)


@pytest.mark.simulation
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 1_100)), min_size=1, max_size=12, unique_by=lambda pair: pair[1]),
    st.integers(1, 4),
    st.randoms(),
)
def test_it_follows_from_the_highest_position_received(receives: list[tuple[int, int]], length: int, random: Any) -> None:
    """In whatever order the events of a step come, and however many of them: the rule, message by message."""
    receives = sorted(receives, key=lambda pair: pair[1])
    events = [one("received", at, str(position)) for position, at in receives]
    live: dict[int, int] = {}
    highest = (0, 0)
    steps = []
    for start in range(0, len(events), length):
        part = slice(start, start + length)
        live |= dict(receives[part])
        highest = max(highest, *receives[part])
        live = {position: at for position, at in live.items() if position >= highest[0] or highest[1] - at < 300}
        shuffled = [event | {"queue": "q.fifo"} for event in events[part]]
        random.shuffle(shuffled)
        steps.append((receives[part][-1][1] * 1_000, shuffled))
    summary = run_steps(steps, restart=True)[-1].queues[QueueName("aws_sqs", "", "q.fifo")]
    assert sum(summary.numbers[state] for state in ("visible", "in_flight", "delayed")) == len(live)


def test_a_late_report_of_its_end_is_what_counts() -> None:
    """It was taken for gone when the report of the later one came first: its processing took one second all the same."""
    done = one("deleted", 11, FIRST)
    events = [e | {"queue": "q.fifo"} for e in (*RECEIVED, *LATER_DONE, done)]
    steps = [(310_000, events[:1] + events[2:5]), (400_000, [events[1], events[-1]])]
    found, expected = (
        run_steps(part, restart=True)[-1].queues[QueueName("aws_sqs", "", "q.fifo")] for part in (steps, [(400_000, events)])
    )
    assert expected.durations
    assert found.durations == expected.durations
    assert [found.total(of) for of in ("received", "deleted", "processing_ms", "found_later")] == [2, 2, 2_000, 1]


@pytest.mark.parametrize("positions", [(1, 2, 3), (3, 1, 2), (3, 2, 1)])
def test_a_message_sent_after_the_receive_of_a_later_position_was_not_overtaken(positions: tuple[int, int, int]) -> None:
    """Positions have begun again, as when the queue is recreated: nothing shows that those who wait are gone."""
    before = [one("sent", 0, "1000"), one("received", 1, "1000", receive_count=1), one("deleted", 2, "1000")]
    again = [one("sent", 300 + n, str(position)) for n, position in enumerate(positions)]
    assert left([*before, *again]) == (0, 3)


@pytest.mark.parametrize("read_at_once", [False, True])
def test_once_positions_have_begun_again_the_later_ones_overtake(read_at_once: bool) -> None:
    """Whether the receives of both are read in the same step or not."""
    before = [one("sent", 0, "1000"), one("received", 1, "1000", receive_count=1), one("deleted", 2, "1000")]
    again = [one("sent", 300, "1"), one("sent", 301, "2"), one("received", 310, "2", receive_count=1)]
    events = [e | {"queue": "q.fifo"} for e in (*before, *again)]
    steps = [(320_000, events)] if read_at_once else [(3_000, events[:3]), (320_000, events[3:])]
    summary = run_steps([*steps, (335_000, [])], restart=True)[-1].queues[QueueName("aws_sqs", "", "q.fifo")]
    assert (summary.total("reconciled"), summary.numbers["in_flight"], summary.numbers["visible"]) == (1, 1, 0)


def test_a_late_report_of_before_positions_began_again_changes_nothing() -> None:
    """The report of the old message's deletion is read after a later one has overtaken the first one of the new numbers."""
    old = [one("sent", 0, "1000"), one("received", 1, "1000", receive_count=1), one("deleted", 2, "1000")]
    again = [one("sent", 300, "1"), one("sent", 360, "2"), one("received", 540, "2", receive_count=1), one("deleted", 541, "2")]
    first, last = old[:2], [old[2]]
    steps = [
        (at_s * 1_000, [e | {"queue": "q.fifo"} for e in events])
        for at_s, events in ((3, first), (545, again), (545, last), (900, []))
    ]
    summary = run_steps(steps, restart=True)[-1].queues[QueueName("aws_sqs", "", "q.fifo")]
    assert (summary.total("reconciled"), summary.numbers["visible"]) == (1, 0)


def test_a_position_received_within_a_minute_of_the_send_may_still_overtake() -> None:
    """The sender and the consumer date by different clocks."""
    assert left([one("sent", 60, FIRST), *SOON_DONE])[0] == 1
    assert left([one("sent", 91, FIRST), *SOON_DONE])[0] == 0
